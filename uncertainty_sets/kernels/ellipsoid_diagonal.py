"""Ellipsoid with a diagonal shape: p = max(0, q + Q(f - ν)/τ), with ν and τ such that Σp = 1 and the
ellipsoid holds with equality.

On a given set A of entries with p > 0 both multipliers come out in closed form; the entries that turn out
negative leave A, and 2 to 12 passes settle it. If the certificate of that is not good enough (weights or
losses of very different size), the slower search in ellipsoid_search.py takes over.

Losses are measured from `base`, the loss of the entry with the largest Q, and n = ν - base: ν lies next to
that loss if its Q is far larger than the others', and its h = f - ν then needs more digits than ν has.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.ellipsoid_search import ROUNDING, search
from uncertainty_sets.kernels.jit import entry, kernel, strict, summing
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, OK, STATUS
from uncertainty_sets.kernels.scan import finish, larger, longest_row, losses_of, put, scan

PASSES = 16
EPS = 2.0**-52
SETTLED, STUCK, FEW = range(3)


@strict
def is_positive(g: float, n: float, tau: float, a: float) -> bool:
    """Whether p = q + Q(f - ν)/τ > 0, with a = q/Q."""
    return (g - n) + tau * a > 0.0


@summing
def sums(
    f: Array, q: Array, Q: Array, a: Array, base: float, n: float, tau: float
) -> tuple[int, float, float, float, float, float]:
    """Over A = {p > 0}: count, ΣQ, ΣQh, ΣQh²; over the rest: Σq, Σq·a."""
    count, s0, s1, s2, mass, cost = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        g = f[i] - base
        inside = is_positive(g, n, tau, a[i])
        count += inside
        w, lost = Q[i], q[i]  # read whatever is chosen, for the vector units
        w = w if inside else 0.0
        lost = 0.0 if inside else lost
        h = g - n
        s0 += w
        s1 += w * h
        s2 += w * h * h
        mass += lost
        cost += lost * a[i]
    return count, s0, s1, s2, mass, cost


@summing
def overview(
    f: Array, q: Array, Q: Array, a: Array, base: float, unit: float, top: float
) -> tuple[float, float, float, float, float, float]:
    """Over all: ΣQ, ΣQg, ΣQg², g = (f - base)·unit; over the largest losses: ΣQ, Σq; over the rest: Σq·a."""
    s0, s1, s2, width, mass, cost = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        g = (f[i] - base) * unit
        w, x = Q[i], q[i]
        s0 += w
        s1 += w * g
        s2 += w * g * g
        at = f[i] == top
        width += w if at else 0.0
        mass += x if at else 0.0
        cost += 0.0 if at else x * a[i]
    return s0, s1, s2, width, mass, cost


@strict
def moved(q: float, d: float) -> float:
    """max(0, q + d), rounded towards q: if Q is tiny, one unit in the last place can leave the ellipsoid."""
    x = q + d
    less = x - 2.3e-16 * abs(x) if d > 0.0 else x + 2.3e-16 * abs(x)
    less = q if abs(less - q) > abs(d) else less
    x = less if abs(x - q) > abs(d) else x
    return x if x > 0.0 else 0.0


@summing
def write(
    f: Array, q: Array, Q: Array, a: Array, radius: float, base: float, unit: float, n: float, tau: float,
    add: float, careful: bool, p: Array,
) -> tuple[float, float, float, float, float]:  # fmt: skip
    """Write p = max(0, q + Q((f - ν)/τ + add)); return value, bound, Σ(p-q)²/Q, Σp, and ΣQ where p > 0.

    `add` corrects Σp. The bound is ν + qᵀy + √(radius·ΣQy²) with y = max(f - ν, -τa). Losses, n and τ are in
    units of 1/unit. The bound is that of ν as rounded to the size of the losses, since `dual` holds that ν.
    """
    value, total, linear, square, size, width = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    rate, nu = 1.0 / tau, base + n / unit
    for i in range(f.size):
        g = (f[i] - base) * unit
        d = Q[i] * ((g - n) * rate + add)
        x = moved(q[i], d) if careful else larger(0.0, q[i] + d)
        width += Q[i] if x > 0.0 else 0.0
        p[i] = x
        total += x
        value += x * g
        y = larger((f[i] - nu) * unit, -tau * a[i])
        linear += q[i] * y
        square += Q[i] * y * y
        d = x - q[i]
        size += d * d / Q[i]
    bound = (nu - base) * unit + linear + np.sqrt(radius * square)
    return value, bound, size, total, width


@kernel
def violation(size: float, radius: float, total: float) -> float:
    """The largest residual of p >= 0 with that distance and sum."""
    return max(abs(total - 1.0), (size - radius) / max(1.0, radius))


@kernel
def complete(
    q: Array, Q: Array, radius: float, size: float, total: float, p: Array
) -> tuple[int, float, float, float]:
    """Add what Σp lacks to the heaviest entry with p > 0; return its place, what was added, Σ(p-q)²/Q, Σp.

    Nothing is added if even that entry is so light that p would leave the ellipsoid.
    """
    k = -1
    for i in range(p.size):
        if p[i] > 0.0 and (k < 0 or Q[i] > Q[k]):
            k = i
    after = max(0.0, p[k] + (1.0 - total))
    added = after - p[k]
    farther = size + added * ((p[k] - q[k]) + (after - q[k])) / Q[k]
    if violation(farther, radius, total + added) > max(1e-12, violation(size, radius, total)):
        return k, 0.0, size, total
    p[k] = after
    return k, added, farther, total + added


@kernel
def write_all(
    f: Array, q: Array, Q: Array, a: Array, radius: float, base: float, unit: float, n: float, tau: float,
    precise: float, careful: bool, p: Array,
) -> tuple[float, float, float]:  # fmt: skip
    """Write p; return value, bound and violation. Σp is corrected if off by more than 1e-13 or `precise`."""
    # 1. p as the multipliers give it.
    value, bound, size, total, width = write(f, q, Q, a, radius, base, unit, n, tau, 0.0, careful, p)
    # 2. Σp off: the same on all positive entries, in proportion to Q.
    if abs(total - 1.0) > 1e-13 and width > 0.0:
        add = (1.0 - total) / width
        value, bound, size, total, width = write(f, q, Q, a, radius, base, unit, n, tau, add, careful, p)
    # 3. The last digits of Σp on one entry; more than 1e-10 is not rounding.
    if precise < abs(total - 1.0) <= 1e-10:
        k, added, size, total = complete(q, Q, radius, size, total, p)
        value += added * ((f[k] - base) * unit)
    return value, bound, violation(size, radius, total)


@kernel
def write_face(
    f: Array, q: Array, Q: Array, radius: float, top: float, step: float, precise: float, p: Array
) -> float:
    """Write p = q + Q·step on the largest losses and 0 elsewhere; return its violation."""
    total, size = 0.0, 0.0
    for i in range(f.size):
        p[i] = moved(q[i], Q[i] * step) if f[i] == top else 0.0
        d = p[i] - q[i]
        total += p[i]
        size += d * d / Q[i]
    if precise < abs(total - 1.0) <= 1e-10:
        _, _, size, total = complete(q, Q, radius, size, total, p)
    return violation(size, radius, total)


@kernel
def settle(
    f: Array, q: Array, Q: Array, a: Array, radius: float, mass0: float, cost0: float, base: float, n: float,
    tau: float, few: int,
) -> tuple[float, float, int, int]:  # fmt: skip
    """Repeat: A from ν and τ, then ν and τ from A, until A stays, or has at most `few` entries.

    mass0 and cost0 are Σq and Σq·a of entries that are at 0 and not among those given. Returns n, τ, the
    passes and the outcome.
    """
    last, width = -1, 0.0
    for k in range(1, PASSES + 1):
        # 1. A and its sums; done if A is the last one.
        count, s0, s1, s2, mass, cost = sums(f, q, Q, a, base, n, tau)
        if count == last and abs(s0 - width) <= 1e-13 * s0:
            return n, tau, k, SETTLED
        if count == 0:
            return n, tau, k, STUCK
        # 2. The closed form of ν and τ on A.
        last, width = count, s0
        mass += mass0
        left = radius - cost - cost0 - mass * mass / s0
        square = s2 - s1 * s1 / s0
        if not (left > 0.0 and square > 0.0):
            return n, tau, k, STUCK
        tau = np.sqrt(square / left)
        n += (s1 - tau * mass) / s0
        if count <= few:
            return n, tau, k, FEW
    return n, tau, PASSES, STUCK


@kernel
def settle_few(
    f: Array, q: Array, Q: Array, a: Array, radius: float, base: float, n: float, tau: float
) -> tuple[float, float, int, bool]:
    """`settle`; if few entries stay positive, they are settled by themselves before another pass over all."""
    # 1. Over all entries, until few are left.
    n, tau, passes, outcome = settle(f, q, Q, a, radius, 0.0, 0.0, base, n, tau, f.size // 8)
    if outcome == FEW:
        # 2. Gather those; the others count by their sums.
        few, mass0, cost0 = np.empty((4, f.size // 4)), 0.0, 0.0
        count = 0
        for i in range(f.size):
            if count < few.shape[1] and is_positive(f[i] - base, n, tau, a[i]):
                few[0, count], few[1, count], few[2, count], few[3, count] = f[i], q[i], Q[i], a[i]
                count += 1
            else:
                mass0 += q[i]
                cost0 += q[i] * a[i]
        # 3. Settle among them, then over all entries from there.
        x = few[:, :count]
        n1, tau1, more, inner = settle(x[0], x[1], x[2], x[3], radius, mass0, cost0, base, n, tau, -1)
        if inner == SETTLED:
            n, tau = n1, tau1
        n, tau, again, outcome = settle(f, q, Q, a, radius, 0.0, 0.0, base, n, tau, -1)
        passes += 1 + again + more * count // f.size
    return n, tau, passes, outcome == SETTLED


@kernel
def write_center(
    f: Array, q: Array, Q: Array, radius: float, base: float, unit: float, n: float, p: Array
) -> tuple[float, float]:
    """Write p = q; return its value, and the bound at ν with τ = ∞."""
    value, square, nu = 0.0, 0.0, base + n / unit
    for i in range(f.size):
        p[i] = q[i]
        value += q[i] * ((f[i] - base) * unit)
        y = (f[i] - nu) * unit
        square += Q[i] * y * y
    return value, value + np.sqrt(radius * square)


@kernel
def solve(
    f: Array, q: Array, Q: Array, a: Array, radius: float, heavy: int, nu: float, rate: float, p: Array,
    out: Array,
) -> None:  # fmt: skip
    """Solve one row; `heavy` is where Q is largest, nu and rate are ν and τ to start from, or NaN."""
    # 1. Read the losses.
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    # 2. Units: losses from `base` and over their spread.
    spread, base = top - least, f[heavy]
    scale = spread if spread > 0.0 else 1.0
    unit = 1.0 / scale
    # Losses far from 0 multiply the error of Σp in the value, and ν is rounded to their size.
    offset = max(abs(top), abs(least)) * unit
    precise, rounding = max(2.0 * EPS, 1e-11 / max(1.0, offset)), 2.0 * EPS * offset
    # 3. Answers that need no search.
    s0, s1, s2, width, mass, cost = overview(f, q, Q, a, base, unit, top)
    n, square = s1 / s0, s2 - s1 * (s1 / s0)
    rest = max(0.0, 1.0 - mass)
    if cost + rest * (rest / width) <= radius * (1.0 + ROUNDING):
        # The largest losses alone are within reach: the nearest point of that face.
        excess = write_face(f, q, Q, radius, top, rest / width, precise, p)
        finish(out, top, 0.0, 0.0, excess, 1, spread)
        out[DUAL], out[DUAL + 1] = top, 0.0
        return
    if radius * square <= 1e-30:
        # A radius that moves nothing by more than rounding.
        value, bound = write_center(f, q, Q, radius, base, unit, n, p)
        finish(out, base, value * scale, bound * scale, abs(p.sum() - 1.0), 1, spread)
        out[DUAL], out[DUAL + 1] = base + n * scale, np.inf
        return
    # 4. Start from the multipliers without p >= 0, or from an earlier answer if it is of this size.
    n, tau = n * scale, np.sqrt(square / radius) * scale
    if abs(nu - base) <= 2.0 * spread and rate > 1e-6 * tau and rate < 1e6 * tau:
        n, tau = nu - base, rate
    # 5. Settle the active set, and write p.
    n, tau, passes, settled = settle_few(f, q, Q, a, radius, base, n, tau)
    n, tau = n * unit, tau * unit
    value, bound, excess = write_all(f, q, Q, a, radius, base, unit, n, tau, precise, False, p)
    # 6. A poor certificate: the careful search instead.
    if not (settled and abs(bound - value) <= 1e-12 + rounding and excess <= 1e-11):
        base, n, V, more = search(f, q, Q, radius, top, unit)
        passes += more + 1
        tau = V / radius
        value, bound, excess = write_all(f, q, Q, a, radius, base, unit, n, tau, precise, True, p)
    finish(out, base, value * scale, bound * scale, excess, passes + 2, spread)
    out[DUAL], out[DUAL + 1] = base + n / unit, tau * scale


@entry("P", "out")
@kernel
def rows(
    F: Matrix, center: Matrix, shape: Matrix, ratio: Matrix, radius: Vector, heavy: Indices, warm: Matrix,
    P: Matrix, out: Matrix,
) -> None:  # fmt: skip
    """Solve every row of F; parameters with one row serve all rows."""
    many, shapes, started = center.shape[0] > 1, shape.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r, s, w = b if many else 0, b if shapes else 0, b if started else 0
        solve(F[b], center[r], shape[s], ratio[r], radius[r], heavy[s], warm[w, 0], warm[w, 1], P[b], out[b])


@kernel
def weigh(q: Array, given: Array, Q: Array, a: Array) -> int:
    """Write the diagonal of a row (one for all, or one each) and a = q/Q; return where Q is largest."""
    heavy = 0
    for i in range(q.size):
        Q[i] = given[i if given.size > 1 else 0]
        a[i] = q[i] / Q[i]
        heavy = i if Q[i] > Q[heavy] else heavy
    return heavy


@entry("P", "out")
@kernel
def ragged(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, center: Vector, shape: Vector, radius: Vector, warm: Matrix, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Solve the rows from `first` to `after`, each with its own entries (scan.py)."""
    most = longest_row(indptr, first, after)
    scratch, one = np.empty(most), np.full(COLUMNS, np.nan)
    shapes, ratios = np.empty(most), np.empty(most)
    many, started = radius.size > 1, warm.shape[1] > 1
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        q, Q, a = center[i:j], shapes[: j - i], ratios[: j - i]
        heavy = weigh(q, shape[i:j] if shape.size > 1 else shape, Q, a)
        nu, tau = warm[0, b if started else 0], warm[1, b if started else 0]
        solve(f, q, Q, a, radius[b if many else 0], heavy, nu, tau, P[i:j], one)
        put(one, out, b)
