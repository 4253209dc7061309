"""How kernels are compiled.

All decorators release the GIL.

| decorator | allows | use it for |
|---|---|---|
| `strict` | nothing: every rounding is as written | what decides ties and must be the same everywhere |
| `kernel` | multiply and add fused | control flow |
| `summing` | also sums in any order | passes over an array, which then run on vector units |
| `comparing` | NaN ignored | min and max, which then are single instructions |

A callee without flags inherits its caller's, hence a flag for `strict` too.

`entry` above one of them marks a kernel that Python calls. Its file has a library (native/library.py) with
the kernel in machine code, made when it is first called if it is not there, and numba is imported only if
something else is called: a helper by a test, a kernel where no library can be made. Only libraries give the
same bits in every process: numba copies a callee into every caller, and the copy that was loaded first runs
for all.

A factory makes kernels that differ in what they close over, other kernels or numbers; `owned_by` says to
which file one belongs.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from uncertainty_sets.kernels.native import library
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
        ENTRIES[f"{function.__module__}.{function.__name__}"] = Entry(function, writes)
        if not isinstance(function, Deferred):
            return function
        file = getattr(sys.modules[function.__module__], "__file__", None)
        if function.__module__ == "__main__":  # another process cannot import it
            file = None
        found = library.find(function.__module__, file)
        if found is None:
            function.file = file
            return function
        made = getattr(found, function.__wrapped__.__name__)  # type: ignore[attr-defined]
        _from_library[made] = function
        return made  # type: ignore[no-any-return]  # the same function in machine code

    return mark


def owned_by(module: str, name: str) -> Callable[[Function], Function]:
    """Let a function that a factory makes stand in another file of kernels, under that name.

    That file's library then holds it, and that file's sources decide whether what is in the cache is right:
    what it closes over must be of that file, or imported there.
    """

    def move(function: Function) -> Function:
        function.__module__, function.__name__ = module, name
        function.__qualname__ = f"{function.__qualname__.rpartition('.')[0]}.{name}"
        return function

    return move


class Deferred:
    """A kernel that is compiled when it is called, or when numba meets it in another kernel."""

    def __init__(self, function: Callable[..., Any], flags: set[str]) -> None:
        functools.update_wrapper(self, function)
        self._flags = flags
        self.file: str | None = None
        """Where an entry's library is made from."""

    @functools.cached_property
    def by_numba(self) -> Any:
        """The kernel as numba compiles it."""
        return _by_numba(self.__wrapped__, self._flags)  # type: ignore[attr-defined]  # by update_wrapper

    @functools.cached_property
    def _run(self) -> Any:
        if self.file is not None:
            made = library.make(self.__module__, self.file)
            if made is not None:
                return getattr(made, self.__name__)  # type: ignore[attr-defined]
        return self.by_numba

    @property
    def _numba_type_(self) -> Any:  # numba asks for this
        return self.by_numba._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        """Run it, compiled."""
        return self._run(*arguments)


def _compile(function: Function, flags: set[str]) -> Function:
    if library.forbidden():
        return _by_numba(function, flags)  # type: ignore[no-any-return]
    return Deferred(function, flags)  # type: ignore[return-value]  # called in the same way


def _by_numba(function: Callable[..., Any], flags: set[str]) -> Any:
    load("numba", "a kernel that is not compiled ahead of time")
    from uncertainty_sets.kernels.native import by_numba  # imports numba, which `load` has found by now

    by_numba.teach_numba(_from_library.get)
    return by_numba.compile_kernel(function, flags)


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
