"""Compare two result files as ratios, the largest change first: what became slower, what faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.complexity.report import power
from bench.complexity.store import load
from bench.measuring import machine
from bench.measuring.targets import Parser, number


class Number(NamedTuple):
    """A number of a result file; `worse` is +1 if larger is worse, -1 if smaller is."""

    value: float
    worse: int


class Change(NamedTuple):
    """A number that both files have; `ratio` > 1 means worse in the second."""

    what: str
    before: float
    after: float
    ratio: float


def numbers(document: dict[str, Any]) -> dict[str, Number]:
    """Return what can be compared: machine-independent ratios if there are any, else the numbers."""
    if document["command"] == "oracles":
        return {
            f"{row['group'].split(' (')[0]}: {row['what']}": Number(
                row["value"], -1 if row["at_least"] else 1
            )
            for row in document["rows"]
            if row["value"] and row["value"] > 0.0 and not row["group"].startswith("exactness")
        }
    found = {}
    for cell in document["cells"]:
        if cell["over_argsort"] and cell["outcome"] == "solved":
            title = f"{cell['set']}, {cell['variant']}" if cell["variant"] else cell["set"]
            key = f"{title}: {cell['method']}, N = {power(cell['size'])}, over argsort"
            found[key] = Number(cell["over_argsort"], 1)
    for row in document["overall"]:
        found[f"{row['set']}: a whole run, over its gradients"] = Number(row["total"] / row["gradient"], 1)
    return found


def changes(first: dict[str, Any], second: dict[str, Any]) -> tuple[list[Change], list[str]]:
    """Return every number of both, worst first, and what only one of them has."""
    a, b = numbers(first), numbers(second)
    both = [
        Change(what, a[what].value, b[what].value, (b[what].value / a[what].value) ** a[what].worse)
        for what in a
        if what in b
    ]
    alone = [f"only in the first: {what}" for what in a if what not in b]
    alone += [f"only in the second: {what}" for what in b if what not in a]
    return sorted(both, key=lambda change: -change.ratio), alone


def main(arguments: list[str]) -> int:
    """Print the changes; the exit code is 1 if something is slower than `--tolerance` allows."""
    parser = Parser(prog="python -m bench compare", description=__doc__)
    parser.add_argument("first", type=Path, help="a result file or folder")
    parser.add_argument("second", type=Path, help="another, of the same command")
    parser.add_argument("--tolerance", type=float, default=1.5, help="a ratio above this is a regression")
    parser.add_argument("--all", action="store_true", help="show what did not change, too")
    options = parser.parse_args(arguments)
    first, second = load(options.first), load(options.second)
    if first["command"] != second["command"]:
        raise SystemExit(f"cannot compare {first['command']} with {second['command']} results")
    found, alone = changes(first, second)
    console = Console()
    table = Table("what", "first", "second", "second over first", title="Worse above 1", title_justify="left")
    for change in found:
        notable = change.ratio > options.tolerance or change.ratio < 1 / options.tolerance
        if notable or options.all:
            style = "bold red" if change.ratio > options.tolerance else "green" if notable else ""
            mark = "slower" if change.ratio > options.tolerance else "faster" if notable else ""
            ratio = f"{change.ratio:.2f} {mark}".strip()
            table.add_row(change.what, number(change.before), number(change.after), ratio, style=style)
    if table.row_count:
        console.print(table)
    for line in alone if options.all else []:
        console.print(line, soft_wrap=True)
    worse = sum(change.ratio > options.tolerance for change in found)
    console.print(
        f"{len(found)} numbers in both, {worse} worse by more than {options.tolerance:g}×, "
        f"{len(alone)} in only one. Noise of tens of percent is usual on a shared machine.",
        soft_wrap=True,
    )
    if first["machine"]["processor"] != second["machine"]["processor"]:
        console.print("Different machines:", soft_wrap=True)
        console.print("  first:  " + machine.line(first["machine"]), soft_wrap=True)
        console.print("  second: " + machine.line(second["machine"]), soft_wrap=True)
    return 1 if worse else 0
