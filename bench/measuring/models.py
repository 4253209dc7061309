"""Each set's oracle written in plain cvxpy: losses as a Parameter, compiled once, solved again.

Most read the set's public parameters alone; a set without a model here has its own `constraints`.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from uncertainty_sets.arrays import Array

ACCEPTED = {"optimal"}


class Model:
    """A cvxpy problem: maximise lossesᵀp over the set, for any losses.

    Attributes:
        failures: how often the solver raised, or ended in a state other than optimal.
        calls: how often it was asked.
    """

    def __init__(self, p: cp.Variable, constraints: list[cp.Constraint], solver: str, **options: Any) -> None:
        self.p = p
        self.losses = cp.Parameter(p.size)
        self.problem = cp.Problem(cp.Maximize(self.losses @ p), [*constraints, cp.sum(p) == 1])
        self.solver, self.options = solver, options
        self.failures = self.calls = 0

    def solve(self, losses: Array, *, warm: bool = True) -> float:
        """Return the largest expected loss, NaN if the solver failed; `warm` is cvxpy's warm_start."""
        self.calls += 1
        self.losses.value = losses
        try:
            self.problem.solve(solver=self.solver, warm_start=warm, **self.options)
        except cp.error.SolverError:
            self.failures += 1
            return float("nan")
        if self.problem.status not in ACCEPTED:
            self.failures += 1
            return float("nan")
        return float(self.problem.value)


def model(uncertainty_set: Any, solver: str = "CLARABEL") -> Model:
    """The oracle of a built-in set in plain cvxpy; of one without a model here, from its own constraints."""
    p = cp.Variable(uncertainty_set.size, nonneg=True)
    limits = _CONSTRAINTS.get(uncertainty_set.name, type(uncertainty_set).constraints)
    return Model(p, limits(uncertainty_set, p), solver)


def from_constraints(uncertainty_set: Any, size: int | None = None, solver: str = "CLARABEL") -> Model:
    """The oracle of any set in plain cvxpy, from its own constraints; `size` for sets without one."""
    p = cp.Variable(size or uncertainty_set.size, nonneg=True)
    return Model(p, uncertainty_set.constraints(p), solver)


def solved_once(uncertainty_set: Any, losses: Array, solver: str = "CLARABEL") -> float:
    """The largest expected loss by a cvxpy problem that is made for these losses and then forgotten.

    Losses that are a `Parameter` save the compilation of later solves, but can take ten times the memory.
    """
    p = cp.Variable(losses.size, nonneg=True)
    problem = cp.Problem(cp.Maximize(losses @ p), [*uncertainty_set.constraints(p), cp.sum(p) == 1])
    try:
        problem.solve(solver=solver)
    except cp.error.SolverError:
        return float("nan")
    return float(problem.value) if problem.status in ACCEPTED else float("nan")


def _box(box: Any, p: cp.Variable) -> list[cp.Constraint]:
    return [p >= box.lower, p <= box.upper]


def _cd_norm(cd: Any, p: cp.Variable) -> list[cp.Constraint]:
    return [
        cp.abs(p - cd.center) <= cd.spread,
        cp.norm1(cp.multiply(1 / cd.spread, p - cd.center)) <= cd.budget,
    ]


def _kl(kl: Any, p: cp.Variable) -> list[cp.Constraint]:
    return [cp.sum(cp.rel_entr(p, kl.center)) <= kl.radius]


def _chi_square(ball: Any, p: cp.Variable) -> list[cp.Constraint]:
    return [cp.norm(cp.multiply(1 / np.sqrt(ball.center), p - ball.center)) <= np.sqrt(ball.radius)]


def _hellinger(ball: Any, p: cp.Variable) -> list[cp.Constraint]:
    return [cp.sum(cp.multiply(np.sqrt(ball.center), cp.sqrt(p))) >= 1 - ball.radius]


def _burg(ball: Any, p: cp.Variable) -> list[cp.Constraint]:
    return [cp.sum(cp.rel_entr(ball.center, p)) <= ball.radius]


def _cressie_read(ball: Any, p: cp.Variable) -> list[cp.Constraint]:
    k = ball.power
    if k == 0.0:
        return _burg(ball, p)
    moment = ball.center @ cp.power(cp.multiply(1 / ball.center, p), k)
    room = 1 + k * (k - 1) * ball.radius
    return [moment >= room if 0.0 < k < 1.0 else moment <= room]


def _ellipsoid(ellipsoid: Any, p: cp.Variable) -> list[cp.Constraint]:
    if ellipsoid.shape.ndim == 2:
        whitened = np.linalg.inv(np.linalg.cholesky(ellipsoid.shape)) @ (p - ellipsoid.center)
    else:
        whitened = cp.multiply(1 / np.sqrt(ellipsoid.shape), p - ellipsoid.center)
    return [cp.norm(whitened) <= np.sqrt(ellipsoid.radius)]


def _wasserstein(ball: Any, p: cp.Variable) -> list[cp.Constraint]:
    n = ball.center.size
    cost = ball.cost if ball.cost is not None else np.arange(float(n))
    if cost.ndim == 1:
        cost = np.abs(np.subtract.outer(cost, cost))
    plan = cp.Variable((n, n), nonneg=True)
    return [
        cp.sum(plan, axis=0) == ball.center,
        cp.sum(plan, axis=1) == p,
        cp.sum(cp.multiply(cost, plan)) <= ball.radius,
    ]


def _total_variation(ball: Any, p: cp.Variable) -> list[cp.Constraint]:
    return [cp.norm1(p - ball.center) <= 2.0 * ball.radius]


def _weighted_l1(ball: Any, p: cp.Variable) -> list[cp.Constraint]:
    return [cp.norm1(cp.multiply(ball.weights, p - ball.center)) <= ball.radius]


def _cvar(cvar: Any, p: cp.Variable) -> list[cp.Constraint]:
    return [p <= cvar.center / cvar.tail]


def _evar(evar: Any, p: cp.Variable) -> list[cp.Constraint]:
    return [cp.sum(cp.rel_entr(p, evar.center)) <= -np.log(evar.tail)]


def _intersection(both: Any, p: cp.Variable) -> list[cp.Constraint]:
    return [limit for each in both.members for limit in _CONSTRAINTS[each.name](each, p)]


def _polyhedron(polyhedron: Any, p: cp.Variable) -> list[cp.Constraint]:
    return [polyhedron.D @ p <= polyhedron.c]


_CONSTRAINTS = {
    "box": _box,
    "cd-norm": _cd_norm,
    "kl": _kl,
    "chi-square": _chi_square,
    "hellinger": _hellinger,
    "burg": _burg,
    "cressie-read": _cressie_read,
    "cvar": _cvar,
    "evar": _evar,
    "intersection": _intersection,
    "ellipsoid": _ellipsoid,
    "wasserstein-1": _wasserstein,
    "polyhedron": _polyhedron,
    "total-variation": _total_variation,
    "weighted-l1": _weighted_l1,
}
