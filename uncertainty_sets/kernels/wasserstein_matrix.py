"""Wasserstein balls with any cost: as on a line, with O(N²) per evaluation and O(N) of memory.

For an order above 1 the cost and the radius are given as powers. cost[j, i] is here the cost of moving a unit
from j to i: sources come first, so that each one's costs are contiguous. What a target is worth to a source
falls linearly with the rate λ, so that the best worth is convex in it: a source with the same target at both
ends of the bracket has it in between, too, and is not looked at again. A search costs about as much as three
or four evaluations of all sources.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Cube, Indices, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, strict
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, OK, OUT_OF_RANGE, STATUS
from uncertainty_sets.kernels.scan import Integers, finish, larger, longest_row, losses_of, put, scan, smaller
from uncertainty_sets.kernels.tangent import (
    GAIN,
    LOWEST,
    MASS,
    MEMORY,
    X,
    aim,
    mixture,
    next_point,
    reset,
    set_end,
    settle_bracket,
    update_bracket,
)
from uncertainty_sets.kernels.wasserstein_envelope import ONE, ZERO, Places, reach, unsigned
from uncertainty_sets.kernels.wasserstein_line import FASTEST, mean_below

EVALUATIONS = 200
LOW, HIGH, TRIAL, OPEN = range(4)  # rows of `goals`: targets at both ends and at a trial, sources in question


@strict
def best(f: Array, cost: Array, top: float, rate: float, source: int) -> int:
    """The best target of a source, the source itself if nothing is worth more."""
    worth = f[source] - top
    target: int = unsigned(source)
    for i in range(unsigned(f.size)):
        other = reach(f[i], top, rate, cost[i])
        target = i if other > worth else target
        worth = larger(worth, other)
    return target


@kernel
def evaluate(
    f: Array, cost: Array, q: Array, top: float, rate: float, sources: Places, goal: Places
) -> tuple[float, float]:
    """Write the best targets of some sources into `goal`; return Σ q·(f_target - top) and Σ q·cost."""
    gain, spent = 0.0, 0.0
    for k in range(sources.size):
        j = unsigned(sources[k])
        target = best(f, cost[j], top, rate, j)
        goal[j] = target
        gain += q[j] * (f[target] - top)
        spent += q[j] * cost[j, target]
    return gain, spent


@kernel
def cheapest_top(f: Array, cost: Array, q: Array, top: float, goal: Places) -> float:
    """Write the cheapest largest loss of each source into `goal`; return Σ q·cost."""
    n = unsigned(f.size)
    first = ZERO
    while f[first] != top:
        first += ONE
    goal[:] = first
    for i in range(first + ONE, n):
        if f[i] == top:
            for j in range(n):
                goal[j] = i if cost[j, i] < cost[j, goal[j]] else goal[j]
    spent = 0.0
    for j in range(n):
        spent += q[j] * cost[j, goal[j]]
    return spent


@kernel
def settle(
    f: Array, cost: Array, q: Array, top: float, side: int, goals: Places, count: int, p: Array
) -> tuple[int, float, float]:
    """Take over the trial's targets at one end; put the mass of sources with one target at both ends into p.

    Returns how many sources are left, and gain and cost of those that are not.
    """
    gain, spent, left = 0.0, 0.0, ZERO
    for k in range(unsigned(count)):
        j = unsigned(goals[OPEN, k])
        target = unsigned(goals[TRIAL, j])
        goals[side, j] = target
        if goals[LOW, j] == goals[HIGH, j]:
            gain += q[j] * (f[target] - top)
            spent += q[j] * cost[j, target]
            p[target] += q[j]
        else:
            goals[OPEN, left] = j
            left += ONE
    return left, gain, spent


@kernel
def solve(
    f: Array, q: Array, radius: float, cost: Array, step: float, warm: float, p: Array, out: Array,
    goals: Places, ends: Array, memory: Array,
) -> None:  # fmt: skip
    """Solve one row; `step` is the smallest cost above 0 (negative: some off the diagonal are 0).

    `goals` is (4, N), `ends` (4, 3) and `memory` MEMORY of scratch.
    """
    # 1. Read the losses. Beyond the rate `still` nothing moves, except at no cost.
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    trial = ends[3]
    still = 2.0 * (top - least) / abs(step)
    if still > FASTEST:
        out[STATUS] = OUT_OF_RANGE  # the caller scales the losses down
        return
    count = 0
    for j in range(f.size):
        p[j], goals[HIGH, j] = 0.0, j
        if q[j] > 0.0:
            goals[OPEN, count] = j
            count += 1
    # 2. Transport for free, λ = 0: the answer if its cost is affordable.
    reset(memory)
    rate, over, evaluations = 0.0, True, 1
    kink = 10.0 * (top - least) / float(f.size) ** 2
    trial[X], trial[GAIN], trial[MASS] = 0.0, 0.0, cheapest_top(f, cost, q, top, goals[LOW]) - radius
    if trial[MASS] <= 0.0:
        settle_bracket(trial, ends, memory)
    else:
        # 3. The bracket's other end, where nothing moves but at no cost: the answer if nothing may be spent.
        update_bracket(trial, ends, memory)
        trial[X], trial[MASS] = still, -radius
        if step > 0.0:
            trial[GAIN] = mean_below(f, q, top)
        else:
            trial[GAIN], _ = evaluate(f, cost, q, top, still, goals[OPEN, :count], goals[HIGH])
        if radius == 0.0:
            settle_bracket(trial, ends, memory)
            goals[LOW] = goals[HIGH]
        else:
            update_bracket(trial, ends, memory)
            rate, over = next_point(ends, memory, 0.0, kink, radius)
    if np.isfinite(warm) and warm > 0.0:
        rate = min(warm, still)
    # 4. Close in on the minimum; `gain` and `spent` are those of the sources that are settled.
    gain, spent = 0.0, 0.0
    while not over and evaluations < EVALUATIONS:
        trial[X] = rate
        more, longer = evaluate(f, cost, q, top, rate, goals[OPEN, :count], goals[TRIAL])
        trial[GAIN], trial[MASS] = gain + more, spent + longer - radius
        evaluations += 1
        update_bracket(trial, ends, memory)
        side = LOW if trial[MASS] >= 0.0 else HIGH
        count, more, longer = settle(f, cost, q, top, side, goals, count, p)
        gain, spent = gain + more, spent + longer
        if trial[MASS] == 0.0:
            set_end(ends, 1, trial)
            break
        rate, over = next_point(ends, memory, aim(top - least, f.size), kink, radius)
    # 5. Add to p the mixture of both ends that costs the radius, and write its certificate.
    mix = mixture(ends)
    for k in range(count):
        j = unsigned(goals[OPEN, k])
        low, high = unsigned(goals[LOW, j]), unsigned(goals[HIGH, j])
        part, rest = mix * q[j], (1.0 - mix) * q[j]
        p[low] += part
        p[high] += rest
        spent += part * cost[j, low] + rest * cost[j, high]
    value, total = 0.0, 0.0
    for i in range(f.size):
        value += p[i] * (f[i] - top)
        total += p[i]
    violation = max(abs(total - 1.0), (spent - radius) / max(1.0, radius))
    finish(out, top, value, memory[LOWEST], violation, evaluations, top - least)
    out[DUAL] = ends[2, X]


@entry("P", "out")
@kernel
def rows(
    F: Matrix, center: Matrix, radius: Vector, cost: Cube, step: Vector, warm: Matrix, P: Matrix, out: Matrix
) -> None:
    """Solve every row of F; parameters with one row serve all rows."""
    goals, ends, memory = np.empty((4, F.shape[1]), np.uint32), np.empty((4, 3)), np.empty(MEMORY)
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        start = warm[b if started else 0, 0]
        solve(F[b], center[r], radius[r], cost[0], step[0], start, P[b], out[b], goals, ends, memory)


@kernel
def cut_out(cost: Array, places: Integers, block: Array) -> float:
    """Copy the rows and columns of those places into `block`; return its `step` as `solve` takes it."""
    least, zeros = np.inf, 0
    for j in range(places.size):
        for i in range(places.size):
            x = cost[places[j], places[i]]
            block[j, i] = x
            zeros += x == 0.0
            least = smaller(least, x if x > 0.0 else np.inf)
    least = least if least < np.inf else 1.0
    return -least if zeros > places.size else least


@entry("P", "out")
@kernel
def ragged(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, places: Indices, center: Vector, radius: Vector, cost: Matrix, warm: Matrix, P: Vector,
    out: Matrix,
) -> None:  # fmt: skip
    """Solve the rows from `first` to `after`, each with its own entries (scan.py).

    `cost` is that between all values; a row uses the block of its `places`.
    """
    most = longest_row(indptr, first, after)
    scratch, block, one = np.empty(most), np.empty((most, most)), np.full(COLUMNS, np.nan)
    goals, ends, memory = np.empty((4, most), np.uint32), np.empty((4, 3)), np.empty(MEMORY)
    many, started = radius.size > 1, warm.shape[1] > 1
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        step = cut_out(cost, places[i:j], block)
        limit, start = radius[b if many else 0], warm[0, b if started else 0]
        solve(f, center[i:j], limit, block, step, start, P[i:j], one, goals, ends, memory)
        put(one, out, b)
