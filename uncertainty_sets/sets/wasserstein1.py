"""Wasserstein-1: distributions within a transport distance of a centre."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.parameters import example_center
from uncertainty_sets.ragged import Ragged
from uncertainty_sets.sets._transport import TransportBall


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

    def __init__(self, center: ArrayLike, radius: ArrayLike, cost: ArrayLike | None = None) -> None:
        super().__init__(center, radius, cost, 1.0)

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
        return cls._ragged(center, radius, cost, 1.0, indptr, indices, {})

    @classmethod
    def example(cls, size: int, rng: np.random.Generator | None = None) -> Wasserstein1:
        """The integer line and a radius of 1; N/10 for fewer than ten entries, where 1 would be too large."""
        return cls(example_center(size, rng), min(1.0, size / 10.0))
