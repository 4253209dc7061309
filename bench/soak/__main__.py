"""The oracles under attack for a given time: adversarial cases, every certificate recomputed outside.

`python -m bench soak --minutes 30 [--set NAME ...] [--seed S] [--json FILE]`. Time decides only how many rounds
are run: round k of a seed is always the same batch, and `--replay K` runs it alone. Exit code 1 where an answer
was wrong, had no proof, or was an error.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bench import machine
from bench.soak.asking import ask
from bench.soak.cases import GENERATORS, Case, draw
from bench.soak.judge import judge
from bench.soak.parameters import MAKERS
from bench.soak.record import Record

CONIC_EVERY = 8
"""Sets that a conic solver answers take a turn in so many: a case there costs a thousand times as much."""


def schedule(names: list[str], number: int) -> tuple[str, tuple[str, str]]:
    """The set and the generator of a round."""
    turn, at = divmod(number, len(names))
    name = names[at]
    return name, GENERATORS[turn % len(GENERATORS)]


def round_case(names: list[str], seed: int, number: int) -> Case:
    """The batch of that round: the same whenever it is asked for."""
    name, generator = schedule(names, number)
    return draw(name, generator, np.random.default_rng([seed, number]))


def soak(names: list[str], seed: int, record: Record, rounds: range, until: float = np.inf) -> int:
    """Run rounds until they or the time are over; returns the number of the next one."""
    for number in rounds:
        if time.monotonic() >= until:
            return number
        turn, at = divmod(number, len(names))
        if MAKERS[names[at]].conic and turn % CONIC_EVERY and not all(MAKERS[name].conic for name in names):
            continue
        case = round_case(names, seed, number)
        answers = ask(case)
        record.add(number, case, answers, judge(case, answers))
    return rounds.stop


def report(record: Record, seconds: float, console: Console) -> None:
    """Two tables and the failures."""
    table = Table(title="Cases by set and generator")
    for title in ("set", "generator", "cases", "wrong", "by solver", "largest gap", "least gap", "violation"):
        table.add_column(title, justify="left" if title in {"set", "generator"} else "right")
    for (name, generator), cell in sorted(record.cells.items()):
        table.add_row(
            name,
            generator,
            f"{cell.cases:,}",
            f"{cell.wrong:,}" if cell.wrong else "",
            f"{cell.by_solver:,}" if cell.by_solver else "",
            f"{cell.gap:.1e}",
            f"{cell.least_gap:.1e}",
            f"{cell.violation:.1e}",
        )
    console.print(table)
    shown: set[tuple[str, str]] = set()
    by_size = sorted(record.failures.values(), key=lambda each: (each.set, each.kind, not each.snippet, each.size))
    for failure in by_size:
        fresh = (failure.set, failure.kind) not in shown  # the smallest example of a kind is enough to start with
        shown.add((failure.set, failure.kind))
        console.print(
            f"{failure.set}, {failure.generator}: {failure.kind}, {failure.count:,} times; here "
            f"{failure.amount:.3g} where {failure.allowed:.3g} is allowed. {failure.error}\n  {failure.replay}"
            + (f"\n  {failure.snippet}" if fresh and failure.snippet else ""),
            soft_wrap=True,
            markup=False,
            highlight=False,
        )
    console.print(
        f"{record.cases:,} cases in {seconds:.0f} s ({record.cases / max(seconds, 1e-9):,.0f} a second), "
        f"{record.wrong:,} wrong, {len(record.failures)} kinds of failure."
    )


def document(record: Record, seconds: float) -> dict[str, object]:
    """The same for a file."""
    return {
        "schema": 1,
        "command": "soak",
        "machine": machine.describe(),
        "seed": record.seed,
        "seconds": seconds,
        "cases": record.cases,
        "wrong": record.wrong,
        "cells": [
            {"set": name, "generator": generator, **asdict(cell)}
            for (name, generator), cell in sorted(record.cells.items())
        ],
        "failures": [asdict(failure) for failure in record.failures.values()],
    }


def main(arguments: list[str]) -> int:
    """Run the rounds, print what was found; 1 where anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, help="end after so many rounds, whatever the time")
    parser.add_argument("--set", nargs="+", choices=list(MAKERS), metavar="NAME", help=", ".join(MAKERS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", type=int, metavar="K", help="run round K alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers and failures there too")
    options = parser.parse_args(arguments)
    names = options.set or list(MAKERS)
    console, record = Console(width=150), Record(options.seed)
    first, last = (options.replay, options.replay + 1) if options.replay is not None else (0, options.rounds)
    begin = time.monotonic()
    until = begin + 60.0 * options.minutes
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("soak", total=options.minutes * 60.0)
            number = first
            while (last is None or number < last) and time.monotonic() < until:
                stop = number + 64 if last is None else min(number + 64, last)
                number = soak(names, options.seed, record, range(number, stop), until)
                wrong = f", {record.wrong:,} wrong" if record.wrong else ""
                progress.update(task, completed=time.monotonic() - begin, description=f"{record.cases:,} cases{wrong}")
    except KeyboardInterrupt:
        console.print("Interrupted; what was seen so far:")
    seconds = time.monotonic() - begin
    report(record, seconds, console)
    if options.json:
        text = json.dumps(document(record, seconds), indent=1, ensure_ascii=False)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 1 if record.failures else 0
