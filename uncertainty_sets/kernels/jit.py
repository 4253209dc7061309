"""How kernels are compiled.

All decorators cache on disk and release the GIL. `strict` keeps every rounding as written, for what decides
ties and must come out the same wherever it is computed; `kernel` may fuse multiply and add; `summing` also
lets sums be reordered, which is what makes a pass over an array run on vector units; `comparing` ignores
NaN, which makes min and max single instructions. A callee without flags of its own would take over its
caller's, hence a flag for `strict` too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def _compile(function: Function, flags: set[str]) -> Function:
    options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": flags}
    compiled: Function = numba.njit(**options)(function)
    return compiled


def strict(function: Function) -> Function:
    """Compile with every rounding as written (the sign of zero aside)."""
    return _compile(function, {"nsz"})


def kernel(function: Function) -> Function:
    """Compile with multiply and add fused where that helps."""
    return _compile(function, {"contract"})


def summing(function: Function) -> Function:
    """Compile with sums in any order."""
    return _compile(function, {"contract", "reassoc", "nsz"})


def comparing(function: Function) -> Function:
    """Compile for arguments that are never NaN, or where that does not matter."""
    return _compile(function, {"nnan", "nsz"})
