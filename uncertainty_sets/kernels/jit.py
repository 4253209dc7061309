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

`entry` above one of them marks a kernel that Python calls. If the package has a library of kernels compiled
ahead of time (compiled.py), the name then stands for the function in that library, and numba is imported only
if something else is called: a kernel of another package, or a helper by a test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any, TypeVar

from uncertainty_sets import compiled
from uncertainty_sets.packages import load

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Entry:
    """A kernel that Python calls: the function as written, and the parameters whose arrays it writes."""

    function: Callable[..., Any]
    writes: tuple[str, ...]


ENTRIES: dict[str, Entry] = {}
"""Every kernel that Python calls, by dotted name, from the moment its file is imported."""


_from_library: dict[Callable[..., Any], Any] = {}
"""For each function of a library the kernel that it was compiled from."""


def entry(*writes: str) -> Callable[[Function], Function]:
    """Mark a kernel that Python calls and name the parameters that it writes.

    Its parameters are annotated with the types of arrays.py, float, int or bool, and it returns nothing, a
    number, or a tuple of numbers: that is what a library can hand over.
    """

    def mark(function: Function) -> Function:
        module, name = function.__module__, function.__name__
        ENTRIES[f"{module}.{name}"] = Entry(function, writes)
        found = compiled.function(module, name)
        if found is None:
            return function
        _from_library[found] = function
        return found  # type: ignore[return-value]  # the same function in machine code

    return mark


class Deferred:
    """A kernel that numba compiles when it is called or when numba meets it in another kernel."""

    def __init__(self, function: Callable[..., Any], flags: set[str]) -> None:
        functools.update_wrapper(self, function)
        self._flags = flags

    @functools.cached_property
    def by_numba(self) -> Any:
        """The kernel, compiled."""
        return _by_numba(self.__wrapped__, self._flags)  # type: ignore[attr-defined]  # by update_wrapper

    @property
    def _numba_type_(self) -> Any:  # numba asks for this
        return self.by_numba._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        """Run it, compiled."""
        return self.by_numba(*arguments)


def _compile(function: Function, flags: set[str]) -> Function:
    if compiled.kernels(function.__module__.partition(".")[0]).library:
        return Deferred(function, flags)  # type: ignore[return-value]  # called in the same way
    return _by_numba(function, flags)


def _by_numba(function: Function, flags: set[str]) -> Function:
    numba = load("numba", "a kernel that is not compiled ahead of time")
    from uncertainty_sets.kernels.cache import KernelCache  # imports numba, which `load` has found by now

    _teach_numba()
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": flags}
    made: Any = numba.njit(**options)(function)
    if made is function:  # NUMBA_DISABLE_JIT=1, to debug a kernel as plain Python
        return function
    # RuntimeError: numba found no folder that it may write to, as in a container without a home. OSError: the
    # sources are not files that can be read, as in a zip file.
    with suppress(RuntimeError, OSError):
        made._cache = KernelCache(function)
    return made  # type: ignore[no-any-return]  # numba has no types


@functools.cache
def _teach_numba() -> None:
    """Let a kernel call a function of a library by the kernel that it was compiled from."""
    from numba.extending import typeof_impl

    @typeof_impl.register(BuiltinFunctionType)  # type: ignore[untyped-decorator]  # numba has no types
    def _(function: Any, context: Any) -> Any:
        found = _from_library.get(function)
        return None if found is None else found._numba_type_


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
