"""CD-norm: the paper's constrained D-norm set, a budget of deviations from a centre."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.face import Effect, Face, Rows
from uncertainty_sets.kernels.dispatch import answer
from uncertainty_sets.parameters import (
    as_array,
    as_center,
    as_numbers,
    as_rows,
    as_scalar_rows,
    broadcast,
    check_not_negative,
    example_center,
)
from uncertainty_sets.rows import CENTER, EACH_ROW, EACH_SPREAD, Layout
from uncertainty_sets.sets._balls import CenteredSet
from uncertainty_sets.sets._vertex_face import distance_face

if TYPE_CHECKING:
    import cvxpy

ALIKE = 1e-12  # beyond its spread, an entry of p is still inside


class CDNorm(CenteredSet, certified=True):
    """A budget of deviations from a centre q: {p : |p - q| <= spread, Σ |p - q|/spread <= budget}.

    With a multiplier ν for Σ(p - q) = 0, the budget goes to the largest spread·|f - ν|; ν minimises a convex
    function, found by selection in O(N) per step, about 10 steps; if N is large, most steps need only the few
    entries that are undecided near the minimum. With equal spreads it is two selections: half the budget up,
    half down. (The paper's rule, sort spread·f, is optimal for equal spreads only.)
    A spread of 0 holds p at q.

    ====  =================================================
    dual  meaning
    ====  =================================================
    nu    multiplier of 1ᵀp = 1
    pi    multiplier of the budget, >= 0
    ====  =================================================

    The bound is qᵀf + budget·π + Σ max(0, r(s(f-ν) - π), c(s(ν-f) - π)) with s the spread,
    r = min(1, (1-q)/s) and c = min(1, q/s), for any ν and any π >= 0:

    >>> import numpy as np
    >>> f, q, s = np.array([1.0, 0.9, 0.8]), np.full(3, 1 / 3), np.array([0.3, 0.05, 0.3])
    >>> r = CDNorm(q, s, budget=1.0).worst_case(f)
    >>> round(r.value, 12)
    0.93
    >>> up = np.minimum(1, (1 - q) / s) * (s * (f - r.dual["nu"]) - r.dual["pi"])
    >>> down = np.minimum(1, q / s) * (s * (r.dual["nu"] - f) - r.dual["pi"])
    >>> bool(
    ...     np.isclose(q @ f + 1.0 * r.dual["pi"] + np.maximum(0, np.maximum(up, down)).sum(), r.upper_bound)
    ... )
    True

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        spread: the largest deviation of each entry, at least 0: a number, (N,) or (B, N).
        budget: at least 0, a number or (B,): the largest number of entries that deviate fully.
    """

    name: ClassVar[str] = "cd-norm"
    summary: ClassVar[str] = "A budget of deviations from a centre q"
    formula: ClassVar[str] = "|p - q| <= spread, Σ |p - q|/spread <= budget"
    complexity: ClassVar[str] = "O(N)"
    by_row: ClassVar[tuple[str, ...]] = ("center", "spread", "budget")
    layout: ClassVar[Layout | None] = Layout(
        "cd_norm", ("nu", "pi"), center=CENTER, spread=EACH_SPREAD, budget=EACH_ROW
    )
    sized_by: ClassVar[str] = "budget"
    _spread: Array
    _budget: Array

    def __init__(self, center: ArrayLike, spread: ArrayLike, budget: ArrayLike) -> None:
        q = as_center(center)
        s = as_array("spread", spread)
        check_not_negative("spread", s)
        try:
            s = broadcast(s, q.shape if s.ndim < 2 else (len(s), q.shape[1]))
        except ValueError:
            raise InvalidParameter(
                f"spread must be a number or have the centre's shape {np.shape(center)}, got {s.shape}",
                parameter="spread",
                value=spread,
            ) from None
        given = as_scalar_rows("budget", budget, max(len(q), len(s)))
        if len(q) > 1 and len(s) > 1 and len(q) != len(s):
            raise InvalidParameter(
                f"center and spread must have the same rows, got {np.shape(center)} and {np.shape(spread)}",
                parameter="spread",
                value=spread,
            )
        differ = np.ndim(center) == 2 or np.ndim(spread) == 2 or np.ndim(budget) == 1
        self._store(differ, q, s, given)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # a share above 1 counts as 1
            ratio, room = self._center / self._spread, (1.0 - self._center) / self._spread
        free = self._spread > 0.0
        self._cap = np.where(free, np.minimum(ratio, 1.0), 0.0)
        self._rise = np.where(free, np.minimum(np.maximum(room, 0.0), 1.0), 0.0)
        largest = np.maximum.reduce(self._spread, axis=1, keepdims=True)
        equal = np.logical_and.reduce((self._spread == largest) | ~free, axis=1)
        self._equal = equal.astype(np.float64)

    @property
    def spread(self) -> Array:
        """The largest deviation of each entry."""
        return as_rows(self, self._spread)

    @property
    def budget(self) -> float | Array:
        """The largest sum of relative deviations."""
        return as_numbers(self, self._budget)

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """Spreads equal to the centre, and a budget of half the entries."""
        return super().default_parameters(center) | {"spread": center, "budget": 0.5 * center.size}

    @classmethod
    def example(cls, size: int, rng: np.random.Generator | None = None) -> CDNorm:
        """Spreads equal to the centre (a random part of it with `rng`), and a budget of N/4."""
        center = example_center(size, rng)
        return cls(center, center if rng is None else center * rng.random(size), size / 4.0)

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """p = q + spread·u with |u| <= 1 and Σ|u| <= budget; this avoids a large 1/spread."""
        import cvxpy

        q, s, budget = self._center[0], self._spread[0], float(self._budget[0])
        u = cvxpy.Variable(q.size)
        return [p == q + cvxpy.multiply(s, u), cvxpy.abs(u) <= 1.0, cvxpy.norm1(u) <= budget]

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels.cd_norm import rows

        parameters = (self._center, self._spread, self._rise, self._cap, self._budget, self._equal)
        return answer(rows, losses, parameters, ("nu", "pi"), warm_start, out)

    _is_vertex = True

    def _face(self, rows: Rows, losses: Any, p: Any, eta: Any, given: Mapping[str, Any]) -> Face:
        s, limits = given["spread"], {"budget": Effect(room=1.0, per_row=True)}
        positive = s > 0.0
        rate = rows.where(positive, 1.0 + 0.0 * s, 0.0 * s) / rows.where(positive, s, 1.0 + 0.0 * s)
        return distance_face(rows, losses, p, eta, given["center"], rate, limits, spread=s)

    def _slope(self, losses: Array, answer: WorstCase) -> float | None:
        return answer.dual.get("pi")

    def _distance(self, p: Array) -> float:
        s = self._spread[0]
        far = self._apart(p)
        if float((far - s).max()) > ALIKE:
            return np.inf
        return float((np.maximum(far[s > 0.0], 0.0) / s[s > 0.0]).sum())

    def _projection(self) -> Callable[[Array], Array] | None:
        from uncertainty_sets.kernels.projection import nearest_with_budget as nearest

        if self.rows is not None:
            return None
        q, s = self._center[0], self._spread[0]
        low, high, budget = np.maximum(q - s, 0.0), np.minimum(q + s, 1.0), float(self._budget[0])
        rate = np.divide(1.0, s, out=np.zeros_like(q), where=s > 0.0)
        return lambda target: nearest(target, q, low, high, rate, budget)

    def _residual(self, p: Array) -> float:
        s, budget = self._spread[0], float(self._budget[0])
        far = self._apart(p)
        spent = float((np.maximum(far[s > 0.0], 0.0) / s[s > 0.0]).sum())
        return max(float((far - s).max()), (spent - budget) / max(1.0, budget), 0.0)

    def _apart(self, p: Array) -> Array:
        """|p - q|, which is known to half an ulp of p only, and a tiny spread would magnify that."""
        apart: Array = np.abs(p - self._center[0]) - 1.2e-16 * np.abs(p)
        return apart

    def _singleton(self) -> Array | None:
        fixed = self.rows is None and (self._budget[0] == 0.0 or self._spread.max() == 0.0)
        return self.center if fixed else None
