"""How kernels are compiled.

All decorators release the GIL and keep what they compile on disk (cache.py): in NUMBA_CACHE_DIR, beside the
source, or in the user's cache folder. If none of them can be written, every process compiles again.

| decorator | allows | use it for |
|---|---|---|
| `strict` | nothing: every rounding is as written | what decides ties and must be the same everywhere |
| `kernel` | multiply and add fused | control flow |
| `summing` | also sums in any order | passes over an array, which then run on vector units |
| `comparing` | NaN ignored | min and max, which then are single instructions |

A callee without flags inherits its caller's, hence a flag for `strict` too.

The last bits of an answer may depend on what else the process has compiled or loaded: numba copies a callee
into every caller, optimised there once more, under one name, and the copy that was loaded first runs for all.
So a process that compiles KL and one that loads it from the cache may differ there. Only kernels compiled
ahead of time, each with its own copies, give the same bits in every process.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from uncertainty_sets.packages import load

numba = load("numba", "a kernel that is not compiled ahead of time")

Function = TypeVar("Function", bound=Callable[..., Any])


def _compile(function: Function, flags: set[str]) -> Function:
    from uncertainty_sets.kernels.cache import KernelCache  # imports numba, which `load` has found by now

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": flags}
    compiled: Any = numba.njit(**options)(function)
    if compiled is function:  # NUMBA_DISABLE_JIT=1, to debug a kernel as plain Python
        return function
    # RuntimeError: numba found no folder that it may write to, as in a container without a home. OSError: the
    # sources are not files that can be read, as in a zip file.
    with suppress(RuntimeError, OSError):
        compiled._cache = KernelCache(function)
    return compiled  # type: ignore[no-any-return]  # numba has no types


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
