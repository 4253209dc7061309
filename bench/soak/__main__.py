"""Attack the oracles for a given time: adversarial cases, with every certificate recomputed independently.

`python -m bench soak --minutes 30 [--set NAME ...] [--seed S] [--json FILE]`. The time decides only how many
batches there are: batch K of a set and a seed is always the same, and `--set NAME --replay K` runs it
alone. The exit code is 1 if an answer was wrong, had no proof, or was an error.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bench.measuring import machine
from bench.soak.parameters import MAKERS
from bench.soak.questions import QUESTIONS
from bench.soak.record import Record
from bench.soak.rounds import run, schedule, warm_up


def report(record: Record, seconds: float, console: Console) -> None:
    """Print the table of cases and the failures."""
    table = Table(title="Cases by set and generator")
    for title in (
        "set",
        "generator",
        "cases",
        "wrong",
        "by solver",
        "excused",
        "largest gap",
        "least gap",
        "violation",
    ):
        table.add_column(title, justify="left" if title in {"set", "generator"} else "right")
    for (name, generator), cell in sorted(record.cells.items()):
        table.add_row(
            name,
            generator,
            f"{cell.cases:,}",
            f"{cell.wrong:,}" if cell.wrong else "",
            f"{cell.by_solver:,}" if cell.by_solver else "",
            f"{cell.excused:,}" if cell.excused else "",
            f"{cell.gap:.1e}",
            f"{cell.least_gap:.1e}",
            f"{cell.violation:.1e}",
        )
    console.print(table)
    console.print(
        "excused: the bound from `dual` as doubles misses the promise, but a multiplier that rounds to the "
        "same double (or to infinity or 0) keeps it.",
        soft_wrap=True,
    )
    shown: set[tuple[str, str]] = set()
    by_size = sorted(
        record.failures.values(), key=lambda each: (each.set, each.kind, not each.snippet, each.size)
    )
    for failure in by_size:
        fresh = (failure.set, failure.kind) not in shown  # the smallest example is enough
        shown.add((failure.set, failure.kind))
        console.print(
            f"{failure.set}, {failure.generator}: {failure.kind}, {failure.count:,} times; here "
            f"{failure.amount:.3g}, allowed {failure.allowed:.3g}. {failure.error}\n"
            f"  {failure.replay}" + (f"\n  {failure.snippet}" if fresh and failure.snippet else ""),
            soft_wrap=True,
            markup=False,
            highlight=False,
        )
    console.print(
        f"{record.cases:,} cases in {seconds:.0f} s ({record.cases / max(seconds, 1e-9):,.0f} per second), "
        f"{record.wrong:,} wrong, {len(record.failures)} kinds of failure; {record.compared:,} cases "
        "were also compared with another solver."
    )


def document(record: Record, seconds: float) -> dict[str, object]:
    """What `report` prints, for a file."""
    return {
        "schema": 1,
        "command": "soak",
        "machine": machine.describe(),
        "seed": record.seed,
        "seconds": seconds,
        "cases": record.cases,
        "wrong": record.wrong,
        "compared": record.compared,
        "cells": [
            {"set": name, "generator": generator, **asdict(cell)}
            for (name, generator), cell in sorted(record.cells.items())
        ],
        "failures": [asdict(failure) for failure in record.failures.values()],
    }


def main(arguments: list[str]) -> int:
    """Run the rounds and print what was found; return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench soak", description=__doc__)
    everything = [*MAKERS, *QUESTIONS]
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--batches", type=int, help="end after this many batches, or when the time is over")
    parser.add_argument("--set", nargs="+", choices=everything, metavar="NAME", help=", ".join(everything))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", type=int, metavar="K", help="run batch K of each set alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers and failures there too")
    options = parser.parse_args(arguments)
    names = options.set or everything
    console, record = Console(width=150), Record(options.seed)
    with console.status("compiling the kernels"):
        warm_up(names)
    begin = time.monotonic()
    try:
        if options.replay is not None:
            for name in names:
                run(record, name, options.replay)
        else:
            _soak(names, record, 60.0 * options.minutes, options.batches, console)
    except KeyboardInterrupt:
        console.print("Interrupted; results so far:")
    seconds = time.monotonic() - begin
    report(record, seconds, console)
    if options.json:
        text = json.dumps(document(record, seconds), indent=1, ensure_ascii=False)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 1 if record.failures else 0


def _soak(names: list[str], record: Record, seconds: float, batches: int | None, console: Console) -> None:
    """Run until the time is over or all batches are done."""
    begin = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("soak", total=seconds)
        for name, turn in islice(schedule(names), batches):
            run(record, name, turn)
            elapsed = time.monotonic() - begin
            wrong = f", {record.wrong:,} wrong" if record.wrong else ""
            progress.update(task, completed=elapsed, description=f"{record.cases:,} cases{wrong}")
            if elapsed >= seconds:
                return
