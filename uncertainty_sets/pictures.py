"""Pictures of sets, worst cases and what robustness costs. Needs ``pip install "fdro[plot]"``.

`draw_simplex` shows any set over three workers, including plug-ins: it uses only the set's oracle.
`draw_weights` shows an answer's weights beside the prior, `draw_price` what robustness costs in a Markov
decision process, `draw_audit` and `draw_models` what an audit found. Every function draws into the given axes
or a new figure, and returns the axes. All can be read without colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import BackendMissing, InvalidInput
from uncertainty_sets.parameters import as_floats

if TYPE_CHECKING:
    from uncertainty_sets.audit.comparing import Comparison
    from uncertainty_sets.audit.report import Report
    from uncertainty_sets.mdp.path import Price
    from uncertainty_sets.mdp.solution import Solution

__all__ = ["boundary", "draw_price", "draw_simplex", "draw_weights"]

SHADE, FAINT, INK = "#cfcfcf", "#8a8a8a", "#000000"
"""An area, a line of less weight, and everything else."""


# -- a set over three workers --------------------------------------------------------------------------------


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


# -- an answer's weights -------------------------------------------------------------------------------------


LONGEST_NAME = 16
BARS = 40  # as many workers have a bar each; more are drawn as a curve


def draw_weights(
    worst_case: WorstCase | ArrayLike,
    prior: ArrayLike,
    ax: Any = None,
    *,
    names: Sequence[str] | None = None,
) -> Any:
    """The worst case's weights against the prior.

    Up to 40 workers have a bar each, the prior a line across it. More are one curve of weight over prior,
    sorted.

    Args:
        worst_case: an answer of an oracle, or its p.
        prior: the weights to compare with.
        ax: matplotlib axes; a new figure by default.
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
    if p.size <= BARS:
        _bars(ax, p, q, names)
    else:
        _curve(ax, p, q)
    return ax


def _bars(ax: Any, p: Array, q: Array, names: Sequence[str] | None) -> None:
    places = np.arange(p.size)
    bars = ax.bar(places, p, width=0.7, color=SHADE, edgecolor=INK, linewidth=0.6)
    lines = ax.hlines(q, places - 0.45, places + 0.45, color=INK, linewidth=1.8)
    _legend_above(ax, [bars, lines])
    shown = places if names is not None or p.size <= 20 else places[4::5]
    texts = [str(k + 1) if names is None else _shortened(str(names[k])) for k in shown]
    crowded = sum(len(text) + 1 for text in texts) > 55
    ax.set_xticks(shown, texts, rotation=90 if crowded else 0)
    ax.tick_params(axis="x", length=0)
    ax.set_xlim(-0.7, p.size - 0.3)
    ax.set_ylim(0.0, 1.08 * float(max(p.max(), q.max())))
    ax.set_ylabel("weight")
    if names is None:
        ax.set_xlabel("worker")


def _legend_above(ax: Any, shapes: list[Any]) -> None:
    """Within the width of the axes, so that nothing is cut whatever the figure around them leaves."""
    ax.legend(
        shapes, ["worst case", "prior"], frameon=False, loc="lower left", bbox_to_anchor=(0.0, 0.98), ncols=2,
        borderaxespad=0.0,
    )  # fmt: skip


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _curve(ax: Any, p: Array, q: Array) -> None:
    ratio = np.divide(p, q, out=np.ones_like(p), where=q > 0.0)
    ratio = np.sort(np.where((q == 0.0) & (p > 0.0), ratio[q > 0.0].max(initial=1.0), ratio))[::-1]
    area = ax.stairs(ratio, np.arange(p.size + 1), fill=True, facecolor=SHADE)
    ax.stairs(ratio, np.arange(p.size + 1), color=INK, linewidth=1.0)
    line = ax.hlines(1.0, 0, p.size, color=INK, linewidth=1.6, linestyle=(0, (4, 2)))
    gained, none = int((ratio > 1.0 + 1e-9).sum()), int((p <= 1e-12).sum())
    ax.set_xlim(0, p.size)
    ax.set_ylim(0.0, 1.08 * float(ratio.max()))
    ax.set_ylabel("weight, times the prior")
    ax.set_xlabel(f"{p.size:,} workers, sorted:\n{gained:,} gained weight, {none:,} have none left")
    _legend_above(ax, [area, line])


# -- the price of robustness ---------------------------------------------------------------------------------


DASHED, DOTTED = (0, (5, 2)), (0, (1, 1.5))


def draw_price(
    price: Price, ax: Any = None, *, start: int | ArrayLike | None = None, mark: float | None = None
) -> Any:
    """Draw what the robust and the nominal policy earn, in the worst case and nominally, over the radius.

    Three lines: the robust policy in the worst case, the nominal policy in the worst case, and the robust
    policy if the model is right. A grey band around each line lies between the proved bounds; it is thinner
    than the line unless the tolerance is coarse.

    Args:
        price: an answer of `uncertainty_sets.mdp.price_of_robustness`.
        ax: matplotlib axes; a new figure by default.
        start: the state whose value is drawn, or a probability for each state; None: the mean over states.
        mark: a radius to mark with a vertical line.
    """
    weights, name = _start_weights(price, start)
    word, case = ("optimistic", "best") if price.optimistic else ("robust", "worst")
    lines = (
        (price.robust, f"{word} policy, {case} case", INK, "-", 1.8),
        (price.nominal_policy, f"nominal policy, {case} case", INK, DASHED, 1.4),
        (price.robust_policy, f"{word} policy, nominal model", FAINT, DOTTED, 1.8),
    )
    ax = new_axes(ax, 6.4, 3.4)
    ends = []
    for solutions, label, color, style, width in lines:
        low, high = (_along(solutions, weights, side) for side in ("lower", "upper"))
        middle = 0.5 * (low + high)
        ax.fill_between(price.radii, low, high, facecolor=SHADE, edgecolor=SHADE, linewidth=0.5, zorder=1)
        ax.plot(price.radii, middle, color=color, linestyle=style, linewidth=width, label=label, zorder=2)
        ends.append((float(middle[-1]), label))
    if price.radii[0] > 0.0:
        ax.set_xscale("log")
    ax.set_xlim(price.radii[0], price.radii[-1] if price.radii.size > 1 else None)
    if mark is not None:
        ax.axvline(mark, color=FAINT, linewidth=0.8, zorder=0)
    ax.set_xlabel(price.size)
    ax.set_ylabel(name)
    label_ends(ax, float(price.radii[-1]), ends)
    return ax


def _start_weights(price: Price, start: int | ArrayLike | None) -> tuple[Array, str]:
    """A weight for each state, and what the weighted value is called."""
    states = price.nominal.model.states
    if start is None:
        return np.full(states, 1.0 / states), "mean value over states"
    given = as_floats("start", start, InvalidInput)
    if given.ndim == 0 and 0 <= given < states and given == int(given):
        return np.eye(1, states, int(given))[0], f"value of state {int(given)}"
    if given.shape != (states,) or not (given >= 0.0).all() or not abs(given.sum() - 1.0) <= 1e-9:
        raise InvalidInput(
            f"start must be a state from 0 to {states - 1}, or a probability for each of the {states} "
            f"states, got {start!r}",
            parameter="start",
            value=start,
        )
    return given, "expected value at the start"


def _along(solutions: list[Solution], weights: Array, side: str) -> Array:
    """A bound on the weighted value at each radius."""
    return np.array([weights @ getattr(each, side) for each in solutions])


# -- audits --------------------------------------------------------------------------------------------------


def draw_audit(report: Report, ax: Any = None) -> Any:
    """The worst mean loss over the radius: this sample's, the population's proved bound, and the threshold.

    Dots are the least radii at which each reaches the threshold. The radius has a root scale, on which the
    curves start as lines.

    Args:
        report: of `uncertainty_sets.audit.Audit.report`.
        ax: matplotlib axes; a new figure by default.
    """
    curve = report.curve
    ax = new_axes(ax, 6.4, 3.4)
    root = np.sqrt(curve.radii)
    ax.plot(root, curve.values, color=INK, linewidth=1.8)
    ends = [(float(curve.values[-1]), "this sample")]
    if np.isfinite(curve.at_most).all():
        ax.plot(root, curve.at_most, color=FAINT, linestyle=DASHED, linewidth=1.4)
        ends.append((float(curve.at_most[-1]), "population, at most"))
    ax.axhline(report.threshold, color=INK, linewidth=0.8, linestyle=DOTTED)
    ends.append((report.threshold, "threshold"))
    for radius in (report.failure.radius, report.failure.at_least):
        if radius is not None and 0.0 < radius <= curve.radii[-1]:
            ax.plot(np.sqrt(radius), report.threshold, "o", color=INK, markersize=6)
    ax.set_ylim(min(0.0, float(curve.values[0])), None)
    _root_axis(ax, curve.radii, f"{curve.kind} over the {curve.over}")
    ax.set_ylabel(report.unit)
    label_ends(ax, float(root[-1]), ends)
    return ax


def draw_models(comparison: Comparison, ax: Any = None) -> Any:
    """The worst mean loss of each model over the radius; of two, a thick line below where one is better.

    Args:
        comparison: of `uncertainty_sets.audit.compare`.
        ax: matplotlib axes; a new figure by default.
    """
    ax = new_axes(ax, 6.4, 3.4)
    root = np.sqrt(comparison.radii)
    styles = dict(zip(comparison.curves, ["-", DASHED, DOTTED, (0, (6, 1, 1, 1))] * 9, strict=False))
    for name, values in comparison.curves.items():
        ax.plot(root, values, color=INK, linestyle=styles[name], linewidth=1.6)
    ax.set_ylim(0.0, None)
    for pair in comparison.pairs if len(styles) == 2 else ():
        for name, where in ((pair.first, pair.first_is_better), (pair.second, pair.second_is_better)):
            if where.any():
                level = np.where(where, 0.02 * ax.get_ylim()[1], np.nan)
                ax.plot(root, level, color=INK, linestyle="-", linewidth=4.0, alpha=0.6)
                start = (float(root[where][0]), float(np.nanmin(level)))
                ax.annotate(f"{name} is better", start, (2, 5), textcoords="offset points", fontsize=8)
    _root_axis(ax, comparison.radii, f"{comparison.kind} over the {comparison.over}")
    ax.set_ylabel("worst mean loss")
    label_ends(ax, float(root[-1]), [(float(values[-1]), name) for name, values in comparison.curves.items()])
    return ax


def _root_axis(ax: Any, radii: Array, name: str) -> None:
    last = float(np.sqrt(radii[-1]))
    ax.set_xlim(0.0, last)
    places = last * np.linspace(0.0, 1.0, 5)
    ax.set_xticks(places, [f"{place**2:.2g}" for place in places])
    ax.set_xlabel(f"{name}, root scale")


# -- what all pictures share ---------------------------------------------------------------------------------


def pyplot() -> Any:
    """matplotlib.pyplot, or an error that says what to install."""
    try:
        return import_module("matplotlib.pyplot")
    except ImportError as error:
        raise BackendMissing('pictures need matplotlib: pip install "fdro[plot]"') from error


def new_axes(ax: Any, width: float, height: float) -> Any:
    """The axes given, or those of a new figure of that many inches, with the two lines that carry numbers."""
    if ax is None:
        ax = pyplot().subplots(figsize=(width, height), layout="constrained")[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def label_ends(ax: Any, x: float, ends: Sequence[tuple[float, str]]) -> None:
    """Names to the right of (x, y), moved up or down so that they do not touch; call when the limits are set.

    A name replaces a legend: the eye need not travel.
    """
    low, high = ax.get_ylim()
    height = ax.get_window_extent().height / ax.figure.dpi * 72.0  # in points, as the letters are
    apart = 11.0 * (high - low) / max(height, 1.0)
    ordered = sorted(ends)
    for place, (_, name) in zip(move_apart([y for y, _ in ordered], apart), ordered, strict=True):
        ax.annotate(
            name,
            (x, place),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            annotation_clip=False,
        )


def move_apart(places: Sequence[float], gap: float) -> list[float]:
    """Rising places moved as little as can be (least squares) until neighbours are `gap` apart.

    >>> move_apart([0.0, 1.0, 10.0], 4.0)
    [-1.5, 2.5, 10.0]
    """
    blocks: list[tuple[float, int]] = []  # mean of (place - rank·gap), count: pooled while they fall
    for rank, place in enumerate(places):
        mean, count = place - rank * gap, 1
        while blocks and blocks[-1][0] >= mean:
            before, many = blocks.pop()
            mean = (mean * count + before * many) / (count + many)
            count += many
        blocks.append((mean, count))
    levels = np.concatenate([np.full(count, mean) for mean, count in blocks]) if blocks else np.zeros(0)
    return [float(level + rank * gap) for rank, level in enumerate(levels)]
