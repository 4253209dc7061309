"""Kernels that numba compiles in this process, where there is no library and none can be made.

numba's own cache has one index per function and numbered data files, and can load wrong code: it compares a
function's own file only, so it misses an edit of a callee in another file, and a process killed while it
writes leaves an index that names data of an earlier version. Here every compiled function is a file of
`cache.py`, named by all that it depends on.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import numba
from llvmlite import __version__ as llvmlite_version
from numba.core.caching import Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.extending import typeof_impl

from uncertainty_sets.kernels.native import cache as store
from uncertainty_sets.kernels.native.sources import key

MADE_BY = f"numba {numba.__version__}, llvmlite {llvmlite_version}"

kept = True
"""Whether what is compiled goes to the cache."""


def compile_kernel(function: Callable[..., Any], flags: set[str]) -> Any:
    """Return numba's form of a kernel, which it compiles when it is called.

    Args:
        function: the kernel as written.
        flags: the fast-math flags of LLVM.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": flags}
    made: Any = numba.njit(**options)(function)
    if made is not function and kept:  # it is with NUMBA_DISABLE_JIT=1, to debug a kernel as plain Python
        with suppress(OSError):  # the sources are not files that can be read, as in a zip file
            made._cache = KernelCache(function)
    return made


class KernelCache(Cache):  # type: ignore[misc]  # numba has no types
    """What numba asks of a function's cache."""

    def __init__(self, function: Any) -> None:
        self._py_func = function
        # Not where the code is: jit.owned_by may have moved it.
        home = getattr(sys.modules.get(function.__module__), "__file__", None)
        self._file = Path(home or function.__code__.co_filename).resolve()
        place = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")
        self._name = f"numba/{place}"
        self._sources = key(function.__module__, self._file)  # now, as imported: files may be replaced
        self.enable()

    @property
    def cache_path(self) -> str:
        """The folder."""
        return str(store.folder())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function for these types, or None."""
        target_context.refresh()
        data = store.read(self._file_name(sig, target_context.codegen()))
        return None if data is None else CompileResult._rebuild(target_context, *pickle.loads(data))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function, unless it holds addresses of this process."""
        if not data.library.has_dynamic_globals and all(each.can_cache for each in data.lifted):
            store.write(self._file_name(sig, data.codegen), dumps(data._reduce()))

    def flush(self) -> None:
        """Forget nothing: a file of the same sources is right."""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """What tells apart the kernels of one place: numba's own has what they close over as pickled here."""
        return sig, codegen.magic_tuple(), _described(self._py_func)

    def _file_name(self, sig: Any, codegen: Any) -> str:
        everything = repr((MADE_BY, self._sources, self._index_key(sig, codegen)))
        return f"{self._name}.{blake2b(everything.encode(), digest_size=16).hexdigest()}.nbc"


def _described(function: Any) -> tuple[str, ...]:
    """A kernel's name and what it closes over, alike in every process; `key` has the text of all of it."""
    inner = [each.cell_contents for each in function.__closure__ or ()]
    kernels = [getattr(each, "py_func", None) or getattr(each, "__wrapped__", None) for each in inner]
    parts = [
        repr(each if made is None else _described(made)) for each, made in zip(inner, kernels, strict=True)
    ]
    return (function.__module__, function.__qualname__, *parts)


@cache
def teach_numba(origin: Callable[[Any], Any]) -> None:
    """Let a kernel call a function of a library by the kernel that it was compiled from.

    Args:
        origin: returns that kernel, or None if the function is of no library.
    """

    @typeof_impl.register(BuiltinFunctionType)  # type: ignore[untyped-decorator]  # numba has no types
    def _(function: Any, context: Any) -> Any:
        found = origin(function)
        return None if found is None else found._numba_type_
