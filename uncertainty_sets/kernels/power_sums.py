"""The densities of the power divergences and the passes over losses: sums for cressie_read.py, writing p.

The density p/q = e(x) = (1 + (k-1)x)₊^{1/(k-1)} is chosen by an integer `mode`: a function as an argument of
a kernel would be called through a pointer. The compiler moves the choice out of the loop, and each loop runs
on vector units, as long as all of them are short. So each pass is one function for the powers that need no
exp, chosen by `mode`, and one for any power. The latter call exp and log themselves: a function with both is
too long to be copied into a loop, and a loop that calls one does not run on vector units, which takes seven
times as long.

The limit θ = ∞ for k < 1, if no mass of q to speak of is at the largest losses: with h = (max f - f)/spread,
p = weight·q·h^{1/(k-1)} below the top, the weight by D = radius, and the rest of the mass at the top.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.exponential import exp, log, log1p_minus_line, times_exp
from uncertainty_sets.kernels.jit import kernel, summing
from uncertainty_sets.kernels.scan import larger, smaller
from uncertainty_sets.kernels.tilt import BLOCK, totals

BURG, HELLINGER, NEYMAN, PEARSON, ANY = range(5)
"""The powers 0, ½, -1 and 2, which need no exp; and any other."""

LEAST = 1e-300  # of what a logarithm is taken of
FLOOR = 1e-300  # of p where q > 0, if k <= 0: D is infinite at p = 0, and p must not become 0 by underflow


@kernel
def mode_of(power: float) -> int:
    """The mode that computes this power."""
    if power == 0.0:
        return BURG
    if power == 0.5:
        return HELLINGER
    if power == -1.0:
        return NEYMAN
    return PEARSON if power == 2.0 else ANY


@kernel
def link(x: float, mode: int) -> tuple[float, float, float]:
    """(e, e·b, e/b) with b = 1 + (k-1)x, for a mode with a power of its own."""
    if mode == BURG:
        i = 1.0 / (1.0 - x)
        return i, 1.0, i * i
    if mode == HELLINGER:
        i = 1.0 / (1.0 - 0.5 * x)
        return i * i, i, i * i * i
    if mode == NEYMAN:
        b = 1.0 - 2.0 * x
        i = 1.0 / b
        e = np.sqrt(i)
        return e, e * b, e * i
    b = larger(1.0 + x, 0.0)
    return b, b * b, 1.0 if b > 0.0 else 0.0


@kernel
def link_minus_line(x: float, mode: int) -> float:
    """e - 1 - x for |x| and |(k-1)x| <= 1/15, to a few ulp of itself; Burg, Hellinger or Pearson."""
    if mode == BURG:
        return x * x / (1.0 - x)
    if mode == HELLINGER:
        b = 1.0 - 0.5 * x
        return x * x * (0.75 - 0.25 * x) / (b * b)
    return 0.0


@kernel
def link_minus_line_any(x: float, slope: float) -> float:
    """e - 1 - x for |x| and |slope·x| <= 1/15 and any power, to a few ulp of itself."""
    # The series of e: the coefficient of x^{j+1} is that of x^j times (1 - j·slope)/(j+1).
    s = 1.0 + (1.0 - 14.0 * slope) / 15.0 * x
    s = 1.0 + (1.0 - 13.0 * slope) / 14.0 * x * s
    s = 1.0 + (1.0 - 12.0 * slope) / 13.0 * x * s
    s = 1.0 + (1.0 - 11.0 * slope) / 12.0 * x * s
    s = 1.0 + (1.0 - 10.0 * slope) / 11.0 * x * s
    s = 1.0 + (1.0 - 9.0 * slope) / 10.0 * x * s
    s = 1.0 + (1.0 - 8.0 * slope) / 9.0 * x * s
    s = 1.0 + (1.0 - 7.0 * slope) / 8.0 * x * s
    s = 1.0 + (1.0 - 6.0 * slope) / 7.0 * x * s
    s = 1.0 + (1.0 - 5.0 * slope) / 6.0 * x * s
    s = 1.0 + (1.0 - 4.0 * slope) / 5.0 * x * s
    s = 1.0 + (1.0 - 3.0 * slope) / 4.0 * x * s
    s = 1.0 + (1.0 - 2.0 * slope) / 3.0 * x * s
    return 0.5 * (1.0 - slope) * x * x * s


@summing
def sums_of_mode(
    f: Array, q: Array, top: float, scale: float, theta: float, mode: int
) -> tuple[float, float, float]:
    """s, r and v at θ, about the top, for a mode with a power of its own."""
    s, r, v = 0.0, 0.0, 0.0
    for i in range(f.size):
        e, times, over = link(theta * ((f[i] - top) * scale), mode)
        s += q[i] * e
        r += q[i] * times
        v += q[i] * over
    return s, r, v


@summing
def sums_of_any(
    f: Array, q: Array, top: float, scale: float, theta: float, slope: float
) -> tuple[float, float, float]:
    """s, r and v at θ, about the top, for any power."""
    s, r, v = 0.0, 0.0, 0.0
    inverse = 1.0 / slope
    for i in range(f.size):
        b = 1.0 + slope * (theta * ((f[i] - top) * scale))
        c = larger(b, LEAST)
        w = times_exp(q[i] if b > 0.0 else 0.0, log(c) * inverse)
        s += w
        r += w * c
        v += w / c
    return s, r, v


@summing
def sum_of_logs(f: Array, q: Array, top: float, scale: float, theta: float) -> float:
    """Σ q·log(1 - θg)."""
    logs = 0.0
    for i in range(f.size):
        logs += q[i] * log(1.0 - theta * ((f[i] - top) * scale))
    return logs


@kernel
def sums(
    f: Array, q: Array, top: float, scale: float, theta: float, mode: int, slope: float
) -> tuple[float, float, float, float]:
    """s, r, v and, for Burg, Σ q·log b at θ, about the top."""
    logs = sum_of_logs(f, q, top, scale, theta) if mode == BURG else 0.0
    if mode == ANY:
        s, r, v = sums_of_any(f, q, top, scale, theta, slope)
    else:
        s, r, v = sums_of_mode(f, q, top, scale, theta, mode)
    return s, r, v, logs


@summing
def about_mean_of_mode(
    f: Array, q: Array, top: float, scale: float, mean: float, theta: float, mode: int, slope: float
) -> tuple[float, float, float]:
    """`sums_about_mean` for Burg, Hellinger and Pearson, without the logarithms."""
    s, first, v = 0.0, 0.0, 0.0
    for i in range(f.size):
        x = theta * ((f[i] - top) * scale - mean)
        h = link_minus_line(x, mode)
        s += q[i] * h
        first += q[i] * (h + x) * x
        v += q[i] * (h - (1.0 - slope) * slope * x * x) / (1.0 + slope * x)
    return s, first, v


@summing
def about_mean_of_any(
    f: Array, q: Array, top: float, scale: float, mean: float, theta: float, slope: float
) -> tuple[float, float, float]:
    """`sums_about_mean` for any power, without the logarithms."""
    s, first, v = 0.0, 0.0, 0.0
    for i in range(f.size):
        x = theta * ((f[i] - top) * scale - mean)
        h = link_minus_line_any(x, slope)
        s += q[i] * h
        first += q[i] * (h + x) * x
        v += q[i] * (h - (1.0 - slope) * slope * x * x) / (1.0 + slope * x)
    return s, first, v


@summing
def logs_about_mean(f: Array, q: Array, top: float, scale: float, mean: float, theta: float) -> float:
    """Σ q·log(1 - x), x about the mean."""
    logs = 0.0
    for i in range(f.size):
        logs += q[i] * log1p_minus_line(-theta * ((f[i] - top) * scale - mean))
    return logs


@kernel
def sums_about_mean(
    f: Array, q: Array, top: float, scale: float, mean: float, theta: float, mode: int, slope: float
) -> tuple[float, float, float, float]:
    """With x about the mean, Σ qx = 0: s - 1, Σ q·e·x, v - 1 and, for Burg, Σ q·log b; all of order x²."""
    logs = logs_about_mean(f, q, top, scale, mean, theta) if mode == BURG else 0.0
    if mode in (ANY, NEYMAN):
        s, first, v = about_mean_of_any(f, q, top, scale, mean, theta, slope)
    else:
        s, first, v = about_mean_of_mode(f, q, top, scale, mean, theta, mode, slope)
    return s, first, v, logs


@kernel
def fill_of_mode(
    f: Array, q: Array, top: float, scale: float, center: float, theta: float, s: float, mode: int,
    floor: float, p: Array,
) -> None:  # fmt: skip
    """`fill` for a mode with a power of its own."""
    for i in range(f.size):
        e, _, _ = link(theta * ((f[i] - top) * scale - center), mode)
        p[i] = larger(q[i] * (e / s), smaller(q[i], floor))


@kernel
def fill_of_any(
    f: Array, q: Array, top: float, scale: float, center: float, theta: float, s: float, slope: float,
    floor: float, p: Array,
) -> None:  # fmt: skip
    """`fill` for any power."""
    inverse = 1.0 / slope
    for i in range(f.size):
        b = 1.0 + slope * (theta * ((f[i] - top) * scale - center))
        w = times_exp(q[i] if b > 0.0 else 0.0, log(larger(b, LEAST)) * inverse)
        p[i] = larger(w / s, smaller(q[i], floor))


@kernel
def fill(
    f: Array, q: Array, top: float, scale: float, center: float, theta: float, s: float, mode: int,
    slope: float, floor: float, p: Array,
) -> None:  # fmt: skip
    """p = q·e(θ(g - center))/s, at least `floor` where q is."""
    if mode == ANY:
        fill_of_any(f, q, top, scale, center, theta, s, slope, floor, p)
    else:
        fill_of_mode(f, q, top, scale, center, theta, s, mode, floor, p)


@kernel
def write(
    f: Array, q: Array, top: float, scale: float, center: float, theta: float, s: float, mode: int,
    slope: float, floor: float, p: Array,
) -> tuple[float, float]:  # fmt: skip
    """Write p block by block (as kl.write does, for its reason); return Σ p·(g - center) and Σ p."""
    value, total = 0.0, 0.0
    for first in range(0, f.size, BLOCK):
        part = slice(first, first + BLOCK)
        fill(f[part], q[part], top, scale, center, theta, s, mode, slope, floor, p[part])
        more, share = totals(f[part], p[part], top, scale, center)
        value += more
        total += share
    return value, total


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
