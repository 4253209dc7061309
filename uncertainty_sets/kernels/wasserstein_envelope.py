"""One evaluation of the dual of a Wasserstein ball on a line, for any order of the cost.

At a rate λ the mass of entry j goes where f_i - λ|x_i - x_j|^power is largest. For a power of 1 the best
target at or before j follows from that of its neighbour before, the best at or after j from that of its
neighbour after. Both recursions are chains whose steps wait for each other; two run at once, from both ends
of the line to its middle and then on to the other end, where each meets what the other one left behind.

For a power above 1 the curves
of two entries cross once, so that the upper envelope of all of them is built from left to right with a stack:
a new curve takes over beyond where it crosses the last one, and removes those that it hides. Parabolas
cross at a point with a formula, O(N); for other powers a bisection over the entries finds it, O(N log N).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import strict, summing
from uncertainty_sets.kernels.scan import larger

Places = NDArray[np.uint32]

# Places are unsigned: numba would check at every access whether a signed one counts from the end.
unsigned: Any = np.uint64
signed: Any = np.int64  # numba would turn a variable that is either into a float
ZERO, ONE, TWO = unsigned(0), unsigned(1), unsigned(2)
BLOCK = unsigned(256)  # entries after which a leader's worth is computed afresh and sums are added up


@strict
def reach(f: float, top: float, rate: float, distance: float) -> float:
    """What a target is worth at that distance, always rounded alike: it decides ties."""
    return (f - top) - rate * distance


@strict
def pass_on(own: float, fade: float, worth: float, j: int, leader: int) -> tuple[float, int]:
    """The best target so far and its worth at entry j, which itself is worth `own`; j wins ties.

    A running maximum needs no branch: on noisy losses mispredicted ones would cost four times as much.
    """
    faded = worth - fade
    return larger(faded, own), j if own >= faded else leader


@strict
def choose(x: Array, here: float, west: int, a: float, east: int, b: float) -> int:
    """The better of two targets worth a and b at the position `here`, the nearer of equals."""
    nearer = x[east] - here < here - x[west]
    return east if (b > a) | ((b == a) & nearer) else west


@strict
def sweep(f: Array, x: Array, q: Array, top: float, rate: float, goal: Places) -> tuple[float, float]:
    """Write each entry's best target into `goal`; return Σ q·(f_target - top) and Σ q·distance."""
    n = unsigned(f.size)
    half = n // TWO
    west, east = ZERO, n - ONE
    # 1. To the middle: the best target before each entry of the left half, after each of the right half.
    for start in range(ZERO, half, BLOCK):
        last, following = x[start], x[n - ONE - start]
        a = reach(f[west], top, rate, last - x[west])
        b = reach(f[east], top, rate, x[east] - following)
        for j in range(start, min(half, start + BLOCK)):
            k = n - ONE - j
            a, west = pass_on(f[j] - top, rate * (x[j] - last), a, j, west)
            b, east = pass_on(f[k] - top, rate * (following - x[k]), b, k, east)
            last, following = x[j], x[k]
            goal[j], goal[k] = west, east
    # 2. An odd entry in the middle sees both leaders.
    gain, cost = 0.0, 0.0
    if half < n - half:
        here, own = x[half], f[half] - top
        a, west = pass_on(own, 0.0, reach(f[west], top, rate, here - x[west]), half, west)
        b, east = pass_on(own, 0.0, reach(f[east], top, rate, x[east] - here), half, east)
        target = choose(x, here, west, a, east, b)
        goal[half] = target
        gain, cost = q[half] * (f[target] - top), q[half] * abs(x[target] - here)
    # 3. On to the ends: both leaders of every entry are known.
    for start in range(n - half, n, BLOCK):
        last, following = x[start], x[n - ONE - start]
        a = reach(f[west], top, rate, last - x[west])
        b = reach(f[east], top, rate, x[east] - following)
        more, longer = 0.0, 0.0
        for j in range(start, min(n, start + BLOCK)):
            k = n - ONE - j
            here, there = x[j], x[k]
            a, west = pass_on(f[j] - top, rate * (here - last), a, j, west)
            b, east = pass_on(f[k] - top, rate * (following - there), b, k, east)
            last, following = here, there
            right, left = unsigned(goal[j]), unsigned(goal[k])
            right = choose(x, here, west, a, right, reach(f[right], top, rate, x[right] - here))
            left = choose(x, there, left, reach(f[left], top, rate, there - x[left]), east, b)
            goal[j], goal[k] = right, left
            more += q[j] * (f[right] - top) + q[k] * (f[left] - top)
            longer += q[j] * abs(x[right] - here) + q[k] * abs(x[left] - there)
        gain += more
        cost += longer
    return gain, cost


@strict
def length(distance: float, power: float) -> float:
    """The cost of moving a unit by that distance."""
    if power == 2.0:
        return distance * distance
    return distance if power == 1.0 else distance**power


@strict
def parabolas(f: Array, x: Array, rate: float, stack: Places, starts: Array) -> int:
    """Write the entries on the envelope of f_i - rate·(x - x_i)² into `stack`; return their number.

    starts[k] is where the k-th of them takes over, measured from its own position: that keeps the digits of
    a short distance far from 0.
    """
    half = 0.5 / rate
    count: int = ONE
    stack[0], starts[0] = 0, -np.inf
    top_x, top_f, top_start = x[0], f[0], -np.inf  # of the last curve on the stack
    for i in range(ONE, unsigned(f.size)):
        start, hidden = -np.inf, False
        while count > ZERO:
            apart, rise = x[i] - top_x, f[i] - top_f
            if apart == 0.0:
                hidden = rise <= 0.0
                if hidden:
                    break
            else:
                shift = half * rise / apart
                if 0.5 * apart - shift > top_start:
                    start = -0.5 * apart - shift
                    break
            count -= ONE
            if count > ZERO:
                last = stack[count - ONE]
                top_x, top_f, top_start = x[last], f[last], starts[count - ONE]
        if not hidden:
            stack[count], starts[count] = i, start
            top_x, top_f, top_start = x[i], f[i], start
            count += ONE
    return count


@strict
def overtakes(
    f: Array, x: Array, top: float, rate: float, power: float, later: int, earlier: int, j: int
) -> bool:
    """Whether at entry j the later target is worth more than the earlier one, or the same and is nearer."""
    near, far = abs(x[later] - x[j]), abs(x[earlier] - x[j])
    a, b = reach(f[later], top, rate, length(near, power)), reach(f[earlier], top, rate, length(far, power))
    return a > b or (a == b and near < far)


@strict
def curves(f: Array, x: Array, top: float, rate: float, power: float, stack: Places, starts: Array) -> int:
    """As `parabolas` for another power; starts[k] is the number of the entry at which a curve takes over."""
    n = unsigned(f.size)
    count: int = ONE
    stack[0], starts[0] = 0, 0.0
    for i in range(ONE, n):
        low, high = ZERO, ZERO
        while count > ZERO:
            last, low = unsigned(stack[count - ONE]), unsigned(starts[count - ONE])
            if not overtakes(f, x, top, rate, power, i, last, low):
                # It takes over after `low`, if at all.
                high = n
                while high - low > ONE:
                    middle = (low + high) // TWO
                    if overtakes(f, x, top, rate, power, i, last, middle):
                        high = middle
                    else:
                        low = middle
                break
            high = low
            count -= ONE
        if high < n:
            stack[count], starts[count] = i, float(high)
            count += ONE
    return count


@strict
def assign(
    f: Array, x: Array, q: Array, top: float, rate: float, power: float, stack: Places, starts: Array,
    count: int, goal: Places,
) -> tuple[float, float]:  # fmt: skip
    """Write the best target of each entry, itself if nothing is worth more; return gain and cost."""
    n, last, k = unsigned(f.size), unsigned(count) - ONE, ZERO
    by_number = power != 2.0
    gain, cost = 0.0, 0.0
    for start in range(ZERO, n, BLOCK):
        more, longer = 0.0, 0.0
        for j in range(start, min(n, start + BLOCK)):
            while k < last:
                here = float(j) if by_number else x[j] - x[stack[k + ONE]]
                if here < starts[k + ONE]:
                    break
                k += ONE
            target = unsigned(stack[k])
            spent = length(abs(x[target] - x[j]), power)
            if reach(f[target], top, rate, spent) <= f[j] - top:
                target, spent = j, 0.0
            goal[j] = target
            more += q[j] * (f[target] - top)
            longer += q[j] * spent
        gain += more
        cost += longer
    return gain, cost


@summing
def all_to_one(f: Array, x: Array, q: Array, top: float, power: float) -> float:
    """The cost of moving everything to the largest loss, or -1 if several are largest."""
    places, last = 0, 0
    for i in range(f.size):
        at = f[i] == top
        places += at
        last = i if at else last
    if places != 1:
        return -1.0
    cost = 0.0
    if power == 1.0:  # a loop for itself, which runs on vector units
        for i in range(f.size):
            cost += q[i] * abs(x[i] - x[last])
        return cost
    for i in range(f.size):
        cost += q[i] * length(abs(x[i] - x[last]), power)
    return cost


@strict
def cost_of(x: Array, q: Array, power: float, goal: Places) -> float:
    """Σ q·distance^power."""
    cost = 0.0
    for j in range(unsigned(q.size)):
        cost += q[j] * length(abs(x[goal[j]] - x[j]), power)
    return cost


@strict
def evaluate(
    f: Array, x: Array, q: Array, top: float, rate: float, power: float, goal: Places, stack: Places,
    starts: Array,
) -> tuple[float, float, int]:  # fmt: skip
    """Write each entry's best target into `goal`; return Σ q·(f_target - top) and Σ q·distance^power.

    Returns also how many entries of `stack` are all those on the envelope of parabolas (0 for other curves).
    """
    if power == 1.0 or rate == 0.0:
        gain, cost = sweep(f, x, q, top, rate, goal)
        return gain, cost if power == 1.0 else cost_of(x, q, power, goal), 0
    if power == 2.0:
        count = parabolas(f, x, rate, stack, starts)
    else:
        count = curves(f, x, top, rate, power, stack, starts)
    gain, cost = assign(f, x, q, top, rate, power, stack, starts, count, goal)
    return gain, cost, signed(count) if power == 2.0 else 0
