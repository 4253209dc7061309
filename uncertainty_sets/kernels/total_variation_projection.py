"""The nearest point of a total variation ball: two thresholds, each found by itself.

    minimise ½‖p - x‖²   with   p >= 0,   Σp = 1,   ½·Σ |p - q| <= radius

If the radius binds, as much mass is added as is taken away, just the radius. With e = x - q, entries above an
upper threshold gain e - upper, and entries below a lower one lose lower - e, or all that they have:

    Σ (e - upper)₊ = radius,    Σ min(q, (lower - e)₊) = radius

Both sums are piecewise linear: Newton's method on their pieces, some ten passes. If lower > upper, the radius
does not bind, and p is the nearest point of the simplex.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Vector
from uncertainty_sets.kernels.budget_projection import balance
from uncertainty_sets.kernels.jit import entry, kernel, strict, summing
from uncertainty_sets.kernels.scan import larger, smaller

MOST_PASSES = 200


@summing
def ends(x: Array, q: Array) -> tuple[float, float, float]:
    """min e, max e and max x."""
    least, most, last = np.inf, -np.inf, -np.inf
    for i in range(x.size):
        e = x[i] - q[i]
        least = smaller(least, e)
        most = larger(most, e)
        last = larger(last, x[i])
    return least, most, last


@summing
def gained(x: Array, q: Array, upper: float) -> tuple[float, float]:
    """Σ (e - upper)₊, and how many entries gain."""
    total, free = 0.0, 0.0
    for i in range(x.size):
        more = (x[i] - q[i]) - upper
        total += larger(more, 0.0)
        free += 1.0 if more > 0.0 else 0.0
    return total, free


@summing
def lost(x: Array, q: Array, lower: float) -> tuple[float, float]:
    """Σ min(q, (lower - e)₊), and how many entries lose a part of their mass."""
    total, free = 0.0, 0.0
    for i in range(x.size):
        less = lower - (x[i] - q[i])
        total += smaller(q[i], larger(less, 0.0))
        free += 1.0 if (less > 0.0) & (less < q[i]) else 0.0
    return total, free


@kernel
def upper_threshold(x: Array, q: Array, radius: float, most: float) -> float:
    """From below, where the sum is too large: it is convex, so no step goes too far."""
    upper = most - radius
    for _ in range(MOST_PASSES):
        total, free = gained(x, q, upper)
        step = upper + (total - radius) / free if free > 0.0 else upper
        if not step > upper:
            break
        upper = step
    return upper


@kernel
def lower_threshold(x: Array, q: Array, radius: float, low: float, high: float) -> float:
    """Inside a bracket, or its middle: entries that have lost everything bend the sum down again."""
    lower = low + radius / x.size
    for _ in range(MOST_PASSES):
        total, free = lost(x, q, lower)
        off = total - radius
        if abs(off) <= 1e-16 * radius:
            break
        if off > 0.0:
            high = lower
        else:
            low = lower
        step = lower - off / free if free > 0.0 else np.nan
        if not (step > low and step < high):
            step = 0.5 * (low + high)
        if step in (low, high):
            break
        lower = step
    return lower


@strict
def shift(x: Array, by: float, y: Array) -> None:
    """y = x - by: exact for entries near the shift, so that thresholds of a far point keep their digits."""
    for i in range(x.size):
        y[i] = x[i] - by


@strict
def move(q: Array, high: Array, upper: float, low: Array, lower: float, radius: float, p: Array) -> None:
    """Write p; the same mass moves on both sides, whatever the rounding of a far point did to them."""
    up, down = 0.0, 0.0
    for i in range(q.size):
        up += max((high[i] - q[i]) - upper, 0.0)
        down += min(q[i], max(lower - (low[i] - q[i]), 0.0))
    moved = min(up, down, radius)
    gain = moved / up if up > 0.0 else 0.0
    loss = moved / down if down > 0.0 else 0.0
    for i in range(q.size):
        more = max((high[i] - q[i]) - upper, 0.0)
        less = min(q[i], max(lower - (low[i] - q[i]), 0.0))
        p[i] = q[i] + gain * more - loss * less


@entry("p")
@kernel
def project(x: Vector, q: Vector, radius: float, p: Vector) -> None:
    """Write the nearest point to x into p."""
    high, low = np.empty(x.size), np.empty(x.size)
    # 1. Both thresholds, each a second time from the first one as the origin. From 1 on no radius binds.
    above, below, upper, lower = -np.inf, np.inf, 0.0, 0.0
    if radius < 1.0:
        least, most, last = ends(x, q)
        above = upper_threshold(x, q, radius, most)
        shift(x, above, high)
        upper = upper_threshold(high, q, radius, ends(high, q)[1])
        below = lower_threshold(x, q, radius, least, last)
        shift(x, below, low)
        least, _, last = ends(low, q)
        lower = lower_threshold(low, q, radius, least, last)
    # 2. Move the mass, if the radius binds; otherwise the nearest point of the simplex.
    if below + lower <= above + upper:
        move(q, high, upper, low, lower, radius, p)
        return
    for i in range(x.size):
        low[i], high[i] = 0.0, 1.0
    balance(x, q, low, high, low, 0.0, 0.0, p)
    total = 0.0
    for i in range(x.size):
        total += p[i]
    for i in range(x.size):
        p[i] /= total


def nearest(x: Array, q: Array, radius: float) -> Array:
    """The nearest point to x."""
    p = np.empty(x.size)
    project(x - float(x.mean()), q, radius, p)
    return p
