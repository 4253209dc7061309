"""One evaluation of the dual of Wasserstein-1 on a line: where every entry's mass goes at a rate λ.

The mass of entry j goes where f_i - λ|x_i - x_j| is largest. The best target at or before j follows from that
of its neighbour before, the best at or after j from that of its neighbour after. Both recursions are chains
whose steps wait for each other; two run at once, from both ends of the line to its middle and then on to the
other end, where each meets what the other one left behind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import strict
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
