"""How kernels are compiled.

All decorators release the GIL and cache on disk: in NUMBA_CACHE_DIR, beside the source, or in the user's
cache folder. If none of them can be written, every process compiles again.

| decorator | allows | use it for |
|---|---|---|
| `strict` | nothing: every rounding is as written | what decides ties and must be the same everywhere |
| `kernel` | multiply and add fused | control flow |
| `summing` | also sums in any order | passes over an array, which then run on vector units |
| `comparing` | NaN ignored | min and max, which then are single instructions |

A callee without flags inherits its caller's, hence a flag for `strict` too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


_checked: set[Path] = set()


def _compile(function: Function, flags: set[str]) -> Function:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": flags}
    compiled: Any = numba.njit(**options)(function)
    if compiled is function:  # NUMBA_DISABLE_JIT=1, to debug a kernel as plain Python
        return function
    try:
        compiled.enable_caching()
    except RuntimeError:  # numba found no folder that it may write to, as in a container without a home
        return compiled  # type: ignore[no-any-return]  # numba has no types
    folder = Path(compiled.stats.cache_path)
    if folder not in _checked:
        _checked.add(folder)
        with suppress(OSError):  # a cache that cannot be written is one that nobody else writes either
            _drop_if_stale(folder, _sources(Path(function.__code__.co_filename)))
    return compiled  # type: ignore[no-any-return]  # numba has no types


def _sources(file: Path) -> list[Path]:
    """The files of all functions that a kernel may call: this folder, and `kernels.py` in its package."""
    return sorted([*Path(__file__).parent.glob("*.py"), *file.parent.parent.glob("*/kernels.py")])


def _drop_if_stale(cache: Path, sources: list[Path]) -> None:
    """Forget what is cached if any of the kernels' files has changed.

    numba checks a kernel's own file only and would miss an edit of a function that it calls in another file.
    """
    now = "\n".join(f"{path} {path.stat().st_mtime_ns} {path.stat().st_size}" for path in sources)
    stamp = cache / "kernels.stamp"
    if stamp.is_file() and stamp.read_text() == now:
        return
    for index in cache.glob("*.nbi"):
        index.unlink(missing_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    stamp.write_text(now)


def strict(function: Function) -> Function:
    """Compile with every rounding as written (the sign of zero aside)."""
    return _compile(function, {"nsz"})


def kernel(function: Function) -> Function:
    """Compile with multiply and add fused."""
    return _compile(function, {"contract"})


def summing(function: Function) -> Function:
    """Compile with sums in any order."""
    return _compile(function, {"contract", "reassoc", "nsz"})


def comparing(function: Function) -> Function:
    """Compile for arguments that are never NaN, or whose NaN does not matter."""
    return _compile(function, {"nnan", "nsz"})
