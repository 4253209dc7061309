"""Checks of single fields of a reply. Each returns what is wrong with the field, "" if nothing is.

They look at type and size alone, before anything is copied, read or printed: a reply of the wrong size costs
the master no more than one of the right size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

FLOAT = np.dtype(np.float64)

LARGEST = 1e150  # of a parameter, loss, metric or curvature: beyond it squares overflow
LARGEST_SQ = LARGEST**2
LARGEST_INT = 2**62  # of a ticket or a count
LONGEST_TEXT = 2**16  # characters


def vector_fault(reply: Any, name: str, size: int) -> str:
    """Check that a field is a float64 vector of that size."""
    value = getattr(reply, name, None)
    if not isinstance(value, np.ndarray):
        return f"{name} of type {type(value).__name__}; {size} numbers of float64 are needed"
    if value.dtype != FLOAT or value.shape != (size,):
        return f"{name} of shape {value.shape} and {value.dtype}; {size} numbers of float64 are needed"
    return ""


def number_fault(reply: Any, name: str, least: float = -np.inf, most: float = np.inf) -> str:
    """Check that a field is a float between two bounds; without bounds NaN is a float too."""
    value = getattr(reply, name, None)
    if not isinstance(value, float):
        return f"{name} of type {type(value).__name__}; a float is needed"
    unbounded = least == -np.inf and most == np.inf
    return (
        "" if unbounded or least <= value <= most else f"{name} = {value}; it must be in {least:g}..{most:g}"
    )


def integer_fault(reply: Any, name: str, least: int) -> str:
    """Check that a field is an int, at least `least`."""
    value = getattr(reply, name, None)
    if type(value) is not int:
        return f"{name} of type {type(value).__name__}; an int is needed"
    if abs(value) > LARGEST_INT:  # Python refuses to print one of 4,300 digits
        return f"{name}, an int of {value.bit_length()} bits; it must be in {least}..2^62"
    return "" if value >= least else f"{name} = {value}; it must be at least {least}"


def text_fault(reply: Any, name: str) -> str:
    """Check that a field is a string of at most `LONGEST_TEXT` characters."""
    value = getattr(reply, name, None)
    if type(value) is not str:
        return f"{name}, which must be a string"
    if len(value) > LONGEST_TEXT:
        return f"{name} of {len(value):,} characters; at most {LONGEST_TEXT:,} are allowed"
    return ""
