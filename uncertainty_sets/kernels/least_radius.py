"""What the kernels of the inverse question share: answers without a search, and how they judge the others.

Such a kernel is ``rows(F, *parameters, target, P, out)``: for each loss vector the least radius at which pᵀf
reaches its target, a p that does, and one row of `out` (radius_layout.py). Losses are scaled to
g = (f - max f)/spread in [-1, 0], and the target along with them to `aim`.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import kernel
from uncertainty_sets.kernels.layout import FEASIBLE, NOT_SOLVED, OK, PROMISE, ULPS
from uncertainty_sets.kernels.radius_layout import GAP, LOWER, MULTIPLIER, PASSES, RADIUS, STATUS, VALUE
from uncertainty_sets.kernels.scan import copy


@kernel
def exact(out: Array, radius: float, value: float, multiplier: float) -> None:
    """Write an answer that needs no search and is exact."""
    out[RADIUS], out[LOWER], out[GAP], out[VALUE] = radius, radius, 0.0, value
    out[MULTIPLIER], out[PASSES], out[STATUS] = multiplier, 1.0, OK


@kernel
def answered_at_once(
    q: Array, target: float, top: float, spread: float, aim: float, mean: float, p: Array, out: Array
) -> bool:
    """Whether the centre reaches the target, or nothing does; then the answer is written."""
    if target > top:
        for i in range(q.size):
            p[i] = np.nan
        exact(out, np.inf, np.nan, np.inf)
        return True
    if spread == 0.0 or aim <= mean:
        copy(q, p)
        exact(out, 0.0, top + spread * mean, 0.0)
        return True
    return False


@kernel
def conclude(
    out: Array,
    top: float,
    spread: float,
    radius: float,
    lower: float,
    gap: float,
    value: float,
    short: float,
    total: float,
    multiplier: float,
    passes: int,
) -> None:
    """Write an answer and judge it; value, short (what pᵀf lacks) and multiplier are those of g.

    The multiplier times the rounding of the losses is all that a radius can be known to.
    """
    scale = 1.0 / spread
    rounding = ULPS * (1.0 + abs(top) * scale)
    known = 8.0 * multiplier * rounding
    proved = gap <= max(PROMISE * radius, known) and gap >= -max(FEASIBLE * radius, known)
    proved = proved and abs(total - 1.0) <= FEASIBLE and short <= max(PROMISE, rounding)
    proved = proved and multiplier * short <= max(PROMISE * radius, known)
    out[RADIUS], out[LOWER], out[GAP] = max(radius, 0.0), lower, gap
    out[VALUE], out[MULTIPLIER], out[PASSES] = top + spread * value, multiplier * scale, passes
    out[STATUS] = OK if proved else NOT_SOLVED
