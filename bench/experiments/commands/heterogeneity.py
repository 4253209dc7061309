"""Table V: worst-worker accuracy and loss of every method on data that differs between workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.experiments.commands import options
from bench.experiments.commands.options import Session
from bench.experiments.presentation import figures, paper_numbers, reporting, tables
from bench.experiments.runs import compare, methods

COMMAND = "heterogeneity"
DATA = ["fashion-mnist", "sc-ma", "person-activity"]
VARIANTS = ("AspireModels", "AspireModels(-)", "AspireModels-ADP", "AspireModels_per")
MANY = 20  # workers: more are not tried one by one for max{Ind}
COLUMNS = (
    ("Acc_w %", "acc_w", 100.0, 2),
    ("Loss_w", "loss_w", 1.0, 3),
    ("Std", "std", 100.0, 2),
    ("Acc_w % at the end", "acc_w_last", 100.0, 2),
)


STAR = "black star: the paper's"


def main(arguments: list[str]) -> int:
    """Run the experiment, print the table, write the files."""
    session = Session(options.parser(COMMAND, __doc__, DATA), arguments, COMMAND)
    given = session.given
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with session.pool() as pool:
        for data in given.data:
            base = options.base(given, COMMAND, data)
            workers = compare.workers_of(base)
            names = given.methods or rows(given)
            if compare.one_class(base) or workers > MANY:
                names = [name for name in names if name != "max{Ind}"]  # it would learn a single label
            found[data] = compare.tuned_runs(pool, session.records, given, base, names, workers)
    made = [
        tables.comparison(
            data, data, runs, tables.with_fifth(COLUMNS, runs), paper_numbers.HETEROGENEITY, "AspireModels"
        )
        for data, runs in found.items()
    ]
    made.append(tables.settings_found(found))
    session.publish(made, reporting.about(given, session.shown(), session.began))
    if figures.available():
        for data, runs in found.items():
            draw(given.out, data, runs)
    return 0


def rows(given: Any) -> list[str]:
    """Return the table's methods."""
    return methods.names(*VARIANTS, preconditioned=given.preconditioned)


def draw(folder: Path, data: str, runs: dict[str, list[dict[str, Any]]]) -> None:
    """Draw the accuracy that is judged and the worst training loss of every method, mean ± deviation of runs.

    Stars are the paper's. max{Ind} is left out: it would fill the scale.
    """
    runs = {method: records for method, records in runs.items() if method != "max{Ind}"}
    if not runs:
        return
    judged = tables.with_fifth(COLUMNS, runs)[0]  # with hundreds of workers the worst fifth
    places = range(len(runs), 0, -1)
    with figures.canvas(folder, f"methods-{data}", columns=2, height=1.0 + 0.2 * len(runs)) as panels:
        for axes, (name, metric, scale, _) in zip(panels, (judged, COLUMNS[1]), strict=True):
            for place, (method, records) in zip(places, runs.items(), strict=True):
                found = [scale * record["metrics"][metric] for record in records]
                look = {"color": figures.color(method), "markersize": 4, "linewidth": 1.2}
                axes.errorbar(np.mean(found), place, xerr=np.std(found, ddof=len(found) > 1), fmt="o", **look)
                theirs = paper_numbers.find(paper_numbers.HETEROGENEITY, method, data, metric)
                if theirs is not None:
                    axes.plot(theirs[0], place, "k*", markersize=7)
            axes.set_yticks(list(places), list(runs) if axes is panels[0] else [""] * len(runs))
            axes.grid(axis="y", linewidth=0.3)
            axes.set_xlabel(f"{name}; {STAR}" if data in paper_numbers.NAMES else name)
        panels[0].set_title(f"{data}: mean ± deviation of {len(next(iter(runs.values())))} runs")
        panels[1].set_title(figures.KEY, fontsize=8)
