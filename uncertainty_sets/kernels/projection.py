"""The nearest points of sets: what projections need, which are not part of an oracle.

**Box and CD-norm**, in closed form up to two multipliers.

    minimise ½‖p - t‖²   with   lower <= p <= upper,   Σp = 1,   Σ rate·|p - q| <= budget

For multipliers ν of the sum and π of the budget, p = clip(q + shrink(t - ν - q, π·rate), lower, upper), where
shrink moves a number towards 0. Σp falls with ν, so ν is found by Newton's method on its pieces; what is
spent falls with π, found around it. O(N) per evaluation, about ten for a box, a few hundred with a budget.

**KL, χ² and a diagonal Ellipsoid**: balls around q for distances that are sums over entries.

    minimise ½‖p - x‖²   with   p >= 0,   Σp = 1,   Σ d(p) <= ρ

For multipliers ν of the sum and λ of the ball, each entry minimises ½(p - x)² + νp + λd(p) by itself:

| kind | d(p) | p |
|---|---|---|
| QUADRATIC | (p - q)²/2Q | (x - ν + λq/Q)₊ / (1 + λ/Q) |
| ENTROPY | p·log(p/q) - p + q | λω((x - ν)/λ + log(q/λ)), with ω + log ω = y |

Σp is convex and falls with ν: Newton's method, from below after its first step. Along Σp = 1, Σd falls
with λ, nearly like a power of it: Newton's method on its logarithm. The slope of ν along the way predicts it
at the next λ, so that one or two passes correct it: some 15 passes in all.

**Total variation**: two thresholds, each found by itself.

    minimise ½‖p - x‖²   with   p >= 0,   Σp = 1,   ½·Σ |p - q| <= radius

If the radius binds, as much mass is added as is taken away, just the radius. With e = x - q, entries above an
upper threshold gain e - upper, and entries below a lower one lose lower - e, or all that they have:

    Σ (e - upper)₊ = radius,    Σ min(q, (lower - e)₊) = radius

Both sums are piecewise linear: Newton's method on their pieces, some ten passes. If lower > upper, the radius
does not bind, and p is the nearest point of the simplex.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from uncertainty_sets.arrays import Array, Vector
from uncertainty_sets.kernels.jit import entry, kernel, strict, summing
from uncertainty_sets.kernels.scan import larger, smaller

EPS = 2.0**-52
QUADRATIC, ENTROPY = range(2)
SUM, SPENT, FREE, PULL, CURVE = range(5)  # Σp, Σd, and Σw, Σw·d', Σw·d'² with w = -dp/dν
MOST_PASSES = 200


@summing
def place_in_box(
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
        total, free, spent = place_in_box(t, q, lower, upper, rate, nu, pi, p)
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
    more, _, _ = place_in_box(t, q, lower, upper, rate, low, pi, other)
    total, _, spent = place_in_box(t, q, lower, upper, rate, high, pi, p)
    if more > 1.0 and total < 1.0:
        share, spent = (1.0 - total) / (more - total), 0.0
        for i in range(t.size):
            p[i] += share * (other[i] - p[i])
            spent += rate[i] * abs(p[i] - q[i])
    return high, spent


def nearest_with_budget(t: Array, q: Array, lower: Array, upper: Array, rate: Array, budget: float) -> Array:
    """The nearest point to t; an infinite budget is none."""
    p = np.empty(t.size)
    project_with_budget(t, q, lower, upper, rate, budget, p)
    return p


@entry("p")
@summing
def project_with_budget(
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


@kernel
def omega(y: float) -> float:
    """The w with w + log w = y, to a few ulp."""
    if y < -30.0:
        return float(np.exp(y))
    w = y - np.log(y) + 0.3 if y > 1.0 else 0.7 * y + 0.2
    if y < 0.5:
        w = np.exp(y) / (1.0 + np.exp(y))
    for _ in range(6):
        r = y - w - np.log(w)
        s = 1.0 + w
        t = 2.0 * s * (s + 2.0 / 3.0 * r)
        better = w * (1.0 + (r / s) * (t - r) / (t - 2.0 * r))
        if abs(better - w) <= 2e-16 * w:
            w = better
            break
        w = better
    return float(w)


@kernel
def place_in_ball(
    x: Array, q: Array, Q: Array, kind: int, lam: float, nu: float, p: Array, sums: Array
) -> None:
    """Write p for the multipliers, and the five sums."""
    total, spent, free, pull, curve = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(x.size):
        value, slope, weight = 0.0, 0.0, 0.0
        if kind == QUADRATIC:
            weight = Q[i] / (Q[i] + lam)
            value = (x[i] - nu) * weight + q[i] * (lam / (Q[i] + lam))
            if value <= 0.0:
                value, weight = 0.0, 0.0
            slope = (value - q[i]) / Q[i]
            spent += 0.5 * (value - q[i]) * slope
        elif q[i] > 0.0:
            value = lam * omega((x[i] - nu) / lam + np.log(q[i] / lam))
            weight = value / (value + lam)
            slope = np.log(value / q[i]) if value > 0.0 else 0.0
            spent += value * slope - value + q[i]
        p[i] = value
        total += value
        free += weight
        pull += weight * slope
        curve += weight * slope * slope
    sums[SUM], sums[SPENT], sums[FREE], sums[PULL], sums[CURVE] = total, spent, free, pull, curve


@kernel
def settle(x: Array, q: Array, Q: Array, kind: int, lam: float, nu: float, p: Array, sums: Array) -> float:
    """The ν with Σp = 1, from a start; p and the sums there.

    An entry with 0 < p <= q has ν >= x - p, and one with p >= q has ν <= x, so ν lies in [min x - 1, max x];
    an entry at p = 0 has ν >= x. Without these ends, a slope that is nearly 0 sends Newton's step to 1e270.
    """
    low, high = np.inf, -np.inf
    for i in range(x.size):
        low, high = min(low, x[i]), max(high, x[i])
    low, high = low - 2.0, high + 1.0
    nu = min(max(nu, low), high)
    for _ in range(100):
        place_in_ball(x, q, Q, kind, lam, nu, p, sums)
        over = sums[SUM] - 1.0
        if abs(over) <= 4e-16:
            break
        if over > 0.0:
            low = nu
        else:
            high = nu
        step = nu + over / sums[FREE] if sums[FREE] > 0.0 else np.nan
        if not (step > low and step < high):
            step = 0.5 * (low + high)
        if step in (nu, low, high):
            break
        nu = step
    return nu


@entry("p")
@kernel
def project_in_ball(x: Vector, q: Vector, Q: Vector, kind: int, limit: float, p: Vector) -> None:
    """Write the nearest point to x with Σd <= limit > 0 into p; for ENTROPY Q is q."""
    # 1. The nearest point of the simplex (where q > 0, for ENTROPY), if that is in the ball.
    size, sums = x.size, np.empty(5)
    lower, rate = np.zeros(size), np.zeros(size)
    upper = np.ones(size)
    for i in range(size):
        upper[i] = 0.0 if kind == ENTROPY and q[i] == 0.0 else 1.0
    balance(x, q, lower, upper, rate, 0.0, 0.0, p)
    spent = 0.0
    for i in range(size):
        if kind == QUADRATIC:
            spent += 0.5 * (p[i] - q[i]) * ((p[i] - q[i]) / Q[i])
        elif q[i] > 0.0:
            spent += (p[i] * np.log(p[i] / q[i]) if p[i] > 0.0 else 0.0) - p[i] + q[i]
    if spent <= limit:
        return
    # 2. Start from the multipliers of a small ball, in which d is quadratic.
    total, moment, square = 0.0, 0.0, 0.0
    for i in range(size):
        total += Q[i]
        moment += Q[i] * (x[i] - q[i])
    nu = moment / total
    for i in range(size):
        square += Q[i] * (x[i] - q[i] - nu) * (x[i] - q[i] - nu)
    lam = np.sqrt(square / (2.0 * limit))
    low, high = 0.0, np.inf
    # 3. Newton's method on log Σd in log λ, with ν settled at each λ.
    for _ in range(60):
        nu = settle(x, q, Q, kind, lam, nu, p, sums)
        off = sums[SPENT] - limit
        if abs(off) <= 1e-14 * limit:
            break
        if off > 0.0:
            low = lam
        else:
            high = lam
        drift = sums[PULL] / sums[FREE] if sums[FREE] > 0.0 else 0.0
        fall = lam * (sums[CURVE] - drift * sums[PULL])
        step = np.nan
        if fall > 0.0:  # a slope that is nearly 0 would send λ to 1e-230; Σd is no power of λ that far off
            step = lam * np.exp(min(max(np.log(sums[SPENT] / limit) * sums[SPENT] / fall, -7.0), 7.0))
        if not (step > low and step < high):
            step = np.sqrt(low * high) if low > 0.0 else 0.125 * high
            if high == np.inf:
                step = 4.0 * lam
        if not (step > low and step < high):
            break
        nu -= drift * (step - lam)
        lam = step


def nearest_in_ball(x: Array, q: Array, Q: Array, kind: int, limit: float) -> Array:
    """The nearest point to x; q itself for a limit of 0."""
    if limit == 0.0:
        return q.copy()
    p = np.empty(x.size)
    project_in_ball(x - float(x.mean()), q, Q, kind, limit, p)
    p /= p.sum()
    return p


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
def project_by_moves(x: Vector, q: Vector, radius: float, p: Vector) -> None:
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


def nearest_by_moves(x: Array, q: Array, radius: float) -> Array:
    """The nearest point to x."""
    p = np.empty(x.size)
    project_by_moves(x - float(x.mean()), q, radius, p)
    return p
