"""CVaRMixture: a weighted mean of CVaRs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.kernels.dispatch import answer
from uncertainty_sets.parameters import SUM_TOLERANCE, as_array, check_not_negative, readonly
from uncertainty_sets.rows import CENTER, SHARED, Layout, Structure
from uncertainty_sets.sets._tails import check_tail
from uncertainty_sets.sets.spectral import Spectral, of_mixture


class CVaRMixture(Spectral, certified=True):
    """A weighted mean of CVaRs: {p : p = Σ weight_k·p_k with p_k <= q/tail_k}.

    Its largest expected loss is Σ weight_k·CVaR(tail_k): for example half of the mean (tail 1) and half of
    the mean of the worst tenth. This is the spectral risk measure of H(u) = Σ weight_k·min(1, u/tail_k). One
    selection per level, O(N) each.

    ====  ==================================================
    dual  meaning
    ====  ==================================================
    var   the value at risk of each level, in their order
    ====  ==================================================

    The bound is Σ weight·(var + Σ q·max(f - var, 0) / tail) over the levels, for any var:

    >>> import numpy as np
    >>> f, q = np.array([1.0, 2.0, 4.0, 3.0]), np.array([0.4, 0.3, 0.1, 0.2])
    >>> tails, weights = np.array([1.0, 0.2]), np.array([0.5, 0.5])
    >>> r = CVaRMixture(q, tails, weights).worst_case(f)
    >>> r.p.round(12), round(r.value, 12)
    (array([0.2 , 0.15, 0.3 , 0.35]), 2.75)
    >>> var = r.dual["var"]
    >>> bound = weights @ (var + np.maximum(f - var[:, None], 0) @ q / tails)
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.75, 2.75)

    Ragged rows have the same levels, and an empty `dual`, which has room for two numbers per row: the values
    at risk of row b are those of ``rows.row(b).worst_case(losses)``:

    >>> rows = CVaRMixture.ragged([0.5, 0.5, 0.2, 0.3, 0.5], [1.0, 0.25], [0.5, 0.5], indptr=[0, 2, 5])
    >>> v = [1.0, 2.0, 3.0, 2.0, 1.0]
    >>> rows.worst_case(v).value.round(12), rows.row(1).worst_case(v[2:]).dual["var"]
    (array([1.75, 2.25]), array([1., 2.]))

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        tails: in (0, 1], shape (K,).
        weights: at least 0, with sum 1, shape (K,).
    """

    name: ClassVar[str] = "cvar-mixture"
    summary: ClassVar[str] = "A weighted mean of CVaRs"
    formula: ClassVar[str] = "p = Σ weight_k·p_k with p_k <= q/tail_k"
    complexity: ClassVar[str] = "O(N) per level"
    layout: ClassVar[Layout | None] = Layout("cvar_mixture", (), center=CENTER, tails=SHARED, weights=SHARED)

    def __init__(self, center: ArrayLike, tails: ArrayLike, weights: ArrayLike) -> None:
        self._tails, self._weights = _as_mixture(tails, weights)
        super().__init__(center, of_mixture(self._tails, self._weights))

    @classmethod
    def _ragged_kernel(
        cls, structure: Structure, given: dict[str, Any]
    ) -> tuple[str | Callable[..., None], tuple[Any, ...]]:
        given["tails"], given["weights"] = _as_mixture(given["tails"], given["weights"])
        return "cvar_mixture", tuple(given.values())

    @property
    def tails(self) -> Array:
        """The share of the worst losses of each level."""
        return readonly(self._tails)

    @property
    def weights(self) -> Array:
        """The weight of each level."""
        return readonly(self._weights)

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """Half of the mean, and half of the mean of the worst quarter."""
        return super().default_parameters(center) | {"tails": [1.0, 0.25], "weights": [0.5, 0.5]}

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels.cvar_mixture import rows

        var = np.empty((1 if losses.ndim == 1 else len(losses), self._tails.size))
        parameters = (self._center, self._tails[None], self._weights[None])
        return answer(rows, losses, parameters, (), warm_start, out, {"var": var})


def _as_mixture(tails: ArrayLike, weights: ArrayLike) -> tuple[Array, Array]:
    """Return tails and weights of the levels, checked, the weights with sum 1."""
    shares, rates = check_tail("tails", _as_levels("tails", tails)), _as_levels("weights", weights)
    if shares.size != rates.size:
        raise InvalidParameter(
            f"weights must have one number per tail, {shares.size}, got {rates.size}",
            parameter="weights",
            value=weights,
        )
    check_not_negative("weights", rates)
    total = float(rates.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise InvalidParameter(
            f"weights must sum to 1, got {total:.12g}; divide them by their sum",
            parameter="weights",
            value=weights,
        )
    return shares, rates / total


def _as_levels(name: str, value: ArrayLike) -> Array:
    array = as_array(name, value)
    if array.ndim != 1 or array.size == 0:
        raise InvalidParameter(
            f"{name} must be a vector with one number per level, got shape {array.shape}",
            parameter=name,
            value=value,
        )
    return array
