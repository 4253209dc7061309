"""One row of a state under a tilt, for KL and χ²: its divergence, its mean, and the tilt that reaches a mean.

In a row, g = (f - top)/spread lies in [-1, 0]. The tilt x >= 0 and its multiplier θ in units of 1/spread:

| mode | p | θ |
|---|---|---|
| KL | ∝ q·exp(x·g) | x |
| CHI_SQUARE | ∝ q·(1 + x·g)₊ | 2x/Σ q·(1 + x·g)₊ |

Each p is the maximiser in c(θ) = max θ·pᵀg - D(p, q), which is θ·center + LOG_WEIGHT with a centre that keeps
the digits: the mean for a small tilt, the top for a large one. FIRST is the mean of g - center under p,
DIVERGENCE is D = θ·FIRST - LOG_WEIGHT, and SLOPE is the derivative of the mean by θ: dD/dθ = θ·SLOPE.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels import chi_square, kl
from uncertainty_sets.kernels.by_state import (
    CENTER,
    DIVERGENCE,
    EPS,
    FIRST,
    KL,
    LIFT,
    LOG_WEIGHT,
    MASS,
    MEAN,
    OFFSET,
    REST,
    SCALE,
    SLOPE,
    SPREAD,
    THETA,
    TOP,
    VARIANCE,
    X,
    gather,
)
from uncertainty_sets.kernels.jit import kernel, summing
from uncertainty_sets.kernels.kl import HIGHEST, tilt, tilt_exactly, tilt_little
from uncertainty_sets.kernels.scan import Integers, copy, larger
from uncertainty_sets.kernels.tilt import moments, write_face

LEAST = 1e-140  # of a tilt that counts: its square is a number
COARSE = 1e-12  # of the budget: rounding of a divergence that is worth another pass
REACHED = 1e-15  # how near to an aim, over the distance that is measured
MOST_PASSES = 100
CANCELS = 1e-2  # a sum of 1 and a number near -1 that has too few digits
SUM_ERROR = 1e-14  # of Σp, above which p is divided by it

write_exponential, kl_most = kl.write, kl.most
variance_about, chi_square_most = chi_square.variance_about, chi_square.most


@summing
def cut(f: Array, q: Array, top: float, scale: float, x: float) -> tuple[float, float, float, float]:
    """Over y = 1 + x·g > 0: Σ q, Σ q·y, Σ q·y·g and Σ q·y²."""
    mass, s0, s1, s2 = 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        g = (f[i] - top) * scale
        y = 1.0 + x * g
        w = q[i] if y > 0.0 else 0.0
        mass += w
        s0 += w * y
        s1 += w * y * g
        s2 += w * y * y
    return mass, s0, s1, s2


@summing
def cut_divergence(f: Array, q: Array, top: float, scale: float, x: float, total: float) -> float:
    """Σ (p-q)²/q in terms that do not cancel."""
    divergence = 0.0
    for i in range(f.size):
        d = larger(1.0 + x * ((f[i] - top) * scale), 0.0) / total - 1.0
        divergence += q[i] * d * d
    return divergence


@summing
def write_cut(
    f: Array, q: Array, top: float, scale: float, x: float, weight: float, center: float, p: Array
) -> tuple[float, float]:
    """Write weight·q·y₊, with the y of `cut` to the last digit; return Σ p·(g - center) and Σ p."""
    first, total = 0.0, 0.0
    for i in range(f.size):
        g = (f[i] - top) * scale
        y = 1.0 + x * g
        w = q[i] if y > 0.0 else 0.0
        p[i] = weight * (w * larger(y, 0.0))
        first += p[i] * (g - center)
        total += p[i]
    return first, total


@kernel
def know(mode: int, f: Array, q: Array, table: Array, a: int) -> None:
    """Write the facts of row a about its centre; TOP and SPREAD are known."""
    spread = table[a, SPREAD]
    table[a, SCALE], table[a, LIFT] = 0.0, 0.0
    if spread == 0.0:
        table[a, MEAN], table[a, VARIANCE], table[a, MASS], table[a, REST] = 0.0, 0.0, 1.0, 0.0
        return
    top, scale = table[a, TOP], 1.0 / spread
    mean, square, mass, rest = moments(f, q, top, scale)
    table[a, SCALE], table[a, MEAN], table[a, MASS], table[a, REST] = scale, mean, mass, rest
    if mode == KL:
        table[a, VARIANCE] = max(square - mean * mean, 0.0)
        if mass < 1e-250:
            table[a, LIFT] = -np.log(mass) - 550.0
    else:
        table[a, VARIANCE] = variance_about(f, q, top, scale, mean)


@kernel
def read(
    mode: int, values: Array, indices: Integers, offsets: Array, row_offsets: Array, sizes: Array,
    scale: float, unit: float, indptr: Integers, start: int, stop: int, center: Array, F: Array, table: Array,
    size: Array, ) -> None:  # fmt: skip
    """Write the losses of the rows start, …, stop - 1 into F, what is known of them into the table."""
    base = indptr[start]
    for b in range(start, stop):
        a, i, j = b - start, indptr[b], indptr[b + 1]
        f = F[i - base : j - base]
        least, top = gather(values, indices, offsets, scale, unit, i, f)
        table[a, TOP], table[a, SPREAD], table[a, OFFSET] = top, top - least, unit * row_offsets[b]
        size[a] = 2.0 * (unit * sizes[b]) + max(abs(least), abs(top))
        know(mode, f, center[i:j], table, a)


@kernel
def most(mode: int, table: Array, a: int) -> float:
    """The divergence that leaves only the largest losses of row a."""
    mass, rest = table[a, MASS], table[a, REST]
    return kl_most(mass, rest) if mode == KL else chi_square_most(mass, rest)


@kernel
def stay(table: Array, a: int) -> None:
    """Write that row a keeps its centre."""
    table[a, X], table[a, THETA] = 0.0, 0.0
    table[a, CENTER], table[a, FIRST] = table[a, MEAN], 0.0
    table[a, LOG_WEIGHT], table[a, DIVERGENCE], table[a, SLOPE] = 0.0, 0.0, table[a, VARIANCE]


@kernel
def measure(mode: int, f: Array, q: Array, table: Array, a: int, x: float, budget: float) -> None:
    """Write what the tilt x makes of row a: one pass."""
    if not x > LEAST:
        stay(table, a)
        return
    table[a, X] = x
    if mode == KL:
        exponential(f, q, table, a, x, budget)
    else:
        linear(f, q, table, a, x)


@kernel
def exponential(f: Array, q: Array, table: Array, a: int, x: float, budget: float) -> None:
    """`measure` for KL."""
    top, scale, lift = table[a, TOP], table[a, SCALE], table[a, LIFT]
    # 1. One pass: about the mean for a small tilt, about the top for a large one.
    if x <= 1.0:
        s0, s1, s2 = tilt_little(f, q, top, scale, table[a, MEAN], x)
        center, log_weight, weight, noise = table[a, MEAN], np.log1p(s0), 1.0 + s0, 0.0
    else:
        s0, s1, s2 = tilt(f, q, top, scale, x, lift)
        center, log_weight, weight = 0.0, np.log(s0) - lift, s0
        noise = EPS * (1.0 + lift + abs(log_weight) + abs(s1 / s0))
    first = s1 / weight
    divergence, growth = first - log_weight, s2 / weight - first * first
    # 2. Too coarse for this budget: D again, from terms that do not cancel.
    if noise > COARSE * budget and divergence < 2.0 * budget + noise:
        center = log_weight / x
        s0, divergence, s1, s2 = tilt_exactly(f, q, top, scale, center, x)
        log_weight, weight = np.log1p(s0), 1.0 + s0
        divergence = divergence / weight - (log_weight - s0 / weight)
        first = s1 / weight
        growth = s2 / weight - first * first
    # 3. Means and slopes of g instead of x·g.
    table[a, THETA], table[a, CENTER], table[a, LOG_WEIGHT] = x, center, log_weight
    table[a, FIRST], table[a, DIVERGENCE], table[a, SLOPE] = first / x, divergence, growth / (x * x)


@kernel
def linear(f: Array, q: Array, table: Array, a: int, x: float) -> None:
    """`measure` for χ²; nothing is cut off up to x = 1, and the moments under q are enough.

    Unless 1 + x·mean cancels: then p needs the sums of the very terms that it is made of.
    """
    mean, variance = table[a, MEAN], table[a, VARIANCE]
    if x <= 1.0:
        total = 1.0 + x * mean
        if total > CANCELS:
            theta, first = 2.0 * x / total, x * variance / total
            divergence = (x / total) * first
            table[a, THETA], table[a, CENTER], table[a, LOG_WEIGHT] = theta, mean, divergence
            table[a, FIRST], table[a, DIVERGENCE], table[a, SLOPE] = first, divergence, 0.5 * variance
            return
    top, scale = table[a, TOP], table[a, SCALE]
    mass, s0, s1, s2 = cut(f, q, top, scale, x)
    theta, first, divergence = 2.0 * x / s0, s1 / s0, s2 / (s0 * s0) - 1.0
    if divergence < 1e-2:
        divergence = cut_divergence(f, q, top, scale, x, s0)
    inside = max(s2 - s0 * s0 / mass, 0.0) / (x * x)  # the mass above the cut times the variance there
    table[a, THETA], table[a, CENTER], table[a, LOG_WEIGHT] = theta, 0.0, theta * first - divergence
    table[a, FIRST], table[a, DIVERGENCE], table[a, SLOPE] = first, divergence, 0.5 * inside


@kernel
def guess(mode: int, table: Array, a: int, aim: float) -> float:
    """A tilt that has about the mean `aim` < 0 of g, from the moments under q alone."""
    mean, variance = table[a, MEAN], table[a, VARIANCE]
    if mode == KL:
        x = (aim - mean) / variance * (mean / aim) if variance > 1e-14 else 1.0
    else:
        x = 1.0 / (variance / (aim - mean) - mean)
    return x if x > 0.0 and x < HIGHEST else 1.0


@kernel
def step(mode: int, table: Array, a: int, aim: float) -> float:
    """Newton's next tilt towards the mean `aim` < 0 of g, after `measure`."""
    x, at = table[a, X], table[a, CENTER] + table[a, FIRST]
    if mode == KL:
        off = table[a, FIRST] - (aim - table[a, CENTER])
        rise = off / aim if off < 0.0 else np.log1p(off / aim)  # at/aim - 1, or log(at/aim)
        after: float = x - rise * at / table[a, SLOPE]
        return after
    # χ²: with the same entries cut off, of which μ is the mean, v the variance and 1/x = -τ: the mean under p
    # is μ + v/(μ-τ).
    rise = table[a, THETA] * table[a, SLOPE]
    middle = at - rise
    after = 0.5 * x
    if aim > middle:
        after = 1.0 / (rise * (middle + 1.0 / x) / (aim - middle) - middle)
    return after


@kernel
def reach(
    mode: int, f: Array, q: Array, table: Array, a: int, aim: float, start: float, budget: float
) -> int:
    """Tilt row a until the mean of g is `aim` < 0, in a bracket that ends every search; return the passes."""
    low, high, missed = 0.0, np.inf, np.inf
    x = start if start > 0.0 and start < HIGHEST else guess(mode, table, a, aim)
    for passes in range(1, MOST_PASSES):
        # 1. Measure, and stop if the mean is the aim up to rounding.
        measure(mode, f, q, table, a, x, budget)
        distance = aim - table[a, CENTER]
        off = table[a, FIRST] - distance
        near = REACHED * abs(distance)
        if abs(off) <= near:
            return passes
        if abs(off) <= max(1e3 * near, 1e-14) and abs(off) > 0.25 * missed:
            return passes  # Newton squares the error: one that stays is rounding
        missed = abs(off)
        # 2. Narrow the bracket; a step inside it, or a middle of it.
        if off > 0.0:
            high = x
        else:
            low = x
        after = step(mode, table, a, aim)
        if not (after > low and after < high) or (passes > 12 and passes % 3 == 0 and high < np.inf):
            middle = np.sqrt(low) * np.sqrt(high) if low > 0.0 else 0.125 * high
            after = middle if high < np.inf else 8.0 * x
        if not (after > low and after < high) or after > HIGHEST:
            return passes
        x = after
    return MOST_PASSES


@kernel
def tilt_of(mode: int, f: Array, q: Array, table: Array, a: int, theta: float) -> float:
    """The tilt of row a whose multiplier is θ, in units of 1/spread."""
    if mode == KL:
        return theta
    # Σ q·(g - t)₊ = 2/θ: convex, so that Newton's method from below keeps to its side and ends.
    goal = 2.0 / theta
    t = table[a, MEAN] - goal
    x: float = -1.0 / t
    if t <= -1.0:
        return x
    top, scale = table[a, TOP], table[a, SCALE]
    # The largest losses alone are below it too, and have the digits of a t near 0.
    t = max(t, -goal / table[a, MASS])
    x = -1.0 / t
    for _ in range(MOST_PASSES):
        mass, total, _, _ = cut(f, q, top, scale, x)
        change = (total / x - goal) / mass
        if not (change > EPS * -t and t + change < 0.0):
            break
        t += change
        x = -1.0 / t
    return x


@kernel
def weigh(table: Array, a: int, theta: float) -> None:
    """Write the LOG_WEIGHT for χ² of this θ, for the threshold that was measured, which may be off.

    Where nearly all mass is at the threshold, neighbouring tilts differ in θ by up to all of it. The bound
    holds for any threshold t = -1/x, if it is that of one θ: c(θ) <= θ·t + 1 + θ²/4·Σ q·(g - t)₊².
    """
    x, center, share = table[a, X], table[a, CENTER], theta * np.sqrt(table[a, VARIANCE])
    weight = theta * (table[a, MEAN] - center) + 0.25 * share * share  # as if nothing were cut off
    if x > 0.0 and center == 0.0:
        share = theta / table[a, THETA]
        cut_off = 1.0 - theta / x + (table[a, DIVERGENCE] + 1.0) * share * share
        weight = min(weight, cut_off)
    table[a, LOG_WEIGHT] = weight


@kernel
def write(mode: int, f: Array, q: Array, table: Array, a: int, p: Array) -> float:
    """Write p of the tilt that was measured last, its mean of g - center into FIRST; return Σp - 1."""
    x = table[a, X]
    if x == 0.0:
        copy(q, p)
        return 0.0
    top, scale, center = table[a, TOP], table[a, SCALE], table[a, CENTER]
    if mode == KL:
        first, total = write_exponential(f, q, top, scale, center, x, table[a, LOG_WEIGHT], p)
    else:
        first, total = write_cut(f, q, top, scale, x, 0.5 * table[a, THETA] / x, center, p)
    table[a, FIRST] = first / total
    if abs(total - 1.0) > SUM_ERROR:
        for i in range(p.size):
            p[i] /= total
        total = 1.0
    return total - 1.0


@kernel
def write_top(f: Array, q: Array, table: Array, a: int, p: Array) -> None:
    """Write the centre restricted to the largest losses, with its mean."""
    table[a, CENTER], table[a, FIRST] = 0.0, 0.0
    write_face(f, q, table[a, TOP], table[a, MASS], p)


@summing
def distance(p: Array, q: Array) -> float:
    """Σ (p-q)²/q."""
    total = 0.0
    for i in range(p.size):
        d = p[i] / q[i] - 1.0
        total += q[i] * d * d
    return total


@kernel
def pull_in(
    mode: int, q: Array, indptr: Integers, start: int, count: int, table: Array, budget: float, P: Array,
    spent: float,
) -> float:  # fmt: skip
    """Move every p towards its centre until the budget is kept; return what is spent then.

    For χ², with an entry of nearly all the mass where p/q begins: there p has fewer digits than q.
    """
    i, j = indptr[start], indptr[start + count]
    found = spent if mode == KL else distance(P[i:j], q[i:j])
    if not found > budget:
        return found
    share = share_within(mode, budget, found)
    for k in range(i, j):
        P[k] = q[k] + share * (P[k] - q[k])
    for a in range(count):
        table[a, FIRST] = (1.0 - share) * (table[a, MEAN] - table[a, CENTER]) + share * table[a, FIRST]
    return budget


@kernel
def share_within(mode: int, budget: float, spent: float) -> float:
    """How much of the way from the centres keeps the budget: χ² is a square, KL at most its share."""
    share: float = budget / spent
    return share if mode == KL else np.sqrt(share)
