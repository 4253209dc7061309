"""Figures that can be read in grey: direct labels, markers, no boxes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from bench.complexity.plots import GREYS, MARKERS, available

__all__ = ["available", "band", "canvas", "direct_labels", "label_all", "look"]

STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "svg.hashsalt": "fdro",
    "svg.fonttype": "none",
}
DASHES = ("-", "--", "-.", ":")


@contextmanager
def canvas(
    folder: Path, name: str, columns: int = 1, height: float = 3.2, width: float = 4.4
) -> Iterator[Any]:
    """Axes side by side, saved as PNG and SVG at the end; yields them as a list."""
    mpl: Any = import_module("matplotlib")
    with mpl.rc_context(STYLE):
        figure = import_module("matplotlib.figure").Figure(
            figsize=(width * columns, height), layout="constrained"
        )
        axes = figure.subplots(1, columns, squeeze=False)[0]
        yield list(axes)
        for kind, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
            figure.savefig(folder / f"{name}.{kind}", bbox_inches="tight", **options)  # no name cut off


def look(number: int) -> dict[str, Any]:
    """Colour, marker and dash of the n-th line."""
    return {
        "color": GREYS[number % len(GREYS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[number % len(DASHES)],
        "markersize": 3.5,
        "linewidth": 1.2,
    }


End = tuple[float, float, str, str]
"""x, y, name and colour of a line's right end."""


def direct_labels(axes: Any, ends: list[End]) -> None:
    """Names at the right ends of the lines of one axes; call it last."""
    label_all({axes: ends})


def label_all(ends: dict[Any, list[End]]) -> None:
    """Names at the right ends of lines, moved apart where they would overlap; call it last, once a figure."""
    from bench.measuring.labels import label_ends

    for axes in ends:
        left, right = axes.get_xlim()
        ticks = [tick for tick in axes.get_xticks() if min(left, right) <= tick <= max(left, right)]
        axes.set_xticks(ticks)
        axes.set_xlim(left, right + 0.32 * (right - left))  # room for the names
    label_ends(next(iter(ends)).figure, list(ends.items()))


def plain_ticks(axes: Any) -> None:
    """Ticks 1, 2, 5, 10, … on a logarithmic y axis, written out."""
    ticker: Any = import_module("matplotlib.ticker")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())


def band(records: list[dict[str, Any]], name: str) -> tuple[Any, Any]:
    """Mean and deviation over repeats of a curve, cut to the shortest."""
    curves = [record["curve"][name] for record in records]
    length = min(map(len, curves))
    table = np.array([curve[:length] for curve in curves], dtype=float)
    return table.mean(axis=0), table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(length)
