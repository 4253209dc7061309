"""Penalised: a divergence that costs instead of one that is bounded."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets import fallback, support_atom
from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import BackendUnsuitable, InvalidParameter, UnknownName
from uncertainty_sets.kernels.dispatch import answer
from uncertainty_sets.names import instead
from uncertainty_sets.oracle import Oracle
from uncertainty_sets.parameters import as_center, as_numbers, as_rows, as_scalar_rows, same_rows

if TYPE_CHECKING:
    import cvxpy


class Penalised(Oracle):
    """The worst case at a price: the largest pᵀf - weight·D(p‖q) over all distributions p.

    A set allows every p up to a divergence and none beyond it; here p pays for its divergence from the
    centre q. The weight is the multiplier of the divergence in the dual of such a set: a ball of radius
    D(p‖q) has the same worst case p. The larger the weight, the closer is p to q.

    It answers as a set does, with `value` = pᵀf - weight·D(p‖q), so D is (pᵀf - value)/weight. `robust_loss`
    of uncertainty_sets.torch and `robust.support` take it too. It is no `UncertaintySet`: all distributions
    are allowed.

    =================  ==================================  ===================================================
    divergence         D(p‖q)                              bound, with τ = weight and ν = dual["nu"]
    =================  ==================================  ===================================================
    "kl"               Σ p·log(p/q)                        ν - τ + τ·Σ q·exp((f-ν)/τ) for any ν
    "chi-square"       Σ (p-q)²/q                          ν + τ + Σ q·max(f-ν, 0)²/4τ for any ν
    "total-variation"  ½ Σ |p-q|                           Σ q·max(f, ν) for any ν >= max f - τ
    =================  ==================================  ===================================================

    With KL the value is the entropic risk τ·log Σ q·exp(f/τ), the loss of tilted empirical risk minimisation
    with the tilt 1/τ; there ν is the value itself. A weight of 0 gives the largest loss (over q > 0 for KL
    and χ²). O(N): 3 to 5 passes for KL and total variation, at most 10 for χ² in practice.

    >>> import numpy as np
    >>> f, q, tau = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2]), 2.0
    >>> r = Penalised("kl", q, tau).worst_case(f)
    >>> r
    WorstCase(value=2.274..., p=[0.2644, 0.2616, 0.474 ], gap=..., violation=..., backend='closed-form')
    >>> bool(np.isclose(r.value, tau * np.log(q @ np.exp(f / tau))))
    True
    >>> nu = r.dual["nu"]
    >>> bool(np.isclose(nu - tau + tau * q @ np.exp((f - nu) / tau), r.upper_bound))
    True
    >>> r = Penalised("chi-square", q, tau).worst_case(f)
    >>> nu = r.dual["nu"]
    >>> bool(np.isclose(nu + tau + q @ np.maximum(f - nu, 0) ** 2 / (4 * tau), r.upper_bound))
    True
    >>> r = Penalised("total-variation", q, tau).worst_case(f)
    >>> bool(np.isclose(q @ np.maximum(f, r.dual["nu"]), r.upper_bound))
    True

    At a weight far above max f - min f, ν is large too, and these formulas lose the digits that `upper_bound`
    keeps.

    Args:
        divergence: "kl", "chi-square", "total-variation", or the class of that set, such as `KL`.
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        weight: τ, at least 0; a number, or shape (B,).
    """

    def __init__(self, divergence: str | type[UncertaintySet], center: ArrayLike, weight: ArrayLike) -> None:
        self.divergence = _name_of(divergence)
        q = as_center(center)
        self._center, self._weight = same_rows(q, as_scalar_rows("weight", weight, len(q)))
        self.size = self._center.shape[1]
        self.rows = len(self._center) if np.ndim(center) == 2 or np.ndim(weight) == 1 else None

    @property
    def center(self) -> Array:
        """The centre q."""
        return as_rows(self, self._center)

    @property
    def weight(self) -> float | Array:
        """The price τ of the divergence."""
        return as_numbers(self, self._weight)

    def support(self, losses: cvxpy.Expression, *, linear: bool = False) -> cvxpy.Expression:
        """Return the value as a convex cvxpy expression of convex losses; `robust.support` calls this."""
        if self.rows is not None:
            raise InvalidParameter(f"support takes one centre and weight, and there are {self.rows} rows")
        return support_atom.expression(
            self,
            losses,
            _dual,
            second_order=self.divergence == "chi-square" or not linear,
            exponential=self.divergence == "kl",
        )

    def _answer_checked(
        self, f: Array, backend: str, warm_start: WorstCase | None, out: Array | None
    ) -> WorstCase:
        if backend not in {"auto", "closed-form"}:
            raise BackendUnsuitable(
                f"Penalised has a closed form and needs no solver; leave out backend={backend!r}, or "
                "minimise robust.support(…) with a solver"
            )
        kernels = import_module("uncertainty_sets.kernels.penalised")
        rows = getattr(kernels, self.divergence.replace("-", "_"))
        found = answer(rows, f, (self._center, self._weight), ("nu",), warm_start, out, in_loss_units=(1,))
        if found.unproved:
            another = "to minimise robust.support(…) with a solver"
            raise fallback.failure(self, found, dict.fromkeys(found.unproved), another)
        return found


def _dual(oracle: Penalised, losses: Any) -> tuple[Any, list[Any]]:
    """The least bound and the constraints on what it is made of, by the formulas of the class's docstring."""
    import cvxpy

    q, weight = oracle._center[0], float(oracle._weight[0])
    if oracle.divergence != "total-variation":  # no p has mass where q has none
        inside = np.flatnonzero(q > 0.0)
        losses, q = losses[inside], q[inside]
    if weight == 0.0:
        top = cvxpy.Variable()
        return top, [losses <= top]
    return DUALS[oracle.divergence](losses, q, weight)


def _kl(losses: Any, q: Array, weight: float) -> tuple[Any, list[Any]]:
    """ν with Σ q·exp((f-ν)/τ) <= 1, written as solvers fail least.

    At a small τ in units of the losses and with q in the exponent, at a large one in units of τ.
    """
    import cvxpy

    nu, terms = cvxpy.Variable(), cvxpy.Variable(q.size)
    if weight > 1.0:
        return nu, [cvxpy.ExpCone((losses - nu) / weight, np.ones(q.size), terms), q @ terms <= 1.0]
    cone = cvxpy.ExpCone(losses - nu + weight * np.log(q), np.full(q.size, weight), terms)
    return nu, [cone, cvxpy.sum(terms) <= weight]


def _chi_square(losses: Any, q: Array, weight: float) -> tuple[Any, list[Any]]:
    """m + Σ q·(d + d²/4τ) with d = max(f-m, -2τ): the bound at ν = m - 2τ, without what cancels at a large τ.

    Σ q·d² is at most s if ‖(2·√q·d, s-1)‖ <= s+1.
    """
    import cvxpy

    middle, square, d = cvxpy.Variable(), cvxpy.Variable(), cvxpy.Variable(q.size)
    scaled = cvxpy.multiply(2.0 * np.sqrt(q), d)
    cone = cvxpy.SOC(square + 1, cvxpy.hstack([scaled, square - 1]))
    return middle + q @ d + square / (4.0 * weight), [d >= losses - middle, d >= -2.0 * weight, cone]


def _total_variation(losses: Any, q: Array, weight: float) -> tuple[Any, list[Any]]:
    """Σ q·max(f, ν) with ν >= max f - τ."""
    import cvxpy

    nu, most = cvxpy.Variable(), cvxpy.Variable(q.size)
    return q @ most, [most >= losses, most >= nu, losses <= nu + weight]


DUALS: dict[str, Callable[[Any, Array, float], tuple[Any, list[Any]]]] = {
    "chi-square": _chi_square,
    "kl": _kl,
    "total-variation": _total_variation,
}
"""The divergences, each with its dual problem for cvxpy; the kernel has the divergence's name."""


def _name_of(divergence: Any) -> str:
    """Return the name of a divergence that is given by name or as the class of its ball."""
    name = getattr(divergence, "name", "") if isinstance(divergence, type) else divergence
    if not isinstance(name, str) or name not in DUALS:
        shown = divergence.__name__ if isinstance(divergence, type) else repr(divergence)
        raise UnknownName(
            f"there is no penalised oracle for {shown}{instead(str(name), DUALS)}",
            parameter="divergence",
            value=divergence,
        )
    return name
