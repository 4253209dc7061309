"""χ², the other way round: the least radius at which pᵀf reaches a target.

p = q·(g - t)₊/Σ q·(g - t)₊ has the least divergence among all p with its mean, so t is the root of

    H(t) = Σ q·(g - t)₊·(g - aim)

which is concave and piecewise linear left of the aim: Newton's method comes from the left, and its steps end
at the root's own piece. Any t < aim proves (aim - t)²/Σ q·(g - t)₊² - 1 as a lower bound.

If t is far below all losses, the radius is (aim - mean)²/variance, and forms about the mean keep the digits.
Otherwise a loss with nearly all of the mass may be so near to t that g - t has none of them left: on its
piece t is measured from the smallest loss above it, the anchor, as s = anchor - t.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.chi_square import variance_about, write
from uncertainty_sets.kernels.jit import comparing, entry, kernel, summing
from uncertainty_sets.kernels.kl import EPS, moments, totals
from uncertainty_sets.kernels.layout import OK
from uncertainty_sets.kernels.least_radius import answered_at_once, conclude, exact
from uncertainty_sets.kernels.radius_layout import STATUS
from uncertainty_sets.kernels.scan import larger, scan, smaller

MOST_PASSES = 80


@summing
def sums(f: Array, q: Array, top: float, scale: float, aim: float, t: float) -> tuple[float, float, float]:
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
def search(f: Array, q: Array, top: float, scale: float, aim: float, start: float) -> tuple[float, int]:
    """The root of H right of the start, up to rounding, and the passes."""
    low, high, t, passes = -np.inf, aim, start, 2
    while True:
        off, slope, size = sums(f, q, top, scale, aim, t)
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
def settle(
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
def weigh(
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
def fill(f: Array, q: Array, scale: float, anchor: float, s: float, weight: float, p: Array) -> None:
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
def solve(f: Array, q: Array, target: float, p: Array, out: Array) -> None:
    """Solve one row; losses where q = 0 repeat one where q > 0."""
    # 1. Read the losses, and answer what needs no search.
    least, top, status = scan(f)
    out[STATUS] = status
    if status != OK:
        return
    spread = top - least
    scale = 1.0 / spread if spread > 0.0 else 0.0
    aim = (target - top) * scale
    mean, _, mass, rest = moments(f, q, top, scale)
    if answered_at_once(q, target, top, spread, aim, mean, p, out):
        return
    if target == top:
        for i in range(f.size):
            p[i] = q[i] / mass if f[i] == top else 0.0
        exact(out, rest / mass, top, np.inf)
        return
    # 2. t is far below all losses.
    variance, rise = variance_about(f, q, top, scale, mean), aim - mean
    distance = variance / rise
    t = mean - distance
    if t <= -1.5:
        value, total = write(f, q, top, scale, t, 1.0 / distance, mean, p)
        radius = variance / (distance * distance)
        lower = (rise * rise + 2.0 * rise * distance - variance) / (variance + distance * distance)
        slope, short = 2.0 / distance, rise - value
        conclude(out, top, spread, radius, lower, radius - lower, mean + value, short, total, slope, 3)
        return
    # 3. Search for t, and measure it from its anchor.
    passes, anchor = 2, least
    if t > -1.0:
        t, passes = search(f, q, top, scale, aim, t)
        anchor, _ = neighbour(f, least, scale, t + 1.0)
        anchor = anchor if anchor < np.inf else top
    anchor, s, more = settle(f, q, top, scale, aim, anchor)
    # 4. Write p, and compute the certificate.
    first, second, off = weigh(f, q, top, scale, aim, anchor, s)
    fill(f, q, scale, anchor, s, 1.0 / first, p)
    radius = divergence_of(q, p)
    value, total = totals(f, p, top, scale, 0.0)
    ahead = (target - anchor) * scale + s
    gap = off / first * (second / first + ahead) / second
    conclude(
        out, top, spread, radius, radius - gap, gap, value, aim - value, total, 2.0 / first, passes + more
    )  # fmt: skip


@entry("P", "out")
@kernel
def rows(F: Matrix, center: Matrix, target: Vector, P: Matrix, out: Matrix) -> None:
    """Solve every row of F; a centre with one row serves all rows."""
    many = center.shape[0] > 1
    for b in range(F.shape[0]):
        solve(F[b], center[b if many else 0], target[b], P[b], out[b])
