"""Box: every probability between a lower and an upper bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import EmptySet, InvalidParameter
from uncertainty_sets.face import Effect, Face, Rows
from uncertainty_sets.kernels.dispatch import answer
from uncertainty_sets.parameters import as_rows, as_vector_rows, example_center
from uncertainty_sets.rows import EACH_BOUND, Layout, Structure
from uncertainty_sets.sets._vertex_face import selection_face

if TYPE_CHECKING:
    import cvxpy


SLACK = 1e-12  # bounds are rounded decimals, and so are their sums


class Box(UncertaintySet, certified=True):
    """Probabilities between bounds: {p : lower <= p <= upper}.

    The worst case fills the largest losses up to `upper` until the mass is spent: a continuous knapsack,
    solved by selection in O(N). Ties at the threshold are filled in proportion.

    ====  ====================================================
    dual  meaning
    ====  ====================================================
    nu    multiplier of 1ᵀp = 1: the loss at the threshold
    ====  ====================================================

    The bound is ν + Σ max(l·(f-ν), u·(f-ν)) with l = max(lower, 0), u = min(upper, 1), for any ν:

    >>> import numpy as np
    >>> f, lower, upper = np.array([3.0, 1.0, 2.0]), np.array([0.1, 0.1, 0.1]), np.array([0.5, 0.6, 1.7])
    >>> r = Box(lower, upper).worst_case(f)
    >>> r.p.round(12), round(r.value, 12)
    (array([0.5, 0.1, 0.4]), 2.4)
    >>> h, l, u = f - r.dual["nu"], np.maximum(lower, 0), np.minimum(upper, 1)
    >>> bound = r.dual["nu"] + np.maximum(l * h, u * h).sum()
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.4, 2.4)

    Args:
        lower: shape (N,), or (B, N) for different bounds per batch row; below 0 means 0.
        upper: likewise; above 1 (infinity too) means 1.
    """

    name: ClassVar[str] = "box"
    summary: ClassVar[str] = "Probabilities between bounds"
    formula: ClassVar[str] = "lower <= p <= upper"
    complexity: ClassVar[str] = "O(N)"
    per_entry: ClassVar[frozenset[str]] = frozenset({"lower", "upper"})
    layout: ClassVar[Layout | None] = Layout("box", ("nu",), lower=EACH_BOUND, upper=EACH_BOUND)

    def __init__(self, lower: ArrayLike, upper: ArrayLike) -> None:
        low, high = as_vector_rows("lower", lower, finite=False), as_vector_rows("upper", upper, finite=False)
        if low.shape[1] != high.shape[1] or (len(low) > 1 and len(high) > 1 and len(low) != len(high)):
            raise InvalidParameter(
                f"lower and upper must have one shape, got {np.shape(lower)} and {np.shape(upper)}",
                parameter="upper",
                value=upper,
            )
        low, high = np.array(np.broadcast_arrays(low, high))
        if (low > high).any():
            at = tuple(int(i) for i in np.argwhere(low > high)[0])
            raise InvalidParameter(
                f"lower must not exceed upper, got {low[at]} > {high[at]} at entry {at[1]}",
                parameter="lower",
                value=lower,
            )
        self._given = low, high
        self._lower = np.maximum(low, 0.0)
        high = np.minimum(high, 1.0)
        least, most = self._lower.sum(axis=1), high.sum(axis=1)
        below, under, over = (high < 0.0).any(axis=1), most < 1.0 - SLACK, least > 1.0 + SLACK
        empty = below | under | over
        if empty.all():
            raise _empty(lower, upper, high.min(), least.max(), most.min())
        if empty.any():  # rows that fail in every answer, each for the reason that its own set gives
            self._lower[empty], high[empty], least[empty] = 0.0, 0.0, 1.0
        self._width = high - self._lower
        self._rest = np.maximum(0.0, 1.0 - least)
        self.size = low.shape[1]
        self.rows = len(low) if max(np.ndim(lower), np.ndim(upper)) == 2 else None

    @classmethod
    def _ragged_kernel(
        cls, structure: Structure, given: dict[str, Any]
    ) -> tuple[str | Callable[..., None], tuple[Any, ...]]:
        low, high = (np.array(np.broadcast_to(each, structure.entries)) for each in given.values())
        bottom, top = np.maximum(low, 0.0), np.minimum(high, 1.0)
        least = _check_flat(structure, low, high, bottom, top)
        return "box", (bottom, top - bottom, np.maximum(0.0, 1.0 - least))

    @property
    def lower(self) -> Array:
        """The lower bounds, as given."""
        return as_rows(self, self._given[0])

    @property
    def upper(self) -> Array:
        """The upper bounds, as given."""
        return as_rows(self, self._given[1])

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """Between half of the centre and twice the centre."""
        bounds = {"lower": 0.5 * center, "upper": np.minimum(2.0 * center, 1.0)}
        return super().default_parameters(center) | bounds

    @classmethod
    def example(cls, size: int, rng: np.random.Generator | None = None) -> Box:
        """Between half of a centre and twice that centre."""
        center = example_center(size, rng)
        return cls(0.5 * center, 2.0 * center)

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """p >= max(lower, 0) and p <= min(upper, 1)."""
        return [p >= self._lower[0], p <= self._lower[0] + self._width[0]]

    def reference(self) -> Array:
        """Lower plus the rest of the mass in proportion to upper - lower."""
        room = self._width.sum(axis=1, keepdims=True)
        part = np.divide(self._rest[:, None], room, out=np.zeros_like(room), where=room > 0.0)
        return as_rows(self, self._lower + self._width * np.minimum(part, 1.0)).copy()

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels.box import rows

        return answer(rows, losses, (self._lower, self._width, self._rest), ("nu",), warm_start, out)

    _is_vertex = True

    def _face(self, rows: Rows, losses: Any, p: Any, eta: Any, given: Mapping[str, Any]) -> Face:
        lower, upper, zero = given["lower"], given["upper"], 0.0 * p
        low, high = rows.where(lower > 0.0, lower, zero), rows.where(upper < 1.0, upper, 1.0 + zero)
        at_high, at_low, w, force = selection_face(rows, losses, p, low, high)
        up, down = at_high & (upper <= 1.0), at_low & (lower >= 0.0)
        effects = {
            name: Effect(1.0 * at, zero, rows.where(at, force, zero))
            for name, at in (("lower", down), ("upper", up))
        }
        return Face(rows, p, zero, w, w, zero, at_high & ~at_high, effects, stiff=True)

    def _projection(self) -> Callable[[Array], Array] | None:
        from uncertainty_sets.kernels.projection import nearest_with_budget as nearest

        if self.rows is not None:
            return None
        q, low = self.reference(), self._lower[0]
        high, rate = low + self._width[0], np.zeros(low.size)
        return lambda target: nearest(target, q, low, high, rate, np.inf)

    def _residual(self, p: Array) -> float:
        low, high = self._lower[0], self._lower[0] + self._width[0]
        return float(max((low - p).max(), (p - high).max(), 0.0))

    def _row(self, index: int) -> Box:
        return self if self.rows is None else Box(self._given[0][index], self._given[1][index])


def _empty(lower: ArrayLike, upper: ArrayLike, lowest: float, least: float, most: float) -> EmptySet:
    """The error for bounds that leave nothing."""
    if lowest < 0.0:
        return EmptySet(
            f"upper must not be negative, since p >= 0; got {lowest}", parameter="upper", value=upper
        )
    if least > 1.0 + SLACK:
        return EmptySet(
            f"the set is empty: Σ max(lower, 0) must be at most 1, got {least:.12g}",
            parameter="lower",
            value=lower,
        )
    return EmptySet(
        f"the set is empty: Σ min(upper, 1) must be at least 1, got {most:.12g}",
        parameter="upper",
        value=upper,
    )


def _check_flat(structure: Structure, low: Array, high: Array, bottom: Array, top: Array) -> Array:
    """Refuse bounds of ragged rows that leave a row empty; return Σ max(lower, 0) of each row."""
    crossed = np.flatnonzero(low > high)
    if crossed.size:
        k = int(crossed[0])
        raise InvalidParameter(
            f"lower must not exceed upper, got {low[k]} > {high[k]} in {structure.where(k)}",
            parameter="lower",
            value=low,
        )
    k = int(high.argmin())
    if high[k] < 0.0:
        raise EmptySet(
            f"upper must not be negative, since p >= 0; got {high[k]} in {structure.where(k)}",
            parameter="upper",
            value=high,
        )
    least, most = (np.add.reduceat(each, structure.starts()) for each in (bottom, top))
    b = int(least.argmax())
    if least[b] > 1.0 + SLACK:
        raise EmptySet(
            f"row {b} is empty: Σ max(lower, 0) must be at most 1, got {least[b]:.12g}",
            parameter="lower",
            value=low,
        )
    b = int(most.argmin())
    if most[b] < 1.0 - SLACK:
        raise EmptySet(
            f"row {b} is empty: Σ min(upper, 1) must be at least 1, got {most[b]:.12g}",
            parameter="upper",
            value=high,
        )
    return least
