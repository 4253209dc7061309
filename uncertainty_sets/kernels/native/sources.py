"""What a file of kernels depends on: its own text, that of what it imports, and how kernels are compiled.

Contents and not times or places, so that copies, checkouts and wheels of the same sources agree.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import blake2b
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
JIT = "uncertainty_sets.kernels.jit"
"""Every file of kernels imports it; what it imports itself decides nothing of the code."""

IMPORT = re.compile(rb"^from[ \t]+([\w.]+)[ \t]+import[ \t]*(\([^)]*\)|[^\n#]*)|^import[ \t]+([\w.]+)", re.M)


def key(module: str, file: Path) -> str:
    """A hash of all that the compiled form of a file of kernels depends on.

    Args:
        module: its dotted name.
        file: where it is.
    """
    total = blake2b(pipeline(), digest_size=12)
    for name, each in sorted(files(module, file).items()):
        total.update(f"{name} ".encode() + _read(each)[0])
    return total.hexdigest()


def files(module: str, file: Path) -> dict[str, Path]:
    """The file and all of the same packages and of this one that it imports, by dotted name."""
    roots = {"uncertainty_sets": ROOT, module.partition(".")[0]: file.parents[module.count(".")]}
    found: dict[str, Path] = {}
    waiting = [(module, file)]
    while waiting:
        name, place = waiting.pop()
        found[name] = place
        imported = () if name == JIT else _read(place)[1]
        for each in imported:
            root = roots.get(each.partition(".")[0])
            if root is not None and each not in found:
                at = root.joinpath(*each.split(".")).with_suffix(".py")
                if at.is_file():
                    waiting.append((each, at))
    return found


@cache
def _read(file: Path) -> tuple[bytes, tuple[str, ...]]:
    """The hash of a file, and the modules that it may import: `from a import b` may mean a or a.b."""
    content = file.read_bytes()
    modules = []
    for source, names, whole in IMPORT.findall(content):
        modules.append((source or whole).decode())
        modules += [f"{source.decode()}.{each}" for each in re.findall(r"\w+", names.decode())]
    return blake2b(content, digest_size=16).digest(), tuple(modules)


@cache
def pipeline() -> bytes:
    """A hash of the files that turn kernels into a library."""
    total = blake2b(digest_size=16)
    for name in ("lower.py", "emit.py", "shim.py", "runtime.h", "build.py", "by_numba.py"):
        total.update((HERE / name).read_bytes())
    return total.digest()


def kernel_files(package: str, root: Path) -> dict[str, Path]:
    """The files of a package that have kernels which Python calls, by dotted name."""
    found = {}
    for file in sorted((root / package).rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        if "kernels" in parts and re.search(rb"^(@|\w+ = )entry\(", file.read_bytes(), re.M):
            found[".".join(parts)] = file
    return found
