"""Figures 8-9: virtual time to a worst-worker test accuracy when some workers are slow, method by method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.display.tables import Table
from bench.experiments.commands import options
from bench.experiments.commands.options import Session
from bench.experiments.presentation import figures, races, reporting, tables
from bench.experiments.presentation.tables import paired, pm, summary
from bench.experiments.runs import compare, curves, methods
from bench.experiments.runs.task import Task

COMMAND = "efficiency"
DATA = ["fashion-mnist", "person-activity", "sc-ma"]
VARIANTS = ("AspireModels(-)", "AspireModels-CP", "AspireModels")
ALIKE = {*VARIANTS, "AspireModels-ADP"}  # tried with the same settings
REFERENCE = "AspireModels"
WITHOUT = {"max{Ind}", "Mix_Even"}  # references without a federation's question: whom to wait for
SLOWER = 10.0
SHARE = 5  # one worker in so many is slow, the last ones
SECONDS = {"sc-ma": 500.0, "person-activity": 500.0}
BATCH = {"fashion-mnist": 64}  # all samples for the others: there are a few thousand per worker at most
LEVELS = (0.90, 0.97)  # of the best method's last accuracy
QUICK = {"seconds": 150.0, "batch": 32, "points": 12}

Runs = Mapping[str, Sequence[Mapping[str, Any]]]


def main(arguments: list[str]) -> int:
    """Run the experiment, print the tables, write the files."""
    made = options.comparing(options.common(COMMAND, __doc__, DATA))
    made.add_argument("--seconds", type=float, help="virtual seconds per run (1,000; other data: SECONDS)")
    session = Session(made, arguments, COMMAND)
    given, found = session.given, dict[str, Runs]()
    with session.pool() as pool:
        for data in given.data:
            base = task(given, data)
            workers = compare.workers_of(base)
            names = given.methods or methods.names(
                *VARIANTS, without=WITHOUT, preconditioned=given.preconditioned
            )
            known = one_problem(base, workers)
            found[data] = compare.tuned_runs(pool, session.records, given, base, names, workers, known)
    made_tables = [table(data, runs) for data, runs in found.items()]
    made_tables.append(tables.settings_found(found))
    session.publish(made_tables, remarks(session))
    if figures.available():
        draw(given.out, found)
    return 0


def one_problem(base: Task, workers: int) -> dict[str, methods.Method]:
    """Return the methods without a search for Γ: all solve the same problem, only the steps differ.

    The variants of `AspireModels` are tried with the same settings: they differ in whom they wait for and in
    their planes, and different luck in the search would hide that.
    """
    return {
        name: replace(
            method,
            search={key: space for key, space in method.search.items() if key != "budget"},
            default={key: value for key, value in method.default.items() if key != "budget"},
            family="ASPIRE" if name in ALIKE else method.family,
        )
        for name, method in compare.methods_of(base, workers).items()
    }


def task(given: Any, data: str) -> Task:
    """Return the task that all tasks on a data set are made from."""
    batch = given.batch
    if batch is None:
        batch = QUICK["batch"] if given.quick else BATCH.get(data, 0)
    seconds = given.seconds or (QUICK["seconds"] if given.quick else SECONDS.get(data, 1000.0))
    base = options.on_the_clock(
        COMMAND,
        data,
        given.seed,
        seconds,
        batch=int(batch) or None,
        model=given.model or "softmax",
        points=int(QUICK["points"]) if given.quick else 40,
        budget=methods.WHOLE_SIMPLEX,
    )
    N = compare.workers_of(base)
    slow = tuple((N - 1 - k, SLOWER, 0.0, None) for k in range(max(1, N // SHARE)))
    return replace(base, stragglers=slow)


def last(records: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return Acc_w over the last fifth of the looks, one number per run."""
    return [float(np.mean(r["curve"]["acc_w"][-max(1, len(r["curve"]["acc_w"]) // 5) :])) for r in records]


def times(records: Sequence[Mapping[str, Any]], level: float) -> list[float | None]:
    """Return when the mean of three looks' Acc_w first reaches the level, one time per run."""
    found = [(record["curve"], curves.steadily(record["curve"]["acc_w"], level)) for record in records]
    return [None if place is None else curve["clock"][place] for curve, place in found]


def table(data: str, runs: Runs) -> Table:
    """Return the table: seconds to two shares of the best last accuracy, and the accuracy at the end."""
    best = max(float(np.mean(last(records))) for records in runs.values())
    levels = [share * best for share in LEVELS]
    headings = [
        "method",
        *(f"s to Acc_w {100 * level:.1f} %" for level in levels),
        "time relative to AspireModels",
        tables.difference_from(REFERENCE, "s"),
        "Acc_w % at the end",
        tables.difference_from(REFERENCE, "Acc_w"),
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
                _higher(method, runs),
            ]
        )
    return Table(f"{data}: virtual seconds", headings, rows)


def _later(method: str, runs: Runs, level: float) -> str:
    """Test the times to the lower level, paired over the seeds in which both got there."""
    if method == REFERENCE or REFERENCE not in runs:
        return tables.MISSING
    return reporting.difference(times(runs[method], level), times(runs[REFERENCE], level))


def _higher(method: str, runs: Runs) -> str:
    """Test the accuracies at the end, paired over the seeds, in points."""
    own, other = runs[method], runs.get(REFERENCE, ())
    if method == REFERENCE or len(own) != len(other):
        return tables.MISSING
    return tables.chance(paired(*([100 * value for value in last(records)] for records in (own, other))))


def draw(folder: Path, found: Mapping[str, Runs]) -> None:
    """Draw worst-worker test accuracy against virtual time, the mean over repeats, one panel per data set.

    Of each kind of rivals the two that end highest have a name; the others are pale.
    """
    with figures.canvas(folder, COMMAND, columns=len(found), width=4.8, height=3.6) as panels:
        labels: dict[Any, list[figures.End]] = {}
        for axes, (data, runs) in zip(panels, found.items(), strict=True):
            ends, named = [], races.leading(runs, "acc_w")
            for method, records in runs.items():
                end = min(record["curve"]["clock"][-1] for record in records)
                start = max(record["curve"]["clock"][0] for record in records)
                grid = np.linspace(start, end, 80)
                mean = 100 * curves.band(records, "acc_w", grid)[0]
                look = figures.line(method)
                axes.plot(grid, mean, **look, alpha=1.0 if method in named else 0.25)
                if method in named:
                    ends.append((grid[-1], mean[-1], method, look["color"]))
            axes.set_title(data)
            axes.set_xlabel("virtual seconds")
            axes.set_xlim(0, 1.1 * end)
            axes.set_xticks([tick for tick in axes.get_xticks() if tick <= 1.01 * end])
            axes.spines["bottom"].set_bounds(0, end)
            labels[axes] = ends
        panels[0].set_ylabel("worst worker's test accuracy, %; mean of runs")
        figures.label_all(labels)


def remarks(session: Session) -> str:
    """Return how the runs were made."""
    given, records = session.given, session.shown()
    runs = sorted(
        {(r["data"], r["model"], r["batch"] or "all", r["virtual_seconds"]) for r in records}, key=str
    )
    each = "; ".join(
        f"{data}: {model}, {batch} samples per gradient, {seconds:,.0f} s"
        for data, model, batch, seconds in runs
    )
    return (
        f"One worker in {SHARE}, at least one, is {SLOWER:g} times slower than the others, whose delays are "
        "log-normal (median 1 s, sigma 0.5). A message costs the same time whether it asks for one gradient "
        "or for ten, so local steps (FedAvg, DRFA-Prox) are free. The set is the whole simplex for all "
        "methods. A time is the first at which the mean Acc_w of three consecutive looks reaches "
        f"{LEVELS[0]:.0%} or {LEVELS[1]:.0%} of the best method's final Acc_w. Every method: "
        f"{reporting.search(given)}, judged by the worst-worker accuracy on "
        f"held-out training data averaged over the run's time; {reporting.beyond(given)}then "
        f"{given.repeats} repeats with the best, mean ± deviation ({each}). "
        f"{reporting.effort(records, session.began)}"
    )
