"""Plots of the complexity table: log-log, labels at the lines, theory dashed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.complexity import paper, summary
from bench.display import style
from bench.display.labels import label_ends
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
        with style.figure(folder, name) as figure:
            paint(figure, document)


def _title(row: dict[str, Any]) -> str:
    return f"{row['set']}, {row['variant']}" if row["variant"] else str(row["set"])


def _style(number: int) -> dict[str, Any]:
    return style.marked(number) | {"markersize": 4}


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
    """Draw one line per set for its default method, with np.argsort for scale and N dashed."""
    figure.set_size_inches(9, 6)
    axes = figure.add_subplot()
    measured = summary.series(document)
    ends = []
    for number, row in enumerate(document["notes"]["variants"]):
        cells = measured.get((row["set"], row["variant"], row["default"]), [])
        if cells:
            x, y = _points(cells, "seconds")
            axes.plot(x, y, linewidth=1.3, **_style(number))
            low, high = _points(cells, "low")[1], _points(cells, "high")[1]
            axes.fill_between(x, low, high, color=style.FAINT, alpha=0.25, linewidth=0)
            fit = summary.fitted(cells)
            power = f"  (N^{fit.exponent:.2f})" if fit else ""
            ends.append((x[-1], y[-1], f"{_title(row)}{power}", _style(number)["color"]))
    x, y = _argsort(document)
    axes.plot(x, y, color=style.FAINT, linewidth=3, alpha=0.6, zorder=1)
    ends.append((x[-1], y[-1], "one np.argsort", style.FAINT))
    base = min(end[1] / end[0] for end in ends)
    line = np.array([1e3, x[-1]])
    axes.plot(line, 0.5 * base * line, color="black", linestyle="--", linewidth=0.8)
    axes.annotate("∝ N", (line[0], 0.5 * base * line[0]), textcoords="offset points", xytext=(4, -10))
    _log(axes, "seconds per call (band: quartiles)", x[-1], 1.7)
    axes.set_title("One worst-case call with each set's default method")
    label_ends(figure, [(axes, ends)])


def _memory(figure: Any, document: dict[str, Any]) -> None:
    """Draw the peak memory of a first call."""
    figure.set_size_inches(9, 6)
    axes = figure.add_subplot()
    measured, ends = summary.series(document), []
    for number, row in enumerate(document["notes"]["variants"]):
        cells = measured.get((row["set"], row["variant"], row["default"]), [])
        cells = [cell for cell in cells if cell["memory"] and cell["memory"] >= SEEN]
        if cells:
            x, y = _points(cells, "memory")
            axes.plot(x, y / 1e6, linewidth=1.3, **_style(number))
            ends.append((x[-1], y[-1] / 1e6, _title(row), _style(number)["color"]))
    sizes = np.array([1e3, 1e6])
    axes.plot(sizes, 8 * sizes / 1e6, color="black", linestyle="--", linewidth=0.8)
    ends.append((sizes[-1], 8.0, "the losses themselves, 8N bytes", "black"))
    _log(axes, "peak memory of a first call over what was held before, MB", sizes[-1], 1.7)
    axes.set_title("Memory of one worst-case call")
    label_ends(figure, [(axes, ends)])


def _methods(figure: Any, document: dict[str, Any]) -> None:
    """Draw one panel per set: every method measured, and the paper's formula dashed."""
    rows = document["notes"]["variants"]
    across = min(3, len(rows))
    down = -(-len(rows) // across)
    figure.set_size_inches(4.6 * across, 3.4 * down)
    measured = summary.series(document)
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    names = sorted({method for _, _, method in measured})
    labels = []
    for axes, row in zip(panels.flat, rows, strict=False):
        ends = []
        for number, method in enumerate(names):
            cells = measured.get((row["set"], row["variant"], method), [])
            if cells:
                x, y = _points(cells, "seconds")
                axes.plot(x, y, linewidth=1.2, **_style(number))
                ends.append((x[-1], y[-1], method, _style(number)["color"]))
        _log(axes, "seconds per call", 1e6, 2.2)
        axes.set_ylim(1e-6, 1e2)
        if ends:
            _dash_paper(axes, row["set"], measured, row, ends)
        labels.append((axes, ends))
        axes.set_title(_title(row))
    for axes in list(panels.flat)[len(rows) :]:
        axes.set_visible(False)
    title = "Every method that can do the set; dashed: the growth of the paper's formula"
    figure.suptitle(title, x=0.01, ha="left")
    label_ends(figure, labels, size=7.0)


def _dash_paper(
    axes: Any, name: str, measured: dict[Any, list[Any]], row: dict[str, Any], ends: list[Any]
) -> None:
    """Draw the paper's operation count, scaled to pass through a measured point at about N = 100."""
    if name not in paper.CLAIMS:
        return
    general = (row["set"], row["variant"], "clarabel")
    sorting = paper.CLAIMS[name].cost == "O(n·log n)"
    default = (row["set"], row["variant"], row["default"])
    cells = measured.get(default if sorting or general not in measured else general)
    if not cells:
        return
    anchor = min(cells, key=lambda cell: abs(np.log(cell["size"] / (cells[-1]["size"] if sorting else 100))))
    sizes = np.geomspace(10, 1e6, 60)
    counts = paper.operations(name, sizes)
    here = paper.operations(name, [anchor["size"]])
    if counts is None or here is None:
        return
    line = counts / here[0] * anchor["seconds"]
    inside = (line < 60) & (line > 2e-6)
    axes.plot(sizes[inside], line[inside], color="black", linestyle="--", linewidth=0.9, zorder=1)
    if inside.any():
        ends.append((sizes[inside][-1], line[inside][-1], "paper", "black"))


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
            colour = style.marked(number)["color"]
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
