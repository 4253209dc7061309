"""χ² ball: p = q·(g - t)₊/Σ q·(g - t)₊, with t the root of D(t) = Σ(p-q)²/q = radius.

Losses are scaled to g = (f - max f)/spread in [-1, 0]. On the entries above t, with mass m, mean μ and
variance v of g under q, the root is t = μ - √(v/((1+radius)·m - 1)): repeating this takes 2 to 6 passes. If
nothing is cut off (a small radius) it is the root at once, and forms about the mean keep the digits.

An entry with nearly all of the mass at the threshold needs a t with more digits than a number has; its own
certificate tells, and the search for all powers (cressie_read.py) answers instead.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels import cressie_read
from uncertainty_sets.kernels.gathering import cover, longest_row, losses_of, put
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.kl import BLOCK, moments, totals
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, GAP, OK, STATUS
from uncertainty_sets.kernels.scan import copy, finish, larger, scan

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
def solve(f: Array, q: Array, radius: float, warm: float, p: Array, out: Array) -> None:
    """Solve one row; losses where q = 0 repeat one where q > 0; `warm` is a margin to start from, or NaN.

    The multipliers are that of the radius, and the margin: how far max f is above the zero of p/q.
    """
    # 1. Read the losses.
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    # 2. Answers that need no search: equal losses, a radius of 0, or one that reaches the largest losses.
    spread = top - least
    out[DUAL] = out[DUAL + 1] = 0.0
    if spread == 0.0:
        copy(q, p)
        finish(out, top, 0.0, 0.0, abs(p.sum() - 1.0), 0, spread)
        return
    mean, square, mass, rest = moments(f, q, top, 1.0 / spread)
    if radius == 0.0:
        copy(q, p)
        finish(out, top, spread * mean, spread * mean, abs(p.sum() - 1.0), 1, spread)
        out[DUAL] = out[DUAL + 1] = np.inf
        return
    if radius * mass >= rest:
        for i in range(f.size):
            p[i] = q[i] / mass if f[i] == top else 0.0
        finish(out, top, 0.0, 0.0, abs(p.sum() - 1.0), 1, spread)
        return
    # 3. Search; if its certificate is too weak, by the way for all powers.
    attempt(f, q, top, spread, mean, square, radius, warm, p, out)
    if out[STATUS] != OK:
        solve_any_power(f, q, radius, POWER, FACTOR, np.nan, p, out)


@entry("P", "out")
@kernel
def rows(F: Matrix, center: Matrix, radius: Vector, warm: Matrix, P: Matrix, out: Matrix) -> None:
    """Solve every row of F; parameters with one row serve all rows."""
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        solve(F[b], center[r], radius[r], warm[b if started else 0, 1], P[b], out[b])


@entry("P", "out")
@kernel
def ragged(
    values: Vector,
    indices: Indices,
    offsets: Vector,
    scale: float,
    unit: float,
    indptr: Indices,
    first: int,
    after: int,
    center: Vector,
    radius: Vector,
    warm: Matrix,
    P: Vector,
    out: Matrix,
) -> None:
    """Solve the rows from `first` to `after`, each with its own entries (gathering.py)."""
    scratch, one = np.empty(longest_row(indptr, first, after)), np.full(COLUMNS, np.nan)
    many, started = radius.size > 1, warm.shape[1] > 1
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        cover(f, center[i:j])
        solve(f, center[i:j], radius[b if many else 0], warm[1, b if started else 0], P[i:j], one)
        put(one, out, b)
