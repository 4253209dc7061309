"""Total variation: distributions that differ from a centre by no more than a given probability."""

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
from uncertainty_sets.sets._balls import Ball
from uncertainty_sets.sets._vertex_face import distance_face

if TYPE_CHECKING:
    import cvxpy


class TotalVariation(Ball, certified=True):
    """Distributions near a centre q in total variation: {p : ½·Σ |p - q| <= radius}.

    No event's probability changes by more than the radius. The worst case takes that much mass from the
    smallest losses and adds it to the largest, in proportion to q there, evenly if q is 0 there: p may have
    mass where q has none. If the radius is at least 1 - q(argmax f), all mass is on the largest losses.
    O(N): one selection and three passes.

    ====  ======================================================
    dual  meaning
    ====  ======================================================
    t     losses below t lose all of their mass; t <= max f
    ====  ======================================================

    The bound is Σ q·max(f, t) + radius·(max f - t) for any t <= max f:

    >>> import numpy as np
    >>> f, q, radius = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2]), 0.1
    >>> r = TotalVariation(q, radius).worst_case(f)
    >>> r.p.round(12), round(r.value, 12)
    (array([0.4, 0.3, 0.3]), 2.2)
    >>> t = r.dual["t"]
    >>> bound = q @ np.maximum(f, t) + radius * (f.max() - t)
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.2, 2.2)

    The least radius that reaches a target is at least (target - Σ q·max(f, t))/(max f - t) for any t < max f;
    `radius_for` has t = max f - 1/multiplier:

    >>> found = TotalVariation(q, 0.0).radius_for(f, target=2.8)
    >>> t = f.max() - 1 / found.multiplier
    >>> bound = (2.8 - q @ np.maximum(f, t)) / (f.max() - t)
    >>> round(float(bound), 6), round(found.lower_bound, 6)
    (0.3, 0.3)

    The distance Σ |p - q| of other texts is twice this one. `calibration.total_variation_radius` has a radius
    for a confidence level.

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        radius: at least 0; a number, or shape (B,). From 1 on every distribution is in the set.
    """

    name: ClassVar[str] = "total-variation"
    summary: ClassVar[str] = "Distributions near a centre q in total variation"
    formula: ClassVar[str] = "½·Σ |p - q| <= radius"
    complexity: ClassVar[str] = "O(N)"
    by_row: ClassVar[tuple[str, ...]] = ("center", "radius")
    layout: ClassVar[Layout | None] = Layout(
        "total_variation", ("t",), up_to_largest=("t",), center=CENTER, radius=EACH_ROW
    )

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """Σ |p - q| <= 2·radius."""
        import cvxpy

        return [cvxpy.norm1(p - self._center[0]) <= 2.0 * float(self._radius[0])]

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels.total_variation import rows

        found = answer(rows, losses, (self._center, self._radius), ("t",), warm_start, out)
        # Losses that were scaled down may have rounded t to above the largest, where it proves no bound.
        if np.any(found.dual["t"] >= found.value):
            t = np.minimum(found.dual["t"], losses.max(axis=-1))
            found.dual = {"t": float(t) if losses.ndim == 1 else t}
        return found

    _is_vertex = True

    def _face(self, rows: Rows, losses: Any, p: Any, eta: Any, given: Mapping[str, Any]) -> Face:
        limits = {"radius": Effect(room=1.0, per_row=True)}
        return distance_face(rows, losses, p, eta, given["center"], 0.5, limits)

    def _eta(self, rows: Rows, losses: Any, given: Mapping[str, Any], dual: Mapping[str, Any]) -> Any:
        return rows.most(losses) - rows.each(np.asarray(dual["t"]))

    def _closed_radius(self, losses: Array, targets: Array) -> LeastRadius:
        from uncertainty_sets.kernels.least_radius import total_variation

        return closed(self, total_variation, losses, (self._center,), targets)

    def _slope(self, losses: Array, answer: WorstCase) -> float | None:
        return None if "t" not in answer.dual else float(losses.max()) - answer.dual["t"]

    def _distance(self, p: Array) -> float:
        return 0.5 * float(np.abs(p - self._center[0]).sum())

    def _projection(self) -> Callable[[Array], Array] | None:
        from uncertainty_sets.kernels.projection import nearest_by_moves as nearest

        if self.rows is not None:
            return None
        q, radius = self._center[0], float(self._radius[0])
        return lambda point: nearest(point, q, radius)


class TotalVariationPenalty(Penalty):
    """½·Σ |p-q| as a price."""

    keeps_support: ClassVar[bool] = False

    def kernel(self) -> Callable[..., None]:
        """Of kernels/penalised.py."""
        from uncertainty_sets.kernels.penalised import total_variation

        return total_variation

    def cost(self, p: Any, q: Array) -> Any:
        """In cvxpy."""
        import cvxpy

        return 0.5 * cvxpy.norm1(p - q)

    def face(self, rows: Rows, losses: Any, p: Any, q: Any, weight: Any) -> Face:
        """That of the ball at the price as multiplier."""
        limits = {"weight": Effect(value=-0.5 * abs(p - q), per_row=True)}
        return distance_face(rows, losses, p, weight, q, 0.5, limits, priced=True)

    def bound(self, nu: float, g: Array, q: Array, tau: float) -> float:
        """Σ q·max(g, ν) for ν >= -τ."""
        return float(q @ np.maximum(g, nu)) if nu >= -tau else np.inf

    def least_bound(self, g: Array, q: Array, tau: float) -> tuple[float, float]:
        """At the least ν."""
        return -tau, self.bound(-tau, g, q, tau)

    def dual(self, losses: Any, q: Array, weight: float) -> tuple[Any, list[Any]]:
        """Σ q·max(f, ν) with ν >= max f - τ."""
        import cvxpy

        nu, most = cvxpy.Variable(), cvxpy.Variable(q.size)
        return q @ most, [most >= losses, most >= nu, losses <= nu + weight]


TotalVariation.penalty = TotalVariationPenalty()
