"""The faces of balls whose worst case is a function of the losses, entry by entry: p = q·ψ((f - ν)/η).

    KL p = q·exp(x);  power k: p = q·(1 + (k-1)x)₊^{1/(k-1)};  quadratic: p = (q + Q·x/2)₊,   x = (f - ν)/η

each perhaps cut at the bounds of a box, or with a price τ in place of η. face.py says what is made of it.

| | g | S on the free entries | m of q | k of q |
|---|---|---|---|---|
| KL | log t, t = p/q | p/η | t | 1 - t |
| power k | (t^(k-1) - 1)/(k-1) | q·t^(2-k)/η | t | (1 - t^k)/k; k = 0: -log t |
| quadratic | 2(p - q)/Q | Q/2η | 1; Q: g/2 | -g; Q: -g²/4 |

On free entries g is x up to a constant: without bounds no logarithm is needed.

Conventions. An entry at 0 (k > 1, quadratic) is held there. Where q = 0 there is a one-sided derivative in q,
with t = ψ(x). Saturated balls (η = 0) have no S: p is the centre on the largest losses, and moves with the
centre there. At a radius of 0 (η = ∞) p moves with the centre; the derivative by the radius is infinite.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.face import FAR, Effect, Face, Rows

ALIKE = 1e-13
"""An entry this close to a bound is at the bound."""


class Bounds(NamedTuple):
    """A box around the ball: the bounds in force, and which of them were given as such."""

    lower: Any
    upper: Any


def regular(rows: Rows, eta: Any) -> tuple[Any, Any]:
    """Where the ball's multiplier is a positive number, and that multiplier (1 elsewhere)."""
    inner = (eta > 0.0) & (eta < FAR)
    return inner, rows.where(inner, eta, rows.xp.ones_like(eta))


def of_radius(rows: Rows, eta: Any) -> Any:
    """What a unit of the radius is worth: η, 0 of a saturated ball, infinite at a radius of 0."""
    inner, h = regular(rows, eta)
    zero = 0.0 * h
    return rows.where(inner, h, rows.where(eta >= FAR, zero + np.inf, zero))


def share(rows: Rows, weights: Any) -> Any:
    """Weights divided by their sum; 0 where that is 0."""
    total = rows.sum(weights)
    return weights / rows.where(total > 0.0, total, 1.0 + 0.0 * total)


def power_face(
    rows: Rows,
    f: Any,
    p: Any,
    eta: Any,
    q: Any,
    k: float,
    limits: dict[str, Effect],
    *,
    bounds: Bounds | None = None,
    priced: bool = False,
) -> Face:
    """The face of KL (k = 1) and the power divergences.

    Args:
        rows: what sums over rows.
        f: losses.
        p: the worst case.
        eta: the multiplier of D, to combine with entries.
        q: the centre.
        k: the power.
        limits: the effects of the radius, or of what stands for it.
        bounds: of a box; None if there is none.
        priced: whether η is a price, which does not move.
    """
    where, zero = rows.where, 0.0 * p
    one = 1.0 + zero
    inner, _ = regular(rows, eta)
    inside = (q > 0.0) & (p > 0.0)
    t = where(inside, p, one) / where(inside, q, one)
    curve = rows.log(t) if k == 1.0 else (t ** (k - 1.0) - 1.0) / (k - 1.0)
    bent = where(inside & inner, p if k == 1.0 else q * t ** (2.0 - k), zero)
    slope = where(inside, -rows.log(t) if k == 0.0 else (1.0 - t**k) / k, zero)
    if bounds is None:
        return _unbounded(rows, f, p, eta, q, k, (bent, curve, slope), limits, priced)
    own = {"center": Effect(where(inside, t, zero), slope, center=q)}
    return bounded(rows, f, p, eta, bent, curve, own, limits, bounds)


def power_bend(p: Array, q: Array, k: float) -> Array:
    """q·t^(2-k), t = p/q, where both are positive, and 0 elsewhere; by a kernel."""
    from uncertainty_sets.kernels.curvature import bends

    found = np.empty(p.shape)
    bends(np.atleast_2d(np.ascontiguousarray(p)), np.atleast_2d(q), k, np.atleast_2d(found))
    return found


def priced_power_face(rows: Rows, f: Any, p: Any, q: Any, weight: Any, k: float, unit: float) -> Face:
    """The face where D/unit costs `weight`: η = weight/unit, and p moves by -S g̃ for each unit of it."""
    inside = q > 0.0
    one = 1.0 + 0.0 * p
    base = rows.where(inside, q, one)
    t = rows.where(inside, p, one) / base
    positive = rows.where(t > 0.0, t, one)
    terms = t * rows.log(positive) - t + 1.0 if k == 1.0 else (t**k - k * t + k - 1.0) / (k * (k - 1.0))
    price = Effect(value=-rows.where(inside, q * terms, 0.0 * p) / unit, per_row=True)
    face = power_face(rows, f, p, weight / unit, q, k, {"weight": price}, priced=True)
    inner, h = regular(rows, weight / unit)
    above = rows.where(inner, (f - rows.sum(p * f)) / h, 0.0 * p)
    face.effects["weight"] = price._replace(raw=-face.apply(above) / unit)
    return face


def _unbounded(
    rows: Rows, f: Any, p: Any, eta: Any, q: Any, k: float, inner_parts: tuple[Any, Any, Any],
    limits: dict[str, Effect], priced: bool,
) -> Face:  # fmt: skip
    """The face without a box: entries are free, or held at 0. `inner_parts`: η·S, g and k where q, p > 0."""
    bent, curve, slope = inner_parts
    where, zero = rows.where, 0.0 * p
    one = 1.0 + zero
    inner, h = regular(rows, eta)
    S = bent / h
    # 1. Mass on entries with q = 0 (k < 1): they hold the largest losses, and take what the others leave.
    w = share(rows, where(inner, S, p))
    escaped = (q <= 0.0) & (p > 0.0)
    if k < 1.0:
        taken = where(escaped & inner, p, zero)
        w = where(rows.sum(taken) > 0.0, share(rows, taken), w)
        curve = where(escaped, one / (1.0 - k), curve)
    # 2. The centre on entries that have mass; of a saturated ball they are the largest losses.
    held = (q > 0.0) & (p <= 0.0)
    mass = rows.sum(where(p > 0.0, q, zero))
    restricted = where(p > 0.0, one, zero) / where(mass > 0.0, mass, 1.0 + 0.0 * mass)
    inside = (q > 0.0) & (p > 0.0)
    raw = where(inside, p, zero) / where(inside, q, one)
    if k > 1.0:
        slope = where(held, one / k, slope)
    # 3. Where q = 0: t = ψ(x).
    outside = (q <= 0.0) & ~escaped & inner
    x = where(outside, (f - rows.sum(w * (f - h * curve))) / h, zero)
    t = where(outside, _psi(rows, x, k), one)
    raw = where(outside, t, raw)
    slope = where(outside, -rows.log(t) if k == 0.0 else (1.0 - t**k) / k, slope)
    # 4. Not regular: the value moves with q through p alone.
    raw = where(inner, raw, where(eta >= FAR, one, restricted))
    slope = where(inner, slope, zero)
    above = f - rows.sum(p * f)
    value = where(inner, -h * slope, raw * above)
    effects = {"center": Effect(raw, slope, value, center=q), **limits}
    active = inner & (eta < 0.0) if priced else inner
    return Face(rows, p, of_radius(rows, eta), S, w, above / h, active, effects)


def quadratic_face(
    rows: Rows,
    f: Any,
    p: Any,
    eta: Any,
    q: Any,
    Q: Any,
    limits: dict[str, Effect],
    *,
    bounds: Bounds | None = None,
) -> Face:
    """The face of an ellipsoid with the diagonal Q, as `power_face`."""
    where, zero = rows.where, 0.0 * p
    inner, h = regular(rows, eta)
    g = 2.0 * (p - q) / Q
    free = (p > 0.0) & inner
    bent = where(free, 0.5 * Q, zero)
    one = where(free, 1.0 + zero, zero)
    if bounds is not None:
        own = {"center": Effect(one, -g, center=q), "shape": Effect(0.5 * g, -0.25 * g * g)}
        return bounded(rows, f, p, eta, bent, g, own, limits, bounds)
    w = share(rows, where(inner, bent, p))
    still = where(eta >= FAR, 1.0 + zero, one)  # at a radius of 0 the centre moves p
    own = {
        "center": Effect(
            still, where(inner, -g, zero), where(inner, h * g, still * (f - rows.sum(p * f))), center=q
        ),
        "shape": Effect(
            one * 0.5 * g, where(inner, -0.25 * g * g, zero), where(inner, 0.25 * h * g * g, zero)
        ),
    }
    # x instead of g where p is free: it has f's digits.
    exact = where(free, (f - rows.sum(p * f)) / h, zero)
    return Face(rows, p, of_radius(rows, eta), bent / h, w, exact, inner, {**own, **limits})


def matrix_face(rows: Rows, f: Any, p: Any, eta: Any, q: Any, Q: Any, limits: dict[str, Effect]) -> Face:
    """The face of an ellipsoid with a matrix Q: S = (Q_FF - Q_FZ Q_ZZ⁻¹ Q_ZF)/2η, with Z the entries at 0.

    Entries of the centre move p by T = (I, -Q_FZ Q_ZZ⁻¹); an entry of Q moves it by T·dQ·g/2, with the slope
    -g gᵀ/4. O(N³) for the solve with Q_ZZ.
    """
    where, xp = rows.where, rows.xp
    inner, h = regular(rows, eta)
    zero = 0.0 * p
    F = where(p > 0.0, 1.0 + zero, zero)
    Z = 1.0 - F
    g = 2.0 * _product(xp.linalg.solve(Q, (p - q)[..., None]), (1.0 + zero)[..., :1])
    # Q_ZZ with ones on the diagonal of F, which has an inverse for every Z.
    corner = Z[..., :, None] * Q * Z[..., None, :] + xp.eye(p.shape[-1]) * F[..., None, :]
    across = xp.linalg.solve(corner, Z[..., :, None] * Q * F[..., None, :])
    bent = F[..., :, None] * Q * F[..., None, :] - (F[..., :, None] * Q * Z[..., None, :]) @ across
    back = xp.swapaxes(across, -1, -2)

    def move(x: Any) -> Any:
        return where(inner, F * x - _product(back, Z * x), zero)

    def pull(r: Any) -> Any:
        r = where(inner, F * r, zero)
        return r - _product(across, r)

    def sheared(dQ: Any) -> Any:
        return move(0.5 * _product(dQ, g))

    def shear(r: Any) -> Any:
        left = 0.5 * pull(r)[..., :, None] * g[..., None, :]
        return 0.5 * (left + xp.swapaxes(left, -1, -2))

    outer = 0.25 * g[..., :, None] * g[..., None, :]
    active = where(inner, 1.0 + 0.0 * h, 0.0 * h)

    def spent(dQ: Any) -> Any:
        return -active * (outer * dQ).sum((-2, -1))[..., None]

    slope = (spent, lambda number: -(active * number)[..., None] * outer)
    value = (lambda dQ: -h * spent(dQ), lambda number: (active * h * number)[..., None] * outer)
    effects = {
        "center": Effect((move, pull), where(inner, -g, zero), where(inner, h * g, zero), center=q),
        "shape": Effect((sheared, shear), slope, value),
    }

    def product(x: Any) -> Any:
        return where(inner, _product(bent, x) / (2.0 * h), zero)

    w = share(rows, where(inner, product(1.0 + zero), p))
    return Face(rows, p, of_radius(rows, eta), product, w, g, inner, {**effects, **limits})


def _product(matrix: Any, x: Any) -> Any:
    """matrix·x for rows of vectors."""
    return (matrix @ x[..., None])[..., 0]


def bounded(
    rows: Rows, f: Any, p: Any, eta: Any, bent: Any, g: Any, own: dict[str, Effect],
    limits: dict[str, Effect], bounds: Bounds,
) -> Face:  # fmt: skip
    """The face of a ball in a box: entries at a bound move with the bound."""
    inner, h = regular(rows, eta)
    where, zero = rows.where, 0.0 * p
    one = 1.0 + zero
    low = where(bounds.lower > 0.0, bounds.lower, zero)
    high = where(bounds.upper < 1.0, bounds.upper, one)
    at_low = p <= low + ALIKE * low
    at_high = (p >= high - ALIKE * high) & ~at_low
    free = ~(at_low | at_high)
    S = where(free, bent, zero) / h
    # Where the box alone decides, its entries between the bounds share out the mass.
    w = share(rows, where(inner, S, where(free, high - low, zero)))
    force = where(free, zero, f - rows.sum(w * (f - where(inner, h * g, zero))) - where(inner, h * g, zero))
    effects: dict[str, Effect] = {}
    for name, each in own.items():
        raw = where(free & inner, each.raw, zero)
        slope = where(inner, each.slope, zero)
        effects[name] = each._replace(raw=raw, slope=slope, value=-h * slope)
    for name, at, counts in (
        ("lower", at_low, bounds.lower >= 0.0),
        ("upper", at_high, bounds.upper <= 1.0),
    ):
        raw = where(at & counts, one, zero)
        effects[name] = Effect(raw, zero, force * raw)
    return Face(rows, p, of_radius(rows, eta), S, w, g, inner, {**effects, **limits})


def _psi(rows: Rows, x: Any, k: float) -> Any:
    """ψ(x) = t with g(t) = x."""
    if k == 1.0:
        return rows.exp(x)
    inner = 1.0 + (k - 1.0) * x
    positive = inner > 0.0
    return rows.where(positive, rows.where(positive, inner, 1.0 + 0.0 * x) ** (1.0 / (k - 1.0)), 0.0 * x)
