"""What all pictures share: axes, greys, and names beside the ends of lines."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from uncertainty_sets.errors import BackendMissing

SHADE, FAINT, INK = "#cfcfcf", "#8a8a8a", "#000000"
"""An area, a line of less weight, and everything else."""


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
