"""Peak memory of a call in this process, on Linux; None on other systems."""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_of(call: Callable[[], Result]) -> tuple[Result, int | None]:
    """Call a function; return its result and by how many bytes resident memory rose at most meanwhile.

    Includes what compiled code allocates. Freed memory is returned to the system first, so that a call
    does not reuse what an earlier one left.
    """
    gc.collect()
    with suppress(OSError, AttributeError, TypeError):
        _libc().malloc_trim(0)
    try:
        _CLEAR.write_text("5", encoding="ascii")  # the peak starts anew from what is resident now
        before = _kilobytes("VmRSS")
    except OSError:
        return call(), None
    result = call()
    return result, max(0, _kilobytes("VmHWM") - before) * 1024


def settle() -> None:
    """Exclude what is loaded by now from later garbage collections: with PyTorch each took 0.2 s per cell."""
    gc.collect()
    gc.freeze()


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("c"))


def _kilobytes(key: str) -> int:
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise OSError(f"no {key}")
