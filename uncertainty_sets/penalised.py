"""Penalised: a divergence that costs instead of one that is bounded."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets import verdict
from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import SETS, UncertaintySet
from uncertainty_sets.conic import support as atom
from uncertainty_sets.errors import BackendUnsuitable, InvalidParameter, SolverFailed, UnknownName
from uncertainty_sets.face import Face, Rows
from uncertainty_sets.kernels.dispatch import answer, on_support
from uncertainty_sets.oracle import Oracle
from uncertainty_sets.parameters import as_center, as_numbers, as_rows, as_scalar_rows, same_rows
from uncertainty_sets.registry import instead

if TYPE_CHECKING:
    import cvxpy


class Penalty(ABC):
    """A divergence as a price: what `Penalised` needs of it. The class of its ball has one in `penalty`."""

    keeps_support: ClassVar[bool] = True
    """Whether no p has mass where q has none: losses there do not count."""

    second_order: ClassVar[bool] = False
    exponential: ClassVar[bool] = False
    """Which cones the dual has beside linear ones."""

    largest: ClassVar[float] = np.inf
    """The largest weight."""

    @abstractmethod
    def kernel(self) -> Callable[..., None]:
        """``rows(F, q, weight, warm, P, out)`` with the multiplier ν; kernels/dispatch.py says more."""

    @abstractmethod
    def cost(self, p: Any, q: Array) -> Any:
        """D(p‖q) as a cvxpy expression, for the solver that answers where the closed form has no proof."""

    @abstractmethod
    def bound(self, nu: float, g: Array, q: Array, tau: float) -> float:
        """The bound at any ν, for losses g with the maximum 0 and a weight τ > 0."""

    @abstractmethod
    def dual(self, losses: Any, q: Array, weight: float) -> tuple[Any, list[Any]]:
        """The least bound for affine losses and the constraints on what it is made of, for a weight > 0."""

    def face(self, rows: Rows, losses: Any, p: Any, q: Any, weight: Any) -> Face | None:
        """The face of the problem (face.py), `weight` to combine with entries; None: no derivatives."""
        return None

    def least_bound(self, g: Array, q: Array, tau: float) -> tuple[float, float]:
        """ν with the least bound, and that bound, for losses with the maximum 0 and a spread of 1."""
        from scipy.optimize import minimize_scalar

        def bound(nu: float) -> float:
            if tau == 0.0:
                return nu if nu >= 0.0 else np.inf
            return self.bound(nu, g, q, tau)

        ends = (-1.0 - 2.0 * tau, 0.0)
        found = minimize_scalar(bound, bounds=ends, method="bounded", options={"xatol": 1e-14})
        return min(((float(found.x), float(found.fun)), (0.0, bound(0.0))), key=lambda each: each[1])

    def mended(self, found: WorstCase, losses: Array, center: Array, weight: Array) -> Array | None:
        """ν, (1 or B,), where a double could not hold the kernel's; None if it could."""
        return None


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
        divergence: "kl", "chi-square", "total-variation", or the class of that set, such as `KL`; or of any
            set whose class has a `penalty`.
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        weight: τ, at least 0; a number, or shape (B,).
    """

    _cache_rows: Callable[..., None] | None = None

    def __init__(self, divergence: str | type[UncertaintySet], center: ArrayLike, weight: ArrayLike) -> None:
        self.divergence, self._penalty = _found(divergence)
        q = as_center(center)
        self._center, self._weight = same_rows(q, as_scalar_rows("weight", weight, len(q)))
        if (self._weight > self._penalty.largest).any():
            raise InvalidParameter(
                f"weight must be at most {self._penalty.largest:g} for {self.divergence}, since ν is about "
                f"-2·weight, got {self._weight.max():g}; from 1e20 times the spread of the losses on, p is "
                "the centre",
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
        return atom.expression(
            self,
            losses,
            _dual,
            second_order=self._penalty.second_order or not linear,
            exponential=self._penalty.exponential,
        )

    def _given_by_name(self) -> dict[str, Any]:
        return {"center": self.center, "weight": self.weight}

    def _eta(self, rows: Rows, losses: Any, given: Mapping[str, Any], dual: Mapping[str, Any]) -> Any:
        return rows.each(np.asarray(given["weight"]))

    def _face(self, rows: Rows, losses: Any, p: Any, eta: Any, given: Mapping[str, Any]) -> Face | None:
        weight = rows.each(given["weight"] + 0.0 * rows.numbers(p))
        return self._penalty.face(rows, losses, p, given["center"], weight)

    def _answer_checked(
        self, f: Array, backend: str, warm_start: WorstCase | None, out: Array | None
    ) -> WorstCase:
        if backend not in ("auto", "closed-form"):
            raise BackendUnsuitable(
                f"Penalised has a closed form and needs no solver; leave out backend={backend!r}, or "
                "minimise robust.support(…) with a solver"
            )
        penalty, inside = self._penalty, self._center > 0.0
        # Losses without mass must not set the scale, unless mass may go there.
        counted = f if not penalty.keeps_support or inside.all() else on_support(f, inside)
        parameters = (self._center, self._weight)
        if self._cache_rows is None:
            self._cache_rows = penalty.kernel()
        found = answer(self._cache_rows, counted, parameters, ("nu",), warm_start, out, in_loss_units=(1,))
        nu = penalty.mended(found, counted, *parameters)
        if nu is not None:
            found.dual = {"nu": float(nu[0]) if f.ndim == 1 else nu}
        if not found.unproved:
            return found
        return verdict.settle(self, f, found, backend, "to minimise robust.support(…) with a solver")

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
        counted = inside if self._penalty.keeps_support else np.ones(q.size, dtype=bool)
        top = float(losses[counted].max())
        spread = (0.5 * top - 0.5 * float(losses[counted].min())) * 2.0 or 1.0
        g, tau = (losses[counted] / spread - top / spread), float(self._weight[0]) / spread
        p, shares = cvxpy.Variable(g.size, nonneg=True), q[counted]
        cost = self._penalty.cost(p, shares)
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
        value = float(g @ part) - tau * float(self._penalty.cost(part, shares).value)
        nu, bound = self._penalty.least_bound(g, shares, tau)
        whole = np.zeros(q.size)
        whole[counted] = part
        off = abs(float(whole.sum()) - 1.0)
        gap = spread * (bound - value)
        dual = {"nu": top + spread * nu}
        return WorstCase(whole, top + spread * value, top + spread * bound, gap, off, dual, "clarabel", 0)


def _dual(oracle: Penalised, losses: Any) -> tuple[Any, list[Any]]:
    """The least bound and the constraints on what it is made of, by the formulas of the class's docstring."""
    import cvxpy

    q, weight = oracle._center[0], float(oracle._weight[0])
    if oracle._penalty.keeps_support:
        inside = np.flatnonzero(q > 0.0)
        losses, q = losses[inside], q[inside]
    if weight == 0.0:
        top = cvxpy.Variable()
        return top, [losses <= top]
    return oracle._penalty.dual(losses, q, weight)


def penalties() -> dict[str, Penalty]:
    """The divergences that have a price, by the names of their sets."""
    own = {name: _penalty_of(cls) for name, cls in SETS.classes().items()}
    return {name: penalty for name, penalty in own.items() if penalty is not None}


def _penalty_of(cls: type[UncertaintySet]) -> Penalty | None:
    """That of a class, or of the one whose name it took over; a set of another name is another divergence."""
    owner = next(each for each in cls.__mro__ if "penalty" in vars(each))
    found: Penalty | None = vars(owner)["penalty"]
    return found if getattr(owner, "name", "") == cls.name else None


def _found(divergence: Any) -> tuple[str, Penalty]:
    """The name and the penalty of a divergence that is given by name or as the class of its ball."""
    name = getattr(divergence, "name", "") if isinstance(divergence, type) else divergence
    cls = SETS.find(name) if isinstance(name, str) and name else None
    penalty = None if cls is None else _penalty_of(cls)
    if penalty is None:
        shown = divergence.__name__ if isinstance(divergence, type) else repr(divergence)
        raise UnknownName(
            f"there is no penalised oracle for {shown}{instead(str(name), penalties())}",
            parameter="divergence",
            value=divergence,
        )
    return name, penalty
