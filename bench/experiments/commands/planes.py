"""Figures 10-11: cutting planes over time, ASPIRE-EASE against ASPIRE-CP, which keeps all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.experiments.commands import options
from bench.experiments.presentation import figures, reporting, tables
from bench.experiments.presentation.statistics import summary
from bench.experiments.presentation.tables import Table, pm
from bench.experiments.runs import compare, curves
from bench.experiments.runs.execute import Pool
from bench.experiments.runs.records import Records
from bench.experiments.runs.timed import TimedTask, begin, perform

COMMAND = "planes"
DATA = ["person-activity", "sc-ma", "fashion-mnist"]
METHODS = ("ASPIRE-EASE", "ASPIRE-CP")
SECONDS = {"fashion-mnist": 150.0}
USUAL, QUICK = 400.0, 60.0
CLOSE = 1.01  # "there": the worst-case objective is within 1 % of the better method's last

SETS: dict[str, dict[str, Any]] = {"CD-norm": {"spread": 1.0}, "KL": {"uncertainty": ("kl", 0.3)}}
"""The paper's, deviations up to the prior and Γ = N/3; and one whose worst cases are all different."""

Runs = dict[tuple[str, str], list[dict[str, Any]]]
"""Records by set and method."""


def main(arguments: list[str]) -> int:
    """Run it, print the tables, write the files."""
    made = options.common(COMMAND, __doc__, DATA)
    made.add_argument("--seconds", type=float, help="virtual seconds of a run (400; Fashion-MNIST 150)")
    given = options.read(made, arguments, COMMAND)
    began, console = time.monotonic(), options.console()
    records = Records(given.out / "runs.jsonl", fresh=given.fresh, kind=TimedTask)
    found: dict[str, Runs] = {}
    with Pool(given.jobs, console, perform, given.plugins) as pool:
        for data in given.data:
            tasks = plan(given, data)
            flat = [task for some in tasks.values() for task in some]
            pool.run(f"{data}: {given.repeats} repeats", flat, records)
            found[data] = {
                name: [record for task in some if (record := records.get(task))]
                for name, some in tasks.items()
            }
    tables = [table(data, runs) for data, runs in found.items()]
    compare.publish(console, given.out, tables, remarks(given, list(records.known.values()), began))
    if figures.available():
        draw(given.out, found)
    return 0


def plan(given: Any, data: str) -> dict[tuple[str, str], list[TimedTask]]:
    """The tasks by set and method."""
    seconds = given.seconds or (QUICK if given.quick else SECONDS.get(data, USUAL))
    points = 20 if given.quick else 50
    base = begin(COMMAND, data, given.seed, seconds, l2=1e-3, points=points, held=0.0, parts=("train",))
    base = replace(base, budget=compare.workers_of(base) / 3)
    seeds = range(given.seed, given.seed + given.repeats)
    return {
        (name, method): [replace(base, method=method, seed=seed, **fixed) for seed in seeds]
        for name, fixed in SETS.items()
        for method in METHODS
    }


def there(record: Mapping[str, Any], level: float) -> float | None:
    """When the objective is at the level or below for good, None where it is not at the end."""
    objective = np.asarray(record["curve"]["objective"])
    above = np.flatnonzero(objective > level)
    after = 0 if above.size == 0 else int(above[-1]) + 1
    return None if after == objective.size else float(record["curve"]["clock"][after])


def table(data: str, runs: Runs) -> Table:
    """Planes, objective and time, set by set."""
    headings = ["set, method", "most planes", "planes at the end", "objective", "s to within 1 %"]
    headings += [f"objective less {METHODS[1].removeprefix('ASPIRE-')}'s (p: t, ranks)"]
    rows = []
    for name in SETS:
        pairs = zip(*(runs[name, method] for method in METHODS), strict=True)
        levels = [CLOSE * min(r["curve"]["objective"][-1] for r in pair) for pair in pairs]
        for method in METHODS:
            records = runs[name, method]
            rows.append(
                [
                    f"{name}, {method}",
                    pm(summary([max(record["curve"]["planes"]) for record in records]), 1),
                    pm(summary([record["curve"]["planes"][-1] for record in records]), 1),
                    pm(summary([record["objective"] for record in records]), 4),
                    reporting.seconds([there(r, at) for r, at in zip(records, levels, strict=True)]),
                    tables.MISSING if method == METHODS[1] else _less(records, runs[name, METHODS[1]]),
                ]
            )
    return Table(data, headings, rows)


def _less(records: list[dict[str, Any]], others: list[dict[str, Any]]) -> str:
    return reporting.less([r["objective"] for r in records], [r["objective"] for r in others], 5)


def draw(folder: Path, found: dict[str, Runs]) -> None:
    """Planes over time, a panel a data set; and the objective below, as a figure of its own."""
    for name, quantity, label in (
        ("planes", "planes", "cutting planes"),
        ("planes-objective", "objective", "worst-case objective"),
    ):
        with figures.canvas(folder, name, columns=len(found), width=4.0) as panels:
            labels: dict[Any, list[figures.End]] = {}
            for axes, (data, runs) in zip(panels, found.items(), strict=True):
                ends = []
                for number, ((kind, method), records) in enumerate(runs.items()):
                    times = np.linspace(*_span(records), 40)
                    mean, _ = curves.band(records, quantity, times)
                    look = figures.look(number) | {"marker": ""}
                    axes.plot(times, mean, **look)
                    ends.append(
                        (times[-1], mean[-1], f"{method.removeprefix('ASPIRE-')}, {kind}", look["color"])
                    )
                if quantity == "planes":
                    axes.set_yscale("log")
                    figures.plain_ticks(axes)
                axes.set_title(data)
                axes.set_xlabel("virtual seconds")
                axes.set_xlim(0, 1.1 * times[-1])
                axes.set_xticks([tick for tick in axes.get_xticks() if tick <= times[-1]])
                axes.spines["bottom"].set_bounds(0, times[-1])
                labels[axes] = ends
            panels[0].set_ylabel(f"{label}, mean of runs")
            figures.label_all(labels)


def _span(records: list[dict[str, Any]]) -> tuple[float, float]:
    clocks = [record["curve"]["clock"] for record in records]
    return max(clock[0] for clock in clocks), min(clock[-1] for clock in clocks)


def remarks(given: Any, records: list[dict[str, Any]], began: float) -> str:
    """How it was done."""
    return (
        "Softmax regression with l2 = 1e-3, full batches, S = 1, log-normal delays (median 1 s, sigma 0.5), "
        "the driver's default steps; EASE and CP see the same delays. CD-norm: deviations up to the prior, "
        "Γ = N/3. KL: radius 0.3. The time is that after which the worst-case objective stays within 1 % of "
        f"the lower of the two methods' last. {given.repeats} repeats, mean ± deviation. "
        f"{reporting.effort(records, began)}"
    )
