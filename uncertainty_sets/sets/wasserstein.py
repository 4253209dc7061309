"""Wasserstein balls of any order: distributions within a transport distance of a centre."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.rows import CENTER, EACH_ROW, Layout
from uncertainty_sets.sets._transport import COST, ORDER, TransportBall


class Wasserstein(TransportBall):
    """Distributions near a centre q in transport cost of order 2 or any other:
    {p : Σ cost^order·γ <= radius^order for a plan γ from q to p}.

    For order 2 long moves cost more than proportionally, so that mass travels in many short moves; order 1 is
    `Wasserstein1`. With a multiplier λ the mass at j goes where f_i - λ·cost[i, j]^order is largest; λ
    minimises a convex function. An evaluation is O(N) on a line for orders 1 and 2, where it is the upper
    envelope of parabolas, O(N log N) on a line for other orders and O(N²) with a cost matrix. A search takes
    6 to 15 of them, all but the first three or four over the few entries whose target they can still change.

    ====  ================================================
    dual  meaning
    ====  ================================================
    lam   multiplier λ of the transport's Σ cost^order, >= 0
    ====  ================================================

    The bound is λ·radius^order + Σ q_j max_i (f_i - λ·cost[i, j]^order) for any λ >= 0:

    >>> import numpy as np
    >>> f, q, radius = np.array([1.0, 3.0, 2.0, 4.0]), np.full(4, 0.25), 0.5
    >>> r = Wasserstein(q, radius).worst_case(f)
    >>> r.p, r.value
    (array([0.125, 0.375, 0.125, 0.375]), 3.0)
    >>> lam, cost = r.dual["lam"], np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    >>> bound = lam * radius**2 + q @ (f[:, None] - lam * cost**2).max(axis=0)
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (3.0, 3.0)

    Distances whose power of `order` is below 1e-290 count as 0, and the largest one must not overflow.

    In ragged rows the cost is that between the values; a row uses the part between its own entries, and mass
    stays among them:

    >>> q, indptr, indices = [0.5, 0.5, 0.25, 0.25, 0.5], [0, 2, 5], [0, 3, 1, 2, 3]
    >>> rows = Wasserstein.ragged(q, radius=0.6, indptr=indptr, indices=indices)
    >>> rows.worst_case([4.0, 3.0, 1.0, 0.5]).p.round(12)
    array([0.54  , 0.46  , 0.5275, 0.    , 0.4725])

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        radius: at least 0; a number, or shape (B,). It is a distance: its power bounds the transport.
        cost: None for |i - j|; shape (N,): positions on a line, in any order; shape (N, N): cost[i, j] >= 0
            is the distance from j to i, 0 on the diagonal, symmetric or not.
        order: from 1 to 100.
    """

    name: ClassVar[str] = "wasserstein"
    summary: ClassVar[str] = "Distributions near a centre q in transport cost of order 2 or any other"
    formula: ClassVar[str] = "Σ cost^order·γ <= radius^order for a plan γ from q to p"
    complexity: ClassVar[str] = "O(N) on a line, otherwise O(N²)"
    by_row: ClassVar[tuple[str, ...]] = TransportBall.by_row
    layout: ClassVar[Layout | None] = Layout(
        "wasserstein_line", ("lam",), center=CENTER, radius=EACH_ROW, cost=COST, order=ORDER
    )

    def __init__(
        self, center: ArrayLike, radius: ArrayLike, cost: ArrayLike | None = None, order: float = 2.0
    ) -> None:
        super().__init__(center, radius, cost, order)

    @property
    def order(self) -> float:
        """The power to which distances are raised."""
        return self._power

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """The integer line and a radius of 1; N/10 for fewer than ten entries, for which 1 is too large."""
        return super().default_parameters(center) | {"radius": min(1.0, center.size / 10.0)}
