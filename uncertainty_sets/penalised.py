"""Penalised: a divergence that costs instead of one that is bounded."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets import fallback, support_atom
from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import BackendUnsuitable, InvalidParameter, SolverFailed, UnknownName
from uncertainty_sets.kernels.dispatch import answer, on_support
from uncertainty_sets.names import instead
from uncertainty_sets.oracle import Oracle
from uncertainty_sets.parameters import as_center, as_numbers, as_rows, as_scalar_rows, same_rows

if TYPE_CHECKING:
    import cvxpy


MOST = 5e307
"""The largest weight for χ²."""


FAR = 1e149
"""Of losses: beyond, they may be scaled before they are answered."""


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
        if self.divergence == "chi-square" and (self._weight > MOST).any():
            raise InvalidParameter(
                f"weight must be at most {MOST:g} for chi-square, since ν is about -2·weight, got "
                f"{self._weight.max():g}; from 1e20 times the spread of the losses on, p is the centre",
                parameter="weight",
                value=weight,
            )
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
        inside = self._center > 0.0
        # Losses without mass must not set the scale; to total variation they count.
        counted = f if self.divergence == "total-variation" or inside.all() else on_support(f, inside)
        found = answer(
            rows, counted, (self._center, self._weight), ("nu",), warm_start, out, in_loss_units=(1,)
        )
        if self.divergence == "chi-square":  # a weight that is infinite once the losses are scaled
            far = np.isneginf(found.dual["nu"])
            if np.any(far):  # then ν is about mean - 2·weight
                nu = np.where(far, found.value - 2.0 * self._weight, found.dual["nu"])
                found.dual = {"nu": float(nu[0]) if f.ndim == 1 else nu}
        if self.divergence == "kl" and np.abs(counted).max() > FAR:  # losses were scaled, small ones to 0
            masses = np.where(self._center > 0.0, self._center, 1.0)
            with np.errstate(over="ignore"):
                least = counted.max(axis=-1) + self._weight * np.log(masses.min(axis=1))  # ν is no less
            nu = np.maximum(found.dual["nu"], least)
            found.dual = {"nu": float(nu[0]) if f.ndim == 1 else nu}
        if not found.unproved:
            return found
        return fallback.settle(self, f, found, backend, "to minimise robust.support(…) with a solver")

    def _row(self, index: int) -> Penalised:
        """The oracle of one row of a batch."""
        if self.rows is None:
            return self
        return Penalised(self.divergence, self._center[index], float(self._weight[index]))

    def _by_solver(self, losses: Array) -> WorstCase:
        """Answer one loss vector by a conic solver, after the closed form gave no proof.

        Whatever the solver says of its answer, the certificate made here is what `fallback` judges.
        """
        import cvxpy

        q, inside = self._center[0], self._center[0] > 0.0
        counted = np.ones(q.size, dtype=bool) if self.divergence == "total-variation" else inside
        top = float(losses[counted].max())
        spread = (0.5 * top - 0.5 * float(losses[counted].min())) * 2.0 or 1.0
        g, tau = (losses[counted] / spread - top / spread), float(self._weight[0]) / spread
        p, shares = cvxpy.Variable(g.size, nonneg=True), q[counted]
        cost = COSTS[self.divergence](p, shares)
        problem = cvxpy.Problem(cvxpy.Maximize(g @ p - tau * cost), [cvxpy.sum(p) == 1])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # cvxpy's, that a solution may be inaccurate
                problem.solve(solver=cvxpy.CLARABEL)
        except cvxpy.error.SolverError as error:
            raise SolverFailed(f"clarabel has no answer for {self!r}: {error}") from error
        if p.value is None or not np.isfinite(p.value).all():
            raise SolverFailed(f"clarabel ended with status {problem.status!r} for {self!r}")
        part = np.maximum(p.value, 0.0)
        if not part.sum() > 0.0:
            raise SolverFailed(
                f"clarabel ended with status {problem.status!r} and no distribution for {self!r}"
            )
        part /= part.sum()
        value = float(g @ part) - tau * float(COSTS[self.divergence](part, shares).value)
        nu, bound = _least_bound(self.divergence, g, shares, tau)
        whole = np.zeros(q.size)
        whole[counted] = part
        off = abs(float(whole.sum()) - 1.0)
        gap = spread * (bound - value)
        dual = {"nu": top + spread * nu}
        return WorstCase(whole, top + spread * value, top + spread * bound, gap, off, dual, "clarabel", 0)


def _least_bound(divergence: str, g: Array, q: Array, tau: float) -> tuple[float, float]:
    """ν with the least bound, and that bound, for losses with the maximum 0 and a spread of 1."""
    from scipy.optimize import minimize_scalar

    if divergence == "total-variation":
        return -tau, float(q @ np.maximum(g, -tau))

    def bound(nu: float) -> float:
        if tau == 0.0:
            return nu if nu >= 0.0 else np.inf
        if divergence == "kl":
            return float(nu + tau * (q @ np.expm1(np.minimum((g - nu) / tau, 700.0))))
        return float(nu + tau + q @ np.maximum(g - nu, 0.0) ** 2 / (4.0 * tau))

    found = minimize_scalar(bound, bounds=(-1.0 - 2.0 * tau, 0.0), method="bounded", options={"xatol": 1e-14})
    return min(((float(found.x), float(found.fun)), (0.0, bound(0.0))), key=lambda each: each[1])


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


def _chi_square_cost(p: Any, q: Array) -> Any:
    import cvxpy

    return cvxpy.sum_squares(cvxpy.multiply(1.0 / np.sqrt(q), p - q))


def _kl_cost(p: Any, q: Array) -> Any:
    import cvxpy

    return cvxpy.sum(cvxpy.rel_entr(p, q))


def _total_variation_cost(p: Any, q: Array) -> Any:
    import cvxpy

    return 0.5 * cvxpy.norm1(p - q)


COSTS: dict[str, Callable[[Any, Array], Any]] = {
    "chi-square": _chi_square_cost,
    "kl": _kl_cost,
    "total-variation": _total_variation_cost,
}
"""The divergences of p as cvxpy expressions, for the solver that answers where a closed form has no proof."""


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
