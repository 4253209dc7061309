"""Evaluate a policy in a state whose rows share a budget, for the tilts of by_state_tilt.py.

The worst case of Σ_a π_a·p_aᵀf_a has the multipliers θ_a = π_a·η of all rows in one number η, the root of
Σ_a D_a(π_a·η) = κ. As in kl.py, Newton's method runs on log(D/(M - D)) in log η, with M the divergence of the
largest losses alone, in a bracket. Every η proves the bound (Σ_a c_a(π_a·η) + κ)/η.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.by_state import (
    CENTER,
    CHI_SQUARE,
    DIVERGENCE,
    EPS,
    FACTS,
    FIRST,
    KEPT,
    KL,
    LOG_WEIGHT,
    MEAN,
    OFFSET,
    ROUNDING,
    SLOPE,
    SPREAD,
    THETA,
    TOP,
    VARIANCE,
    most_entries,
    most_rows,
)
from uncertainty_sets.kernels.by_state_tilt import (
    measure,
    most,
    pull_in,
    read,
    stay,
    tilt_of,
    weigh,
    write,
    write_top,
)
from uncertainty_sets.kernels.jit import kernel, owned_by
from uncertainty_sets.kernels.kl import HIGHEST, newton, within
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, GAP, NOT_FINITE, OK, OUT_OF_RANGE, STATUS
from uncertainty_sets.kernels.scan import LARGEST, MOST, SMALLEST, Integers, finish, put

PASSES = 60
ENOUGH = 1e12  # of η over the budget, at which what is left of the budget counts as rounding
AIM, OVER = 1e-13, 1e-11  # of the budget: what D is aimed at, and how far over it may end


@kernel
def measure_all(
    mode: int, F: Array, q: Array, indptr: Integers, start: int, count: int, table: Array, eta: float,
    budget: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Measure every row at θ = KEPT·η; (Σ D, dΣD/dlog η, Σ log weights)."""
    base, spent, growth, logs = indptr[start], 0.0, 0.0, 0.0
    for a in range(count):
        theta = table[a, KEPT] * eta
        if theta < 1e-100:
            stay(table, a)
            continue
        i, j = indptr[start + a], indptr[start + a + 1]
        f = F[i - base : j - base]
        measure(mode, f, q[i:j], table, a, tilt_of(mode, f, q[i:j], table, a, theta), budget)
        if mode == CHI_SQUARE:
            weigh(table, a, theta)
        spent += table[a, DIVERGENCE]
        growth += table[a, THETA] ** 2 * table[a, SLOPE]
        logs += table[a, LOG_WEIGHT]
    return spent, growth, logs


@kernel
def search(
    mode: int, F: Array, q: Array, indptr: Integers, start: int, count: int, table: Array, highest: float,
    budget: float, warm: float,
) -> tuple[float, float, float, float, int]:  # fmt: skip
    """η with Σ D = κ, or one below it of the bracket's ends: (η, Σ D, its bound, the least bound, passes).

    Bounds are in units of the spread. Where masses are too small to gain, D jumps from one η of doubles to
    the next, far beyond the η whose proof has the most digits.
    """
    # 1. A lower end that is feasible, since D(θ) <= θ²/8 or θ²/16, and a start from the curvature at 0.
    squares, curvature = 0.0, 0.0
    for a in range(count):
        squares += table[a, KEPT] ** 2
        curvature += table[a, KEPT] ** 2 * table[a, VARIANCE]
    low = np.sqrt((8.0 if mode == KL else 16.0) * budget / squares) * (1.0 - 1e-9)
    high, stride, before, missed = np.inf, 4.0, np.inf, np.inf
    eta = np.sqrt((2.0 if mode == KL else 4.0) * budget / curvature) if curvature > 0.0 else low
    if warm > 1e-4 * eta and warm < 1e4 * eta:
        eta = warm
    eta = min(max(eta, low), HIGHEST)
    passes, least = 0, np.inf
    while True:
        # 2. Measure, and stop if the budget is met up to rounding.
        passes += 1
        spent, growth, logs = measure_all(mode, F, q, indptr, start, count, table, eta, budget)
        bound = (logs + budget) / eta
        for a in range(count):
            bound += table[a, KEPT] * table[a, CENTER]
        least = bound if bound < least else least
        off = spent - budget
        if abs(off) <= AIM * budget or (abs(off) <= OVER * budget and abs(off) > 0.5 * missed):
            break
        # 3. Narrow the bracket, and the next η inside it.
        missed = abs(off)
        if off > 0.0:
            high = eta
        else:
            low = max(low, eta)
        move = newton(spent, growth, budget, highest)
        step, stride, before = within(eta, move, low, high, stride, before)
        # 4. No passes or no numbers left: finish on the feasible side.
        if passes >= PASSES or not (step > low and step < high):
            eta = low if off > OVER * budget else eta
            for eta_of_proof in (ENOUGH * max(1.0, budget), eta):
                spent, growth, logs = measure_all(
                    mode, F, q, indptr, start, count, table, eta_of_proof, budget
                )
                bound = (logs + budget) / eta_of_proof
                for a in range(count):
                    bound += table[a, KEPT] * table[a, CENTER]
                least = bound if bound < least else least
            break
        eta = step
    return eta, spent, bound, least, passes


@kernel
def solve(
    mode: int, F: Array, q: Array, indptr: Integers, start: int, stop: int, table: Array, size: Array,
    budget: float, policy: Array, P: Array, one: Array,
) -> None:  # fmt: skip
    """Evaluate one state whose rows are read; one[DUAL] is η of a similar state or NaN, and is replaced."""
    count, base, warm = stop - start, indptr[start], one[DUAL]
    # 1. The losses: the reference is the mean of the tops, and rows with probability 0 do not count.
    reference, spread, scale, nominal, status = 0.0, 0.0, 0.0, 0.0, OK
    for a in range(count):
        if policy[a] > 0.0:
            top = table[a, OFFSET] + table[a, TOP]
            if not (abs(top) <= MOST and abs(table[a, SPREAD]) <= MOST):
                status = OUT_OF_RANGE if size[a] <= MOST else NOT_FINITE
            reference += policy[a] * top
            spread += policy[a] * table[a, SPREAD]
            nominal += policy[a] * (table[a, SPREAD] * table[a, MEAN])
            scale += policy[a] * size[a]
    if status == OK and (spread > LARGEST or (spread < SMALLEST and spread > 0.0)):
        status = OUT_OF_RANGE
    one[STATUS], one[ROUNDING], one[DUAL] = status, 4.0 * EPS * scale, np.nan
    if status != OK:
        one[GAP] = spread
        return
    # 2. Rows that move, with their multiplier at η = 1 in KEPT; the divergence that saturates them.
    highest = 0.0
    for a in range(count):
        table[a, KEPT] = policy[a] * (table[a, SPREAD] / spread) if spread > 0.0 else 0.0
        if table[a, KEPT] > 0.0:
            highest += most(mode, table, a)
        stay(table, a)
    # 3. The largest losses of every row that counts, the centres, or a search.
    saturated, spent, passes, bound = budget >= highest, 0.0, 1, nominal
    if saturated:
        bound, spent = 0.0, highest
    elif budget > 0.0:
        eta, spent, bound, least, passes = search(
            mode, F, q, indptr, start, count, table, highest, budget, warm * spread
        )
        one[DUAL] = eta / spread
        bound *= spread
        if mode != KL:
            bound = spread * least
            # Cauchy's inequality, where tiny masses leave no η of doubles.
            square = 0.0
            for a in range(count):
                square += table[a, KEPT] ** 2 * table[a, VARIANCE]
            by_variance = nominal + spread * (np.sqrt(budget) * np.sqrt(square))
            if not bound <= by_variance:
                bound = by_variance
    # 4. Write p, and judge it.
    value, off = 0.0, 0.0
    for a in range(count):
        i, j = indptr[start + a], indptr[start + a + 1]
        f = F[i - base : j - base]
        if saturated and table[a, KEPT] > 0.0:
            write_top(f, q[i:j], table, a, P[i:j])
        else:
            off = max(off, abs(write(mode, f, q[i:j], table, a, P[i:j])))
    spent = pull_in(mode, q, indptr, start, count, table, budget, P, spent)
    for a in range(count):
        value += policy[a] * (table[a, SPREAD] * (table[a, CENTER] + table[a, FIRST]))
    violation = max(off, (spent - budget) / max(1.0, budget))
    finish(one, reference, value, bound, violation, passes * count, spread)


def evaluate_by(mode: int, module: str) -> Callable[..., None]:
    """The kernel of a mode, for a file of its own (by_state_kl.py says why)."""

    @kernel
    @owned_by(module, "evaluate")
    def evaluate(
        values: Vector, indices: Indices, offsets: Vector, row_offsets: Vector, sizes: Vector, scale: float,
        unit: float, state_rows: Indices, indptr: Indices, first: int, after: int, center: Vector,
        budget: Vector, policy: Vector, P: Vector, out: Matrix,
    ) -> None:  # fmt: skip
        """Evaluate a policy in the states first, …, after - 1; out[DUAL] is read as a start, NaN for none."""
        entries, count = most_entries(state_rows, indptr, first, after), most_rows(state_rows, first, after)
        F, table, size, one = np.empty(entries), np.empty((count, FACTS)), np.empty(count), np.empty(COLUMNS)
        for s in range(first, after):
            start, stop = state_rows[s], state_rows[s + 1]
            read(
                mode, values, indices, offsets, row_offsets, sizes, scale, unit, indptr, start, stop, center,
                F, table, size,
            )  # fmt: skip
            one[DUAL] = out[DUAL, s]
            solve(mode, F, center, indptr, start, stop, table, size, budget[s], policy[start:stop], P, one)
            put(one, out, s)

    return evaluate
