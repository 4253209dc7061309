"""Diagonal ellipsoid, for losses and shapes of any range: an active set that only shrinks.

In units where the spread of the losses and the radius are 1, with w = radius·Q and t = q/w:
p = max(0, q + w(f - ν)/V). As V falls from its largest value entries leave A = {p > 0} and none comes back.
With an A that holds the right one, the closed form without p >= 0 gives a V that is too large or right, and
entries that it makes negative are 0 in the answer too. So A shrinks round by round and ends at the right
one. It starts from two bounds: V <= max f - qᵀf, and ν >= f - V(1-q)/w for every entry, since p <= 1; these
remove at once the heavy entries that would otherwise go one a round.

What keeps digits: losses are measured from the loss of the heaviest entry of A, whose own h = f - ν may be
far below the rounding of ν. Its weight then also bounds what cancels in the variance, to a factor N.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.base import Array
from uncertainty_sets.kernels.jit import kernel, strict, summing
from uncertainty_sets.kernels.scan import larger

ROUNDS = 500
ROUNDING = 1e-14  # of the radius: what its part that is left may lose to the sums
NEAR = 1e-13  # of the spread: losses this close to the largest are taken for it


@kernel
def near_face(
    f: Array, q: Array, w: Array, t: Array, top: float, unit: float
) -> tuple[float, float, float]:
    """Over the losses next to the largest: Σw, Σq; over the rest: Σq·t."""
    width, mass, cost = 0.0, 0.0, 0.0
    for i in range(f.size):
        if (top - f[i]) * unit <= NEAR:
            width += w[i]
            mass += q[i]
        else:
            cost += q[i] * t[i]
    return width, mass, cost


@strict
def keep(
    x: Array, count: int, base: float, unit: float, n: float, V: float
) -> tuple[int, int, float, float]:
    """Move the columns of x (rows f, q, w, t, room) with p >= 0 to the front.

    Returns their number, the place of the heaviest, and Σq, Σq·t of those that leave.
    """
    kept, heavy, mass, cost = 0, 0, 0.0, 0.0
    for i in range(count):
        if ((x[0, i] - base) * unit - n) + V * x[3, i] >= 0.0:
            for k in range(5):
                x[k, kept] = x[k, i]
            if x[2, kept] > x[2, heavy]:
                heavy = kept
            kept += 1
        else:
            mass += x[1, i]
            cost += x[1, i] * x[3, i]
    return kept, heavy, mass, cost


@summing
def moments(f: Array, w: Array, base: float, unit: float, n: float) -> tuple[float, float, float]:
    """Σw, Σwh, Σwh² with h = f - base - n."""
    s0, s1, s2 = 0.0, 0.0, 0.0
    for i in range(f.size):
        h = (f[i] - base) * unit - n
        s0 += w[i]
        s1 += w[i] * h
        s2 += w[i] * h * h
    return s0, s1, s2


@kernel
def mean_and_square(f: Array, w: Array, base: float, unit: float) -> tuple[float, float, float]:
    """Σw, the mean of f - base with weights w, and Σw(f - mean)²; from the mean where sums about base cancel."""
    s0, s1, s2 = moments(f, w, base, unit, 0.0)
    mean = s1 / s0
    square = s2 - s1 * mean
    if not square > 1e-3 * s2:
        _, r1, r2 = moments(f, w, base, unit, mean)
        square = max(0.0, r2 - r1 * (r1 / s0))
        mean += r1 / s0
    return s0, mean, square


@summing
def least(f: Array, room: Array, base: float, unit: float, V: float) -> float:
    """What ν - base is not below: the largest f - base - V·room, with room = (1-q)/w."""
    found = -np.inf
    for i in range(f.size):
        found = larger(found, (f[i] - base) * unit - V * room[i])
    return found - 4e-16 * abs(found)


@kernel
def search(
    f: Array, q: Array, Q: Array, radius: float, top: float, unit: float
) -> tuple[float, float, float, int]:
    """base, n, V of p = max(0, q + radius·Q·((f - base)·unit - n)/V), and the passes over all entries.

    V = 0 says that the losses next to the largest are within reach alone.
    """
    size = f.size
    x = np.empty((5, size))
    V, heavy = 0.0, 0
    for i in range(size):
        w = radius * Q[i]
        x[0, i], x[1, i], x[2, i], x[3, i] = f[i], q[i], w, q[i] / w
        x[4, i] = (1.0 - q[i] + 1e-15) / w  # q may be 1 by rounding
        V += q[i] * ((top - f[i]) * unit)
        heavy = i if Q[i] > Q[heavy] else heavy
    width, mass, cost = near_face(x[0], x[1], x[2], x[3], top, unit)
    rest = max(0.0, 1.0 - mass)
    if cost + rest * (rest / width) <= 1.0 + ROUNDING:
        return top, 0.0, 0.0, 2
    base, mass, cost, count, work = f[heavy], 0.0, 0.0, size, 3 * size
    n = least(x[0], x[4], base, unit, V)
    for k in range(ROUNDS):
        kept, heavy, lost_mass, lost_cost = keep(x, count, base, unit, n, V)
        work += 3 * count
        if k > 0 and kept == count or kept == 0:
            break
        count = kept
        mass += lost_mass
        cost += lost_cost
        base = x[0, heavy]
        s0, mean, square = mean_and_square(x[0, :count], x[2, :count], base, unit)
        left = max(1.0 - cost - mass * (mass / s0), ROUNDING)
        V = min(V, np.sqrt(square / left))
        n = max(mean - V * (mass / s0), least(x[0, :count], x[4, :count], base, unit, V))
    return base, n, V, work // size
