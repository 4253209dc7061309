"""The demo's picture: two dots per worker, before and after, joined by a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fdro_core.files import naming_full_disk
from uncertainty_sets.arrays import Array

GREY, BLUE = "#8a8a8a", "#1f5fa8"


def save(path: Path, workers: list[str], accuracies: list[Array], methods: list[str]) -> None:
    """Draw and save; workers sorted by their accuracy before, the worst at the top."""
    before, after = (100 * values for values in accuracies)
    order = np.argsort(before)[::-1]
    places = np.arange(len(order))
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.hlines(places, before[order], after[order], color="#c4c4c4", linewidth=2, zorder=1)
    axes.scatter(before[order], places, s=46, facecolor="white", edgecolor=GREY, linewidth=1.8, zorder=2)
    axes.scatter(after[order], places, s=46, color=BLUE, zorder=3)
    top = int(order[-1])
    left, right = sorted([(before[top], methods[0], GREY), (after[top], methods[1], BLUE)])
    for (x, name, colour), shift, side in ((left, -9, "right"), (right, 9, "left")):
        place = (x, places[-1])
        axes.annotate(
            f"{name} {x:.0f} %",
            place,
            (shift, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            color=colour,
        )
    low = float(min(before.min(), after.min()))
    axes.axvline(before.min(), color=GREY, linewidth=0.8, linestyle=":")
    axes.axvline(after.min(), color=BLUE, linewidth=0.8, linestyle=":")
    axes.set_xlim(max(-2.0, low - 18.0), 103.0)
    axes.set_yticks(places, [f"digit {workers[j]}" for j in order])
    axes.set_xlabel("accuracy on held-out images, % (dotted: the worst worker)")
    axes.set_title(
        f"Worst worker: {before.min():.0f} % with {methods[0]}, {after.min():.0f} % {methods[1]}",
        loc="left",
        fontsize=11,
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    with naming_full_disk(path):
        figure.savefig(path, dpi=150)
