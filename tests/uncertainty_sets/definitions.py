"""Every set and penalty a second time, as cvxpy constraints written from its formula.

Nothing here calls `constraints`, a kernel or conic/: only the public parameters are read. A set needs an
entry in `DEFINITIONS`, by its name, a penalty one in `DIVERGENCES`; test_references.py says what to write.

    DEFINITIONS[name](p, mass, **parameters)  ->  the constraints of p = mass·(a member),

for p >= 0 and Σp = mass, which are stated already. The mass is 1, or a variable for a block of Nested: that
is why each formula is written in p and mass·q.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from itertools import product as choices
from typing import Any

import cvxpy as cp
import numpy as np

from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.penalised import Penalised

MOST_EVENTS = 10
"""The largest N for which every event gets a row of its own."""


def parameters(uncertainty_set) -> dict[str, Any]:
    """The constructor's parameters, as the set's attributes of the same name."""
    return {
        name: getattr(uncertainty_set, name) for name in inspect.signature(type(uncertainty_set)).parameters
    }


def kl(p, mass, center, radius):
    q, inside = np.asarray(center), np.flatnonzero(center > 0.0)
    outside = np.flatnonzero(center == 0.0)
    gone = [p[outside] == 0] if outside.size else []
    return [cp.sum(cp.rel_entr(p[inside], mass * q[inside])) <= mass * radius, *gone]


def evar(p, mass, center, tail):
    return kl(p, mass, center, -np.log(tail))


def burg(p, mass, center, radius):
    inside = np.flatnonzero(center > 0.0)
    return [cp.sum(cp.rel_entr(mass * center[inside], p[inside])) <= mass * radius]


def chi_square(p, mass, center, radius):
    inside, outside = np.flatnonzero(center > 0.0), np.flatnonzero(center == 0.0)
    q = center[inside]
    gone = [p[outside] == 0] if outside.size else []
    return [cp.norm(cp.multiply(q**-0.5, p[inside] - mass * q)) <= mass * np.sqrt(radius), *gone]


def hellinger(p, mass, center, radius):
    """½Σ(√p - √q)² = 1 - Σ√(pq); g² <= p·mass stands for √p."""
    g = cp.Variable(center.size)
    roots = [cp.quad_over_lin(g[i], mass) <= p[i] for i in range(center.size)]
    return [np.sqrt(center) @ g >= mass * (1.0 - radius), *roots]


def cressie_read(p, mass, center, radius, power):
    """Σ q·φ(p/q) = (Σ q·(p/q)^k - 1)/(k(k-1)); at q = 0 the sum has p/(1-k), and p = 0 for k > 1."""
    if power == 0.0:
        return burg(p, mass, center, radius)
    inside, outside = np.flatnonzero(center > 0.0), np.flatnonzero(center == 0.0)
    ratio = cp.multiply(center[inside] ** (1.0 / power - 1.0), p[inside])
    size, level = cp.pnorm(ratio, power), 1.0 + power * (power - 1.0) * radius
    if power > 1.0:
        return [size <= mass * level ** (1.0 / power), *([p[outside] == 0] if outside.size else [])]
    return [size >= mass * level ** (1.0 / power)] if level > 0.0 else []


def box(p, mass, lower, upper):
    low, most = np.flatnonzero(lower > 0.0), np.flatnonzero(upper < 1.0)
    limits = [p[low] >= mass * lower[low]] if low.size else []
    return limits + ([p[most] <= mass * upper[most]] if most.size else [])


def cvar(p, mass, center, tail):
    return [p <= mass * (center / tail)]


def cvar_mixture(p, mass, center, tails, weights):
    """p = Σ weight·(a member of the CVaR of each tail)."""
    parts = [cp.Variable(center.size, nonneg=True) for _ in tails]
    limits = [p == sum(parts)]
    for part, tail, weight in zip(parts, tails, weights / np.sum(weights), strict=True):
        limits += [cp.sum(part) == mass * weight, part <= mass * (weight * center / tail)]
    return limits


def spectral(p, mass, center, distortion):
    """Σ_S p <= H(Σ_S q) for every event S, all 2^N of them."""
    if center.size > MOST_EVENTS:
        raise ValueError(f"2^{center.size} events are too many")
    events = np.array(list(choices([0.0, 1.0], repeat=center.size)))
    return [events @ p <= mass * height(distortion, events @ center)]


def height(distortion, probability):
    """H, from a function or its breakpoints."""
    if callable(distortion):
        return distortion(np.minimum(probability, 1.0))
    points = np.asarray(distortion)
    return np.interp(probability, points[:, 0], points[:, 1])


def cd_norm(p, mass, center, spread, budget):
    s = np.broadcast_to(spread, center.shape)
    free, far = np.flatnonzero(s > 0.0), cp.abs(p - mass * center)
    limits = [far <= mass * s]
    return limits + ([(1.0 / s[free]) @ far[free] <= mass * budget] if free.size else [])


def ellipsoid(p, mass, center, shape, radius):
    Q = np.diag(np.broadcast_to(shape, center.shape)) if np.ndim(shape) < 2 else np.asarray(shape)
    root = np.linalg.inv(np.linalg.cholesky(Q))
    return [cp.norm(root @ (p - mass * center)) <= mass * np.sqrt(radius)]


def polyhedron(p, mass, D, c):
    bounded = np.flatnonzero(np.isfinite(c))
    return [np.asarray(D)[bounded] @ p <= mass * c[bounded]] if bounded.size else []


def total_variation(p, mass, center, radius):
    return [0.5 * cp.norm1(p - mass * center) <= mass * radius]


def weighted_l1(p, mass, center, weights, radius):
    return [np.broadcast_to(weights, center.shape) @ cp.abs(p - mass * center) <= mass * radius]


def wasserstein(p, mass, center, radius, cost=None, order=2.0):
    """A plan γ[i, j] >= 0 that brings γ[i, j] of the centre's j to i."""
    x = np.arange(center.size) if cost is None else np.asarray(cost)
    powers = (np.abs(np.subtract.outer(x, x)) if x.ndim == 1 else x) ** order
    unit = max(radius**order, 1e-12)
    plan = cp.Variable((center.size, center.size), nonneg=True)
    spent = cp.sum(cp.multiply(powers / unit, plan)) <= mass * (radius**order / unit)
    return [cp.sum(plan, axis=0) == mass * center, cp.sum(plan, axis=1) == p, spent]


def wasserstein1(p, mass, center, radius, cost=None):
    return wasserstein(p, mass, center, radius, cost, 1.0)


def intersection(p, mass, members):
    return [limit for each in members for limit in stated(each, p, mass)]


def product(p, mass, sets, weights):
    shares = zip(sets, blocks(p, sets), weights, strict=True)
    return [limit for each, part, weight in shares for limit in distribution(each, part, mass * weight)]


def nested(p, mass, outer, inners):
    weights = cp.Variable(len(inners), nonneg=True)
    limits = distribution(outer, weights, mass)
    for each, part, weight in zip(inners, blocks(p, inners), weights, strict=True):
        limits += distribution(each, part, weight)
    return limits


def mapped(p, mass, groups, M):
    weights = cp.Variable(M.shape[0], nonneg=True)
    return [p == M.T @ weights, *distribution(groups, weights, mass)]


def blocks(p, sets):
    """p cut into the entries of each set, in order."""
    ends = np.cumsum([each.size for each in sets])
    return [p[end - each.size : end] for end, each in zip(ends, sets, strict=True)]


DEFINITIONS: dict[str, Callable[..., list[Any]]] = {
    "box": box,
    "burg": burg,
    "cd-norm": cd_norm,
    "chi-square": chi_square,
    "cressie-read": cressie_read,
    "cvar": cvar,
    "cvar-mixture": cvar_mixture,
    "ellipsoid": ellipsoid,
    "evar": evar,
    "hellinger": hellinger,
    "intersection": intersection,
    "kl": kl,
    "mapped": mapped,
    "nested": nested,
    "polyhedron": polyhedron,
    "product": product,
    "spectral": spectral,
    "total-variation": total_variation,
    "wasserstein": wasserstein,
    "wasserstein-1": wasserstein1,
    "weighted-l1": weighted_l1,
}
"""The constraints of p = mass·(a member), by the set's name."""

DIVERGENCES: dict[str, Callable[..., tuple[Any, list[Any]]]] = {
    "kl": lambda p, mass, q: (
        cp.sum(cp.rel_entr(p[q > 0.0], mass * q[q > 0.0])),
        _none_outside(p, q),
    ),
    "chi-square": lambda p, mass, q: (
        cp.quad_over_lin(cp.multiply(q[q > 0.0] ** -0.5, p[q > 0.0] - mass * q[q > 0.0]), mass),
        _none_outside(p, q),
    ),
    "total-variation": lambda p, mass, q: (0.5 * cp.norm1(p - mass * q), []),
}
"""mass·D(p/mass‖q) of a penalty, and the constraints of where it is finite."""


def _none_outside(p, q):
    return [p[q == 0.0] == 0] if (q == 0.0).any() else []


def stated(uncertainty_set: UncertaintySet, p, mass) -> list[Any]:
    """p = mass·(a member), given p >= 0 and Σp = mass."""
    if uncertainty_set.name not in DEFINITIONS:  # tried in a copy of the project: a test has ours
        return uncertainty_set.constraints(p)
    return DEFINITIONS[uncertainty_set.name](p, mass, **parameters(uncertainty_set))


def distribution(uncertainty_set: UncertaintySet, p, mass=1.0) -> list[Any]:
    """p = mass·(a member)."""
    return [p >= 0, cp.sum(p) == mass, *stated(uncertainty_set, p, mass)]


def price(oracle, p, mass=1.0) -> tuple[Any, list[Any]]:
    """What p costs, 0 in a set and the weighted divergence of a Penalised, and what p has to obey."""
    if isinstance(oracle, Penalised):
        divergence, finite = DIVERGENCES[oracle.divergence](p, mass, oracle.center)
        return oracle.weight * divergence, [p >= 0, cp.sum(p) == mass, *finite]
    return cp.Constant(0.0), distribution(oracle, p, mass)


def maximum(oracle, losses) -> float:
    """The largest pᵀf, less the penalty, by cvxpy; losses of size 1 suit its tolerances."""
    p = cp.Variable(losses.size)
    cost, limits = price(oracle, p)
    return solved(cp.Problem(cp.Maximize(losses @ p - cost), limits))


def solved(problem) -> float:
    """The optimum by Clarabel, with shorter steps if it stops short, or by SCS at 1e-9."""
    for solver, options in (
        (cp.CLARABEL, {}),
        (cp.CLARABEL, {"max_step_fraction": 0.9, "max_iter": 1000}),
        (cp.SCS, {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 200_000}),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "may be inaccurate": the status says so too
            try:
                problem.solve(solver=solver, **options)
            except cp.error.SolverError:
                continue
        if problem.status == cp.OPTIMAL:
            return float(problem.solution.opt_val)  # `value` would take logarithms of a p of -1e-12
    raise AssertionError(f"cvxpy has no answer: {problem.status}")
