"""The library of a file of kernels: found in a wheel or the user's cache, or made when a kernel is called.

| where | made by | for |
|---|---|---|
| in the package's folder `_kernels` | the build of a wheel | all levels of processors |
| in the user's cache (cache.py) | `make kernels`, or the first call of a kernel | this processor's level |

A library is used if it was made from the file's present sources (sources.py), so an edit is never missed and
makes anew only what depends on it.

| variable | does |
|---|---|
| `FDRO_JIT=1` | lets numba compile the kernels, even if there are libraries |
| `FDRO_CPU_LEVEL=v2` | uses the code for older processors (x86-64 only) |
| `FDRO_CACHE` | the folder of the cache |
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from uncertainty_sets.kernels.native import cache as store
from uncertainty_sets.kernels.native.sources import ROOT, kernel_files, key

BUNDLED = "_kernels"
"""The folder of a package in which a wheel has its libraries."""

LEVELS = {
    "x86_64": {"v4": "x86-64-v4", "v3": "x86-64-v3", "v2": "x86-64-v2"},
    "aarch64": {"generic": "generic"},
}
"""For each machine, the levels of processors, best first, and what LLVM calls them."""

_making = threading.RLock()
_made: dict[str, ModuleType | None] = {}


def forbidden() -> str:
    """The variable that asks for numba's own form of the kernels, or an empty string."""
    for variable in ("FDRO_JIT", "NUMBA_DISABLE_JIT"):
        if os.environ.get(variable, "") not in {"", "0"}:
            return variable
    return ""


def find(module: str, file: str | None) -> ModuleType | None:
    """Return the library of a file of kernels if it is there, of the present sources, and can be loaded.

    Args:
        module: the file's dotted name.
        file: where it is.
    """
    if file is None:
        return None
    try:
        wanted = key(module, Path(file).resolve())
    except OSError:  # sources that are not files, as in a zip file
        return None
    bundled = _bundled(module, file)
    found = _load(bundled, wanted) if bundled.is_file() else None
    kept = (store.path(cache_name(module, wanted, level)) for level in ([] if found else _levels()))
    found = found or next(filter(None, (_load(each, wanted) for each in kept if each)), None)
    if found and (chosen := os.environ.get("FDRO_CPU_LEVEL")):
        found.use(chosen)
    return found


def make(module: str, file: str) -> ModuleType | None:
    """Return the library of a file of kernels, made if need be, or None if that cannot be done here.

    Args:
        module: the file's dotted name.
        file: where it is.
    """
    with _making:
        if module not in _made:
            _made[module] = find(module, file) or _make(module, file)
        return _made[module]


def _make(module: str, file: str) -> ModuleType | None:
    if obstacle():
        return None
    say(f"fdro compiles {module.partition('.')[2]}, once for these sources; `make kernels` compiles all")
    places = [str(Path(file).resolve().parents[module.count(".")]), str(ROOT)]
    with tempfile.TemporaryDirectory(prefix="fdro-kernels-") as folder:
        kept = store.folder() if store.writable() else Path(folder)
        environment = os.environ | {"FDRO_CACHE": str(kept)}
        environment["PYTHONPATH"] = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-P", "-m", "uncertainty_sets.kernels.native", "--only", module]
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if not done.returncode:
            wanted = key(module, Path(file).resolve())
            for level in _levels():
                name = kept / cache_name(module, wanted, level)
                if name.is_file() and (found := _load(name, wanted)):
                    return found
    reason = (done.stderr.strip().splitlines() or ["its sources changed meanwhile"])[-1]
    say(f"fdro could not make the library of {module}; numba compiles its kernels, slowly: {reason}")
    return None


def say(line: str) -> None:
    """Tell what is being waited for, where it disturbs no output."""
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)


def cache_name(module: str, sources: str, level: str) -> str:
    """The name of a library in the cache."""
    return f"libraries/{module}-{level}.{sources}.so"


def _bundled(module: str, file: str) -> Path:
    rest = module.partition(".")[2]
    return Path(file).parents[rest.count(".")] / BUNDLED / f"{rest}.abi3.so"


def bundled_name(module: str) -> str:
    """The path of a library in a wheel."""
    package, _, rest = module.partition(".")
    return f"{package}/{BUNDLED}/{rest}.abi3.so"


def _levels() -> list[str]:
    """The levels that a library in the cache may have been made for, best first."""
    if sys.platform != "linux":
        return []
    chosen = os.environ.get("FDRO_CPU_LEVEL")
    known = list(LEVELS.get(platform.machine(), {}))
    return [chosen] if chosen in known else known


def _load(file: Path, wanted: str) -> ModuleType | None:
    """The library in a file, or None if it is for other sources, processors or systems."""
    loader = ExtensionFileLoader("_compiled", str(file))
    spec = spec_from_loader("_compiled", loader)
    try:
        found = module_from_spec(spec)  # type: ignore[arg-type]  # a loader has a spec
        loader.exec_module(found)
    except ImportError:
        return None
    return found if found.sources == wanted else None


@cache
def obstacle() -> str:
    """Why no library can be made here, or an empty string."""
    if variable := forbidden():
        return f"{variable} is set"
    if sys.platform != "linux" or platform.machine() not in LEVELS:
        return f"libraries are not made for {sys.platform} on {platform.machine()}"
    compiler = shlex.split(os.environ.get("CC", "cc"))[0]
    if shutil.which(compiler) is None:
        return f"there is no {compiler}; install a C compiler or set CC"
    from sysconfig import get_path

    if not Path(get_path("include"), "Python.h").is_file():
        return "Python's headers are missing; on Debian and Ubuntu: apt install python3-dev"
    return ""


def status() -> str:
    """Tell in one line how kernels run.

    >>> print(status())
    kernels: ...
    """
    if variable := forbidden():
        return f"kernels: compiled by numba when first used ({variable} is set)"
    everything = {**kernel_files("uncertainty_sets", ROOT), **kernel_files("fdro_core", ROOT)}
    found = [each for name, file in everything.items() if (each := find(name, str(file)))]
    levels = f", for {found[0].level()}" if found else ""
    text = f"kernels: {len(found)} of {len(everything)} files compiled{levels}"
    if len(found) == len(everything):
        return text
    return f"{text}; the others when first used{f', by numba: {obstacle()}' if obstacle() else ''}"
