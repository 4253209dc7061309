"""How far a distribution is from a set, and which one in the set is nearest to uniform, from its constraints.

This is `violation`, `contains` and `reference` of a set that has only `constraints(p)`.
"""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.conic.compile import set_constraints
from uncertainty_sets.errors import EmptySet, InvalidInput, SolverFailed
from uncertainty_sets.packages import load

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.contract import SetContract


ROUNDED = 1e-14  # an entry of p that is below 0 by less counts as 0: a function of p may end there


class _Stated:
    """The set's constraints on one cvxpy variable, kept to be evaluated at many points."""

    def __init__(self, uncertainty_set: SetContract, size: int) -> None:
        cp = load("cvxpy", f"the membership test of {type(uncertainty_set).__name__}")
        self.lock = threading.Lock()  # a cvxpy variable has one value at a time
        self.p = cp.Variable(size)
        self.constraints = set_constraints(uncertainty_set, self.p)
        stated = [each for each in self.constraints if not isinstance(each, bool | np.bool_)]
        self.impossible = len(stated) < len(self.constraints) and not all(
            each for each in self.constraints if isinstance(each, bool | np.bool_)
        )
        self.constraints = stated
        self.auxiliary = [
            each for each in cp.Problem(cp.Minimize(0), stated).variables() if each.id != self.p.id
        ]
        self.elastic: tuple[Any, Any] | None = None

    def at(self, point: Array) -> float:
        """The largest residual with p at the point and the auxiliary variables as they are."""
        self.p.save_value(point)  # not `value`, whose checks take as long as the constraints
        worst = max((_residual(each) for each in self.constraints), default=0.0)
        # NaN: the point is outside a function's domain, as 0 is for log(p). No tolerance covers that.
        return np.inf if np.isnan(worst) else worst

    def minimised(self, point: Array) -> float:
        """The smallest that auxiliary variables can make the largest residual."""
        import cvxpy as cp

        if self.elastic is None:
            where, worst, slack = cp.Parameter(self.p.size), cp.Variable(nonneg=True), cp.Variable()
            # The slack may be negative, so that auxiliary variables of a point inside the set stay away from
            # its edge, where a solver's tolerance would show. Equalities have no inside.
            relaxed = [self.p == where, slack >= -1.0, slack <= worst]
            for each in self.constraints:
                relaxed += _relaxed(each, slack, worst)
            self.elastic = where, cp.Problem(cp.Minimize(worst + 1e-3 * slack), relaxed)
        where, problem = self.elastic
        where.value = point
        _solve(problem)
        if any(each.value is None for each in self.auxiliary):
            return np.inf
        return self.at(point)


def _constant_side(constraint: Any) -> Any:
    """|right-hand side| of an (in)equality, whichever side is constant."""
    for side in constraint.args:
        if side.is_constant():
            return np.abs(side.value)
    return 0.0


def _residual(constraint: Any) -> float:
    import cvxpy as cp

    if isinstance(constraint, cp.constraints.ExpCone):
        return _exponential_residual(*(np.ravel(part.value) for part in constraint.args))
    with np.errstate(all="ignore"):
        residual = constraint.residual
    scale = 1.0
    if isinstance(constraint, cp.constraints.Inequality | cp.constraints.Equality):
        scale = np.maximum(1.0, _constant_side(constraint))
    return float(np.max(residual / scale, initial=0.0))


def _exponential_residual(x: Array, y: Array, z: Array) -> float:
    """By how much z is below y·exp(x/y), or how far the point is from the cone's face y = 0, x <= 0 <= z.

    The lesser of the two: next to that face a solver's x of 1e-13 at y = 0 would make the first infinite.
    """
    with np.errstate(all="ignore"):
        below = np.where(y > 0.0, np.maximum(y * np.exp(x / y) - z, 0.0), np.inf)
    aside = np.maximum.reduce([x, np.abs(y), -z, np.zeros_like(x)])
    return float(np.minimum(below, aside).max())


def _relaxed(constraint: Any, slack: Any, worst: Any) -> list[Any]:
    """The constraint with its residual, scaled as in `_residual`, up to slack (equalities: worst)."""
    import cvxpy as cp

    kinds = cp.constraints
    if isinstance(constraint, kinds.Inequality | kinds.Equality):
        return [_relaxed_comparison(constraint, slack, worst)]
    if isinstance(constraint, kinds.SOC):
        top, rest = constraint.args
        return [kinds.SOC(top + slack, rest, axis=constraint.axis)]
    if isinstance(constraint, kinds.ExpCone):
        x, y, z = constraint.args
        return [kinds.ExpCone(x, y, z + slack)]
    if isinstance(constraint, kinds.NonNeg):
        return [constraint.args[0] + slack >= 0]
    if isinstance(constraint, kinds.NonPos):
        return [constraint.args[0] <= slack]
    return [constraint]  # kept as it is: a point that cannot satisfy it has an infinite violation


def _relaxed_comparison(constraint: Any, slack: Any, worst: Any) -> Any:
    import cvxpy as cp

    left, right = constraint.args
    scale = np.maximum(1.0, _constant_side(constraint))
    if isinstance(constraint, cp.constraints.Inequality):
        return left <= right + scale * slack
    return cp.abs(left - right) <= scale * worst


def _solve(problem: Any) -> str:
    """Solve a cvxpy problem, an LP to a vertex and others to 1e-12; return the status, never raise."""
    import cvxpy as cp

    linear = problem.objective.expr.is_affine() and all(
        each.is_dcp() and _polyhedral(each) for each in problem.constraints
    )
    exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10, "presolve": "off"}
    tight = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
    status = ""
    for solver, options in [(cp.HIGHS, exact)] * linear + [(cp.CLARABEL, tight)]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "may be inaccurate": callers evaluate the point themselves
            try:
                problem.solve(solver=solver, **options)
            except (cp.error.SolverError, ValueError) as error:  # ValueError: a status that cvxpy cannot read
                status = str(error)
            else:
                return str(problem.status)
    return status


def _polyhedral(constraint: Any) -> bool:
    import cvxpy as cp

    return isinstance(constraint, cp.constraints.Equality | cp.constraints.Inequality) and all(
        side.is_pwl() for side in constraint.args
    )


def residual(uncertainty_set: SetContract, p: Array) -> float:
    """The largest residual of the set's own constraints at p, each over max(1, |its constant side|).

    If the constraints have auxiliary variables, a small program finds their best values; otherwise the
    constraints are just evaluated.
    """
    kept: dict[int, _Stated] = uncertainty_set.__dict__.setdefault("_cache_stated", {})
    stated = kept.get(p.size)
    if stated is None:
        stated = kept.setdefault(p.size, _Stated(uncertainty_set, p.size))
    if stated.impossible:
        return np.inf
    point = np.where(np.abs(p) < ROUNDED, np.maximum(p, 0.0), p)
    with stated.lock:
        return stated.minimised(point) if stated.auxiliary else stated.at(point)


def interior(uncertainty_set: SetContract, size: int) -> Array | None:
    """A distribution that satisfies all inequalities strictly; None if the set has none."""
    kept: dict[int, Array | None] = uncertainty_set.__dict__.setdefault("_cache_interior", {})
    if size not in kept:
        kept[size] = _find_interior(uncertainty_set, size)
    return kept[size]


def _find_interior(uncertainty_set: SetContract, size: int) -> Array | None:
    import cvxpy as cp

    p, slack = cp.Variable(size), cp.Variable()
    inside = [cp.sum(p) == 1, size * p >= -slack, slack >= -1]
    for each in set_constraints(uncertainty_set, p):
        if isinstance(each, cp.constraints.Equality | bool | np.bool_):
            inside.append(each)
        else:
            inside += _relaxed(each, slack, slack)
    _solve(cp.Problem(cp.Minimize(slack), inside))
    if p.value is None or slack.value is None or not slack.value < -1e-12:
        return None
    point: Array = np.maximum(p.value, 0.0)
    point /= point.sum()
    return point


def projection_of_uniform(uncertainty_set: SetContract) -> Array:
    """The distribution of the set nearest to the uniform one, in the Euclidean norm."""
    name, size = type(uncertainty_set).__name__, uncertainty_set.size
    if size is None:
        raise InvalidInput(
            f"{name} takes its size from the losses: use with_size(N).reference(), or set its `size`"
        )
    uniform = np.full(size, 1.0 / size)
    return uniform if uncertainty_set.violation(uniform) <= 1e-12 else projection_of(uncertainty_set, uniform)


def projection_of(uncertainty_set: SetContract, point: Array) -> Array:
    """The distribution of the set nearest to a point, in the Euclidean norm, by a conic solver."""
    cp = load("cvxpy", f"a projection onto {type(uncertainty_set).__name__}")
    p = cp.Variable(point.size)
    towards = point - point.mean()  # the same nearest distribution, without the digits that a constant takes
    problem = cp.Problem(
        cp.Minimize(cp.norm(p - towards)),
        [cp.sum(p) == 1, p >= 0, *set_constraints(uncertainty_set, p)],
    )
    status = _solve(problem)
    if "infeasible" in status:
        raise EmptySet(f"{uncertainty_set!r} is empty: its constraints leave no vector with p >= 0, 1ᵀp = 1")
    if p.value is None:
        raise SolverFailed(
            f"no nearest point of {uncertainty_set!r}: the projection ended with status {status!r}"
        )
    nearest: Array = np.maximum(p.value, 0.0)
    nearest /= nearest.sum()
    return nearest
