"""The maximum by another solver, from the definition of each set: an occasional check of the judge itself.

Losses are scaled to [-1, 0]. Solvers stop at about 1e-7 and need numbers near 1: rows far from that are left
to the certificates, which hold at any scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.soak.cases import Case
from uncertainty_sets.arrays import Array

LINEAR, CONIC = 1e-6, 1e-4
"""How far off a simplex solver and an interior-point solver may be, over the spread."""

LARGEST = 25
"""The largest N to compare."""


def difference(case: Case, row: int, p: Array) -> tuple[float, float] | None:
    """(how far the value of p is from the other solver's, what is allowed); None if it cannot tell."""
    model = MODELS.get(case.name)
    f = case.losses[row]
    spread = float(f.max() / 2.0 - f.min() / 2.0)
    if model is None or case.size > LARGEST or not 1e-300 < spread < 1e300:
        return None
    u = (f - f.max()) / (2.0 * spread)
    best, tolerance = model(u, **case.row_parameters(row))
    return None if best is None else (abs(float(p @ u) - best), tolerance)


Answer = tuple[float | None, float]


def _linear(objective: Array, **program: Any) -> Answer:
    from scipy.optimize import linprog

    found = linprog(-objective, method="highs", **program)
    return (-float(found.fun) if found.status == 0 else None), LINEAR


def box(f: Array, lower: Array, upper: Array) -> Answer:
    """p between its bounds."""
    limits = np.column_stack([np.maximum(lower, 0.0), np.minimum(upper, 1.0)])
    return _linear(f, A_eq=np.ones((1, f.size)), b_eq=[1.0], bounds=limits)


def cd_norm(f: Array, center: Array, spread: Array, budget: float) -> Answer:
    """p = q + s·(a - b) with a, b in [0, 1]."""
    s = np.broadcast_to(spread, f.size)
    q = center / center.sum()
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        rise, cap = np.minimum(1.0, (1.0 - q) / s), np.minimum(1.0, q / s)
    most = np.concatenate([np.where(s > 0.0, rise, 0.0), np.where(s > 0.0, cap, 0.0)])
    gain = np.concatenate([s * f, -s * f])
    found, tolerance = _linear(
        gain,
        A_ub=np.ones((1, 2 * f.size)),
        b_ub=[min(float(budget), 2.0 * f.size)],
        A_eq=np.concatenate([s, -s])[None],
        b_eq=[0.0],
        bounds=np.column_stack([np.zeros(2 * f.size), most]),
    )
    return (None if found is None else float(q @ f) + found), tolerance


def total_variation(f: Array, center: Array, radius: float) -> Answer:
    """Weights of 1/2."""
    return weighted_l1(f, center, np.full(f.size, 0.5), radius)


def weighted_l1(f: Array, center: Array, weights: Array, radius: float) -> Answer:
    """p = q + a - b with 0 <= b <= q; the weights in units of the largest."""
    unit = float(weights.max())
    if weights.min() < 1e-4 * unit or not 1e-4 < radius / unit < 1e4:
        return None, LINEAR
    q = center / center.sum()
    found, tolerance = _linear(
        np.concatenate([f, -f]),
        A_ub=np.concatenate([weights, weights])[None] / unit,
        b_ub=[radius / unit],
        A_eq=np.concatenate([np.ones(f.size), -np.ones(f.size)])[None],
        b_eq=[0.0],
        bounds=[(0.0, None)] * f.size + [(0.0, x) for x in q],
    )
    return (None if found is None else float(q @ f) + found), tolerance


def wasserstein(f: Array, center: Array, radius: float, cost: Any = None) -> Answer:
    """A plan from q; costs in units of the largest."""
    x = np.arange(float(f.size)) if cost is None else np.asarray(cost)
    matrix = np.abs(np.subtract.outer(x, x)) if x.ndim == 1 else x
    unit = float(matrix.max())
    if f.size > 10 or not unit > 0.0 or not 1e-4 < radius / unit < 1e4:
        return None, LINEAR
    sources = np.kron(np.ones((1, f.size)), np.eye(f.size))
    ends = {"A_eq": sources, "b_eq": center / center.sum(), "bounds": (0, None)}
    return _linear(np.repeat(f, f.size), A_ub=matrix.reshape(1, -1) / unit, b_ub=[radius / unit], **ends)


def polyhedron(f: Array, D: Array, c: Array) -> Answer:
    """D p <= c, rows of size 1."""
    unit = np.abs(D).max(axis=1)
    rows = np.isfinite(c) & (unit > 0.0)
    return _linear(
        f,
        A_ub=D[rows] / unit[rows, None],
        b_ub=c[rows] / unit[rows],
        A_eq=np.ones((1, f.size)),
        b_eq=[1.0],
        bounds=(0, None),
    )


def _conic(f: Array, limits: Callable[[Any], list[Any]]) -> Answer:
    import cvxpy

    p = cvxpy.Variable(f.size)
    problem = cvxpy.Problem(cvxpy.Maximize(f @ p), [p >= 0, cvxpy.sum(p) == 1, *limits(p)])
    try:
        problem.solve(solver=cvxpy.CLARABEL)
    except cvxpy.error.SolverError:
        return None, CONIC
    return (float(problem.value) if problem.status == cvxpy.OPTIMAL else None), CONIC


def kl(f: Array, center: Array, radius: float) -> Answer:
    """The divergence as exponential cones; entries with q = 0 are left out."""
    import cvxpy

    inside = center > 0.0
    q = center[inside] / center.sum()
    if q.min() < 1e-6 or not 1e-3 < radius < 10.0 or np.ptp(f[inside]) < 1e-3:
        return None, CONIC
    return _conic(f[inside], lambda p: [cvxpy.sum(cvxpy.rel_entr(p, q)) <= radius])


def kl_with_rows(f: Array, center: Array, radius: float, D: Array, c: Array) -> Answer:
    """The same with rows of size 1; the radius must leave room beside the nearest point."""
    import cvxpy

    inside, unit = center > 0.0, np.abs(D).max(axis=1)
    q, told = center[inside] / center.sum(), np.isfinite(c) & (unit > 0.0)
    if q.min() < 1e-6 or not 1e-3 < radius < 10.0 or np.ptp(f[inside]) < 1e-3:
        return None, CONIC
    rows, right = D[told][:, inside] / unit[told, None], c[told] / unit[told]
    return _conic(f[inside], lambda p: [cvxpy.sum(cvxpy.rel_entr(p, q)) <= radius, rows @ p <= right])


def ellipsoid(f: Array, center: Array, shape: Any, radius: float) -> Answer:
    """The norm as one second-order cone."""
    import cvxpy

    Q = np.diag(np.broadcast_to(shape, f.size)) if np.ndim(shape) < 2 else np.asarray(shape)
    size = np.sqrt(np.linalg.eigvalsh(Q)[[0, -1]] * radius)
    if not 1e-3 < size[0] <= size[1] < 1e3:
        return None, CONIC
    root = np.linalg.inv(np.linalg.cholesky(Q * radius))
    return _conic(f, lambda p: [cvxpy.norm(root @ (p - center / center.sum())) <= 1.0])


def chi_square(f: Array, center: Array, radius: float) -> Answer:
    """The ellipsoid of shape q."""
    q = center / center.sum()
    return ellipsoid(f, q, q, radius) if q.min() > 1e-6 else (None, CONIC)


def hellinger(f: Array, center: Array, radius: float) -> Answer:
    """Σ √(pq) as second-order cones."""
    import cvxpy

    q = center / center.sum()
    if q.min() < 1e-4 or not 1e-3 < radius < 0.9:
        return None, CONIC
    return _conic(f, lambda p: [np.sqrt(q) @ cvxpy.sqrt(p) >= 1.0 - radius])


def burg(f: Array, center: Array, radius: float) -> Answer:
    """The divergence as exponential cones."""
    import cvxpy

    q = center / center.sum()
    if q.min() < 1e-4 or not 1e-3 < radius < 5.0:
        return None, CONIC
    return _conic(f, lambda p: [cvxpy.sum(cvxpy.rel_entr(q, p)) <= radius])


def cvar(f: Array, center: Array, tail: float) -> Answer:
    """A box."""
    q = center / center.sum()
    return box(f, np.zeros(f.size), q / tail) if tail > 1e-6 else (None, LINEAR)


def evar(f: Array, center: Array, tail: float) -> Answer:
    """A KL ball."""
    return kl(f, center, -float(np.log(tail)))


MODELS: dict[str, Callable[..., Answer]] = {
    "box": box,
    "cd-norm": cd_norm,
    "kl": kl,
    "kl with rows": kl_with_rows,
    "ellipsoid": ellipsoid,
    "ellipsoid dense": ellipsoid,
    "wasserstein-1": wasserstein,
    "wasserstein-1 matrix": wasserstein,
    "polyhedron": polyhedron,
    "total-variation": total_variation,
    "weighted-l1": weighted_l1,
    "chi-square": chi_square,
    "hellinger": hellinger,
    "burg": burg,
    "cvar": cvar,
    "evar": evar,
}
