"""The other way round: the least radius at which pᵀf reaches a target, for KL, χ² and total variation.

A kernel of it is ``rows(F, *parameters, target, P, out)``: for each loss vector the least radius, a p that
reaches the target, and one row of `out` (layout.py). Losses are scaled to g = (f - max f)/spread in [-1, 0],
and the target along with them to `aim`.

**KL.** p_θ ∝ q·exp(θg) has the least divergence among all p with its mean, so θ is the root of E_θ[g] = aim.
E_θ rises from the mean to 0. Left of the root Newton's method runs on 1/E_θ, which is linear in θ for an
exponential tail; right of it on log(-E_θ). Both keep to their side, and a bracket takes over if rounding
leads them outside. Any θ >= 0 proves θ·target - log Σ q·exp(θf) as a lower bound.

**χ².** p = q·(g - t)₊/Σ q·(g - t)₊ has the least divergence among all p with its mean, so t is the root of

    H(t) = Σ q·(g - t)₊·(g - aim)

which is concave and piecewise linear left of the aim: Newton's method comes from the left, and its steps end
at the root's own piece. Any t < aim proves (aim - t)²/Σ q·(g - t)₊² - 1 as a lower bound. If t is far below
all losses, the radius is (aim - mean)²/variance, and forms about the mean keep the digits. Otherwise a loss
with nearly all of the mass may be so near to t that g - t has none of them left: on its piece t is measured
from the smallest loss above it, the anchor, as s = anchor - t.

**Total variation.** Mass that moves from a loss f to the largest gains max f - f. So it comes from the
smallest losses, as in total_variation.py, until the gains are what the target lacks: a selection among
weights q·(max f - f). With h = (max f - f)/spread and d the h of the threshold, any d > 0 proves
(aim + Σ q·min(h, d))/d as a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels import chi_square as chi_square_ball
from uncertainty_sets.kernels import kl as kl_ball
from uncertainty_sets.kernels.jit import comparing, entry, kernel, owned_by, summing
from uncertainty_sets.kernels.layout import (
    FEASIBLE,
    LOWER,
    MULTIPLIER,
    NOT_SOLVED,
    OK,
    PASSES,
    PROMISE,
    RADIUS,
    RADIUS_GAP,
    RADIUS_STATUS,
    RADIUS_VALUE,
    ULPS,
)
from uncertainty_sets.kernels.scan import copy, larger, scan, smaller
from uncertainty_sets.kernels.selection import share_of, threshold, work_space
from uncertainty_sets.kernels.tilt import EPS, moments, totals, write_face
from uncertainty_sets.kernels.total_variation import LIGHT, fill, top_mass

MOST_PASSES = 80
AIM = 1e-15  # how near to the target, over the distance that is measured: from the mean or from the top
HIGHEST = kl_ball.HIGHEST

tilt, tilt_little, write_tilt = kl_ball.tilt, kl_ball.tilt_little, kl_ball.write
variance_about, write_cut = chi_square_ball.variance_about, chi_square_ball.write


@kernel
def exact(out: Array, radius: float, value: float, multiplier: float) -> None:
    """Write an answer that needs no search and is exact."""
    out[RADIUS], out[LOWER], out[RADIUS_GAP], out[RADIUS_VALUE] = radius, radius, 0.0, value
    out[MULTIPLIER], out[PASSES], out[RADIUS_STATUS] = multiplier, 1.0, OK


@kernel
def answered_at_once(
    q: Array, target: float, top: float, spread: float, rise: float, mean: float, p: Array, out: Array
) -> bool:
    """Whether the centre reaches the target, or nothing does; then the answer is written.

    rise: how far the target is above the mean.
    """
    if target > top:
        for i in range(q.size):
            p[i] = np.nan
        exact(out, np.inf, np.nan, np.inf)
        return True
    if spread == 0.0 or rise <= 0.0:
        copy(q, p)
        exact(out, 0.0, top + spread * mean, 0.0)
        return True
    return False


@kernel
def conclude(
    out: Array, top: float, spread: float, radius: float, lower: float, gap: float, value: float,
    short: float, total: float, multiplier: float, passes: int,
) -> None:  # fmt: skip
    """Write an answer and judge it; value, short (what pᵀf lacks) and multiplier are those of g.

    The multiplier times the rounding of the losses is all that a radius can be known to. A bound above the
    radius, which p refutes, is off by rounding: it is given less by twice what is seen of that, and by the
    rounding of the losses if those are not just its last digits.
    """
    scale = 1.0 / spread
    rounding = ULPS * (1.0 + abs(top) * scale)
    known = 8.0 * multiplier * rounding
    proved = gap <= max(PROMISE * radius, known) and gap >= -max(FEASIBLE * radius, known)
    proved = proved and abs(total - 1.0) <= FEASIBLE and short <= max(PROMISE, rounding)
    proved = proved and multiplier * short <= max(PROMISE * radius, known)
    if gap < 0.0:
        less = max(-2.0 * gap, multiplier * rounding if gap < -FEASIBLE * radius else 0.0)
        lower, gap = lower - less, gap + less
    radius = max(radius, 0.0)
    out[RADIUS], out[LOWER], out[RADIUS_GAP] = radius, max(lower, 0.0), min(gap, radius)
    out[RADIUS_VALUE], out[MULTIPLIER], out[PASSES] = top + spread * value, multiplier * scale, passes
    out[RADIUS_STATUS] = OK if proved else NOT_SOLVED


def rows_of(most: Callable[..., float], answer: Callable[..., None], name: str) -> Callable[..., None]:
    """The kernel of a link (tilt.py).

    Args:
        most: (mass at the top, mass below) to the divergence of q restricted to the largest losses.
        answer: (f, q, target, least, top, aim, mean, square, most, p, out) searches, and writes an answer.
        name: the entry's.
    """

    @kernel
    @owned_by(answer.__module__, name)
    def rows(F: Matrix, center: Matrix, target: Vector, P: Matrix, out: Matrix) -> None:
        """Solve every row of F; a centre with one row serves all rows. Losses where q = 0 repeat another."""
        many = center.shape[0] > 1
        for b in range(F.shape[0]):
            f, q = F[b], center[b if many else 0]
            # 1. Read the losses.
            least, top, status = scan(f)
            out[b, RADIUS_STATUS] = status
            if status != OK:
                continue
            # 2. Answers that need no search: the centre reaches the target, nothing does, or only the top.
            spread = top - least
            scale = 1.0 / spread if spread > 0.0 else 0.0
            aim = (target[b] - top) * scale
            mean, square, mass, rest = moments(f, q, top, scale)
            if answered_at_once(q, target[b], top, spread, aim - mean, mean, P[b], out[b]):
                continue
            limit = most(mass, rest)
            if aim >= 0.0:
                write_face(f, q, top, mass, P[b])
                exact(out[b], limit, top, np.inf)
                continue
            # 3. The others.
            answer(f, q, target[b], least, top, aim, mean, square, limit, P[b], out[b])

    return rows


@kernel
def evaluate_kl(
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
def search_kl(
    f: Array, q: Array, top: float, scale: float, mean: float, most: float, aim: float, start: float
) -> tuple[float, float, float, int]:
    """θ with E_θ[g] = aim < 0: (θ, c, log Σ q·exp(θ(g-c)), passes)."""
    low, high, missed = 0.0, np.inf, np.inf
    lift = max(0.0, most - 600.0)
    theta, passes = start, 1
    while True:
        # 1. Evaluate, and stop if the mean is the aim up to rounding.
        passes += 1
        center, log_weight, first, variance = evaluate_kl(f, q, top, scale, mean, lift, theta)
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
def answer_kl(
    f: Array, q: Array, target: float, least: float, top: float, aim: float, mean: float, square: float,
    limit: float, p: Array, out: Array,
) -> None:  # fmt: skip
    """Search for θ from the curvature at 0."""
    spread = top - least
    scale, variance = 1.0 / spread, square - mean * mean
    start = (aim - mean) / variance * (mean / aim) if variance > 1e-14 else 1.0
    if not (start > 0.0 and start < HIGHEST):
        start = 1.0
    theta, center, log_weight, passes = search_kl(f, q, top, scale, mean, limit, aim, start)
    value, total = write_tilt(f, q, top, scale, center, theta, log_weight, p)
    lower = theta * (aim - center) - log_weight
    radius = theta * value - log_weight * total
    short = (aim - center) - value
    conclude(
        out, top, spread, radius, lower, radius - lower, center + value, short, total, theta, passes
    )  # fmt: skip


kl = entry("P", "out")(rows_of(kl_ball.most, answer_kl, "kl"))


@summing
def sums_above(
    f: Array, q: Array, top: float, scale: float, aim: float, t: float
) -> tuple[float, float, float]:
    """Over h = g - t > 0: H(t) = Σ q·h·(g - aim), its slope Σ q·(aim - g), and Σ q·h²."""
    off, slope, size = 0.0, 0.0, 0.0
    for i in range(f.size):
        g = (f[i] - top) * scale
        h = g - t
        w = q[i] if h > 0.0 else 0.0
        off += w * h * (g - aim)
        slope += w * (aim - g)
        size += w * h * h
    return off, slope, size


@kernel
def find_root(f: Array, q: Array, top: float, scale: float, aim: float, start: float) -> tuple[float, int]:
    """The root of H right of the start, up to rounding, and the passes."""
    low, high, t, passes = -np.inf, aim, start, 2
    while True:
        off, slope, size = sums_above(f, q, top, scale, aim, t)
        passes += 1
        if abs(off) <= EPS * size or passes >= MOST_PASSES:
            return t, passes
        if off > 0.0:
            high = t
        else:
            low = t
        step = t - off / slope if slope > 0.0 else np.nan
        if not (step > low and step < high):  # rounding
            step = 0.5 * (low + high) if low > -np.inf else 2.0 * t
        if step in (t, low, high):
            return t, passes
        t = step


@comparing
def neighbour(f: Array, anchor: float, scale: float, beyond: float) -> tuple[float, float]:
    """The smallest loss above the anchor by more than `beyond`, and the largest one below the anchor."""
    above, below = np.inf, -np.inf
    for i in range(f.size):
        higher = (f[i] - anchor) * scale > beyond
        above = smaller(above, f[i] if higher else np.inf)
        below = larger(below, f[i] if f[i] < anchor else -np.inf)
    return above, below


@summing
def piece(f: Array, q: Array, top: float, scale: float, aim: float, anchor: float) -> tuple[float, float]:
    """Over the losses from the anchor on: H with t at the anchor, and its slope."""
    off, slope = 0.0, 0.0
    for i in range(f.size):
        g = (f[i] - top) * scale
        w = q[i] if f[i] >= anchor else 0.0
        off += w * ((f[i] - anchor) * scale) * (g - aim)
        slope += w * (aim - g)
    return off, slope


@kernel
def find_piece(
    f: Array, q: Array, top: float, scale: float, aim: float, anchor: float
) -> tuple[float, float, int]:
    """The piece of the root, from one near it: (anchor, s, passes); s is NaN if none is found."""
    floor = -np.inf  # an anchor that is known to be below t
    for passes in range(1, MOST_PASSES):
        off, slope = piece(f, q, top, scale, aim, anchor)
        s = off / slope
        above, below = neighbour(f, anchor, scale, max(0.0, -s))
        if slope > 0.0 and s < 0.0:
            # t is above the anchor.
            floor, anchor = anchor, above
        elif slope > 0.0 and (below == -np.inf or s <= (anchor - below) * scale):
            return anchor, s, 2 * passes
        elif below > floor:
            anchor = below
        else:  # t is between neighbours: rounding decides on which it is
            return anchor, (anchor - below) * scale, 2 * passes
        if not abs(anchor) < np.inf:
            break
    return anchor, np.nan, 2 * passes


@summing
def sums_from(
    f: Array, q: Array, top: float, scale: float, aim: float, anchor: float, s: float
) -> tuple[float, float, float]:
    """Over h = g - t > 0: Σ q·h, Σ q·h² and H(t)."""
    first, second, off = 0.0, 0.0, 0.0
    for i in range(f.size):
        g, h = (f[i] - top) * scale, (f[i] - anchor) * scale + s
        x = q[i] * h if f[i] >= anchor else 0.0
        first += x
        second += x * h
        off += x * (g - aim)
    return first, second, off


@kernel
def fill_from(f: Array, q: Array, scale: float, anchor: float, s: float, weight: float, p: Array) -> None:
    """Write p = weight·q·h."""
    for i in range(f.size):
        p[i] = q[i] * (weight * ((f[i] - anchor) * scale + s)) if f[i] >= anchor else 0.0


@summing
def divergence_of(q: Array, p: Array) -> float:
    """Σ (p-q)²/q over q > 0; no square, which may overflow where q is below 1e-150."""
    divergence = 0.0
    for i in range(q.size):
        apart = p[i] - q[i]
        divergence += apart * (apart / (q[i] if q[i] > 0.0 else 1.0))
    return divergence


@kernel
def answer_chi_square(
    f: Array, q: Array, target: float, least: float, top: float, aim: float, mean: float, square: float,
    limit: float, p: Array, out: Array,
) -> None:  # fmt: skip
    """Search for t."""
    spread = top - least
    scale = 1.0 / spread
    # 1. t is far below all losses.
    variance, rise = variance_about(f, q, top, scale, mean), aim - mean
    distance = variance / rise
    t = mean - distance
    if t <= -1.5:
        value, total = write_cut(f, q, top, scale, t, 1.0 / distance, mean, p)
        radius = variance / (distance * distance)
        lower = (rise * rise + 2.0 * rise * distance - variance) / (variance + distance * distance)
        slope, short = 2.0 / distance, rise - value
        conclude(out, top, spread, radius, lower, radius - lower, mean + value, short, total, slope, 3)
        return
    # 2. Search for t, and measure it from its anchor.
    passes, anchor = 2, least
    if t > -1.0:
        t, passes = find_root(f, q, top, scale, aim, t)
        anchor, _ = neighbour(f, least, scale, t + 1.0)
        anchor = anchor if anchor < np.inf else top
    anchor, s, more = find_piece(f, q, top, scale, aim, anchor)
    # 3. Write p, and compute the certificate.
    first, second, off = sums_from(f, q, top, scale, aim, anchor, s)
    fill_from(f, q, scale, anchor, s, 1.0 / first, p)
    radius = divergence_of(q, p)
    value, total = totals(f, p, top, scale, 0.0)
    ahead = (target - anchor) * scale + s
    gap = off / first * (second / first + ahead) / second
    conclude(
        out, top, spread, radius, radius - gap, gap, value, aim - value, total, 2.0 / first, passes + more
    )  # fmt: skip


chi_square = entry("P", "out")(rows_of(chi_square_ball.most, answer_chi_square, "chi_square"))


@summing
def gains(f: Array, q: Array, top: float, scale: float, gain: Array) -> float:
    """Write q·h; return their sum."""
    total = 0.0
    for i in range(f.size):
        x = q[i] * ((top - f[i]) * scale)
        gain[i] = x
        total += x
    return total


@summing
def taken(f: Array, q: Array, top: float, scale: float, t: float) -> tuple[float, float, float]:
    """The mass below t and at t, and Σ q·min(h, d) with d the h of t."""
    below, at, cut = 0.0, 0.0, 0.0
    d = (top - t) * scale
    for i in range(f.size):
        x = q[i]
        below += x if f[i] < t else 0.0
        at += x if f[i] == t else 0.0
        cut += x * smaller((top - f[i]) * scale, d)
    return below, at, cut


@kernel
def solve_total_variation(
    f: Array, q: Array, target: float, p: Array, out: Array, v: Array, gain: Array, keys: Array,
    weights: Array, sample: Array,
) -> None:  # fmt: skip
    """Solve one row for total variation; v, gain, keys and weights are work space of f's length."""
    # 1. Read the losses, and answer what needs no selection.
    least, top, status = scan(f)
    out[RADIUS_STATUS] = status
    if status != OK:
        return
    spread = top - least
    scale = 1.0 / spread if spread > 0.0 else 0.0
    aim = (target - top) * scale
    most = gains(f, q, top, scale, gain)
    if answered_at_once(q, target, top, spread, aim + most, -most, p, out):
        return
    # 2. The threshold below which all mass moves, and the share that moves at it.
    need = aim + most
    mass, count = top_mass(f, q, top, v)
    t, before, level = threshold(v, gain, need, keys, weights, sample)
    t, share = -t, share_of(need - before, level)
    below, at, cut = taken(f, q, top, scale, t)
    d, moved = (top - t) * scale, below + share * at
    # 3. Write p and judge it.
    heavy = mass > LIGHT
    each, rate = (0.0, moved / mass) if heavy else (moved / count, 0.0)
    value, _, total, _ = fill(f, q, t, 1.0 - share, top, each, rate, p)
    value *= scale
    lower = (aim + cut) / d
    conclude(out, top, spread, moved, lower, moved - lower, value, aim - value, total, 1.0 / d, 3)


@entry("P", "out")
@kernel
def total_variation(F: Matrix, center: Matrix, target: Vector, P: Matrix, out: Matrix) -> None:
    """Solve every row of F; a centre with one row serves all rows."""
    n = F.shape[1]
    v, gain = np.empty(n), np.empty(n)
    keys, weights, sample = work_space(n)
    many = center.shape[0] > 1
    for b in range(F.shape[0]):
        q = center[b if many else 0]
        solve_total_variation(F[b], q, target[b], P[b], out[b], v, gain, keys, weights, sample)
