"""Networks and mini-batches: worst-worker accuracy of every method, and the time to it if workers are slow.

Five rows, each with its own data, model and budget. The adversary of every method is the whole simplex.
Every method gets the same search without slow workers; with the settings found, the rows of `SLOW` are
repeated with a fifth of the workers ten times slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.display.tables import Table
from bench.experiments.commands import options
from bench.experiments.commands.efficiency import SHARE, SLOWER, last, one_problem, times
from bench.experiments.commands.options import Session
from bench.experiments.presentation import figures, reporting, tables
from bench.experiments.presentation.tables import summary
from bench.experiments.runs import compare, curves, methods
from bench.experiments.runs.pool import Pool
from bench.experiments.runs.task import Task

COMMAND = "networks"
REFERENCE = "AspireModels"
VARIANTS = ("AspireModels", "AspireModels(-)", "AspireModels-ADP")
RIVALS = ("AFL", "AFL + P")  # whose final accuracy the times are measured to
ON_THE_CLOCK = (*RIVALS, *VARIANTS)
COLUMNS = (
    ("Acc_w %", "acc_w", 100.0, 2),
    ("Loss_w", "loss_w", 1.0, 3),
    ("Std", "std", 100.0, 2),
    ("Acc_w % at the end", "acc_w_last", 100.0, 2),
)

Runs = dict[str, list[dict[str, Any]]]
"""Records of the repeats by method."""


@dataclass(frozen=True)
class Row:
    """A data set with a model and a budget of gradients."""

    data: str
    model: str
    gradients: int

    @property
    def name(self) -> str:
        """The row's name in tables and files."""
        return f"{self.data}, {self.model}"


ROWS = (
    Row("sc-ma", "dense-64", 6000),
    Row("person-activity", "dense-64", 3000),
    Row("fashion-mnist", "softmax", 4500),
    Row("fashion-mnist", "dense-32", 3000),
    Row("sc-ma", "dense", 3000),
)
SLOW = (ROWS[0], ROWS[1])
QUICK = (Row("digits", "softmax", 300), Row("digits", "dense-32", 300))
TARGET = 2 / 3  # of the budget: the loss that is to be reached with slow workers too


def main(arguments: list[str]) -> int:
    """Run the experiment, print the tables, write the files."""
    made = options.parser(COMMAND, __doc__, [])
    made.add_argument("--rows", nargs="+", type=int, metavar="NUMBER", help=_numbered())
    session = Session(made, arguments, COMMAND)
    given = session.given
    rows = QUICK if given.quick else ROWS
    chosen = rows if given.rows is None else [_row(rows, number) for number in given.rows]
    found: dict[str, Runs] = {}
    slowed: dict[str, Runs] = {}
    with session.pool() as pool:
        for row in chosen:
            base = _base(given, row)
            workers = compare.workers_of(base)
            names = given.methods or _methods(base)
            known = one_problem(base, workers)
            found[row.name] = compare.tuned_runs(pool, session.records, given, base, names, workers, known)
            if row in SLOW or given.quick:
                slowed[row.name] = _with_slow_workers(pool, session, found[row.name], workers)
    given.data = sorted({row.data for row in chosen})
    made_tables = [
        tables.comparison(name, name, runs, tables.with_fifth(COLUMNS, runs), {}, REFERENCE)
        for name, runs in found.items()
    ]
    made_tables += [table(name, runs, found[name]) for name, runs in slowed.items()]
    made_tables.append(tables.settings_found(found))
    session.publish(made_tables, remarks(session))
    if figures.available():
        for name, runs in found.items():
            draw(given.out, name, runs, slowed.get(name))
    return 0


def _numbered() -> str:
    return "; ".join(f"{number}: {row.name}" for number, row in enumerate(ROWS, start=1))


def _row(rows: Sequence[Row], number: int) -> Row:
    if not 1 <= number <= len(rows):
        raise SystemExit(f"--rows takes numbers from 1 to {len(rows)}, got {number}")
    return rows[number - 1]


def _base(given: Any, row: Row) -> Task:
    base = options.base(given, COMMAND, row.data, whole=True)
    return replace(base, model=row.model, gradients=given.gradients or row.gradients)


def _methods(base: Task) -> list[str]:
    """Return the baselines with and without a preconditioner, and both forms of ASPIRE."""
    without = {"max{Ind}"} if compare.one_class(base) else set()
    return methods.names(*VARIANTS, without=without, preconditioned=True)


def _with_slow_workers(pool: Pool, session: Session, runs: Runs, workers: int) -> Runs:
    """Repeat the runs that are compared on the clock with slow workers, with the settings found."""
    slow = tuple((workers - 1 - k, SLOWER, 0.0, None) for k in range(max(1, workers // SHARE)))
    names = [name for name in ON_THE_CLOCK if name in runs]
    groups = {name: [_slowed(record, slow) for record in runs[name]] for name in names}
    title = f"{next(iter(groups.values()))[0].data}: slow workers" if groups else "slow workers"
    pool.run(title, [task for group in groups.values() for task in group], session.records)
    return {name: pool.run(title, group, session.records) for name, group in groups.items()}


def _slowed(record: Mapping[str, Any], slow: Any) -> Task:
    """Return the task of a record with slow workers."""
    known = {name: record[name] for name in Task.__dataclass_fields__ if name in record}
    return Task(**known | {"stragglers": slow, "delay": tuple(known["delay"]), "whole": True})


# -- tables -------------------------------------------------------------------------------------------------


def table(name: str, slowed: Runs, without: Runs) -> Table:
    """Return the table of the runs with slow workers: times to each rival's final accuracy, and gradients."""
    rivals = [rival for rival in RIVALS if rival in slowed]
    headings = ["method"]
    for rival in rivals:
        headings += [f"s to the final Acc_w of {rival}", f"of {rival}'s time"]
    headings += ["Acc_w % at the end", "gradients to one loss, with slow workers over without"]
    rows = []
    for method, records in slowed.items():
        row = [method]
        for rival in rivals:
            goal = float(np.mean(last(slowed[rival])))
            reached = times(records, goal)
            row += [reporting.seconds(reached), reporting.ratio_of_means(reached, _ends(slowed[rival]))]
        row.append(tables.pm(summary([100 * value for value in last(records)]), 2))
        row.append(reporting.seconds(cost(records, without[method]), 2))
        rows.append(row)
    return Table(f"{name}: a fifth of the workers {SLOWER:g} times slower", headings, rows)


def _ends(records: Sequence[Mapping[str, Any]]) -> list[float | None]:
    return [record["curve"]["clock"][-1] for record in records]


def cost(slow: Sequence[Mapping[str, Any]], without: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Return how many times the gradients a loss takes if workers are slow, repeat by repeat.

    The loss is that of the worst worker after two thirds of the budget without slow workers; losses are means
    of three looks.
    """
    found: list[float | None] = []
    for one, other in zip(slow, without, strict=True):
        losses = curves.smoothed(other["curve"]["loss_w"])
        place = int(TARGET * losses.size) - 1
        needed = curves.first_time(
            one["curve"]["gradients"],
            (-curves.smoothed(one["curve"]["loss_w"])).tolist(),
            -float(losses[place]),
        )
        usual = curves.first_time(other["curve"]["gradients"], (-losses).tolist(), -float(losses[place]))
        found.append(None if needed is None or not usual else needed / usual)
    return found


def remarks(session: Session) -> str:
    """Return how the runs were made."""
    return (
        "Mini-batches of 64 samples. AspireModels waits for nobody (S = 1), AspireModels(-) for all, and "
        "AspireModels-ADP for all while nobody is slow. "
        '"+ P": with the preconditioner, the step rule and the averaging '
        "of AspireModels. "
        "With slow workers, times are virtual seconds (delays log-normal, median 1 s, sigma 0.5) until the "
        "mean Acc_w of three looks reaches the rival's mean over its last fifth, relative to the end of the "
        "rival's runs; every method has the settings found without slow workers. Gradients: until the worst "
        "worker's training loss is that of the run without slow workers after two thirds of the budget. "
    ) + reporting.about(session.given, session.shown(), session.began)


def draw(folder: Path, name: str, runs: Runs, slowed: Runs | None) -> None:
    """Draw test Acc_w against gradients, and against virtual time with slow workers; means over repeats."""
    file = f"curve-{name.replace(', ', '-')}"
    with figures.canvas(folder, file, columns=1 if slowed is None else 2) as panels:
        ends: dict[Any, list[Any]] = {axes: [] for axes in panels}
        for axes, some, x_axis in zip(panels, (runs, slowed or {}), ("gradients", "clock"), strict=False):
            for number, method in enumerate(runs):
                if method in some:
                    look = figures.look(number)
                    stop = min(record["curve"][x_axis][-1] for record in some[method])
                    start = max(record["curve"][x_axis][0] for record in some[method])
                    grid = np.linspace(start, stop, 60)
                    mean = 100 * curves.band(some[method], "acc_w", grid, x_axis)[0]
                    axes.plot(grid, mean, markevery=10, **look)
                    ends[axes].append((grid[-1], mean[-1], method, look["color"]))
        panels[0].set_title(name)
        panels[0].set_ylabel("worst worker's test accuracy, %")
        panels[0].set_xlabel("gradients, all workers together")
        if slowed is not None:
            panels[1].set_xlabel("virtual seconds, a fifth of the workers slow")
        figures.label_all(ends)
