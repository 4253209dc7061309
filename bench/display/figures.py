"""Figures: one style, readable in grey, and labels at the ends of lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from uncertainty_sets.pictures import move_apart

MARKERS = "osD^vPX*<>hd"
COLOURS = ("#000000", "#0b5394", "#b45f06", "#38761d", "#741b47", "#666666", "#1c4587", "#7f6000", "#990000")
"""Dark enough to differ from white in greyscale."""

FAINT = "#8a8a8a"

STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "svg.hashsalt": "fdro",  # the same picture is the same file
    "svg.fonttype": "none",
}


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


@contextmanager
def figure(folder: Path, name: str, **options: Any) -> Iterator[Any]:
    """Yield an empty figure; save it as NAME.png and NAME.svg in the folder. The options are `savefig`'s."""
    mpl: Any = import_module("matplotlib")
    with mpl.rc_context(STYLE):
        made = import_module("matplotlib.figure").Figure(layout="constrained")
        yield made
        for kind, more in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
            made.savefig(folder / f"{name}.{kind}", **more, **options)


def marked(number: int) -> dict[str, Any]:
    """Return colour and marker of the n-th line."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


End = tuple[float, float, str, str]
"""x, y, text, colour."""


def label_ends(
    figure: Any, ends: list[tuple[Any, list[End]]], size: float = 8.0, column: float | None = None
) -> None:
    """Write each line's name at its end, for all axes of a figure, or all in one column from x = `column` on.

    Labels that would overlap are moved apart, with thin leaders. The layout is settled once, before.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes, some in ends:
        if some:
            _label(axes, some, size, column)


def _label(axes: Any, ends: list[End], size: float, column: float | None) -> None:
    effects: Any = import_module("matplotlib.patheffects")
    halo = effects.withStroke(
        linewidth=2.5, foreground="white"
    )  # a line behind a label does not cross it out
    dpi = axes.figure.dpi
    pixels = axes.transData.transform([(x, y) for x, y, _, _ in ends])
    height = 1.3 * size * dpi / 72.0
    wanted = pixels[:, 1].copy()
    longest = max(len(text) for _, _, text, _ in ends)
    starts = (
        pixels[:, 0] if column is None else np.full(len(ends), axes.transData.transform((column, 1.0))[0])
    )
    for members in _columns(starts, 0.6 * size * dpi / 72.0 * longest):
        order = sorted(members, key=lambda k: wanted[k])
        wanted[order] = move_apart([float(wanted[k]) for k in order], height)
    back = axes.transData.inverted()
    for k, (x, y, text, colour) in enumerate(ends):
        moved = abs(wanted[k] - pixels[k, 1]) > 0.3 * height or column is not None
        to = back.transform((starts[k] + (14.0 if moved else 6.0) * dpi / 100.0, wanted[k]))
        leader = {
            "arrowstyle": "-",
            "color": "#b0b0b0",
            "linewidth": 0.5,
            "shrinkA": 0,
            "shrinkB": 2,
            "relpos": (0.0, 0.5),
        }
        axes.annotate(
            text,
            xy=(x, y),
            xytext=tuple(to),
            fontsize=size,
            color=colour,
            va="center",
            annotation_clip=False,
            arrowprops=leader if moved else None,
            path_effects=[halo],
        )


def _columns(xs: Any, width: float) -> list[list[int]]:
    """Indices whose labels may touch: chains of ends less than a label's width apart."""
    order = sorted(range(len(xs)), key=lambda k: xs[k])
    groups: list[list[int]] = []
    for k in order:
        if groups and xs[k] - xs[groups[-1][-1]] < width:
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups
