"""Plots of the complexity table: log-log, labels at the lines, theory dashed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.complexity import paper, summary
from bench.display import figures
from bench.display.figures import label_ends
from uncertainty_sets.arrays import Array

SEEN = 32_768
"""Bytes below which resident memory, counted in pages, is not meaningful."""


Paint = Callable[[Any, dict[str, Any]], None]


def draw(document: dict[str, Any], folder: Path) -> None:
    """Draw every plot as PNG and SVG."""
    pictures: dict[str, Paint] = {
        "times": _times,
        "memory": _memory,
        "methods": _methods,
        "paper": _paper,
        "runs": _runs,
    }
    for name, paint in pictures.items():
        if (name == "runs" and not document["overall"]) or not document["cells"]:
            continue
        with figures.figure(folder, name) as figure:
            paint(figure, document)


def _title(row: dict[str, Any]) -> str:
    return f"{row['set']}, {row['variant']}" if row["variant"] else str(row["set"])


def _style(number: int) -> dict[str, Any]:
    return figures.marked(number) | {"markersize": 4}


def _log(axes: Any, ylabel: str, last: float, width: float) -> None:
    """Log-log up to N = `last`, then `width` decades for labels, without ticks or grid."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("N, entries of p", x=0.0, ha="left")
    axes.set_ylabel(ylabel)
    first = 1.0 if last <= 1e3 else 7.0
    axes.set_xlim(first, last * 10.0**width)
    axes.set_xticks([10.0**k for k in range(0 if first == 1.0 else 1, int(np.log10(last)) + 1)])
    axes.minorticks_off()
    axes.spines["bottom"].set_bounds(first, last)
    axes.grid(True, which="major", color="#e4e4e4", linewidth=0.6)


def _times(figure: Any, document: dict[str, Any]) -> None:
    """Draw one line per set for its default method, with np.argsort for scale and N dashed.

    The paper's sets and the others have a panel each, with their names in a column beside it.
    """
    measured = summary.series(document)
    drawn = [row for row in document["notes"]["variants"] if _default(row, measured)]
    halves = [[row for row in drawn if (row["set"] in paper.CLAIMS) == papers] for papers in (True, False)]
    halves = [half for half in halves if half]
    figure.set_size_inches(7.5 * len(halves), 6)
    panels = figure.subplots(1, len(halves), squeeze=False, sharex=True, sharey=True)[0]
    x, y = _argsort(document)
    labels = []
    for axes, half in zip(panels, halves, strict=True):
        ends = []
        for number, row in enumerate(half):
            cells = _default(row, measured)
            sizes, seconds = _points(cells, "seconds")
            axes.plot(sizes, seconds, linewidth=1.3, **_style(number))
            low, high = _points(cells, "low")[1], _points(cells, "high")[1]
            axes.fill_between(sizes, low, high, color=figures.FAINT, alpha=0.25, linewidth=0)
            fit = summary.fitted(cells)
            power = f"  (N^{fit.exponent:.2f})" if fit else ""
            ends.append((sizes[-1], seconds[-1], f"{_title(row)}{power}", _style(number)["color"]))
        axes.plot(x, y, color=figures.FAINT, linewidth=3, alpha=0.6, zorder=1)
        ends.append((x[-1], y[-1], "one np.argsort", figures.FAINT))
        base = 0.5 * min(end[1] / end[0] for end in ends)
        line = np.array([x[-1] / 1e3, x[-1]])
        axes.plot(line, base * line, color="black", linestyle="--", linewidth=0.8)
        ends.append((line[-1], base * line[-1], "in proportion to N", "black"))
        _log(axes, "seconds per call (band: quartiles)", x[-1], 2.7)
        axes.set_title("The paper's sets" if half[0]["set"] in paper.CLAIMS else "Other sets")
        labels.append((axes, ends))
    figure.suptitle("One worst-case call with each set's default method", x=0.01, ha="left")
    label_ends(figure, labels, column=x[-1])


def _default(row: dict[str, Any], measured: dict[Any, list[Any]]) -> list[Any]:
    """Return the cells of the set's own method."""
    return measured.get((row["set"], row["variant"], row["default"]), [])


def _methods(figure: Any, document: dict[str, Any]) -> None:
    """Draw every method's time, and the paper's formula dashed."""
    title = "Every method that can do the set; dashed: the growth of the paper's formula"
    _panels(figure, document, "seconds", "seconds per call", title)


def _memory(figure: Any, document: dict[str, Any]) -> None:
    """Draw the peak memory of every method's first call."""
    title = "Peak memory of a first call over what was held before; dashed: the losses themselves, 8N bytes"
    _panels(figure, document, "memory", "bytes", title)


def _panels(figure: Any, document: dict[str, Any], key: str, ylabel: str, title: str) -> None:
    """Draw one panel per set, one line per method: a method looks the same in all; a legend names it."""
    measured = summary.series(document)
    rows = [row for row in document["notes"]["variants"] if _default(row, measured)]
    across = min(3, len(rows))
    down = -(-len(rows) // across)
    figure.set_size_inches(3.8 * across, 3.0 * down + 1.0)
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    names = sorted({method for _, _, method in measured})
    handles: dict[str, Any] = {}
    last = max(cell["size"] for cell in document["cells"])
    for axes, row in zip(panels.flat, rows, strict=False):
        for number, method in enumerate(names):
            cells = measured.get((row["set"], row["variant"], method), [])
            cells = [cell for cell in cells if key != "memory" or (cell["memory"] or 0) >= SEEN]
            if cells:
                (handles[method],) = axes.plot(*_points(cells, key), linewidth=1.2, **_style(number))
        _log(axes, ylabel, last, 0.1)
        if key == "memory":
            sizes = np.array([10.0, last])
            axes.plot(sizes, 8.0 * sizes, color="black", linestyle="--", linewidth=0.9, zorder=1)
            axes.set_ylim(1e4, 1e10)
        else:
            _dash_paper(axes, measured, row)
            axes.set_ylim(1e-6, 1e2)
        axes.set_title(_title(row))
    for axes in list(panels.flat)[len(rows) :]:
        axes.set_visible(False)
    figure.suptitle(title, x=0.01, ha="left")
    shown = [name for name in names if name in handles]
    figure.legend(
        [handles[name] for name in shown],
        shown,
        loc="outside lower left",
        ncols=across,
        frameon=False,
        fontsize=8,
    )


def _dash_paper(axes: Any, measured: dict[Any, list[Any]], row: dict[str, Any]) -> None:
    """Draw the paper's operation count, scaled to pass through a measured point at about N = 100."""
    name = row["set"]
    if name not in paper.CLAIMS:
        return
    general = (row["set"], row["variant"], "clarabel")
    sorting = paper.CLAIMS[name].cost == "O(n·log n)"
    cells = _default(row, measured) if sorting or general not in measured else measured[general]
    anchor = min(cells, key=lambda cell: abs(np.log(cell["size"] / (cells[-1]["size"] if sorting else 100))))
    sizes = np.geomspace(10, 1e6, 60)
    counts = paper.operations(name, sizes)
    here = paper.operations(name, [anchor["size"]])
    if counts is None or here is None:
        return
    line = counts / here[0] * anchor["seconds"]
    inside = (line < 60) & (line > 2e-6)
    axes.plot(sizes[inside], line[inside], color="black", linestyle="--", linewidth=0.9, zorder=1)


def _paper(figure: Any, document: dict[str, Any]) -> None:
    """Draw Figures 1 and 2: the paper's operation counts alone."""
    figure.set_size_inches(9.5, 7.5)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    sizes = np.geomspace(2, 1000, 60)
    titles = ("Figure 1 (a)", "Figure 1 (b)", "Figure 2 (a)", "Figure 2 (b)")
    labels = []
    for axes, title, (m, eps) in zip(panels.flat, titles, paper.FIGURES, strict=True):
        merged: dict[float, tuple[str, Array]] = {}
        for claim_name, claim in paper.CLAIMS.items():
            counts = paper.operations(claim_name, sizes, m, eps)
            if counts is not None:
                key = float(counts[-1])
                same = merged.get(key)
                merged[key] = (f"{same[0]}, {claim.title}" if same else claim.title, counts)
        ends = []
        for number, (label, counts) in enumerate(merged.values()):
            colour = figures.marked(number)["color"]
            axes.plot(sizes, counts, "--", color=colour, linewidth=1.2)
            ends.append((sizes[-1], counts[-1], label, colour))
        _log(axes, "arithmetic operations", 1e3, 1.3)
        labels.append((axes, ends))
        axes.set_title(f"{title}: m = {m}, ε′ = {eps}")
    figure.suptitle("The paper's formulas for one oracle call", x=0.01, ha="left")
    label_ends(figure, labels)


def _runs(figure: Any, document: dict[str, Any]) -> None:
    """Draw Table IV: one bar per set, divided into gradients, oracle and driver."""
    rows = document["overall"]
    figure.set_size_inches(8.5, 0.5 * len(rows) + 1.4)
    axes = figure.add_subplot()
    left = np.zeros(len(rows))
    places = np.arange(len(rows))[::-1]
    shades = {
        "gradient": ("#d9d9d9", "black"),
        "oracle": ("#4d4d4d", "white"),
        "driver": ("#969696", "black"),
    }
    for part, (shade, ink) in shades.items():
        width = np.array([100 * row[part] / row["total"] for row in rows])
        axes.barh(places, width, left=left, color=shade, edgecolor="white", height=0.7)
        for place, start, wide in zip(places, left, width, strict=True):
            if wide >= 9:
                text = f"{part} {wide:.0f} %"
                axes.text(start + wide / 2, place, text, ha="center", va="center", color=ink, fontsize=8)
        left += width
    axes.set_yticks(places, [f"{row['set']}  ({row['total']:.2g} s)" for row in rows])
    axes.set_xlim(0, 100)
    axes.set_xlabel("per cent of the run's time; dark: oracle")
    axes.set_title("Where the time of a whole run goes")


def _points(cells: list[dict[str, Any]], key: str) -> tuple[Array, Array]:
    return (
        np.array([cell["size"] for cell in cells], dtype=float),
        np.array([cell[key] for cell in cells], dtype=float),
    )


def _argsort(document: dict[str, Any]) -> tuple[Array, Array]:
    """Return np.argsort's time at each N, the median over the groups."""
    times: dict[int, list[float]] = {}
    for cell in document["cells"]:
        if cell["argsort"]:
            times.setdefault(cell["size"], []).append(cell["argsort"])
    sizes = sorted(times)
    return np.array(sizes, dtype=float), np.array([np.median(times[size]) for size in sizes])
