"""Wasserstein-1 on a line: move the mass of the centre towards larger losses, at |x_i - x_j| per unit.

With a multiplier λ for the cost of transport, the mass of entry j goes where f_i - λ|x_i - x_j| is largest
(wasserstein1_sweep.py). The dual function

    φ(λ) = λ·radius + Σ q_j max_i (f_i - λ|x_i - x_j|)

is convex and its minimum found by tangent.py. A sample of a long line says where to start. Once both ends of
the bracket are found, only the entries whose target differs between them are searched further
(wasserstein1_prune.py); the bound that is reported comes from all entries again. Losses are measured from
their maximum `top`; positions ascend.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.gathering import longest_row, losses_of, put
from uncertainty_sets.kernels.jit import entry, kernel, strict, summing
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, NOT_SOLVED, OK, OUT_OF_RANGE, STATUS
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
from uncertainty_sets.kernels.wasserstein1_prune import changing, deposit, keep, mark, sources, weigh
from uncertainty_sets.kernels.wasserstein1_sweep import Places, sweep

EVALUATIONS = 200
GUESSED_FROM = 20_000  # entries; above, a sample of the line tells where to start
PRUNED_FROM = 64  # entries; below, finding out what to drop takes longer than it saves
NEVER = 2**62
PIECES, PART = 16, 50  # a sample is so many pieces of the line, one part in so many of it
MERGED = 32  # or so many neighbours as one
UNKNOWN = 2.0  # for how many times too large or small a start may be
FASTEST = 1e300  # a rate that stays finite
SUMMED = 4 * 2.0**-53  # rounding of an entry of p, which is a sum of two products


@kernel
def sample(f: Array, x: Array, q: Array, radius: float) -> tuple[Array, Array, Array]:
    """Losses, positions and masses of a shorter line on which a rate costs about the same.

    If mass travels much less than the length of a piece, pieces of the line; otherwise all of it, with the
    mass of neighbours at the largest loss among them.
    """
    n = f.size
    length = n // (PIECES * PART)
    near = radius <= 0.02 * length * (x[-1] - x[0]) / n
    size = PIECES * length if near else n // MERGED
    F, X_, Q = np.empty(size), np.empty(size), np.empty(size)
    if near:
        for k in range(PIECES):
            here, there = k * (n // PIECES), k * length
            for i in range(length):
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


@summing
def mean_below(f: Array, q: Array, top: float) -> float:
    """Σ q·(f - top)."""
    total = 0.0
    for i in range(f.size):
        total += q[i] * (f[i] - top)
    return total


@summing
def all_to_one(f: Array, x: Array, q: Array, top: float) -> float:
    """The cost of moving everything to the largest loss, or -1 if several are largest."""
    places, last = 0, 0
    for i in range(f.size):
        at = f[i] == top
        places += at
        last = i if at else last
    if places != 1:
        return -1.0
    cost = 0.0
    for i in range(f.size):
        cost += q[i] * abs(x[i] - x[last])
    return cost


@summing
def expectation(f: Array, top: float, p: Array) -> tuple[float, float]:
    """Σ p·(f - top) and Σ p."""
    value, total = 0.0, 0.0
    for i in range(f.size):
        value += p[i] * (f[i] - top)
        total += p[i]
    return value, total


@strict
def distance(x: Array, q: Array, p: Array) -> float:
    """The transport distance between p and q: ∫|P - Q| of their sums.

    The sums run from both ends to the middle of the mass, so that a difference is as exact as the mass
    beyond it is small, and their rounding errors are summed along. p itself is rounded: SUMMED of that mass
    does not count as distance.
    """
    found, middle = 0.0, 0
    for side in (1, -1):
        ahead, error, mass = 0.0, 0.0, 0.0
        i, last = (0, q.size - 1) if side > 0 else (q.size - 1, middle)
        while i != last:
            mass += larger(p[i], q[i])
            if side > 0 and mass > 0.5:
                break
            term = p[i] - q[i]
            further = ahead + term
            rounded = further - ahead
            error += (ahead - (further - rounded)) + (term - rounded)
            ahead = further
            found += larger(0.0, abs(ahead + error) - SUMMED * mass) * abs(x[i + side] - x[i])
            i += side
        middle = i
    return found


@kernel
def bracket(
    f: Array,
    x: Array,
    q: Array,
    radius: float,
    top: float,
    still: float,
    distinct: bool,
    ends: Array,
    memory: Array,
    goal: Places,
) -> bool:
    """Enclose the minimum between free transport and a rate at which nothing moves.

    Returns whether one of them is the minimum. `distinct`: no two positions are equal.
    """
    trial = ends[3]
    reset(memory)
    # 1. Transport for free, λ = 0: all goes to the nearest largest loss, the answer if it is affordable.
    trial[X] = 0.0
    trial[GAIN], cost = 0.0, all_to_one(f, x, q, top)
    if cost < 0.0:
        trial[GAIN], cost = sweep(f, x, q, top, 0.0, goal)
    trial[MASS] = cost - radius
    if trial[MASS] <= 0.0:
        settle_bracket(trial, ends, memory)
        return True
    update_bracket(trial, ends, memory)
    # 2. Nothing moves, except at no distance: the answer if nothing may be spent.
    trial[X], trial[MASS] = still, -radius
    trial[GAIN] = mean_below(f, q, top) if distinct else sweep(f, x, q, top, still, goal)[0]
    if radius == 0.0:
        settle_bracket(trial, ends, memory)
        return True
    update_bracket(trial, ends, memory)
    return False


@kernel
def aside(trial: Array, before: Array, radius: float, factor: float) -> float:
    """A rate beyond the minimum by a little, by how fast the cost falls with the rate; `factor` at least."""
    cost, earlier = trial[MASS] + radius, before[MASS] + radius
    steep = 1.0
    if before[X] > 0.0 and before[X] != trial[X] and cost > 0.0 and earlier > 0.0:
        steep = -np.log(cost / earlier) / np.log(trial[X] / before[X])
        steep = min(max(steep, 0.2), 10.0)
    move = (cost / radius) ** (1.2 / steep)
    if trial[MASS] > 0.0:
        return float(trial[X] * min(max(move, factor), 100.0))
    return float(trial[X] * max(min(move, 1.0 / factor), 0.01))


@kernel
def search(
    f: Array,
    x: Array,
    q: Array,
    radius: float,
    top: float,
    rate: float,
    factor: float,
    tolerance: float,
    kink: float,
    pruned_from: int,
    limit: int,
    ends: Array,
    memory: Array,
    goals: Places,
    p: Array,
) -> tuple[int, bool]:
    """Close in on the minimum from `rate`, wrong by about `factor`; write the best distribution into p.

    Returns the number of evaluations and whether entries were dropped on the way.
    """
    trial, before = ends[3], ends[4]
    low, high, spare = goals[0, : f.size], goals[1, : f.size], goals[2, : f.size]
    index = np.empty(0, np.uint32)
    gain, cost = 0.0, 0.0  # of the entries that were dropped
    over, seen_low, seen_high, evaluations = False, False, False, 0
    before[X] = 0.0
    p[:] = 0.0
    while not over and evaluations < limit:
        # 1. Evaluate, and keep the targets of the end that is replaced.
        trial[X] = rate
        more, spent = sweep(f, x, q, top, rate, spare)
        trial[GAIN], trial[MASS] = gain + more, cost + spent - radius
        evaluations += 1
        update_bracket(trial, ends, memory)
        if trial[MASS] >= 0.0:
            low, spare, seen_low = spare, low, True
        else:
            high, spare, seen_high = spare, high, True
        if trial[MASS] == 0.0:
            set_end(ends, 1, trial)
            break
        rate, over = next_point(ends, memory, tolerance, kink, radius)
        # 2. From a good start: look for the other end near it before using those at 0 and `still`.
        if not (seen_low and seen_high):
            if factor < UNKNOWN:
                near = aside(trial, before, radius, factor)
                rate = near if near > ends[0, X] and near < ends[1, X] else rate
                factor = factor**2
                set_end(ends, 4, trial)
        # 3. Drop what is settled between the ends, if that is most of it.
        elif not over and f.size >= pruned_from:
            count = changing(low, high)
            if 3 * count < f.size:
                changed, marks = sources(low, high, count), np.empty(f.size, np.uint8)
                kept = mark(x, low, high, changed, marks)
                if 2 * kept < f.size:
                    more, spent = weigh(f, x, q, top, low, changed)
                    gain, cost = ends[0, GAIN] - more, ends[0, MASS] + radius - spent
                    deposit(q, low, high, 1.0, index, p)
                    f, x, q, index, low, high = keep(f, x, q, index, low, high, marks, spare, kept)
                    spare = np.empty(kept, np.uint32)
    # 4. The mixture of both ends that costs the radius; an end not evaluated above is at 0 or `still`.
    mix = mixture(ends)
    if mix > 0.0:
        if not seen_low:
            sweep(f, x, q, top, ends[0, X], low)
        deposit(q, low, low, mix, index, p)
    if mix < 1.0:
        if not seen_high:
            sweep(f, x, q, top, ends[1, X], high)
        deposit(q, high, high, 1.0 - mix, index, p)
    return evaluations, index.size > 0


@kernel
def guess(
    f: Array, x: Array, q: Array, radius: float, top: float, spread: float, still: float, start: float
) -> float:
    """The minimum on a sample of the line, `start` if the whole sample can move to its largest loss."""
    F, X_, Q = sample(f, x, q, radius)
    goals, ends, memory = np.empty((3, F.size), np.uint32), np.empty((5, 3)), np.empty(MEMORY)
    if bracket(F, X_, Q, radius, top, still, False, ends, memory, goals[0]):
        return start
    kink = 10.0 * spread / float(F.size) ** 2
    search(
        F,
        X_,
        Q,
        radius,
        top,
        start,
        UNKNOWN,
        1e-9 * spread,
        kink,
        PRUNED_FROM,
        EVALUATIONS,
        ends,
        memory,
        goals,
        np.empty(F.size),
    )
    return float(ends[2, X])


@kernel
def solve(
    f: Array,
    q: Array,
    radius: float,
    x: Array,
    step: float,
    warm: float,
    pruned_from: int,
    p: Array,
    out: Array,
    goals: Places,
    ends: Array,
    memory: Array,
) -> None:
    """Solve one row; `step` is the smallest distance above 0 (negative: some are 0), `warm` a λ or NaN.

    `goals` is (3, N or more), `ends` (5, 3) and `memory` MEMORY of scratch.
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
    tolerance, kink = 1e-13 * spread, 10.0 * spread / float(n) ** 2
    # 2. Find a start: an earlier λ, the minimum on a sample of a long line, or where the lines meet.
    rate, factor = warm, 1.002
    over = bracket(f, x, q, radius, top, still, step > 0.0, ends, memory, goals[0, :n])
    if not over and not (np.isfinite(warm) and warm > 0.0):
        factor = UNKNOWN
        rate, over = next_point(ends, memory, 0.0, kink, radius)
        if n >= GUESSED_FROM and not over:
            rate, factor = guess(f, x, q, radius, top, spread, still, rate), 1.01
    # 3. Search.
    limit = 0 if over else EVALUATIONS
    done, dropped = search(
        f,
        x,
        q,
        radius,
        top,
        min(rate, still),
        factor,
        tolerance,
        kink,
        pruned_from,
        limit,
        ends,
        memory,
        goals,
        p,
    )
    # 4. Certify on all entries.
    bound = memory[LOWEST]
    if dropped:
        gain, cost = sweep(f, x, q, top, ends[2, X], goals[0, :n])
        bound = gain - (cost - radius) * ends[2, X]
    value, total = expectation(f, top, p)
    violation = max(abs(total - 1.0), (distance(x, q, p) - radius) / max(1.0, radius))
    finish(out, top, value, bound, violation, 1 + done, spread)
    out[DUAL] = ends[2, X]


@entry("P", "out")
@kernel
def rows(
    F: Matrix, center: Matrix, radius: Vector, x: Matrix, step: Vector, warm: Matrix, P: Matrix, out: Matrix
) -> None:
    """Solve every row of F; parameters with one row serve all rows."""
    goals, ends, memory = np.empty((3, F.shape[1]), np.uint32), np.empty((5, 3)), np.empty(MEMORY)
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        start = warm[b if started else 0, 0]
        for pruned_from in (PRUNED_FROM, NEVER):
            solve(
                F[b],
                center[r],
                radius[r],
                x[0],
                step[0],
                start,
                pruned_from,
                P[b],
                out[b],
                goals,
                ends,
                memory,
            )
            if out[b, STATUS] != NOT_SOLVED or F.shape[1] < PRUNED_FROM:
                break


@entry("P", "out")
@kernel
def ragged(
    values: Vector,
    indices: Indices,
    offsets: Vector,
    scale: float,
    unit: float,
    indptr: Indices,
    first: int,
    after: int,
    order: Indices,
    center: Vector,
    radius: Vector,
    x: Vector,
    step: Vector,
    warm: Matrix,
    P: Vector,
    out: Matrix,
) -> None:
    """Solve the rows from `first` to `after`, each with its own entries (gathering.py).

    Positions x ascend within a row, the centre along with them; order[k] is the place in its row of the entry
    that comes k-th, and is empty if all are in place.
    """
    most = longest_row(indptr, first, after)
    scratch, ascending, moved, one = np.empty(most), np.empty(most), np.empty(most), np.full(COLUMNS, np.nan)
    goals, ends, memory = np.empty((3, most), np.uint32), np.empty((5, 3)), np.empty(MEMORY)
    many, started, sort = radius.size > 1, warm.shape[1] > 1, order.size > 0
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f, p = losses_of(values, indices, offsets, scale, unit, i, j, scratch), P[i:j]
        if sort:
            given, f, p = f, ascending[: j - i], moved[: j - i]
            for k in range(j - i):
                f[k] = given[order[i + k]]
        q, limit, start = center[i:j], radius[b if many else 0], warm[0, b if started else 0]
        for pruned_from in (PRUNED_FROM, NEVER):
            solve(f, q, limit, x[i:j], step[b], start, pruned_from, p, one, goals, ends, memory)
            if one[STATUS] != NOT_SOLVED or f.size < PRUNED_FROM:
                break
        if sort:
            for k in range(j - i):
                P[i + order[i + k]] = p[k]
        put(one, out, b)
