"""Improve a state whose rows share a budget, for the tilts of by_state_tilt.py.

At multipliers θ_a, the bound B(θ) = (Σ c_a(θ_a) + κ)/Σθ is also the step of Newton's method for the system
"the mean of every row is T, Σ D_a = κ": T ← B(θ), then one step of each row's tilt towards the mean T. That
takes one pass over each row per round and 2 to 6 rounds. Where it fails, an answer at which every row reaches
the least top is looked for, and then T is bracketed, with every row's tilt solved for at each T.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.by_state import (
    BEST,
    CENTER,
    DIVERGENCE,
    EPS,
    FACTS,
    FIRST,
    FLAT,
    HEIGHT,
    KEPT,
    KL,
    LOG_WEIGHT,
    MEAN,
    ROUNDING,
    SCALE,
    SPREAD,
    THETA,
    VARIANCE,
    X,
    most_entries,
    most_rows,
    settle_range,
)
from uncertainty_sets.kernels.by_state_tilt import (
    guess,
    measure,
    most,
    pull_in,
    reach,
    read,
    share_within,
    stay,
    step,
    write,
    write_top,
)
from uncertainty_sets.kernels.jit import kernel, owned_by
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, GAP, OK, STATUS
from uncertainty_sets.kernels.scan import Integers, finish, put

ROUNDS, HALVINGS = 30, 200
NEAR = 1e-11  # of the range: the gap at which a search ends
OVER, UNDER = 1e-11, 5e-12  # of the budget: how far above it p may end, and how far below p is aimed
SATURATED = np.inf  # what DUAL holds if every row reaches the least top


@kernel
def start_of(mode: int, table: Array, count: int, budget: float, width: float) -> float:
    """T at which the budget is spent if divergences are quadratic in T: Newton's method on a convex sum."""
    curvature = 2.0 if mode == KL else 1.0
    t = 0.98 * width
    for a in range(count):
        spread, mean = table[a, SPREAD], table[a, MEAN]
        rise = np.sqrt(curvature * budget * table[a, VARIANCE])
        t = min(t, table[a, HEIGHT] + spread * (mean + rise))
    for _ in range(8):
        spent, growth = 0.0, 0.0
        for a in range(count):
            need = t - (table[a, HEIGHT] + table[a, SPREAD] * table[a, MEAN])
            variance = curvature * table[a, SPREAD] ** 2 * table[a, VARIANCE]
            if need > 0.0 and variance > 0.0:
                spent += need * need / variance
                growth += 2.0 * need / variance
        if not (spent > 1.05 * budget and growth > 0.0):
            break
        t -= (spent - budget) / growth
    return t


@kernel
def total(table: Array, count: int, budget: float, width: float) -> tuple[float, float, float, float, float]:
    """(Σθ, Σθ·height + Σ log weights, bound, divergence, value) of the tilts that were measured."""
    weight, lifted, logs, spent, value = 0.0, 0.0, 0.0, 0.0, width
    for a in range(count):
        height = table[a, HEIGHT] + table[a, SPREAD] * table[a, CENTER]
        value = min(value, height + table[a, SPREAD] * table[a, FIRST])
        if table[a, X] > 0.0:
            theta = table[a, THETA] * table[a, SCALE]
            weight += theta
            lifted += theta * height
            logs += table[a, LOG_WEIGHT]
            spent += table[a, DIVERGENCE]
    bound = lifted / weight + (logs + budget) / weight if weight > 0.0 else np.inf
    return weight, lifted + logs, bound, spent, value


@kernel
def tilt_all(
    mode: int, F: Array, q: Array, indptr: Integers, start: int, count: int, table: Array, budget: float
) -> int:
    """Measure every row at the tilt in KEPT; return how many have one."""
    base, tilted = indptr[start], 0
    for a in range(count):
        if table[a, KEPT] > 0.0:
            i, j = indptr[start + a], indptr[start + a + 1]
            measure(mode, F[i - base : j - base], q[i:j], table, a, table[a, KEPT], budget)
            tilted += 1
        else:
            stay(table, a)
    return tilted


@kernel
def joint(
    mode: int, F: Array, q: Array, indptr: Integers, start: int, count: int, table: Array, budget: float,
    width: float, t: float, warm: bool,
) -> tuple[bool, float, float, float]:  # fmt: skip
    """Newton's method for all rows at once, from the tilts in KEPT: (success, bound, divergence, passes)."""
    passes, stalled = 0.0, 0
    for turn in range(ROUNDS):
        # 1. One pass over each row that is tilted; the bound and the value that these tilts prove.
        passes += tilt_all(mode, F, q, indptr, start, count, table, budget)
        weight, lifted, bound, spent, value = total(table, count, budget, width)
        if not (weight > 0.0 and abs(bound) < np.inf):
            break
        if spent <= budget * (1.0 + OVER) and bound - value <= NEAR * width:
            return True, bound, spent, passes
        far = abs(spent - budget) > 0.5 * budget
        if far and warm and turn == 0:
            break  # a start of another problem
        # 2. The next T: the bound for a budget a little below; far from it, a step on √Σd.
        after = bound - UNDER * budget / weight
        if far:
            root = np.sqrt(max(t * weight - lifted, 0.0))
            after = min(after, t + 2.0 * root * (np.sqrt(budget) - root) / weight)
        if not after < width:
            stalled += 1
            if stalled > 3:
                break
            after = max(t, 0.0) + 0.95 * (width - max(t, 0.0))
        t = after
        # 3. The next tilts: one step towards the mean T.
        for a in range(count):
            aim = (t - table[a, HEIGHT]) * table[a, SCALE]
            if not aim > table[a, MEAN] or table[a, MEAN] == 0.0:
                table[a, KEPT] = 0.0
            elif table[a, KEPT] > 0.0:
                x = table[a, KEPT]
                new = step(mode, table, a, aim)
                table[a, KEPT] = 0.5 * x if np.isnan(new) else min(max(new, 0.1 * x), 10.0 * x)
            else:
                table[a, KEPT] = guess(mode, table, a, aim)
    return False, np.inf, 0.0, passes


@kernel
def reach_all(
    mode: int, F: Array, q: Array, indptr: Integers, start: int, count: int, table: Array, t: float,
    budget: float,
) -> int:  # fmt: skip
    """Tilt every row until its mean is at least t, from the tilts in KEPT, which it replaces; the passes."""
    base, passes = indptr[start], 0
    for a in range(count):
        aim = (t - table[a, HEIGHT]) * table[a, SCALE]
        if not aim > table[a, MEAN] or table[a, MEAN] == 0.0 or aim >= 0.0:
            stay(table, a)
            table[a, KEPT] = 0.0
        else:
            i, j = indptr[start + a], indptr[start + a + 1]
            f = F[i - base : j - base]
            passes += reach(mode, f, q[i:j], table, a, aim, table[a, KEPT], budget)
            table[a, KEPT] = table[a, X]
    return passes


@kernel
def saturates(
    mode: int, F: Array, q: Array, indptr: Integers, start: int, count: int, table: Array, budget: float,
    width: float,
) -> tuple[bool, float, float]:  # fmt: skip
    """Whether the budget takes every row to the least top: (answer, divergence, passes).

    Rows whose top that is need all of their mass there; most such cases are decided by them alone.
    """
    spent = 0.0
    for a in range(count):
        if table[a, HEIGHT] <= width and table[a, MEAN] < 0.0:
            spent += most(mode, table, a)
    if not spent <= budget:
        return False, 0.0, 0.0
    passes = reach_all(mode, F, q, indptr, start, count, table, width, budget)
    there = True
    for a in range(count):
        spent += table[a, DIVERGENCE]
        if table[a, HEIGHT] > width:  # whose tilt may have no such mean in doubles
            mean = table[a, CENTER] + table[a, FIRST]
            there = there and table[a, HEIGHT] + table[a, SPREAD] * mean >= (1.0 - NEAR) * width
    return there and spent <= budget, spent, float(passes)


@kernel
def nested(
    mode: int, F: Array, q: Array, indptr: Integers, start: int, count: int, table: Array, budget: float,
    width: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Bracket T; leave the best feasible tilts measured, the multipliers of the bound in BEST.

    Returns (bound, divergence, passes).
    """
    low, high, best, passes = 0.0, width, np.inf, 0.0
    t = min(start_of(mode, table, count, budget, width), 0.5 * width)
    feasible = np.zeros(count)
    for a in range(count):
        table[a, KEPT], table[a, BEST] = 0.0, 0.0
    for turn in range(HALVINGS):
        passes += reach_all(mode, F, q, indptr, start, count, table, t, budget)
        weight, lifted, bound, spent, value = total(table, count, budget, width)
        # 1. Keep the multipliers of the best bound and the tilts of the best feasible p.
        if bound < best and abs(bound) < np.inf:  # the square of a tiny mass may be no number
            best = bound
            for a in range(count):
                table[a, BEST] = table[a, THETA] * table[a, SCALE]
        if spent <= budget * (1.0 + OVER):
            low = max(low, min(t, value))
            for a in range(count):
                feasible[a] = table[a, X]
        else:
            high = t
        if min(best, width) - low <= 0.01 * NEAR * width:
            break
        # 2. The next T inside the bracket: a step on √Σd, or the middle every third time.
        right = min(high, best)
        root = np.sqrt(max(t * weight - lifted, 0.0))
        after = t + 2.0 * root * (np.sqrt(budget * (1.0 - UNDER)) - root) / weight if weight > 0.0 else right
        if not (after > low and after < right) or turn % 3 == 2:
            after = 0.5 * (low + right)
        if not (after > low and after < right):
            break
        t = after
    for a in range(count):
        table[a, KEPT] = feasible[a]
    passes += tilt_all(mode, F, q, indptr, start, count, table, budget)
    _, _, _, spent, _ = total(table, count, budget, width)
    return best, spent, passes


@kernel
def mean_of_rows(
    mode: int, table: Array, count: int, at_top: float, budget: float, spent: float
) -> tuple[float, float]:
    """What `write_rows` returns, from the sums of the last pass instead of p itself."""
    share = share_within(mode, budget, spent) if spent > budget else 1.0
    value = np.inf
    for a in range(count):
        center, first = table[a, CENTER], table[a, FIRST]
        if table[a, HEIGHT] <= at_top and table[a, MEAN] < 0.0:
            center, first = 0.0, 0.0
        if share < 1.0:
            first = (1.0 - share) * (table[a, MEAN] - center) + share * first
        value = min(value, table[a, HEIGHT] + table[a, SPREAD] * (center + first))
    kept = spent * (share if mode == KL else share * share)
    return value, (kept - budget) / max(1.0, budget)


@kernel
def write_rows(
    mode: int, F: Array, q: Array, indptr: Integers, start: int, count: int, table: Array, P: Array,
    at_top: float, budget: float, spent: float,
) -> tuple[float, float]:  # fmt: skip
    """Write p of every row unless P is empty; return the least mean and the violation.

    Rows whose height is at most `at_top` are restricted to their largest losses.
    """
    base, off = indptr[start], 0.0
    if P.size == 0:
        return mean_of_rows(mode, table, count, at_top, budget, spent)
    for a in range(count):
        i, j = indptr[start + a], indptr[start + a + 1]
        f = F[i - base : j - base]
        if table[a, HEIGHT] <= at_top and table[a, MEAN] < 0.0:
            write_top(f, q[i:j], table, a, P[i:j])
        else:
            off = max(off, abs(write(mode, f, q[i:j], table, a, P[i:j])))
    spent = pull_in(mode, q, indptr, start, count, table, budget, P, spent)
    value = np.inf
    for a in range(count):
        value = min(value, table[a, HEIGHT] + table[a, SPREAD] * (table[a, CENTER] + table[a, FIRST]))
    return value, max(off, (spent - budget) / max(1.0, budget))


@kernel
def simple_policy(table: Array, count: int, column: int, policy: Array) -> None:
    """Write the policy that takes the row with the least top (column HEIGHT) or the least mean (MEAN)."""
    least, chosen = np.inf, 0
    for a in range(count):
        at = table[a, HEIGHT] + (table[a, SPREAD] * table[a, MEAN] if column == MEAN else 0.0)
        policy[a] = 0.0
        if at < least:
            least, chosen = at, a
    policy[chosen] = 1.0


@kernel
def by_variance(table: Array, count: int, budget: float, policy: Array) -> float:
    """The least bound for χ² by one row alone, mean + √(κ·variance); the policy that takes it is written.

    It is the answer where that row has hardly any mass to gain, which a tilt of doubles cannot say.
    """
    least, chosen = np.inf, 0
    for a in range(count):
        rise = np.sqrt(budget) * np.sqrt(table[a, VARIANCE])
        at = table[a, HEIGHT] + table[a, SPREAD] * (table[a, MEAN] + rise)
        policy[a] = 0.0
        if at < least:
            least, chosen = at, a
    policy[chosen] = 1.0
    return least


@kernel
def share_out(table: Array, count: int, policy: Array, column: int) -> None:
    """Write the policy in proportion to the multipliers: those of the tilts (THETA) or those in BEST."""
    weight = 0.0
    for a in range(count):
        policy[a] = table[a, BEST] if column == BEST else table[a, THETA] * table[a, SCALE]
        weight += policy[a]
    for a in range(count):
        policy[a] /= weight


@kernel
def solve(
    mode: int, F: Array, q: Array, indptr: Integers, start: int, stop: int, table: Array, size: Array,
    budget: float, tilts: Array, policy: Array, P: Array, one: Array,
) -> None:  # fmt: skip
    """Improve one state whose rows are read.

    `tilts` (x/spread of each row) and one[DUAL] (T from the least mean) are those of a similar state, or NaN;
    both are replaced.
    """
    count = stop - start
    status, low, width, spread, scale = settle_range(table, count, size)
    warm_t = one[DUAL]
    one[STATUS], one[ROUNDING] = status, 4.0 * EPS * scale + FLAT * width
    if status != OK:
        one[GAP] = spread
        return
    # 1. No budget, or nothing to gain: the centres.
    if budget == 0.0 or width <= 8.0 * EPS * spread:
        for a in range(count):
            stay(table, a)
            tilts[a] = np.nan
        simple_policy(table, count, MEAN if budget == 0.0 else HEIGHT, policy)
        value, violation = write_rows(mode, F, q, indptr, start, count, table, P, -np.inf, budget, 0.0)
        finish(one, low, value, value if budget == 0.0 else width, violation, 1, spread)
        one[DUAL] = np.nan
        return
    # 2. From the last answer, then from scratch.
    found, bound, spent, passes = False, np.inf, 0.0, 0.0
    if warm_t == SATURATED:
        for a in range(count):
            table[a, KEPT] = tilts[a] * table[a, SPREAD]
    elif not np.isnan(warm_t):
        for a in range(count):
            table[a, KEPT] = tilts[a] * table[a, SPREAD] if table[a, MEAN] < 0.0 else 0.0
        found, bound, spent, passes = joint(
            mode, F, q, indptr, start, count, table, budget, width, warm_t, True
        )
    if not found and warm_t != SATURATED:
        t = start_of(mode, table, count, budget, width)
        for a in range(count):
            aim = (t - table[a, HEIGHT]) * table[a, SCALE]
            moves = aim > table[a, MEAN] and table[a, MEAN] < 0.0
            table[a, KEPT] = guess(mode, table, a, aim) if moves else 0.0
        found, bound, spent, more = joint(mode, F, q, indptr, start, count, table, budget, width, t, False)
        passes += more
    # 3. Every row at the least top; otherwise T in a bracket.
    at_top, column = -np.inf, THETA
    if not found:
        found, spent, more = saturates(mode, F, q, indptr, start, count, table, budget, width)
        passes += more
        if found:
            bound, at_top, column = width, width, HEIGHT
        else:
            bound, spent, more = nested(mode, F, q, indptr, start, count, table, budget, width)
            passes += more
            column = BEST
            if not bound < width:
                bound, column = width, HEIGHT
    # 4. Write p and the policy, and judge them.
    value, violation = write_rows(mode, F, q, indptr, start, count, table, P, at_top, budget, spent)
    by_one = by_variance(table, count, budget, policy) if mode != KL and not found else np.inf
    if by_one < bound:
        bound = by_one
    elif column == HEIGHT:
        simple_policy(table, count, HEIGHT, policy)
    else:
        share_out(table, count, policy, column)
    finish(one, low, value, bound, violation, int(passes), spread)
    one[DUAL] = SATURATED if at_top == width else value
    for a in range(count):
        tilts[a] = table[a, X] * table[a, SCALE]


def improve_by(mode: int, module: str) -> Callable[..., None]:
    """The kernel of a mode, for a file of its own (by_state_kl.py says why)."""

    @kernel
    @owned_by(module, "improve")
    def improve(
        values: Vector, indices: Indices, offsets: Vector, row_offsets: Vector, sizes: Vector, scale: float,
        unit: float, state_rows: Indices, indptr: Indices, first: int, after: int, center: Vector,
        budget: Vector, tilts: Vector, policy: Vector, P: Vector, out: Matrix,
    ) -> None:  # fmt: skip
        """Improve the states first, …, after - 1; out[DUAL] and `tilts` are read as a start, NaN for none."""
        entries, count = most_entries(state_rows, indptr, first, after), most_rows(state_rows, first, after)
        F, table, size, one = np.empty(entries), np.empty((count, FACTS)), np.empty(count), np.empty(COLUMNS)
        for s in range(first, after):
            start, stop = state_rows[s], state_rows[s + 1]
            read(
                mode, values, indices, offsets, row_offsets, sizes, scale, unit, indptr, start, stop, center,
                F, table, size,
            )  # fmt: skip
            one[DUAL] = out[DUAL, s]
            solve(
                mode, F, center, indptr, start, stop, table, size, budget[s], tilts[start:stop],
                policy[start:stop], P, one,
            )  # fmt: skip
            put(one, out, s)

    return improve
