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
from bench.experiments.presentation import figures, reporting, tables
from bench.experiments.presentation.tables import holm, paired, summary
from bench.experiments.runs import curves

Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""Records of the repeats by method, in the order of their seeds."""

SHARE = 0.98  # of the median method's final accuracy
LOOKS = 3  # whose mean must be at the target
NAMED = 2  # rivals of each kind whose lines have a name
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

    A look after the end of the race does not count.
    """
    curve = record["curve"]
    place = curves.steadily(curve[metric], level, LOOKS) if curve else None
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


LEVEL = 0.05  # of a test that tells two methods apart


def tally(found: Mapping[str, Mapping[str, Runs]], judged: Mapping[str, str], reference: str) -> Table:
    """Return how many rivals end below and above the reference method, race by race.

    A rival is a method whose name does not begin like the reference's. The t-test is paired over seeds; in
    brackets after Holm's correction for the number of rivals.
    """
    family = reference.partition("-")[0]
    rows, sums = [], dict.fromkeys(next(iter(found.values())), (0, 0, 0, 0, 0))
    for data, both in found.items():
        for situation, runs in both.items():
            own, metric = runs.get(reference, ()), judged[data]
            rivals = [m for m in runs if not m.startswith(family) and len(runs[m]) == len(own) > 1]
            if not rivals:
                continue
            ends = {method: float(np.mean(finals(runs[method], metric))) for method in [*rivals, reference]}
            tests = [paired(finals(runs[m], metric), finals(own, metric)) for m in rivals]
            gaps = np.array([test.difference for test in tests if test is not None])
            chances = [test.t for test in tests if test is not None]
            apart, surely = np.array(chances) < LEVEL, np.array(holm(chances)) < LEVEL
            best = max(rivals, key=lambda method: ends[method])
            counts = [len(rivals)]
            for side in (gaps < 0, gaps > 0):
                counts += [int((side & apart).sum()), int((side & surely).sum())]
            sums[situation] = tuple(np.add(sums[situation], counts).tolist())
            rows.append(
                [data, situation, f"{ends[reference]:.1f}", f"{ends[best]:.1f}, {best}", *_told(counts)]
            )
    rows += [["all", situation, "", "", *_told(counts)] for situation, counts in sums.items() if counts[0]]
    headings = ["race", "", f"{reference} %", "best rival %", "rivals", "below it, p < 0.05 (Holm)"]
    return Table("Rivals at the end", [*headings, "above it, p < 0.05 (Holm)"], rows)


def _told(counts: Sequence[int]) -> list[str]:
    rivals, below, surely_below, above, surely_above = counts
    return [str(rivals), f"{below} ({surely_below})", f"{above} ({surely_above})"]


def _mean(values: Sequence[float | None], scale: float, digits: int) -> str:
    there = [scale * value for value in values if value is not None]
    return f"{np.mean(there):,.{digits}f}" if there else tables.MISSING


def draw(folder: Path, name: str, races: Mapping[str, Runs], metric: str, level: float) -> None:
    """Draw accuracy against virtual time, the mean over repeats, a panel per situation, and the target.

    AspireModels is red, asynchronous rivals blue, synchronous ones green if their weights adapt, else grey.
    Of each kind of rivals the two that end highest have a name; the others are pale.
    """
    with figures.canvas(folder, name, columns=len(races), width=5.4, height=4.2) as panels:
        labels: dict[Any, list[figures.End]] = {}
        for axes, (situation, runs) in zip(panels, races.items(), strict=True):
            ends = labels.setdefault(axes, [])
            named = leading(runs, metric)
            for method, records in runs.items():
                drawn = [record for record in records if record["curve"]]
                if not drawn:
                    continue
                start = max(record["curve"]["clock"][0] for record in drawn)
                end = max(drawn[0]["virtual_seconds"], 1.01 * start)
                times = np.geomspace(max(start, 1e-3), end, 80)
                mean = 100 * curves.band(drawn, metric, times)[0]
                look = figures.line(method)
                axes.plot(times, mean, **look, alpha=1.0 if method in named else 0.25)
                if method in named:
                    ends.append((times[-1], mean[-1], method, look["color"]))
            axes.axhline(100 * level, color="#b0b0b0", linewidth=0.7, linestyle=":", zorder=0)
            axes.set_xscale("log")
            axes.minorticks_off()
            axes.set_title(situation)
            axes.set_xlabel("virtual seconds; dotted: the target")
        panels[0].set_ylabel(f"test accuracy, {_of(metric)}, %")
        figures.label_all(labels)


def leading(runs: Runs, metric: str) -> set[str]:
    """Return ASPIRE's rows, and of each other kind of method the two that end highest."""
    found: set[str] = set()
    highest = sorted(runs, key=lambda method: -float(np.mean(finals(runs[method], metric))))
    for kind in dict.fromkeys(map(figures.color, highest)):
        some = [method for method in highest if figures.color(method) == kind]
        found |= set(some if kind == figures.OURS else some[:NAMED])
    return found


def draw_overview(
    folder: Path, name: str, found: Mapping[str, Mapping[str, Runs]], judged: Mapping[str, str]
) -> None:
    """Draw where every method ends on every data set: a ring in the first situation, a dot in the second.

    The line between is what stragglers cost a method. Methods are in the order of their mean place with them.
    What ends far below the others is drawn at the edge, with its number.
    """
    first, *others = [runs for both in found.values() for runs in both.values()]
    shared = [method for method in first if all(method in runs for runs in others)]
    ends = {
        data: {
            method: [float(np.mean(finals(runs[method], judged[data]))) for runs in both.values()]
            for method in shared
        }
        for data, both in found.items()
    }
    ranks = np.sum(
        [np.argsort(np.argsort([pair[-1] for pair in each.values()])) for each in ends.values()], axis=0
    )
    order = [shared[place] for place in np.argsort(ranks, kind="stable")]
    height = 1.2 + 0.22 * len(order)
    with figures.canvas(folder, name, columns=len(found), width=3.0, height=height) as panels:
        for axes, (data, each) in zip(panels, ends.items(), strict=True):
            edge = float(np.quantile(list(each.values()), 0.1)) - 3.0
            for place, method in enumerate(order):
                color = figures.color(method)
                start, end = (max(value, edge) for value in (each[method][0], each[method][-1]))
                axes.plot([start, end], [place, place], color=color, linewidth=0.8)
                axes.plot(start, place, "o", color=color, markerfacecolor="white", markersize=5)
                axes.plot(end, place, "o", color=color, markersize=5)
                if end > each[method][-1]:
                    text = f"{each[method][-1]:.0f} %"
                    at = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center", "fontsize": 7}
                    axes.annotate(text, (end, place), color=color, **at)
            axes.set_yticks(range(len(order)), order if axes is panels[0] else [""] * len(order))
            axes.grid(axis="y", linewidth=0.3)
            axes.set_title(data)
            axes.set_xlabel(f"test accuracy, {_of(judged[data])}, %")
        without, with_them = next(iter(found.values()))
        panels[0].figure.suptitle(f"ring: {without}; dot: {with_them}; {figures.KEY}", fontsize=9)


def _of(metric: str) -> str:
    return "worst worker" if metric == "acc_w" else "worst fifth of the workers"
