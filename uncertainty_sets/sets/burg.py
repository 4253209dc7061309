"""Burg: distributions whose relative entropy from the centre's side, Σ q·log(q/p), is within a radius."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from uncertainty_sets.sets._balls import PowerBall

if TYPE_CHECKING:
    import cvxpy


class Burg(PowerBall):
    """Distributions near a centre q in Burg entropy (reverse KL): {p : Σ q·log(q/p) <= radius}.

    With sample frequencies as q it is the set of distributions whose log-likelihood is within n·radius of the
    best one. Where q_i > 0, p_i stays positive; where q_i = 0, p_i may be positive too, up to
    1 - exp(-radius).
    The worst case is p ∝ q/(T - f) with a pole T > max f. O(N): 3 to 10 passes with a logarithm per entry.

    ======  =========================================================================
    dual    meaning
    ======  =========================================================================
    margin  T - max f, in [0, ∞]; 0: the largest losses have q = 0, and get what the
            others must not keep; ∞: radius 0, where p = q
    eta     multiplier of the radius, by which the bound grows with it
    ======  =========================================================================

    The bound is T - exp(Σ q·log(T-f) - radius) for any T > max f:

    >>> import numpy as np
    >>> f, q, radius = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2]), 0.1
    >>> r = Burg(q, radius).worst_case(f)
    >>> r.p.round(4), round(r.value, 4)
    (array([0.3371, 0.2599, 0.403 ]), 2.4688)
    >>> h = r.dual["margin"] + (f.max() - f)
    >>> bound = f.max() + r.dual["margin"] - np.exp(q @ np.log(h) - radius)
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.46879, 2.46879)

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        radius: at least 0; a number, or shape (B,).
    """

    name: ClassVar[str] = "burg"
    summary: ClassVar[str] = "Distributions near a centre q in Burg entropy (reverse KL)"
    formula: ClassVar[str] = "Σ q·log(q/p) <= radius"
    complexity: ClassVar[str] = "O(N)"
    by_row: ClassVar[tuple[str, ...]] = ("center", "radius")
    power: float = 0.0

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """Σ rel_entr(q, p) <= radius, over q > 0."""
        import cvxpy

        q, radius = self._center[0], self._radius[0]
        inside = np.flatnonzero(q > 0.0)
        return [cvxpy.sum(cvxpy.rel_entr(q[inside], p[inside])) <= radius]
