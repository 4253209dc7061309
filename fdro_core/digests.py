"""SHA-256 of arrays: the same numbers in the same shapes have the same digest, on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

SHORT = 16  # hexadecimal digits in messages: 64 bits, enough against mistakes


def of_arrays(arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """SHA-256 over names, types, shapes and contents, in the order of the names.

    >>> of_arrays({"a": np.arange(3.0)}) == of_arrays({"a": np.arange(3.0)[None]})
    False
    """
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name} {array.dtype.str} {arrays[name].shape}\n".encode())
        sha.update(array.view(np.uint8).data if array.size else b"")
    return sha.hexdigest()


def short(**arrays: Any) -> str:
    """The first digits, for messages; numbers and texts are allowed as well as arrays.

    >>> short(x=[1.0, 2.0], name="linear", l2=0.1)
    'sha256 a2f46f0c37565444'
    """
    return f"sha256 {of_arrays({name: np.asarray(value) for name, value in arrays.items()})[:SHORT]}"
