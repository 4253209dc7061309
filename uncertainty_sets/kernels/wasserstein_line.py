"""Wasserstein balls on a line: move mass towards larger losses, at |x_i - x_j|^power per unit.

With a multiplier λ for the cost of transport, the mass of entry j goes where f_i - λ|x_i - x_j|^power is
largest (wasserstein_envelope.py). The dual function

    φ(λ) = λ·limit + Σ q_j max_i (f_i - λ|x_i - x_j|^power),        limit = radius^power,

is convex and its minimum found by tangent.py. A sample of a long line says where to start. Once both ends of
the bracket are found, only the entries whose target differs between them are searched further
(wasserstein_prune.py); the bound that is reported comes from all entries again. Losses are measured from
their maximum `top`; positions ascend.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, NOT_SOLVED, OK, OUT_OF_RANGE, STATUS
from uncertainty_sets.kernels.scan import expectation, finish, longest_row, losses_of, put, scan
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
from uncertainty_sets.kernels.wasserstein_distance import distance
from uncertainty_sets.kernels.wasserstein_envelope import Places, all_to_one, evaluate
from uncertainty_sets.kernels.wasserstein_prune import (
    able,
    changing,
    deposit,
    keep,
    mark,
    renumber,
    sources,
    weigh,
)

EVALUATIONS = 200
PIECES, PART = 16, 50  # a sample is so many pieces of the line, one part in so many of it
MERGED = 32  # or so many neighbours as one
GUESSED_FROM = 20_000  # entries; above, a sample of the line tells where to start
PRUNED_FROM = 64  # entries; below, finding out what to drop takes longer than it saves
NEVER = 2**62
UNKNOWN = 2.0  # for how many times too large or small a start may be
FASTEST = 1e300  # a rate that stays finite


@summing
def mean_below(f: Array, q: Array, top: float) -> float:
    """Σ q·(f - top)."""
    total = 0.0
    for i in range(f.size):
        total += q[i] * (f[i] - top)
    return total


@kernel
def bracket(
    f: Array, x: Array, q: Array, limit: float, power: float, top: float, still: float, distinct: bool,
    ends: Array, memory: Array, goals: Places, starts: Array,
) -> bool:  # fmt: skip
    """Enclose the minimum between free transport and a rate at which nothing moves.

    Returns whether one of them is the minimum. `distinct`: no two positions are equal.
    """
    trial, goal, stack = ends[3], goals[0, : f.size], goals[4]
    reset(memory)
    # 1. Transport for free, λ = 0: all goes to the nearest largest loss, the answer if it is affordable.
    trial[X] = 0.0
    trial[GAIN], cost = 0.0, all_to_one(f, x, q, top, power)
    if cost < 0.0:
        trial[GAIN], cost, _ = evaluate(f, x, q, top, 0.0, power, goal, stack, starts)
    trial[MASS] = cost - limit
    if trial[MASS] <= 0.0:
        settle_bracket(trial, ends, memory)
        return True
    update_bracket(trial, ends, memory)
    # 2. Nothing moves, except at no distance: the answer if nothing may be spent.
    trial[X], trial[MASS] = still, -limit
    if distinct:
        trial[GAIN] = mean_below(f, q, top)
    else:
        trial[GAIN], _, _ = evaluate(f, x, q, top, still, power, goal, stack, starts)
    if limit == 0.0:
        settle_bracket(trial, ends, memory)
        return True
    update_bracket(trial, ends, memory)
    return False


@kernel
def aside(trial: Array, before: Array, limit: float, factor: float) -> float:
    """A rate beyond the minimum by a little, by how fast the cost falls with the rate; `factor` at least."""
    cost, earlier = trial[MASS] + limit, before[MASS] + limit
    steep = 1.0
    if before[X] > 0.0 and before[X] != trial[X] and cost > 0.0 and earlier > 0.0:
        steep = -np.log(cost / earlier) / np.log(trial[X] / before[X])
        steep = min(max(steep, 0.2), 10.0)
    move = (cost / limit) ** (1.2 / steep)
    if trial[MASS] > 0.0:
        return float(trial[X] * min(max(move, factor), 100.0))
    return float(trial[X] * max(min(move, 1.0 / factor), 0.01))


@kernel
def search(
    f: Array, x: Array, q: Array, limit: float, power: float, top: float, rate: float, factor: float,
    tolerance: float, kink: float, pruned_from: int, most: int, ends: Array, memory: Array, goals: Places,
    starts: Array, p: Array,
) -> tuple[int, bool]:  # fmt: skip
    """Close in on the minimum from `rate`, wrong by about `factor`, with at most so many evaluations.

    Writes the best distribution into p. Returns the number of evaluations and whether entries were dropped
    on the way.
    """
    trial, before = ends[3], ends[4]
    low, high, spare = goals[0, : f.size], goals[1, : f.size], goals[2, : f.size]
    hull, stack, on_hull = goals[3], goals[4], 0  # on the envelope at the high end, and at a trial
    index = np.empty(0, np.uint32)
    gain, cost = 0.0, 0.0  # of the entries that were dropped
    over, seen_low, seen_high, evaluations = False, False, False, 0
    before[X] = 0.0
    p[:] = 0.0
    while not over and evaluations < most:
        # 1. Evaluate, and keep the targets of the end that is replaced.
        trial[X] = rate
        more, spent, count = evaluate(f, x, q, top, rate, power, spare, stack, starts)
        trial[GAIN], trial[MASS] = gain + more, cost + spent - limit
        evaluations += 1
        update_bracket(trial, ends, memory)
        if trial[MASS] >= 0.0:
            low, spare, seen_low = spare, low, True
        else:
            high, spare, seen_high = spare, high, True
            hull, stack, on_hull = stack, hull, count
        if trial[MASS] == 0.0:
            set_end(ends, 1, trial)
            break
        rate, over = next_point(ends, memory, tolerance, kink, limit)
        # 2. From a good start: look for the other end near it before using those at 0 and `still`.
        if not (seen_low and seen_high):
            if factor < UNKNOWN:
                near = aside(trial, before, limit, factor)
                rate = near if near > ends[0, X] and near < ends[1, X] else rate
                factor = factor**2
                set_end(ends, 4, trial)
        # 3. Drop what is settled between the ends, if that is most of it.
        elif not over and f.size >= pruned_from:
            changes = changing(low, high)
            if 3 * changes < f.size:
                changed, marks = sources(low, high, changes), np.empty(f.size, np.uint8)
                kept = mark(x, low, high, changed, able(high, power, hull[:on_hull]), marks)
                if 2 * kept < f.size:
                    more, spent = weigh(f, x, q, top, power, low, changed)
                    gain, cost = ends[0, GAIN] - more, ends[0, MASS] + limit - spent
                    deposit(q, low, high, 1.0, index, p)
                    f, x, q, index, low, high = keep(f, x, q, index, low, high, marks, spare, kept)
                    on_hull = renumber(hull[:on_hull], marks, spare)
                    spare = np.empty(kept, np.uint32)
    # 4. The mixture of both ends that costs the limit; an end not evaluated above is at 0 or `still`.
    mix = mixture(ends)
    if mix > 0.0:
        if not seen_low:
            evaluate(f, x, q, top, ends[0, X], power, low, stack, starts)
        deposit(q, low, low, mix, index, p)
    if mix < 1.0:
        if not seen_high:
            evaluate(f, x, q, top, ends[1, X], power, high, stack, starts)
        deposit(q, high, high, 1.0 - mix, index, p)
    return evaluations, index.size > 0


@kernel
def sample(f: Array, x: Array, q: Array, radius: float) -> tuple[Array, Array, Array]:
    """Losses, positions and masses of a shorter line on which a rate costs about the same.

    If mass travels much less than the length of a piece, pieces of the line; otherwise all of it, with the
    mass of neighbours at the largest loss among them.
    """
    n = f.size
    part = n // (PIECES * PART)
    near = radius <= 0.02 * part * (x[-1] - x[0]) / n
    size = PIECES * part if near else n // MERGED
    F, X_, Q = np.empty(size), np.empty(size), np.empty(size)
    if near:
        for k in range(PIECES):
            here, there = k * (n // PIECES), k * part
            for i in range(part):
                F[there + i], X_[there + i], Q[there + i] = f[here + i], x[here + i], q[here + i]
    else:
        for k in range(size):
            best, mass = k * MERGED, 0.0
            for i in range(k * MERGED, (k + 1) * MERGED):
                best = i if f[i] > f[best] else best
                mass += q[i]
            F[k], X_[k], Q[k] = f[best], x[best], mass
    total = Q.sum()
    if total > 0.0:
        for k in range(size):
            Q[k] /= total
    return F, X_, Q


@kernel
def guess(
    f: Array, x: Array, q: Array, limit: float, power: float, top: float, spread: float, still: float,
    start: float,
) -> float:  # fmt: skip
    """The minimum on a sample of the line, `start` if the whole sample can move to its largest loss."""
    F, X_, Q = sample(f, x, q, limit ** (1.0 / power))
    goals, starts = np.empty((5, F.size), np.uint32), np.empty(F.size)
    ends, memory = np.empty((5, 3)), np.empty(MEMORY)
    if bracket(F, X_, Q, limit, power, top, still, False, ends, memory, goals, starts):
        return start
    kink = 10.0 * spread / float(F.size) ** 2
    search(
        F, X_, Q, limit, power, top, start, UNKNOWN, 1e-9 * spread, kink, PRUNED_FROM, EVALUATIONS, ends,
        memory, goals, starts, np.empty(F.size),
    )  # fmt: skip
    return float(ends[2, X])


@kernel
def solve(
    f: Array, q: Array, limit: float, x: Array, step: float, power: float, warm: float, pruned_from: int,
    p: Array, out: Array, goals: Places, starts: Array, ends: Array, memory: Array,
) -> None:  # fmt: skip
    """Solve one row; `step` is the smallest cost above 0 (negative: some are 0), `warm` a λ or NaN.

    `goals` is (5, N or more), `starts` N or more, `ends` (5, 3) and `memory` MEMORY of scratch.
    """
    # 1. Read the losses. Beyond the rate `still` nothing moves, except at no distance.
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    n, spread = f.size, top - least
    still = 2.0 * spread / abs(step)
    if still > FASTEST:
        out[STATUS] = OUT_OF_RANGE  # the caller scales the losses down
        return
    tolerance, kink = aim(spread, n), 10.0 * spread / float(n) ** 2
    # 2. Find a start: an earlier λ, the minimum on a sample of a long line, or where the lines meet.
    rate, factor = warm, 1.002
    over = bracket(f, x, q, limit, power, top, still, step > 0.0, ends, memory, goals, starts)
    if not over and not (np.isfinite(warm) and warm > 0.0):
        factor = UNKNOWN
        rate, over = next_point(ends, memory, 0.0, kink, limit)
        if n >= GUESSED_FROM and not over:
            rate, factor = guess(f, x, q, limit, power, top, spread, still, rate), 1.01
    # 3. Search.
    done, dropped = search(
        f, x, q, limit, power, top, min(rate, still), factor, tolerance, kink, pruned_from,
        0 if over else EVALUATIONS, ends, memory, goals, starts, p,
    )  # fmt: skip
    # 4. Certify on all entries.
    bound = memory[LOWEST]
    if dropped:
        gain, cost, _ = evaluate(f, x, q, top, ends[2, X], power, goals[0, :n], goals[4], starts)
        bound = gain - (cost - limit) * ends[2, X]
    value, total = expectation(f, p, top)
    violation = max(abs(total - 1.0), (distance(x, q, p, power) - limit) / max(1.0, limit))
    finish(out, top, value, bound, violation, 1 + done, spread)
    out[DUAL] = ends[2, X]


@entry("P", "out")
@kernel
def rows(
    F: Matrix, center: Matrix, limit: Vector, x: Matrix, step: Vector, power: Vector, warm: Matrix, P: Matrix,
    out: Matrix,
) -> None:  # fmt: skip
    """Solve every row of F; parameters with one row serve all rows. `limit` is radius^power."""
    n = F.shape[1]
    goals, starts = np.empty((5, n), np.uint32), np.empty(n)
    ends, memory = np.empty((5, 3)), np.empty(MEMORY)
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        start = warm[b if started else 0, 0]
        for pruned_from in (PRUNED_FROM, NEVER):
            solve(
                F[b], center[r], limit[r], x[0], step[0], power[0], start, pruned_from, P[b], out[b], goals,
                starts, ends, memory,
            )  # fmt: skip
            if out[b, STATUS] != NOT_SOLVED or n < PRUNED_FROM:
                break


@entry("P", "out")
@kernel
def ragged(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, order: Indices, center: Vector, limit: Vector, x: Vector, step: Vector, power: float,
    warm: Matrix, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Solve the rows from `first` to `after`, each with its own entries (scan.py).

    Positions x ascend within a row, the centre along with them; order[k] is the place in its row of the entry
    that comes k-th, and is empty if all are in place.
    """
    most = longest_row(indptr, first, after)
    scratch, ascending, moved, one = np.empty(most), np.empty(most), np.empty(most), np.full(COLUMNS, np.nan)
    goals, starts = np.empty((5, most), np.uint32), np.empty(most)
    ends, memory = np.empty((5, 3)), np.empty(MEMORY)
    many, started, sort = limit.size > 1, warm.shape[1] > 1, order.size > 0
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f, p = losses_of(values, indices, offsets, scale, unit, i, j, scratch), P[i:j]
        if sort:
            given, f, p = f, ascending[: j - i], moved[: j - i]
            for k in range(j - i):
                f[k] = given[order[i + k]]
        q, most_cost, start = center[i:j], limit[b if many else 0], warm[0, b if started else 0]
        for pruned_from in (PRUNED_FROM, NEVER):
            solve(
                f, q, most_cost, x[i:j], step[b], power, start, pruned_from, p, one, goals, starts, ends,
                memory,
            )  # fmt: skip
            if one[STATUS] != NOT_SOLVED or f.size < PRUNED_FROM:
                break
        if sort:
            for k in range(j - i):
                P[i + order[i + k]] = p[k]
        put(one, out, b)
