"""The nearest point of a box with a budget, in closed form up to two multipliers: Box and CD-norm.

    minimise ½‖p - t‖²   with   lower <= p <= upper,   Σp = 1,   Σ rate·|p - q| <= budget

For multipliers ν of the sum and π of the budget, p = clip(q + shrink(t - ν - q, π·rate), lower, upper), where
shrink moves a number towards 0. Σp falls with ν, so ν is found by Newton's method on its pieces; what is
spent falls with π, found around it. O(N) per evaluation, about ten for a box, a few hundred with a budget.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from uncertainty_sets.arrays import Array, Vector
from uncertainty_sets.kernels.jit import entry, summing

EPS = 2.0**-52


@summing
def _place(
    t: Array, q: Array, lower: Array, upper: Array, rate: Array, nu: float, pi: float, p: Array
) -> Any:
    """Write p for the multipliers; the sum of p, how many entries move with ν, and the budget spent."""
    total, free, spent = 0.0, 0, 0.0
    for i in range(t.size):
        x = t[i] - nu - q[i]
        less = pi * rate[i]
        moved = x - less if x > less else (x + less if x < -less else 0.0)
        value = min(max(q[i] + moved, lower[i]), upper[i])
        if moved != 0.0 and lower[i] < value < upper[i]:
            free += 1
        p[i] = value
        total += value
        spent += rate[i] * abs(value - q[i])
    return total, free, spent


@summing
def balance(
    t: Array, q: Array, lower: Array, upper: Array, rate: Array, pi: float, nu: float, p: Array
) -> Any:
    """The ν with Σp = 1, from a start; ν and the budget spent there.

    A far point leaves ν few digits: then p is the mix of those at the two neighbouring ν.
    """
    low, high, room, far = np.inf, -np.inf, 1.0, 1.0
    for i in range(t.size):
        room -= lower[i]
        far = max(far, abs(t[i]) + pi * rate[i])
    slack = 8.0 * EPS * far
    for i in range(t.size):
        low = min(low, t[i] - min(upper[i], lower[i] + max(room, 0.0)) - pi * rate[i] - slack)
        high = max(high, t[i] - lower[i] + pi * rate[i] + slack)
    nu = min(max(nu, low), high)
    spent, total = 0.0, 1.0
    for _ in range(200):
        total, free, spent = _place(t, q, lower, upper, rate, nu, pi, p)
        over = total - 1.0
        if abs(over) <= 1e-15 * t.size:
            return nu, spent
        if over > 0.0:
            low = nu
        else:
            high = nu
        step = nu + over / free if free else 0.5 * (low + high)
        nu = step if low < step < high else 0.5 * (low + high)
        if not low < nu < high:
            break
    other = np.empty(t.size)
    more, _, _ = _place(t, q, lower, upper, rate, low, pi, other)
    total, _, spent = _place(t, q, lower, upper, rate, high, pi, p)
    if more > 1.0 and total < 1.0:
        share, spent = (1.0 - total) / (more - total), 0.0
        for i in range(t.size):
            p[i] += share * (other[i] - p[i])
            spent += rate[i] * abs(p[i] - q[i])
    return high, spent


def nearest(t: Array, q: Array, lower: Array, upper: Array, rate: Array, budget: float) -> Array:
    """The nearest point to t; an infinite budget is none."""
    p = np.empty(t.size)
    project(t, q, lower, upper, rate, budget, p)
    return p


@entry("p")
@summing
def project(
    t: Vector, q: Vector, lower: Vector, upper: Vector, rate: Vector, budget: float, p: Vector
) -> None:
    """Write the nearest point to t into p."""
    nu, spent = balance(t, q, lower, upper, rate, 0.0, 0.0, p)
    if spent <= budget * (1.0 + 1e-14):
        return
    low, low_excess = 0.0, spent - budget
    high, high_excess, scale = 0.0, low_excess, 0.0
    for i in range(t.size):
        if rate[i] > 0.0:
            scale = max(scale, abs(t[i] - nu - q[i]) / rate[i])
    high = max(scale, 1e-300)
    for _ in range(100):
        nu, spent = balance(t, q, lower, upper, rate, high, nu, p)
        high_excess = spent - budget
        if high_excess <= 0.0:
            break
        high *= 2.0
    # The line through both ends, halving the pull of an end that stays (Illinois), and every third step the
    # middle: far targets give steep curves on which the line alone crawls.
    side, left = 0, high_excess
    for step in range(300):
        if high - low <= 4e-16 * high or left >= -1e-14 * max(budget, 1.0):
            break
        pi = (low * high_excess - high * low_excess) / (high_excess - low_excess)
        if step % 3 == 2 or not low < pi < high:
            pi = 0.5 * (low + high)
        nu, spent = balance(t, q, lower, upper, rate, pi, nu, p)
        excess = spent - budget
        if excess > 0.0:
            low, low_excess = pi, excess
            if side == 1:
                high_excess *= 0.5
            side = 1
        else:
            high, high_excess, left = pi, excess, excess
            if side == -1:
                low_excess *= 0.5
            side = -1
    # The end that is within the budget, mixed with the other one: a far point leaves π few digits too.
    other = np.empty(t.size)
    _, more = balance(t, q, lower, upper, rate, low, nu, other)
    _, spent = balance(t, q, lower, upper, rate, high, nu, p)
    if spent < budget < more:
        share = (budget - spent) / (more - spent)
        for i in range(t.size):
            p[i] += share * (other[i] - p[i])
