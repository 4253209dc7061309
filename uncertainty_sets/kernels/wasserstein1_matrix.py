"""Wasserstein-1 with any cost: as on a line, with O(N²) per evaluation and O(N) of memory.

cost[j, i] is here the cost of moving a unit from j to i: sources come first, so that each one's costs are
contiguous. What a target is worth to a source falls linearly with the rate λ, so that the best worth is convex
in it: a source with the same target at both ends of the bracket has it in between, too, and is not looked at
again. A search costs about as much as three or four evaluations of all sources.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Cube, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, strict
from uncertainty_sets.kernels.layout import DUAL, OK, OUT_OF_RANGE, STATUS
from uncertainty_sets.kernels.scan import finish, larger, scan
from uncertainty_sets.kernels.tangent import (
    GAIN,
    LOWEST,
    MASS,
    MEMORY,
    X,
    mixture,
    next_point,
    reset,
    set_end,
    settle_bracket,
    update_bracket,
)
from uncertainty_sets.kernels.wasserstein1_line import FASTEST, mean_below
from uncertainty_sets.kernels.wasserstein1_sweep import Indices, reach

EVALUATIONS = 200
LOW, HIGH, TRIAL, OPEN = range(4)  # rows of `goals`: targets at both ends and at a trial, sources in question


@strict
def best(f: Array, cost: Array, top: float, rate: float, source: int) -> int:
    """The best target of a source, the source itself if nothing is worth more."""
    worth, target = f[source] - top, np.uint64(source)
    for i in range(np.uint64(f.size)):
        other = reach(f[i], top, rate, cost[i])
        target = i if other > worth else target
        worth = larger(worth, other)
    return target


@kernel
def evaluate(
    f: Array, cost: Array, q: Array, top: float, rate: float, sources: Indices, goal: Indices
) -> tuple[float, float]:
    """Write the best targets of some sources into `goal`; return Σ q·(f_target - top) and Σ q·cost."""
    gain, spent = 0.0, 0.0
    for k in range(sources.size):
        j = np.uint64(sources[k])
        target = best(f, cost[j], top, rate, j)
        goal[j] = target
        gain += q[j] * (f[target] - top)
        spent += q[j] * cost[j, target]
    return gain, spent


@kernel
def cheapest_top(f: Array, cost: Array, q: Array, top: float, goal: Indices) -> float:
    """Write the cheapest largest loss of each source into `goal`; return Σ q·cost."""
    n = np.uint64(f.size)
    first = np.uint64(0)
    while f[first] != top:
        first += np.uint64(1)
    goal[:] = first
    for i in range(first + np.uint64(1), n):
        if f[i] == top:
            for j in range(n):
                goal[j] = i if cost[j, i] < cost[j, goal[j]] else goal[j]
    spent = 0.0
    for j in range(n):
        spent += q[j] * cost[j, goal[j]]
    return spent


@kernel
def settle(
    f: Array, cost: Array, q: Array, top: float, side: int, goals: Indices, count: int, p: Array
) -> tuple[int, float, float]:
    """Take over the trial's targets at one end; put the mass of sources with one target at both ends into p.

    Returns how many sources are left, and gain and cost of those that are not.
    """
    gain, spent, left = 0.0, 0.0, np.uint64(0)
    for k in range(np.uint64(count)):
        j = np.uint64(goals[OPEN, k])
        target = np.uint64(goals[TRIAL, j])
        goals[side, j] = target
        if goals[LOW, j] == goals[HIGH, j]:
            gain += q[j] * (f[target] - top)
            spent += q[j] * cost[j, target]
            p[target] += q[j]
        else:
            goals[OPEN, left] = j
            left += np.uint64(1)
    return left, gain, spent


@kernel
def solve(
    f: Array,
    q: Array,
    radius: float,
    cost: Array,
    step: float,
    warm: float,
    p: Array,
    out: Array,
    goals: Indices,
    ends: Array,
    memory: Array,
) -> None:
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
        rate, over = next_point(ends, memory, 1e-13 * (top - least), kink, radius)
    # 5. Add to p the mixture of both ends that costs the radius, and write its certificate.
    mix = mixture(ends)
    for k in range(count):
        j = np.uint64(goals[OPEN, k])
        low, high = np.uint64(goals[LOW, j]), np.uint64(goals[HIGH, j])
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
