"""KL: exponential tilting p_θ ∝ q·exp(θg), with θ the root of D(θ) = KL(p_θ‖q) = radius.

Losses are scaled to g = (f - max f)/spread in [-1, 0] and θ along with them; x = θg. D rises from 0 to
M = -log q(argmax f), like a power of θ first and exponentially close to M last, and log(D/(M - D)) is nearly
linear in log θ at both ends: Newton's method on it takes 3 to 8 passes, and halving a bracket in log θ takes
over if steps of D in between mislead it.

Every θ with D(θ) <= radius is an answer with a gap of (radius - D)/θ. Losses so close to the top that only an
enormous θ tells them apart therefore need no such θ: the tilt that treats them as one face has that gap.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.exponential import exp, exp_minus_line, times_exp
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.layout import DUAL, GAP
from uncertainty_sets.kernels.scan import finish
from uncertainty_sets.kernels.tilt import BLOCK, EPS, ball, totals

PASSES = 39  # and one more if the last was infeasible
PATIENCE = 12  # passes after which a gap of rounding size is enough
HIGHEST = 1e150  # of θ: x² stays finite
AIM, OVER = 1e-13, 1e-11  # of the radius: what D is aimed at, and how far over it may end


@summing
def tilt(
    f: Array, q: Array, top: float, scale: float, theta: float, lift: float
) -> tuple[float, float, float]:
    """Σ q·eʸ, Σ q·eʸ·x, Σ q·eʸ·x² with y = x + lift; the lift keeps a tiny mass at the top from underflow."""
    s0, s1, s2 = 0.0, 0.0, 0.0
    for i in range(f.size):
        x = theta * ((f[i] - top) * scale)
        e = q[i] * exp(x + lift)
        s0 += e
        s1 += e * x
        s2 += e * x * x
    return s0, s1, s2


@summing
def tilt_little(
    f: Array, q: Array, top: float, scale: float, center: float, theta: float
) -> tuple[float, float, float]:
    """With x about the mean under q, for θ <= 1: Σ q·(eˣ-1-x), Σ q·(eˣ-1)·x, Σ q·eˣ·x².

    Nothing of first order in x cancels here, so D keeps its digits down to a radius of 1e-20.
    """
    s0, s1, s2 = 0.0, 0.0, 0.0
    for i in range(f.size):
        x = theta * ((f[i] - top) * scale - center)
        e = exp_minus_line(x)
        s0 += q[i] * e
        s1 += q[i] * (e + x) * x
        s2 += q[i] * (e + x + 1.0) * x * x
    return s0, s1, s2


@summing
def tilt_exactly(
    f: Array, q: Array, top: float, scale: float, center: float, theta: float
) -> tuple[float, float, float, float]:
    """With x about a centre that makes Σ q·eˣ nearly 1: Σ q·(eˣ-1), Σ q·(x·eˣ-eˣ+1), Σ q·eˣ·x, Σ q·eˣ·x².

    The second is D in terms that are each >= 0, whatever the size of θ.
    """
    s0, divergence, s1, s2 = 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        x = theta * ((f[i] - top) * scale - center)
        near = min(max(x, -1.0), 1.0)
        line = exp_minus_line(near)
        e = times_exp(q[i], x)
        s0 += q[i] * (line + near) if near == x else e - q[i]
        divergence += q[i] * (near * (line + near) - line) if near == x else e * (x - 1.0) + q[i]
        s1 += e * x
        s2 += e * x * x
    return s0, divergence, s1, s2


@kernel
def fill(
    f: Array, q: Array, top: float, scale: float, center: float, theta: float, log_weight: float, p: Array
) -> None:
    """p = q·exp(θ(g - center) - log_weight)."""
    for i in range(f.size):
        g = (f[i] - top) * scale - center
        p[i] = times_exp(q[i], theta * g - log_weight)


@kernel
def write(
    f: Array, q: Array, top: float, scale: float, center: float, theta: float, log_weight: float, p: Array
) -> tuple[float, float]:
    """p = q·exp(θ(g - center) - log_weight); return Σ p·(g - center) and Σ p.

    A loop that stores p and sums at once would add in another order if p lies just behind f in memory.
    """
    value, total = 0.0, 0.0
    for first in range(0, f.size, BLOCK):
        part = slice(first, first + BLOCK)
        fill(f[part], q[part], top, scale, center, theta, log_weight, p[part])
        more, share = totals(f[part], p[part], top, scale, center)
        value += more
        total += share
    return value, total


@kernel
def evaluate(
    f: Array, q: Array, top: float, scale: float, mean: float, lift: float, summing_noise: float,
    theta: float, radius: float,
) -> tuple[float, float, float, float, float]:  # fmt: skip
    """(c, log Σ q·exp(θ(g-c)), D, dD/dlog θ, rounding of D) at θ, about the c that keeps the digits.

    About the top, terms as large as `most` cancel to D. If that would cost digits of a D near the radius,
    a second pass about the c that makes the sum 1 has them all.
    """
    # 1. One pass: about the mean for a small tilt, about the top for a large one.
    if theta <= 1.0:
        s0, s1, s2 = tilt_little(f, q, top, scale, mean, theta)
        center, log_weight, s0, noise = mean, np.log1p(s0), 1.0 + s0, 0.0
    else:
        s0, s1, s2 = tilt(f, q, top, scale, theta, lift)
        center, log_weight, noise = 0.0, np.log(s0) - lift, summing_noise
    # 2. D, its slope, and the rounding of D.
    first = s1 / s0
    divergence, growth = first - log_weight, s2 / s0 - first * first
    noise += EPS * (abs(first) + abs(log_weight))
    # 3. Near the root and too coarse: D again, from terms that do not cancel.
    near = abs(divergence - radius) <= max(0.5 * radius, 100.0 * noise)
    if theta > 1.0 and near and noise > OVER * radius:
        center = log_weight / theta
        s0, divergence, s1, s2 = tilt_exactly(f, q, top, scale, center, theta)
        log_weight, weight = np.log1p(s0), 1.0 + s0
        divergence = divergence / weight - (log_weight - s0 / weight)
        first = s1 / weight
        growth = s2 / weight - first * first
        noise *= divergence
    return center, log_weight, divergence, growth, noise


@kernel
def newton(divergence: float, growth: float, radius: float, most: float) -> float:
    """The change of log θ that takes log(D/(M - D)) to where D = radius; ∞ if its slope is lost."""
    left = most - divergence
    if not (divergence > 0.0 and left > 0.0 and growth > 0.0):
        return np.inf
    odds = (radius * left) / (divergence * (most - radius))
    change: float = np.log(odds) * (divergence * left) / (growth * most)
    return change


@kernel
def within(
    theta: float, move: float, low: float, high: float, stride: float, before: float
) -> tuple[float, float, float]:
    """The next θ inside the bracket, and the next stride and last move.

    Newton's step; outwards in strides without an upper end, the middle of log θ if Newton stalls.
    """
    step = theta * exp(move) if move < 300.0 else np.inf
    if high == np.inf:
        if not (step > low and step < HIGHEST):
            step = min(theta * stride, HIGHEST)
            stride *= stride
    elif not (step > low and step < high) or abs(move) > 0.5 * before:
        step = np.sqrt(low) * np.sqrt(high)
        before = np.log(high / low)
    else:
        before = abs(move)
    return step, stride, before


@kernel
def search(
    f: Array, q: Array, top: float, scale: float, mean: float, most: float, radius: float, start: float
) -> tuple[float, float, float, int]:
    """θ with D(θ) = radius, or one below with a gap of rounding size: (θ, c, log Σ q·exp(θ(g-c)), passes)."""
    # 1. A lower end that is feasible, no upper end yet, and a start.
    low = np.sqrt(8.0 * radius) * (1.0 - 1e-9)  # D(θ) <= θ²/8, since g varies within [-1, 0]
    high, stride, before, missed = np.inf, 4.0, np.inf, np.inf
    lift = max(0.0, most - 600.0)  # e^-708 is the least there is
    summing_noise = EPS * (1.0 + lift + np.sqrt(f.size) / 32.0)
    theta = min(max(start, low), HIGHEST)
    passes = 1
    while True:
        # 2. Evaluate D, and stop if it is the radius up to rounding or if θ is feasible and good enough.
        passes += 1
        center, log_weight, divergence, growth, noise = evaluate(
            f, q, top, scale, mean, lift, summing_noise, theta, radius
        )
        off = divergence - radius
        if abs(off) <= max(AIM * radius, noise):
            break
        if abs(off) <= OVER * radius and abs(off) > 0.5 * missed:
            break  # Newton squares the error: one that stays is rounding
        if passes > PATIENCE and off <= OVER * radius and -off <= 1e-15 * theta:
            break  # feasible, with a gap of rounding size
        # 3. Narrow the bracket.
        missed = abs(off)
        if off > 0.0:
            high = theta
        else:
            low = max(low, theta)
        # 4. The next θ.
        move = newton(divergence, growth, radius, most)
        step, stride, before = within(theta, move, low, high, stride, before)
        # 5. No passes or no numbers left between the ends: finish on the feasible side.
        if passes >= PASSES or not (step > low and step < high):
            if off > OVER * radius:  # the other end of the bracket is feasible
                theta, passes = low, passes + 1
                center, log_weight, _, _, _ = evaluate(
                    f, q, top, scale, mean, lift, summing_noise, theta, radius
                )
            break
        theta = step
    return theta, center, log_weight, passes


@kernel
def most(mass: float, rest: float) -> float:
    """The divergence of q restricted to the largest losses."""
    divergence: float = -np.log1p(-rest) if rest < 0.5 else -np.log(mass)
    return divergence


@kernel
def answer(
    f: Array, q: Array, top: float, spread: float, mean: float, square: float, limit: float, radius: float,
    warm: float, p: Array, out: Array,
) -> None:  # fmt: skip
    """Answer a row that needs a search; `warm` is η of a similar problem, or NaN."""
    # 1. Start from the curvature at θ = 0, or from an earlier answer if it is of this size.
    scale, variance = 1.0 / spread, square - mean * mean
    start = np.sqrt(2.0 * radius / variance) if variance > 0.0 else 0.0
    if spread > 1e-4 * start * warm and spread < 1e4 * start * warm:
        start = spread / warm
    # 2. Search for θ, write p, and compute the certificate.
    theta, center, log_weight, passes = search(f, q, top, scale, mean, limit, radius, start)
    value, total = write(f, q, top, scale, center, theta, log_weight, p)
    bound = center + (radius + log_weight) / theta
    excess = theta * value - log_weight * total - radius
    violation = max(abs(total - 1.0), excess / max(1.0, radius))
    finish(out, top, spread * (center + value), spread * bound, violation, passes, spread)
    out[DUAL] = spread / theta
    # At a small radius the gap must be taken before `center` is added, which rounds it.
    out[GAP] = spread * ((radius + log_weight) / theta - value)


_rows, _ragged = ball(most, answer, 0)
rows = entry("P", "out")(_rows)
ragged = entry("P", "out")(_ragged)
