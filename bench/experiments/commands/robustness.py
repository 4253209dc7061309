"""Figures 6-7: the worst worker against the size of the set, Γ of CD-norm and every other set's radius."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.experiments.commands import options
from bench.experiments.presentation import figures, reporting, tables
from bench.experiments.presentation.statistics import summary
from bench.experiments.presentation.tables import Table
from bench.experiments.runs import compare, methods, sets
from bench.experiments.runs.execute import Pool
from bench.experiments.runs.records import Records
from bench.experiments.runs.task import Task

COMMAND = "robustness"
DATA = ["fashion-mnist", "sc-ma", "person-activity"]
METHOD = "ASPIRE-EASE"
GRADIENTS = 4500
Found = dict[str, dict[float, list[dict[str, Any]]]]
"""Records by set and size."""


def main(arguments: list[str]) -> int:
    """Run it, print the tables, write the files."""
    parser = options.parser(COMMAND, __doc__, DATA)
    parser.add_argument(
        "--sets", nargs="+", choices=tuple(sets.SETS), default=list(sets.SETS), help="only these sets"
    )
    parser.add_argument("--sizes", type=int, help="sizes of every set, from 0 to the whole simplex (6)")
    given = options.read(parser, arguments, COMMAND)
    given.gradients = given.gradients or (None if given.quick else GRADIENTS)
    count = given.sizes or (3 if given.quick else 6)
    if count < 2:
        raise SystemExit("--sizes must be at least 2")
    began, console = time.monotonic(), options.console()
    records = Records(given.out / "runs.jsonl", fresh=given.fresh)
    found: dict[str, Found] = {}
    with Pool(given.jobs, console, files=given.plugins) as pool:
        for data in given.data:
            base = options.base(given, COMMAND, data)
            grid = tasks(base, given.sets, count, given.repeats, given.seed)
            pool.run(
                f"{data}: {METHOD}, {len(given.sets)} sets", [t for g in grid.values() for t in g], records
            )
            found[data] = {}
            for (name, size), group in grid.items():
                found[data].setdefault(name, {})[size] = [r for task in group if (r := records.get(task))]
    made = [table(data, parts) for data, parts in found.items()]
    remarks = (
        f"{METHOD} with default settings, {given.repeats} repeats, mean ± deviation. Every set's last size "
        "is the whole simplex; at 0 all weights are equal. "
    )
    compare.publish(console, given.out, made, remarks + compare.run_time(records.of(given.data), began))
    if figures.available():
        draw(given.out, found)
    return 0


def tasks(
    base: Task, names: list[str], count: int, repeats: int, seed: int
) -> dict[tuple[str, float], list[Task]]:
    """The tasks of a data set by set and size."""
    workers = compare.workers_of(base)
    settings = dict(methods.registry(workers)[METHOD].default)
    return {
        (name, size): [
            replace(base, method=METHOD, settings=settings, seed=seed + k, uncertainty=(name, size))
            for k in range(repeats)
        ]
        for name in names
        for size in sets.sizes(name, workers, count)
    }


def table(data: str, found: Found) -> Table:
    """Sets and sizes down, metrics across."""
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
            tested = tables.MISSING if records is first else reporting.less(_tail(records), _tail(first), 2)
            rows.append([f"{name}: {sets.SETS[name][0]}", f"{size:.3g}", *cells, tested])
    headings = ["set", "size", "Acc_w %, last fifth of the run", "Loss_w at the end", "Std"]
    headings.append("Acc_w less size 0's (p: t, ranks)")
    return Table(f"{data}: size of the set against worst-case performance", headings, rows)


def _tail(records: list[dict[str, Any]]) -> list[float | None]:
    return tables.values(records, "acc_w_tail", 100.0)


def mean(records: list[dict[str, Any]], metric: str, scale: float) -> float:
    """Over repeats, NaN where there is nothing."""
    found = summary(tables.values(records, metric, scale))
    return np.nan if found is None else found.mean


def draw(folder: Path, found: dict[str, Found]) -> None:
    """For every data set, worst loss and worst accuracy against the share of the largest size."""
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
