"""The price of robustness: values of the robust and of the nominal policy against the radius."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.parameters import as_floats
from uncertainty_sets.plotting.style import FAINT, INK, SHADE, label_ends, new_axes

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.mdp.path import Price
    from uncertainty_sets.mdp.solution import Solution

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
    weights, name = _weights(price, start)
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


def _weights(price: Price, start: int | ArrayLike | None) -> tuple[Array, str]:
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
