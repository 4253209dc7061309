"""Figures 8-9: virtual time to a worst-worker test accuracy when some workers are slow, method by method."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.experiments.commands import options
from bench.experiments.presentation import figures, reporting, tables
from bench.experiments.presentation.statistics import summary
from bench.experiments.presentation.tables import Table, pm
from bench.experiments.runs import compare, curves, methods
from bench.experiments.runs.execute import Pool
from bench.experiments.runs.records import Records
from bench.experiments.runs.timed import VARIANTS, TimedTask, begin, perform

COMMAND = "efficiency"
DATA = ["fashion-mnist", "person-activity", "sc-ma"]
METHODS = ["FedAvg", "AFL", "DRFA-Prox", "ASPIRE-EASE(-)", "ASPIRE-CP", "ASPIRE-EASE"]
REFERENCE = "ASPIRE-EASE"
SLOWER = 10.0
SHARE = 5  # one worker in so many is slow, the last ones
SECONDS = {"sc-ma": 500.0}
BATCH = {"fashion-mnist": 64}  # elsewhere all samples: there are a few thousand a worker at most
WHOLE_SIMPLEX = 2.0  # Γ: half of Σ|p - q| is at most 1, so every distribution is in the set
LEVELS = (0.90, 0.97)  # of the best method's last accuracy
QUICK = {"seconds": 150.0, "batch": 32, "points": 12}

Runs = Mapping[str, Sequence[Mapping[str, Any]]]


def main(arguments: list[str]) -> int:
    """Run it, print the tables, write the files."""
    made = options.comparing(options.common(COMMAND, __doc__, DATA))
    made.add_argument("--seconds", type=float, help="virtual seconds of a run (1,000; SC-MA 500)")
    given = options.read(made, arguments, COMMAND)
    began, console = time.monotonic(), options.console()
    records = Records(given.out / "runs.jsonl", fresh=given.fresh, kind=TimedTask)
    found: dict[str, Runs] = {}
    with Pool(given.jobs, console, perform, given.plugins) as pool:
        for data in given.data:
            base = task(given, data)
            workers = compare.workers_of(base)
            names, known = given.methods or [*METHODS, *methods.own()], one_problem(workers)
            found[data] = compare.tuned_runs(pool, records, given, base, names, workers, known)
    made_tables = [table(data, runs) for data, runs in found.items()]
    made_tables.append(tables.settings_found(found))
    compare.publish(console, given.out, made_tables, remarks(given, list(records.known.values()), began))
    if figures.available():
        draw(given.out, found)
    return 0


def one_problem(workers: int) -> dict[str, methods.Method]:
    """The methods without a search for Γ: all are to solve the same problem, only the steps are theirs.

    ASPIRE's variants are tried with the same settings: they differ in whom they wait for and in their planes,
    and a difference of luck in the search would hide that.
    """
    return {
        name: replace(
            method,
            search={key: spread for key, spread in method.search.items() if key != "budget"},
            default={key: value for key, value in method.default.items() if key != "budget"},
            family="ASPIRE" if name in VARIANTS else method.family,
        )
        for name, method in methods.registry(workers).items()
    }


def task(given: Any, data: str) -> TimedTask:
    """The task that all of a data set are made from."""
    batch = given.batch
    if batch is None:
        batch = QUICK["batch"] if given.quick else BATCH.get(data, 0)
    seconds = given.seconds or (QUICK["seconds"] if given.quick else SECONDS.get(data, 1000.0))
    base = begin(
        COMMAND,
        data,
        given.seed,
        seconds,
        batch=int(batch) or None,
        model=given.model or "softmax",
        points=int(QUICK["points"]) if given.quick else 40,
        budget=WHOLE_SIMPLEX,
    )
    N = compare.workers_of(base)
    slow = tuple((N - 1 - k, SLOWER, 0.0, None) for k in range(max(1, N // SHARE)))
    return replace(base, stragglers=slow)


def last(records: Sequence[Mapping[str, Any]]) -> list[float]:
    """Acc_w over the last fifth of the looks, a number a run."""
    return [float(np.mean(r["curve"]["acc_w"][-max(1, len(r["curve"]["acc_w"]) // 5) :])) for r in records]


def times(records: Sequence[Mapping[str, Any]], level: float) -> list[float | None]:
    """When the mean of three looks' Acc_w first is at the level, a time a run."""
    return [
        curves.first_time(record["curve"]["clock"], curves.smoothed(record["curve"]["acc_w"]).tolist(), level)
        for record in records
    ]


def table(data: str, runs: Runs) -> Table:
    """Seconds to two shares of the best last accuracy, and the accuracy at the end."""
    best = max(float(np.mean(last(records))) for records in runs.values())
    levels = [share * best for share in LEVELS]
    headings = [
        "method",
        *(f"s to Acc_w {100 * level:.1f} %" for level in levels),
        "times ASPIRE-EASE's",
        "later than ASPIRE-EASE (p: t, ranks)",
        "Acc_w % at the end",
    ]
    rows = []
    for method, records in runs.items():
        reached = [times(records, level) for level in levels]
        rows.append(
            [
                method,
                *(reporting.seconds(some) for some in reached),
                reporting.ratio_of_means(reached[0], times(runs.get(REFERENCE, records), levels[0])),
                _later(method, runs, levels[0]),
                pm(summary([100 * value for value in last(records)]), 2),
            ]
        )
    return Table(f"{data}: virtual seconds", headings, rows)


def _later(method: str, runs: Runs, level: float) -> str:
    """The paired tests of the times to the lower level, over the seeds where both got there."""
    if method == REFERENCE or REFERENCE not in runs:
        return tables.MISSING
    return reporting.less(times(runs[method], level), times(runs[REFERENCE], level))


def draw(folder: Path, found: Mapping[str, Runs]) -> None:
    """Worst-worker test accuracy against virtual time, the mean over repeats, a panel a data set."""
    with figures.canvas(folder, COMMAND, columns=len(found), width=4.8, height=3.6) as panels:
        labels: dict[Any, list[figures.End]] = {}
        for axes, (data, runs) in zip(panels, found.items(), strict=True):
            ends = []
            for number, (method, records) in enumerate(runs.items()):
                end = min(record["curve"]["clock"][-1] for record in records)
                start = max(record["curve"]["clock"][0] for record in records)
                grid = np.linspace(start, end, 80)
                mean = 100 * curves.band(records, "acc_w", grid)[0]
                look = figures.look(number)
                axes.plot(grid, mean, markevery=12, **look)
                ends.append((grid[-1], mean[-1], method, look["color"]))
            axes.set_title(data)
            axes.set_xlabel("virtual seconds")
            axes.set_xlim(0, 1.1 * end)
            axes.set_xticks([tick for tick in axes.get_xticks() if tick <= 1.01 * end])
            axes.spines["bottom"].set_bounds(0, end)
            labels[axes] = ends
        panels[0].set_ylabel("worst worker's test accuracy, %; mean of runs")
        figures.label_all(labels)


def remarks(given: Any, records: list[dict[str, Any]], began: float) -> str:
    """How it was done."""
    runs = sorted(
        {(r["data"], r["model"], r["batch"] or "all", r["virtual_seconds"]) for r in records}, key=str
    )
    each = "; ".join(
        f"{data}: {model}, {batch} samples a gradient, {seconds:,.0f} s"
        for data, model, batch, seconds in runs
    )
    return (
        f"One worker in {SHARE}, at least one, is {SLOWER:g} times slower than the others, whose delays are "
        "log-normal (median 1 s, sigma 0.5). A message costs the same time whether it asks for one gradient "
        "or for ten, so local steps (FedAvg, DRFA-Prox) are free. The set is the whole simplex for all. "
        "Times are those at which the mean of three looks' Acc_w first is "
        f"{LEVELS[0]:.0%} and {LEVELS[1]:.0%} of the best method's at the end. Every method: {given.trials} "
        f"trials of settings, {given.search_seeds} seeds each, judged by the worst-worker accuracy on "
        "held-out training data averaged over the run's time; then "
        f"{given.repeats} repeats with the best, mean ± deviation ({each}). "
        f"{reporting.effort(records, began)}"
    )
