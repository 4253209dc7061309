"""Wasserstein-1: distributions within a transport distance of a centre."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.centered import Ball
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.kernels.dispatch import answer
from uncertainty_sets.packages import load
from uncertainty_sets.parameters import as_array, describe, example_center, readonly
from uncertainty_sets.ragged import Ragged
from uncertainty_sets.ragged_parameters import (
    Integers,
    Structure,
    as_flat_center,
    as_row_numbers,
    structure_of,
)

if TYPE_CHECKING:
    import cvxpy


TINY = 1e-290
ROUNDED = 4 * 2.0**-53  # how well an entry of p is known, relative to it: it is a sum of two products


class Wasserstein1(Ball):
    """Distributions near a centre q in transport cost: {p : Σ cost·γ <= radius for a plan γ from q to p}.

    With a multiplier λ for the cost, the mass at j goes where f_i - λ·cost[i, j] is largest; λ minimises a
    convex function. An evaluation is O(N) on a line and O(N²) with a cost matrix. A search takes 6 to 15 of
    them, all but the first three or four over the few entries whose target they can still change.

    ====  ==========================================
    dual  meaning
    ====  ==========================================
    lam   multiplier λ of the transport cost, >= 0
    ====  ==========================================

    The bound is λ·radius + Σ q_j max_i (f_i - λ·cost[i, j]) for any λ >= 0:

    >>> import numpy as np
    >>> f, q, radius = np.array([1.0, 3.0, 2.0, 4.0]), np.full(4, 0.25), 0.5
    >>> r = Wasserstein1(q, radius).worst_case(f)
    >>> r.p, r.value
    (array([0. , 0.5, 0. , 0.5]), 3.5)
    >>> lam, cost = r.dual["lam"], np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    >>> bool(np.isclose(lam * radius + q @ (f[:, None] - lam * cost).max(axis=0), r.upper_bound))
    True

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        radius: at least 0; a number, or shape (B,).
        cost: None for |i - j|; shape (N,): positions on a line, in any order; shape (N, N): cost[i, j] >= 0
            is the cost of moving mass from j to i, 0 on the diagonal, symmetric or not.
    """

    name: ClassVar[str] = "wasserstein-1"
    summary: ClassVar[str] = "Distributions near a centre q in transport cost"
    formula: ClassVar[str] = "Σ cost·γ <= radius for a plan γ from q to p"
    complexity: ClassVar[str] = "O(N) on a line, otherwise O(N²)"
    by_row: ClassVar[tuple[str, ...]] = ("center", "radius")
    _certifies_itself: ClassVar[bool] = True

    def __init__(self, center: ArrayLike, radius: ArrayLike, cost: ArrayLike | None = None) -> None:
        super().__init__(center, radius)
        n = self._center.shape[1]
        self._order: np.ndarray[tuple[int], np.dtype[np.intp]] | None = None
        self._given = None if cost is None else as_array("cost", cost)
        if self._given is None:
            self._cost = np.arange(float(n))[None, :]
        elif self._given.shape == (n,):
            if not np.isfinite(float(self._given.max()) - float(self._given.min())):
                raise InvalidParameter(
                    "cost: the distance between the outermost positions overflows",
                    parameter="cost",
                    value=cost,
                )
            order = np.argsort(self._given, kind="stable")
            self._cost = self._given[order][None, :]
            if (order != np.arange(n)).any():
                self._order = order
        elif self._given.shape == (n, n):
            self._check_matrix(self._given)
            self._cost = np.ascontiguousarray(self._given.T)[None, :, :]
        else:
            raise InvalidParameter(
                f"cost must be None, positions of shape ({n},) or a matrix of shape ({n}, {n}), "
                f"got shape {self._given.shape}",
                parameter="cost",
                value=cost,
            )
        self._on_line = self._cost.ndim == 2
        self._drop_tiny_distances()
        self._step = np.array([self._smallest_step()])
        self._sorted_center = self._center if self._order is None else self._center[:, self._order].copy()

    @staticmethod
    def _check_matrix(cost: Array) -> None:
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

    def _drop_tiny_distances(self) -> None:
        """Distances below 1e-290 count as 0: a multiplier for them would overflow."""
        if not self._on_line:
            self._cost[self._cost < TINY] = 0.0
            return
        tiny = np.flatnonzero(np.diff(self._cost[0]) < TINY)
        for i in tiny[np.diff(self._cost[0])[tiny] > 0.0]:
            self._cost[0, i + 1] = self._cost[0, i]

    def _smallest_step(self) -> float:
        """The smallest distance that is not 0, negative if some distances between entries are 0."""
        if self._on_line:
            steps = np.diff(self._cost[0])
            zeros = bool((steps == 0.0).any())
        else:
            steps = self._cost[0]
            zeros = np.count_nonzero(steps) < steps.size - len(steps)
        least = float(steps.min(initial=np.inf, where=steps > 0.0))
        least = least if np.isfinite(least) else 1.0
        return -least if zeros else least

    @classmethod
    def ragged(
        cls,
        center: Any,
        radius: ArrayLike,
        cost: ArrayLike | None = None,
        *,
        indptr: ArrayLike | None = None,
        indices: ArrayLike | None = None,
    ) -> Ragged:
        """Return rows of different lengths, each {p : Σ cost·γ <= radius for a plan γ from q to p}.

        The cost is that between the values, once for all rows; a row uses the part between its own entries,
        and mass stays among them. On a line O(entries) per step and 6 to 15 steps; with a matrix the square
        of each row's length.

        >>> import numpy as np
        >>> q, indptr, indices = [0.5, 0.5, 0.25, 0.25, 0.5], [0, 2, 5], [0, 3, 1, 2, 3]
        >>> rows = Wasserstein1.ragged(q, radius=0.3, indptr=indptr, indices=indices)
        >>> rows.worst_case([4.0, 3.0, 1.0, 0.5]).p.round(12)
        array([0.6  , 0.4  , 0.525, 0.   , 0.475])
        >>> between = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
        >>> rows = Wasserstein1.ragged(q, radius=0.3, cost=between, indptr=indptr, indices=indices)
        >>> rows.worst_case([4.0, 3.0, 1.0, 0.5]).value.round(12)
        array([2.6   , 1.8125])

        Args:
            center: probabilities along the entries, which sum to 1 in each row; or a SciPy CSR matrix.
            radius: at least 0; a number, or one per row.
            cost: None for |i - j| of the places i and j of two values; a position per value, in any order; or
                a matrix, cost[i, j] >= 0 from value j to value i, 0 on the diagonal.
            indptr: the entries of row b are indptr[b], …, indptr[b+1] - 1. Not needed with a CSR matrix.
            indices: for each entry the place of its value; an index may repeat in a row, as an entry of its
                own. None: there is a value for each entry.
        """
        structure = structure_of("center", center, indptr, indices)
        q, limit = as_flat_center(center, structure), as_row_numbers("radius", radius, structure)
        shared = None if cost is None else _check_shared(structure, as_array("cost", cost))
        if shared is not None and shared.ndim == 2:
            kernel, between = "wasserstein1_matrix", np.array(shared.T, order="C")
            between[between < TINY] = 0.0
            arguments: tuple[Any, ...] = (structure.places(), q, limit, between)
        else:
            kernel, places = "wasserstein1_line", structure.places()
            order, x, step = _lines(structure, places.astype(float) if shared is None else shared[places])
            ascending = q[order + structure.repeat(structure.starts())] if order.size else q
            arguments = (order, ascending, limit, x, step)
        return Ragged(
            Wasserstein1,
            kernel,
            ("lam",),
            structure,
            arguments,
            by_entry={"center": q},
            by_row={"radius": limit},
            by_value={"cost": shared},
        )

    @property
    def cost(self) -> Array | None:
        """The cost as given, which is None, positions or a matrix."""
        return None if self._given is None else readonly(self._given)

    @classmethod
    def example(cls, size: int, rng: np.random.Generator | None = None) -> Wasserstein1:
        """The integer line and a radius of 1; N/10 for fewer than ten entries, where 1 would be too large."""
        return cls(example_center(size, rng), min(1.0, size / 10.0))

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """On a line ∫|P - Q| <= radius of the distribution functions; else a transport plan."""
        import cvxpy

        q, radius = self._center[0], float(self._radius[0])
        n = q.size
        if n == 1:
            return []
        if self._on_line:
            moved = p - q if self._order is None else (p - q)[self._order]
            return [cvxpy.norm1(cvxpy.multiply(np.diff(self._cost[0]), cvxpy.cumsum(moved)[:-1])) <= radius]
        plan = cvxpy.Variable((n, n), nonneg=True)
        spent = cvxpy.sum(cvxpy.multiply(self._cost[0], plan))
        return [cvxpy.sum(plan, axis=1) == q, cvxpy.sum(plan, axis=0) == p, spent <= radius]

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels import wasserstein1_line as line_transport
        from uncertainty_sets.kernels import wasserstein1_matrix as transport

        rows = line_transport.rows if self._on_line else transport.rows
        order = self._order
        f = losses if order is None else np.ascontiguousarray(losses[..., order])
        parameters = (self._sorted_center, self._radius, self._cost, self._step)
        result = answer(rows, f, parameters, ("lam",), warm_start, out if order is None else None)
        if order is not None:
            p = np.empty_like(result.p) if out is None else out
            p[..., order] = result.p
            result.p = p
        return result

    def _slope(self, losses: Array, answer: WorstCase) -> float | None:
        return answer.dual.get("lam")

    def _residual(self, p: Array) -> float:
        q, radius = self._center[0], float(self._radius[0])
        if self._on_line:
            distance = self._distance_on_line(p)
        else:
            ot = load("ot", "the membership test of Wasserstein1 with a cost matrix")
            mass = np.maximum(p, 0.0)
            if mass.sum() == 0.0:
                return np.inf
            share = mass / mass.sum()
            distance, found = ot.emd2(q, share, self._cost[0], numItermax=10_000_000, log=True)
            # The potentials say what a unit of mass more at each entry costs: so much for the rounding of p.
            price = np.asarray(found["v"], dtype=np.float64)
            distance = float(distance) - ROUNDED * float(share @ np.abs(price - share @ price))
        return max((distance - radius) / max(1.0, radius), 0.0)

    def _distance_on_line(self, p: Array) -> float:
        """∫|P - Q| beyond the rounding of p, summed from the side with less mass, as `check` does."""
        after, before = (
            (p, self._center[0]) if self._order is None else (p[self._order], self._sorted_center[0])
        )
        moved, mass = (after - before).astype(np.longdouble), np.maximum(after, before)
        left, right = np.cumsum(mass)[:-1], np.cumsum(mass[::-1])[::-1][1:]
        ahead = np.where(left <= right, np.cumsum(moved)[:-1], np.cumsum(moved[::-1])[::-1][1:])
        beyond = np.maximum(np.abs(ahead) - ROUNDED * np.minimum(left, right), 0.0)
        return float(beyond @ np.diff(self._cost[0]).astype(np.longdouble))

    def _singleton(self) -> Array | None:
        # A negative step: some distances are 0, and mass moves over them at no cost.
        return super()._singleton() if self._step[0] > 0.0 else None

    def __repr__(self) -> str:
        cost = "" if self._given is None else f", cost={describe(self._given)}"
        return f"Wasserstein1(center={describe(self.center)}, radius={describe(self.radius)}{cost})"


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
    if cost.ndim == 2:
        Wasserstein1._check_matrix(cost)
    return cost


def _lines(structure: Structure, x: Array) -> tuple[Integers, Array, Array]:
    """Sort the positions of each row: the order within rows (empty if they ascend), positions, and steps.

    A step is the smallest distance above 0 in a row, negative if some are 0.
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
        far = np.flatnonzero(~np.isfinite(x[ends] - x[starts]))
        apart = np.where(within, np.diff(x, append=np.inf), np.inf)
    if far.size:
        raise InvalidParameter(
            f"cost: the distance between the outermost positions of row {far[0]} overflows",
            parameter="cost",
            value=x,
        )
    # 2. Distances below 1e-290 count as 0: a multiplier for them would overflow.
    tiny = np.flatnonzero((apart > 0.0) & (apart < TINY))
    for i in tiny:
        x[i + 1] = x[i]
    apart[tiny] = 0.0
    # 3. Steps.
    least = np.minimum.reduceat(np.where(apart > 0.0, apart, np.inf), starts)
    least[np.isinf(least)] = 1.0
    return order, x, np.where(np.logical_or.reduceat(apart == 0.0, starts), -least, least)
