"""How far p is from each set, by independent formulas in extended precision.

Residuals are scaled by max(1, |right-hand side|), as the sets promise. A p of doubles is known to half a unit
in the last place of each entry. If a set divides by a spread of 1e-20 or multiplies by a distance of 1e100,
that half unit alone can exceed the promise; exactly that much, computed from p, is subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.soak.bounds import distorted

EXACTLY_FROM = 1e-11  # of a residual: rational numbers decide

Long = NDArray[np.longdouble]
Residual = Callable[[Mapping[str, Any], Long, Long], Long]


def simplex(p: Long) -> Long:
    """|Σp - 1| and the largest negative entry."""
    return np.asarray(np.maximum(np.abs(p.sum(axis=1) - 1.0), np.maximum(-p.min(axis=1), 0.0)))


def scaled(excess: Long, limit: Long) -> Long:
    """The excess over a limit, at least 0, over max(1, limit)."""
    return np.asarray(np.maximum(excess - limit, 0.0) / np.maximum(1.0, limit))


def box(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """l <= p <= u."""
    low, high = np.maximum(given["lower"], 0.0), np.minimum(given["upper"], 1.0)
    return np.asarray(np.maximum(np.maximum(low - p, p - high).max(axis=1), 0.0))


def cd_norm(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """|p - q| <= s and Σ|p - q|/s <= budget."""
    q, s = given["center"], given["spread"]
    far = np.maximum(np.abs(p - q) - half, 0.0)
    spent = (far / np.where(s > 0.0, s, np.inf)).sum(axis=1)
    return np.asarray(np.maximum((far - s).max(axis=1), scaled(spent, given["budget"][:, 0])))


def kl(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """Σ p·log(p/q) <= radius, p = 0 where q = 0; as a sum of terms >= 0, which cancels nothing."""
    q = given["center"] / given["center"].sum(axis=1, keepdims=True)
    x = np.maximum(p, 0.0)
    with np.errstate(all="ignore"):
        t = np.where(q > 0.0, x / q, 1.0)
        terms = np.where(t > 0.5, q * (t * np.log1p(t - 1.0) - (t - 1.0)), x * np.log(t) - x + q)
        terms = np.where(x > 0.0, terms, q)
    divergence = np.where(q > 0.0, terms, 0.0).sum(axis=1) + np.where(q > 0.0, x - q, 0.0).sum(axis=1)
    outside = np.where(q > 0.0, 0.0, np.abs(p)).max(axis=1)
    return np.asarray(np.maximum(outside, scaled(divergence, given["radius"][:, 0])))


def ellipsoid(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """Σ(p - q)²/Q <= radius."""
    far = np.maximum(np.abs(p - given["center"]) - half, 0.0)
    return scaled((far * far / given["shape"]).sum(axis=1), given["radius"][:, 0])


def ellipsoid_dense(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """(p - q)ᵀQ⁻¹(p - q) <= radius; half a unit of p is worth 2·|Q⁻¹(p - q)|·half."""
    d = p - given["center"]
    inverse = solve(given["matrix"], d.T).T
    size, rounding = (d * inverse).sum(axis=1), 2.0 * (np.abs(inverse) * half).sum(axis=1)
    found = scaled(size - rounding, given["radius"][:, 0])
    # At a condition of 1e15 elimination in extended precision is off by 1e-7: then by rational numbers.
    for b in np.flatnonzero(found > EXACTLY_FROM):
        size[b] = exactly(given["matrix"], d[b])
    return scaled(size - rounding, given["radius"][:, 0])


def exactly(matrix: Long, d: Long) -> float:
    """dᵀQ⁻¹d in rational numbers."""
    n = d.size
    right = [Fraction(each.as_integer_ratio()[0], each.as_integer_ratio()[1]) for each in d]
    rows = [[Fraction(float(each)) for each in row] + [right[i]] for i, row in enumerate(matrix)]
    total = Fraction(0)
    for k in range(n):  # of L·D·Lᵀ, and the square of each entry of L⁻¹d over that of D
        total += rows[k][n] ** 2 / rows[k][k]
        for i in range(k + 1, n):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
    return float(total)


def solve(matrix: Long, right: Long) -> Long:
    """Q x = b by elimination in extended precision, Q symmetric positive definite."""
    a, x = matrix.copy(), right.copy()
    n = len(a)
    for k in range(n):
        factor = a[k + 1 :, k] / a[k, k]
        a[k + 1 :] -= factor[:, None] * a[k]
        x[k + 1 :] -= factor[:, None] * x[k]
    for k in range(n - 1, -1, -1):
        x[k] = (x[k] - a[k, k + 1 :] @ x[k + 1 :]) / a[k, k]
    return x


def wasserstein(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """∫|P - Q| <= radius, with P - Q summed from the end that is known better.

    Both ends give the same if Σp = Σq; q is rounded, so its sum is 1 only up to half units of its entries.
    An entry of p is its own mass plus what came from elsewhere: half a unit for it, and half for that sum.
    """
    order, half = given["order"], 2.0 * half
    step = np.diff(given["cost"][:, order], axis=1)
    moved, unit = (p - given["center"])[:, order], half[:, order]

    def beyond_rounding(moved: Long, unit: Long) -> Long:
        return np.asarray(np.maximum(np.abs(np.cumsum(moved, axis=1)) - np.cumsum(unit, axis=1), 0.0))

    before = beyond_rounding(moved, unit)[:, :-1]
    after = beyond_rounding(moved[:, ::-1], unit[:, ::-1])[:, ::-1][:, 1:]
    return scaled((np.minimum(before, after) * step).sum(axis=1), given["radius"][:, 0])


def wasserstein_matrix(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """The least transport cost from q to p, by POT's network simplex; half units move at the largest cost."""
    import ot

    cost = np.asarray(given["matrix"], dtype=np.float64)
    unit = float(cost.max()) or 1.0
    distance = np.empty(len(p), dtype=np.longdouble)
    plain = np.ascontiguousarray(cost.T / unit)  # rows are sources there
    for b, row in enumerate(p):
        q = np.asarray(given["center"][b % len(given["center"])], dtype=np.float64)
        mass = np.maximum(np.asarray(row, dtype=np.float64), 0.0)
        distance[b] = ot.emd2(q / q.sum(), mass / mass.sum(), plain, numItermax=10_000_000)
    return scaled(unit * (distance - half.sum(axis=1)), given["radius"][:, 0])


def polyhedron(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """D p <= c."""
    c = given["c"]
    excess = (p @ given["D"].T - c) / np.maximum(1.0, np.where(np.isfinite(c), np.abs(c), 1.0))
    return np.asarray(np.maximum(excess.max(axis=1), 0.0))


def total_variation(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """Σ|p - q| <= 2·radius."""
    return scaled(np.abs(p - given["center"]).sum(axis=1), 2.0 * given["radius"][:, 0])


def weighted_l1(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """Σ w·|p - q| <= radius; an entry that gains mass is a rounded sum of rounded terms."""
    far = np.maximum(np.abs(p - given["center"]) - 2.0 * half, 0.0)
    return scaled((given["weights"] * far).sum(axis=1), given["radius"][:, 0])


def chi_square(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """Σ(p - q)²/q <= radius, p = 0 where q = 0."""
    q = given["center"]
    far = np.maximum(np.abs(p - q) - half, 0.0)
    terms = np.where(q > 0.0, far * far / np.where(q > 0.0, q, 1.0), 0.0)
    outside = np.where(q > 0.0, 0.0, np.abs(p)).max(axis=1)
    return np.asarray(np.maximum(outside, scaled(terms.sum(axis=1), given["radius"][:, 0])))


def hellinger(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """½ Σ(√p - √q)² <= radius."""
    apart = np.sqrt(np.maximum(p, 0.0)) - np.sqrt(given["center"])
    return scaled(0.5 * (apart * apart).sum(axis=1), given["radius"][:, 0])


def burg(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """Σ q·log(q/p) <= radius, as a sum of terms >= 0; mass where q = 0 is missing elsewhere."""
    q = given["center"]
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(q > 0.0, np.maximum(p, 0.0) / q, 1.0)
        terms = np.where(q > 0.0, q * (t - 1.0 - np.log(t)), p)
    return scaled(terms.sum(axis=1), given["radius"][:, 0])


def cressie_read(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """Σ q·φ(p/q) <= radius; where q = 0, φ grows by 1/(1-k) per unit of p if k < 1, else p = 0."""
    q, k = given["center"], np.longdouble(given["power"].item())
    if k == 0.0:
        return burg(given, p, half)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        t = np.where(q > 0.0, np.maximum(p, 0.0) / q, 1.0)
        terms = q * (t**k - k * t + k - 1.0) / (k * (k - 1.0))
    spent = np.where(q > 0.0, terms, p / (1.0 - k) if k < 1.0 else 0.0).sum(axis=1)
    outside = np.where(q > 0.0, 0.0, np.abs(p)).max(axis=1) if k > 1.0 else np.zeros_like(spent)
    return np.asarray(np.maximum(outside, scaled(spent, given["radius"][:, 0])))


def evar(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """That of KL with the radius -log(tail)."""
    return kl({"center": given["center"], "radius": -np.log(given["tail"])}, p, half)


def cvar(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """p <= q/tail."""
    return np.asarray(np.maximum(p - given["center"] / given["tail"], 0.0).max(axis=1))


def _events(center: Long, p: Long, height: Callable[[Long], Long]) -> Long:
    """The largest Σ_S p - H(Σ_S q): by concavity of H, over the sets of the largest p/q."""
    q = np.broadcast_to(center, p.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(q > 0.0, p / q, np.where(p > 0.0, np.inf, 0.0))
    order = np.argsort(-ratio, axis=1, kind="stable")
    mass, spent = (np.cumsum(np.take_along_axis(each, order, axis=1), axis=1) for each in (q, p))
    return np.asarray(np.maximum(spent - height(np.minimum(mass, 1.0)), 0.0).max(axis=1))


def cvar_mixture(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """Σ_S p <= Σ weight·min(1, Σ_S q/tail) for every event S."""
    levels = list(zip(given["tails"][0], given["weights"][0], strict=True))
    total = sum(weight for _, weight in levels)

    def height(u: Long) -> Long:
        return np.asarray(sum(weight / total * np.minimum(1.0, u / tail) for tail, weight in levels))

    return _events(given["center"], p, height)


def spectral(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """Σ_S p <= H(Σ_S q) for every event S."""
    return _events(given["center"], p, lambda u: distorted(given["distortion"], u))


def euclidean(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """‖p - q‖ <= radius."""
    return scaled(np.sqrt(((p - given["center"]) ** 2).sum(axis=1)), given["radius"][:, 0])


RESIDUALS: dict[str, Residual] = {
    "box": box,
    "cd-norm": cd_norm,
    "kl": kl,
    "ellipsoid": ellipsoid,
    "ellipsoid dense": ellipsoid_dense,
    "wasserstein-1": wasserstein,
    "wasserstein-1 matrix": wasserstein_matrix,
    "polyhedron": polyhedron,
    "total-variation": total_variation,
    "weighted-l1": weighted_l1,
    "chi-square": chi_square,
    "hellinger": hellinger,
    "burg": burg,
    "cressie-read": cressie_read,
    "evar": evar,
    "cvar": cvar,
    "cvar-mixture": cvar_mixture,
    "spectral": spectral,
    "plug-in tv": total_variation,
    "plug-in euclidean": euclidean,
    "plug-in entropic": kl,
    "units tv": total_variation,
    "units euclidean": euclidean,
    "units entropic": kl,
}
