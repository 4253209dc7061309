"""Upper bounds from multipliers alone, by the formulas of the sets' docstrings, in extended precision.

Every function takes the public parameters as (1 or B, N) or (1 or B, 1), the losses minus an anchor (B, N),
the anchor (B, 1) and the multipliers (B, 1), all in long double, and returns the bound minus the anchor
(B,). Each bound is valid for any multipliers of the right sign; Σp = 1 is used exactly, even if Σq is
1 + 2e-16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Long = NDArray[np.longdouble]
Bound = Callable[[Mapping[str, Any], Long, Long, Mapping[str, Long]], Long]


def box(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """ν + Σ max(l·(f-ν), u·(f-ν))."""
    nu = dual["nu"] - anchor
    low, high = np.maximum(given["lower"], 0.0), np.minimum(given["upper"], 1.0)
    d = h - nu
    return np.asarray(nu[:, 0] + np.maximum(low * d, high * d).sum(axis=1))


def cd_norm(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """qᵀf + budget·π + Σ max(0, r(s(f-ν) - π), c(s(ν-f) - π)); ν·(1 - Σq) is the rounding of the centre."""
    nu, pi, q, s = dual["nu"] - anchor, dual["pi"], given["center"], given["spread"]
    d = h - nu
    rise, cap = np.minimum(s, 1.0 - q), np.minimum(s, q)  # s·r and s·c
    price = pi / np.where(s > 0.0, s, 1.0)
    up = np.where(rise > 0.0, rise * (d - price), 0.0)
    down = np.where(cap > 0.0, cap * (-d - price), 0.0)
    gain = np.maximum(0.0, np.maximum(up, down)).sum(axis=1)
    rest = (nu * (1.0 - q.sum(axis=1, keepdims=True)))[:, 0]
    return np.asarray((q * h).sum(axis=1) + rest + (given["budget"] * pi)[:, 0] + gain)


def kl(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """η·radius + η·log Σ q·exp(f/η), about the mean if η is large; q is divided by its sum again.

    A sum of 1 + 1e-16 would add 1e-16·η, which is more than the spread at a radius of 1e-30.
    """
    eta, radius = dual["eta"], given["radius"]
    q = given["center"] / given["center"].sum(axis=1, keepdims=True)
    h = np.where(q > 0.0, h, h.min(axis=1, keepdims=True))
    inside = np.where(q > 0.0, h, -np.inf)
    top = inside.max(axis=1, keepdims=True)
    mean = (q * np.where(q > 0.0, h, 0.0)).sum(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        x = (h - mean) / eta
        little = mean + eta * (
            radius + np.log1p((q * np.where(q > 0.0, np.expm1(x) - x, 0.0)).sum(1, keepdims=True))
        )
        weight = (q * np.exp(np.where(q > 0.0, (h - top) / eta, -np.inf))).sum(axis=1, keepdims=True)
        much = top + eta * (radius + np.log(weight))
    bound = np.where(top - mean <= eta, little, much)
    bound = np.where(eta == 0.0, top, bound)
    # η = ∞ proves qᵀf for radius 0, and nothing for another.
    return np.asarray(np.where(np.isinf(eta), np.where(radius == 0.0, mean, np.inf), bound)[:, 0])


def ellipsoid(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """ν + qᵀy + √(radius·yᵀQy) with y = max(f - ν, -τ·q/Q); ν·(1 - Σq) is the rounding of the centre."""
    nu, tau, q, Q = dual["nu"] - anchor, dual["tau"], given["center"], given["shape"]
    with np.errstate(invalid="ignore"):
        floor = np.where(q > 0.0, -tau * q / Q, 0.0)
        y = np.where(np.isinf(tau) & (q > 0.0), h - nu, np.maximum(h - nu, floor))
    rest = (nu * (1.0 - q.sum(axis=1, keepdims=True)))[:, 0]
    size = (Q * y * y).sum(axis=1)
    return np.asarray((q * (nu + y)).sum(axis=1) + rest + np.sqrt(given["radius"][:, 0] * size))


def ellipsoid_dense(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """The same with y = f - ν + μ and a matrix Q."""
    nu, q = dual["nu"] - anchor, given["center"]
    y = h - nu + dual["mu"]
    rest = (nu * (1.0 - q.sum(axis=1, keepdims=True)))[:, 0]
    size = np.maximum(0.0, ((y @ given["matrix"]) * y).sum(axis=1))
    return np.asarray((q * (nu + y)).sum(axis=1) + rest + np.sqrt(given["radius"][:, 0] * size))


def best_on_line(place: Long, h: Long, lam: Long) -> Long:
    """max_i (h_i - λ·|x_i - x_j|) for each j, places sorted: step by step, so that λ·x does not cancel."""
    best = h.copy()
    step = lam * np.diff(place, axis=1)
    for j in range(1, h.shape[1]):
        best[:, j] = np.maximum(best[:, j], best[:, j - 1] - step[:, j - 1])
    for j in range(h.shape[1] - 2, -1, -1):
        best[:, j] = np.maximum(best[:, j], best[:, j + 1] - step[:, j])
    return best


def wasserstein(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """λ·radius + Σ q_j max_i (f_i - λ·|x_i - x_j|)."""
    order, lam = given["order"], dual["lam"]
    best = best_on_line(given["cost"][:, order], h[:, order], lam)
    return np.asarray((lam * given["radius"])[:, 0] + (given["center"][:, order] * best).sum(axis=1))


def wasserstein_matrix(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """λ·radius + Σ q_j max_i (f_i - λ·cost[i, j])."""
    lam, cost = dual["lam"], given["matrix"]
    best = np.array([(row[:, None] - rate * cost).max(axis=0) for row, rate in zip(h, lam, strict=True)])
    return np.asarray((lam * given["radius"])[:, 0] + (given["center"] * best).sum(axis=1))


def total_variation(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """Σ q·max(f, t) + radius·(max f - t) for t <= max f; q is divided by its sum again."""
    q = given["center"] / given["center"].sum(axis=1, keepdims=True)
    t, top = dual["t"] - anchor, h.max(axis=1, keepdims=True)
    bound = (q * np.maximum(h, t)).sum(axis=1) + (given["radius"] * (top - t))[:, 0]
    return np.where((t <= top)[:, 0], bound, np.nan)


def weighted_l1(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """λ·radius + Σ q·max(f, M - λw), M = max(f - λw); q is divided by its sum again."""
    q = given["center"] / given["center"].sum(axis=1, keepdims=True)
    lam, w = dual["lam"], given["weights"]
    best = (h - lam * w).max(axis=1, keepdims=True)
    return np.asarray((lam * given["radius"])[:, 0] + (q * np.maximum(h, best - lam * w)).sum(axis=1))


POWERS = {"chi-square": (2.0, 0.5), "hellinger": (0.5, 4.0), "burg": (0.0, 1.0)}
"""Divergences by name: the power k, and how much of D = Σ q·φ(p/q) one unit of the radius is."""


def power_of(name: str, given: Mapping[str, Any]) -> tuple[float, float]:
    """The power and the unit of a set: by its name, or its parameter."""
    return POWERS[name] if name in POWERS else (float(given["power"].item()), 1.0)


def power_ball(name: str) -> Bound:
    """Hölder's inequality at a pole (k < 1, above the losses) or a zero (k > 1) of p/q: T ∓ R^{1/k}·norm."""

    def bound(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
        power, unit = power_of(name, given)
        q = given["center"] / given["center"].sum(axis=1, keepdims=True)
        q = np.broadcast_to(q, h.shape)
        if power > 1.0:
            h = np.where(q > 0.0, h, np.where(q > 0.0, h, -np.inf).max(axis=1, keepdims=True))
        top = h.max(axis=1, keepdims=True)
        below, radius, margin = top - h, unit * given["radius"], dual["margin"]
        mean = (q * below).sum(axis=1, keepdims=True)
        with np.errstate(all="ignore"):
            found = top + _hoelder(q, below, mean, radius, margin, np.longdouble(power))
        # p = q has the margin ∞, which proves something for a radius of 0 alone.
        found = np.where(np.isinf(margin), np.where(radius == 0.0, top - mean, np.inf), found)
        return np.asarray(found[:, 0])

    return bound


def _hoelder(q: Long, below: Long, mean: Long, radius: Long, margin: Long, k: np.longdouble) -> Long:
    """The bound minus the largest loss, (B, 1).

    About the mean, so that nothing cancels for a large margin; for k > 1 only while all losses are above
    the zero of p/q.
    """
    side = 1.0 if k < 1.0 else -1.0
    distance = margin + side * mean
    y = side * (below - mean) / distance
    share = (margin + side * below) / distance  # 1 + y, with the digits of a small margin
    logs = np.where(share < 0.5, np.log(share), np.log1p(y))
    room = k * (k - 1.0) * radius
    if k == 0.0:
        terms = logs - y
        exponent = (q * np.where(q > 0.0, terms, 0.0)).sum(axis=1, keepdims=True) - radius
    else:
        c = k / (k - 1.0)
        terms = np.expm1(c * logs) - c * y
        more = (q * np.where(q > 0.0, terms, 0.0)).sum(axis=1, keepdims=True)
        exponent = np.log1p(room) / k + np.log1p(more) / c
    about_mean = -mean - side * distance * np.expm1(exponent)
    if k < 1.0:
        # Without room for any other distribution, or with the pole at a loss with mass: the largest loss.
        inside = np.where(q > 0.0, margin + below, np.inf).min(axis=1, keepdims=True)
        return np.where((inside == 0.0) | (room <= -1.0), 0.0, about_mean)
    above = np.maximum(1.0 - below / margin, 0.0)
    norm = (q * above**c).sum(axis=1, keepdims=True) ** (1.0 / c)
    apart = np.where(margin > 0.0, margin * ((1.0 + room) ** (1.0 / k) * norm - 1.0), 0.0)
    return np.where(margin > 2.0 * below.max(axis=1, keepdims=True), about_mean, apart)


def evar(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """That of KL with the radius -log(tail)."""
    return kl({"center": given["center"], "radius": -np.log(given["tail"])}, h, anchor, dual)


def cvar(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """var + Σ q·max(f - var, 0)/tail; q is divided by its sum again."""
    return _tail_mean(given["center"], given["tail"], h, dual["var"] - anchor)


def _tail_mean(center: Long, tail: Long, h: Long, var: Long) -> Long:
    q = center / center.sum(axis=1, keepdims=True)
    over = (q * np.maximum(h - var, 0.0)).sum(axis=1, keepdims=True)
    return np.asarray((var + over / tail)[:, 0])


def cvar_mixture(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """The weighted sum of the bounds of the levels."""
    total = np.zeros(len(h), dtype=np.longdouble)
    for k, (tail, weight) in enumerate(zip(given["tails"][0], given["weights"][0], strict=True)):
        total += weight * _tail_mean(given["center"], tail, h, dual["var"][:, k : k + 1] - anchor)
    return total


def distorted(points: Long, u: Long) -> Long:
    """The concave function through those points, the least of its lines."""
    slopes = np.diff(points[:, 1]) / np.diff(points[:, 0])
    lines = [y + slope * (u - x) for (x, y), slope in zip(points, slopes, strict=False)]
    return np.asarray(np.min(lines, axis=0))


def spectral(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """f_N + Σ (f_k - f_{k+1})·H(Q_k) in the given order, from large to small; NaN if it is no such order."""
    order = dual["order"].astype(np.int64)
    q = np.broadcast_to(given["center"], h.shape)
    g = np.take_along_axis(h, order, axis=1)
    masses = np.cumsum(np.take_along_axis(q, order, axis=1), axis=1)
    heights = distorted(given["distortion"], masses / masses[:, -1:])
    bound = g[:, -1] - (np.diff(g, axis=1) * heights[:, :-1]).sum(axis=1)
    sorted_down = (np.diff(g, axis=1) <= 0.0).all(axis=1)
    complete = (np.sort(order, axis=1) == np.arange(h.shape[1])).all(axis=1)
    return np.where(sorted_down & complete, bound, np.nan)


def polyhedron(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """cᵀy + max(f - Dᵀy), y >= 0 and 0 where c is infinite."""
    y, c = np.where(dual["y"] > 0.0, dual["y"], 0.0), given["c"]
    price = np.where(np.isfinite(c) | (y > 0.0), c, 0.0) * y
    return np.asarray(price.sum(axis=1) + (h - y @ given["D"]).max(axis=1))


BOUNDS: dict[str, Bound] = {
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
    "chi-square": power_ball("chi-square"),
    "hellinger": power_ball("hellinger"),
    "burg": power_ball("burg"),
    "cressie-read": power_ball("cressie-read"),
    "evar": evar,
    "cvar": cvar,
    "cvar-mixture": cvar_mixture,
    "spectral": spectral,
}
