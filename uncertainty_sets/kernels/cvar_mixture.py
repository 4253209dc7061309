"""A mixture of CVaRs: one selection per level, O(N) each."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.layout import COLUMNS, OK, STATUS
from uncertainty_sets.kernels.scan import expectation, finish, larger, longest_row, losses_of, put, scan
from uncertainty_sets.kernels.selection import share_of, threshold, work_space


@kernel
def add(f: Array, q: Array, t: float, share: float, rate: float, p: Array) -> None:
    """p += rate·q above t, and `share` of that at t.

    It sums nothing: in a loop that stores p, the order of the sums would depend on where p lies in memory.
    """
    for i in range(f.size):
        part = 1.0 if f[i] > t else (share if f[i] == t else 0.0)
        p[i] += rate * q[i] * part


@summing
def excess(f: Array, q: Array, t: float) -> float:
    """Σ q·max(f - t, 0)."""
    total = 0.0
    for i in range(f.size):
        total += q[i] * larger(f[i] - t, 0.0)
    return total


@kernel
def solve(
    f: Array, q: Array, tails: Array, weights: Array, var: Array, p: Array, out: Array, keys: Array,
    masses: Array, sample: Array,
) -> None:  # fmt: skip
    """Solve one row; `var` receives the threshold of each level."""
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    for i in range(f.size):
        p[i] = 0.0
    bound = 0.0
    for k in range(tails.size):
        t, above, at = threshold(f, q, tails[k], keys, masses, sample)
        add(f, q, t, share_of(tails[k] - above, at), weights[k] / tails[k], p)
        bound += weights[k] * ((t - top) + excess(f, q, t) / tails[k])
        var[k] = t
    value, total = expectation(f, p, top)
    finish(out, top, value, bound, abs(total - 1.0), tails.size, top - least)


@entry("var", "P", "out")
@kernel
def rows(
    F: Matrix, center: Matrix, tails: Matrix, weights: Matrix, var: Matrix, warm: Matrix, P: Matrix,
    out: Matrix,
) -> None:  # fmt: skip
    """Solve every row of F; a centre with one row serves all rows, as tails and weights do."""
    keys, masses, sample = work_space(F.shape[1])
    many = center.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        solve(F[b], center[r], tails[0], weights[0], var[b], P[b], out[b], keys, masses, sample)


@entry("P", "out")
@kernel
def ragged(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, center: Vector, tails: Vector, weights: Vector, warm: Matrix, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Solve the rows from `first` to `after`, each with its own entries (scan.py)."""
    most = longest_row(indptr, first, after)
    scratch, one, var = np.empty(most), np.full(COLUMNS, np.nan), np.empty(tails.size)
    keys, masses, sample = work_space(most)
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        solve(f, center[i:j], tails, weights, var, P[i:j], one, keys, masses, sample)
        put(one, out, b)
