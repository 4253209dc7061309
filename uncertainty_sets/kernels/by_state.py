"""A joint budget per state: what the kernels by_state_*.py share.

The set of a state is {(p_a) : Σ_a D(p_a, q_a) <= κ} over its actions, which are the rows state_rows[s], …,
state_rows[s+1] - 1; the entries of row b are indptr[b], …, indptr[b+1] - 1. The loss of entry k in row b is
unit·(row_offsets[b] + offsets[k] + scale·values[indices[k]]), with a power of two as `unit`. Empty `offsets`
mean none, and empty `indices` that the entries of each row are the first values. All centres are positive in
the kernels that restrict p to the support. `sizes` has the largest |row_offsets| + |offsets| of each row,
whose rounding the losses have. There are two questions:

| kernel | finds | proves |
|---|---|---|
| improve | max over p of min over rows of p_aᵀf_a | an upper bound for the policy that it writes |
| evaluate | max over p of Σ_a π_a·p_aᵀf_a | an upper bound |

Both answer the states first, …, after - 1, write p along the entries in P, and write the columns of layout.py
as rows of `out`, (COLUMNS, states). DUAL is what the next call starts from, and ROUNDING is what the losses'
own rounding may add to or take from both value and bound.

With d_a(T) the least D that raises p_aᵀf_a to T, the answer of `improve` is the largest T with
Σ_a d_a(T) <= κ. For any multipliers θ_a >= 0, with c_a(θ) = max over p of θ·pᵀf_a - D(p, q_a),

    T <= (Σ_a c_a(θ_a) + κ) / Σ_a θ_a,

which is what the policy π_a = θ_a/Σθ guarantees.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import kernel
from uncertainty_sets.kernels.layout import DUAL, NOT_FINITE, OK, OUT_OF_RANGE
from uncertainty_sets.kernels.scan import MOST, Integers, scan

KL, CHI_SQUARE = 1, 2  # the modes of tilts
ROUNDING = DUAL + 1
EPS = 2.0**-52
FLAT = 1e-14  # rows whose losses differ by less than this share of the range count as constant
SMALLEST, LARGEST = 1e-100, 1e100  # ranges outside these are scaled by the caller first

# What is known of each row of a state, in units of the losses:
TOP, SPREAD, OFFSET, HEIGHT = range(4)
"""The largest loss and the range of a row without its offset; the offset; the largest loss with it, from the
reference of the state."""
SCALE, MEAN, VARIANCE, MASS, REST, LIFT = range(4, 10)
"""1/SPREAD; then for g = (f - TOP)·SCALE in [-1, 0], under q: mean, variance, the masses at the top and below
it; and what keeps a tiny mass at the top from underflow."""
X, THETA, CENTER, LOG_WEIGHT, FIRST, DIVERGENCE, SLOPE, KEPT, BEST = range(10, 19)
"""What a search writes: by_state_tilt.py."""
FACTS = 19


@kernel
def most_rows(state_rows: Integers, first: int, after: int) -> int:
    """The most rows that a state has, for scratch arrays."""
    most = 1
    for s in range(first, after):
        most = max(most, state_rows[s + 1] - state_rows[s])
    return most


@kernel
def most_entries(state_rows: Integers, indptr: Integers, first: int, after: int) -> int:
    """The most entries that the rows of a state have together, for scratch arrays."""
    most = 1
    for s in range(first, after):
        most = max(most, indptr[state_rows[s + 1]] - indptr[state_rows[s]])
    return most


@kernel
def gather(
    values: Array, indices: Integers, offsets: Array, scale: float, unit: float, start: int, f: Array
) -> tuple[float, float]:
    """Write a row's losses without its offset; return the least and the largest."""
    factor = unit * scale
    if indices.size > 0:
        for k in range(f.size):
            f[k] = factor * values[indices[start + k]]
    else:
        for k in range(f.size):
            f[k] = factor * values[k]
    if offsets.size > 0:
        for k in range(f.size):
            f[k] += unit * offsets[start + k]
    least, top, _ = scan(f)
    return least, top


@kernel
def settle_range(table: Array, count: int, by_row: Array) -> tuple[int, float, float, float, float]:
    """(status, reference, range, largest spread, size) of a state whose rows are read; write HEIGHT.

    The answer lies between the least mean of a row, which is the reference, and the least top. Rows with a
    mean above that top never matter and count neither in the spread nor in the size of the losses. `by_row`
    has the largest part of each row's losses before they are added up.
    """
    # 1. The range of the answer; then once more from its low end, which drops a common offset's rounding.
    low = np.inf
    for a in range(count):
        top = table[a, OFFSET] + table[a, TOP]
        if not (abs(top) <= MOST and abs(table[a, SPREAD]) <= MOST):
            return OUT_OF_RANGE if by_row[a] <= MOST else NOT_FINITE, 0.0, 0.0, 0.0, 0.0
        low = min(low, top + table[a, SPREAD] * table[a, MEAN])
    more, width = np.inf, np.inf
    for a in range(count):
        table[a, HEIGHT] = (table[a, OFFSET] - low) + table[a, TOP]
        more = min(more, table[a, HEIGHT] + table[a, SPREAD] * table[a, MEAN])
        width = min(width, table[a, HEIGHT])
    low, width = low + more, max(width - more, 0.0)
    # 2. The spread and size of the rows that matter.
    spread, size = 0.0, 0.0
    for a in range(count):
        table[a, HEIGHT] -= more
        if table[a, HEIGHT] + table[a, SPREAD] * table[a, MEAN] <= width:
            spread = max(spread, table[a, SPREAD])
            size = max(size, by_row[a])
    status = OUT_OF_RANGE if spread > LARGEST or (spread < SMALLEST and spread > 0.0) else OK
    # 3. Rows that are constant up to rounding lie at their top.
    for a in range(count):
        if table[a, SPREAD] <= FLAT * width:
            table[a, MEAN] = 0.0
    return status, low, width, spread, size
