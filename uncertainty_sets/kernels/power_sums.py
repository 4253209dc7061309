"""Passes over the losses for the power divergences: the sums of cressie_read.py, and writing p.

Each pass is one function for the powers that need no exp, chosen by `mode`, and one for any power. The latter
call exp and log themselves: a function with both is too long to be copied into a loop, and a loop that calls
one does not run on vector units, which takes seven times as long.
"""

from __future__ import annotations

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.exponential import times_exp
from uncertainty_sets.kernels.jit import kernel, summing
from uncertainty_sets.kernels.logarithm import log, log1p_minus_line
from uncertainty_sets.kernels.power_links import (
    ANY,
    BURG,
    NEYMAN,
    link,
    link_minus_line,
    link_minus_line_any,
)
from uncertainty_sets.kernels.scan import larger, smaller
from uncertainty_sets.kernels.tilt import BLOCK, totals

LEAST = 1e-300  # of what a logarithm is taken of


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
