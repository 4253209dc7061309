"""Box: a continuous knapsack. Two passes and one selection, O(N)."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, OK, STATUS
from uncertainty_sets.kernels.scan import finish, larger, longest_row, losses_of, put, scan
from uncertainty_sets.kernels.selection import share_of, threshold, work_space


@summing
def fill(
    f: Array, lower: Array, width: Array, t: float, share: float, top: float, p: Array
) -> tuple[float, float, float]:
    """Write p: upper above t, lower below, `share` of the way at t. Return value, bound, Σp from `top`.

    The bound is t + Σ max(lower·(f-t), (lower+width)·(f-t)), Lagrange's for the multiplier t of 1ᵀp = 1.
    """
    value, bound, total = 0.0, 0.0, 0.0
    for i in range(f.size):
        h = f[i] - t
        part = 1.0 if h > 0.0 else (share if h == 0.0 else 0.0)
        x = lower[i] + width[i] * part
        p[i] = x
        total += x
        value += x * (f[i] - top)
        bound += lower[i] * h + width[i] * larger(h, 0.0)
    return value, (t - top) + bound, total


@kernel
def solve(
    f: Array, lower: Array, width: Array, rest: float, p: Array, out: Array, keys: Array, weights: Array,
    sample: Array,
) -> None:  # fmt: skip
    """Solve one row; `rest` is 1 - Σ lower."""
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    t, above, at = threshold(f, width, rest, keys, weights, sample)
    value, bound, total = fill(f, lower, width, t, share_of(rest - above, at), top, p)
    finish(out, top, value, bound, abs(total - 1.0), 1, top - least)
    out[DUAL] = t


@entry("P", "out")
@kernel
def rows(F: Matrix, lower: Matrix, width: Matrix, rest: Vector, warm: Matrix, P: Matrix, out: Matrix) -> None:
    """Solve every row of F; parameters with one row serve all rows."""
    keys, weights, sample = work_space(F.shape[1])
    many = lower.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        solve(F[b], lower[r], width[r], rest[r], P[b], out[b], keys, weights, sample)


@entry("P", "out")
@kernel
def ragged(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, lower: Vector, width: Vector, rest: Vector, warm: Matrix, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Solve the rows from `first` to `after`, each with its own entries (scan.py)."""
    most = longest_row(indptr, first, after)
    scratch, one = np.empty(most), np.full(COLUMNS, np.nan)
    keys, weights, sample = work_space(most)
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        solve(f, lower[i:j], width[i:j], rest[b], P[i:j], one, keys, weights, sample)
        put(one, out, b)
