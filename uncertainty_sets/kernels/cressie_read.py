"""Power divergences: p ∝ q·e(θg), e(x) = (1 + (k-1)x)₊^{1/(k-1)}, θ the root of D(θ) = radius.

D = Σ q·φ(p/q), φ(t) = (t^k - kt + k - 1)/(k(k-1)): Burg for k = 0, 4 times Hellinger for k = ½, half of χ²
for k = 2. Losses are scaled to g = (f - max f)/spread in [-1, 0] and θ along with them. With b = 1 + (k-1)θg,

    s = Σ q·e,  r = Σ q·e·b,  v = Σ q·e/b:   D = (r·s^{-k} - 1)/(k(k-1)),
                                             dD/dlog θ = s^{1-k}·(rv/s² - 1)/(k-1)²

(Burg: D = log s + Σ q·log b). The bound by Hölder's inequality, for any θ > 0, uses the same sums. For a
small θ they are taken about the mean of g instead of its top, where nothing of first order cancels.

For k < 1 mass may go to losses where q = 0. If all of the largest are such, θ may be infinite: then
p ∝ q·(max f - f)^{1/(k-1)} below the top, and the rest of the mass is at the top (power_sums.py).
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.exponential import exp
from uncertainty_sets.kernels.jit import entry, kernel
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, GAP, OK, STATUS
from uncertainty_sets.kernels.power_sums import (
    BURG,
    FLOOR,
    at_the_pole,
    divergence_of,
    mode_of,
    negligible,
    sums,
    sums_about_mean,
    write,
    write_top,
)
from uncertainty_sets.kernels.scan import copy, cover, finish, longest_row, losses_of, put, scan
from uncertainty_sets.kernels.tilt import EPS, moments, totals

PASSES = 80
AIM, OVER = 1e-13, 1e-11  # of the radius: what D is aimed at, and how far over it may end
LITTLE = 1.0 / 16.0  # below: sums about the mean
HIGHEST = 1e290  # of θ


@kernel
def hoelder(log_r: float, logs: float, power: float, radius: float) -> tuple[float, float]:
    """(bound - c)·θ and the multiplier of D times θ, c the point that the sums are about."""
    if power == 0.0:
        exponent = logs - radius
        return -np.expm1(exponent), np.exp(exponent)
    slope = power - 1.0
    room = power * slope * radius
    exponent = (np.log1p(room) + slope * log_r) / power
    return np.expm1(exponent) / slope, np.exp(exponent) / (1.0 + room)


@kernel
def evaluate(
    f: Array, q: Array, top: float, scale: float, mean: float, theta: float, mode: int, power: float,
    radius: float,
) -> tuple[float, float, float, float, float, float, float, float, float]:  # fmt: skip
    """(D, dD/dlog θ, rounding of D, c, θ about c, s, gap, bound - c, multiplier of D); c is 0 or the mean."""
    slope = power - 1.0
    if theta * max(1.0, abs(slope)) <= LITTLE:
        base = 1.0 + slope * theta * mean
        center, at = mean, theta / base
        a, first, w, logs = sums_about_mean(f, q, top, scale, mean, at, mode, slope)
        log_s, log_r, s = np.log1p(a), np.log1p(a + slope * first), 1.0 + a
        value = first / s
        excess = (slope * first + w - a) + (w * (a + slope * first) - a * a)
        growth = np.exp(-(1.0 + power) * log_s) * excess / (slope * slope * base)
        noise = 0.0
    else:
        center, at = 0.0, theta
        s, r, v, logs = sums(f, q, top, scale, theta, mode, slope)
        log_s, log_r = np.log(s), np.log(r)
        value = (r / s - 1.0) / slope
        growth = np.exp((1.0 - power) * log_s) * ((r / s) * (v / s) - 1.0) / (slope * slope)
        rounding = EPS * (1.0 + np.sqrt(f.size) / 32.0)
        noise = rounding * (1.0 + abs(power)) * (1.0 + abs(log_s) + abs(logs))
    divergence = divergence_of(log_r, log_s, logs, power)
    if mode != BURG and noise > 0.0:
        noise *= min(divergence, 2.0 * radius) + 1.0 / abs(power * slope)
    rise, eta = hoelder(log_r, logs, power, radius)
    return divergence, growth, noise, center, at, s, (rise - value) / at, rise / at, eta / at


@kernel
def newton(divergence: float, growth: float, radius: float, most: float) -> float:
    """The change of log θ that takes D to the radius, by Newton's method on a function nearly linear in it.

    log D while D is small; log(D/(M - D)) if D has an upper limit M; D itself if it grows like log θ.
    """
    if not (divergence > 0.0 and growth > 0.0):
        return np.nan
    if most < np.inf:
        left = most - divergence
        if not left > 0.0:
            return np.nan
        odds = (radius * left) / (divergence * (most - radius))
        change: float = np.log(odds) * (divergence * left) / (growth * most)
    else:
        change = np.log(radius / divergence) * divergence / growth
    return change


@kernel
def search(
    f: Array, q: Array, top: float, scale: float, mean: float, most: float, mode: int, power: float,
    radius: float, start: float,
) -> tuple[float, bool, float, float, float, float, float, float, int]:  # fmt: skip
    """θ with D(θ) = radius, or a feasible one with a gap of rounding size.

    Returns (θ, whether D(θ) is the radius, D, c, θ about c, s, bound - c, multiplier of D, passes).
    """
    low, high, stride, before, missed, solved = 0.0, np.inf, 8.0, np.inf, np.inf, True
    limit = most if power < 1.0 else np.inf
    theta, passes = start, 1
    while True:
        # 1. Evaluate, and stop if D is the radius up to rounding.
        passes += 1
        divergence, growth, noise, center, at, s, gap, bound, eta = evaluate(
            f, q, top, scale, mean, theta, mode, power, radius
        )
        off = divergence - radius
        if abs(off) <= max(AIM * radius, noise):
            break
        if abs(off) <= OVER * radius and abs(off) > 0.5 * missed:
            break  # Newton squares the error: one that stays is rounding
        if off <= 0.0 and gap <= 1e-15:
            break  # feasible, with a gap of rounding size
        # 2. Narrow the bracket.
        missed = abs(off)
        if off <= 0.0:
            low = theta
        else:  # NaN too: so large a θ that no number is left
            high = theta
        # 3. Newton's step; outwards in strides without an end, the middle of log θ if Newton stalls.
        if power <= 0.0 and power > -0.2 and divergence > 1.0:
            move = -off / growth
        else:
            move = newton(divergence, growth, radius, limit)
        step = theta * exp(move) if abs(move) < 300.0 else np.nan
        if not (step > low and step < high) or (abs(move) > 0.5 * before and high < np.inf and low > 0.0):
            if high == np.inf:
                step = min(theta * stride, HIGHEST)
                stride = min(stride * stride, 1e30)
            elif low == 0.0:
                step = theta / stride
                stride = min(stride * stride, 1e30)
            else:
                step = np.sqrt(low) * np.sqrt(high)
                before = np.log(high / low)
        else:
            before = abs(move)
        # 4. No passes or no numbers left between the ends: finish on the feasible side.
        if passes >= PASSES or not (step > low and step < high):
            if low > 0.0:
                theta, passes = low, passes + 1
                divergence, growth, noise, center, at, s, gap, bound, eta = evaluate(
                    f, q, top, scale, mean, theta, mode, power, radius
                )
            solved = off <= 0.0 and radius - divergence <= OVER * radius
            break
        theta = step
    return theta, solved, divergence, center, at, s, bound, eta, passes


@kernel
def divergence_between(q: Array, p: Array, other: Array, share: float, power: float) -> float:
    """D of (1 - share)·p + share·other; k > 1."""
    divergence = 0.0
    for i in range(q.size):
        if q[i] > 0.0:
            t = (p[i] + share * (other[i] - p[i])) / q[i]
            # q·t^k in this order: t = 1e155 squared is too large for a number, and q·t² need not be.
            moment = q[i] * t * t ** (power - 1.0)
            divergence += ((moment - q[i]) / power - q[i] * (t - 1.0)) / (power - 1.0)
    return divergence


@kernel
def write_normalised(
    f: Array, q: Array, top: float, scale: float, theta: float, mode: int, power: float, p: Array
) -> float:
    """p ∝ q·e(θg), divided by its own sum; return its D."""
    _, total = write(f, q, top, scale, 0.0, theta, 1.0, mode, power - 1.0, 0.0, p)
    for i in range(f.size):
        p[i] /= total
    return divergence_between(q, p, p, 0.0, power)


@kernel
def settle(
    f: Array, q: Array, top: float, scale: float, theta: float, mode: int, power: float, radius: float,
    p: Array,
) -> tuple[float, float, float, float]:  # fmt: skip
    """Write the p of D = radius between those of two θ that are almost equal. k > 1.

    If a loss with nearly all of q is at the zero of p/q, D jumps from one θ to the next. Only that loss
    changes its weight between them, so the answer is on the line between the two distributions. Return D,
    value, Σp, and the larger θ, whose zero is not below that loss: there the bound is tight, and at the other
    it grows by as much as D jumps.
    """
    other = np.empty(f.size)
    # 1. A feasible θ below and an infeasible one above, by D as measured from p.
    width = 4.0 * EPS
    divergence = write_normalised(f, q, top, scale, theta, mode, power, p)
    while not divergence <= radius and width < 0.1:
        divergence = write_normalised(f, q, top, scale, theta * (1.0 - width), mode, power, p)
        width *= 4.0
    above, width, larger = divergence, 4.0 * EPS, theta
    while above <= radius and width < 0.1:
        larger = theta * (1.0 + width)
        above = write_normalised(f, q, top, scale, larger, mode, power, other)
        width *= 4.0
    # 2. The share of the second, by bisection: in log(share) once there is a lower end.
    low, high = 0.0, 1.0
    while divergence <= radius and high - low > 1e-14 * high and high > 1e-200:
        share = np.sqrt(low) * np.sqrt(high) if low > 0.0 else min(0.5 * high, high * high)
        if low > 0.5 * high:
            share = 0.5 * (low + high)
        found = divergence_between(q, p, other, share, power)
        if found <= radius:
            low, divergence = share, found
        else:
            high = share
        if found <= radius and radius - found <= AIM * radius:
            break
    for i in range(f.size):
        p[i] += low * (other[i] - p[i])
    value, total = totals(f, p, top, scale, 0.0)
    return divergence, value, total, larger


@kernel
def inward(margin: float) -> float:
    """The margin less some units in its last place, for k > 1.

    If rounding takes the zero of p/q below a loss with much mass, the bound at a large radius grows by many
    times the rounding; in the other direction it grows by the rounding itself at most.
    """
    return margin * (1.0 - 4.0 * EPS)


@kernel
def most_of(power: float, mass: float, rest: float) -> float:
    """The D of the centre restricted to the largest losses: no other p that is all there has less."""
    if rest == 0.0:
        return 0.0
    if power <= 0.0:
        return np.inf
    if mass == 0.0:
        return 1.0 / (power * (1.0 - power)) if power < 1.0 else np.inf
    logarithm = np.log1p(-rest) if rest < 0.5 else np.log(mass)
    most: float = np.expm1((1.0 - power) * logarithm) / (power * (power - 1.0))
    return most


@kernel
def start_of(mean: float, variance: float, radius: float, power: float) -> float:
    """θ by the curvature of D at 0, √(2·radius)/σ about the mean, seen from the top."""
    about = min(np.sqrt(2.0 * radius) / np.sqrt(variance), HIGHEST) if variance > 0.0 else 1.0
    base = 1.0 - (power - 1.0) * about * mean
    return about / base if base > 0.05 else 20.0 * about


@kernel
def solve(
    f: Array, q: Array, limit: float, power: float, factor: float, warm: float, p: Array, out: Array
) -> None:
    """Solve one row: D <= factor·limit; `warm` is the margin of a similar problem, or NaN.

    For k > 1 losses where q = 0 repeat one where q > 0. The multipliers are that of `limit` and the margin:
    how far the pole of p/q, or for k > 1 its zero, is from the largest loss, spread/(|k-1|·θ).
    """
    # 1. Read the losses.
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    # 2. Answers that need no search: equal losses, a radius of 0, or one that reaches the largest losses.
    spread, radius, slope, mode = top - least, factor * limit, power - 1.0, mode_of(power)
    out[DUAL] = out[DUAL + 1] = 0.0
    if spread == 0.0:
        copy(q, p)
        finish(out, top, 0.0, 0.0, abs(p.sum() - 1.0), 0, spread)
        return
    scale = 1.0 / spread
    mean, square, mass, rest = moments(f, q, top, scale)
    if radius == 0.0:
        copy(q, p)
        finish(out, top, spread * mean, spread * mean, abs(p.sum() - 1.0), 1, spread)
        out[DUAL] = out[DUAL + 1] = np.inf
        return
    most = most_of(power, mass, rest)
    if radius >= most:
        p[:] = 0.0
        write_top(f, q, top, mass, 1.0, p)
        finish(out, top, 0.0, 0.0, abs(p.sum() - 1.0), 1, spread)
        return
    # 3. The limit of θ = ∞.
    if power < 1.0 and mass <= negligible(power):
        limit_at, value, bound, total, eta, margin = at_the_pole(f, q, top, scale, mass, power, radius, p)
        if limit_at <= radius:
            finish(out, top, spread * value, spread * bound, abs(total - 1.0), 2, spread)
            out[DUAL], out[DUAL + 1] = spread * factor * eta, spread * margin
            return
        most = limit_at
    # 4. Start from the curvature at θ = 0, or from an earlier answer if it is of this size.
    start = start_of(mean, square - mean * mean, radius, power)
    again = spread / (abs(slope) * warm)
    if again > 1e-4 * start and again < 1e4 * start:
        start = again
    # 5. Search for θ, write p, and compute the certificate.
    theta, solved, divergence, center, at, s, bound, eta, passes = search(
        f, q, top, scale, mean, most, mode, power, radius, start
    )
    floor = FLOOR if power <= 0.0 else 0.0
    value, total = write(f, q, top, scale, center, at, s, mode, slope, floor, p)
    if power > 1.0 and center == 0.0 and not (solved and abs(total - 1.0) <= 1e-12):
        divergence, value, total, beyond = settle(f, q, top, scale, theta, mode, power, radius, p)
        _, _, _, _, _, _, _, tight, price = evaluate(
            f, q, top, scale, mean, beyond, mode, power, radius
        )  # fmt: skip
        if tight < bound:
            theta, bound, eta = beyond, tight, price
    excess = max(0.0, divergence - radius) / (factor * max(1.0, limit))
    finish(
        out, top, spread * (center + value), spread * (center + bound),
        max(abs(total - 1.0), excess), passes, spread,
    )  # fmt: skip
    margin = spread / (abs(slope) * theta)
    out[DUAL], out[DUAL + 1] = spread * factor * eta, inward(margin) if power > 1.0 else margin
    # At a small radius the gap must be taken before `center` is added, which rounds it.
    out[GAP] = spread * (bound - value)


@entry("P", "out")
@kernel
def rows(
    F: Matrix, center: Matrix, radius: Vector, family: Matrix, warm: Matrix, P: Matrix, out: Matrix
) -> None:
    """Solve every row of F; parameters with one row serve all rows; `family` holds (power, factor)."""
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        start = warm[b if started else 0, 1]
        solve(F[b], center[r], radius[r], family[0, 0], family[0, 1], start, P[b], out[b])


@entry("P", "out")
@kernel
def ragged(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, center: Vector, radius: Vector, family: Matrix, warm: Matrix, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Solve the rows from `first` to `after`, each with its own entries (scan.py)."""
    scratch, one = np.empty(longest_row(indptr, first, after)), np.full(COLUMNS, np.nan)
    many, started = radius.size > 1, warm.shape[1] > 1
    power, factor = family[0, 0], family[0, 1]
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        if power >= 1.0:
            cover(f, center[i:j])
        limit, start = radius[b if many else 0], warm[1, b if started else 0]
        solve(f, center[i:j], limit, power, factor, start, P[i:j], one)
        put(one, out, b)
