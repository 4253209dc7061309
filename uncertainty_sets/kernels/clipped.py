"""A divergence ball cut by a box: p = clip(P(x), lower, upper) with x = θ(g - ν).

    KL          P(x) = q·eˣ      D(p) = Σ p·log(p/q) - p + q
    quadratic   P(x) = q + s·x   D(p) = Σ (p - q)²/s

As the clip is at fixed values of x, y = clip(x, low, high) tells p and D alike. D rises with θ from the
divergence of the point of the box nearest to q (θ = 0) to that of the box's own worst case (θ = ∞). If the
latter is within the radius, it is the answer. Otherwise Newton's method finds θ as in kl.py, and for every θ
another finds the ν that makes Σp = 1. ν is kept as an anchor, a loss near it, and a shift of x: θ times a
difference of losses keeps its digits however large θ is.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.exponential import exp, exp_minus_line, times_exp
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.kl import AIM, OVER, newton
from uncertainty_sets.kernels.layout import DUAL, GAP, OK, STATUS
from uncertainty_sets.kernels.scan import copy, finish, larger, scan, smaller
from uncertainty_sets.kernels.selection import SAMPLE, threshold

KL, QUADRATIC = 0, 1  # modes

ROUNDS, PATIENCE = 60, 12  # values of θ at most, and those after which a gap of rounding size is enough
PASSES, HALVINGS = 120, 30  # values of ν for one θ at most, and those from which the bracket is halved
LOOSE = 1e-3  # how far Σp may be from 1 while D is far from the radius
STEEP = 1e290  # of θ: only losses equal to the threshold are between the bounds
HIGHEST = 1e15  # of θ else: any gap is below rounding there


@summing
def measure_kl(
    f: Array, q: Array, low: Array, high: Array, anchor: float, rate: float, shift: float, scale: float
) -> tuple[float, float, float, float, float]:
    """Σp - Σq, D, and over the entries between their bounds Σp, Σp·g, Σp·g², with g about the anchor."""
    excess, divergence, m0, m1, m2 = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        h = f[i] - anchor
        x = rate * h - shift
        a, b = low[i], high[i]
        y = smaller(larger(x, a), b)
        near = smaller(larger(y, -1.0), 1.0)
        line = exp_minus_line(near)
        e = times_exp(q[i], y)
        # In terms that keep the digits of a small divergence, as in kl.tilt_exactly.
        excess += q[i] * (line + near) if near == y else e - q[i]
        divergence += q[i] * (near * (line + near) - line) if near == y else e * (y - 1.0) + q[i]
        m = e if x > a and x < b else 0.0
        g = h * scale
        m0 += m
        m1 += m * g
        m2 += m * g * g
    return excess, divergence, m0, m1, m2


@summing
def measure_quadratic(
    f: Array, s: Array, low: Array, high: Array, anchor: float, rate: float, shift: float, scale: float
) -> tuple[float, float, float, float, float]:
    """Σp - Σq, D, and over the entries between their bounds Σs, Σs·g, Σs·g², likewise."""
    excess, divergence, m0, m1, m2 = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        h = f[i] - anchor
        x = rate * h - shift
        a, b = low[i], high[i]
        y = smaller(larger(x, a), b)
        z = s[i] * y
        excess += z
        divergence += z * y
        m = s[i] if x > a and x < b else 0.0
        g = h * scale
        m0 += m
        m1 += m * g
        m2 += m * g * g
    return excess, divergence, m0, m1, m2


@kernel
def balance(
    mode: int,
    f: Array,
    q: Array,
    s: Array,
    low: Array,
    high: Array,
    anchor: float,
    rate: float,
    shift: float,
    scale: float,
    tolerance: float,
) -> tuple[float, float, float, float, float, float, int]:
    """The shift that makes Σp = 1 at this θ, with what `measure` finds there, and the number of passes.

    Newton's method, for KL on eˢʰⁱᶠᵗ, in which Σp is linear between kinks, within a bracket.
    """
    least, most, stride, before, passes = -np.inf, np.inf, 1.0, np.inf, 0
    while True:
        passes += 1
        if mode == KL:
            excess, divergence, m0, m1, m2 = measure_kl(f, q, low, high, anchor, rate, shift, scale)
        else:
            excess, divergence, m0, m1, m2 = measure_quadratic(f, s, low, high, anchor, rate, shift, scale)
        stalled = abs(excess) <= 1e-12 and abs(excess) > 0.5 * before
        if abs(excess) <= tolerance or stalled or passes >= PASSES:
            break
        before = abs(excess)
        if excess > 0.0:
            least = shift
        else:
            most = shift
        part = excess / m0 if m0 > 0.0 else np.nan
        step = shift + (part if mode == QUADRATIC else (-np.log1p(-part) if part < 1.0 else np.nan))
        if not (step > least and step < most) or passes > HALVINGS:
            if least > -np.inf and most < np.inf:
                step = 0.5 * least + 0.5 * most
            else:
                step = shift + stride if excess > 0.0 else shift - stride
                stride *= 4.0
        if step in (shift, least, most):
            break
        shift = step
    return shift, excess, divergence, m0, m1, m2, passes


@kernel
def fill(
    mode: int,
    f: Array,
    q: Array,
    s: Array,
    low: Array,
    high: Array,
    lower: Array,
    width: Array,
    anchor: float,
    rate: float,
    shift: float,
    p: Array,
) -> None:
    """Write p, exactly at its bounds where x is beyond theirs."""
    for i in range(f.size):
        x = rate * (f[i] - anchor) - shift
        upper = lower[i] + width[i]
        between = times_exp(q[i], smaller(x, high[i])) if mode == KL else q[i] + s[i] * x
        between = smaller(larger(between, lower[i]), upper)
        p[i] = lower[i] if x <= low[i] else (upper if x >= high[i] else between)


@summing
def totals(f: Array, p: Array, top: float) -> tuple[float, float]:
    """Σp·(f - top) and Σp."""
    value, total = 0.0, 0.0
    for i in range(f.size):
        value += p[i] * (f[i] - top)
        total += p[i]
    return value, total


@summing
def box_bound(f: Array, lower: Array, width: Array, t: float) -> float:
    """Σ max(lower·(f-t), upper·(f-t)): the box's bound, from t."""
    bound = 0.0
    for i in range(f.size):
        h = f[i] - t
        bound += lower[i] * h + width[i] * larger(h, 0.0)
    return bound


@kernel
def exactness(size: int) -> float:
    """How near to 1 a sum of that many numbers can be brought."""
    least: float = 1e-15 * (1.0 + np.sqrt(size) / 64.0)
    return least


@kernel
def search(
    mode: int,
    f: Array,
    q: Array,
    s: Array,
    low: Array,
    high: Array,
    radius: float,
    least: float,
    most: float,
    scale: float,
    anchor: float,
    theta: float,
    shift: float,
) -> tuple[float, float, float, float, float, int]:
    """θ with D = radius, or one below with a gap of rounding size: (θ, anchor, shift, Σp - 1, D, passes).

    `least` and `most` are D at θ = 0 and ∞; theta, anchor and shift are the start.
    """
    twice = 1.0 if mode == KL else 2.0  # η = 1/(twice·θ)
    exact = exactness(f.size)
    below, above, stride, before, off = 0.0, np.inf, 4.0, np.inf, 1.0
    rounds, passes = 0, 0
    while True:
        rounds += 1
        # 1. ν for this θ, no more exact than the distance from the radius makes worthwhile.
        tolerance = max(exact, min(LOOSE, 1e-4 * abs(off)))
        while True:
            shift, excess, divergence, m0, m1, m2, more = balance(
                mode, f, q, s, low, high, anchor, theta * scale, shift, scale, tolerance
            )
            passes += more
            off = divergence - radius
            if tolerance == exact or abs(off) > 1e3 * tolerance:
                break
            tolerance = exact
        # 2. Stop if D is the radius, or if θ is feasible and good enough.
        unit = twice * theta  # a difference of D is this many times as large as the gap it makes
        if abs(off) <= max(min(AIM * radius, 1e-11 * unit), 3e-16 * radius):
            break
        if rounds > PATIENCE and off <= OVER * radius and -off <= 1e-13 * unit:
            break
        # 3. Narrow the bracket.
        if off > 0.0:
            above = theta
        else:
            below = max(below, theta)
        # 4. Newton's step on the odds of D between its ends; strides or the middle of log θ if it fails.
        spread = m2 - m1 * m1 / m0 if m0 > 0.0 else 0.0
        move = newton(divergence - least, unit * theta * spread, radius - least, most - least)
        step = theta * exp(move) if abs(move) < 300.0 else np.nan
        if above == np.inf:
            if not (step > below and step < HIGHEST):
                step = theta * stride
                stride *= stride
        elif below == 0.0:
            if not (step > 0.0 and step < above):
                step = theta / stride
                stride *= 4.0
        elif not (step > below and step < above) or abs(move) > 0.5 * before:
            step = np.sqrt(below) * np.sqrt(above)
            before = np.log(above / below)
        else:
            before = abs(move)
        # 5. No rounds or numbers left: finish on the feasible side.
        ended = rounds >= ROUNDS or not (step > below and step < above) or theta > HIGHEST
        if ended and (off <= OVER * radius or below == 0.0):
            break
        if ended:
            step = below
        # 6. Move the anchor to where ν is expected.
        shift += (step - theta) * (m1 / m0 if m0 > 0.0 else shift / theta)
        moved = anchor + shift / (step * scale)
        shift -= step * scale * (moved - anchor)
        anchor, theta = moved, step
        if ended:
            shift, excess, divergence, m0, m1, m2, more = balance(
                mode, f, q, s, low, high, anchor, theta * scale, shift, scale, exact
            )
            passes += more
            break
    return theta, anchor, shift, excess, divergence, passes


@kernel
def solve(
    mode: int,
    f: Array,
    q: Array,
    s: Array,
    low: Array,
    high: Array,
    lower: Array,
    width: Array,
    rest: float,
    radius: float,
    start: float,
    least: float,
    warm: Array,
    p: Array,
    out: Array,
    keys: Array,
    weights: Array,
    sample: Array,
) -> None:
    """Solve one row.

    `start` and `least` are the shift and D at θ = 0, `warm` is (η, ν) of a similar problem, or NaN.
    """
    # 1. Read the losses; answers that need no search: equal losses, and a radius of 0.
    bottom, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    spread = top - bottom
    if spread == 0.0:
        fill(mode, f, q, s, low, high, lower, width, top, 0.0, start, p)
        _, total = totals(f, p, top)
        finish(out, top, 0.0, 0.0, abs(total - 1.0), 0, spread)
        out[DUAL], out[DUAL + 1] = 0.0, top
        return
    if radius == 0.0:
        copy(q, p)
        value, total = totals(f, p, top)
        finish(out, top, value, value, abs(total - 1.0), 1, spread)
        out[DUAL], out[DUAL + 1] = np.inf, top + value
        return
    # 2. The box's own answer, of those the one nearest to q: the answer if it is within the radius.
    scale, exact = 1.0 / spread, exactness(f.size)
    t, _, _ = threshold(f, width, rest, keys, weights, sample)
    steep = min(STEEP * scale, 1e305)
    shift, _, most, _, _, _, passes = balance(mode, f, q, s, low, high, t, steep, 0.0, scale, exact)
    if most <= radius * (1.0 + 1e-12):
        fill(mode, f, q, s, low, high, lower, width, t, steep, shift, p)
        value, total = totals(f, p, top)
        bound = (t - top) + box_bound(f, lower, width, t)
        violation = max(abs(total - 1.0), (most - radius) / max(1.0, radius))
        finish(out, top, value, bound, violation, passes, spread)
        out[DUAL], out[DUAL + 1] = 0.0, t
        return
    # 3. Start from the curvature at θ = 0, or from an earlier answer if it is of this size.
    twice = 1.0 if mode == KL else 2.0
    mean, _ = totals(f, q, top)  # near ν while θ is small, so that the variance keeps its digits
    anchor = top + mean
    shift, _, _, m0, m1, m2, more = balance(mode, f, q, s, low, high, anchor, 0.0, start, scale, LOOSE)
    passes += more + 1
    variance = m2 - m1 * m1 / m0 if m0 > 0.0 else 0.0
    theta = 1.0
    if variance > 0.0 and radius > least:
        theta = min(np.sqrt(2.0 * (radius - least) / (twice * variance)), HIGHEST)
    earlier = spread / (twice * warm[0])
    if earlier > 1e-4 * theta and earlier < 1e4 * theta and warm[1] >= bottom - spread and warm[1] <= top:
        theta, anchor, shift = earlier, warm[1], 0.0
    elif m0 > 0.0:
        shift += theta * m1 / m0
    # 4. Search for θ, write p, and compute the certificate.
    theta, anchor, shift, excess, divergence, more = search(
        mode, f, q, s, low, high, radius, least, most, scale, anchor, theta, shift
    )
    fill(mode, f, q, s, low, high, lower, width, anchor, theta * scale, shift, p)
    value, total = totals(f, p, top)
    nu = (anchor - top) * scale + shift / theta
    gap = (radius - divergence) / (twice * theta) - nu * excess
    violation = max(abs(total - 1.0), (divergence - radius) / max(1.0, radius))
    finish(out, top, value, value + spread * gap, violation, passes + more, spread)
    out[GAP] = spread * gap
    out[DUAL], out[DUAL + 1] = spread / (twice * theta), anchor + shift * (spread / theta)


@kernel
def run(
    mode: int,
    F: Matrix,
    center: Matrix,
    shape: Matrix,
    low: Matrix,
    high: Matrix,
    lower: Matrix,
    width: Matrix,
    rest: Vector,
    radius: Vector,
    nearest: Matrix,
    warm: Matrix,
    P: Matrix,
    out: Matrix,
) -> None:
    """Solve every row of F; parameters with one row serve all rows."""
    keys, weights = np.empty(F.shape[1]), np.empty(F.shape[1])
    sample = np.empty((2, SAMPLE if F.shape[1] > 96 else 1))
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        solve(
            mode, F[b], center[r], shape[r], low[r], high[r], lower[r], width[r], rest[r], radius[r],
            nearest[r, 0], nearest[r, 1], warm[b if started else 0], P[b], out[b], keys, weights, sample,
        )  # fmt: skip


@entry("P", "out")
@kernel
def kl_rows(
    F: Matrix,
    center: Matrix,
    shape: Matrix,
    low: Matrix,
    high: Matrix,
    lower: Matrix,
    width: Matrix,
    rest: Vector,
    radius: Vector,
    nearest: Matrix,
    warm: Matrix,
    P: Matrix,
    out: Matrix,
) -> None:
    """A KL ball and a box; `shape` is not used."""
    run(KL, F, center, shape, low, high, lower, width, rest, radius, nearest, warm, P, out)


@entry("P", "out")
@kernel
def quadratic_rows(
    F: Matrix,
    center: Matrix,
    shape: Matrix,
    low: Matrix,
    high: Matrix,
    lower: Matrix,
    width: Matrix,
    rest: Vector,
    radius: Vector,
    nearest: Matrix,
    warm: Matrix,
    P: Matrix,
    out: Matrix,
) -> None:
    """A quadratic ball and a box."""
    run(QUADRATIC, F, center, shape, low, high, lower, width, rest, radius, nearest, warm, P, out)


@entry("out")
@kernel
def nearest_rows(mode: int, center: Matrix, shape: Matrix, low: Matrix, high: Matrix, out: Matrix) -> None:
    """For every row the shift at θ = 0, and the divergence of the point of the box nearest to q."""
    for b in range(center.shape[0]):
        q = center[b]
        shift, _, divergence, _, _, _, _ = balance(
            mode, q, q, shape[b], low[b], high[b], 0.0, 0.0, 0.0, 1.0, exactness(q.size)
        )
        out[b, 0], out[b, 1] = shift, divergence
