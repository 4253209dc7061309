"""Wasserstein-1 with any cost: as on a line, with O(N²) per evaluation and O(N) of memory.

cost[j, i] is here the cost of moving a unit from j to i: sources come first, so that each one's costs are
contiguous.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Cube, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.layout import DUAL, OK, OUT_OF_RANGE, STATUS
from uncertainty_sets.kernels.scan import finish, larger, scan, smaller
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
from uncertainty_sets.kernels.wasserstein1_line import FASTEST, mean_below, reach

EVALUATIONS = 200


@summing
def best(f: Array, cost: Array, top: float, rate: float) -> tuple[float, float]:
    """The worth of the best target, and the least cost among targets of that worth."""
    worth = -np.inf
    for i in range(f.size):
        worth = larger(worth, reach(f[i], top, rate, cost[i]))
    least = np.inf
    for i in range(f.size):
        least = smaller(least, cost[i] if reach(f[i], top, rate, cost[i]) == worth else np.inf)
    return worth, least


@kernel
def evaluate(f: Array, cost: Array, q: Array, top: float, rate: float) -> tuple[float, float]:
    """Σ q·(f_target - top) and Σ q·cost with each entry's mass at its best target, the cheapest of equals."""
    gain, spent = 0.0, 0.0
    for j in range(f.size):
        if q[j] > 0.0:
            worth, least = best(f, cost[j], top, rate)
            gain += q[j] * (worth + rate * least)
            spent += q[j] * least
    return gain, spent


@kernel
def spread_out(f: Array, cost: Array, q: Array, top: float, rate: float, weight: float, p: Array) -> float:
    """Add the solution at that rate to p, `weight` times; return the cost of its transport."""
    spent = 0.0
    for j in range(f.size):
        if q[j] > 0.0:
            worth, least = best(f, cost[j], top, rate)
            target = 0
            for i in range(f.size):
                if cost[j, i] == least and reach(f[i], top, rate, least) == worth:
                    target = i
                    break
            p[target] += weight * q[j]
            spent += weight * q[j] * least
    return spent


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
    ends: Array,
    memory: Array,
) -> None:
    """Solve one row; `step` is the smallest cost above 0 (negative: some off the diagonal are 0)."""
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
    # 2. Transport for free, λ = 0: the answer if its cost is affordable.
    reset(memory)
    trial[X] = 0.0
    trial[GAIN], spent = evaluate(f, cost, q, top, 0.0)
    trial[MASS] = spent - radius
    evaluations = 1
    if trial[MASS] <= 0.0:
        settle_bracket(trial, ends, memory)
    else:
        # 3. The bracket's other end, where nothing moves; start from an earlier λ if there is one.
        update_bracket(trial, ends, memory)
        trial[X], trial[MASS] = still, -radius
        trial[GAIN] = mean_below(f, q, top) if step > 0.0 else evaluate(f, cost, q, top, still)[0]
        update_bracket(trial, ends, memory)
        kink = 10.0 * (top - least) / float(f.size) ** 2
        rate, over = next_point(ends, memory, 0.0, kink, radius)
        if not over and np.isfinite(warm) and warm > 0.0:
            rate = min(warm, still)
        # 4. Close in on the minimum.
        while not over and evaluations < EVALUATIONS:
            trial[X] = rate
            trial[GAIN], spent = evaluate(f, cost, q, top, rate)
            trial[MASS] = spent - radius
            evaluations += 1
            update_bracket(trial, ends, memory)
            if trial[MASS] == 0.0:
                set_end(ends, 1, trial)
                break
            rate, over = next_point(ends, memory, 1e-13 * (top - least), kink, radius)
    # 5. Write p, the mixture of both ends that costs the radius, and its certificate.
    mix = mixture(ends)
    p[:] = 0.0
    spent = 0.0
    if mix > 0.0:
        spent += spread_out(f, cost, q, top, ends[0, X], mix, p)
    if mix < 1.0:
        spent += spread_out(f, cost, q, top, ends[1, X], 1.0 - mix, p)
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
    ends, memory = np.empty((4, 3)), np.empty(MEMORY)
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        start = warm[b if started else 0, 0]
        solve(F[b], center[r], radius[r], cost[0], step[0], start, P[b], out[b], ends, memory)
