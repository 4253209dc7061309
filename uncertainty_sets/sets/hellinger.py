"""Hellinger: distributions within a squared Hellinger distance of a centre."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from uncertainty_sets.sets._balls import PowerBall

if TYPE_CHECKING:
    import cvxpy


class Hellinger(PowerBall):
    """Distributions near a centre q in Hellinger distance: {p : ½·Σ (√p - √q)² <= radius}.

    The radius bounds the square of the distance, which is 1 - Σ√(pq) and at most 1. Where q_i = 0, p_i may be
    positive: at a radius r, up to 1 - (1-r)² of the mass. The worst case is p ∝ q/(T - f)² with a pole
    T > max f; if the radius is at least 1 - √q(argmax f), it is the centre restricted to the largest losses.
    O(N): 3 to 10 passes.

    ======  =========================================================================
    dual    meaning
    ======  =========================================================================
    margin  T - max f, in [0, ∞]; 0: only the largest losses count, or all of them
            have q = 0; ∞: radius 0, where p = q
    eta     multiplier of the radius, by which the bound grows with it
    ======  =========================================================================

    The bound is T - (1-radius)²/Σ(q/(T-f)) for any T > max f and a radius below 1:

    >>> import numpy as np
    >>> f, q, radius = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2]), 0.05
    >>> r = Hellinger(q, radius).worst_case(f)
    >>> r.p.round(4), round(r.value, 4)
    (array([0.2728, 0.2408, 0.4864]), 2.7)
    >>> h = r.dual["margin"] + (f.max() - f)
    >>> bound = f.max() + r.dual["margin"] - (1 - radius) ** 2 / (q @ (1 / h))
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.699967, 2.699967)

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        radius: at least 0; a number, or shape (B,). From 1 on the set is the whole simplex.
    """

    name: ClassVar[str] = "hellinger"
    summary: ClassVar[str] = "Distributions near a centre q in Hellinger distance"
    formula: ClassVar[str] = "½·Σ (√p - √q)² <= radius"
    complexity: ClassVar[str] = "O(N)"
    by_row: ClassVar[tuple[str, ...]] = ("center", "radius")
    power: float = 0.5
    unit: ClassVar[float] = 4.0

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """Σ √(qp) >= 1 - radius, over q > 0."""
        import cvxpy

        q, radius = self._center[0], self._radius[0]
        inside = np.flatnonzero(q > 0.0)
        if radius >= 1.0:
            return []
        return [cvxpy.sum(cvxpy.multiply(np.sqrt(q[inside]), cvxpy.sqrt(p[inside]))) >= 1.0 - radius]
