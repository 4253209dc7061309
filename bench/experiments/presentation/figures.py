"""Figures of the experiments: axes side by side, labels at the lines, a colour per kind of method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.display import figures
from bench.display.figures import End, available, label_ends
from bench.experiments.runs.methods import baseline_classes
from fdro_core.baselines.arrivals import Arrivals

__all__ = ["End", "available", "canvas", "label_all", "look", "plain_ticks"]

DASHES = ("-", "--", "-.", ":")


@contextmanager
def canvas(
    folder: Path, name: str, columns: int = 1, height: float = 3.2, width: float = 4.4
) -> Iterator[list[Any]]:
    """Yield axes side by side; save them as PNG and SVG."""
    with figures.figure(folder, name, bbox_inches="tight") as figure:  # tight: no label is cut off
        figure.set_size_inches(width * columns, height)
        yield list(figure.subplots(1, columns, squeeze=False)[0])


def look(number: int) -> dict[str, Any]:
    """Return colour, marker and dash of the n-th line."""
    dash = DASHES[number % len(DASHES)]
    return figures.marked(number) | {"linestyle": dash, "markersize": 3.5, "linewidth": 1.2}


def label_all(ends: dict[Any, list[End]]) -> None:
    """Write names at the right ends of lines, moved apart if they overlap; call it last, once per figure."""
    for axes in ends:
        left, right = axes.get_xlim()
        ticks = [tick for tick in axes.get_xticks() if min(left, right) <= tick <= max(left, right)]
        axes.set_xticks(ticks)
        log = axes.get_xscale() == "log"
        room = right * (right / left) ** 0.32 if log else right + 0.32 * (right - left)
        axes.set_xlim(left, room)  # room for the names
    label_ends(next(iter(ends)).figure, list(ends.items()))


def plain_ticks(axes: Any) -> None:
    """Set ticks 1, 2, 5, 10, … on a logarithmic y axis, written out."""
    ticker: Any = import_module("matplotlib.ticker")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())


OURS, ASYNCHRONOUS, ROBUST, OTHER = "#b3261e", "#1f5aa6", "#2e7d32", "#8a8a8a"
KEY = "red: ASPIRE; blue: asynchronous; green: weights adapt; grey: others"


def color(method: str) -> str:
    """Return the colour of a method's kind."""
    if method.casefold().startswith("aspire"):
        return OURS
    cls = {each.label: each for each in baseline_classes()}.get(method.removesuffix(" + P"))
    if cls is not None and issubclass(cls, Arrivals):
        return ASYNCHRONOUS
    return ROBUST if getattr(cls, "adapts", False) else OTHER


def line(method: str) -> dict[str, Any]:
    """Return the look of a method's line: AspireModels thick, rows with its preconditioner dashed."""
    look: dict[str, Any] = {"color": color(method), "linewidth": 0.9}
    if method.casefold().startswith("aspire"):
        return look | {"linewidth": 2.2 if method == "AspireModels" else 1.0, "zorder": 3}
    return look | {"linestyle": "--" if method.endswith("+ P") else "-"}
