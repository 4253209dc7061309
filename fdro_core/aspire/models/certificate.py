"""A proven lower bound on the optimum of convex problems, from losses and gradients at one model.

If f_j - μ_j/2·‖·‖² is convex for every j, then for any s in P and any model z

    min over w of max over p in P of pᵀf(w)  >=  min over w of sᵀf(w)
                                             >=  sᵀf(z) - ‖Σ_j s_j∇f_j(z)‖² / (2 Σ_j s_jμ_j)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fdro_core.result import EPS, SPARE
from uncertainty_sets.arrays import Array

OUTSIDE = 1e-9  # weights that violate the set by more are not in it; the same as in `UncertaintySet.contains`


def lower_bound(
    weights: Array, violation: float, losses: Array, gradients: Array, convexities: Array
) -> float:
    """The bound for weights s; -inf if s is not in the set, or Σ_j s_jμ_j is not known to be positive.

    It is lowered by what rounding can change in it, and by what another s can: every s whose entries differ
    by no more than N times the violation, in sum, has at least this bound.

    Args:
        weights: s.
        violation: how far s may be outside the set (`WorstCase.violation`).
        losses: f_j(z).
        gradients: ∇f_j(z), (N, p).
        convexities: μ_j, -inf if unknown.

    >>> f, g, mu = np.array([0.5, 0.5]), np.array([[1.0], [-1.0]]), np.ones(2)  # ½(w ± 1)² at w = 0
    >>> [round(lower_bound(np.array(s), 0.0, f, g, mu), 9) for s in ([0.5, 0.5], [0.75, 0.25])]
    [0.5, 0.375]
    """
    N, p = gradients.shape
    if not (violation <= OUTSIDE and np.isfinite(convexities).all()):
        return -np.inf
    s = np.maximum(weights, 0.0)
    s /= s.sum()
    off = N * (max(violation, 0.0) + EPS)
    rounding = (N + p + SPARE) * EPS
    convexity = float(s @ convexities) - (off + rounding) * float(np.abs(convexities).max())
    if not convexity > 0.0:
        return -np.inf
    lengths = np.sqrt(np.einsum("ij,ij->i", gradients, gradients))
    slope = float(np.linalg.norm(s @ gradients)) + rounding * float(s @ lengths) + off * float(lengths.max())
    fall = slope * slope / (2.0 * convexity)
    value = float(s @ losses) - off * float(np.ptp(losses))
    bound: float = value - fall - rounding * (float(s @ np.abs(losses)) + fall)
    return bound


def best_bound(
    candidates: Sequence[tuple[Array, float]], losses: Array, gradients: Array, convexities: Array
) -> float:
    """The best of the bounds by several weights, each with its violation."""
    if not np.isfinite(convexities).all():
        return -np.inf
    return max(lower_bound(s, off, losses, gradients, convexities) for s, off in candidates)
