"""Balls of a divergence around q: what KL, χ² and the powers share, and the entries that are made of a link.

Losses are scaled to g = (f - max f)/spread in [-1, 0] and multipliers along with them. A *link* is what a
divergence has of its own: `most`, the divergence of q restricted to the largest losses, and `answer`, which
searches for the multiplier of a radius below that and writes the answer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.jit import kernel, owned_by, summing
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, OK, STATUS
from uncertainty_sets.kernels.scan import copy, cover, finish, longest_row, losses_of, put, scan

BLOCK = 1024  # entries that stay in the cache between two loops over them
EPS = 2.0**-52


@summing
def moments(f: Array, q: Array, top: float, scale: float) -> tuple[float, float, float, float]:
    """Mean and second moment of g under q, and the masses at the top and below it."""
    mean, square, mass, rest = 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        g = (f[i] - top) * scale
        mean += q[i] * g
        square += q[i] * g * g
        mass += q[i] if f[i] == top else 0.0
        rest += q[i] if f[i] < top else 0.0
    return mean, square, mass, rest


@summing
def totals(f: Array, p: Array, top: float, scale: float, center: float) -> tuple[float, float]:
    """Σ p·(g - center) and Σ p."""
    value, total = 0.0, 0.0
    for i in range(f.size):
        value += p[i] * ((f[i] - top) * scale - center)
        total += p[i]
    return value, total


@kernel
def write_face(f: Array, q: Array, top: float, mass: float, p: Array) -> None:
    """Write q restricted to the largest losses, of which `mass` is the mass."""
    for i in range(f.size):
        p[i] = q[i] / mass if f[i] == top else 0.0


def ball(
    most: Callable[..., float], answer: Callable[..., None], column: int
) -> tuple[Callable[..., None], Callable[..., None]]:
    """`rows` and `ragged` of a link.

    Args:
        most: (mass at the top, mass below) to the radius that takes all mass to the top.
        answer: (f, q, top, spread, moments, most, radius, warm, p, out) writes an answer that needs a search.
        column: the multiplier from which a search starts.
    """

    @kernel
    @owned_by(answer.__module__, "solve")
    def solve(f: Array, q: Array, radius: float, warm: float, p: Array, out: Array) -> None:
        """Solve one row; losses where q = 0 repeat one where q > 0; `warm` is a multiplier or NaN."""
        # 1. Read the losses.
        least, top, status = scan(f)
        if status != OK:
            out[STATUS] = status
            return
        # 2. Answers that need no search: equal losses, a radius of 0, or one that reaches the largest losses.
        spread = top - least
        out[DUAL] = out[DUAL + 1] = 0.0
        if spread == 0.0:
            copy(q, p)
            finish(out, top, 0.0, 0.0, abs(p.sum() - 1.0), 0, spread)
            return
        mean, square, mass, rest = moments(f, q, top, 1.0 / spread)
        if radius == 0.0:
            copy(q, p)
            finish(out, top, spread * mean, spread * mean, abs(p.sum() - 1.0), 1, spread)
            out[DUAL] = out[DUAL + 1] = np.inf
            return
        limit = most(mass, rest)
        if radius >= limit:
            for i in range(f.size):  # a call of write_face would cost 3 % of a short row
                p[i] = q[i] / mass if f[i] == top else 0.0
            finish(out, top, 0.0, 0.0, abs(p.sum() - 1.0), 1, spread)
            return
        # 3. The others.
        answer(f, q, top, spread, mean, square, limit, radius, warm, p, out)

    @kernel
    @owned_by(answer.__module__, "rows")
    def rows(F: Matrix, center: Matrix, radius: Vector, warm: Matrix, P: Matrix, out: Matrix) -> None:
        """Solve every row of F; parameters with one row serve all rows."""
        many, started = center.shape[0] > 1, warm.shape[0] > 1
        for b in range(F.shape[0]):
            r = b if many else 0
            solve(F[b], center[r], radius[r], warm[b if started else 0, column], P[b], out[b])

    @kernel
    @owned_by(answer.__module__, "ragged")
    def ragged(
        values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices,
        first: int, after: int, center: Vector, radius: Vector, warm: Matrix, P: Vector, out: Matrix,
    ) -> None:  # fmt: skip
        """Solve the rows from `first` to `after`, each with its own entries (scan.py)."""
        scratch, one = np.empty(longest_row(indptr, first, after)), np.full(COLUMNS, np.nan)
        many, started = radius.size > 1, warm.shape[1] > 1
        for b in range(first, after):
            i, j = indptr[b], indptr[b + 1]
            f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
            cover(f, center[i:j])
            limit, start = radius[b if many else 0], warm[column, b if started else 0]
            solve(f, center[i:j], limit, start, P[i:j], one)
            put(one, out, b)

    return rows, ragged
