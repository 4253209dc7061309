"""Tables and figures of races: accuracy at the end of a virtual time, and what a common target costs.

The target is 98 % of the median, over the methods, of the final accuracy without stragglers, and is the same
with them. Nobody was tuned for it. It is no winner's: the best of many methods is partly luck, and a target
near it is reached by that method alone; the worst one's is reached by chance. About half of the methods reach
the median's by definition, and one more rival, weak or strong, hardly moves it. 2 % below, since a method
that ends there is still climbing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.display.tables import Table
from bench.experiments.presentation import figures, kinds, reporting, tables
from bench.experiments.presentation.statistics import paired, summary
from bench.experiments.runs import curves

Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""Records of the repeats by method, in the order of their seeds."""

SHARE = 0.98  # of the median method's final accuracy
LOOKS = 3  # whose mean must be at the target
NAMES = {"acc_w": "Acc_w", "acc_20": "worst 20 %"}


class Cost(NamedTuple):
    """What it took to reach a level: virtual seconds, gradients and bits, up and down together."""

    seconds: float
    gradients: float
    bits: float


def final(record: Mapping[str, Any], metric: str) -> float:
    """Return the accuracy over the last fifth of the run's time."""
    curve = record["curve"]
    return curves.tail(curve.get("clock", ()), curve.get(metric, ()), record["virtual_seconds"])


def finals(records: Sequence[Mapping[str, Any]], metric: str) -> list[float]:
    """Return the final accuracies in per cent, one per run."""
    return [100 * final(record, metric) for record in records]


def target(runs: Runs, metric: str) -> float:
    """Return the accuracy that all methods are timed to, from the runs without stragglers."""
    means = [np.mean([final(record, metric) for record in records]) for records in runs.values()]
    return SHARE * float(np.median(means))


def cost(record: Mapping[str, Any], metric: str, level: float) -> Cost | None:
    """Return what the first time took at which the mean of three looks is at the level; None: never.

    A single lucky look at the start is no mean of three; a look after the end of the race does not count.
    """
    curve = record["curve"]
    there = [] if not curve else np.flatnonzero(curves.smoothed(curve[metric], LOOKS) >= level).tolist()
    place = next((place for place in there if place >= LOOKS - 1), None)
    if place is None or curve["clock"][place] > record["virtual_seconds"]:
        return None
    return Cost(curve["clock"][place], curve["gradients"][place], curve["bits"][place])


def table(title: str, runs: Runs, level: float, metric: str, reference: str) -> Table:
    """Return the table of one race; `metric` is what is timed and tested."""
    many = any(len(record.get("weights") or ()) > tables.MANY for rs in runs.values() for record in rs)
    shown = [name for name in NAMES if many or name in {metric, "acc_w"}]
    headings = [
        "method",
        *(f"{NAMES[name]} %" if name == "acc_w" else NAMES[name] for name in shown),
        tables.difference_from(reference, NAMES[metric]),
        f"s to {NAMES[metric]} {100 * level:.1f} %",
        "time relative to " + reference,
        tables.difference_from(reference, "s"),
        "gradients to it",
        "Mbit to it",
    ]
    own = runs.get(reference, ())
    rows = []
    for method, records in runs.items():
        costs = [cost(record, metric, level) for record in records]
        others = [cost(record, metric, level) for record in own]
        seconds, usual = (
            [None if each is None else each.seconds for each in some] for some in (costs, others)
        )
        apart = method != reference and len(own) == len(records)
        rows.append(
            [
                method,
                *(tables.pm(summary(finals(records, name)), 2) for name in shown),
                tables.chance(paired(finals(records, metric), finals(own, metric)))
                if apart
                else tables.MISSING,
                reporting.seconds(seconds),
                reporting.ratio_of_means(seconds, usual) if len(own) == len(records) else tables.MISSING,
                reporting.difference(seconds, usual) if apart else tables.MISSING,
                _mean([None if each is None else each.gradients for each in costs], 1.0, 0),
                _mean([None if each is None else each.bits for each in costs], 1e-6, 1),
            ]
        )
    return Table(title, headings, rows)


def _mean(values: Sequence[float | None], scale: float, digits: int) -> str:
    there = [scale * value for value in values if value is not None]
    return f"{np.mean(there):,.{digits}f}" if there else tables.MISSING


def draw(folder: Path, name: str, races: Mapping[str, Runs], metric: str, level: float) -> None:
    """Draw accuracy against virtual time, the mean over repeats, a panel per situation, and the target.

    ASPIRE-EASE is red, asynchronous rivals blue, synchronous ones green if their weights adapt, else grey.
    """
    with figures.canvas(folder, name, columns=len(races), width=5.4, height=4.2) as panels:
        labels: dict[Any, list[figures.End]] = {}
        for axes, (situation, runs) in zip(panels, races.items(), strict=True):
            ends = labels.setdefault(axes, [])
            for method, records in runs.items():
                drawn = [record for record in records if record["curve"]]
                if not drawn:
                    continue
                start = max(record["curve"]["clock"][0] for record in drawn)
                end = max(drawn[0]["virtual_seconds"], 1.01 * start)
                times = np.geomspace(max(start, 1e-3), end, 80)
                mean = 100 * curves.band(drawn, metric, times)[0]
                look = kinds.line(method)
                axes.plot(times, mean, **look)
                ends.append((times[-1], mean[-1], method, look["color"]))
            axes.axhline(100 * level, color="#b0b0b0", linewidth=0.7, linestyle=":", zorder=0)
            axes.set_xscale("log")
            axes.minorticks_off()
            axes.set_title(situation)
            axes.set_xlabel("virtual seconds; dotted: the target")
        panels[0].set_ylabel(f"test accuracy, {_of(metric)}, %")
        figures.label_all(labels)


def _of(metric: str) -> str:
    return "worst worker" if metric == "acc_w" else "worst fifth of the workers"
