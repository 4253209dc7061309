"""Kernels compiled ahead of time: whether a package has them, and if they may be used.

`make kernels` and the wheels put a library `_compiled` into each package that has kernels. The same functions
are in it that numba compiles otherwise (kernels/jit.py), so a process that uses it never imports numba. It is
used if it was built from the kernels' present sources; after an edit numba compiles them again, until the
next `make kernels`. That happens without a warning: answers are the same, and `status` tells which is used.

| variable | does |
|---|---|
| `FDRO_JIT=1` | lets numba compile the kernels even if there is a library |
| `FDRO_CPU_LEVEL=v2` | uses the code for older processors (x86-64 only) |
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

LIBRARY = "_compiled"
SHARED = Path(__file__).parent / "kernels"
"""Kernels of every package may call those of this one."""


@dataclass(frozen=True)
class Kernels:
    """How a package's kernels run: by its library, or by numba for the reason given."""

    package: str
    library: ModuleType | None
    reason: str = ""

    def __str__(self) -> str:
        if self.library is None:
            return f"{self.package}: compiled by numba when first used ({self.reason})"
        return f"{self.package}: compiled ahead of time, for {self.library.level()}"


@cache
def kernels(package: str) -> Kernels:
    """Return the library of a package's kernels, or why there is none to use."""
    for variable in ("FDRO_JIT", "NUMBA_DISABLE_JIT"):
        if os.environ.get(variable, "") not in {"", "0"}:
            return Kernels(package, None, f"{variable} is set")
    name = f"{package}.{LIBRARY}"
    try:
        library = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return Kernels(package, None, "no library is installed; in a checkout, `make kernels` builds it")
    except ImportError as error:  # made for another system or processor
        return Kernels(package, None, f"its library cannot be loaded: {error}")
    if library.stamp != stamp(Path(str(library.__file__)).parent):
        return Kernels(package, None, "its sources have changed since `make kernels`")
    if level := os.environ.get("FDRO_CPU_LEVEL"):
        library.use(level)
    return Kernels(package, library)


def function(module: str, name: str) -> Callable[..., Any] | None:
    """Return the compiled form of a kernel, or None if numba has to compile it."""
    package, _, rest = module.partition(".")
    return getattr(kernels(package).library, f"{rest}.{name}", None)


def status(*packages: str) -> str:
    """Tell in one line per package how its kernels run.

    >>> print(status("uncertainty_sets"))
    uncertainty_sets: compiled ...
    """
    return "\n".join(str(kernels(package)) for package in packages or ("uncertainty_sets",))


def sources(package: Path) -> list[Path]:
    """Return the files of all functions that a kernel may call: its package's `kernels`, and this one's."""
    parts = {file: file.relative_to(package).with_suffix("").parts for file in package.rglob("*.py")}
    own = {file for file in parts if "kernels" in parts[file]}
    return sorted({*own, *SHARED.glob("*.py")}, key=lambda file: (file.parent != SHARED, file.as_posix()))


def stamp(package: Path) -> str:
    """Return a hash of those files, by which a library is recognised as out of date."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sources(package):
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
