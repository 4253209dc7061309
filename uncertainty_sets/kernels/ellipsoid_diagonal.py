"""Ellipsoid with a diagonal shape: p = max(0, q + Q(f - ν)/τ), with ν and τ such that Σp = 1 and the
ellipsoid holds with equality.

On a given set A of entries with p > 0 both multipliers come out in closed form; the entries that turn out
negative leave A, and 2 to 12 passes settle it. Should that cycle, a nested search (ν for each τ, then τ)
brings them close first.

Losses are measured from `base`, the loss of the entry with the largest Q, and n = ν - base: ν lies next to
that loss where its Q is far larger than the others', and its h = f - ν then needs more digits than ν has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.base import Array
from uncertainty_sets.kernels.jit import kernel, strict, summing
from uncertainty_sets.kernels.scan import DUAL, NOT_SOLVED, OK, STATUS, finish, larger, scan

PASSES = 40
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
def face(f: Array, q: Array, Q: Array, a: Array, top: float) -> tuple[float, float, float]:
    """Over the largest losses: ΣQ, Σq; over the rest: Σq·a."""
    width, mass, cost = 0.0, 0.0, 0.0
    for i in range(f.size):
        at = f[i] == top
        width += Q[i] if at else 0.0
        mass += q[i] if at else 0.0
        cost += 0.0 if at else q[i] * a[i]
    return width, mass, cost


@strict
def as_given(base: float, n: float) -> float:
    """n after ν = base + n has been rounded: the bound is computed for the ν that is handed out."""
    return (base + n) - base


@summing
def write(
    f: Array,
    q: Array,
    Q: Array,
    a: Array,
    radius: float,
    base: float,
    n: float,
    tau: float,
    add: float,
    p: Array,
) -> tuple[float, float, float, float, float]:
    """p, its value, the bound ν + qᵀy + √(radius·ΣQy²) with y = max(f - ν, -τa), the violation, Σp, and ΣQ
    where p > 0. `add` corrects Σp for the rounding of ν: p = max(0, q + Q((f - ν)/τ + add)).
    """
    value, total, linear, square, size, width = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    rate = 1.0 / tau
    given = as_given(base, n)
    for i in range(f.size):
        g = f[i] - base
        h = g - n
        x = larger(0.0, q[i] + Q[i] * (h * rate + add))
        width += Q[i] if x > 0.0 else 0.0
        p[i] = x
        total += x
        value += x * g
        y = larger(g - given, -tau * a[i])
        linear += q[i] * y
        square += Q[i] * y * y
        d = x - q[i]
        size += d * d / Q[i]
    bound = given + linear + np.sqrt(radius * square)
    return value, bound, max(abs(total - 1.0), (size - radius) / max(1.0, radius)), total, width


@kernel
def write_twice(
    f: Array, q: Array, Q: Array, a: Array, radius: float, base: float, n: float, tau: float, p: Array
) -> tuple[float, float, float]:
    """The same, and once more with Σp corrected where it is off."""
    value, bound, violation, total, width = write(f, q, Q, a, radius, base, n, tau, 0.0, p)
    if abs(total - 1.0) > 1e-13 and width > 0.0:
        add = (1.0 - total) / width
        value, bound, violation, total, width = write(f, q, Q, a, radius, base, n, tau, add, p)
    return value, bound, violation


@summing
def mass_and_slope(
    f: Array, q: Array, Q: Array, a: Array, base: float, n: float, tau: float
) -> tuple[float, float, float]:
    """Σp, -dΣp/dν and Σ(p-q)²/Q at ν, τ."""
    mass, slope, size = 0.0, 0.0, 0.0
    for i in range(f.size):
        h = f[i] - base - n
        inside = h + tau * a[i] > 0.0
        d = Q[i] * h / tau if inside else -q[i]
        mass += q[i] + d
        slope += Q[i] / tau if inside else 0.0
        size += d * d / Q[i]
    return mass, slope, size


@kernel
def nested(
    f: Array, q: Array, Q: Array, a: Array, radius: float, base: float, spread: float, tau: float
) -> tuple[float, float]:
    """ν and τ by bisection on log τ, with ν by Newton's method for each: slow and sure."""
    low, high, n = 0.0, np.inf, -spread
    for _ in range(120):
        n = (
            -2.0 * spread - tau * a.max()
        )  # every entry is positive here and Σp >= 1: Newton comes from the left
        for _ in range(200):
            mass, slope, size = mass_and_slope(f, q, Q, a, base, n, tau)
            step = (mass - 1.0) / slope if slope > 0.0 else 0.0
            if step <= 1e-15 * spread:
                break
            n += step
        if size > radius:
            low = tau
        else:
            high = tau
        if high < np.inf and high - low <= 1e-12 * high:
            break
        if high == np.inf:
            tau *= 4.0
        elif low == 0.0:
            tau *= 0.25
        else:
            tau = np.sqrt(low * high)
    return n, tau


@kernel
def settle(
    f: Array,
    q: Array,
    Q: Array,
    a: Array,
    radius: float,
    mass0: float,
    cost0: float,
    base: float,
    n: float,
    tau: float,
    few: int,
) -> tuple[float, float, int, int]:
    """Repeat: A from ν and τ, then ν and τ from A, until A stays, or has at most `few` entries.

    mass0 and cost0 are Σq and Σq·a of entries that are at 0 and not among those given.
    """
    last, width = -1, 0.0
    for k in range(1, PASSES + 1):
        count, s0, s1, s2, mass, cost = sums(f, q, Q, a, base, n, tau)
        if count == last and abs(s0 - width) <= 1e-13 * s0:
            return n, tau, k, SETTLED
        if count == 0:
            return n, tau, k, STUCK
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
    """The same; where few entries stay positive they are settled by themselves before a look at all again."""
    n, tau, passes, outcome = settle(f, q, Q, a, radius, 0.0, 0.0, base, n, tau, f.size // 8)
    if outcome == FEW:
        few, mass0, cost0 = np.empty((4, f.size // 4)), 0.0, 0.0
        count = 0
        for i in range(f.size):
            if count < few.shape[1] and is_positive(f[i] - base, n, tau, a[i]):
                few[0, count], few[1, count], few[2, count], few[3, count] = f[i], q[i], Q[i], a[i]
                count += 1
            else:
                mass0 += q[i]
                cost0 += q[i] * a[i]
        x = few[:, :count]
        n1, tau1, more, inner = settle(x[0], x[1], x[2], x[3], radius, mass0, cost0, base, n, tau, -1)
        if inner == SETTLED:
            n, tau = n1, tau1
        n, tau, again, outcome = settle(f, q, Q, a, radius, 0.0, 0.0, base, n, tau, -1)
        passes += 1 + again + more * count // f.size
    return n, tau, passes, outcome == SETTLED


@kernel
def at_center(
    f: Array, q: Array, Q: Array, radius: float, base: float, n: float, p: Array
) -> tuple[float, float]:
    """p = q: its value, and the bound at ν with τ = ∞."""
    value, square = 0.0, 0.0
    for i in range(f.size):
        p[i] = q[i]
        h = f[i] - base
        value += q[i] * h
        square += Q[i] * (h - n) * (h - n)
    return value, value + np.sqrt(radius * square)


@kernel
def solve(
    f: Array,
    q: Array,
    Q: Array,
    a: Array,
    radius: float,
    heavy: int,
    nu: float,
    rate: float,
    p: Array,
    out: Array,
) -> None:
    """One row; `heavy` is where Q is largest, nu and rate are ν and τ to start from, or NaN."""
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    spread, base = top - least, f[heavy]
    below = -2.0 * spread  # here every entry counts as positive
    _, s0, s1, s2, _, _ = sums(f, q, Q, a, base, below, 0.0)
    n, square = below + s1 / s0, s2 - s1 * s1 / s0
    if radius * square <= (1e-15 * spread) * (1e-15 * spread):
        # All losses equal, or a radius that moves nothing by more than rounding.
        value, bound = at_center(f, q, Q, radius, base, n, p)
        finish(out, base, value, bound, abs(p.sum() - 1.0), 1, spread)
        out[DUAL], out[DUAL + 1] = base + n, np.inf
        return
    width, mass, cost = face(f, q, Q, a, top)
    rest = max(0.0, 1.0 - mass)
    if rest * rest / width + cost <= radius:
        # The largest losses alone are within reach: the nearest point of that face.
        total = 0.0
        for i in range(f.size):
            p[i] = q[i] + Q[i] * (rest / width) if f[i] == top else 0.0
            total += p[i]
        finish(out, top, 0.0, 0.0, abs(total - 1.0), 1, spread)
        out[DUAL], out[DUAL + 1] = top, 0.0
        return
    # The bound is for ν as rounded to the size of the losses, which costs it this much.
    rounding = 4e-16 * (abs(base) + spread) * (1.0 + np.sqrt(radius * s0))
    tau = np.sqrt(square / radius)
    if abs(nu - base) <= 2.0 * spread and rate > 1e-6 * tau and rate < 1e6 * tau:  # else of another problem
        n, tau = nu - base, rate
    n1, tau1, passes, settled = settle_few(f, q, Q, a, radius, base, n, tau)
    value, bound, violation = write_twice(f, q, Q, a, radius, base, n1, tau1, p)
    if not (settled and abs(bound - value) <= 1e-12 * spread + rounding and violation <= 1e-11):
        n2, tau2 = nested(f, q, Q, a, radius, base, spread, tau)
        n1, tau1, more, settled = settle_few(f, q, Q, a, radius, base, n2, tau2)
        passes += more + 1
        value, bound, violation = write_twice(f, q, Q, a, radius, base, n1, tau1, p)
        if not (settled and abs(bound - value) <= 1e-12 * spread + rounding and violation <= 1e-11):
            n1, tau1 = n2, tau2
            value, bound, violation = write_twice(f, q, Q, a, radius, base, n1, tau1, p)
        if not (abs(bound - value) <= 1e-9 * spread + rounding and violation <= 1e-10):
            out[STATUS] = NOT_SOLVED
            return
    finish(out, base, value, bound, violation, passes + 2, spread)
    out[DUAL], out[DUAL + 1] = base + n1, tau1


@kernel
def rows(
    F: Array,
    center: Array,
    shape: Array,
    ratio: Array,
    radius: Array,
    heavy: NDArray[np.intp],
    warm: Array,
    P: Array,
    out: Array,
) -> None:
    """Every row of F; parameters with one row serve all."""
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r, w = b if many else 0, b if started else 0
        solve(F[b], center[r], shape[0], ratio[r], radius[r], heavy[0], warm[w, 0], warm[w, 1], P[b], out[b])
