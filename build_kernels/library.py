"""Build the library of each package: lower the kernels for every level, write the C file, link, try."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from build_kernels import shim

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("uncertainty_sets", "fdro_core")
FILE = "_compiled.abi3.so"

LEVELS = {
    "x86_64": {"v4": "x86-64-v4", "v3": "x86-64-v3", "v2": "x86-64-v2"},
    "aarch64": {"generic": "generic"},
}
"""For each machine, the levels to build, best first, and what LLVM calls them."""


class CannotBuild(RuntimeError):
    """The kernels cannot be compiled ahead of time here; the message says why."""


def build(into: Path, packages: Sequence[str] = PACKAGES, root: Path = ROOT) -> dict[str, Path]:
    """Build one library per package under `into`; return them by package.

    Args:
        into: where each package's folder is made, if it is not there.
        packages: their names.
        root: the folder that has their sources.
    """
    levels = LEVELS.get(platform.machine())
    if sys.platform != "linux" or levels is None:
        raise CannotBuild(f"no levels are known for {sys.platform} on {platform.machine()}")
    with tempfile.TemporaryDirectory(prefix="fdro-kernels-") as folder:
        work = Path(folder)
        stamps = {package: _stamp(root / package) for package in packages}  # before: sources may be edited
        _lower(work, levels, packages, root)
        described = {level: json.loads((work / f"{level}.json").read_text()) for level in levels}
        made = {
            package: _link(work, package, described, stamps[package], into / package / FILE)
            for package in packages
        }
    for package in made:
        _try(into, package)
    return made


def _stamp(package: Path) -> str:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from uncertainty_sets import compiled

    return compiled.stamp(package)


def _lower(work: Path, levels: dict[str, str], packages: Sequence[str], root: Path) -> None:
    """Lower for all levels at once, each in a process of its own: numba fixes the processor when imported."""
    running = {
        level: subprocess.Popen(
            [sys.executable, "-m", "build_kernels.lower", str(work), level, cpu, *packages],
            cwd=ROOT,
            env=_environment(root),
            stderr=subprocess.PIPE,
            text=True,
        )
        for level, cpu in levels.items()
    }
    errors = {level: process.communicate()[1] for level, process in running.items()}
    for level, process in running.items():
        if process.returncode:
            raise CannotBuild(f"lowering for {level} failed:\n{errors[level]}")


def _link(work: Path, package: str, described: dict[str, Any], stamp: str, library: Path) -> Path:
    """Compile the C file of a package and link it with the package's objects."""
    own = {
        level: {name: each for name, each in entries.items() if name.startswith(f"{package}.")}
        for level, entries in described.items()
    }
    file = work / f"{package}.c"
    file.write_text(shim.source(own, stamp))
    objects = [str(work / level / f"{name}.o") for level, entries in own.items() for name in entries]
    library.parent.mkdir(parents=True, exist_ok=True)
    fresh = library.with_suffix(".new")  # replaced in one step: a process may have the old one loaded
    includes = [f"-I{sysconfig.get_path('include')}", f"-I{Path(__file__).parent}"]
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-s", "-Wall", *includes]
    _run([*command, str(file), *objects, "-lm", "-o", str(fresh)], "compiling the C file failed")
    os.replace(fresh, library)
    return library


def _try(into: Path, package: str) -> None:
    """Load the library in a new process, where every symbol is resolved at once."""
    code = (
        "import sys; from importlib.util import module_from_spec, spec_from_file_location;"
        "module_from_spec(spec_from_file_location('_compiled', sys.argv[1]))"
    )
    _run([sys.executable, "-c", code, str(into / package / FILE)], "the library cannot be loaded")


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except FileNotFoundError as error:
        raise CannotBuild(f"{what}: there is no {command[0]}; install a C compiler or set CC") from error
    if done.returncode:
        raise CannotBuild(f"{what}:\n{done.stderr}")


def _environment(root: Path) -> dict[str, str]:
    """This process's environment, with the sources first among the places to import from."""
    paths = [str(root), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
