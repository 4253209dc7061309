"""Spectral risk: sort the losses downwards; p is the rise of the distortion H over their cumulated masses.

Python evaluates H between two kernels, `order` and `rows` (`ragged_order` and `ragged`), since H may be any
function.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel
from uncertainty_sets.kernels.layout import COLUMNS, NOT_FINITE, OK, STATUS
from uncertainty_sets.kernels.scan import expectation, finish, longest_row, losses_of, put, scan
from uncertainty_sets.kernels.selection import sort_pairs


@kernel
def descend(f: Array, q: Array, keys: Array, places: Array, sums: Array) -> None:
    """Write the places of the entries from the largest loss to the smallest, and Σq up to each."""
    n = f.size
    for i in range(n):
        keys[i], places[i] = f[i], float(i)
    if scan(f)[2] != NOT_FINITE:  # which `rows` reports; here it would only spoil the sort
        sort_pairs(keys, places, n)
    total = 0.0
    for k in range(n):
        total += q[int(places[k])]
        sums[k] = min(total, 1.0)
    sums[n - 1] = 1.0


@entry("places", "sums")
@kernel
def order(F: Matrix, center: Matrix, places: Matrix, sums: Matrix) -> None:
    """Sort every row of F; a centre with one row serves all rows."""
    keys, many = np.empty(F.shape[1]), center.shape[0] > 1
    for b in range(F.shape[0]):
        descend(F[b], center[b if many else 0], keys, places[b], sums[b])


@kernel
def spend(f: Array, q: Array, places: Array, heights: Array, top: float, p: Array) -> tuple[float, float]:
    """Write p; return the bound from `top`, and by how much H fails to be concave at these masses.

    The bound is Σ (f_k - f_{k+1})·(H_k - 1) along the order (Abel's sum of pᵀ(f - top), with H(q(S)) in place
    of p(S)). Losses that tie share the rise of H in proportion to q.
    """
    bound, dent = 0.0, 0.0
    low, middle, mass_before = 0.0, 0.0, 0.0  # H before the group before, H before this group, its mass
    k = 0
    while k < f.size:
        level, mass, end = f[int(places[k])], 0.0, k
        while end < f.size and f[int(places[end])] == level:
            mass += q[int(places[end])]
            end += 1
        height = heights[end - 1]
        share = (height - middle) / mass if mass > 0.0 else 0.0
        for j in range(k, end):
            i = int(places[j])
            p[i] = share * q[i]
        if end < f.size:
            bound += (level - f[int(places[end])]) * (height - 1.0)
        if mass > 0.0:
            dent = max(dent, middle - height)  # H falls
            if mass_before > 0.0:
                chord = (low * mass + height * mass_before) / (mass + mass_before)
                dent = max(dent, chord - middle)
            low, middle, mass_before = middle, height, mass
        k = end
    return bound, dent


@kernel
def solve(f: Array, q: Array, places: Array, heights: Array, p: Array, out: Array) -> None:
    """Solve one row, whose order and H along it are given."""
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    bound, dent = spend(f, q, places, heights, top, p)
    value, total = expectation(f, p, top)
    finish(out, top, value, bound, max(abs(total - 1.0), dent), 1, top - least)


@entry("P", "out")
@kernel
def rows(
    F: Matrix, center: Matrix, places: Matrix, heights: Matrix, warm: Matrix, P: Matrix, out: Matrix
) -> None:
    """Solve every row of F; a centre with one row serves all rows."""
    many = center.shape[0] > 1
    for b in range(F.shape[0]):
        solve(F[b], center[b if many else 0], places[b], heights[b], P[b], out[b])


@entry("places", "sums")
@kernel
def ragged_order(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, center: Vector, places: Vector, sums: Vector,
) -> None:  # fmt: skip
    """Sort the rows from `first` to `after`; `places` and `sums` begin with the first entry of these rows."""
    most, start = longest_row(indptr, first, after), indptr[first]
    scratch, keys = np.empty(most), np.empty(most)
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        descend(f, center[i:j], keys, places[i - start : j - start], sums[i - start : j - start])


@entry("P", "out")
@kernel
def ragged(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, center: Vector, places: Vector, heights: Vector, warm: Matrix, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Solve the rows from `first` to `after`, with `places` and H along them as `ragged_order` lays them."""
    start = indptr[first]
    scratch, one = np.empty(longest_row(indptr, first, after)), np.full(COLUMNS, np.nan)
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        part = slice(i - start, j - start)
        solve(f, center[i:j], places[part], heights[part], P[i:j], one)
        put(one, out, b)
