"""The power divergences, the other way round: the least radius at which pᵀf reaches a target.

p_θ of cressie_read.py has the least D among all p with its mean, so θ is the root of E_θ[g] = aim. The odds
(E - mean)/(0 - E) are nearly a power of θ: Newton's method on their logarithm, in a bracket. For any θ the
bound by Hölder's inequality, solved for the radius, is a lower bound on it; with z = θ·(aim - c),

    D >= (exp(k·log(1 + (k-1)z) - (k-1)·log r) - 1)/(k(k-1)),   Burg: D >= Σ q·log b - log(1 - z)

If the target is so near to the mean, beside the spread, that g has too few digits for it, and k < 1, the same
is done with d = (f - target)/spread. Its b is b/(b at the target) = 1 + u·d, and with e of that

    Σ q·e·d = 0,   D >= (exp(-(k-1)·log Σ q·e·b) - 1)/(k(k-1)),   Burg: D >= Σ q·log b

where every term has the digits of d; for the largest losses b comes from g, and keeps its own.

If k < 1 and q is 0 at all of the largest losses, mass goes there at θ = ∞ (power_sums.py), where the weight
of the others follows from the aim at once.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.cressie_read import HIGHEST, LITTLE, most_of
from uncertainty_sets.kernels.jit import entry, kernel
from uncertainty_sets.kernels.layout import (
    LOWER,
    MULTIPLIER,
    NOT_SOLVED,
    OK,
    PROMISE,
    RADIUS,
    RADIUS_GAP,
    RADIUS_STATUS,
    ULPS,
)
from uncertainty_sets.kernels.least_radius import answered_at_once, conclude, exact
from uncertainty_sets.kernels.power_sums import (
    FLOOR,
    divergence_of,
    mode_of,
    negligible,
    sums,
    sums_about_mean,
    sums_at_pole,
    write,
    write_top,
)
from uncertainty_sets.kernels.scan import scan
from uncertainty_sets.kernels.tilt import moments, totals

PASSES = 100
AIM = 1e-15  # how near to the target, over the distance that is measured: from the mean or from the top
NEAR = ULPS / PROMISE  # of the spread: a target nearer to the mean takes its digits from d
TINY = 1e-290  # of q: p may have become 0 by underflow there, where D of k <= 0 is infinite


@kernel
def measured(q: Array, p: Array, power: float) -> float:
    """D(p, q), as a sum of terms that are each >= 0."""
    divergence, slope = 0.0, power - 1.0
    for i in range(q.size):
        if q[i] == 0.0:
            divergence += p[i] / (1.0 - power) if power < 1.0 else 0.0
        elif q[i] > TINY or power > 0.0:
            t = p[i] / q[i]
            s = t - 1.0
            if abs(s) < 1e-4:
                rest = 1.0 + (power - 2.0) * s * (1.0 / 3.0 + (power - 3.0) * s / 12.0)
                divergence += 0.5 * q[i] * s * s * rest
            elif power == 0.0:
                divergence += q[i] * (s - np.log(t))
            else:  # q·t^k for k > 1 as p·t^{k-1}: t = 1e155 squared is too large for a number
                moment = p[i] * t**slope if power > 1.0 else q[i] * t**power
                divergence += ((moment - q[i]) / power - q[i] * s) / slope
    return divergence


@kernel
def evaluate(
    f: Array, q: Array, top: float, scale: float, mean: float, theta: float, mode: int, power: float
) -> tuple[float, float, float, float, float, float, float]:
    """(c, θ about c, E[g - c], dE/dlog θ, log s, log r, Σ q·log b); c is the mean for a small θ, else 0."""
    slope = power - 1.0
    if theta * max(1.0, abs(slope)) <= LITTLE:
        base = 1.0 + slope * theta * mean
        at = theta / base
        a, first, w, logs = sums_about_mean(f, q, top, scale, mean, at, mode, slope)
        log_s, log_r = np.log1p(a), np.log1p(a + slope * first)
        excess = (slope * first + w - a) + (w * (a + slope * first) - a * a)
        growth = np.exp(-2.0 * log_s) * excess / (slope * slope * base * at)
        return mean, at, first / ((1.0 + a) * at), growth, log_s, log_r, logs
    s, r, v, logs = sums(f, q, top, scale, theta, mode, slope)
    growth = ((r / s) * (v / s) - 1.0) / (slope * slope * theta)
    return 0.0, theta, (r / s - 1.0) / (slope * theta), growth, np.log(s), np.log(r), logs


@kernel
def search(
    f: Array, q: Array, top: float, scale: float, mean: float, mode: int, power: float, aim: float,
    start: float,
) -> tuple[float, float, float, float, float, int]:  # fmt: skip
    """θ with E_θ[g] = aim < 0: (c, θ about c, log s, log r, Σ q·log b, passes)."""
    low, high, missed, stride = 0.0, np.inf, np.inf, 8.0
    goal = np.log((aim - mean) / -aim)
    theta, passes = start, 1
    while True:
        # 1. Evaluate, and stop if the mean is the aim up to rounding.
        passes += 1
        center, at, first, growth, log_s, log_r, logs = evaluate(
            f, q, top, scale, mean, theta, mode, power
        )  # fmt: skip
        off = first - (aim - center)
        near = AIM * abs(aim - center)
        if abs(off) <= near or passes >= PASSES:
            break
        if abs(off) <= 1e3 * near and abs(off) > 0.25 * missed:
            break  # Newton squares the error: one that stays is rounding
        missed = abs(off)
        # 2. Narrow the bracket; NaN is so large a θ that no number is left.
        if off < 0.0:
            low = theta
        else:
            high = theta
        # 3. Newton's step; outwards in strides without an end, or a middle of the bracket.
        away, left = first - (mean - center), -(center + first)
        move = np.nan
        if away > 0.0 and left > 0.0 and growth > 0.0:
            move = (goal - np.log(away / left)) * away / growth * (left / -mean)
        step = theta * np.exp(move) if abs(move) < 300.0 else np.nan
        if not (step > low and step < high) or (passes > 15 and passes % 3 == 0 and high < np.inf):
            if high == np.inf:
                step = min(theta * stride, HIGHEST)
                stride = min(stride * stride, 1e30)
            elif low == 0.0:
                step = theta / stride
                stride = min(stride * stride, 1e30)
            else:
                step = np.sqrt(low) * np.sqrt(high)
        if not (step > low and step < high):
            break
        theta = step
    return center, at, log_s, log_r, logs, passes


@kernel
def pole(
    f: Array, q: Array, top: float, scale: float, mass: float, power: float, aim: float, p: Array
) -> tuple[float, float]:
    """(D at θ = ∞, value), with p written; NaN if the mean at θ = ∞ is above the aim."""
    near, slope, floor = np.inf, power - 1.0, FLOOR if power <= 0.0 else 0.0
    for i in range(f.size):
        if q[i] > 0.0 and f[i] < top:
            near = min(near, (top - f[i]) * scale)
    s, r, logs = sums_at_pole(f, q, top, scale, near, power)
    weight = -aim / (near * r)
    if not weight * s <= 1.0:
        return np.nan, 0.0
    for i in range(f.size):
        h = (top - f[i]) * scale / near
        p[i] = max(q[i] * (weight * h ** (1.0 / slope)), min(q[i], floor)) if f[i] < top else 0.0
    value, total = totals(f, p, top, scale, 0.0)
    write_top(f, q, top, mass, max(mass, 1.0 - total), p)
    if power == 0.0:
        return logs - np.log(weight), value
    return (weight**power * r - 1.0) / (power * slope), value


@kernel
def logarithm(d: float, h: float, u: float, base: float, v: float, there: float) -> float:
    """Log of b over b at the target; b = base + v·h, or 1 + u·d in units of that at the target."""
    if abs(u * d) <= 0.5:
        return float(np.log1p(u * d))
    return float(np.log((base + v * h) / there))


@kernel
def sums_near(
    f: Array, q: Array, target: float, top: float, scale: float, rise: float, base: float, v: float,
    power: float,
) -> tuple[float, float, float, float, float, float, float]:  # fmt: skip
    """s - 1, r - 1 (Burg: Σ q·log b), Σ q·e·(d, h), Σ q·(e-1)·(d + rise), Σ q·e·(1/b - 1)·(1, d).

    b = base + v·h with h = (max f - f)/spread: (1, (1-k)·θ), or (0, 1) for θ = ∞, without the largest losses.
    """
    s, r, first, left, away, over, over_first = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    slope = power - 1.0
    there = base + v * ((top - target) * scale)
    u = -v / there
    for i in range(f.size):
        if q[i] > 0.0 and (base > 0.0 or f[i] < top):
            d, h = (f[i] - target) * scale, (top - f[i]) * scale
            x = logarithm(d, h, u, base, v, there)
            more = np.expm1(x / slope)
            e = q[i] * (1.0 + more)
            s += q[i] * more
            r += q[i] * (x if power == 0.0 else np.expm1(power * x / slope))
            first += e * d
            left += e * h
            away += q[i] * more * (d + rise)
            w = e * np.expm1(-x)
            over += w
            over_first += w * d
    return s, r, first, left, away, over, over_first


@kernel
def search_near(
    f: Array, q: Array, target: float, top: float, scale: float, rise: float, power: float, start: float
) -> tuple[float, float, float, int]:
    """θ with Σ q·e·d = 0 by Newton's method as in `search`: (θ, s - 1, r - 1 or Σ q·log b, passes)."""
    low, high, stride, slope, ahead = 0.0, np.inf, 8.0, power - 1.0, (top - target) * scale
    goal, theta, passes = np.log(rise / ahead), start, 0
    while True:
        # 1. Evaluate, and narrow the bracket; NaN is so large a θ that no number is left.
        passes += 1
        v = -slope * theta
        s, r, first, left, away, over, over_first = sums_near(
            f, q, target, top, scale, rise, 1.0, v, power
        )  # fmt: skip
        mean = first / (1.0 + s)
        if mean < 0.0:
            low = theta
        else:
            high = theta
        # 2. Newton's step; outwards in strides without an end, or a middle of the bracket.
        growth, move = (over_first - mean * over) / (-slope * (1.0 + v * ahead)), np.nan
        if away > 0.0 and left > 0.0 and growth > 0.0:
            move = (goal - np.log(away / left)) * (away / growth) * (left / (1.0 + s) / (ahead + rise))
        if abs(move) <= 1e-15 or passes >= PASSES:
            return theta, s, r, passes
        step = theta * np.exp(move) if abs(move) < 30.0 else np.nan
        if not (step > low and step < high):
            if high == np.inf:
                step, stride = min(theta * stride, HIGHEST), min(stride * stride, 1e30)
            elif low == 0.0:
                step, stride = theta / stride, min(stride * stride, 1e30)
            else:
                step = np.sqrt(low) * np.sqrt(high)
        if not (step > low and step < high):
            return theta, s, r, passes
        theta = step


@kernel
def solve_near(
    f: Array, q: Array, target: float, top: float, least: float, rise: float, mass: float, power: float,
    start: float, p: Array, out: Array,
) -> None:  # fmt: skip
    """Solve by d, from a start for θ, which may be ∞; NOT_SOLVED if that does not come out."""
    spread, slope, floor = top - least, power - 1.0, FLOOR if power <= 0.0 else 0.0
    scale = 1.0 / spread
    ahead, out[RADIUS_STATUS] = (top - target) * scale, NOT_SOLVED
    base, v, passes = 0.0, 1.0, 1
    if start < np.inf:
        theta, s, r, passes = search_near(f, q, target, top, scale, rise, power, start)
        base, v = 1.0, -slope * theta
        weight = 1.0 / (1.0 + s)
    else:
        s, r, first, _, _, _, _ = sums_near(f, q, target, top, scale, rise, base, v, power)
        # The mass at the top makes up for Σ p·d of the others; r of Burg is 0.
        weight = 1.0 if power == 0.0 else 1.0 / (1.0 + r)
        rest = -first * weight / ahead
        if not rest >= 0.0:
            return
        write_top(f, q, top, mass, max(mass, rest), p)
    there = base + v * ahead
    u = -v / there
    for i in range(f.size):
        if base > 0.0 or f[i] < top:
            x = logarithm((f[i] - target) * scale, (top - f[i]) * scale, u, base, v, there)
            p[i] = max(q[i] * (weight * np.exp(x / slope)), min(q[i], floor))
    value, total = totals(f, p, target, scale, 0.0)
    lower = r if power == 0.0 else np.expm1(-slope * np.log1p(r)) / (power * slope)
    if base > 0.0 and v * ahead <= LITTLE:  # at a small θ D has more digits than p
        radius = divergence_of(np.log1p(r), np.log1p(s), r, power)
    else:
        radius = measured(q, p, power)
    price = u / slope * (1.0 + power * slope * lower)
    conclude(
        out, target, spread, radius, lower, radius - lower, value, -value, total, price, passes
    )  # fmt: skip


@kernel
def solve(f: Array, q: Array, target: float, power: float, p: Array, out: Array) -> None:
    """Solve one row, with the radius in units of D; for k > 1 losses where q = 0 repeat one where q > 0."""
    # 1. Read the losses, and answer what needs no search.
    least, top, status = scan(f)
    out[RADIUS_STATUS] = status
    if status != OK:
        return
    spread, slope, mode = top - least, power - 1.0, mode_of(power)
    scale = 1.0 / spread if spread > 0.0 else 0.0
    aim = (target - top) * scale
    mean, square, mass, rest = moments(f, q, top, scale)
    rise = aim - mean
    if rise < NEAR:
        rise = -totals(f, q, target, scale, 0.0)[0]
    if answered_at_once(q, target, top, spread, rise, mean, p, out):
        return
    if aim >= 0.0:
        most = most_of(power, mass, rest)
        p[:] = 0.0 if most < np.inf else np.nan
        if most < np.inf:
            write_top(f, q, top, mass, 1.0, p)
        exact(out, most, top if most < np.inf else np.nan, np.inf)
        return
    # 2. θ = ∞: mass goes to losses where q = 0.
    if power < 1.0 and mass <= negligible(power):
        if rise < NEAR:
            solve_near(f, q, target, top, least, rise, mass, power, np.inf, p, out)
            if out[RADIUS_STATUS] == OK:
                return
        lower, value = pole(f, q, top, scale, mass, power, aim, p)
        if not np.isnan(lower):
            radius, total = measured(q, p, power), p.sum()
            price = (1.0 + power * slope * lower) / (slope * aim)
            conclude(
                out, top, spread, radius, lower, radius - lower, value, aim - value, total, price, 2
            )  # fmt: skip
            return
    # 3. Search for θ, write p, and compute the certificate.
    center, at, log_s, log_r, logs, passes = search(
        f, q, top, scale, mean, mode, power, aim, min(start_of_aim(mean, square, aim), HIGHEST)
    )
    if power < 1.0 and rise < NEAR:
        start = at / (1.0 - slope * at * center)
        solve_near(f, q, target, top, least, rise, mass, power, start, p, out)
        if out[RADIUS_STATUS] == OK:
            return
    floor = FLOOR if power <= 0.0 else 0.0
    value, total = write(f, q, top, scale, center, at, np.exp(log_s), mode, slope, floor, p)
    z = at * (aim - center)
    if power == 0.0:
        lower = logs - np.log1p(-z)
    else:
        lower = np.expm1(power * np.log1p(slope * z) - slope * log_r) / (power * slope)
    # At a small θ D has more digits than p.
    radius = measured(q, p, power) if center == 0.0 else divergence_of(log_r, log_s, logs, power)
    price = at * np.exp(-slope * log_s)
    short = (aim - center) - value
    conclude(
        out, top, spread, radius, lower, radius - lower, center + value, short, total, price, passes
    )  # fmt: skip


@kernel
def start_of_aim(mean: float, square: float, aim: float) -> float:
    """θ by the curvature at 0, scaled to the odds of the aim."""
    variance = square - mean * mean
    start = (aim - mean) / variance * (mean / aim) if variance > 1e-14 else 1.0
    return start if start > 0.0 else 1.0


@entry("P", "out")
@kernel
def rows(F: Matrix, center: Matrix, family: Matrix, target: Vector, P: Matrix, out: Matrix) -> None:
    """Solve every row of F; a centre with one row serves all rows; `family` holds (power, factor)."""
    many, factor = center.shape[0] > 1, family[0, 1]
    for b in range(F.shape[0]):
        solve(F[b], center[b if many else 0], target[b], family[0, 0], P[b], out[b])
        if out[b, RADIUS_STATUS] == OK or out[b, RADIUS_STATUS] == NOT_SOLVED:
            for column in (RADIUS, LOWER, RADIUS_GAP, MULTIPLIER):
                out[b, column] /= factor
