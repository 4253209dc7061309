"""EVaR: the entropic value at risk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.face import Effect, Rows
from uncertainty_sets.parameters import as_center
from uncertainty_sets.rows import CENTER, Layout, Structure
from uncertainty_sets.sets._tails import EACH_TAIL, TailMeasure, as_tail_rows
from uncertainty_sets.sets.kl import KL


class EVaR(TailMeasure, KL):
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

    `radius_for` is that of `KL`: the largest tail that reaches a target is exp(-radius).

    >>> least = EVaR(q, 1.0).radius_for(f, target=3.0)
    >>> round(EVaR(q, np.exp(-least.radius)).worst_case(f).value, 9)
    3.0

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        tail: in (0, 1]; a number, or shape (B,).
    """

    name: ClassVar[str] = "evar"
    summary: ClassVar[str] = "The entropic value at risk"
    formula: ClassVar[str] = "Σ p·log(p/q) <= -log tail"
    layout: ClassVar[Layout | None] = Layout("kl", ("eta",), center=CENTER, tail=EACH_TAIL)

    def __init__(self, center: ArrayLike, tail: ArrayLike) -> None:
        q = as_center(center)
        tails = as_tail_rows(tail, len(q))
        self._store(np.ndim(center) == 2 or np.ndim(tail) == 1, q, _radius(tails))
        self._tail = np.array(np.broadcast_to(tails, self._radius.shape))

    @classmethod
    def _ragged_kernel(
        cls, structure: Structure, given: dict[str, Any]
    ) -> tuple[str | Callable[..., None], tuple[Any, ...]]:
        return "kl", (given["center"], _radius(given["tail"]))

    def _limits(self, rows: Rows, given: Mapping[str, Any]) -> dict[str, Effect]:
        return {"tail": Effect(room=-1.0 / rows.each(given["tail"]), per_row=True)}


def _radius(tail: Array) -> Array:
    return np.abs(np.log(tail))  # without the sign of -log 1 = -0
