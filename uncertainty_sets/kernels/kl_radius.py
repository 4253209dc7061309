"""KL, the other way round: the least radius at which pᵀf reaches a target.

p_θ ∝ q·exp(θg) has the least divergence among all p with its mean, so θ is the root of E_θ[g] = target, with
g = (f - max f)/spread as in kl.py. E_θ rises from the mean to 0. Left of the root Newton's method runs on
1/E_θ, which is linear in θ for an exponential tail; right of it on log(-E_θ). Both keep to their side, and a
bracket takes over if rounding leads them outside. Any θ >= 0 proves θ·target - log Σ q·exp(θf) as a lower
bound.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel
from uncertainty_sets.kernels.kl import HIGHEST, moments, tilt, tilt_little, write
from uncertainty_sets.kernels.layout import OK
from uncertainty_sets.kernels.least_radius import answered_at_once, conclude, exact
from uncertainty_sets.kernels.radius_layout import STATUS
from uncertainty_sets.kernels.scan import scan

MOST_PASSES = 80
AIM = 1e-15  # how near to the target, over the distance that is measured: from the mean or from the top


@kernel
def evaluate(
    f: Array, q: Array, top: float, scale: float, mean: float, lift: float, theta: float
) -> tuple[float, float, float, float]:
    """(c, log Σ q·exp(θ(g-c)), E_θ[g - c], variance of g) about the mean for a small tilt, else the top."""
    if theta <= 1.0:
        s0, s1, s2 = tilt_little(f, q, top, scale, mean, theta)
        center, log_weight, weight = mean, np.log1p(s0), 1.0 + s0
    else:
        s0, s1, s2 = tilt(f, q, top, scale, theta, lift)
        center, log_weight, weight = 0.0, np.log(s0) - lift, s0
    first = s1 / weight
    return center, log_weight, first / theta, (s2 / weight - first * first) / (theta * theta)


@kernel
def search(
    f: Array, q: Array, top: float, scale: float, mean: float, most: float, aim: float, start: float
) -> tuple[float, float, float, int]:
    """θ with E_θ[g] = aim < 0: (θ, c, log Σ q·exp(θ(g-c)), passes)."""
    low, high, missed = 0.0, np.inf, np.inf
    lift = max(0.0, most - 600.0)
    theta, passes = start, 1
    while True:
        # 1. Evaluate, and stop if the mean is the aim up to rounding.
        passes += 1
        center, log_weight, first, variance = evaluate(f, q, top, scale, mean, lift, theta)
        off = first - (aim - center)
        near = AIM * abs(aim - center)
        if abs(off) <= near or passes >= MOST_PASSES:
            break
        if abs(off) <= max(1e3 * near, 1e-14) and abs(off) > 0.25 * missed:
            break  # Newton squares the error: one that stays is rounding
        missed = abs(off)
        # 2. Narrow the bracket.
        if off > 0.0:
            high = theta
        else:
            low = theta
        # 3. Newton's step on the side's own function; inside the bracket, or a middle of it.
        at = first + center
        if off < 0.0:
            step = theta - (at / aim - 1.0) * at / variance
        else:
            step = theta - np.log(at / aim) * at / variance
        if not (step > low and step < high) or (passes > 12 and passes % 3 == 0 and high < np.inf):
            if high == np.inf:
                step = 8.0 * theta
            else:
                step = np.sqrt(low) * np.sqrt(high) if low > 0.0 else 0.125 * high
        if not (step > low and step < high) or step > HIGHEST:
            break
        theta = step
    return theta, center, log_weight, passes


@kernel
def solve(f: Array, q: Array, target: float, p: Array, out: Array) -> None:
    """Solve one row; losses where q = 0 repeat one where q > 0."""
    # 1. Read the losses.
    least, top, status = scan(f)
    out[STATUS] = status
    if status != OK:
        return
    spread = top - least
    # 2. Answers that need no search: the centre reaches the target, nothing does, or only the largest losses.
    scale = 1.0 / spread if spread > 0.0 else 0.0
    aim = (target - top) * scale
    mean, square, mass, rest = moments(f, q, top, scale)
    if answered_at_once(q, target, top, spread, aim, mean, p, out):
        return
    most = -np.log1p(-rest) if rest < 0.5 else -np.log(mass)
    if aim >= 0.0:
        for i in range(f.size):
            p[i] = q[i] / mass if f[i] == top else 0.0
        exact(out, most, top, np.inf)
        return
    # 3. Start from the curvature at θ = 0.
    variance = square - mean * mean
    start = (aim - mean) / variance * (mean / aim) if variance > 1e-14 else 1.0
    if not (start > 0.0 and start < HIGHEST):
        start = 1.0
    # 4. Search for θ, write p, and compute the certificate.
    theta, center, log_weight, passes = search(f, q, top, scale, mean, most, aim, start)
    value, total = write(f, q, top, scale, center, theta, log_weight, p)
    lower = theta * (aim - center) - log_weight
    radius = theta * value - log_weight * total
    short = (aim - center) - value
    conclude(
        out, top, spread, radius, lower, radius - lower, center + value, short, total, theta, passes
    )  # fmt: skip


@entry("P", "out")
@kernel
def rows(F: Matrix, center: Matrix, target: Vector, P: Matrix, out: Matrix) -> None:
    """Solve every row of F; a centre with one row serves all rows."""
    many = center.shape[0] > 1
    for b in range(F.shape[0]):
        solve(F[b], center[b if many else 0], target[b], P[b], out[b])
