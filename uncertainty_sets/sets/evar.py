"""EVaR: the entropic value at risk."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.parameters import as_center, as_numbers
from uncertainty_sets.ragged import Ragged
from uncertainty_sets.ragged_parameters import as_flat_center, structure_of
from uncertainty_sets.sets._tails import as_ragged_tails, as_tail_rows
from uncertainty_sets.sets.kl import KL


class EVaR(KL):
    """The entropic value at risk: {p : Σ p·log(p/q) <= -log tail}.

    This is `KL(center, -log tail)`: the smallest bound on the CVaR at that tail which exponential moments of
    the losses give, and smooth in the losses. It ranges from the mean at tail = 1 to the largest loss with
    q > 0, which it attains if that loss has a probability of at least `tail`. O(N), with the oracle of `KL`.

    ====  ==========================================================================
    dual  meaning
    ====  ==========================================================================
    eta   multiplier of the divergence, in [0, ∞]; 0: only the largest losses count;
          ∞: tail = 1, where p = q (or η beyond the largest float)
    ====  ==========================================================================

    The bound is η·log(Σ q·exp(f/η) / tail) for any η > 0:

    >>> import numpy as np
    >>> from uncertainty_sets import CVaR
    >>> f, q, tail = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2]), 0.4
    >>> r = EVaR(q, tail).worst_case(f)
    >>> bool(r.value > CVaR(q, tail).worst_case(f).value)
    True
    >>> eta, top = r.dual["eta"], f.max()
    >>> bound = top + eta * np.log(q @ np.exp((f - top) / eta) / tail)
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (3.576985, 3.576985)

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        tail: in (0, 1]; a number, or shape (B,).
    """

    name: ClassVar[str] = "evar"
    summary: ClassVar[str] = "The entropic value at risk"
    formula: ClassVar[str] = "Σ p·log(p/q) <= -log tail"

    def __init__(self, center: ArrayLike, tail: ArrayLike) -> None:
        tails = as_tail_rows(tail, len(as_center(center)))
        radius = _radius(tails)
        super().__init__(center, radius if np.ndim(tail) else radius[0])
        self._tail = np.array(np.broadcast_to(tails, self._radius.shape))

    @classmethod
    def ragged(
        cls,
        center: Any,
        tail: ArrayLike,
        *,
        indptr: ArrayLike | None = None,
        indices: ArrayLike | None = None,
    ) -> Ragged:
        """Return rows of different lengths, each {p : Σ p·log(p/q) <= -log tail} with a centre of its own.

        >>> EVaR.ragged([0.5, 0.5, 1.0], [0.8, 0.5], indptr=[0, 2, 3]).worst_case([1.0, 2.0, 4.0]).value
        array([1.82..., 4.        ])

        Args:
            center: probabilities along the entries, which sum to 1 in each row; or a SciPy CSR matrix.
            tail: in (0, 1]; a number, or one per row.
            indptr: the entries of row b are indptr[b], …, indptr[b+1] - 1. Not needed with a CSR matrix.
            indices: for each entry the place of its value; an index may repeat in a row, as an entry of its
                own. None: there is a value for each entry.
        """
        structure = structure_of("center", center, indptr, indices)
        q, share = as_flat_center(center, structure), as_ragged_tails(tail, structure)
        arguments = (q, _radius(share))
        return Ragged(
            EVaR, "kl", ("eta",), structure, arguments, by_entry={"center": q}, by_row={"tail": share}
        )

    @property
    def tail(self) -> float | Array:
        """The share of the worst losses."""
        return as_numbers(self, self._tail)

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """The worst quarter."""
        return super().default_parameters(center) | {"tail": 0.5}


def _radius(tail: Array) -> Array:
    return np.abs(np.log(tail))  # without the sign of -log 1 = -0
