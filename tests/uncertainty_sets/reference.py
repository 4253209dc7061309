"""Independent models of sets: linear programs and cvxpy models written from the definitions.

None of `MODELS` calls `set.constraints`, a kernel or anything else of the code under test: they take the
parameters and the losses as plain arrays and return the maximum of pᵀf. Every set also has a definition in
cvxpy (definitions.py), which is its only reference if it has no model here.
"""

from __future__ import annotations

import cvxpy as cp
import numpy as np
from scipy.optimize import brentq, linprog, minimize_scalar
from scipy.special import logsumexp

from tests import tolerances
from tests.uncertainty_sets import definitions


def _maximum(program) -> float:
    assert program.status == 0, program.message
    return -program.fun


def box(f, lower, upper) -> float:
    bounds = list(zip(np.maximum(lower, 0.0), np.minimum(upper, 1.0), strict=True))
    return _maximum(linprog(-f, A_eq=np.ones((1, f.size)), b_eq=[1.0], bounds=bounds, method="highs"))


def polyhedron(f, D, c) -> float:
    return _maximum(
        linprog(-f, A_ub=D, b_ub=c, A_eq=np.ones((1, f.size)), b_eq=[1.0], bounds=(0, None), method="highs")
    )


def cd_norm(f, center, spread, budget) -> float:
    """p = q + up - down; a spread of 0 leaves p_j = q_j and takes no part in the budget."""
    n = f.size
    s = np.broadcast_to(spread, n)
    rate = np.where(s > 0.0, 1.0 / np.where(s > 0.0, s, 1.0), 0.0)
    balance = np.concatenate([np.ones(n), -np.ones(n)])[None]
    bounds = [(0.0, x) for x in s] + [(0.0, min(x, y)) for x, y in zip(s, center, strict=True)]
    program = linprog(
        np.concatenate([-f, f]),
        A_ub=np.concatenate([rate, rate])[None],
        b_ub=[budget],
        A_eq=balance,
        b_eq=[0.0],
        bounds=bounds,
        method="highs",
    )
    return float(center @ f) + _maximum(program)


def weighted_l1(f, center, weights, radius) -> float:
    """p = q + up - down with down <= q; up and down cost the weights."""
    n = f.size
    w = np.broadcast_to(weights, n)
    program = linprog(
        np.concatenate([-f, f]),
        A_ub=np.concatenate([w, w])[None],
        b_ub=[radius],
        A_eq=np.concatenate([np.ones(n), -np.ones(n)])[None],
        b_eq=[0.0],
        bounds=[(0.0, None)] * n + [(0.0, x) for x in center],
        method="highs",
    )
    return float(center @ f) + _maximum(program)


def total_variation(f, center, radius) -> float:
    return weighted_l1(f, center, 0.5, radius)


def wasserstein1(f, center, radius, cost=None) -> float:
    """The plan γ[i, j] >= 0 from the centre's j to i; the paper's program lacks the sign."""
    n = f.size
    if cost is None:
        cost = np.arange(n)
    matrix = np.abs(np.subtract.outer(cost, cost)) if np.ndim(cost) == 1 else np.asarray(cost)
    sources = np.kron(np.ones((1, n)), np.eye(n))
    program = linprog(
        -np.repeat(f, n),
        A_ub=matrix.reshape(1, -1),
        b_ub=[radius],
        A_eq=sources,
        b_eq=center,
        bounds=(0, None),
        method="highs",
    )
    return _maximum(program)


def wasserstein(f, center, radius, cost=None, order=2.0) -> float:
    """The dual in one variable: min over λ >= 0 of λ·radius^order + Σ_j q_j·max_i (f_i - λ·d_ij^order).

    It is convex and piecewise linear, so the least value is where two of the lines cross, or at 0. A linear
    program would not do: HiGHS forgives 1e-7 of a row, and a small radius to the third power is below that.
    """
    x = np.arange(f.size) if cost is None else np.asarray(cost)
    powers = (np.abs(np.subtract.outer(x, x)) if x.ndim == 1 else x) ** order

    def dual(multiplier) -> float:
        return multiplier * radius**order + float(center @ (f[:, None] - multiplier * powers).max(axis=0))

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        crossings = (f[:, None] - f)[:, :, None] / (powers[:, None, :] - powers[None, :, :])
    found = np.unique(crossings[np.isfinite(crossings) & (crossings > 0.0)])
    return min(map(dual, [0.0, *found]))


def ellipsoid(f, center, shape, radius) -> float:
    n = f.size
    Q = np.diag(np.broadcast_to(shape, n)) if np.ndim(shape) < 2 else np.asarray(shape)
    if radius == 0.0:
        return float(center @ f)
    scale = tolerances.spread(f) or 1.0
    p = cp.Variable(n)
    root = np.linalg.inv(np.linalg.cholesky(Q * radius))
    problem = cp.Problem(
        cp.Maximize(((f - f.min()) / scale) @ p),
        [p >= 0, cp.sum(p) == 1, cp.norm(root @ (p - center)) <= 1.0],
    )
    problem.solve(solver=cp.CLARABEL)
    assert problem.status == cp.OPTIMAL, problem.status
    return float(f.min() + scale * problem.value)


def kl(f, center, radius) -> float:
    """The dual in one variable by root finding in the primal: KL(p_θ‖q) = radius (more exact than cvxpy)."""
    inside = center > 0.0
    q, g = center[inside], f[inside]
    top = g.max()
    scale = tolerances.spread(g)
    if scale == 0.0 or radius >= -np.log(q[g == top].sum()):
        return float(top)
    if radius == 0.0:
        return float(q @ g)
    x = (g - top) / scale

    def tilted(theta):
        log_weight = logsumexp(theta * x, b=q)
        p = q * np.exp(theta * x - log_weight)
        return p, theta * float(p @ x) - log_weight

    high = 1.0
    while tilted(high)[1] < radius:
        high *= 2.0
    theta = brentq(lambda t: tilted(t)[1] - radius, 0.0, high, xtol=1e-14, rtol=1e-14)
    return float(top + scale * (tilted(theta)[0] @ x))


def kl_cvxpy(f, center, radius) -> float:
    """The definition itself, by an exponential cone solver."""
    p = cp.Variable(f.size)
    problem = cp.Problem(
        cp.Maximize(f @ p), [p >= 0, cp.sum(p) == 1, cp.sum(cp.rel_entr(p, center)) <= radius]
    )
    problem.solve(solver=cp.CLARABEL)
    assert problem.status == cp.OPTIMAL, problem.status
    return float(problem.value)


def power_divergence(f, center, radius, power) -> float:
    """The dual of {p : Σ q·φ(p/q) <= radius} in one variable, on a grid and then by scipy, in 80-bit numbers.

    Independent of the kernel's own search: the bound of every margin is above the maximum, and the least of
    them is the maximum.
    """
    inside = center > 0.0
    g, top = (f[inside], f[inside].max()) if power > 1.0 else (f, f.max())
    if radius == 0.0 or np.ptp(g) == 0.0:
        return float(center @ f)

    def bound(log_margin):
        return power_bound(f, center, radius, power, np.exp(log_margin) * np.ptp(g)) - top

    grid = np.linspace(-80.0, 16.0, 400)
    at = int(np.argmin([bound(x) for x in grid]))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, grid.size - 1)]
    found = minimize_scalar(bound, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    return float(top + min(found.fun, bound(grid[at]), 0.0))


def power_bound(f, center, radius, power, margin) -> float:
    """Hölder's bound at a margin, in 80-bit numbers; T - f as margin + (max f - f) keeps its digits."""
    inside = center > 0.0
    q, k, m = center[inside].astype(np.longdouble), np.longdouble(power), np.longdouble(margin)
    top = (f[inside] if power > 1.0 else f).max()
    below = (top - f[inside]).astype(np.longdouble)
    if np.isinf(margin):
        return float(top - q @ below)
    with np.errstate(divide="ignore"):
        if power == 0.0:
            return float(top + (m - np.exp(q @ np.log(m + below) - radius)))
        room, c = 1.0 + k * (k - 1.0) * radius, k / (k - 1.0)
        if room <= 0.0:
            return float(top)
        h = np.maximum(m - below, 0.0) if power > 1.0 else m + below
        rise = room ** (1.0 / k) * (q @ h**c) ** (1.0 / c)
    return float(top + (rise - m if power > 1.0 else m - rise))


def cvar(f, center, tail) -> float:
    return box(f, np.zeros(f.size), center / tail)


def evar(f, center, tail) -> float:
    return kl(f, center, -np.log(tail))


def spectral(f, center, distortion) -> float:
    """The integral of the losses by the distorted probability of being among the largest."""
    order = np.argsort(-f, kind="stable")
    heights = definitions.height(distortion, np.concatenate([[0.0], np.cumsum(center[order])]))
    return float(f[order] @ np.diff(heights))


def cvar_mixture(f, center, tails, weights) -> float:
    return spectral(
        f, center, lambda u: np.minimum(1.0, np.divide.outer(u, tails)) @ weights / np.sum(weights)
    )


def of_set(uncertainty_set, f) -> float:
    """The maximum over a set that is a part of another."""
    return MODELS[uncertainty_set.name][0](f, **definitions.parameters(uncertainty_set))


def product(f, sets, weights) -> float:
    return float(sum(w * of_set(each, g) for w, each, g in zip(weights, sets, _cut(f, sets), strict=True)))


def nested(f, outer, inners) -> float:
    return of_set(outer, np.array([of_set(each, g) for each, g in zip(inners, _cut(f, inners), strict=True)]))


def mapped(f, groups, M) -> float:
    return of_set(groups, M @ f)


def _cut(f, sets) -> list[np.ndarray]:
    return np.split(f, np.cumsum([each.size for each in sets])[:-1])


POWERS = {"chi-square": (2.0, 0.5), "hellinger": (0.5, 4.0), "burg": (0.0, 1.0)}
"""The power and the units of its divergence per unit of the radius."""


def _of_power(name):
    power, unit = POWERS[name]
    return lambda f, center, radius: power_divergence(f, center, unit * radius, power)


MODELS = {
    **{name: (_of_power(name), tolerances.REFERENCE_LP) for name in POWERS},
    "cressie-read": (power_divergence, tolerances.REFERENCE_LP),
    "box": (box, tolerances.REFERENCE_LP),
    "polyhedron": (polyhedron, tolerances.REFERENCE_LP),
    "cd-norm": (cd_norm, tolerances.REFERENCE_LP),
    "wasserstein-1": (wasserstein1, tolerances.REFERENCE_LP),
    "wasserstein": (wasserstein, tolerances.REFERENCE_LP),
    "ellipsoid": (ellipsoid, tolerances.REFERENCE_CONIC),
    "kl": (kl, tolerances.REFERENCE_LP),
    "total-variation": (total_variation, tolerances.REFERENCE_LP),
    "weighted-l1": (weighted_l1, tolerances.REFERENCE_LP),
    "cvar": (cvar, tolerances.REFERENCE_LP),
    "cvar-mixture": (cvar_mixture, tolerances.REFERENCE_LP),
    "evar": (evar, tolerances.REFERENCE_LP),
    "mapped": (mapped, tolerances.REFERENCE_LP),
    "nested": (nested, tolerances.REFERENCE_LP),
    "product": (product, tolerances.REFERENCE_LP),
    "spectral": (spectral, tolerances.REFERENCE_LP),
}
"""The maximum of pᵀf by another formula or program than the set's, and how exact that is."""


def tilted_mean(f, q, weight) -> float:
    return float(weight * logsumexp(f / weight, b=q))


def chi_square_price(f, q, weight) -> float:
    """The p of each threshold is q·max(1 + (f-ν)/2τ, 0), and its sum is 1 at the right one."""
    inside = q > 0.0
    g, q = f[inside], q[inside]

    def at(nu):
        return q * np.maximum(1.0 + (g - nu) / (2.0 * weight), 0.0)

    nu = brentq(lambda x: at(x).sum() - 1.0, g.min() - 1.0, g.max() + 2.0 * weight, xtol=1e-14, rtol=1e-14)
    return float(at(nu) @ g - weight * ((at(nu) - q) ** 2 / q).sum())


def clipped_mean(f, q, weight) -> float:
    return float(q @ np.maximum(f, f.max() - weight))


PENALTIES = {"kl": tilted_mean, "chi-square": chi_square_price, "total-variation": clipped_mean}
"""The maximum of pᵀf - weight·D(p‖q) for weights above 0, by the name of the divergence."""


def maximum(case, f) -> tuple[float, float]:
    """The largest pᵀf for losses of size 1, by the set's model or else its definition, and its tolerance."""
    if case.name in MODELS:
        model, tolerance = MODELS[case.name]
        return model(f, **(case.parameters or definitions.parameters(case.set))), tolerance
    return definitions.maximum(case.set, f), tolerances.REFERENCE_CONIC


def bound(name, f, parameters, dual) -> float:
    """The upper bound recomputed from the multipliers alone, by the formula of the set's docstring."""
    if name == "box":
        low, high = np.maximum(parameters["lower"], 0.0), np.minimum(parameters["upper"], 1.0)
        h = f - dual["nu"]
        return dual["nu"] + np.maximum(low * h, high * h).sum()
    if name == "polyhedron":
        D, c, y = parameters["D"], parameters["c"], dual["y"]
        assert (y >= 0.0).all()
        return c @ y + (f - D.T @ y).max()
    q = parameters["center"]
    if name in POWERS or name == "cressie-read":
        power, unit = POWERS.get(name) or (parameters["power"], 1.0)
        return power_bound(f, q, unit * parameters["radius"], power, dual["margin"])
    if name == "kl":
        eta, radius, inside = dual["eta"], parameters["radius"], q > 0.0
        top = f[inside].max()
        if eta == 0.0:
            return top
        if np.isinf(eta):
            assert radius == 0.0
            return top + q @ (f - top)
        return top + eta * (radius + np.log(q[inside] @ np.exp((f[inside] - top) / eta)))
    if name == "cd-norm":
        s, nu, pi = np.broadcast_to(parameters["spread"], f.size), dual["nu"], dual["pi"]
        assert pi >= 0.0
        cap = np.where(s > 0.0, np.minimum(1.0, q / np.where(s > 0.0, s, 1.0)), 0.0)
        rise = np.where(s > 0.0, np.minimum(1.0, (1.0 - q) / np.where(s > 0.0, s, 1.0)), 0.0)
        gain = np.maximum(rise * (s * (f - nu) - pi), cap * (s * (nu - f) - pi))
        return nu + q @ (f - nu) + parameters["budget"] * pi + np.maximum(0.0, gain).sum()
    if name in {"wasserstein-1", "wasserstein"}:
        cost, lam, order = parameters.get("cost"), dual["lam"], parameters.get("order", 1.0)
        assert lam >= 0.0
        cost = np.arange(f.size) if cost is None else np.asarray(cost)
        matrix = np.abs(np.subtract.outer(cost, cost)) if cost.ndim == 1 else cost
        top = f.max()
        limit = lam * parameters["radius"] ** order
        return top + limit + q @ ((f - top)[:, None] - lam * matrix**order).max(axis=0)
    if name == "total-variation":
        top, t = f.max(), dual["t"]
        assert t <= top
        return top + q @ np.maximum(f - top, t - top) + parameters["radius"] * (top - t)
    if name == "weighted-l1":
        top, w, lam = f.max(), parameters["weights"], dual["lam"]
        assert lam >= 0.0
        best = (f - top - lam * w).max()
        return top + lam * parameters["radius"] + q @ np.maximum(f - top, best - lam * w)
    if name == "ellipsoid":
        Q, nu, radius = np.asarray(parameters["shape"]), dual["nu"], parameters["radius"]
        if Q.ndim == 2:
            assert (dual["mu"] >= 0.0).all()
            y = f - nu + dual["mu"]
            unit = np.abs(y).max() or 1.0  # losses of 1e±200 have no squares
            square = (y / unit) @ Q @ (y / unit)
        else:
            low = np.where(q > 0.0, -dual["tau"] * np.where(q > 0.0, q, 1.0) / Q, -0.0)
            y = np.maximum(f - nu, low)
            unit = np.abs(y).max() or 1.0
            square = (Q * (y / unit) ** 2).sum()
        return nu + q @ y + unit * np.sqrt(radius * square)
    raise LookupError(name)


BOUNDS = frozenset(
    {"box", "cd-norm", "cressie-read", "ellipsoid", "kl", "polyhedron", "total-variation", "wasserstein"}
    | {"wasserstein-1", "weighted-l1"}
    | POWERS.keys()
)
"""The sets whose bound `bound` recomputes."""
