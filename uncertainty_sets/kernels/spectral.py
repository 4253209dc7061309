"""Spectral risk: sort the losses downwards; p is the rise of the distortion H over their cumulated masses.

Python evaluates H between two kernels, `masses` and `rows` (`ragged_order` and `ragged`), since H may be any
function; one given by breakpoints the kernels evaluate themselves.

Many entries are sorted by NumPy, whose sort of numbers runs on vector units: one whole number per entry, of
which the upper digits say how far the loss is below the largest, and the lower ones where it stands. The
upper digits of a few losses may be equal where the losses are not; `unpack` puts those in order.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Cube, IndexMatrix, Indices, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel
from uncertainty_sets.kernels.layout import COLUMNS, NOT_FINITE, OK, STATUS
from uncertainty_sets.kernels.scan import expectation, finish, longest_row, losses_of, put, scan
from uncertainty_sets.kernels.selection import sort_pairs

FEW = 32  # entries that are sorted sooner than NumPy is called
DIGITS = 62  # of a key, so that it stays a whole number above 0
MOVES = 1  # per entry, to put losses with equal upper digits in order; NumPy's argsort is as fast


def sort(F: Matrix, places: IndexMatrix) -> None:
    """Write the places of each row's entries from the largest loss to the smallest."""
    if F.shape[1] <= FEW:
        sort_few(F, places)
        return
    pack(F, places)
    places.sort(axis=1)
    if unpack(F, places) > 0:
        for b in np.flatnonzero(places[:, 0] < 0):
            places[b] = np.argsort(-F[b])


@kernel
def descend(f: Array, keys: Array, floats: Array, places: Indices) -> None:
    """Sort one row; `keys` and `floats` are work space."""
    n = f.size
    for i in range(n):
        keys[i], floats[i] = f[i], float(i)
    if scan(f)[2] != NOT_FINITE:  # which `rows` reports; here it would only spoil the sort
        sort_pairs(keys, floats, n)
    for i in range(n):
        places[i] = int(floats[i])


@entry("places")
@kernel
def sort_few(F: Matrix, places: IndexMatrix) -> None:
    """Sort every row, of few entries."""
    keys, floats = np.empty(F.shape[1]), np.empty(F.shape[1])
    for b in range(F.shape[0]):
        descend(F[b], keys, floats, places[b])


@kernel
def place_digits(n: int) -> int:
    """How many binary digits a place among n takes."""
    digits = 1
    while (1 << digits) < n:
        digits += 1
    return digits


@entry("keys")
@kernel
def pack(F: Matrix, keys: IndexMatrix) -> None:
    """Write a key for each entry. Rows with losses that cannot be compared so keep the order they have."""
    digits = place_digits(F.shape[1])
    most = float(1 << (DIGITS - digits))
    for b in range(F.shape[0]):
        f, row = F[b], keys[b]
        least, top, status = scan(f)
        spread = top - least
        if status != OK or spread == 0.0:
            for i in range(f.size):
                row[i] = i
            continue
        for i in range(f.size):
            row[i] = (int((top - f[i]) / spread * most) << digits) | i


@entry("keys")
@kernel
def unpack(F: Matrix, keys: IndexMatrix) -> int:
    """Turn sorted keys into places. Returns how many rows take too many moves: their first place is -1."""
    digits, failed = place_digits(F.shape[1]), 0
    mask = (1 << digits) - 1
    for b in range(F.shape[0]):
        f, row = F[b], keys[b]
        moves, before = MOVES * f.size, -1
        for k in range(f.size):
            key = row[k]
            place, upper, j = key & mask, key >> digits, k
            if upper == before:
                while j > 0 and moves > 0 and f[row[j - 1]] < f[place]:
                    row[j] = row[j - 1]
                    j -= 1
                    moves -= 1
            row[j], before = place, upper
        if moves == 0:
            row[0] = -1
            failed += 1
    return failed


@kernel
def taken(source: Array, places: Indices, target: Array) -> None:
    """Write the entries of `source` in order: one array at a time, as two would share a cache."""
    for k in range(places.size):
        target[k] = source[places[k]]


@kernel
def climb(weight: Array, knots: Array, values: Array, heights: Array) -> None:
    """Write H(Σq) up to each entry, for masses in order and H through breakpoints (knots, values).

    `heights` may be `weight` itself.
    """
    total, j = 0.0, 0
    slope, until = (values[1] - values[0]) / (knots[1] - knots[0]), knots[1]
    for k in range(weight.size):
        total += weight[k]
        u = min(total, 1.0)
        while u > until:
            j += 1
            slope, until = (values[j + 1] - values[j]) / (knots[j + 1] - knots[j]), knots[j + 1]
        heights[k] = slope * (u - knots[j]) + values[j]
    heights[weight.size - 1] = values[values.size - 1]


@entry("heights")
@kernel
def masses(center: Matrix, places: IndexMatrix, knots: Vector, values: Vector, heights: Matrix) -> None:
    """`climb` for every row; a centre with one row serves all rows."""
    many = center.shape[0] > 1
    for b in range(places.shape[0]):
        taken(center[b if many else 0], places[b], heights[b])
        climb(heights[b], knots, values, heights[b])


@kernel
def spend(level: Array, heights: Array, weight: Array) -> tuple[float, float]:
    """Replace each mass by its probability, all in order; return the bound from the largest loss, and by how
    much H fails to be concave at these masses.

    The bound is Σ (f_k - f_{k+1})·(H_k - 1) along the order (Abel's sum of pᵀ(f - top), with H(q(S)) in place
    of p(S)). Losses that tie share the rise of H in proportion to q.
    """
    last, bound, dent = level.size - 1, 0.0, 0.0
    low, middle, mass_before = 0.0, 0.0, 0.0  # H before the group before, H before this group, its mass
    first, mass = 0, 0.0  # where this group begins, and its mass so far
    for k in range(level.size):
        mass += weight[k]
        height = heights[k]
        if k < last:
            if level[k] == level[k + 1]:
                continue
            bound += (level[k] - level[k + 1]) * (height - 1.0)
        if mass > 0.0:
            dent = max(dent, middle - height)  # H falls
            both = mass + mass_before
            over = low * mass + height * mass_before - middle * both  # the chord over H, by `both`
            if mass_before > 0.0 and over > dent * both:
                dent = over / both
            if first == k:
                weight[k] = height - middle
            else:
                share = (height - middle) / mass
                for j in range(first, k + 1):
                    weight[j] *= share
            low, middle, mass_before = middle, height, mass
        first, mass = k + 1, 0.0
    return bound, dent


@kernel
def solve(f: Array, places: Indices, heights: Array, weight: Array, p: Array, out: Array) -> None:
    """Solve one row; order, H and masses along it are given. The masses are lost."""
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    taken(f, places, p)  # p holds the losses in order until it is written: memory that is new takes time
    bound, dent = spend(p, heights, weight)
    for k in range(places.size):
        p[places[k]] = weight[k]
    value, total = expectation(f, p, top)
    finish(out, top, value, bound, max(abs(total - 1.0), dent), 1, top - least)


@entry("P", "out")
@kernel
def rows(
    F: Matrix, center: Matrix, places: IndexMatrix, heights: Matrix, warm: Matrix, P: Matrix, out: Matrix
) -> None:
    """Solve every row of F, with H along it; a centre with one row serves all rows."""
    weight = np.empty(F.shape[1])
    many = center.shape[0] > 1
    for b in range(F.shape[0]):
        taken(center[b if many else 0], places[b], weight)
        solve(F[b], places[b], heights[b], weight, P[b], out[b])


@entry("P", "out")
@kernel
def rows_by_breakpoints(
    F: Matrix, center: Matrix, places: IndexMatrix, breakpoints: Cube, warm: Matrix, P: Matrix, out: Matrix
) -> None:
    """Solve every row of F for H through breakpoints, (1, 2, K); a centre with one row serves all rows."""
    weight, heights = np.empty(F.shape[1]), np.empty(F.shape[1])
    many = center.shape[0] > 1
    for b in range(F.shape[0]):
        taken(center[b if many else 0], places[b], weight)
        climb(weight, breakpoints[0, 0], breakpoints[0, 1], heights)
        solve(F[b], places[b], heights, weight, P[b], out[b])


@entry("places", "heights")
@kernel
def ragged_order(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, center: Vector, knots: Vector, values_of_H: Vector, places: Indices, heights: Vector,
) -> None:  # fmt: skip
    """`sort` and `masses` for the rows from `first` to `after`, with whose first entry the results begin."""
    most, start = longest_row(indptr, first, after), indptr[first]
    scratch, keys, floats = np.empty(most), np.empty(most), np.empty(most)
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        part = slice(i - start, j - start)
        descend(f, keys, floats, places[part])
        taken(center[i:j], places[part], heights[part])
        climb(heights[part], knots, values_of_H, heights[part])


@entry("P", "out")
@kernel
def ragged(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, center: Vector, places: Indices, heights: Vector, warm: Matrix, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Solve the rows from `first` to `after`, with `places` and H along them as `ragged_order` lays them."""
    start = indptr[first]
    most, one = longest_row(indptr, first, after), np.full(COLUMNS, np.nan)
    scratch, weight = np.empty(most), np.empty(most)
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        part = slice(i - start, j - start)
        taken(center[i:j], places[part], weight)
        solve(f, places[part], heights[part], weight[: j - i], P[i:j], one)
        put(one, out, b)
