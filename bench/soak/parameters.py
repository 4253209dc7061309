"""Parameters of each set for given centres and losses, including degenerate and saturated ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import uncertainty_sets as sets
from bench.soak import compositions, intersections, penalties, plugins
from bench.soak.drawing import Draw, Made, Maker


def box(draw: Draw) -> Made:
    """Multiples of the centre, tail-risk boxes, boxes with no room at all, unbounded ones."""
    rng, q, rows = draw.rng, draw.q, len(draw.f)
    column = (rows, 1)
    low = rng.choice([0.0, 0.0, 0.5, 0.9, 1.0, -1.0], column)
    high = rng.choice([1.0, 1.0 + 2e-16, 1.25, 1.5, 4.0, 100.0, np.inf], column)
    lower, upper = q * low, np.where(np.isinf(high), np.inf, q * np.where(np.isinf(high), 1.0, high))
    tail = rng.choice([0.8, 0.5, 0.1, 1e-3, 1e-9], column)
    # The tail at which the top alone has room for all of the mass, exactly or nearly.
    mass = (q * draw.top).sum(axis=1, keepdims=True)
    near = mass * (1.0 + rng.integers(-2, 3, column) * 1.1e-16)
    tail = np.where((rng.random(column) < (0.7 if draw.saturated else 0.2)) & (mass > 0.0), near, tail)
    kind = rng.random(column)
    risk = kind < (0.9 if draw.saturated else 0.4)
    with np.errstate(over="ignore"):
        upper = np.where(risk, q / np.minimum(tail, 1.0), upper)
    lower = np.where(risk, np.where(rng.random(column) < 0.2, 0.3 * q, 0.0), lower)
    loose = (kind > 0.9) & ~draw.saturated  # every entry its own bounds
    lower = np.where(loose, q * rng.random(q.shape), lower)
    upper = np.where(loose, q + rng.random(q.shape) ** 8, upper)
    return {"lower": lower, "upper": np.maximum(upper, lower)}, ("lower", "upper")


def kl(draw: Draw) -> Made:
    """Radii up to and around -log q(top)."""
    rng, q, f = draw.rng, draw.q, draw.f
    support = np.where(q > 0.0, f, -np.inf)
    mass = (q * (support == support.max(axis=1, keepdims=True))).sum(axis=1)
    with np.errstate(divide="ignore"):
        radius = draw.radii(np.maximum(0.0, -np.log(mass)), 10.0 ** rng.uniform(-8.0, 1.0, len(f)))
    return {"center": q, "radius": radius}, ("center", "radius")


def cd_norm(draw: Draw) -> Made:
    """Spreads equal, in proportion to the centre, over many decades, with zeros; budgets of every kind."""
    rng, q, (rows, n) = draw.rng, draw.q, draw.f.shape
    column = (rows, 1)
    spread = rng.random(q.shape) * rng.choice([0.05, 0.5, 2.0], column)
    kind = rng.integers(7, size=column)
    spread = np.where(kind == 1, rng.random(column), spread)
    spread = np.where(kind == 2, q * rng.choice([0.5, 1.0, 2.0], column), spread)
    spread = np.where(
        kind == 3, 10.0 ** -(rng.choice([5.0, 20.0, 300.0], column) * rng.random(q.shape)), spread
    )
    spread = np.where(kind == 4, rng.integers(0, 4, q.shape) / 8.0, spread)
    spread = np.where(kind == 5, spread * (rng.random(q.shape) < 0.6), spread)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        left = np.where(draw.top, 0.0, np.minimum(q / spread, 1.0))
        most = np.nan_to_num(left).sum(axis=1)
    usual = rng.choice([0.3, 0.5, 1.0, 2.0, 2.5, n / 3.0, n / 2.0, 3.0 * n], rows)
    return (
        {"center": q, "spread": spread, "budget": draw.radii(most, usual)},
        ("center", "spread", "budget"),
    )


def ellipsoid(draw: Draw) -> Made:
    """A diagonal for all rows: a number, random, over decades, or the centre itself (a χ² ball)."""
    rng, q, (rows, n) = draw.rng, draw.q, draw.f.shape
    kind = rng.integers(5)
    shape: Any = 10.0 ** rng.uniform(-3.0, 3.0)
    if kind == 1:
        shape = 10.0 ** rng.uniform(-2.0, 1.0, n)
    elif kind == 2:
        shape = 10.0 ** (rng.choice([8.0, 20.0, 90.0]) * rng.uniform(-1.0, 1.0, n))
    elif kind == 3:
        shape, q = np.maximum(q[0], 1e-100), np.tile(q[0], (rows, 1))
    elif kind == 4:
        shape, q = q[0] + 1e-6 / n, np.tile(q[0], (rows, 1))
    Q = np.broadcast_to(shape, n)
    top = draw.top
    with np.errstate(over="ignore"):
        rise = (1.0 - (q * top).sum(axis=1)) / (Q * top).sum(axis=1)
        face = (np.where(top, 0.0, q) ** 2 / Q).sum(axis=1) + rise**2 * (Q * top).sum(axis=1)
    usual = face * 10.0 ** rng.uniform(-6.0, 0.0, rows)
    usual = np.where(rng.random(rows) < 0.5, 10.0 ** rng.uniform(-6.0, 2.0, rows), usual)
    radius = draw.radii(face, np.where(np.isfinite(usual), usual, 1.0))
    return {"center": q, "shape": shape, "radius": radius}, ("center", "radius")


def ellipsoid_dense(draw: Draw) -> Made:
    """A matrix of any condition up to 1e15: then its least eigenvalues are of the size of its ulps."""
    rng, n = draw.rng, draw.f.shape[1]
    root, _ = np.linalg.qr(rng.normal(size=(n, n)))
    values = 10.0 ** rng.uniform(0.0, rng.choice([1.0, 3.0, 6.0, 10.0, 14.0, 15.0]), n)
    shape = (root * (values / values.max() if values.max() > 1e6 else values)) @ root.T
    radius = 10.0 ** rng.uniform(-6.0, 2.0, len(draw.f))
    return {"center": draw.q, "shape": 0.5 * (shape + shape.T), "radius": radius}, ("center", "radius")


LINES: tuple[Callable[[np.random.Generator, int], Any], ...] = (
    lambda rng, n: None,
    lambda rng, n: rng.normal(size=n),
    lambda rng, n: rng.integers(0, 4, n) / 2.0,
    lambda rng, n: 10.0 ** -(rng.choice([10.0, 20.0, 160.0]) * rng.random(n)),
    lambda rng, n: rng.integers(0, 9, n) * rng.choice([1e-160, 1e-20, 1e20, 1e100]),
    lambda rng, n: 1.0 + np.spacing(1.0) * rng.integers(0, 50, n),
    lambda rng, n: np.cumsum(10.0 ** rng.uniform(-8.0, 0.0, n)),
)
"""Positions: 0 … N-1, random, with ties, over decades, scaled with ties, an ulp apart, in uneven steps."""


def wasserstein(draw: Draw) -> Made:
    """On a line, with any of LINES as positions."""
    rng, q, (rows, n) = draw.rng, draw.q, draw.f.shape
    cost = LINES[rng.integers(len(LINES))](rng, n)
    x = np.arange(float(n)) if cost is None else cost
    order = np.argsort(x, kind="stable")
    place, top = x[order], draw.top[:, order]
    left = place - np.maximum.accumulate(np.where(top, place, -np.inf), axis=1)
    right = np.minimum.accumulate(np.where(top, place, np.inf)[:, ::-1], axis=1)[:, ::-1] - place
    need = (q[:, order] * np.minimum(left, right)).sum(axis=1)
    usual = 10.0 ** rng.uniform(-6.0, 1.0, rows) * float(np.ptp(x) or 1.0)
    return {"center": q, "radius": draw.radii(need, usual), "cost": cost}, ("center", "radius")


def wasserstein_matrix(draw: Draw) -> Made:
    """Any costs: random, not symmetric, with zeros, a metric of 0 and 1, over decades."""
    rng, q, (rows, n) = draw.rng, draw.q, draw.f.shape
    kind = rng.integers(4)
    cost = rng.random((n, n))
    if kind == 1:
        cost *= rng.random((n, n)) < 0.8
    elif kind == 2:
        cost[:] = 1.0
    elif kind == 3:
        cost = 10.0 ** rng.uniform(-8.0, 2.0, (n, n))
    np.fill_diagonal(cost, 0.0)
    nearest = np.where(draw.top[:, :, None], cost[None], np.inf).min(axis=1)
    usual = 10.0 ** rng.uniform(-6.0, 1.0, rows)
    radius = draw.radii((q * nearest).sum(axis=1), usual)
    return {"center": q, "radius": radius, "cost": cost}, ("center", "radius")


def total_variation(draw: Draw) -> Made:
    """Radii up to and around 1 - q(top)."""
    rng, q, rows = draw.rng, draw.q, len(draw.f)
    radius = draw.radii(1.0 - (q * draw.top).sum(axis=1), 10.0 ** rng.uniform(-8.0, 0.5, rows))
    return {"center": q, "radius": radius}, ("center", "radius")


def weighted_l1(draw: Draw) -> Made:
    """Weights equal, random, with ties, over many decades, and 1/q; radii around what all mass would cost."""
    rng, q, rows = draw.rng, draw.q, len(draw.f)
    column = (rows, 1)
    kind = rng.integers(6, size=column)
    weights = rng.uniform(0.1, 3.0, q.shape)
    weights = np.where(kind == 1, 10.0 ** rng.uniform(-3.0, 3.0, column), weights)
    weights = np.where(kind == 2, rng.integers(1, 4, q.shape) / 2.0, weights)
    decades = rng.choice([5.0, 20.0, 100.0], column)
    weights = np.where(kind == 3, 10.0 ** (decades * rng.uniform(-1.0, 1.0, q.shape)), weights)
    weights = np.where(kind == 4, 1.0 / np.maximum(q, 1e-100), weights)
    lightest = np.where(draw.top, weights, np.inf).min(axis=1, keepdims=True)
    most = (np.where(draw.top, 0.0, q) * (weights + lightest)).sum(axis=1)
    usual = most * 10.0 ** rng.uniform(-8.0, 0.2, rows)
    return (
        {"center": q, "weights": weights, "radius": draw.radii(most, usual)},
        ("center", "weights", "radius"),
    )


CRESSIE_READ = (-8.0, -3.0, -1.0, -0.5, -0.06, 0.0, 0.06, 0.3, 0.5, 0.94, 1.06, 1.5, 2.0, 3.0, 8.0)
"""Powers from one end of what is allowed to the other."""


def _power_ball(draw: Draw, power: float, unit: float) -> Made:
    """Radii up to and around the divergence of the centre restricted to the largest losses."""
    rng, q, f = draw.rng, draw.q, draw.f
    support = np.where(q > 0.0, f, -np.inf) if power > 1.0 else f
    mass = (q * (support == support.max(axis=1, keepdims=True))).sum(axis=1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        most = (mass ** (1.0 - power) - 1.0) / (power * (power - 1.0)) if power > 0.0 else np.inf
    usual = 10.0 ** rng.uniform(-8.0, 1.0, len(f))
    radius = draw.radii(np.broadcast_to(most, len(f)) / unit, usual)
    return {"center": q, "radius": radius}, ("center", "radius")


def chi_square(draw: Draw) -> Made:
    """Power 2."""
    return _power_ball(draw, 2.0, 0.5)


def hellinger(draw: Draw) -> Made:
    """Power ½."""
    return _power_ball(draw, 0.5, 4.0)


def burg(draw: Draw) -> Made:
    """Power 0."""
    return _power_ball(draw, 0.0, 1.0)


def cressie_read(draw: Draw) -> Made:
    """Any power, one for all rows."""
    power = float(draw.rng.choice(CRESSIE_READ))
    made, by_row = _power_ball(draw, power, 1.0)
    return {**made, "power": power}, by_row


def cvar(draw: Draw) -> Made:
    """Tails of all sizes, and those at or near the mass of the largest losses."""
    rng, q, rows = draw.rng, draw.q, len(draw.f)
    mass = (q * draw.top).sum(axis=1)
    near = mass * (1.0 + rng.choice([0.0, 1.1e-16, -2.2e-16, 1e-12, -1e-9, 1e-6], rows))
    usual = rng.choice([1.0, 1.0 - 1e-16, 1.0 - 1e-9, 0.5, 0.1, 1e-3, 1e-9, 1e-30, 1e-300], rows)
    usual = np.where(rng.random(rows) < 0.5, 1.0 - rng.random(rows), usual)
    pick = (rng.random(rows) < (0.8 if draw.saturated else 0.2)) & (near > 0.0)
    tail = np.clip(np.where(pick, near, usual), 1e-300, 1.0)  # smaller ones count as the least
    return {"center": q, "tail": tail}, ("center", "tail")


def cvar_mixture(draw: Draw) -> Made:
    """One to four levels for all rows, some of them twice or without weight."""
    levels = int(draw.rng.integers(1, 5))
    tails = draw.rng.choice([1.0, 0.75, 0.5, 0.25, 0.1, 1e-3, 1e-9, 1e-20], levels)
    weights = draw.rng.exponential(size=levels) * (draw.rng.random(levels) < 0.8)
    weights = weights if weights.sum() > 0.0 else np.ones(levels)
    return {"center": draw.q, "tails": tails, "weights": weights / weights.sum()}, ("center",)


def spectral(draw: Draw) -> Made:
    """Breakpoints for all rows: powers of u, a steep start, or the diagonal."""
    rng = draw.rng
    knots = np.unique(np.concatenate([[0.0, 1.0], rng.random(int(rng.integers(0, 6)))]))
    if rng.random() < 0.3:
        knots = np.unique(np.append(knots, [1e-9, 1e-3]))
    heights = knots ** rng.choice([1.0, 0.5, 0.1])
    heights[[0, -1]] = 0.0, 1.0
    return {"center": draw.q, "distortion": np.column_stack([knots, heights])}, ("center",)


def polyhedron(draw: Draw) -> Made:
    """Random rows that a centre meets exactly or with room, scaled by up to 1e±4, some of them twice."""
    rng, n = draw.rng, draw.f.shape[1]
    D = rng.normal(size=(int(rng.integers(1, 8)), n))
    if rng.random() < 0.3:
        D = np.round(D)
    c = D @ draw.q[0] + rng.choice([0.0, 1e-9, 0.05, 0.5], len(D))
    scale = 10.0 ** rng.uniform(-1.0, rng.choice([1.0, 4.0]), len(D))
    D, c = D * scale[:, None], c * scale
    if rng.random() < 0.3:
        D, c = np.vstack([D, D[0]]), np.append(c, c[0] if rng.random() < 0.5 else np.inf)
    return {"D": D, "c": c}, ()


def plugin(draw: Draw) -> Made:
    """One centre without zeros and one radius of ordinary size for all rows."""
    q = 0.9 * draw.q[0] + 0.1 / draw.f.shape[1]
    return {"center": q / q.sum(), "radius": float(10.0 ** draw.rng.uniform(-3.0, 0.5))}, ()


def in_units(draw: Draw) -> Made:
    """The same with the constraint in units of 1e-8 to 1e8; half of them by way of variables in another."""
    made, _ = plugin(draw)
    scale, link = 10.0 ** draw.rng.uniform(-8.0, 8.0, 2)
    link = float(link) if draw.rng.random() < 0.5 else 0.0
    return made | {"scale": float(scale), "link": link}, ()


def example(draw: Draw) -> Made:
    """What `example` of the class needs; for sets of the registry without a maker here."""
    return {"size": draw.f.shape[1], "seed": int(draw.rng.integers(2**32))}, ()


MAKERS = {
    "box": Maker(sets.Box, box, ("nu",)),
    "cd-norm": Maker(sets.CDNorm, cd_norm, ("nu", "pi")),
    "ellipsoid": Maker(sets.Ellipsoid, ellipsoid, ("nu", "tau")),
    "kl": Maker(sets.KL, kl, ("eta",)),
    "total-variation": Maker(sets.TotalVariation, total_variation, ("t",)),
    "weighted-l1": Maker(sets.WeightedL1, weighted_l1, ("lam",)),
    "chi-square": Maker(sets.ChiSquare, chi_square, ("eta", "margin")),
    "hellinger": Maker(sets.Hellinger, hellinger, ("eta", "margin")),
    "burg": Maker(sets.Burg, burg, ("eta", "margin")),
    "cressie-read": Maker(sets.CressieRead, cressie_read, ("eta", "margin")),
    "cvar": Maker(sets.CVaR, cvar, ("var",)),
    "evar": Maker(sets.EVaR, cvar, ("eta",)),
    "cvar-mixture": Maker(sets.CVaRMixture, cvar_mixture, ()),
    "spectral": Maker(sets.Spectral, spectral, ()),
    "wasserstein-1": Maker(sets.Wasserstein1, wasserstein, ("lam",)),
    "wasserstein-1 matrix": Maker(sets.Wasserstein1, wasserstein_matrix, ("lam",), largest=97, rows=40),
    "ellipsoid dense": Maker(sets.Ellipsoid, ellipsoid_dense, ("nu",), largest=25, rows=10, conic=True),
    "polyhedron": Maker(sets.Polyhedron, polyhedron, (), largest=97, rows=3, conic=True),
    "plug-in tv": Maker(plugins.TotalVariation, plugin, (), largest=25, rows=3, conic=True),
    "plug-in euclidean": Maker(plugins.Euclidean, plugin, (), largest=25, rows=3, conic=True),
    "plug-in entropic": Maker(plugins.Entropic, plugin, (), largest=25, rows=3, conic=True),
    "units tv": Maker(plugins.TotalVariationInUnits, in_units, (), largest=25, rows=20, conic=True),
    "units euclidean": Maker(plugins.EuclideanInUnits, in_units, (), largest=25, rows=20, conic=True),
    "units entropic": Maker(plugins.EntropicInUnits, in_units, (), largest=25, rows=20, conic=True),
}


def _examples() -> dict[str, Maker]:
    """Every other set of the registry, by its `example`; p is judged by the set's own constraints."""

    def maker(name: str) -> Maker:
        def build(size: int, seed: int) -> Any:
            return sets.get_set(name).example(size, np.random.default_rng(seed))

        return Maker(build, example, (), largest=25, rows=3, conic=True)

    return {name: maker(name) for name in sets.available_sets() if name not in MAKERS}


MAKERS |= intersections.MAKERS | penalties.MAKERS | compositions.MAKERS
MAKERS |= _examples()
