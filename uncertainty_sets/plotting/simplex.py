"""A set over three workers in the triangle of distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.plotting.style import INK, SHADE, new_axes

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
"""Where the three certain distributions lie in the picture; a distribution p is at p @ CORNERS."""

FLAT = (
    1e-3  # how far beyond a chord the set may reach before the chord is cut in two; the triangle's side is 1
)


def boundary(uncertainty_set: UncertaintySet, flat: float = FLAT) -> Array:
    """The corners of a polygon inside a set over three workers, (points, 3), counter-clockwise.

    Each point is the oracle's answer in one direction. A chord is split at the set's farthest point beyond
    it, until the set extends at most `flat` beyond every chord. A polygon is found exactly; a round set takes
    some tens of oracle calls.

    >>> from uncertainty_sets import Box
    >>> boundary(Box([0.2, 0.2, 0.2], [1.0, 1.0, 1.0])).round(9)
    array([[0.6, 0.2, 0.2],
           [0.2, 0.6, 0.2],
           [0.2, 0.2, 0.6]])
    """
    _check_three(uncertainty_set)

    def farthest(direction: Array) -> Array:
        return np.asarray(uncertainty_set.worst_case(CORNERS @ direction).p)

    def between(a: Array, b: Array) -> list[Array]:
        """Points of the boundary strictly between a and b."""
        along = (b - a) @ CORNERS
        length = float(np.hypot(*along))
        if length <= flat:
            return []
        outward = np.array([along[1], -along[0]]) / length
        middle = farthest(outward)
        if float(((middle - a) @ CORNERS) @ outward) <= flat:
            return []
        return [*between(a, middle), middle, *between(middle, b)]

    angles = np.deg2rad([210.0, 330.0, 90.0])  # towards the corners
    starts = [farthest(np.array([np.cos(angle), np.sin(angle)])) for angle in angles]
    points: list[Array] = []
    for a, b in zip(starts, [*starts[1:], starts[0]], strict=True):
        points += [a, *between(a, b)]
    return _corners(points)


def _corners(points: list[Array]) -> Array:
    """A closed polygon without repeated points and points in the middle of an edge."""
    kept = list(points)
    for k in range(len(points) - 1, -1, -1):
        if len(kept) > 1:
            here, after = kept[k] @ CORNERS, kept[(k + 1) % len(kept)] @ CORNERS
            (ax, ay), (bx, by) = here - kept[k - 1] @ CORNERS, after - here
            if abs(ax * by - ay * bx) <= 1e-9 and ax * bx + ay * by >= -1e-9:
                del kept[k]
    return np.array(kept)


def draw_simplex(
    uncertainty_set: UncertaintySet,
    losses: ArrayLike | None = None,
    ax: Any = None,
    *,
    names: Sequence[str] = ("worker 1", "worker 2", "worker 3"),
) -> Any:
    """A set over three workers in the triangle of all distributions.

    The set is grey, its centre (or `reference()`, if it has no centre) a ring. With losses, the dot is the
    worst case p*, and the dashed line joins all distributions with the same expected loss; the set touches
    this line but does not cross it.

    Args:
        uncertainty_set: any set with three entries.
        losses: three numbers.
        ax: matplotlib axes; a new figure by default.
        names: what the corners are called.
    """
    _check_three(uncertainty_set)
    uncertainty_set = uncertainty_set.with_size(3)
    outline = boundary(uncertainty_set) @ CORNERS
    values = None if losses is None else uncertainty_set._check_losses(losses)
    if values is not None and values.ndim != 1:
        raise InvalidInput(f"a picture shows one worst case, got losses of shape {values.shape}")
    ax = new_axes(ax, 4.6, 4.0)
    ax.set_aspect("equal")
    ax.axis("off")
    ax.set(xlim=(-0.2, 1.2), ylim=(-0.17, 1.03))
    ax.plot(*CORNERS[[0, 1, 2, 0]].T, color=INK, linewidth=0.8, solid_joinstyle="round")
    ax.fill(*outline.T, facecolor=SHADE, edgecolor=INK, linewidth=1.4, joinstyle="round", zorder=2)
    center = getattr(uncertainty_set, "center", None)
    middle = np.asarray(uncertainty_set.reference() if center is None else center) @ CORNERS
    ax.plot(*middle, "o", markerfacecolor="white", markeredgecolor=INK, markersize=6, zorder=4)
    _label(ax, "q" if center is not None else "reference", middle, np.array([0.0, -1.0]))
    if values is not None:
        answer = uncertainty_set.worst_case(values)
        worst = answer.p @ CORNERS
        _level_line(ax, values, float(answer.value), worst)
        ax.plot(*worst, "o", color=INK, markersize=7, zorder=5)
        crowded = float(np.hypot(*(CORNERS - worst).T).min()) < 0.12  # a corner has its own label
        away = worst - CORNERS.mean(axis=0)
        _label(ax, "p*", worst, -1.5 * away if crowded else away, weight="bold")
    for k, (corner, side) in enumerate(zip(CORNERS, ("top", "top", "bottom"), strict=True)):
        shown = names[k] if values is None else f"{names[k]}\nloss {values[k]:.4g}"
        up = 6 if side == "bottom" else -6
        ax.annotate(shown, corner, (0, up), textcoords="offset points", ha="center", va=side, fontsize=9)
    return ax


def _check_three(uncertainty_set: UncertaintySet) -> None:
    if uncertainty_set.rows is not None:
        raise InvalidInput(
            "a picture shows one set, and this one's parameters differ by row; draw a row at a time"
        )
    if uncertainty_set.size not in {3, None}:
        raise InvalidInput(
            f"the triangle shows sets over three workers, this one has {uncertainty_set.size} entries; "
            "draw_weights shows a worst case of any size"
        )


def _level_line(ax: Any, losses: Array, value: float, worst: Array) -> None:
    """All distributions in the triangle with that expected loss, dashed; the loss at the end far from p*."""
    ends = []
    for i, j in ((0, 1), (1, 2), (2, 0)):
        if (losses[i] - value) * (losses[j] - value) <= 0.0 and losses[i] != losses[j]:
            part = (value - losses[i]) / (losses[j] - losses[i])
            ends.append(CORNERS[i] + part * (CORNERS[j] - CORNERS[i]))
    if not ends:
        return  # every distribution has the same
    distance = [float(np.hypot(*(end - worst))) for end in ends]
    line = np.array([ends[int(np.argmin(distance))], ends[int(np.argmax(distance))]])
    ax.plot(*line.T, color=INK, linewidth=1.0, linestyle=(0, (5, 3)), zorder=3)
    right = line[1, 0] >= 0.5
    ax.annotate(
        f"pᵀf = {value:.4g}",
        line[1],
        (7 if right else -7, 0),
        textcoords="offset points",
        fontsize=9,
        ha="left" if right else "right",
        va="center",
    )


def _label(ax: Any, text: str, at: Array, direction: Array, **style: Any) -> None:
    """A word beside a point, on the side that `direction` points to; above if it has no direction."""
    length = float(np.hypot(*direction))
    unit = direction / length if length > 1e-9 else np.array([0.0, 1.0])
    away = tuple(12.0 * unit)
    ax.annotate(
        text, at, away, textcoords="offset points", ha="center", va="center", fontsize=10, zorder=6, **style
    )
