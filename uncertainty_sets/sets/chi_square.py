"""ChiSquare: distributions within a χ² divergence of a centre."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.face import Effect, Face, Rows
from uncertainty_sets.inverse import LeastRadius, closed
from uncertainty_sets.kernels.dispatch import answer
from uncertainty_sets.penalised import Penalty
from uncertainty_sets.rows import CENTER, EACH_ROW, Layout
from uncertainty_sets.sets._balls import KEYS, SupportedBall, pulled_in
from uncertainty_sets.sets._tilt_face import power_bend, power_face, priced_power_face

if TYPE_CHECKING:
    import cvxpy


class ChiSquare(SupportedBall, certified=True):
    """Distributions near a centre q in χ² divergence: {p : Σ (p-q)²/q <= radius}.

    For a small radius the worst expected loss is mean + √(radius·variance) under q: the set behind
    variance-regularised losses. The worst case is p ∝ q·(f - τ)₊; if the radius is at least
    1/q(argmax f) - 1, it is the centre restricted to the largest losses. If q_i = 0, then p_i = 0. O(N):
    3 to 10 passes.

    ======  ===========================================================================
    dual    meaning
    ======  ===========================================================================
    margin  max f - τ over q > 0, in [0, ∞]; 0: only the largest losses count; ∞: radius
            0, where p = q
    eta     multiplier of the radius, by which the bound grows with it
    ======  ===========================================================================

    The bound is τ + √((1+radius)·Σ q·(f-τ)₊²) for any τ:

    >>> import numpy as np
    >>> f, q, radius = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2]), 0.3
    >>> r = ChiSquare(q, radius).worst_case(f)
    >>> r.p.round(4), round(r.value, 4)
    (array([0.283 , 0.3145, 0.4025]), 2.5221)
    >>> h = np.maximum(r.dual["margin"] - (f.max() - f), 0)
    >>> bound = f.max() - r.dual["margin"] + np.sqrt((1 + radius) * (q @ h**2))
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.522093, 2.522093)

    The least radius that reaches a target is at least (target-τ)²/Σ q·(f-τ)₊² - 1 for any τ < target. With
    the multiplier θ of `radius_for`, p/q = (f-τ)₊·θ/2 gives τ:

    >>> found = ChiSquare(q, 0.0).radius_for(f, target=2.5)
    >>> tau = f[2] - 2 / found.multiplier * found.p[2] / q[2]
    >>> bound = (2.5 - tau) ** 2 / (q @ np.maximum(f - tau, 0) ** 2) - 1
    >>> round(float(bound), 6), round(found.lower_bound, 6)
    (0.27907, 0.27907)

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        radius: at least 0; a number, or shape (B,).
    """

    name: ClassVar[str] = "chi-square"
    summary: ClassVar[str] = "Distributions near a centre q in χ² divergence"
    formula: ClassVar[str] = "Σ (p-q)²/q <= radius"
    complexity: ClassVar[str] = "O(N)"
    by_row: ClassVar[tuple[str, ...]] = ("center", "radius")
    layout: ClassVar[Layout | None] = Layout("chi_square", KEYS, center=CENTER, radius=EACH_ROW)

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """‖(p-q)/√q‖ <= √radius over q > 0, p = 0 elsewhere; a norm reaches a solver as one cone."""
        import cvxpy

        q, radius = self._center[0], self._radius[0]
        inside = np.flatnonzero(q > 0.0)
        whitened = cvxpy.multiply(1.0 / np.sqrt(q[inside]), p[inside] - q[inside])
        return [cvxpy.norm(whitened) <= np.sqrt(radius), *self._none_outside(p)]

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels.chi_square import rows

        parameters = (self._center, self._radius)
        return answer(rows, self._on_support(losses), parameters, KEYS, warm_start, out)

    def _face(self, rows: Rows, losses: Any, p: Any, eta: Any, given: Mapping[str, Any]) -> Face:
        return power_face(rows, losses, p, eta, given["center"], 2.0, self._limits(rows, given))

    _is_curved = True
    _link = 2.0

    def _limits(self, rows: Rows, given: Mapping[str, Any]) -> dict[str, Effect]:
        return {"radius": Effect(room=0.5, per_row=True)}  # D is half of χ²

    def _bent(self, p: Array, given: Mapping[str, Any]) -> Array:
        return power_bend(p, given["center"], 2.0)

    def _eta(self, rows: Rows, losses: Any, given: Mapping[str, Any], dual: Mapping[str, Any]) -> Any:
        return 2.0 * super()._eta(rows, losses, given, dual)

    def _closed_radius(self, losses: Array, targets: Array) -> LeastRadius:
        from uncertainty_sets.kernels.least_radius import chi_square

        return closed(self, chi_square, self._on_support(losses), (self._center,), targets)

    def _projection(self) -> Callable[[Array], Array] | None:
        from uncertainty_sets.kernels.projection import QUADRATIC
        from uncertainty_sets.kernels.projection import nearest_in_ball as nearest

        if self.rows is not None:
            return None
        inside, radius = self._center[0] > 0.0, float(self._radius[0])
        q = self._center[0, inside]

        def exact(point: Array) -> Array:
            p = np.zeros(inside.size)
            p[inside] = nearest(point[inside], q, q, QUADRATIC, 0.5 * radius)
            return pulled_in(p, self._center[0], radius, self._distance)

        return exact

    def _divergence(self, p: Array) -> float:
        """Σ (p-q)²/q over q > 0."""
        q = self._center[0]
        inside = q > 0.0
        with np.errstate(over="ignore"):
            moved = (p[inside] - q[inside]) / np.sqrt(q[inside])
            return float(moved @ moved)


class ChiSquarePenalty(Penalty):
    """Σ (p-q)²/q as a price."""

    second_order: ClassVar[bool] = True
    largest: ClassVar[float] = 5e307

    def kernel(self) -> Callable[..., None]:
        """Of kernels/penalised.py."""
        from uncertainty_sets.kernels.penalised import chi_square

        return chi_square

    def cost(self, p: Any, q: Array) -> Any:
        """In cvxpy."""
        import cvxpy

        return cvxpy.sum_squares(cvxpy.multiply(1.0 / np.sqrt(q), p - q))

    def face(self, rows: Rows, losses: Any, p: Any, q: Any, weight: Any) -> Face:
        """That of the ball at the price as multiplier."""
        return priced_power_face(rows, losses, p, q, weight, 2.0, 0.5)

    def bound(self, nu: float, g: Array, q: Array, tau: float) -> float:
        """ν + τ + Σ q·max(g-ν, 0)²/4τ."""
        return float(nu + tau + q @ np.maximum(g - nu, 0.0) ** 2 / (4.0 * tau))

    def dual(self, losses: Any, q: Array, weight: float) -> tuple[Any, list[Any]]:
        """m + Σ q·(d + d²/4τ) with d = max(f-m, -2τ), the bound at ν = m - 2τ: nothing cancels at a large τ.

        Σ q·d² is at most s if ‖(2·√q·d, s-1)‖ <= s+1.
        """
        import cvxpy

        middle, square, d = cvxpy.Variable(), cvxpy.Variable(), cvxpy.Variable(q.size)
        scaled = cvxpy.multiply(2.0 * np.sqrt(q), d)
        cone = cvxpy.SOC(square + 1, cvxpy.hstack([scaled, square - 1]))
        return middle + q @ d + square / (4.0 * weight), [d >= losses - middle, d >= -2.0 * weight, cone]

    def mended(self, found: WorstCase, losses: Array, center: Array, weight: Array) -> Array | None:
        """A weight that is infinite once the losses are scaled makes ν about mean - 2·weight."""
        far = np.isneginf(found.dual["nu"])
        return np.where(far, found.value - 2.0 * weight, found.dual["nu"]) if np.any(far) else None


ChiSquare.penalty = ChiSquarePenalty()
