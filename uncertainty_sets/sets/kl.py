"""KL: distributions within a Kullback-Leibler divergence of a centre."""

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
from uncertainty_sets.sets._balls import SupportedBall, pulled_in
from uncertainty_sets.sets._tilt_face import power_face, priced_power_face

if TYPE_CHECKING:
    import cvxpy


class KL(SupportedBall, certified=True):
    """Distributions near a centre q in relative entropy: {p : Σ p·log(p/q) <= radius}.

    The worst case tilts the centre, p ∝ q·exp(f/η), until the divergence reaches the radius; if the radius is
    at least -log q(argmax f), it is the centre restricted to the largest losses. If q_i = 0, then p_i = 0.
    O(N): 3 to 10 passes, and never more than 40, whatever the losses and masses.

    ====  ==========================================================================
    dual  meaning
    ====  ==========================================================================
    eta   multiplier of the divergence, in [0, ∞]; 0: only the largest losses count;
          ∞: radius 0, where p = q and no finite multiplier attains the bound
          (or η beyond the largest float)
    ====  ==========================================================================

    The bound is η·radius + η·log Σ q·exp(f/η) for any η > 0, with the limits max f (over q > 0) at η = 0
    and qᵀf at η = ∞:

    >>> import numpy as np
    >>> f, q, radius = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2]), 0.1
    >>> r = KL(q, radius).worst_case(f)
    >>> eta, top = r.dual["eta"], f.max()
    >>> bound = top + eta * (radius + np.log(q @ np.exp((f - top) / eta)))
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.438869, 2.438869)

    At a small radius η is large, and η times the rounding of that logarithm is not small. The same bound
    about the mean keeps its digits:

    >>> r, mean = KL(q, 1e-20).worst_case(f), q @ f
    >>> eta, x = r.dual["eta"], (f - mean) / r.dual["eta"]
    >>> bool(abs(mean + eta * (1e-20 + np.log1p(q @ (np.expm1(x) - x))) - r.upper_bound) < 1e-15)
    True

    Ragged rows take O(entries) as well. A matrix of transitions brings its own structure:

    >>> from scipy.sparse import csr_array
    >>> P = csr_array(np.array([[0.5, 0.0, 0.5], [0.2, 0.3, 0.5]]))
    >>> KL.ragged(P, radius=0.1).worst_case([1.0, 2.0, 4.0]).value.round(6)
    array([3.159384, 3.340376])

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        radius: at least 0; a number, or shape (B,).
    """

    name: ClassVar[str] = "kl"
    summary: ClassVar[str] = "Distributions near a centre q in relative entropy"
    formula: ClassVar[str] = "Σ p·log(p/q) <= radius"
    complexity: ClassVar[str] = "O(N)"
    by_row: ClassVar[tuple[str, ...]] = ("center", "radius")
    layout: ClassVar[Layout | None] = Layout("kl", ("eta",), center=CENTER, radius=EACH_ROW)

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """Σ rel_entr(N·p, N·q) <= N·radius for q > 0 (N for accuracy), p = 0 elsewhere."""
        import cvxpy

        q, radius, n = self._center[0], self._radius[0], float(self._center.shape[1])
        inside = np.flatnonzero(q > 0.0)
        near = cvxpy.sum(cvxpy.rel_entr(n * p[inside], n * q[inside])) <= n * radius
        return [near, *self._none_outside(p)]

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels.kl import rows

        return answer(rows, self._on_support(losses), (self._center, self._radius), ("eta",), warm_start, out)

    def _closed_radius(self, losses: Array, targets: Array) -> LeastRadius:
        from uncertainty_sets.kernels.least_radius import kl

        return closed(self, kl, self._on_support(losses), (self._center,), targets)

    def _projection(self) -> Callable[[Array], Array] | None:
        from uncertainty_sets.kernels.projection import ENTROPY
        from uncertainty_sets.kernels.projection import nearest_in_ball as nearest

        if self.rows is not None:
            return None
        q, radius = self._center[0], float(self._radius[0])

        def exact(point: Array) -> Array:
            return pulled_in(nearest(point, q, q, ENTROPY, radius), q, radius, self._distance)

        return exact

    def _face(self, rows: Rows, losses: Any, p: Any, eta: Any, given: Mapping[str, Any]) -> Face:
        return power_face(rows, losses, p, eta, given["center"], 1.0, self._limits(rows, given))

    _is_curved = True
    _link = 1.0

    def _bent(self, p: Array, given: Mapping[str, Any]) -> Array:
        return p

    def _limits(self, rows: Rows, given: Mapping[str, Any]) -> dict[str, Effect]:
        return {"radius": Effect(room=1.0, per_row=True)}

    def _divergence(self, p: Array) -> float:
        """Σ p·log(p/q) over q > 0, as a sum of terms that are each >= 0: a small one keeps its digits."""
        q = self._center[0]
        inside = q > 0.0
        x, y = np.maximum(p[inside], 0.0), q[inside]
        close = np.clip(x, 0.5 * y, 2.0 * y)
        ratio = close / y - 1.0
        near = y * ((1.0 + ratio) * np.log1p(ratio) - ratio)
        far = x * (np.log(np.where(x > 0.0, x, 1.0)) - np.log(y)) - x + y
        terms = np.where(x == close, near, far)
        return float(terms.sum()) + float(x.sum() - y.sum())


FAR = 1e149
"""Of losses: beyond, they may be scaled before they are answered."""


class KLPenalty(Penalty):
    """Σ p·log(p/q) as a price."""

    exponential: ClassVar[bool] = True

    def kernel(self) -> Callable[..., None]:
        """Of kernels/penalised.py."""
        from uncertainty_sets.kernels.penalised import kl

        return kl

    def cost(self, p: Any, q: Array) -> Any:
        """In cvxpy."""
        import cvxpy

        return cvxpy.sum(cvxpy.rel_entr(p, q))

    def face(self, rows: Rows, losses: Any, p: Any, q: Any, weight: Any) -> Face:
        """That of the ball at the price as multiplier."""
        return priced_power_face(rows, losses, p, q, weight, 1.0, 1.0)

    def bound(self, nu: float, g: Array, q: Array, tau: float) -> float:
        """ν - τ + τ·Σ q·exp((g-ν)/τ)."""
        return float(nu + tau * (q @ np.expm1(np.minimum((g - nu) / tau, 700.0))))

    def dual(self, losses: Any, q: Array, weight: float) -> tuple[Any, list[Any]]:
        """ν with Σ q·exp((f-ν)/τ) <= 1, written as solvers fail least.

        At a small τ in units of the losses and with q in the exponent, at a large one in units of τ.
        """
        import cvxpy

        nu, terms = cvxpy.Variable(), cvxpy.Variable(q.size)
        if weight > 1.0:
            return nu, [cvxpy.ExpCone((losses - nu) / weight, np.ones(q.size), terms), q @ terms <= 1.0]
        cone = cvxpy.ExpCone(losses - nu + weight * np.log(q), np.full(q.size, weight), terms)
        return nu, [cone, cvxpy.sum(terms) <= weight]

    def mended(self, found: WorstCase, losses: Array, center: Array, weight: Array) -> Array | None:
        """Losses this large were scaled, and small ones became 0 by that; ν is no less than this."""
        if np.abs(losses).max() <= FAR:
            return None
        masses = np.where(center > 0.0, center, 1.0)
        with np.errstate(over="ignore"):
            least = losses.max(axis=-1) + weight * np.log(masses.min(axis=1))
        return np.asarray(np.maximum(found.dual["nu"], least))


KL.penalty = KLPenalty()
