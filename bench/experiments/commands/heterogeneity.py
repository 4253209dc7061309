"""Table V: worst-worker accuracy and loss of every method on data that differs between workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.experiments.commands import options
from bench.experiments.commands.session import Session
from bench.experiments.presentation import figures, paper_numbers, reporting, tables
from bench.experiments.runs import compare, methods

COMMAND = "heterogeneity"
DATA = ["fashion-mnist", "sc-ma", "person-activity"]
VARIANTS = ("ASPIRE-EASE", "ASPIRE-EASE_per")
MANY = 20  # workers: more are not tried one by one for max{Ind}
COLUMNS = (
    ("Acc_w %", "acc_w", 100.0, 2),
    ("Loss_w", "loss_w", 1.0, 3),
    ("Std", "std", 100.0, 2),
    ("Acc_w % at the end", "acc_w_last", 100.0, 2),
)


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
            data, data, runs, tables.with_fifth(COLUMNS, runs), paper_numbers.HETEROGENEITY, "ASPIRE-EASE"
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
    return methods.names(*VARIANTS, preconditioned=given.preconditioned, edition=given.edition)


def draw(folder: Path, data: str, runs: dict[str, list[dict[str, Any]]]) -> None:
    """Draw test Acc_w against the worst training loss and against gradients, the mean over repeats.

    max{Ind} is left out: its losses on other workers' data would fill the scale.
    """
    runs = {method: records for method, records in runs.items() if method != "max{Ind}"}
    if not runs:
        return
    with figures.canvas(folder, f"curve-{data}", columns=2) as (by_loss, by_work):
        ends: dict[Any, list[Any]] = {by_loss: [], by_work: []}
        for number, (method, records) in enumerate(runs.items()):
            look = figures.look(number)
            accuracy, _ = figures.band(records, "acc_w")
            for axes, name in ((by_loss, "loss_w"), (by_work, "gradients")):
                x, _ = figures.band(records, name)
                axes.plot(x, 100 * accuracy, markevery=5, label=method, **look)
                ends[axes].append((x[-1], 100 * accuracy[-1], method, look["color"]))
        by_loss.invert_xaxis()
        by_loss.set_xlabel("worst worker's training loss (falls to the right)")
        by_work.set_xlabel("gradients, all workers together")
        by_work.locator_params(axis="x", nbins=5)
        by_loss.set_ylabel("worst worker's test accuracy, %")
        by_loss.set_title(f"{data}: mean of {len(next(iter(runs.values())))} runs")
        for method, below in (("AFL", 11), ("ASPIRE-EASE", 0)):
            cell = paper_numbers.find(paper_numbers.HETEROGENEITY, method, data, "acc_w")
            loss = paper_numbers.find(paper_numbers.HETEROGENEITY, method, data, "loss_w")
            if cell is not None and loss is not None:
                by_loss.plot(loss[0], cell[0], "k*", markersize=8)
                by_loss.annotate(
                    f"paper's {method}",
                    (loss[0], cell[0]),
                    fontsize=7,
                    xytext=(4, 4 - below),
                    textcoords="offset points",
                )
        figures.direct_labels(by_work, ends[by_work])
