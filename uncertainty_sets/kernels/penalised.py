"""Penalised oracles: max of pᵀf - τ·D(p‖q) for KL, χ² and total variation.

Losses are scaled to g = (f - max f)/spread in [-1, 0] and τ along with them. Each answer is a closed form, up
to χ²'s Newton search for its threshold.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.clipped_balance import middle
from uncertainty_sets.kernels.jit import entry, kernel, owned_by, summing
from uncertainty_sets.kernels.kl import tilt, tilt_little, write
from uncertainty_sets.kernels.layout import DUAL, OK, STATUS
from uncertainty_sets.kernels.scan import copy, finish, larger, scan
from uncertainty_sets.kernels.tilt import moments, write_face

FREE = 1e-150  # scaled weights below are no other than this
STILL = 1e18  # above, p is q and the value qᵀf, to 1e-18 of the spread; rounding of p would cost more
LEAST = 1e-305  # of χ²'s scaled weight: below, all mass is at the largest losses
ROUNDING = 1e-14  # of Σp, beyond which p is divided by it
BAND = 1e-15  # the rounding of χ²'s threshold, relative to what it is the sum of
PASSES = 100  # of χ²'s search, which takes 7 at most in practice
LIFT = 2.0**600  # of masses and weight, where they are too small for their products
HALVINGS = 400  # of its threshold's bracket, if that search fails


@summing
def total_of(p: Array) -> float:
    """Σ p."""
    total = 0.0
    for i in range(p.size):
        total += p[i]
    return total


@kernel
def stay(out: Array, q: Array, p: Array, top: float, mean: float, spread: float) -> None:
    """Answer p = q, if all losses are equal or the weight is beyond all measure."""
    copy(q, p)
    finish(out, top, spread * mean, spread * mean, abs(total_of(p) - 1.0), 1, spread)
    out[DUAL] = top + spread * mean


@kernel
def answer_kl(f: Array, q: Array, weight: float, least: float, top: float, p: Array, out: Array) -> None:
    """Solve one row for KL: p ∝ q·exp(f/τ); losses where q = 0 repeat one where q > 0."""
    # 1. A weight beyond all measure.
    spread = top - least
    scale = 1.0 / spread
    mean, _, mass, _ = moments(f, q, top, scale)
    if weight * scale > STILL:
        stay(out, q, p, top, mean, spread)
        return
    tau = weight * scale
    # 2. log Σ q·exp(θ(g - c)): about the mean for a small tilt, about the top for a large one.
    theta = 1.0 / max(tau, FREE)
    if theta <= 1.0:
        center = mean
        s0, _, _ = tilt_little(f, q, top, scale, mean, theta)
        log_weight = np.log1p(s0)
    else:
        center, lift = 0.0, max(0.0, -np.log(mass) - 600.0)
        s0, _, _ = tilt(f, q, top, scale, theta, lift)
        log_weight = np.log(s0) - lift
    # 3. p, whose Σ p·g - τ·Σ p·log(p/q) is the bound times Σp.
    _, total = write(f, q, top, scale, center, theta, log_weight, p)
    bound = center + tau * log_weight
    finish(out, top, spread * (bound * total), spread * bound, abs(total - 1.0), 2, spread)
    out[DUAL] = top + spread * bound


@summing
def above(f: Array, q: Array, top: float, scale: float, t: float) -> tuple[float, float, float]:
    """The mass with g > t, its Σ q·g, and the mass that is left."""
    mass, first, rest = 0.0, 0.0, 0.0
    for i in range(f.size):
        g = (f[i] - top) * scale
        w = q[i] if g > t else 0.0
        mass += w
        first += w * g
        rest += 0.0 if g > t else q[i]
    return mass, first, rest


@kernel
def heaviest(f: Array, q: Array, top: float, scale: float, t: float) -> float:
    """The loss of the largest mass with g > t: differences from it keep the digits that p turns on."""
    found, most = top, -1.0
    for i in range(f.size):
        if (f[i] - top) * scale > t and q[i] > most:
            found, most = f[i], q[i]
    return found


@summing
def first_about(f: Array, q: Array, top: float, scale: float, t: float, c: float) -> float:
    """Σ q·h over g > t, with h = (f - c)·scale."""
    first = 0.0
    for i in range(f.size):
        w = q[i] if (f[i] - top) * scale > t else 0.0
        first += w * ((f[i] - c) * scale)
    return first


@summing
def variation(f: Array, q: Array, top: float, scale: float, t: float, c: float, mean: float) -> float:
    """Σ q·(h - mean)² over g > t."""
    total = 0.0
    for i in range(f.size):
        w = q[i] if (f[i] - top) * scale > t else 0.0
        d = (f[i] - c) * scale - mean
        total += w * d * d
    return total


@kernel
def fill_chi_square(
    f: Array, q: Array, top: float, scale: float, t: float, c: float, mean: float, base: float, rate: float,
    p: Array,
) -> None:  # fmt: skip
    """p = q·max(0, 1 + base + rate·(h - mean)) for g > t, else 0.

    Without sums and so without reordering, which would take rate·mean out of the parentheses and lose
    the digits of the difference.
    """
    for i in range(f.size):
        x = larger(1.0 + (base + rate * ((f[i] - c) * scale - mean)), 0.0)
        p[i] = q[i] * x if (f[i] - top) * scale > t else 0.0


@summing
def totals(f: Array, q: Array, p: Array, top: float, scale: float) -> tuple[float, float, float]:
    """Σ p·g, Σ p and Σ (p-q)²/q over q > 0."""
    value, total, divergence = 0.0, 0.0, 0.0
    for i in range(f.size):
        value += p[i] * ((f[i] - top) * scale)
        total += p[i]
        d = p[i] - q[i]
        divergence += d * (d / q[i]) if q[i] > 0.0 else 0.0
    return value, total, divergence


@summing
def excess(f: Array, q: Array, scale: float, t: float) -> tuple[float, float]:
    """LIFT times Σ q·max(f-t, 0), whose terms keep their digits, and the mass with f >= t."""
    first, mass = 0.0, 0.0
    for i in range(f.size):
        first += (q[i] * LIFT) * (larger(f[i] - t, 0.0) * scale)
        mass += q[i] * LIFT if f[i] >= t else 0.0
    return first, mass


@kernel
def lowest_above(f: Array, q: Array, scale: float, tau: float, least: float, top: float) -> tuple[float, int]:
    """The least loss that keeps mass, by halving a bracket down to neighbouring numbers, and the passes."""
    low, high, passes = least, top, 1
    if excess(f, q, scale, low)[0] <= 2.0 * tau:
        return low, passes
    while passes < HALVINGS:
        t = middle(low, high)
        if not (t > low and t < high):
            break
        passes += 1
        if excess(f, q, scale, t)[0] > 2.0 * tau:
            low = t
        else:
            high = t
    found = top
    for i in range(f.size):
        found = min(found, f[i]) if f[i] >= high else found
    return found, passes


@kernel
def solve_by_lowest(
    f: Array, q: Array, least: float, top: float, tau: float, passes: int, p: Array, out: Array
) -> None:
    """χ² for masses of any sizes: all is measured from the least loss that keeps mass, in terms >= 0.

    With h = g - g_low and u = g_low - t, p = q·(h + u)/2τ, and u = (2τ - Σ q·h)/Σ q is what is left. A loss
    is a double, so rounding ν moves it no further than u. Masses and τ are lifted where they have no digits.
    """
    spread = top - least
    tau *= LIFT
    scale, rate = 1.0 / spread, 0.5 / tau
    low, more = lowest_above(f, q, scale, tau, least, top)
    first, mass = excess(f, q, scale, low)
    u = larger(2.0 * tau - first, 0.0) / mass
    total, value, lift, cost, rest = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        h = (f[i] - low) * scale
        w = q[i] * LIFT
        p[i] = (w * rate) * (h + u) if f[i] >= low else 0.0
        d = p[i] - q[i]
        cost += ((tau * d) / w) * d if w > 0.0 else 0.0
        total += p[i]
        value += p[i] * ((f[i] - top) * scale)
        lift += p[i] * larger(h, 0.0)
        rest += q[i] if f[i] < low else 0.0
    nu = low - spread * u
    off = (low - nu) * scale - u  # by which ν is rounded
    # τ - u/2, of which τ may be large only if all entries keep mass
    left = (first - 2.0 * tau * rest) / (2.0 * mass) if rest < 0.5 else tau / LIFT - 0.5 * u
    bound = (low - top) * scale + left + 0.5 * lift + 0.5 * rate * off * (mass * off)
    finish(out, top, spread * (value - cost), spread * bound, abs(total - 1.0), passes + more, spread)
    out[DUAL] = nu


@kernel
def write_chi_square(
    f: Array, q: Array, top: float, scale: float, tau: float, t: float, passes: int, p: Array, out: Array
) -> None:
    """Write p and the certificate for a threshold that is right up to its rounding."""
    # 1. A large mass within the rounding of t belongs to what lies above it, unless the others suffice.
    mass, first, _ = above(f, q, top, scale, t)
    band = BAND * (2.0 * tau - first) / mass
    cut, c = t, heaviest(f, q, top, scale, t - band)
    g = (c - top) * scale
    if g <= t + band:
        cut = g if first_about(f, q, top, scale, g, c) > 2.0 * tau else np.nextafter(g, -np.inf)
    mass, _, rest = above(f, q, top, scale, cut)
    spread = 1.0 / scale
    # 2. p and the bound t + τ + Σ q·(g-t)₊²/4τ about the mean of what lies above t, which keeps the digits.
    c = heaviest(f, q, top, scale, cut)
    mean = first_about(f, q, top, scale, cut, c) / mass
    base, rate = rest / mass, 0.5 / tau
    fill_chi_square(f, q, top, scale, cut, c, mean, base, rate, p)
    value, total, divergence = totals(f, q, p, top, scale)
    if abs(total - 1.0) > ROUNDING:  # at a small weight, `rate` magnifies the rounding of the losses
        for i in range(p.size):
            p[i] /= total
        value, total, divergence = totals(f, q, p, top, scale)
    least = mean - 2.0 * tau / mass
    nu = c + spread * least
    off = (nu - c) * scale - least  # by which ν is rounded
    bound = ((c - top) * scale + (mean - tau * base)) + 0.5 * rate * (
        variation(f, q, top, scale, cut, c, mean) + mass * off * off
    )
    finish(out, top, spread * (value - tau * divergence), spread * bound, abs(total - 1.0), passes, spread)
    out[DUAL] = nu


@kernel
def answer_chi_square(
    f: Array, q: Array, weight: float, least: float, top: float, p: Array, out: Array
) -> None:
    """Solve one row for χ²: p = q·(f-t)₊/2τ with Σ q·(f-t)₊ = 2τ; losses where q = 0 as in `answer_kl`."""
    # 1. A weight beyond all measure, or hardly any.
    spread = top - least
    scale = 1.0 / spread
    mean, _, mass, _ = moments(f, q, top, scale)
    if weight * scale > STILL:
        stay(out, q, p, top, mean, spread)
        out[DUAL] -= 2.0 * weight
        return
    tau = weight * scale
    if tau < LEAST:  # on the largest losses alone; what that costs is part of the gap
        write_face(f, q, top, mass, p)
        value = -spread * (tau * ((1.0 - mass) / mass))
        finish(out, top, value, spread * tau, abs(total_of(p) - 1.0), 1, spread)
        out[DUAL] = top
        if out[STATUS] != OK and tau > 0.0:
            solve_by_lowest(f, q, least, top, tau, 1, p, out)
        return
    # 2. Newton from the left: Σ q·(g-t)₊ is convex, so the steps never pass the root and end at it.
    t, passes = mean - 2.0 * tau, 1
    mass, first, _ = above(f, q, top, scale, t)
    while passes < PASSES:
        step = (first - 2.0 * tau) / mass
        if step > t and step < 0.0:
            t, passes = step, passes + 1
            mass, first, _ = above(f, q, top, scale, t)
            continue
        # Where a large mass lies at t, what the others have above it is lost in its rounding.
        c = heaviest(f, q, top, scale, np.nextafter(t, -np.inf))
        g = (c - top) * scale
        if not (g > t and g < 0.0 and first_about(f, q, top, scale, g, c) > 2.0 * tau):
            break
        t, passes = g, passes + 1
        mass, first, _ = above(f, q, top, scale, t)
    write_chi_square(f, q, top, scale, tau, t, passes, p, out)
    if out[STATUS] != OK:  # masses of too many sizes for Newton's sums
        solve_by_lowest(f, q, least, top, tau, passes, p, out)


@summing
def below(f: Array, q: Array, top: float, scale: float, tau: float) -> tuple[float, float, float, float]:
    """The mass with g < -τ, Σ q·max(g, -τ), and the mass and number of the largest losses."""
    moved, bound, mass, count = 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        g = (f[i] - top) * scale
        moved += q[i] if g < -tau else 0.0
        bound += q[i] * larger(g, -tau)
        mass += q[i] if f[i] == top else 0.0
        count += 1.0 if f[i] == top else 0.0
    return moved, bound, mass, count


@kernel
def answer_total_variation(
    f: Array, q: Array, weight: float, least: float, top: float, p: Array, out: Array
) -> None:
    """Solve one row for total variation: what lies below max f - τ moves to the largest losses."""
    spread = top - least
    scale = 1.0 / spread
    tau = min(weight * scale, 2.0)
    moved, bound, mass, count = below(f, q, top, scale, tau)
    each, even = (moved / mass, 0.0) if mass > 0.0 else (0.0, moved / count)
    for i in range(f.size):
        g = (f[i] - top) * scale
        p[i] = q[i] + each * q[i] + even if f[i] == top else (0.0 if g < -tau else q[i])
    value, total, _ = totals(f, q, p, top, scale)
    finish(out, top, spread * (value - tau * moved), spread * bound, abs(total - 1.0), 1, spread)
    out[DUAL] = top - spread * tau


def rows_of(answer: Callable[..., None], name: str, lowered: float) -> Callable[..., None]:
    """The entry of a divergence.

    Args:
        answer: (f, q, weight, least, top, p, out) answers a row of losses that are not all equal.
        name: the entry's.
        lowered: by how many times the weight ν is below the loss, if they are.
    """

    @kernel
    @owned_by(__name__, name)
    def rows(F: Matrix, center: Matrix, weight: Vector, warm: Matrix, P: Matrix, out: Matrix) -> None:
        """Solve every row of F; parameters with one row serve all rows."""
        many = center.shape[0] > 1
        for b in range(F.shape[0]):
            f, r = F[b], b if many else 0
            least, top, status = scan(f)
            if status != OK:
                out[b, STATUS] = status
            elif least == top:
                stay(out[b], center[r], P[b], top, 0.0, 0.0)
                if lowered > 0.0:
                    out[b, DUAL] -= lowered * weight[r]
            else:
                answer(f, center[r], weight[r], least, top, P[b], out[b])

    return rows


kl = entry("P", "out")(rows_of(answer_kl, "kl", 0.0))
chi_square = entry("P", "out")(rows_of(answer_chi_square, "chi_square", 2.0))
total_variation = entry("P", "out")(rows_of(answer_total_variation, "total_variation", 0.0))
