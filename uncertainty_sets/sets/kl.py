"""KL: distributions within a Kullback-Leibler divergence of a centre."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.centered import SupportedBall, pulled_in
from uncertainty_sets.inverse import LeastRadius, closed
from uncertainty_sets.kernels.dispatch import answer
from uncertainty_sets.ragged import Ragged
from uncertainty_sets.ragged_parameters import as_flat_center, as_row_numbers, structure_of

if TYPE_CHECKING:
    import cvxpy


class KL(SupportedBall):
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

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        radius: at least 0; a number, or shape (B,).
    """

    name: ClassVar[str] = "kl"
    summary: ClassVar[str] = "Distributions near a centre q in relative entropy"
    formula: ClassVar[str] = "Σ p·log(p/q) <= radius"
    complexity: ClassVar[str] = "O(N)"
    by_row: ClassVar[tuple[str, ...]] = ("center", "radius")
    _certifies_itself: ClassVar[bool] = True

    @classmethod
    def ragged(
        cls,
        center: Any,
        radius: ArrayLike,
        *,
        indptr: ArrayLike | None = None,
        indices: ArrayLike | None = None,
    ) -> Ragged:
        """Return rows of different lengths, each {p : Σ p·log(p/q) <= radius} with a centre q of its own.

        O(entries): 3 to 10 passes over each row.

        >>> import numpy as np
        >>> from scipy.sparse import csr_array
        >>> P = csr_array(np.array([[0.5, 0.0, 0.5], [0.2, 0.3, 0.5]]))
        >>> KL.ragged(P, radius=0.1).worst_case([1.0, 2.0, 4.0]).value.round(6)
        array([3.159384, 3.340376])

        Args:
            center: probabilities along the entries, which sum to 1 in each row; or a SciPy CSR matrix.
            radius: at least 0; a number, or one per row.
            indptr: the entries of row b are indptr[b], …, indptr[b+1] - 1. Not needed with a CSR matrix.
            indices: for each entry the place of its value; an index may repeat in a row, as an entry of its
                own. None: there is a value for each entry.
        """
        structure = structure_of("center", center, indptr, indices)
        q, limit = as_flat_center(center, structure), as_row_numbers("radius", radius, structure)
        return Ragged(
            KL, "kl", ("eta",), structure, (q, limit), by_entry={"center": q}, by_row={"radius": limit}
        )

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """Σ rel_entr(N·p, N·q) <= N·radius for q > 0 (N for accuracy), p = 0 elsewhere."""
        import cvxpy

        q, radius, n = self._center[0], self._radius[0], float(self._center.shape[1])
        inside = np.flatnonzero(q > 0.0)
        limits = [cvxpy.sum(cvxpy.rel_entr(n * p[inside], n * q[inside])) <= n * radius]
        if len(inside) < q.size:
            limits.append(p[np.flatnonzero(q == 0.0)] == 0.0)
        return limits

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels.kl import rows

        return answer(rows, self._on_support(losses), (self._center, self._radius), ("eta",), warm_start, out)

    def _closed_radius(self, losses: Array, targets: Array) -> LeastRadius:
        from uncertainty_sets.kernels.least_radius import kl

        return closed(self, kl, self._on_support(losses), (self._center,), targets)

    def _slope(self, losses: Array, answer: WorstCase) -> float | None:
        return answer.dual.get("eta")

    def _distance(self, p: Array) -> float:
        q = self._center[0]
        return np.inf if p[q == 0.0].any() else max(0.0, self._divergence(p))

    def _projection(self) -> Callable[[Array], Array] | None:
        from uncertainty_sets.kernels.projection import ENTROPY
        from uncertainty_sets.kernels.projection import nearest_in_ball as nearest

        if self.rows is not None:
            return None
        q, radius = self._center[0], float(self._radius[0])

        def exact(point: Array) -> Array:
            return pulled_in(nearest(point, q, q, ENTROPY, radius), q, radius, self._distance)

        return exact

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

    def _residual(self, p: Array) -> float:
        radius = float(self._radius[0])
        outside = float(np.abs(p[self._center[0] == 0.0]).max(initial=0.0))
        return max(outside, (self._divergence(p) - radius) / max(1.0, radius), 0.0)
