"""Arrays of NumPy's file formats, read without trust: a header may claim any shape, and NumPy believes it."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

AnyArray = np.ndarray[Any, Any]

LONGEST_HEADER = 10_000
MAGIC = b"\x93NUMPY"


def array_of(content: bytes, name: str) -> AnyArray:
    """The array in the bytes of an npy file; `ValueError` if its header does not fit them.

    >>> array_of(b"text", "losses.npy")
    Traceback (most recent call last):
    ValueError: losses.npy is not an npy file
    """
    stream = io.BytesIO(content)
    if not content.startswith(MAGIC):
        raise ValueError(f"{name} is not an npy file")
    try:
        version = npy.read_magic(stream)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, _, dtype = read(stream, max_header_size=LONGEST_HEADER)
    except KeyError:
        raise ValueError(f"{name} is in a version of the npy format that is not read") from None
    except Exception as error:  # NumPy reads the header as a Python literal, which fails in many ways
        raise ValueError(f"{name} has a damaged header: {str(error)[:80]}") from None
    if dtype.hasobject:
        raise ValueError(f"{name} holds objects, which are not read")
    rest = len(content) - stream.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != rest:
        raise ValueError(
            f"{name} has {rest} bytes, and does not hold the {shape} numbers that it claims"[:200]
        )
    stream.seek(0)
    return npy.read_array(stream, allow_pickle=False, max_header_size=LONGEST_HEADER)


def arrays_of(file: BinaryIO) -> dict[str, AnyArray]:
    """The arrays of an npz file by their names; `ValueError` for anything else."""
    try:
        with zipfile.ZipFile(file) as archive:
            return {
                name.removesuffix(".npy"): array_of(archive.read(name), name) for name in archive.namelist()
            }
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise ValueError(f"it is not an npz file, or is damaged: {error!s:.120}") from error
