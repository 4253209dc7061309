"""What the `ragged` kernels share: the losses of a row from shared values, and its answer into columns.

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
from uncertainty_sets.kernels.jit import kernel, strict
from uncertainty_sets.kernels.scan import MOST

Integers = NDArray[np.int64]


@kernel
def longest_row(indptr: Integers, first: int, after: int) -> int:
    """The most entries that a row has, for scratch arrays."""
    most = 1
    for b in range(first, after):
        most = max(most, indptr[b + 1] - indptr[b])
    return most


@strict
def losses_of(
    values: Array,
    indices: Integers,
    offsets: Array,
    scale: float,
    unit: float,
    start: int,
    stop: int,
    scratch: Array,
) -> Array:
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
