"""Weighted L1: distributions near a centre, each entry's deviation at a price of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.face import Effect, Face, Rows
from uncertainty_sets.kernels.dispatch import answer
from uncertainty_sets.parameters import (
    as_array,
    as_center,
    as_rows,
    as_scalar_rows,
    broadcast,
    example_center,
)
from uncertainty_sets.rows import CENTER, EACH_ROW, Along, Layout, Structure, as_flat
from uncertainty_sets.sets._balls import Ball
from uncertainty_sets.sets._vertex_face import distance_face

if TYPE_CHECKING:
    import cvxpy

LIGHTEST, HEAVIEST = 1e-280, 1e280
"""Weights between which no product in the search leaves the range of doubles."""

ROUNDED = 2.0**-52  # how well an entry of p is known, relative to it: it is a sum of two terms


class WeightedL1(Ball, certified=True):
    """Distributions near a centre q in a weighted L1 distance: {p : Σ weights·|p - q| <= radius}.

    To move a unit of mass from i to j costs w_i + w_j. With a multiplier λ for the distance, all mass that
    moves goes to the largest f - λw; λ minimises a convex function. A search takes about 5 evaluations at
    N = 10 and 10 to 25 if N is large, the later ones over the few entries that they can still change. p may
    have mass where q has none.

    ====  =====================================
    dual  meaning
    ====  =====================================
    lam   multiplier λ of the distance, >= 0
    ====  =====================================

    The bound is λ·radius + Σ q·max(f, M - λw) with M = max(f - λw), for any λ >= 0:

    >>> import numpy as np
    >>> f, q = np.array([1.0, 2.0, 4.0, 4.5]), np.array([0.4, 0.3, 0.2, 0.1])
    >>> w, radius = np.array([1.0, 1.0, 1.0, 3.0]), 0.2
    >>> r = WeightedL1(q, w, radius).worst_case(f)
    >>> r.p.round(12), round(r.value, 12)
    (array([0.3, 0.3, 0.3, 0.1]), 2.55)
    >>> lam, M = r.dual["lam"], (f - r.dual["lam"] * w).max()
    >>> bound = lam * radius + q @ np.maximum(f, M - lam * w)
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.55, 2.55)

    λ is in units of a loss over a weight. Below 2e-308 (losses near 1e-300 with weights of 1e10) a double
    holds few of its digits or none, and above 1.8e308 it is ∞: the bound holds all the same, but the formula
    shows it only for losses that are multiplied by a power of two, which multiplies λ and the bound alike.

    Weights of 1/2 make it `TotalVariation`, whose closed form is faster.

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        weights: what a unit of deviation costs, above 0 (from 1e-280 to 1e280): a number, (N,) or (B, N).
        radius: at least 0; a number, or shape (B,).
    """

    name: ClassVar[str] = "weighted-l1"
    summary: ClassVar[str] = "Distributions near a centre q in a weighted L1 distance"
    formula: ClassVar[str] = "Σ weights·|p - q| <= radius"
    complexity: ClassVar[str] = "O(N)"
    by_row: ClassVar[tuple[str, ...]] = ("center", "weights", "radius")
    layout: ClassVar[Layout | None] = Layout(
        "weighted_l1",
        ("lam",),
        center=CENTER,
        weights=Along("entries", lambda name, weights, structure: _as_flat_weights(weights, structure)),
        radius=EACH_ROW,
    )
    _weights: Array

    def __init__(self, center: ArrayLike, weights: ArrayLike, radius: ArrayLike) -> None:
        q = as_center(center)
        w = as_array("weights", weights)
        _check_weights(w)
        try:
            w = broadcast(w, (len(w) if w.ndim == 2 else 1, q.shape[1]))
        except ValueError:
            raise InvalidParameter(
                f"weights must be a number or have the centre's shape {np.shape(center)}, got {w.shape}",
                parameter="weights",
                value=weights,
            ) from None
        if len(q) > 1 and len(w) > 1 and len(q) != len(w):
            raise InvalidParameter(
                f"center and weights must have the same rows, got {np.shape(center)} and {np.shape(weights)}",
                parameter="weights",
                value=weights,
            )
        limit = as_scalar_rows("radius", radius, max(len(q), len(w)))
        differ = np.ndim(center) == 2 or np.ndim(weights) == 2 or np.ndim(radius) == 1
        self._store(differ, q, w, limit)

    @property
    def weights(self) -> Array:
        """What a unit of deviation of each entry costs."""
        return as_rows(self, self._weights)

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """Equal weights of 1/2, with which the distance is the total variation."""
        return super().default_parameters(center) | {"weights": np.full(center.size, 0.5)}

    @classmethod
    def example(cls, size: int, rng: np.random.Generator | None = None) -> WeightedL1:
        """Weights from 1/2 to 2, evenly spaced (random with `rng`), and a radius of 0.2."""
        weights = np.linspace(0.5, 2.0, size) if rng is None else rng.uniform(0.5, 2.0, size)
        return cls(example_center(size, rng), weights, 0.2)

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """Σ weights·|p - q| <= radius."""
        import cvxpy

        q, w = self._center[0], self._weights[0]
        return [cvxpy.sum(cvxpy.multiply(w, cvxpy.abs(p - q))) <= float(self._radius[0])]

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels.weighted_l1 import rows

        parameters = (self._center, self._weights, self._radius)
        return answer(rows, losses, parameters, ("lam",), warm_start, out)

    _is_vertex = True

    def _face(self, rows: Rows, losses: Any, p: Any, eta: Any, given: Mapping[str, Any]) -> Face:
        q = given["center"]
        far = abs(p - q)
        one = 1.0 + 0.0 * p
        sign = rows.where(p > q, one, rows.where(p < q, -one, 0.0 * p))
        limits = {
            "weights": Effect(slope=far, value=-eta * far, bend=sign),
            "radius": Effect(room=1.0, per_row=True),
        }
        return distance_face(rows, losses, p, eta, q, given["weights"], limits)

    def _slope(self, losses: Array, answer: WorstCase) -> float | None:
        return answer.dual.get("lam")

    def _distance(self, p: Array) -> float:
        return float((self._weights[0] * np.abs(p - self._center[0])).sum())

    def _residual(self, p: Array) -> float:
        q, w, radius = self._center[0], self._weights[0], float(self._radius[0])
        # A large weight would magnify the rounding of p.
        far = np.maximum(np.abs(p - q) - ROUNDED * np.abs(p), 0.0)
        return max((float((w * far).sum()) - radius) / max(1.0, radius), 0.0)


def _as_flat_weights(weights: Any, structure: Structure) -> Array:
    """The weights of ragged rows along their entries, or a number for all."""
    flat = as_flat("weights", weights, structure)
    _check_weights(flat)
    return flat


def _check_weights(weights: Array) -> None:
    wrong = ~((weights >= LIGHTEST) & (weights <= HEAVIEST))
    if not wrong.any():
        return
    first = weights[wrong].flat[0]
    if first <= 0.0:
        raise InvalidParameter(
            f"weights must be above 0, got {first}: a deviation that costs nothing has no limit",
            parameter="weights",
            value=weights,
        )
    raise InvalidParameter(
        f"weights must be from {LIGHTEST:g} to {HEAVIEST:g}, got {first}; multiply weights and radius by "
        "the same number",
        parameter="weights",
        value=weights,
    )
