"""The limit θ = ∞ of the power divergences with k < 1, if no mass of q to speak of is at the largest losses.

With h = (max f - f)/spread: p = weight·q·h^{1/(k-1)} below the top, the weight by D = radius, and the rest of
the mass at the top (cressie_read.py has the definitions).
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.exponential import exp
from uncertainty_sets.kernels.jit import kernel, summing
from uncertainty_sets.kernels.logarithm import log
from uncertainty_sets.kernels.tilt import totals

FLOOR = 1e-300  # of p where q > 0, if k <= 0: D is infinite at p = 0, and p must not become 0 by underflow


@kernel
def negligible(power: float) -> float:
    """The mass at the top that no sum notices, but that would need a θ of over 1e60 or so; k < 1."""
    digits = 60.0 / (1.0 - power) if power > 0.0 else min(60.0, 240.0 / (1.0 - power))
    mass: float = 10.0**-digits
    return mass


@kernel
def divergence_of(log_r: float, log_s: float, logs: float, power: float) -> float:
    """D from the logarithms of r and s, or for Burg from log s and Σ q·log b."""
    if power == 0.0:
        return log_s + logs
    divergence: float = np.expm1(log_r - power * log_s) / (power * (power - 1.0))
    return divergence


@kernel
def write_top(f: Array, q: Array, top: float, mass: float, share: float, p: Array) -> None:
    """Give the largest losses `share`, in proportion to q, or evenly if q is 0 there; leave the others."""
    count = 0.0
    for i in range(f.size):
        count += f[i] == top
    for i in range(f.size):
        if f[i] == top:
            p[i] = share * (q[i] / mass) if mass > 0.0 else share / count


@summing
def sums_at_pole(f: Array, q: Array, top: float, scale: float, near: float, power: float) -> tuple[
    float, float, float
]:  # fmt: skip
    """With h = (max f - f)/(spread·near) > 0: Σ q·h^{1/(k-1)}, Σ q·h^{k/(k-1)} and Σ q·log h."""
    s, r, logs = 0.0, 0.0, 0.0
    for i in range(f.size):
        h = (top - f[i]) * scale / near
        use = q[i] if f[i] < top else 0.0
        logarithm = log(h if h > 0.0 else 1.0)
        e = exp(logarithm / (power - 1.0))
        s += use * e
        r += use * e * h
        logs += use * logarithm
    return s, r, logs


@kernel
def at_the_pole(
    f: Array, q: Array, top: float, scale: float, mass: float, power: float, radius: float, p: Array
) -> tuple[float, float, float, float, float, float]:
    """(D at θ = ∞, value, bound, Σp, multiplier of D, margin); k < 1. p is written if D is within the radius.

    Powers are taken of h/near, near the least h where q > 0, so that none overflows.
    """
    near, slope, floor = np.inf, power - 1.0, FLOOR if power <= 0.0 else 0.0
    for i in range(f.size):
        if q[i] > 0.0 and f[i] < top:
            near = min(near, (top - f[i]) * scale)
    s, r, logs = sums_at_pole(f, q, top, scale, near, power)
    divergence = divergence_of(np.log(r), np.log(s), logs, power)
    if not divergence <= radius:
        return divergence, 0.0, 0.0, 0.0, 0.0, 0.0
    if power == 0.0:
        weight, below, room = np.exp(logs - radius), np.exp(logs - radius), 1.0
    else:
        room = 1.0 + power * slope * radius
        weight = (room / r) ** (1.0 / power)
        below = np.exp((np.log(room) + slope * np.log(r)) / power)
    for i in range(f.size):
        h = (top - f[i]) * scale / near
        least = min(q[i], floor)
        p[i] = max(q[i] * (weight * exp(log(h) / slope)), least) if f[i] < top else 0.0
    value, total = totals(f, p, top, scale, 0.0)
    rest = max(mass, 1.0 - total)  # at the centre D is 0, and at 0 it is infinite if k <= 0
    write_top(f, q, top, mass, rest, p)
    margin = 0.0
    if mass > 0.0:  # what puts just `rest` on the top
        margin = near * max((weight * mass / rest) ** (1.0 - power), 1e-150)
    return divergence, value, -near * below, total + rest, -slope * near * below / room, margin
