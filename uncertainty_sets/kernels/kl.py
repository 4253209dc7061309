"""KL: exponential tilting p_θ ∝ q·exp(θf), with θ the root of KL(p_θ‖q) = radius.

√KL is nearly linear in θ (exactly so for normal losses), so Newton's method on √KL - √radius takes 3 to
10 passes. Losses are scaled to g = (f - max f)/spread in [-1, 0] and θ along with them.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.base import Array
from uncertainty_sets.kernels.exponential import exp, exp_minus_line
from uncertainty_sets.kernels.jit import kernel, summing
from uncertainty_sets.kernels.scan import DUAL, GAP, OK, STATUS, finish, scan

PASSES = 100


@summing
def moments(f: Array, q: Array, top: float, scale: float) -> tuple[float, float, float]:
    """Mean and second moment of g = (f - top)·scale under q, and the mass at the top."""
    mean, square, mass = 0.0, 0.0, 0.0
    for i in range(f.size):
        g = (f[i] - top) * scale
        mean += q[i] * g
        square += q[i] * g * g
        mass += q[i] if f[i] == top else 0.0
    return mean, square, mass


@summing
def tilt(f: Array, q: Array, top: float, scale: float, theta: float) -> tuple[float, float, float]:
    """Σ q·eˣ, Σ q·eˣ·g, Σ q·eˣ·g² with x = θg <= 0."""
    s0, s1, s2 = 0.0, 0.0, 0.0
    for i in range(f.size):
        g = (f[i] - top) * scale
        e = q[i] * exp(theta * g)
        s0 += e
        s1 += e * g
        s2 += e * g * g
    return s0, s1, s2


@summing
def tilt_little(
    f: Array, q: Array, top: float, scale: float, center: float, theta: float
) -> tuple[float, float, float]:
    """The same about the mean under q, for θ <= 1: Σ q·(eˣ-1-x), Σ q·(eˣ-1)·g, Σ q·eˣ·g².

    Nothing of first order in x cancels here, so KL keeps its digits down to a radius of 1e-20.
    """
    s0, s1, s2 = 0.0, 0.0, 0.0
    for i in range(f.size):
        g = (f[i] - top) * scale - center
        x = theta * g
        e = exp_minus_line(x)
        s0 += q[i] * e
        s1 += q[i] * (e + x) * g
        s2 += q[i] * (e + x + 1.0) * g * g
    return s0, s1, s2


@summing
def write(
    f: Array, q: Array, top: float, scale: float, center: float, theta: float, weight: float, p: Array
) -> tuple[float, float]:
    """p = q·exp(θ(g - center))/weight; return Σ p·(g - center) and Σ p."""
    value, total = 0.0, 0.0
    for i in range(f.size):
        g = (f[i] - top) * scale - center
        x = q[i] * exp(theta * g) * weight
        p[i] = x
        total += x
        value += x * g
    return value, total


@kernel
def solve(f: Array, q: Array, radius: float, warm: float, p: Array, out: Array) -> None:
    """One row; losses where q = 0 repeat one where q > 0; `warm` is the η of a similar problem, or NaN."""
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    spread = top - least
    if spread == 0.0:
        p[:] = q
        finish(out, top, 0.0, 0.0, abs(p.sum() - 1.0), 0, spread)
        out[DUAL] = 0.0
        return
    scale = 1.0 / spread
    mean, square, mass = moments(f, q, top, scale)
    if radius == 0.0:
        p[:] = q
        finish(out, top, spread * mean, spread * mean, abs(p.sum() - 1.0), 1, spread)
        out[DUAL] = np.inf
        return
    if radius >= -np.log(mass):
        for i in range(f.size):
            p[i] = q[i] / mass if f[i] == top else 0.0
        finish(out, top, 0.0, 0.0, abs(p.sum() - 1.0), 1, spread)
        out[DUAL] = 0.0
        return

    variance = square - mean * mean
    theta = np.sqrt(2.0 * radius / variance) if variance > 0.0 else 1.0
    if not np.isfinite(theta):
        theta = 1.0
    if spread > 1e-4 * theta * warm and spread < 1e4 * theta * warm:  # else it is of another problem
        theta = spread / warm
    low, high, stride = 0.0, np.inf, 4.0
    passes, center, log_weight = 1, 0.0, 0.0
    while True:
        passes += 1
        if theta <= 1.0:
            center = mean
            s0, s1, s2 = tilt_little(f, q, top, scale, center, theta)
            log_weight, s0 = np.log1p(s0), 1.0 + s0
        else:
            center = 0.0
            s0, s1, s2 = tilt(f, q, top, scale, theta)
            log_weight = np.log(s0)
        mean_p = s1 / s0
        variance = s2 / s0 - mean_p * mean_p
        divergence = theta * mean_p - log_weight
        off = divergence - radius
        # 1e-13 of the radius, or what rounding leaves of θ·mean - log Σ.
        noise = 2e-16 * (abs(theta * mean_p) + abs(log_weight))
        if abs(off) <= max(1e-13 * radius, noise) or passes >= PASSES:
            break
        if passes > 12 and abs(off) <= min(1e-15 * theta, 1e-12 * max(1.0, radius)):
            break  # slow, and the gap off/θ is down to rounding
        if off > 0.0:
            high = theta
        else:
            low = theta
        root = np.sqrt(max(divergence, 0.0))
        step = theta - 2.0 * root * (root - np.sqrt(radius)) / (theta * variance)
        if not (step > low and step < high):
            if high == np.inf or low == 0.0:
                step = theta * stride if high == np.inf else theta / stride
                stride *= stride
            else:
                step = np.sqrt(low * high)
        if step == theta or (high < np.inf and high - low <= 1e-15 * high):
            break
        theta = step
    value, total = write(f, q, top, scale, center, theta, np.exp(-log_weight), p)
    bound = center + (radius + log_weight) / theta
    excess = theta * value - log_weight * total - radius
    violation = max(abs(total - 1.0), excess / max(1.0, radius))
    finish(out, top, spread * (center + value), spread * bound, violation, passes, spread)
    out[DUAL] = spread / theta
    # The gap before the rounding of center + ...: what matters at a small radius.
    out[GAP] = spread * ((radius + log_weight) / theta - value)


@kernel
def rows(F: Array, center: Array, radius: Array, warm: Array, P: Array, out: Array) -> None:
    """Every row of F; parameters with one row serve all."""
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        solve(F[b], center[r], radius[r], warm[b if started else 0, 0], P[b], out[b])
