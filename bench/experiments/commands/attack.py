"""Table VI: how often a backdoor works when malicious workers take part, method by method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.experiments.commands import options
from bench.experiments.commands.options import Session
from bench.experiments.presentation import figures, paper_numbers, reporting, tables
from bench.experiments.runs import backdoor, compare, methods
from bench.experiments.runs.task import federation

COMMAND = "attack"
DATA = ["fashion-mnist", "sc-ma", "person-activity"]
WITHOUT = {"max{Ind}"}  # learns from one worker alone, so that no other one can attack it
COLUMNS = (
    ("success %", "success", 100.0, 1),
    ("at the end", "success_last", 100.0, 1),
    ("honest Acc_w %", "acc_w", 100.0, 1),
    ("weight of malicious workers", "malicious", 1.0, 3),
)
GRADIENTS = 4500


def main(arguments: list[str]) -> int:
    """Run the experiment, print the table, write the files."""
    parser = options.parser(COMMAND, __doc__, DATA)
    parser.add_argument(
        "--trigger",
        nargs="+",
        default=["hidden"],
        choices=tuple(backdoor.TRIGGERS),
        help="hidden: resembles clean samples, hard to learn; bright: resembles none, easy to learn",
    )
    session = Session(parser, arguments, COMMAND)
    given = session.given
    given.gradients = given.gradients or (None if given.quick else GRADIENTS)
    found: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    with session.pool() as pool:
        for data in given.data:
            for kind in given.trigger:
                base = options.base(given, COMMAND, data)
                base = options.base(given, COMMAND, data, attack=backdoor.settings(federation(base), kind))
                workers = compare.workers_of(base)
                names = given.methods or methods.names(
                    "AspireModels",
                    without=WITHOUT,
                    preconditioned=given.preconditioned,
                )
                runs = compare.tuned_runs(pool, session.records, given, base, names, workers)
                found[data, kind] = {name: [_weigh(record) for record in rs] for name, rs in runs.items()}
    made = [
        tables.comparison(
            f"{data}, {kind} trigger ({tables.settings_text(next(iter(runs.values()))[0]['attack'])})",
            data,
            runs,
            COLUMNS,
            paper_numbers.ATTACK,
            "AspireModels",
        )
        for (data, kind), runs in found.items()
    ]
    made.append(tables.settings_found({f"{data}, {kind}": runs for (data, kind), runs in found.items()}))
    session.publish(made, reporting.about(given, session.shown(), session.began))
    if figures.available():
        draw(given.out, found)
    return 0


def _weigh(record: dict[str, Any]) -> dict[str, Any]:
    """Add the weight that all malicious workers together have at the end."""
    weights, count = record["weights"], record["attack"]["count"]
    total = None if weights is None else float(np.sum(weights[-count:]))
    return record | {"metrics": record["metrics"] | {"malicious": total}}


def draw(folder: Path, found: dict[tuple[str, str], dict[str, list[dict[str, Any]]]]) -> None:
    """Draw success rates by method: a dot per run, a bar for the mean, a star for the paper's."""
    with figures.canvas(folder, "success", columns=len(found), width=3.4) as axes:
        for place, (each, ((data, kind), runs)) in enumerate(zip(axes, found.items(), strict=True)):
            for row, (method, records) in enumerate(runs.items()):
                rates = np.array([100 * record["metrics"].get("success", np.nan) for record in records])
                each.plot(rates, np.full(rates.size, row), "o", color="#666666", markersize=3, alpha=0.6)
                each.plot([rates.mean()] * 2, [row - 0.3, row + 0.3], color="black", linewidth=2)
                cell = paper_numbers.find(paper_numbers.ATTACK, method, data, "success")
                if cell is not None:
                    each.plot(cell[0], row, "k*", markersize=8, fillstyle="none")
            each.set_yticks(range(len(runs)), list(runs) if place == 0 else [""] * len(runs))
            each.invert_yaxis()
            each.set_xlim(0, 100)
            each.set_title(f"{data}, {kind} trigger")
            each.set_xlabel("attack succeeds on, % of samples")
        axes[0].figure.supxlabel("dots: runs, bar: their mean, star: the paper's", fontsize=8)
