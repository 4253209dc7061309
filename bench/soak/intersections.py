"""A ball and a box: boxes around the centre, beside it and through the ball's edge; bounds and residuals.

Every intersection drawn here has a distribution: the radius is at least the divergence of the point of the
box that is nearest to the centre, which is found here by halving. A KL ball and linear rows have one too: the
rows are drawn through a point, and the radius is beyond its divergence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import uncertainty_sets as sets
from bench.soak import bounds, residuals
from bench.soak.drawing import Draw, Made, Maker
from uncertainty_sets.arrays import Array

Long = NDArray[np.longdouble]

KEYS: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("kl with box", "chi-square with box", "ellipsoid with box"), ("eta", "nu")
)


def divergence(q: Any, scale: Any, p: Any) -> Any:
    """Σ p·log(p/q) - p + q, or Σ(p-q)²/s, in terms that cancel nothing."""
    with np.errstate(all="ignore"):
        if scale is not None:
            return np.where(scale > 0.0, (p - q) * ((p - q) / scale), 0.0).sum(axis=1)
        t = np.where(q > 0.0, p / q, 1.0)
        terms = np.where(t > 0.5, q * (t * np.log1p(t - 1.0) - (t - 1.0)), p * np.log(t) - p + q)
        return np.where(q > 0.0, np.where(p > 0.0, terms, q), 0.0).sum(axis=1)


def at(q: Any, scale: Any, y: Any, low: Any, high: Any) -> Any:
    """clip(P(y), low, high)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.clip(q * np.exp(np.minimum(y, 11000.0)) if scale is None else q + scale * y, low, high)


def nearest(q: Array, scale: Array | None, low: Array, high: Array) -> Any:
    """The divergence of the point of the box nearest to the centre, (B,).

    That point is clip(P(y), low, high) for one y. Between two neighbours among the y at which an entry meets
    a bound, it and its sum are linear in y, or in eʸ for KL.
    """
    wide, s = q.astype(np.longdouble), None if scale is None else scale.astype(np.longdouble)
    with np.errstate(all="ignore"):
        if s is None:
            ends = [np.where(wide > 0.0, np.log(each / wide), 0.0) for each in (low, high)]
        else:
            ends = [np.where(s > 0.0, (each - wide) / s, 0.0) for each in (low, high)]
    kinks = np.sort(np.concatenate(ends, axis=1), axis=1)
    before = np.zeros(len(q), dtype=np.int64)
    after = np.full(len(q), kinks.shape[1] - 1)
    rows = np.arange(len(q))
    while (after - before > 1).any():
        middle = (before + after) // 2
        total = at(wide, s, kinks[rows, middle][:, None], low, high).sum(axis=1)
        before, after = np.where(total > 1.0, before, middle), np.where(total > 1.0, middle, after)
    one, two = (at(wide, s, kinks[rows, each][:, None], low, high) for each in (before, after))
    less, more = (each.sum(axis=1, keepdims=True) for each in (one, two))
    room = more - less
    share = np.clip(np.where(room > 0.0, (1.0 - less) / np.where(room > 0.0, room, 1.0), 0.0), 0.0, 1.0)
    return divergence(wide, s, one + share * (two - one))


def box_around(draw: Draw, inside: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Bounds that leave a distribution where there is mass: multiples, caps, or around another point."""
    rng, q, rows = draw.rng, draw.q, len(draw.f)
    column = (rows, 1)
    low = q * rng.choice([0.0, 0.0, 0.5, 0.9, 1.0], column)
    high = q * rng.choice([1.0, 1.0 + 2e-16, 1.25, 1.5, 4.0, 100.0, 1e6], column)
    kind = rng.random(column)
    # Caps alone, at, or above the least that leaves room; for tiny entries these are far away.
    room = inside.sum(axis=1, keepdims=True)
    caps = np.minimum(1.0, (1.0 + rng.choice([1e-12, 1e-3, 0.1, 1.0, 5.0, 1e3], column)) / room)
    high = np.where(kind < 0.3, caps, high)
    low = np.where(kind < 0.2, 0.0, low)
    # About a point of the support that may be far from the centre.
    point = np.where(inside, rng.exponential(size=q.shape) ** rng.choice([1.0, 8.0], column), 0.0)
    point /= point.sum(axis=1, keepdims=True)
    mix = rng.choice([0.0, 0.01, 0.5, 1.0], column)
    point = (1.0 - mix) * q + mix * point
    beside = kind > 0.6
    low = np.where(beside, point * rng.choice([0.0, 0.5, 0.99], column), low)
    high = np.where(beside, point * rng.choice([1.0 + 1e-9, 1.3, 20.0], column) + 1e-300, high)
    high = np.where(kind > 0.9, np.where(rng.random(q.shape) < 0.5, 1.0, high), high)
    return np.where(inside, np.minimum(low, high), 0.0), high


def _made(draw: Draw, scale: Array | None, inside: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Bounds and radius: from the nearest point's divergence to beyond the box's own worst case."""
    rng, q, rows = draw.rng, draw.q, len(draw.f)
    lower, upper = box_around(draw, inside)
    low, high = np.where(inside, np.maximum(lower, 0.0), 0.0), np.where(inside, np.minimum(upper, 1.0), 0.0)
    short = high.sum(axis=1) < 1.0
    upper[short] = 1.0
    high = np.where(inside, np.minimum(upper, 1.0), 0.0)
    least = np.asarray(nearest(q, scale, low, high), dtype=np.float64)
    # The box's own worst case, of equal losses the first.
    order = np.argsort(-draw.f, axis=1, kind="stable")
    room = np.take_along_axis(high - low, order, axis=1)
    left = np.maximum(0.0, 1.0 - low.sum(axis=1, keepdims=True))
    filled = np.clip(left - (np.cumsum(room, axis=1) - room), 0.0, room)
    best = low.copy()
    np.put_along_axis(best, order, np.take_along_axis(low, order, axis=1) + filled, axis=1)
    most = np.asarray(
        divergence(q.astype(np.longdouble), scale, best.astype(np.longdouble)), dtype=np.float64
    )
    most = np.where(np.isfinite(most), most, 1e300)
    between = least + np.maximum(most - least, 0.0) * 10.0 ** rng.uniform(-12.0, 0.0, rows)
    usual = np.where(rng.random(rows) < 0.6, between, 10.0 ** rng.uniform(-8.0, 1.0, rows))
    radius = np.maximum(draw.radii(most, usual), least * (1.0 + 1e-9))
    return lower, upper, radius


def kl(draw: Draw) -> Made:
    """A KL ball."""
    lower, upper, radius = _made(draw, None, draw.q > 0.0)
    given = {"center": draw.q, "radius": radius, "lower": lower, "upper": upper}
    return given, tuple(given)


def chi_square(draw: Draw) -> Made:
    """A χ² ball."""
    q = draw.q / draw.q.sum(axis=1, keepdims=True)
    lower, upper, radius = _made(draw, q, q > 0.0)
    given = {"center": draw.q, "radius": radius, "lower": lower, "upper": upper}
    return given, tuple(given)


def ellipsoid(draw: Draw) -> Made:
    """An ellipsoid with one diagonal for all rows, of up to 16 decades."""
    rng, n = draw.rng, draw.f.shape[1]
    shape = 10.0 ** rng.uniform(-2.0, 1.0, n)
    shape = shape if rng.random() < 0.5 else 10.0 ** (rng.choice([3.0, 8.0]) * rng.uniform(-1.0, 1.0, n))
    scale = np.broadcast_to(shape, draw.q.shape)
    lower, upper, radius = _made(draw, scale, np.ones(draw.q.shape, dtype=bool))
    given = {"center": draw.q, "shape": shape, "radius": radius, "lower": lower, "upper": upper}
    return given, tuple(key for key in given if key != "shape")


def kl_with_rows(draw: Draw) -> Made:
    """One centre; rows through or beside a point, some of them equations, twice, or without a bound.

    Its entries are 0 or of ordinary size: a face where p_i = 0 is left to a solver, which has the exponential
    cone's digits.
    """
    rng, (rows, n) = draw.rng, draw.f.shape
    q = 0.9 * draw.q[0] + 0.1 * (draw.q[0] > 0.0) / (draw.q[0] > 0.0).sum()
    point = np.where(q > 0.0, rng.exponential(size=n) ** rng.choice([1.0, 4.0]), 0.0)
    mix = rng.choice([0.0, 0.01, 0.5, 1.0])
    point = (1.0 - mix) * q + mix * point / point.sum()
    D = rng.normal(size=(int(rng.integers(1, 6)), n))
    if rng.random() < 0.4:
        D = (rng.random(D.shape) < rng.choice([0.2, 0.5])).astype(float)
    c = D @ point + rng.choice([0.0, 0.0, 1e-9, 0.02, 0.3], len(D))
    kind = rng.random()
    if kind < 0.25:
        c[0] = D[0] @ point
        D, c = np.vstack([D, -D[0]]), np.append(c, -c[0])
    elif kind < 0.35:
        D, c = np.vstack([D, 2.0 * D[0]]), np.append(c, np.inf if rng.random() < 0.5 else 2.0 * c[0])
    unit = 10.0 ** rng.uniform(-2.0, 2.0, (len(D), 1)) if rng.random() < 0.3 else np.ones((len(D), 1))
    wide = q.astype(np.longdouble)[None]
    least = float(divergence(wide / wide.sum(), None, point.astype(np.longdouble)[None])[0])
    radius = least * (1.0 + 10.0 ** rng.uniform(-6.0, 1.0, rows)) + 10.0 ** rng.uniform(-8.0, 0.5, rows)
    return {"center": q, "radius": radius, "D": unit * D, "c": unit[:, 0] * c}, ("radius",)


def kl_with_rows_bound(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
    """η·radius + cᵀy + η·log Σ q·exp((f - Dᵀy)/η), for y >= 0; without the ball at η = 0."""
    q, eta, y = given["center"] / given["center"].sum(), dual["eta"], dual["y"]
    c = given["c"]
    with np.errstate(all="ignore"):
        of_rows = np.where(y == 0.0, 0.0, c * y).sum(axis=1, keepdims=True)
        # D·p = c is measured from the anchor with the losses: Σp = 1.
        left = np.where(q > 0.0, h - y @ given["D"], -np.inf)
        top = left.max(axis=1, keepdims=True)
        weight = (q * np.exp((left - top) / eta)).sum(axis=1, keepdims=True)
        bound = of_rows + top + np.where(eta > 0.0, eta * (given["radius"] + np.log(weight)), 0.0)
    return np.asarray(np.where(np.isfinite(eta), bound, np.nan)[:, 0])


def kl_with_rows_residual(given: Mapping[str, Any], p: Long, half: Long) -> Long:
    """That of the ball and that of the rows."""
    return np.asarray(np.maximum(residuals.kl(given, p, half), residuals.polyhedron(given, p, half)))


def _scale(name: str, given: Mapping[str, Any]) -> Any:
    return {"kl with box": None, "chi-square with box": given["center"]}.get(name, given.get("shape"))


def bound(name: str) -> bounds.Bound:
    """ν + η·radius + Σ (p·(f-ν) - η·D(p)) with p = clip(P(x), l, u), x = (f-ν)/η (over 2η for a square)."""

    def found(given: Mapping[str, Any], h: Long, anchor: Long, dual: Mapping[str, Long]) -> Long:
        q, radius, eta, nu = given["center"], given["radius"], dual["eta"], dual["nu"] - anchor
        scale = _scale(name, given)
        inside = q > 0.0 if name != "ellipsoid with box" else np.ones(q.shape, dtype=bool)
        # A bound within rounding of the centre, which is divided by its sum, is the centre.
        low, high = (
            np.where(np.abs(each - q) <= 1e-15 * q, q, each)
            for each in (np.maximum(given["lower"], 0.0), np.minimum(given["upper"], 1.0))
        )
        low, high = np.where(inside, low, 0.0), np.where(inside, high, 0.0)
        d = np.where(inside, h - nu, 0.0)
        by_box = (nu + np.maximum(low * d, high * d).sum(axis=1, keepdims=True))[:, 0]
        with np.errstate(all="ignore"):
            if scale is None:
                x = d / eta
                p = at(q, None, x, low, high)
                ratio = p / q
                y = np.where(np.abs(ratio - 1.0) < 0.5, np.log1p((p - q) / q), np.log(ratio))
                y = np.where((p > low) & (p < high), x, y)
                # p·x - (p·y - p + q), with the digits of a small x where p is free
                free = q * np.expm1(np.where(y < 11000.0, y, 0.0))
                gain = np.where(p > 0.0, p * (x - np.where(p > 0.0, y, 0.0)), 0.0)
                gain = gain + np.where((p > low) & (p < high), free, p - q)
                terms = np.where(inside, eta * gain, 0.0)
            else:
                s = np.where(inside, scale, 1.0)
                p = at(q, s, d / (2.0 * eta), low, high)
                terms = np.where(inside, p * d - eta * ((p - q) * ((p - q) / s)), 0.0)
        total = (nu + eta * radius)[:, 0] + terms.sum(axis=1)
        # η = ∞ proves the mean of the centre for a radius of 0, and nothing for another. A finite η as
        # large would prove of a centre that is outside the box by its last digit that there is no p.
        mean = (q * h).sum(axis=1)
        outside = ((q < low) | (q > high)).any(axis=1) & (radius[:, 0] < 1e-290) & (eta[:, 0] > 1e100)
        at_center = outside | ((radius[:, 0] == 0.0) & np.isinf(eta[:, 0]))
        total = np.where(at_center, mean, np.where(np.isinf(eta[:, 0]), np.inf, total))
        return np.asarray(np.where(eta[:, 0] == 0.0, by_box, total))

    return found


def residual(name: str) -> residuals.Residual:
    """That of the ball and that of the box, whichever is larger."""

    def found(given: Mapping[str, Any], p: Long, half: Long) -> Long:
        ball = {"kl with box": residuals.kl, "chi-square with box": residuals.chi_square}
        off = ball.get(name, residuals.ellipsoid)(given, p, half)
        return np.asarray(np.maximum(off, residuals.box(given, p, half)))

    return found


def build(ball: Any) -> Any:
    """Members from their parameters together."""

    def made(center: Array, radius: Any, lower: Array, upper: Array, **more: Any) -> Any:
        return sets.Intersection(ball(center, *more.values(), radius), sets.Box(lower, upper))

    made.__name__ = f"{ball.__name__}_with_box"
    return made


def build_with_rows(center: Array, radius: Any, D: Array, c: Array) -> Any:
    """The members from their parameters together."""
    return sets.Intersection(sets.KL(center, radius), sets.Polyhedron(D, c))


MAKERS = {
    "kl with box": Maker(build(sets.KL), kl, ("eta", "nu"), largest=5000, far=True),
    "chi-square with box": Maker(build(sets.ChiSquare), chi_square, ("eta", "nu"), largest=5000, far=True),
    "ellipsoid with box": Maker(build(sets.Ellipsoid), ellipsoid, ("eta", "nu"), largest=5000, far=True),
}
BOUNDS = {name: bound(name) for name in MAKERS}
RESIDUALS = {name: residual(name) for name in MAKERS}

KEYS["kl with rows"] = ("eta", "y")
MAKERS["kl with rows"] = Maker(build_with_rows, kl_with_rows, ("eta",), largest=97, rows=10, far=True)
BOUNDS["kl with rows"] = kl_with_rows_bound
RESIDUALS["kl with rows"] = kl_with_rows_residual
