"""Wasserstein-1: distributions within a transport distance of a centre."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.parameters import example_center
from uncertainty_sets.rows import CENTER, EACH_ROW, Layout
from uncertainty_sets.sets._transport import COST, TransportBall


class Wasserstein1(TransportBall):
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
    >>> bound = lam * radius + q @ (f[:, None] - lam * cost).max(axis=0)
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (3.5, 3.5)

    In ragged rows the cost is that between the values; a row uses the part between its own entries, and mass
    stays among them:

    >>> q, indptr, indices = [0.5, 0.5, 0.25, 0.25, 0.5], [0, 2, 5], [0, 3, 1, 2, 3]
    >>> between = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    >>> rows = Wasserstein1.ragged(q, radius=0.3, cost=between, indptr=indptr, indices=indices)
    >>> rows.worst_case([4.0, 3.0, 1.0, 0.5]).value.round(12)
    array([2.6   , 1.8125])

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
    by_row: ClassVar[tuple[str, ...]] = TransportBall.by_row
    layout: ClassVar[Layout | None] = Layout(
        "wasserstein_line", ("lam",), center=CENTER, radius=EACH_ROW, cost=COST
    )

    def __init__(self, center: ArrayLike, radius: ArrayLike, cost: ArrayLike | None = None) -> None:
        super().__init__(center, radius, cost, 1.0)

    @classmethod
    def example(cls, size: int, rng: np.random.Generator | None = None) -> Wasserstein1:
        """The integer line and a radius of 1; N/10 for fewer than ten entries, where 1 would be too large."""
        return cls(example_center(size, rng), min(1.0, size / 10.0))
