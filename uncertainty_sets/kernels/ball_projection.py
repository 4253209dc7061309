"""The nearest point of a ball around q, for distances that are sums over entries: KL, χ², diagonal Ellipsoid.

    minimise ½‖p - x‖²   with   p >= 0,   Σp = 1,   Σ d(p) <= ρ

For multipliers ν of the sum and λ of the ball, each entry minimises ½(p - x)² + νp + λd(p) by itself:

| kind | d(p) | p |
|---|---|---|
| QUADRATIC | (p - q)²/2Q | (x - ν + λq/Q)₊ / (1 + λ/Q) |
| ENTROPY | p·log(p/q) - p + q | λω((x - ν)/λ + log(q/λ)), with ω + log ω = y |

Σp is convex and falls with ν: Newton's method, from below after its first step. Along Σp = 1, Σd falls
with λ, nearly like a power of it: Newton's method on its logarithm. The slope of ν along the way predicts it
at the next λ, so that one or two passes correct it: some 15 passes in all.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Vector
from uncertainty_sets.kernels.budget_projection import balance
from uncertainty_sets.kernels.jit import entry, kernel

QUADRATIC, ENTROPY = range(2)
SUM, SPENT, FREE, PULL, CURVE = range(5)  # Σp, Σd, and Σw, Σw·d', Σw·d'² with w = -dp/dν


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
def place(x: Array, q: Array, Q: Array, kind: int, lam: float, nu: float, p: Array, sums: Array) -> None:
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
        place(x, q, Q, kind, lam, nu, p, sums)
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
def project(x: Vector, q: Vector, Q: Vector, kind: int, limit: float, p: Vector) -> None:
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


def nearest(x: Array, q: Array, Q: Array, kind: int, limit: float) -> Array:
    """The nearest point to x; q itself for a limit of 0."""
    if limit == 0.0:
        return q.copy()
    p = np.empty(x.size)
    project(x - float(x.mean()), q, Q, kind, limit, p)
    p /= p.sum()
    return p
