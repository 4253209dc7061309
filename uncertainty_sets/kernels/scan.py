"""The first and the last step of every kernel: read the losses, write the answer and judge it.

Every `ragged` kernel is ``ragged(values, indices, offsets, scale, unit, indptr, first, after, *parameters,
warm, P, out)`` and answers the rows first, …, after - 1. The entries of row b are indptr[b] to
indptr[b+1], and the loss of entry k is unit·(offsets[k] + scale·values[indices[k]]). An empty `indices` means
values[k], empty `offsets` means none. Parameters per entry lie along the entries, those per row have 1 or B
numbers. `warm` has the shape (2, 1 or B), NaN for none; the kernel writes P along the entries and the columns
of layout.py as rows of `out`, (COLUMNS, B), so that each is contiguous. `warm` may be a part of `out`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import comparing, kernel, strict, summing
from uncertainty_sets.kernels.layout import (
    BOUND,
    FEASIBLE,
    GAP,
    ITERATIONS,
    NOT_FINITE,
    NOT_SOLVED,
    OK,
    OUT_OF_RANGE,
    PROMISE,
    STATUS,
    ULPS,
    VALUE,
    VIOLATION,
)

Integers = NDArray[np.int64]

MOST = np.finfo(np.float64).max

# Spreads outside these are scaled by a power of two first, so that no product over- or underflows.
SMALLEST, LARGEST = 1e-150, 1e150


@comparing
def smaller(a: float, b: float) -> float:
    """min, free to ignore NaN: the form that becomes one vector instruction."""
    return a if a < b else b


@comparing
def larger(a: float, b: float) -> float:
    """max, free to ignore NaN: the form that becomes one vector instruction."""
    return a if a > b else b


@comparing
def largest(f: Array) -> float:
    """max f, without what f.max() needs of numba's runtime: kernels compiled ahead of time have none."""
    most: float = f[0]
    for i in range(f.size):
        most = larger(most, f[i])
    return most


@comparing
def smallest(f: Array) -> float:
    """min f, likewise."""
    least: float = f[0]
    for i in range(f.size):
        least = smaller(least, f[i])
    return least


@kernel
def copy(source: Array, target: Array) -> None:
    """target[:] = source, which would compare the sizes and raise if they differ."""
    for i in range(source.size):
        target[i] = source[i]


@summing
def scan(f: Array) -> tuple[float, float, int]:
    """(min f, max f, status) in one pass.

    Entries are counted, not summed: Σ 0·f would be computed as 0·Σf, which overflows before its terms do.
    """
    least, most, finite = f[0], f[0], 0
    for i in range(f.size):
        least = smaller(least, f[i])
        most = larger(most, f[i])
        finite += abs(f[i]) <= MOST
    if finite < f.size:
        return least, most, NOT_FINITE
    spread = most - least
    if spread > LARGEST or (spread < SMALLEST and spread > 0.0):
        return least, most, OUT_OF_RANGE
    return least, most, OK


@summing
def expectation(f: Array, p: Array, top: float) -> tuple[float, float]:
    """Σ p·(f - top) and Σ p."""
    value, total = 0.0, 0.0
    for i in range(f.size):
        value += p[i] * (f[i] - top)
        total += p[i]
    return value, total


@kernel
def finish(
    out: Array,
    reference: float,
    value: float,
    bound: float,
    violation: float,
    iterations: int,
    spread: float,
) -> None:
    """Write an answer whose value and bound are measured from `reference`, and judge it by its certificate.

    It is NOT_SOLVED if it breaks the promise: a gap beyond PROMISE, a negative one beyond rounding, a
    violation beyond FEASIBLE, or a NaN in any of them.
    """
    gap = bound - value
    rounding = ULPS * (abs(reference) + spread)
    proved = violation <= FEASIBLE and gap <= max(PROMISE * spread, rounding)
    proved = proved and gap >= -(FEASIBLE * spread + rounding)
    out[VALUE] = reference + value
    out[BOUND] = reference + bound
    out[GAP] = gap
    out[VIOLATION] = violation
    out[ITERATIONS] = iterations
    out[STATUS] = OK if proved else NOT_SOLVED


@kernel
def longest_row(indptr: Integers, first: int, after: int) -> int:
    """The most entries that a row has, for scratch arrays."""
    most = 1
    for b in range(first, after):
        most = max(most, indptr[b + 1] - indptr[b])
    return most


@strict
def losses_of(
    values: Array, indices: Integers, offsets: Array, scale: float, unit: float, start: int, stop: int,
    scratch: Array,
) -> Array:  # fmt: skip
    """Write the losses of the entries start, …, stop - 1 into `scratch`; return the part that holds them.

    Rounded as NumPy rounds offsets + scale·values[indices]; `unit` is a power of two.
    """
    f = scratch[: stop - start]
    if indices.size > 0:
        for k in range(f.size):
            f[k] = values[indices[start + k]]
    else:
        for k in range(f.size):
            f[k] = values[start + k]
    if offsets.size > 0:
        for k in range(f.size):
            f[k] = unit * (offsets[start + k] + scale * f[k])
    elif scale != 1.0 or unit != 1.0:
        for k in range(f.size):
            f[k] = unit * (scale * f[k])
    return f


@kernel
def cover(f: Array, q: Array) -> None:
    """Replace finite losses where q = 0 by one where q > 0: they do not count and must not set the scale."""
    inside = 0
    while q[inside] == 0.0:
        inside += 1
    for i in range(f.size):
        if q[i] == 0.0 and abs(f[i]) <= MOST:
            f[i] = f[inside]


@kernel
def put(one: Array, out: Array, b: int) -> None:
    """Write the answer of row b into the columns, and clear `one` for the next row."""
    for c in range(one.size):
        out[c, b] = one[c]
        one[c] = np.nan
