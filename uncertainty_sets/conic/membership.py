"""How far a distribution is from a set, and which one in it is nearest to uniform, from its constraints.

This is `violation`, `contains` and `reference` of a set that has only `constraints(p)`. A residual is
measured in units of p, so that the unit in which a constraint is written does not matter:

- the residual of a linear row, over by how much the row can differ within the simplex;
- with r the residual of another constraint, and s the room that it leaves at a point c inside the set:
  r/(r + s) of the way to c ends where the constraint holds, since it is convex. That way's length counts, in
  total variation;
- constraints with auxiliary variables: the largest residual of the equilibrated conic program, if the
  auxiliary variables are at their best, or the distance to the set in total variation if that is more.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.conic import elastic
from uncertainty_sets.conic.compile import compiled, set_constraints
from uncertainty_sets.errors import EmptySet, InvalidInput, SolverFailed
from uncertainty_sets.packages import load

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.base import UncertaintySet


ROUNDED = 1e-14  # an entry of p that is below 0 by less counts as 0: a function of p may end there

PROVED = 1e-9
"""A set is empty if every distribution is proved to miss a row or cone by more than this part of its size."""

EPS = float(np.finfo(np.float64).eps)

CORNERS = 100
"""At most so many corners of the simplex are looked at for the size of a function."""


class _Stated:
    """The set's constraints on one cvxpy variable, kept to be evaluated at many points."""

    def __init__(self, uncertainty_set: UncertaintySet, size: int) -> None:
        cp = load("cvxpy", f"the membership test of {type(uncertainty_set).__name__}")
        self.own = compiled(uncertainty_set, size)
        self.set = uncertainty_set
        self.lock = threading.Lock()  # a cvxpy variable has one value at a time
        self.p = cp.Variable(size)
        given = set_constraints(uncertainty_set, self.p)
        stated = [each for each in given if not isinstance(each, bool | np.bool_)]
        self.impossible = not all(each for each in given if isinstance(each, bool | np.bool_))
        self.has_auxiliary = any(
            each.id != self.p.id for each in cp.Problem(cp.Minimize(0), stated).variables()
        )
        self.functions = [] if self.has_auxiliary else [_function(each, self.p) for each in stated]

    def miss(self, point: Array) -> float:
        """The largest residual at the point, in units of p."""
        if self.has_auxiliary:
            off = elastic.miss(self.own.program, point)
            return max(off, elastic.distance(self.own.program, point)) if 0.0 < off < np.inf else off
        with self.lock:
            worst = 0.0
            for each in self.functions:
                worst = max(worst, each.miss(point, self))
            return worst

    def room(self, function: _Function) -> tuple[Array, Array] | None:
        """A point inside the set, and what the function leaves there; None if there is no such point."""
        inner = interior(self.set, self.p.size)
        return None if inner is None else (inner, -function.at(inner)[0])


class _Function:
    """A constraint as g(p) <= 0, by entries, with g convex (or |g| <= 0, with g linear)."""

    def __init__(self, p: Any) -> None:
        self.p = p

    def at(self, point: Array) -> tuple[Array, Array]:
        """(g at the point, the size of its terms)."""
        raise NotImplementedError

    def jacobian(self) -> Any:
        """The coefficients of a linear g, (N, entries); None if g is not linear."""
        return None

    def miss(self, point: Array, stated: _Stated) -> float:
        """The largest g > 0 in units of p; what rounding explains is not counted."""
        excess, terms = self.at(point)
        # NaN: the point is outside a function's domain, as 0 is for log(p). No tolerance covers that.
        excess = np.where(np.isnan(excess), np.inf, excess - 4 * EPS * np.minimum(terms, 1e300))
        bad = np.flatnonzero(excess > 0.0)
        if not bad.size:
            return 0.0
        if np.isinf(excess[bad]).any():
            return np.inf
        ranges = self._ranges(bad)
        if ranges is not None:
            with np.errstate(divide="ignore"):
                return float((excess[bad] / ranges).max())
        inner = stated.room(self)
        if inner is None or not (inner[1][bad] > 0.0).all():
            return float((excess[bad] / self._sizes(bad)).max())
        c, room = inner
        way = 0.5 * float(np.abs(point - c).sum())
        return way * float((excess[bad] / (excess[bad] + room[bad])).max())

    def _ranges(self, bad: Any) -> Array | None:
        """By how much each linear g can differ within the simplex."""
        J = self.jacobian()
        if J is None:
            return None
        J = J[:, bad].toarray()
        return np.asarray(np.maximum(np.ptp(J, axis=0), 1e-13 * np.abs(J).max(axis=0)))

    def _sizes(self, bad: Any) -> Array:
        """The largest |g| at corners of the simplex, or 1 if that is less: for a set without an inside."""
        size, uniform = self.p.size, np.full(self.p.size, 1.0 / self.p.size)
        largest = np.zeros(bad.size)
        for corner in np.unique(np.linspace(0, size - 1, min(size, CORNERS)).astype(int)):
            for share in (1.0, 0.5):
                point = (1.0 - share) * uniform
                point[corner] += share
                value = np.abs(self.at(point)[0][bad])
                largest = np.maximum(largest, np.where(np.isfinite(value), value, 0.0))
        return np.where(largest > 0.0, np.minimum(largest, 1.0), 1.0)

    def _values(self, expressions: Any, point: Array) -> list[Array]:
        self.p.save_value(point)  # not `value`, whose checks take as long as the constraints
        with np.errstate(all="ignore"):
            values = [each.value for each in expressions]
        return [each.toarray() if hasattr(each, "toarray") else np.asarray(each) for each in values]


class _Comparison(_Function):
    """left <= right, left == right, or one side against 0."""

    def __init__(self, constraint: Any, p: Any) -> None:
        import cvxpy as cp

        super().__init__(p)
        kinds = cp.constraints
        self.sides, self.equal = constraint.args, isinstance(constraint, kinds.Equality | kinds.Zero)
        self.sign = -1.0 if isinstance(constraint, kinds.NonNeg) else 1.0
        self.expression = (
            constraint.args[0] - constraint.args[1] if len(self.sides) > 1 else constraint.args[0]
        )
        self._kept: Any = None

    def at(self, point: Array) -> tuple[Array, Array]:
        values = [np.ravel(each, order="F") for each in self._values(self.sides, point)]
        with np.errstate(all="ignore"):
            g = self.sign * values[0] if len(values) == 1 else values[0] - values[1]
            terms = np.asarray(sum(np.abs(each) for each in values))
        g, terms = np.broadcast_arrays(np.abs(g) if self.equal else g, terms)
        return np.atleast_1d(g), np.atleast_1d(terms)

    def jacobian(self) -> Any:
        if self._kept is None and self.expression.is_affine():
            self._kept = _jacobian(self.expression, self.p)
        return self._kept


class _SecondOrder(_Function):
    """‖X‖ <= t, for each cone of a cvxpy SOC."""

    def __init__(self, constraint: Any, p: Any) -> None:
        super().__init__(p)
        self.constraint = constraint

    def at(self, point: Array) -> tuple[Array, Array]:
        t, X = self._values(self.constraint.args, point)
        axis = 0 if X.ndim < 2 else self.constraint.axis
        lengths, t = np.atleast_1d(np.linalg.norm(X, axis=axis)), np.ravel(t, order="F")
        return lengths - t, lengths + np.abs(t)


class _Exponential(_Function):
    """y·exp(x/y) <= z, for each cone of a cvxpy ExpCone."""

    def __init__(self, constraint: Any, p: Any) -> None:
        super().__init__(p)
        self.constraint = constraint

    def at(self, point: Array) -> tuple[Array, Array]:
        x, y, z = (np.ravel(each) for each in self._values(self.constraint.args, point))
        with np.errstate(all="ignore"):
            room = np.where(y > 0.0, np.minimum(y * np.exp(x / y) - z, 0.0), 0.0)
        outside = elastic.outside_exp(x, y, z)
        return np.where(outside > 0.0, outside, room), np.zeros(x.size)


def _function(constraint: Any, p: Any) -> _Function:
    import cvxpy as cp

    if isinstance(constraint, cp.constraints.SOC):
        return _SecondOrder(constraint, p)
    if isinstance(constraint, cp.constraints.ExpCone):
        return _Exponential(constraint, p)
    return _Comparison(constraint, p)


def _jacobian(expression: Any, p: Any) -> Any:
    """The coefficients of p in a linear expression, (N, entries)."""
    from scipy import sparse

    p.save_value(np.full(p.size, 1.0 / p.size))
    found = expression.grad.get(p)
    if found is None:  # p does not occur
        return sparse.csc_array((p.size, expression.size))
    return sparse.csc_array(np.reshape(found, (p.size, -1)) if np.ndim(found) < 2 else found)


def residual(uncertainty_set: UncertaintySet, p: Array) -> float:
    """The largest residual of the set's own constraints at p, in units of p.

    If the constraints have auxiliary variables, a small program finds their best values; otherwise the
    constraints are just evaluated. By how much Σp misses 1 is told apart: p/Σp is looked at.
    """
    kept: dict[int, _Stated] = uncertainty_set.__dict__.setdefault("_cache_stated", {})
    stated = kept.get(p.size)
    if stated is None:
        stated = kept.setdefault(p.size, _Stated(uncertainty_set, p.size))
    if stated.impossible:
        return np.inf
    point, total = np.where(np.abs(p) < ROUNDED, np.maximum(p, 0.0), p), float(p.sum())
    return stated.miss(point / total if 0.5 < total < 2.0 else point)


def interior(uncertainty_set: UncertaintySet, size: int) -> Array | None:
    """A distribution that satisfies all inequalities strictly; None if the set has none."""
    kept: dict[int, Array | None] = uncertainty_set.__dict__.setdefault("_cache_interior", {})
    if size not in kept:
        kept[size] = elastic.inside(compiled(uncertainty_set, size).program)
    return kept[size]


def is_proved_empty(uncertainty_set: UncertaintySet, size: int) -> bool:
    """Whether there is a proof, by checked multipliers, that every distribution misses the constraints."""
    kept: dict[int, float] = uncertainty_set.__dict__.setdefault("_cache_least_miss", {})
    if size not in kept:
        kept[size] = elastic.least_miss(compiled(uncertainty_set, size).certifier)
    return kept[size] > PROVED


def empty(uncertainty_set: UncertaintySet) -> EmptySet:
    """The error for such a set."""
    return EmptySet(
        f"{uncertainty_set!r} is empty: its constraints leave no vector with p >= 0 and 1ᵀp = 1, as checked "
        "multipliers prove"
    )


def projection_of_uniform(uncertainty_set: UncertaintySet) -> Array:
    """The distribution of the set nearest to the uniform one, in the Euclidean norm."""
    name, size = type(uncertainty_set).__name__, uncertainty_set.size
    if size is None:
        raise InvalidInput(
            f"{name} takes its size from the losses: use with_size(N).reference(), or set its `size`"
        )
    uniform = np.full(size, 1.0 / size)
    return uniform if uncertainty_set.violation(uniform) <= 1e-12 else projection_of(uncertainty_set, uniform)


def projection_of(uncertainty_set: UncertaintySet, point: Array) -> Array:
    """The distribution of the set nearest to a point, in the Euclidean norm, by a conic solver."""
    load("cvxpy", f"a projection onto {type(uncertainty_set).__name__}")
    towards = point - point.mean()  # the same nearest distribution, without the digits that a constant takes
    found = elastic.nearest(compiled(uncertainty_set, point.size).program, towards)
    if found is not None and uncertainty_set.violation(found) <= PROVED:
        return found
    if is_proved_empty(uncertainty_set, point.size):
        raise empty(uncertainty_set)
    if found is None:
        raise SolverFailed(f"no solver found a nearest point of {uncertainty_set!r}")
    return moved_inside(uncertainty_set, found)


STEPS = (*(10.0**exponent for exponent in range(-14, 0)), 0.3, 0.6, 1.0)
"""How far p may be moved into the set; the smallest step that makes it feasible is taken. In a small set even
the whole way costs little."""


def moved_inside(uncertainty_set: UncertaintySet, p: Array, enough: float = PROVED) -> Array:
    """p, moved towards the inside of the set by the smallest of STEPS that is enough."""
    best, off = p, uncertainty_set.violation(p)
    inner = interior(uncertainty_set, p.size) if off > enough else None
    if inner is None:
        return p
    for step in STEPS:
        moved = (1.0 - step) * p + step * inner
        violation = uncertainty_set.violation(moved)
        if violation < off:
            best, off = moved, violation
        if off <= enough:
            break
    return best
