"""Penalised oracles: weights from 0 to 1e307, bounds from ν, and what the divergence of p costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import uncertainty_sets as sets
from bench.soak import bounds, residuals
from bench.soak.drawing import Draw, Made, Maker
from uncertainty_sets.arrays import Array

Long = NDArray[np.longdouble]
Cost = Callable[[Mapping[str, Any], Long], Long]


def weights(draw: Draw) -> Made:
    """Weights of the size of the losses and far from it, 0, and the ends of the float range."""
    rng, rows = draw.rng, len(draw.f)
    with np.errstate(over="ignore"):
        spread = np.minimum(np.ptp(draw.f, axis=1), 1e307)
        usual = spread * 10.0 ** rng.uniform(-4.0, 4.0, rows)
        far = spread * 10.0 ** rng.uniform(-30.0, 30.0, rows)
    odd = rng.choice([0.0, 5e-324, 1e-300, 1e-150, 1.0, 1e150, 1e300, 1e302, 1e307], rows)
    kind = rng.random(rows)
    weight = np.where(kind < 0.5, usual, np.where(kind < 0.8, far, odd))
    return {"center": draw.q, "weight": np.minimum(weight, 1e307)}, ("center", "weight")


def _normalised(given: Mapping[str, Any]) -> tuple[Any, Any]:
    return given["center"] / given["center"].sum(axis=1, keepdims=True), given["weight"]


def _free(h: Long, q: Long, nu: Long) -> Long:
    """What ν proves without a price: ν, if no loss that counts is above it by more than rounding."""
    digits = 4.0 * np.spacing(np.minimum(-h.min(axis=1, keepdims=True), 1e308).astype(float))
    return np.where((np.where(q > 0.0, h, -np.inf) <= nu + digits).all(axis=1), nu[:, 0], np.inf)


def kl(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """ν - τ + τ·Σ q·exp((f-ν)/τ)."""
    q, tau = _normalised(given)
    nu = dual["nu"] - anchor
    with np.errstate(all="ignore"):
        terms = np.where(q > 0.0, q * np.expm1((h - nu) / tau), 0.0)
        bound = nu[:, 0] + tau[:, 0] * terms.sum(axis=1)
    return np.where(tau[:, 0] == 0.0, _free(h, q, nu), bound)


def chi_square(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """ν + τ + Σ q·max(f-ν, 0)²/4τ, about the mean, where nothing cancels for a large τ."""
    q, tau = _normalised(given)
    nu = dual["nu"] - anchor
    with np.errstate(all="ignore"):
        y = (h - nu) / (2.0 * tau)
        u = ((h - nu) - 2.0 * tau) / (2.0 * tau)
        above = (q * h).sum(axis=1) + tau[:, 0] * (q * (u * u)).sum(axis=1)
        about_mean = above - tau[:, 0] * (q * np.minimum(y, 0.0) ** 2).sum(axis=1)
        plain = (nu + tau)[:, 0] + tau[:, 0] * (q * np.maximum(y, 0.0) ** 2).sum(axis=1)
    bound = np.where((y > 0.0).all(axis=1), about_mean, plain)
    return np.where(tau[:, 0] == 0.0, _free(h, q, nu), bound)


def total_variation(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """Σ q·max(f, ν), for ν >= max f - τ up to its own rounding."""
    q, tau = _normalised(given)
    nu, least = dual["nu"] - anchor, h.max(axis=1, keepdims=True) - tau
    size = np.maximum(np.maximum(np.abs(dual["nu"]), np.abs(anchor)), -h.min(axis=1, keepdims=True))
    digits = 4.0 * np.spacing(np.minimum(size, 1e308).astype(float))
    bound = (q * np.maximum(h, np.maximum(nu, least))).sum(axis=1)
    return np.where((nu >= least - digits)[:, 0], bound, np.inf)


def kl_cost(given: Mapping[str, Any], p: Long) -> Long:
    """Σ p·log(p/q), in terms that cancel nothing; p = q costs nothing, though Σq is rounded."""
    q = given["center"]
    with np.errstate(all="ignore"):
        t = np.where(q > 0.0, p / q, 1.0)
        terms = np.where(t > 0.5, q * (t * np.log1p(t - 1.0) - (t - 1.0)), p * np.log(t) - p + q)
        terms = np.where(q > 0.0, np.where(p > 0.0, terms, q), 0.0)
    return np.asarray(terms.sum(axis=1))


def chi_square_cost(given: Mapping[str, Any], p: Long) -> Long:
    """Σ (p-q)²/q."""
    q = given["center"]
    with np.errstate(all="ignore"):
        return np.asarray(np.where(q > 0.0, (p - q) * ((p - q) / q), 0.0).sum(axis=1))


def total_variation_cost(given: Mapping[str, Any], p: Long) -> Long:
    """½ Σ |p-q|, without the rounding of p."""
    q = given["center"]
    half = 0.5 * np.spacing(p.astype(float)).astype(np.longdouble)
    return np.asarray(0.5 * np.maximum(np.abs(p - q) - half, 0.0).sum(axis=1))


def on_support(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """No mass where q = 0."""
    return np.asarray(np.where(given["center"] > 0.0, 0.0, np.abs(p)).max(axis=1))


def anywhere(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """All distributions are allowed."""
    return np.zeros(len(p), dtype=np.longdouble)


def build(name: str) -> Any:
    """A penalised oracle by its divergence."""

    def penalised(center: Array, weight: Any) -> sets.Penalised:
        return sets.Penalised(name, center, weight)

    return penalised


BOUNDS: dict[str, bounds.Bound] = {
    "penalised kl": kl,
    "penalised chi-square": chi_square,
    "penalised total-variation": total_variation,
}
COSTS: dict[str, Cost] = {
    "penalised kl": kl_cost,
    "penalised chi-square": chi_square_cost,
    "penalised total-variation": total_variation_cost,
}
RESIDUALS: dict[str, residuals.Residual] = {
    "penalised kl": on_support,
    "penalised chi-square": on_support,
    "penalised total-variation": anywhere,
}
KEYS: dict[str, tuple[str, ...]] = dict.fromkeys(BOUNDS, ("nu",))
MAKERS = {name: Maker(build(name.partition(" ")[2]), weights, ("nu",), far=True) for name in BOUNDS}
