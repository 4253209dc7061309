"""Figures 6-7: the worst worker against the size of the set, Γ of CD-norm and every other set's radius."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.display.tables import Table
from bench.experiments.commands import options
from bench.experiments.commands.options import Session
from bench.experiments.presentation import figures, reporting, tables
from bench.experiments.presentation.tables import summary
from bench.experiments.runs import compare, sets
from bench.experiments.runs.task import Task

COMMAND = "robustness"
DATA = ["fashion-mnist", "sc-ma", "person-activity"]
METHOD = "AspireModels"
GRADIENTS = 4500
Found = dict[str, dict[float, list[dict[str, Any]]]]
"""Records by set and size."""


def main(arguments: list[str]) -> int:
    """Run the experiment, print the tables, write the files."""
    parser = options.parser(COMMAND, __doc__, DATA)
    parser.add_argument(
        "--sets", nargs="+", choices=tuple(sets.SETS), default=list(sets.SETS), help="only these sets"
    )
    parser.add_argument("--sizes", type=int, help="sizes of every set, from 0 to the whole simplex (6)")
    session = Session(parser, arguments, COMMAND)
    given = session.given
    given.gradients = given.gradients or (None if given.quick else GRADIENTS)
    count = given.sizes or (3 if given.quick else 6)
    if count < 2:
        raise SystemExit("--sizes must be at least 2")
    found: dict[str, Found] = {}
    with session.pool() as pool:
        for data in given.data:
            base = options.base(given, COMMAND, data)
            grid = tasks(base, given.sets, count, given.repeats, given.seed)
            title = f"{data}: {METHOD}, {len(given.sets)} sets"
            pool.run(title, [task for group in grid.values() for task in group], session.records)
            found[data] = {}
            for (name, size), group in grid.items():
                found[data].setdefault(name, {})[size] = pool.run(title, group, session.records)
    made = [table(data, parts) for data, parts in found.items()]
    remarks = (
        f"{METHOD} with default settings, {given.repeats} repeats, mean ± deviation. Every set's last size "
        "is the whole simplex; at 0 all weights are equal. "
    )
    session.publish(made, remarks + reporting.run_time(session.shown(), session.began))
    if figures.available():
        draw(given.out, found)
    return 0


def tasks(
    base: Task, names: list[str], count: int, repeats: int, seed: int
) -> dict[tuple[str, float], list[Task]]:
    """Return the tasks of a data set by set and size."""
    workers = compare.workers_of(base)
    settings = dict(compare.methods_of(base, workers)[METHOD].default)
    return {
        (name, size): [
            replace(base, method=METHOD, settings=settings, seed=seed + k, uncertainty=(name, size))
            for k in range(repeats)
        ]
        for name in names
        for size in sets.sizes(name, workers, count)
    }


def table(data: str, found: Found) -> Table:
    """Return the table of sets and sizes by metrics."""
    rows = []
    for name, parts in found.items():
        first = parts[min(parts)]
        for size, records in parts.items():
            cells = [
                tables.pm(summary(tables.values(records, metric, scale)), digits)
                for metric, scale, digits in (
                    ("acc_w_tail", 100.0, 2),
                    ("loss_w_last", 1.0, 3),
                    ("std_last", 100.0, 2),
                )
            ]
            tested = (
                tables.MISSING if records is first else reporting.difference(_tail(records), _tail(first), 2)
            )
            rows.append([f"{name}: {sets.SETS[name][0]}", f"{size:.3g}", *cells, tested])
    headings = ["set", "size", "Acc_w %, last fifth of the run", "Loss_w at the end", "Std"]
    headings.append(tables.difference_from("size 0", "Acc_w"))
    return Table(f"{data}: size of the set against worst-case performance", headings, rows)


def _tail(records: list[dict[str, Any]]) -> list[float | None]:
    return tables.values(records, "acc_w_tail", 100.0)


def mean(records: list[dict[str, Any]], metric: str, scale: float) -> float:
    """Return the mean over repeats, NaN if there is nothing."""
    found = summary(tables.values(records, metric, scale))
    return np.nan if found is None else found.mean


def draw(folder: Path, found: dict[str, Found]) -> None:
    """Draw worst loss and worst accuracy against the share of the largest size, one figure per data set."""
    for data, parts in found.items():
        with figures.canvas(folder, f"size-{data}", columns=2) as (loss, accuracy):
            panels = ((loss, "loss_w_last", 1.0), (accuracy, "acc_w_tail", 100.0))
            ends: dict[Any, list[Any]] = {loss: [], accuracy: []}
            for axes, metric, scale in panels:
                for number, (name, sizes) in enumerate(parts.items()):
                    look = figures.look(number)
                    largest = max(sizes)
                    x = [size / largest for size in sizes]
                    y = [mean(records, metric, scale) for records in sizes.values()]
                    axes.plot(x, y, **look)
                    ends[axes].append((x[-1], y[-1], name, look["color"]))
                axes.set_xlabel("size of the set, of the whole simplex's")
            loss.set_ylabel("worst worker's training loss")
            accuracy.set_ylabel("worst worker's test accuracy, %")
            loss.set_title(data)
            figures.label_all(ends)
