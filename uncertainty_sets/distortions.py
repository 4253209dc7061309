"""Distortions: concave functions H on [0, 1] with H(0) = 0 and H(1) = 1, which define spectral risk measures.

H(u) is the largest probability that an event of probability u can have under the measure's set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.parameters import as_array, readonly

Distortion = Callable[[Array], Array]
"""H, for an array of any shape."""

ROUNDING = 1e-12
"""By how much a distortion may fail to be concave, or miss 0 and 1 at the ends."""

GRID = np.concatenate([[0.0], 2.0 ** -np.arange(40.0, 8.0, -0.5), np.arange(1.0, 257.0) / 256.0])
"""Where a function is tested: evenly, and closer and closer to 0, where distortions are steep."""


class PiecewiseLinear:
    """The distortion through breakpoints (u, H(u))."""

    def __init__(self, points: Array) -> None:
        """Keep breakpoints, (K, 2), that are checked already."""
        self.points = readonly(points)

    def __call__(self, u: Array) -> Array:
        """Return H(u) by interpolation."""
        return np.interp(u, self.points[:, 0], self.points[:, 1])

    def mixture(self) -> tuple[Array, Array]:
        """Return tails and weights with H(u) = Σ weight·min(1, u/tail)."""
        knots, heights = self.points.T
        slopes = np.diff(heights) / np.diff(knots)
        weights = (slopes - np.append(slopes[1:], 0.0)) * knots[1:]
        kept = weights > ROUNDING
        return knots[1:][kept], weights[kept] / weights[kept].sum()


def of_mixture(tails: Array, weights: Array) -> Array:
    """Return the breakpoints of H(u) = Σ weight·min(1, u/tail)."""
    knots = np.unique(np.concatenate([[0.0, 1.0], tails]))
    heights = np.minimum(1.0, knots[:, None] / tails) @ weights
    heights[-1] = 1.0
    return np.column_stack([knots, heights])


def at_steps(distortion: Distortion, steps: int) -> PiecewiseLinear:
    """Return the interpolation at 0, 1/steps, …, 1, which is exact for events of equally likely entries."""
    knots = np.arange(steps + 1) / steps
    heights = evaluate(distortion, knots)
    heights[0], heights[-1] = 0.0, 1.0
    return PiecewiseLinear(np.column_stack([knots, heights]))


def as_distortion(given: Any) -> Distortion:
    """Return H from a function or from breakpoints, or refuse what is not concave from (0, 0) to (1, 1)."""
    if callable(given):
        check_shape(given, GRID, evaluate(given, GRID))
        return given  # type: ignore[no-any-return]
    points = as_array("distortion", given)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 2:
        raise InvalidParameter(
            "distortion must be a function or breakpoints (u, H(u)) of shape (K, 2) from (0, 0) to (1, 1), "
            f"got shape {points.shape}",
            parameter="distortion",
            value=given,
        )
    if points[0, 0] != 0.0 or points[-1, 0] != 1.0 or (np.diff(points[:, 0]) <= 0.0).any():
        raise InvalidParameter(
            f"the breakpoints of distortion must ascend from u = 0 to u = 1, got u = {points[:, 0].tolist()}",
            parameter="distortion",
            value=given,
        )
    check_shape(given, points[:, 0], points[:, 1])
    return PiecewiseLinear(points)


def as_given(distortion: Distortion) -> Distortion | Array:
    """Return the function, or the breakpoints of a piecewise linear H."""
    return distortion.points if isinstance(distortion, PiecewiseLinear) else distortion


def evaluate(distortion: Distortion, u: Array) -> Array:
    """Return H(u), cut to [0, 1]; refuse what is not one finite number for each u."""
    heights = np.asarray(distortion(u.copy()), dtype=np.float64)  # its code may write into u
    if heights.shape != u.shape or not np.isfinite(heights).all():
        found = "numbers that are not finite" if heights.shape == u.shape else f"shape {heights.shape}"
        raise InvalidParameter(
            f"distortion must return a finite number for each entry of an array (np.vectorize makes it do "
            f"so), got {found} for an array of shape {u.shape}",
            parameter="distortion",
            value=distortion,
        )
    return np.clip(heights, 0.0, 1.0)


def check_shape(given: Any, u: Array, heights: Array) -> None:
    """Refuse values of H that do not rise from 0 to 1, or that lie below a chord."""

    def refuse(words: str) -> InvalidParameter:
        return InvalidParameter(f"distortion must {words}", parameter="distortion", value=given)

    ends = (heights[0], heights[-1])
    if abs(ends[0]) > ROUNDING or abs(ends[1] - 1.0) > ROUNDING:
        raise refuse(f"have H(0) = 0 and H(1) = 1, got {ends[0]:.12g} and {ends[1]:.12g}")
    falls = np.diff(heights) < -ROUNDING
    if falls.any():
        k = int(falls.argmax())
        raise refuse(
            f"not fall, got H({u[k]:.6g}) = {heights[k]:.6g} and H({u[k + 1]:.6g}) = {heights[k + 1]:.6g}"
        )
    left, right = np.diff(u)[:-1], np.diff(u)[1:]
    chord = (heights[:-2] * right + heights[2:] * left) / (left + right)
    below = chord - heights[1:-1] > ROUNDING
    if below.any():
        k = int(below.argmax()) + 1
        raise refuse(
            f"be concave, got H({u[k]:.6g}) = {heights[k]:.6g} below the chord from {u[k - 1]:.6g} to "
            f"{u[k + 1]:.6g}, which is {chord[k - 1]:.6g} there"
        )


def excess(p: Array, q: Array, distortion: Distortion) -> float:
    """Return the largest p(S) - H(q(S)) over all events S: the worst of them are the largest ratios p/q."""
    with np.errstate(over="ignore"):
        ratio = np.divide(p, q, out=np.where(p > 0.0, np.inf, -np.inf), where=q > 0.0)
    order = np.argsort(-ratio, kind="stable")
    most = evaluate(distortion, np.minimum(np.cumsum(q[order]), 1.0))
    return max(0.0, float((np.cumsum(p[order]) - most).max()))
