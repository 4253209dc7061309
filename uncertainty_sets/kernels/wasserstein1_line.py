"""Wasserstein-1 on a line: move the mass of the centre towards larger losses, at |x_i - x_j| per unit.

With a multiplier λ for the cost of transport, the mass of entry j goes where f_i - λ|x_i - x_j| is largest:
the best target to the left comes out of one sweep, the best to the right of another. The dual function

    φ(λ) = λ·radius + Σ q_j max_i (f_i - λ|x_i - x_j|)

is convex and its minimum found by tangent.py. Losses are measured from their maximum `top`; positions ascend.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, strict, summing
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

Indices = NDArray[np.int32]

EVALUATIONS = 200
GUESSED_FROM = 20_000  # entries; above, pieces of the line tell where to start
PIECES = 16
BLOCK = 256
FASTEST = 1e300  # a rate that stays finite
SUMMED = 4 * 2.0**-53  # rounding of an entry of p, which is a sum of two products


@strict
def reach(f: float, top: float, rate: float, distance: float) -> float:
    """What a target is worth at that distance, always rounded alike: it decides ties."""
    return (f - top) - rate * distance


@kernel
def lead_right(f: Array, x: Array, top: float, rate: float, first: int, after: int, left: Indices) -> None:
    """The best target at or to the left of each entry, the entry itself if that is equally good.

    The leader's worth is carried along as a running maximum, which runs without a branch (on noisy losses
    mispredicted ones cost four times as much), and taken afresh every BLOCK entries against rounding.
    """
    leader = first
    for start in range(first, after, BLOCK):
        last = x[start]
        worth = reach(f[leader], top, rate, last - x[leader])
        for j in range(start, min(after, start + BLOCK)):
            faded = worth - rate * (x[j] - last)
            last = x[j]
            own = f[j] - top
            worth = larger(faded, own)
            leader = j if own >= faded else leader
            left[j] = leader


@kernel
def lead_left(f: Array, x: Array, top: float, rate: float, first: int, after: int, right: Indices) -> None:
    """The best target at or to the right of each entry: `lead_right` the other way round."""
    leader = after - 1
    for stop in range(after, first, -BLOCK):
        last = x[stop - 1]
        worth = reach(f[leader], top, rate, x[leader] - last)
        for j in range(stop - 1, max(first, stop - BLOCK) - 1, -1):
            faded = worth - rate * (last - x[j])
            last = x[j]
            own = f[j] - top
            worth = larger(faded, own)
            leader = j if own >= faded else leader
            right[j] = leader


@strict
def prefer_right(a: float, b: float, near: float, far: float) -> bool:
    """Whether the target on the right is worth more, or as much and nearer."""
    return (b > a) | ((b == a) & (far < near))


@summing
def weigh(
    f: Array,
    x: Array,
    q: Array,
    top: float,
    rate: float,
    first: int,
    after: int,
    left: Indices,
    right: Indices,
) -> tuple[float, float]:
    """Σ q·(f_target - top) and Σ q·distance, each entry's target the better of both sides."""
    gain, cost = 0.0, 0.0
    for j in range(first, after):
        west, east = left[j], right[j]
        near, far = x[j] - x[west], x[east] - x[j]
        a, b = reach(f[west], top, rate, near), reach(f[east], top, rate, far)
        other = prefer_right(a, b, near, far)
        gain += q[j] * ((f[east] if other else f[west]) - top)
        cost += q[j] * (far if other else near)
    return gain, cost


@kernel
def sweep(
    f: Array,
    x: Array,
    q: Array,
    top: float,
    rate: float,
    first: int,
    after: int,
    left: Indices,
    right: Indices,
) -> tuple[float, float]:
    """Solve at that rate for the entries from `first` to `after`; return gain and cost."""
    lead_right(f, x, top, rate, first, after, left)
    lead_left(f, x, top, rate, first, after, right)
    return weigh(f, x, q, top, rate, first, after, left, right)


@kernel
def spread_out(
    f: Array,
    x: Array,
    q: Array,
    top: float,
    rate: float,
    weight: float,
    left: Indices,
    right: Indices,
    p: Array,
) -> None:
    """Add the solution at that rate to p, `weight` times."""
    lead_right(f, x, top, rate, 0, f.size, left)
    lead_left(f, x, top, rate, 0, f.size, right)
    # The sources of one target stand side by side; their mass is summed with its rounding error carried
    # along (Kahan), since an error in p counts once per unit of distance.
    target, mass, error = 0, 0.0, 0.0
    for j in range(f.size):
        west, east = left[j], right[j]
        near, far = x[j] - x[west], x[east] - x[j]
        a, b = reach(f[west], top, rate, near), reach(f[east], top, rate, far)
        goal = east if prefer_right(a, b, near, far) else west
        if goal != target:
            p[target] += weight * mass
            target, mass, error = goal, 0.0, 0.0
        term = q[j] - error
        total = mass + term
        error = (total - mass) - term
        mass = total
    p[target] += weight * mass


@kernel
def guess(
    f: Array, x: Array, q: Array, radius: float, top: float, start: float, left: Indices, right: Indices
) -> float:
    """A rate at which pieces of the line, each by itself, spend about the radius; `start` if none is usable.

    The pieces are 2 % of the line in all, or longer ones of 12 % if mass travels far.
    """
    # 1. How long the pieces must be; if mass travels farther than a piece, they say nothing.
    unit = (x[-1] - x[0]) / f.size
    pieces, length = PIECES, f.size // (PIECES * 50)
    if radius > 0.02 * unit * length:
        pieces, length = 2, f.size // 16
    if radius > 0.05 * unit * length:
        return start
    # 2. Bisection of the rate in logarithms, to within 5 %.
    low, high, rate = 0.0, np.inf, start
    for _ in range(24):
        cost, mass = 0.0, 0.0
        for k in range(pieces):
            first = k * (f.size // pieces)
            cost += sweep(f, x, q, top, rate, first, first + length, left, right)[1]
            mass += q[first : first + length].sum()
        if cost > radius * mass:
            low = rate
        else:
            high = rate
        if high < 1.05 * low:
            break
        rate = 2.0 * rate if high == np.inf else (np.sqrt(low * high) if low > 0.0 else 0.5 * rate)
    return rate


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


@kernel
def check(f: Array, x: Array, q: Array, top: float, p: Array) -> tuple[float, float, float]:
    """Σ p·(f - top), Σ p, and the transport distance between p and q: ∫|P - Q| of their sums.

    The sums run from both ends to the middle of the mass, so that a difference is as exact as the mass
    beyond it is small. p itself is rounded: SUMMED of that mass does not count as distance.
    """
    # 1. Value and sum.
    value, total = 0.0, 0.0
    for i in range(f.size):
        value += p[i] * (f[i] - top)
        total += p[i]
    # 2. The distance from either end to the middle; sums carry their rounding error along (Kahan).
    distance, middle = 0.0, 0
    for side in (1, -1):
        ahead, error, mass = 0.0, 0.0, 0.0
        i, last = (0, f.size - 1) if side > 0 else (f.size - 1, middle)
        while i != last:
            mass += larger(p[i], q[i])
            if side > 0 and mass > 0.5:
                break
            term = (p[i] - q[i]) - error
            further = ahead + term
            error = (further - ahead) - term
            ahead = further
            distance += larger(0.0, abs(ahead) - SUMMED * mass) * abs(x[i + side] - x[i])
            i += side
        middle = i
    return value, total, distance


@kernel
def solve(
    f: Array,
    q: Array,
    radius: float,
    x: Array,
    step: float,
    warm: float,
    p: Array,
    out: Array,
    left: Indices,
    right: Indices,
    ends: Array,
    memory: Array,
) -> None:
    """Solve one row; `step` is the smallest distance above 0 (negative: some are 0), `warm` a λ or NaN."""
    # 1. Read the losses. Beyond the rate `still` nothing moves, except at no distance.
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    trial = ends[3]
    n = f.size
    still = 2.0 * (top - least) / abs(step)
    if still > FASTEST:
        out[STATUS] = OUT_OF_RANGE  # the caller scales the losses down
        return
    # 2. Transport for free, λ = 0: all goes to the nearest largest loss, the answer if it is affordable.
    reset(memory)
    trial[X] = 0.0
    trial[GAIN], cost = 0.0, all_to_one(f, x, q, top)
    if cost < 0.0:
        trial[GAIN], cost = sweep(f, x, q, top, 0.0, 0, n, left, right)
    trial[MASS] = cost - radius
    evaluations = 1
    if trial[MASS] <= 0.0:
        settle_bracket(trial, ends, memory)
    else:
        # 3. The bracket's other end, where nothing moves.
        update_bracket(trial, ends, memory)
        trial[X], trial[MASS] = still, -radius
        trial[GAIN] = (
            mean_below(f, q, top) if step > 0.0 else sweep(f, x, q, top, still, 0, n, left, right)[0]
        )
        update_bracket(trial, ends, memory)
        kink = 10.0 * (top - least) / float(n) ** 2
        rate, over = next_point(ends, memory, 0.0, kink, radius)
        # 4. Start from an earlier λ or from pieces of a long line; `factor`: how near that is, 2 unknown.
        factor = 2.0
        if np.isfinite(warm) and warm > 0.0:
            rate, factor = min(warm, still), 1.002
        elif n >= GUESSED_FROM:
            rate, factor = min(guess(f, x, q, radius, top, rate, left, right), still), 1.1
        # 5. Close in on the minimum.
        low, high = False, False
        while not over and evaluations < EVALUATIONS:
            trial[X] = rate
            trial[GAIN], cost = sweep(f, x, q, top, rate, 0, n, left, right)
            trial[MASS] = cost - radius
            evaluations += 1
            update_bracket(trial, ends, memory)
            if trial[MASS] == 0.0:
                set_end(ends, 1, trial)
                break
            low, high = low or trial[MASS] > 0.0, high or trial[MASS] < 0.0
            rate, over = next_point(ends, memory, 1e-13 * (top - least), kink, radius)
            if not (low and high) and factor < 2.0:
                # The start is good: look for the other end near it before using those at 0 and `still`.
                near = trial[X] * factor if low else trial[X] / factor
                rate = near if near > ends[0, X] and near < ends[1, X] else rate
                factor = factor**3
    # 6. Write p, the mixture of both ends that costs the radius, and its certificate.
    mix = mixture(ends)
    p[:] = 0.0
    if mix > 0.0:
        spread_out(f, x, q, top, ends[0, X], mix, left, right, p)
    if mix < 1.0:
        spread_out(f, x, q, top, ends[1, X], 1.0 - mix, left, right, p)
    value, total, distance = check(f, x, q, top, p)
    violation = max(abs(total - 1.0), (distance - radius) / max(1.0, radius))
    finish(out, top, value, memory[LOWEST], violation, evaluations, top - least)
    out[DUAL] = ends[2, X]


@entry("P", "out")
@kernel
def rows(
    F: Matrix, center: Matrix, radius: Vector, x: Matrix, step: Vector, warm: Matrix, P: Matrix, out: Matrix
) -> None:
    """Solve every row of F; parameters with one row serve all rows."""
    left, right = np.empty(F.shape[1], np.int32), np.empty(F.shape[1], np.int32)
    ends, memory = np.empty((4, 3)), np.empty(MEMORY)
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        start = warm[b if started else 0, 0]
        solve(F[b], center[r], radius[r], x[0], step[0], start, P[b], out[b], left, right, ends, memory)
