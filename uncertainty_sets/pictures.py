"""Pictures of sets and worst cases. Needs ``pip install "fdro[plot]"``.

`draw_simplex` shows any set over three workers, plug-ins too: it knows nothing of a set but its oracle. Every
function draws into the axes given, or into a new figure, and returns the axes. Nothing depends on colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.base import Array, UncertaintySet, WorstCase
from uncertainty_sets.drawing import INK, SHADE, label_ends, new_axes
from uncertainty_sets.errors import InvalidInput

__all__ = ["boundary", "draw_simplex", "draw_weights"]

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
"""Where the three certain distributions lie in the picture; a distribution p is at p @ CORNERS."""

FLAT = (
    1e-3  # how far beyond a chord the set may reach before the chord is cut in two; the triangle's side is 1
)
BARS = 40  # as many workers have a bar each; more are drawn as two curves


def boundary(uncertainty_set: UncertaintySet, flat: float = FLAT) -> Array:
    """The corners of a polygon inside a set over three workers, (points, 3), counter-clockwise.

    Each point is the oracle's answer in one direction. A chord is cut in two at the point farthest beyond it,
    until the set reaches no farther than `flat` beyond any: a polygon comes out exactly, a round set with as
    many points as its roundness needs, some tens of oracle calls.

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
    kept = [p for k, p in enumerate(points) if k == 0 or np.abs(p - points[k - 1]).max() > 1e-9]
    if len(kept) > 1 and np.abs(kept[-1] - kept[0]).max() <= 1e-9:
        kept.pop()
    return np.array(kept)


def draw_simplex(
    uncertainty_set: UncertaintySet,
    losses: ArrayLike | None = None,
    ax: Any = None,
    *,
    names: Sequence[str] = ("worker 1", "worker 2", "worker 3"),
) -> Any:
    """A set over three workers in the triangle of all distributions.

    The set is grey, its centre (or `reference()`, where it has no centre) a ring. With losses, the dot is the
    worst case p*, and the dashed line joins all distributions with the same expected loss: the set touches it
    and never crosses.

    Args:
        uncertainty_set: any set with three entries.
        losses: three numbers.
        ax: matplotlib axes; a new figure without.
        names: what the corners are called.
    """
    outline = boundary(uncertainty_set) @ CORNERS
    ax = new_axes(ax, 4.2, 4.0)
    ax.set_aspect("equal")
    ax.axis("off")
    ax.set(xlim=(-0.22, 1.22), ylim=(-0.2, 1.04))
    ax.plot(*CORNERS[[0, 1, 2, 0]].T, color=INK, linewidth=0.8, solid_joinstyle="round")
    ax.fill(*outline.T, facecolor=SHADE, edgecolor=INK, linewidth=1.4, joinstyle="round", zorder=2)
    center = getattr(uncertainty_set, "center", None)
    middle = np.asarray(uncertainty_set.reference() if center is None else center) @ CORNERS
    ax.plot(*middle, "o", markerfacecolor="white", markeredgecolor=INK, markersize=6, zorder=4)
    text = "q" if center is not None else "reference"
    values = None if losses is None else uncertainty_set._check_losses(losses)
    if values is not None:
        answer = uncertainty_set.worst_case(values)
        worst = answer.p @ CORNERS
        _level_line(ax, values, float(answer.value))
        ax.plot(*worst, "o", color=INK, markersize=7, zorder=5)
        away = worst - outline.mean(axis=0)
        _label(ax, "p*", worst, away if np.hypot(*away) > 1e-6 else np.array([0.0, 1.0]), weight="bold")
        _label(ax, text, middle, middle - worst)
    else:
        _label(ax, text, middle, np.array([1.0, 0.0]))
    for k, (corner, side) in enumerate(zip(CORNERS, ("top", "top", "bottom"), strict=True)):
        shown = names[k] if values is None else f"{names[k]}\nloss {values[k]:.4g}"
        ax.annotate(
            shown,
            corner,
            (0, 5 if side == "bottom" else -5),
            textcoords="offset points",
            ha="center",
            va=side,
            fontsize=9,
        )
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


def _level_line(ax: Any, losses: Array, value: float) -> None:
    """All distributions in the triangle with that expected loss, dashed, the loss beside an end."""
    ends = []
    for i, j in ((0, 1), (1, 2), (2, 0)):
        if (losses[i] - value) * (losses[j] - value) <= 0.0 and losses[i] != losses[j]:
            part = (value - losses[i]) / (losses[j] - losses[i])
            ends.append(CORNERS[i] + part * (CORNERS[j] - CORNERS[i]))
    if len(ends) < 2:
        return
    far = max(((a, b) for a in ends for b in ends), key=lambda pair: float(np.hypot(*(pair[0] - pair[1]))))
    line = np.array(far)
    if np.hypot(*(line[0] - line[1])) < 1e-9:
        return
    ax.plot(*line.T, color=INK, linewidth=1.0, linestyle=(0, (5, 3)), zorder=3)
    end = line[line[:, 0].argmax()]
    right = end[0] >= 0.5
    ax.annotate(
        f"pᵀf = {value:.4g}",
        end,
        (6 if right else -6, 2),
        textcoords="offset points",
        fontsize=9,
        ha="left" if right else "right",
        va="center",
    )


def _label(ax: Any, text: str, at: Array, direction: Array, **style: Any) -> None:
    """A word beside a point, on the side that `direction` points to."""
    length = float(np.hypot(*direction))
    unit = direction / length if length > 1e-9 else np.array([1.0, 0.0])
    ax.annotate(
        text,
        at,
        tuple(11.0 * unit),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=10,
        zorder=6,
        **style,
    )


def draw_weights(
    worst_case: WorstCase | ArrayLike,
    prior: ArrayLike,
    ax: Any = None,
    *,
    names: Sequence[str] | None = None,
) -> Any:
    """The worst case's weights against the prior.

    Up to 40 workers have a bar each, the prior a line across it. More are sorted by how much weight they
    gained, and weights and prior are two curves.

    Args:
        worst_case: an answer of an oracle, or its p.
        prior: the weights to compare with.
        ax: matplotlib axes; a new figure without.
        names: of the workers, for up to 40 of them.
    """
    p = np.asarray(worst_case.p if isinstance(worst_case, WorstCase) else worst_case, dtype=np.float64)
    q = np.asarray(prior, dtype=np.float64)
    if p.ndim != 1 or p.shape != q.shape or p.size == 0:
        raise InvalidInput(
            f"one vector of weights and a prior of its length are needed, got {p.shape} and {q.shape}"
        )
    if names is not None and len(names) != p.size:
        raise InvalidInput(f"names must have {p.size} entries, one for each weight, got {len(names)}")
    ax = new_axes(ax, 6.0, 3.0)
    ax.set_ylim(0.0, 1.12 * float(max(p.max(), q.max())))
    ax.set_ylabel("weight")
    if p.size <= BARS:
        _bars(ax, p, q, names)
    else:
        _curves(ax, p, q)
    return ax


def _bars(ax: Any, p: Array, q: Array, names: Sequence[str] | None) -> None:
    places = np.arange(p.size)
    ax.bar(places, p, width=0.7, color=SHADE, edgecolor=INK, linewidth=0.6)
    ax.hlines(q, places - 0.45, places + 0.45, color=INK, linewidth=1.8)
    ax.set_xlim(-0.7, p.size - 0.3)
    shown = names if names is not None else [str(k + 1) for k in places]
    long = max(len(str(name)) for name in shown) * p.size > 60
    ax.set_xticks(
        places, shown, rotation=90 if long and names is not None else 0, fontsize=8 if p.size > 20 else 9
    )
    ax.tick_params(axis="x", length=0)
    ax.spines["bottom"].set_bounds(-0.5, p.size - 0.5)
    if names is None:
        ax.set_xlabel("worker")
    label_ends(ax, p.size - 0.5, [(float(q[-1]), "prior"), (float(p[-1]), "worst case")])


def _curves(ax: Any, p: Array, q: Array) -> None:
    order = np.lexsort((-p, q - p))
    edges = np.arange(p.size + 1)
    ax.stairs(p[order], edges, fill=True, facecolor=SHADE)
    ax.stairs(p[order], edges, color=INK, linewidth=0.8)
    ax.stairs(q[order], edges, color=INK, linewidth=1.4, linestyle=(0, (4, 2)), baseline=None)
    ax.set_xlim(0, p.size)
    ax.spines["bottom"].set_bounds(0, p.size)
    gained, lost = int((p > q * (1 + 1e-9)).sum()), int((p <= 1e-12).sum())
    ax.set_xlabel(f"{p.size:,} workers, by weight gained: {gained:,} gained, {lost:,} have none left")
    label_ends(ax, float(p.size), [(float(q[order][-1]), "prior"), (float(p[order][-1]), "worst case")])
