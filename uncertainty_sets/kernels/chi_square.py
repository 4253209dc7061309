"""χ² ball: p = q·(g - t)₊/Σ q·(g - t)₊, with t the root of D(t) = Σ(p-q)²/q = radius.

Losses are scaled to g = (f - max f)/spread in [-1, 0]. On the entries above t, with mass m, mean μ and
variance v of g under q, the root is t = μ - √(v/((1+radius)·m - 1)): repeating this takes 2 to 6 passes. If
nothing is cut off (a small radius) it is the root at once, and forms about the mean keep the digits.

An entry with nearly all of the mass at the threshold needs a t with more digits than a number has; its own
certificate tells, and the search for all powers (cressie_read.py) answers instead.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels import cressie_read
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.layout import DUAL, GAP, OK, STATUS
from uncertainty_sets.kernels.scan import finish, larger
from uncertainty_sets.kernels.tilt import BLOCK, ball, totals

PASSES = 30
AIM = 1e-13  # of the radius + 1: how close D + 1 must come
TINY = 1e-280  # below: squares and sums of squares may have lost digits by underflow
POWER, FACTOR = 2.0, 0.5  # χ² as a power divergence, which is half of it

solve_any_power, inward = cressie_read.solve, cressie_read.inward


@summing
def variance_about(f: Array, q: Array, top: float, scale: float, mean: float) -> float:
    """Σ q·(g - mean)²."""
    variance = 0.0
    for i in range(f.size):
        d = (f[i] - top) * scale - mean
        variance += q[i] * d * d
    return variance


@summing
def sums(f: Array, q: Array, top: float, scale: float, t: float) -> tuple[float, float, float]:
    """Σ q, Σ q·h and Σ q·h² over h = g - t > 0."""
    mass, first, second = 0.0, 0.0, 0.0
    for i in range(f.size):
        h = (f[i] - top) * scale - t
        w = q[i] if h > 0.0 else 0.0
        mass += w
        first += w * h
        second += w * h * h
    return mass, first, second


@kernel
def fill(f: Array, q: Array, top: float, scale: float, t: float, weight: float, p: Array) -> None:
    """p = weight·q·(g - t)₊."""
    for i in range(f.size):
        p[i] = weight * q[i] * larger((f[i] - top) * scale - t, 0.0)


@kernel
def write(
    f: Array, q: Array, top: float, scale: float, t: float, weight: float, center: float, p: Array
) -> tuple[float, float]:
    """Write p block by block (as kl.write does, for its reason); return Σ p·(g - center) and Σ p."""
    value, total = 0.0, 0.0
    for first in range(0, f.size, BLOCK):
        part = slice(first, first + BLOCK)
        fill(f[part], q[part], top, scale, t, weight, p[part])
        more, share = totals(f[part], p[part], top, scale, center)
        value += more
        total += share
    return value, total


@kernel
def search(
    f: Array, q: Array, top: float, scale: float, radius: float, start: float
) -> tuple[float, float, float, int]:
    """t with D(t) = radius: (t, Σ q·h, Σ q·h², passes)."""
    low, high, t, passes = -np.inf, 0.0, start, 2
    while True:
        mass, first, second = sums(f, q, top, scale, t)
        passes += 1
        off = second - (1.0 + radius) * first * first
        if abs(off) <= AIM * second or passes >= PASSES:
            return t, first, second, passes
        if off > 0.0:
            high = t
        else:
            low = t
        excess, mean = (1.0 + radius) * mass - 1.0, first / mass
        step = t + (mean - np.sqrt(max(second / mass - mean * mean, 0.0) / excess))
        if not (step > low and step < high):
            step = 0.5 * (low + high) if low > -np.inf else 2.0 * t
        if step == t:
            return t, first, second, passes
        t = step


@kernel
def attempt(
    f: Array, q: Array, top: float, spread: float, mean: float, square: float, radius: float, warm: float,
    p: Array, out: Array,
) -> None:  # fmt: skip
    """Answer a row that needs a search, and judge the answer."""
    scale = 1.0 / spread
    distance = np.sqrt(max(square - mean * mean, 0.0) / radius)
    # 1. Nothing is cut off: t is below all losses.
    if mean - distance <= -0.99:
        variance = variance_about(f, q, top, scale, mean)
        distance = np.sqrt(variance / radius)
        if mean - distance <= -1.0:
            t = mean - distance
            value, total = write(f, q, top, scale, t, 1.0 / distance, mean, p)
            size = variance + distance * distance
            bound = (radius * size + variance) / (np.sqrt((1.0 + radius) * size) + distance)
            excess = variance / (distance * distance) - radius
            violation = max(abs(total - 1.0), excess / max(1.0, radius))
            finish(out, top, spread * (mean + value), spread * (mean + bound), violation, 3, spread)
            out[DUAL] = 0.5 * spread * (mean + bound - t) / (1.0 + radius)
            out[DUAL + 1] = inward(-spread * t)
            out[GAP] = spread * (bound - value)
            return
    # 2. Start from all entries, or from an earlier answer if it is of this size.
    start = mean - distance
    if warm > -1e-3 * start * spread and warm < -1e3 * start * spread:
        start = -warm / spread
    t, first, second, passes = search(f, q, top, scale, radius, start)
    # 3. Write p, and compute the certificate.
    value, total = write(f, q, top, scale, t, 1.0 / first, 0.0, p)
    rise = np.sqrt((1.0 + radius) * second)
    excess = second / (first * first) - 1.0 - radius
    violation = max(abs(total - 1.0), excess / max(1.0, radius))
    if not min(second, first * first) > TINY:
        violation = np.inf
    finish(out, top, spread * value, spread * (t + rise), violation, passes, spread)
    out[DUAL], out[DUAL + 1] = 0.5 * spread * rise / (1.0 + radius), inward(-spread * t)


@kernel
def most(mass: float, rest: float) -> float:
    """The divergence of q restricted to the largest losses."""
    return rest / mass


@kernel
def answer(
    f: Array, q: Array, top: float, spread: float, mean: float, square: float, limit: float, radius: float,
    warm: float, p: Array, out: Array,
) -> None:  # fmt: skip
    """Answer a row that needs a search; if its certificate is too weak, by the way for all powers.

    The multipliers are that of the radius, and the margin: how far max f is above the zero of p/q; `warm` is
    a margin or NaN.
    """
    attempt(f, q, top, spread, mean, square, radius, warm, p, out)
    if out[STATUS] != OK:
        solve_any_power(f, q, radius, POWER, FACTOR, np.nan, p, out)


_rows, _ragged = ball(most, answer, 1)
rows = entry("P", "out")(_rows)
ragged = entry("P", "out")(_ragged)
