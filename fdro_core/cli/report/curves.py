"""The curves of a run, of the whole and by worker: the history reduced to few points without losing peaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fdro_core.cli.output import for_people
from fdro_core.cli.report.run import WORST, Run, column
from fdro_core.result import wilson, wilson_of_mean

SPAN = 10.0
"""Losses whose largest is this many times the least or more are drawn on a logarithmic scale."""

RESULTS = frozenset(
    {"loss", "accuracy", "test-loss", "objective", "worst-loss", "worst-accuracy", "mean-accuracy"}
)
"""The charts of what was reached; the others are of how the run went, and folded."""

POINTS = 500
"""The largest number of points per curve."""

WINDOWS = 60
"""The largest number of points of a band."""

NEIGHBOURS = 2
"""How many points to either side a band covers, so that it does not jump with a straggler's every visit."""

UNITS = ("bit", "kbit", "Mbit", "Gbit", "Tbit")

LINES = 10
"""The largest number of workers with a line of their own; the others are in a band."""

Chart = dict[str, Any]
Line = dict[str, Any]
Entry = dict[str, Any]


def line(
    name: str,
    at: Sequence[Entry],
    values: Iterable[float | None],
    *,
    color: int | str = 0,
    dash: int = 0,
    band: tuple[Iterable[float | None], Iterable[float | None]] | None = None,
) -> Line:
    """One line over the reports `at`, with a band around it if given; NaN leaves a gap.

    `color` and `dash` are numbers of the style sheet.
    """
    made: Line = {
        "name": name,
        "clock": [entry["clock"] for entry in at],
        "iteration": [entry["iteration"] for entry in at],
        "values": rounded(values),
        "color": color,
        "dash": dash,
    }
    if band is not None:
        made["low"], made["high"] = rounded(band[0]), rounded(band[1])
    return made


def chart(
    name: str,
    title: str,
    note: str,
    lines: list[Line],
    *,
    digits: int | None = None,
    steps: bool = False,
    zero: bool = False,
    log: bool = False,
) -> Chart:
    """A chart with these lines.

    Args:
        name: the name in the page.
        title: above it.
        note: below the title.
        lines: from `line`.
        digits: decimals of the values under the pointer; None: four significant digits.
        steps: whether values jump, as counts do.
        zero: whether the scale begins at 0.
        log: whether the scale may be logarithmic, which it is if the numbers span decades.
    """
    return {
        "name": name,
        "title": title,
        "note": note,
        "digits": digits,
        "steps": steps,
        "zero": zero,
        "log": log and spans_decades(value for each in lines for value in each["values"]),
        "lines": lines,
    }


def spans_decades(values: Iterable[float | None]) -> bool:
    """Whether the numbers are positive and the largest is at least SPAN times the least.

    >>> spans_decades([2.0, 0.01, None]), spans_decades([2.0, 0.5]), spans_decades([1.0, 0.0])
    (True, False, False)
    """
    known = [value for value in values if value is not None]
    return bool(known) and min(known) > 0 and max(known) >= SPAN * min(known)


def rounded(values: Iterable[float | None]) -> list[float | None]:
    """Six significant digits, which is more than a line shows; None for what is not finite.

    >>> rounded([1 / 3, float("nan"), None])
    [0.333333, None, None]
    """
    return [None if value is None or not np.isfinite(value) else float(f"{value:.6g}") for value in values]


OWN_COPIES = "aspire-ease"
"""The algorithm whose workers have models of their own; others answer at the model that they were sent."""


def where(run: Run) -> str:
    """The model at which workers report their losses."""
    own = run.result["algorithm"]["name"] == OWN_COPIES
    return "at its own copy of the model" if own else "at the model it was last sent"


def curves(run: Run) -> list[Chart]:
    """Every chart of the whole run that the history has numbers for."""
    if not run.reports:
        return []
    last = thinned(run.reports)
    losses = [np.array(entry["losses"], dtype=np.float64) for entry in last]
    charts = [
        chart(
            "loss", "Losses", f"as reported by the workers, each {where(run)}"
            + ("; a worker that is gone keeps its last" if run.gone else ""),
            [
                line("worst mix in the set", last, [entry["objective"] for entry in last]),
                line("worst worker", last, [known(np.max, each) for each in losses], color=1, dash=1),
                line("mean", last, [known(np.mean, each) for each in losses], color=2, dash=2),
            ],
            log=True,
        ),
        tests(run),
        traffic([run]),
        staleness([run]),
        chart(
            "workers", "Workers", "alive, and active in an iteration (S)",
            [
                line("alive", last, fewest(run.reports, "live_workers")),
                line("active", last, [entry["active_workers"] for entry in last], color=1, dash=1),
            ],
            digits=0, steps=True, zero=True,
        ),
        chart(
            "planes", "Cutting planes", "held by the master",
            [line("planes", last, [entry["planes"] for entry in last])],
            digits=0, steps=True, zero=True,
        ),
    ]  # fmt: skip
    return [each for each in charts if each is not None]


def pieces(reports: list[Entry], most: int) -> list[list[Entry]]:
    """The reports in at most so many pieces of about the same length."""
    parts = np.array_split(np.arange(len(reports)), min(most, len(reports)))
    return [[reports[k] for k in part] for part in parts]


def thinned(reports: list[Entry]) -> list[Entry]:
    """At most POINTS of the reports, the last among them."""
    return [piece[-1] for piece in pieces(reports, POINTS)] if reports else []


def fewest(reports: list[Entry], key: str) -> list[float]:
    """The least number in each piece, at the points of `thinned`."""
    return [min(entry[key] for entry in piece) for piece in pieces(reports, POINTS)]


def known(pick: Callable[[Any], Any], values: Any) -> float:
    """The largest, smallest or mean of the finite numbers; NaN if there is none."""
    finite = values[np.isfinite(values)]
    return float(pick(finite)) if finite.size else np.nan


def tested(run: Run) -> tuple[str, list[Entry]]:
    """Which test the reports have, accuracy before loss, and the reports that have it."""
    for key in ("test_accuracy", "test_loss"):
        seen = thinned([entry for entry in run.reports if key in entry])
        if seen:
            return key, seen
    return "", []


def tests(run: Run) -> Chart | None:
    """Accuracy on held-out samples, or the loss if there is no accuracy; None if there is neither."""
    key, seen = tested(run)
    if key == "test_accuracy":
        note = "of the shared model on held-out samples; bands: 95 % intervals (Wilson)"
        lines = [mean_accuracy(run, "mean"), worst_accuracy(run, "worst worker", color=1, dash=1)]
        return chart("accuracy", "Test accuracy, %", note, lines, digits=1)
    if not key:
        return None
    values = [np.array(entry[key], dtype=np.float64) for entry in seen]
    lines = [
        line("mean", seen, [known(np.mean, each) for each in values]),
        line("worst worker", seen, [known(np.max, each) for each in values], color=1, dash=1),
    ]
    return chart("test-loss", "Test loss", "of the shared model on held-out samples", lines, log=True)


def mean_accuracy(run: Run, name: str, **style: int) -> Line:
    """The mean of the workers' test accuracies in %."""
    seen, samples = tested(run)[1], column(run.workers, "test_samples")
    values = [np.array(entry["test_accuracy"], dtype=np.float64) for entry in seen]
    limits = 100 * np.array([wilson_of_mean(each, samples) for each in values]).T
    return line(name, seen, [100 * known(np.mean, each) for each in values], **style, band=(*limits,))


def worst_accuracy(run: Run, name: str, **style: int) -> Line:
    """The lowest of the workers' test accuracies in %, with the interval of that worker."""
    seen, samples = tested(run)[1], column(run.workers, "test_samples")
    values = np.array([entry["test_accuracy"] for entry in seen], dtype=np.float64)
    worst = np.argmin(np.where(np.isfinite(values), values, np.inf), axis=1)
    lowest = np.take_along_axis(values, worst[:, None], axis=1)[:, 0]
    low, high = wilson(lowest, samples[worst])
    return line(name, seen, 100 * lowest, **style, band=(100 * low, 100 * high))


def traffic(runs: list[Run]) -> Chart | None:
    """Bits sent so far, up and down, on a common scale; None if the histories do not count them."""
    found = [run for run in runs if run.reports and "bits_up" in run.reports[-1]]
    if not found:
        return None
    ends = [(run, run.reports[-1]["bits_up"], run.reports[-1]["bits_down"]) for run in found]
    power = min(int(np.log10(max(1, *(max(up, down) for _, up, down in ends))) // 3), len(UNITS) - 1)
    scale, unit = 1000.0**power, UNITS[power]
    lines, totals = [], []
    for color, (run, up, down) in enumerate(ends):
        last, of = thinned(run.reports), f"{run.name} " if len(runs) > 1 else ""
        for dash, way in enumerate(("up", "down")):
            values = [entry[f"bits_{way}"] / scale for entry in last]
            shown = color if len(runs) > 1 else dash
            lines.append(line(f"{of}{way}", last, values, color=shown, dash=dash))
        totals.append(f"{of}{for_people(up / scale, 3)} up, {for_people(down / scale, 3)} down")
    note = f"in all, at 32 bits per number: {'; '.join(totals)}. Up is from the workers to the master"
    return chart("traffic", f"Sent, {unit}", note, lines, zero=True)


def staleness(runs: list[Run]) -> Chart:
    """The age of the oldest update in use, as a band: its range and median in overlapping stretches."""
    lines = []
    for color, run in enumerate(runs):
        windows = pieces(run.reports, WINDOWS) if run.reports else []
        around = [windows[max(0, k - NEIGHBOURS) : k + NEIGHBOURS + 1] for k in range(len(windows))]
        ages = [sorted(entry["staleness"] for part in stretch for entry in part) for stretch in around]
        lines.append(
            line(
                run.name if len(runs) > 1 else "median",
                [window[-1] for window in windows],
                [each[len(each) // 2] for each in ages],
                color=color,
                band=([each[0] for each in ages], [each[-1] for each in ages]),
            )
        )
    note = "age in iterations of the oldest update used; band: from least to most around that time"
    return chart("staleness", "Staleness", note, lines, digits=0, zero=True)


def worker_curves(run: Run, chosen: list[int] | None = None) -> list[Chart]:
    """Every chart by worker that the history has numbers for; `chosen` workers get a line."""
    chosen = choose(run) if chosen is None else chosen
    reports = thinned(run.reports)
    key, seen = tested(run)
    accuracy = key == "test_accuracy"
    charts = [
        _chart(
            run, chosen, reports, "losses", "worker-loss", "Loss by worker",
            f"as reported by each worker {where(run)}", log=True,
        ),
        _chart(
            run, chosen, seen, key, "worker-accuracy" if accuracy else "worker-test-loss",
            "Test accuracy by worker, %" if accuracy else "Test loss by worker",
            "of the shared model on held-out samples", log=not accuracy,
            scale=100.0 if accuracy else 1.0, digits=1 if accuracy else None,
        ),
        _chart(
            run, chosen, [entry for entry in reports if "weights" in entry], "weights", "weights",
            "Weight by worker, %", "the weight of each worker's gradient", scale=100.0, digits=1, zero=True,
        ),
    ]  # fmt: skip
    return [each for each in charts if each is not None]


def choose(run: Run) -> list[int]:
    """The workers with a line: all, or those that figures name, those that are gone, the heaviest."""
    N = len(run.workers)
    if N <= LINES:
        return list(range(N))
    heaviest = np.argsort(-np.nan_to_num(column(run.workers, "weight")), kind="stable").tolist()
    named = [j for figure in WORST for j in run.worst(figure)[:2]]
    return sorted(list(dict.fromkeys([*named, *list(run.gone)[:3], *heaviest]))[: LINES - 1])


def _chart(
    run: Run,
    chosen: list[int],
    at: list[Entry],
    key: str,
    name: str,
    title: str,
    note: str,
    *,
    scale: float = 1.0,
    **options: Any,
) -> Chart | None:
    """A chart with a line per chosen worker, and a band over all workers if some have no line."""
    if not at:
        return None
    table = scale * np.array([entry[key] for entry in at], dtype=np.float64)
    lines = []
    if len(chosen) < table.shape[1]:
        lines.append(_all(at, table))
        note = f"{note}; grey: range and median of all {table.shape[1]} workers"
    for color, j in enumerate(chosen):
        values, label = table[:, j].copy(), run.names[j]
        if j in run.gone:
            label += " (gone)"
            if key == "losses":  # the master keeps the last known number; the worker reports none
                values[[entry["iteration"] > run.gone[j]["iteration"] for entry in at]] = np.nan
        lines.append(line(label, at, values, color=f"w{color}"))
    return chart(name, title, note, lines, **options)


def _all(at: list[Entry], table: Any) -> Line:
    """Median and range over the workers."""
    middle, low, high = ([known(pick, row) for row in table] for pick in (np.median, np.min, np.max))
    return line("median", at, middle, color="all", dash=2, band=(low, high))
