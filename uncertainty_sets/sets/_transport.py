"""What balls in transport distance share: the cost on a line or as a matrix, and its order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.derivatives import OnFace
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.kernels.dispatch import answer
from uncertainty_sets.packages import load
from uncertainty_sets.parameters import SUM_TOLERANCE, as_array, describe, parameters_of, readonly
from uncertainty_sets.rows import Along, Integers, Structure
from uncertainty_sets.sets._balls import Ball
from uncertainty_sets.sets._transport_face import Balls, transport_face

if TYPE_CHECKING:
    import cvxpy


TINY = 1e-290
MOST = 1e308
LARGEST_ORDER = 100.0
ROUNDED = 4 * 2.0**-53  # how well an entry of p is known, relative to it: it is a sum of two products


class TransportBall(Ball, certified=True):
    """Distributions near a centre q in transport cost: {p : Σ cost^order·γ <= radius^order for a plan γ}.

    A subclass has a name, a constructor and a docstring; all else is here.
    """

    by_row: ClassVar[tuple[str, ...]] = ("center", "radius")
    _is_vertex = True

    def __init__(self, center: ArrayLike, radius: ArrayLike, cost: ArrayLike | None, order: float) -> None:
        super().__init__(center, radius)
        n = self._center.shape[1]
        self._power = _as_order(order)
        self._powers = np.array([self._power])
        self._sorting: np.ndarray[tuple[int], np.dtype[np.intp]] | None = None
        self._given = None if cost is None else as_array("cost", cost)
        if self._given is None:
            self._cost = np.arange(float(n))[None, :]
        elif self._given.shape == (n,):
            sorting = np.argsort(self._given, kind="stable")
            self._cost = self._given[sorting][None, :]
            if (sorting != np.arange(n)).any():
                self._sorting = sorting
        elif self._given.shape == (n, n):
            self._cost = _between(self._given, self._power)[None, :, :]
        else:
            raise InvalidParameter(
                f"cost must be None, positions of shape ({n},) or a matrix of shape ({n}, {n}), "
                f"got shape {self._given.shape}",
                parameter="cost",
                value=cost,
            )
        self._on_line = self._cost.ndim == 2
        if self._on_line:
            _check_ends(self._cost[0], self._power)
            _drop_tiny_distances(self._cost[0], self._power)
        self._limit = np.minimum(_raised(self._radius, self._power), MOST)
        self._step = np.array([self._smallest_step()])
        self._sorted_center = self._center if self._sorting is None else self._center[:, self._sorting].copy()

    def _smallest_step(self) -> float:
        """The smallest cost that is not 0, negative if some costs between entries are 0."""
        if self._on_line:
            x = self._cost[0]
            steps = x[1:] - x[:-1]
            zeros = np.count_nonzero(steps) < steps.size
        else:
            steps = self._cost[0]
            zeros = np.count_nonzero(steps) < steps.size - len(steps)
        least = float(np.minimum.reduce(steps, axis=None, initial=np.inf, where=steps > 0.0))
        least = least if least < np.inf else 1.0
        least = float(_raised(least, self._power)) if self._on_line else least
        return -least if zeros else least

    @classmethod
    def _ragged_kernel(
        cls, structure: Structure, given: dict[str, Any]
    ) -> tuple[str | Callable[..., None], tuple[Any, ...]]:
        q, shared, power = given["center"], given["cost"], given.get("order", 1.0)
        limit = np.minimum(_raised(given["radius"], power), MOST)
        if shared is not None and shared.ndim == 2:
            return "wasserstein_matrix", (structure.places(), q, limit, _between(shared, power))
        places = structure.places()
        at = places.astype(float) if shared is None else shared[places]
        sorting, x, step = _lines(structure, at, power)
        ascending = q[sorting + structure.repeat(structure.starts())] if sorting.size else q
        return "wasserstein_line", (sorting, ascending, limit, x, step, power)

    @property
    def cost(self) -> Array | None:
        """The cost as given, which is None, positions or a matrix."""
        return None if self._given is None else readonly(self._given)

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """For order 1 on a line ∫|P - Q| <= radius of the distribution functions; else a transport plan."""
        import cvxpy

        q, limit = self._center[0], float(self._limit[0])
        n = q.size
        if n == 1:
            return []
        if self._on_line and self._power == 1.0:
            moved = p - q if self._sorting is None else (p - q)[self._sorting]
            return [cvxpy.norm1(cvxpy.multiply(np.diff(self._cost[0]), cvxpy.cumsum(moved)[:-1])) <= limit]
        plan = cvxpy.Variable((n, n), nonneg=True)
        spent = cvxpy.sum(cvxpy.multiply(self._plan_cost(), plan))
        return [cvxpy.sum(plan, axis=1) == q, cvxpy.sum(plan, axis=0) == p, spent <= limit]

    def _plan_cost(self) -> Array:
        """The cost^order of a unit from each entry (rows) to each (columns)."""
        if not self._on_line:
            matrix: Array = self._cost[0]
            return matrix
        x = self._cost[0].copy()
        if self._sorting is not None:
            x[self._sorting] = self._cost[0]
        cost: Array = _raised(np.abs(np.subtract.outer(x, x)), self._power)
        return cost

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels import wasserstein_line as line_transport
        from uncertainty_sets.kernels import wasserstein_matrix as transport

        sorting = self._sorting
        f = losses if sorting is None else np.ascontiguousarray(losses[..., sorting])
        rows: Callable[..., None] = line_transport.rows if self._on_line else transport.rows
        power = (self._powers,) if self._on_line else ()
        parameters = (self._sorted_center, self._limit, self._cost, self._step, *power)
        result = answer(rows, f, parameters, ("lam",), warm_start, out if sorting is None else None)
        if sorting is not None:
            p = np.empty_like(result.p) if out is None else out
            p[..., sorting] = result.p
            result.p = p
        return result

    def _sensitivity(self, losses: Array, answer: WorstCase) -> OnFace:
        x = self._given
        if x is None:
            x = np.arange(float(self._center.shape[1]))
        balls = Balls(self.center, np.asarray(self.radius), x, self._power, self._given)
        face = transport_face(balls, losses, answer.p, np.asarray(answer.dual["lam"]))
        shapes = {"center": self.center.shape, "radius": np.shape(self.radius)}
        if self._given is not None:
            shapes["cost"] = self._given.shape
        return OnFace(face, shapes)

    def _given_by_name(self) -> dict[str, Any]:
        cost = {} if self._given is None else {"cost": self._given}
        return {"center": self.center, "radius": self.radius, **cost}

    def _slope(self, losses: Array, answer: WorstCase) -> float | None:
        return answer.dual.get("lam")

    @property
    def _concave_in_power(self) -> float:
        return self._power

    def _residual(self, p: Array) -> float:
        limit = float(self._limit[0])
        return max((self._cost_of(p) - limit) / max(1.0, limit), 0.0)

    def _distance(self, p: Array) -> float:
        return float(max(0.0, self._cost_of(p)) ** (1.0 / self._power))

    @property
    def _distance_is_quick(self) -> bool:
        return self._on_line

    def _cost_of(self, p: Array) -> float:
        """The least cost of moving the centre to p: the distance to the power."""
        mass = np.maximum(p, 0.0)
        total = float(mass.sum())
        if self._on_line and self._power == 1.0:
            return self._distance_on_line(p)
        if total == 0.0:
            return np.inf
        if self._on_line:
            # If p is no distribution, that of its shares.
            return self._power_on_line(mass if abs(total - 1.0) <= SUM_TOLERANCE else mass / total)
        return self._distance_by_plan(mass / total)

    def _power_on_line(self, p: Array) -> float:
        """The least Σ distance^order of a plan, beyond the rounding of p."""
        from uncertainty_sets.kernels.wasserstein_distance import distance

        after = p if self._sorting is None else p[self._sorting]
        return float(distance(self._cost[0], self._sorted_center[0], after, self._power))

    def _distance_by_plan(self, share: Array) -> float:
        """The cost of the best plan, beyond the rounding of p."""
        ot = load("ot", f"the membership test of {type(self).__name__} with a cost matrix")
        distance, found = ot.emd2(self._center[0], share, self._cost[0], numItermax=10_000_000, log=True)
        # The potentials say what a unit of mass more at each entry costs: so much for the rounding of p.
        price = np.asarray(found["v"], dtype=np.float64)
        return float(distance) - ROUNDED * float(share @ np.abs(price - share @ price))

    def _distance_on_line(self, p: Array) -> float:
        """∫|P - Q| beyond the rounding of p, summed from the side with less mass, as `check` does."""
        after, before = (
            (p, self._center[0]) if self._sorting is None else (p[self._sorting], self._sorted_center[0])
        )
        moved, mass = (after - before).astype(np.longdouble), np.maximum(after, before)
        left, right = np.cumsum(mass)[:-1], np.cumsum(mass[::-1])[::-1][1:]
        ahead = np.where(left <= right, np.cumsum(moved)[:-1], np.cumsum(moved[::-1])[::-1][1:])
        beyond = np.maximum(np.abs(ahead) - ROUNDED * np.minimum(left, right), 0.0)
        return float(beyond @ np.diff(self._cost[0]).astype(np.longdouble))

    def __repr__(self) -> str:
        """The class and its parameters; a cost of None is left out."""
        given = {name: getattr(self, name, None) for name in parameters_of(type(self))}
        shown = [f"{name}={describe(each)}" for name, each in given.items() if each is not None]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _singleton(self) -> Array | None:
        # A negative step: some distances are 0, and mass moves over them at no cost.
        return super()._singleton() if self._step[0] > 0.0 else None


COST = Along("values", lambda name, cost, structure: _as_shared_cost(cost, structure))
ORDER = Along("all", lambda name, order, structure: _as_order(order))


def _as_order(order: float) -> float:
    """The order as a number, or an error."""
    number = as_array("order", order)
    if number.ndim != 0 or not 1.0 <= float(number) <= LARGEST_ORDER:
        raise InvalidParameter(
            f"order must be a number from 1 to {LARGEST_ORDER:g}, got {order!r}",
            parameter="order",
            value=order,
        )
    return float(number)


def _raised(distance: Any, power: float) -> Any:
    """distance^power as kernels compute it; inf if it overflows."""
    if power == 1.0:
        return distance
    if power == 2.0 and isinstance(distance, float):
        return distance * distance
    with np.errstate(over="ignore", under="ignore"):
        return np.multiply(distance, distance) if power == 2.0 else np.power(distance, power)


def _overflows(power: float) -> str:
    return "overflows" if power == 1.0 else f"to the power of {power:g} overflows"


def _shortest(power: float) -> float:
    """The distance below which distances count as 0: a multiplier for them would overflow."""
    return float(TINY ** (1.0 / power))


def _check_matrix(cost: Array, power: float = 1.0) -> None:
    """Refuse costs that are negative, not 0 on the diagonal, or too large for the power."""
    if (cost < 0.0).any():
        at = tuple(int(i) for i in np.argwhere(cost < 0.0)[0])
        raise InvalidParameter(
            f"cost must not be negative, got cost[{at[0]}, {at[1]}] = {cost[at]}",
            parameter="cost",
            value=cost,
        )
    stay = np.diagonal(cost)
    if (stay != 0.0).any():
        i = int(np.flatnonzero(stay)[0])
        raise InvalidParameter(
            f"cost must be 0 on the diagonal, got cost[{i}, {i}] = {stay[i]}",
            parameter="cost",
            value=cost,
        )
    if not np.isfinite(_raised(float(cost.max()), power)):
        raise InvalidParameter(
            f"cost: the largest cost, {cost.max()}, {_overflows(power)}", parameter="cost", value=cost
        )


def _between(cost: Array, power: float) -> Array:
    """cost^power as the kernel takes it, [from, to], with tiny numbers as 0."""
    _check_matrix(cost, power)
    raised = np.array(_raised(cost.T, power), order="C")
    raised[raised < TINY] = 0.0
    return raised


def _check_ends(x: Array, power: float) -> None:
    """Refuse a line so long that the cost from end to end overflows; positions ascend."""
    if not _raised(float(x[-1]) - float(x[0]), power) < np.inf:
        raise InvalidParameter(
            f"cost: the distance between the outermost positions {_overflows(power)}",
            parameter="cost",
            value=x,
        )


def _drop_tiny_distances(x: Array, power: float) -> None:
    """Make neighbours equal whose distance counts as 0; positions ascend."""
    steps = x[1:] - x[:-1]
    tiny = (steps > 0.0) & (steps < _shortest(power))
    if np.logical_or.reduce(tiny):
        for i in np.flatnonzero(tiny):
            x[i + 1] = x[i]


def _as_shared_cost(cost: Any, structure: Structure) -> Array | None:
    """The cost between the values of ragged rows: None, positions or a matrix."""
    return None if cost is None else _check_shared(structure, as_array("cost", cost))


def _check_shared(structure: Structure, cost: Array) -> Array:
    """Refuse a cost between values that has the wrong shape or sign."""
    need, exact = structure.least_values, structure.columns
    fits = cost.ndim in {1, 2} and cost.shape[0] == cost.shape[-1] >= need
    if not fits or (exact is not None and len(cost) != exact):
        size = f"{exact}" if exact is not None else f"{need} or more"
        raise InvalidParameter(
            f"cost must be None, a position per value or a square matrix between values, for {size} values; "
            f"got shape {cost.shape}",
            parameter="cost",
            value=cost,
        )
    return cost


def _lines(structure: Structure, x: Array, power: float) -> tuple[Integers, Array, Array]:
    """Sort the positions of each row: the order within rows (empty if they ascend), positions, and steps.

    A step is the smallest distance^power above 0 in a row, negative if some are 0.
    """
    # 1. Sort.
    starts, ends = structure.starts(), structure.indptr[1:] - 1
    order = np.empty(0, np.int64)
    within = np.ones(x.size, np.bool_)  # whether the next entry is of the same row
    within[ends] = False
    if ((x[1:] < x[:-1]) & within[:-1]).any():
        row = np.repeat(np.arange(structure.rows), np.diff(structure.indptr))
        order = np.lexsort((x, row))
        x = x[order]
        order -= structure.repeat(starts)
    with np.errstate(over="ignore"):
        far = np.flatnonzero(~np.isfinite(_raised(x[ends] - x[starts], power)))
        apart = np.where(within, np.diff(x, append=np.inf), np.inf)
    if far.size:
        raise InvalidParameter(
            f"cost: the distance between the outermost positions of row {far[0]} {_overflows(power)}",
            parameter="cost",
            value=x,
        )
    # 2. Tiny distances count as 0.
    tiny = np.flatnonzero((apart > 0.0) & (apart < _shortest(power)))
    for i in tiny:
        x[i + 1] = x[i]
    apart[tiny] = 0.0
    # 3. Steps.
    least = np.minimum.reduceat(np.where(apart > 0.0, apart, np.inf), starts)
    least[np.isinf(least)] = 1.0
    least = _raised(least, power)
    return order, x, np.where(np.logical_or.reduceat(apart == 0.0, starts), -least, least)
