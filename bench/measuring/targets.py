"""A command that measures numbers beside their targets: a row for each, the options, the table, a file."""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table

from bench.measuring import machine
from bench.measuring.timing import Spread
from uncertainty_sets.registry import nearest


@dataclass(frozen=True)
class Row:
    """One number.

    Attributes:
        group: the heading it stands under.
        what: what was measured, the same words in every run.
        value: the number.
        unit: "×" for ratios, else as in "µs".
        limit: the target, None if the number is only for information.
        at_least: whether the target is a lower bound.
        low, high: the quartiles over the rounds.
        note: the worst case, failures, and the like.
    """

    group: str
    what: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False
    low: float = math.nan
    high: float = math.nan
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if there is none."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def record(self) -> dict[str, Any]:
        """The row for a JSON file: numbers that are not finite become null."""
        entries = {**asdict(self), "met": self.met}
        return {key: None if _not_finite(value) else value for key, value in entries.items()}


def row(
    group: str,
    what: str,
    measured: Spread,
    unit: str,
    limit: float | None = None,
    *,
    at_least: bool = False,
    note: str = "",
) -> Row:
    """A row from a median and its quartiles."""
    return Row(group, what, measured.median, unit, limit, at_least, measured.low, measured.high, note)


def table(rows: list[Row], title: str) -> Table:
    """The rows as a person reads them."""
    shown = Table(title=title, title_justify="left")
    for heading in ("what", "target", "measured", "quartiles", "met", "note"):
        shown.add_column(
            heading, justify="right" if heading in {"target", "measured", "quartiles"} else "left"
        )
    group = ""
    for each in rows:
        if each.group != group:
            group = each.group
            shown.add_section()
            shown.add_row(f"[bold]{group}[/bold]", "", "", "", "", "")
        limit = (
            "" if each.limit is None else f"{'≥' if each.at_least else '≤'} {number(each.limit)} {each.unit}"
        )
        quartiles = "" if _not_finite(each.low) else f"{number(each.low)} … {number(each.high)}"
        met = {None: "", True: "[green]yes[/green]", False: "[bold red]NO[/bold red]"}[each.met]
        shown.add_row(each.what, limit, f"{number(each.value)} {each.unit}", quartiles, met, each.note)
    return shown


def number(value: float) -> str:
    """Format a number with three digits, separated thousands, and an exponent only if needed."""
    if not math.isfinite(value):
        return "n/a"
    size = abs(value)
    if value == 0.0 or 1e-3 <= size < 1e3:
        return f"{value:.3g}"
    return f"{float(f'{value:.3g}'):,.0f}" if 1e3 <= size < 1e7 else f"{value:.1e}"


def _not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


Say = Callable[[str], None]
Measurements = Callable[[bool, int, float, Say], dict[str, Callable[[], Iterable[Row]]]]
"""What is measured, by name, given --quick, the seed, a factor of the sizes, and how to show progress."""


class Parser(argparse.ArgumentParser):
    """A parser that suggests an option for one that it does not know."""

    def error(self, message: str) -> NoReturn:
        """Exit with the message, after a line of the usage."""
        lead = "unrecognized arguments: "
        if message.startswith(lead):
            options = [name for action in self._actions for name in action.option_strings if name[1] == "-"]
            unknown = message.removeprefix(lead).split()[0].partition("=")[0]
            message = f"there is no option {unknown}{nearest(unknown, options)}"
        super().error(message)


def run(
    arguments: list[str], name: str, title: str, about: str, quick: str, measurements: Measurements
) -> int:
    """Measure, print the table, and return 0 even if a target is missed: a benchmark is not a test.

    Args:
        arguments: of the command line.
        name: of the command.
        title: over the table.
        about: the command's description.
        quick: what --quick does.
        measurements: the parts.
    """
    names = list(measurements(True, 0, 1.0, print))
    parser = Parser(prog=f"python -m bench {name}", description=about)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="PART", help=", ".join(names)
    )
    parser.add_argument("--seed", type=int, default=0)
    # Of the sizes, for tests; the numbers then mean nothing.
    parser.add_argument("--scale", type=float, default=1.0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    console = Console()
    rows: list[Row] = []
    with warnings.catch_warnings(), console.status("starting") as status:
        warnings.simplefilter("ignore")  # cvxpy warns of inaccurate solutions, which are counted here
        parts = measurements(options.quick, options.seed, options.scale, status.update)
        try:
            for part in options.only:
                rows.extend(parts[part]())
        except KeyboardInterrupt:  # what was measured is shown and written all the same
            console.print("Interrupted; the numbers so far:")
    described = machine.describe()
    console.print(table(rows, title))
    console.print(machine.line(described), soft_wrap=True)
    missed = [each for each in rows if each.met is False]
    judged = sum(each.met is not None for each in rows)
    console.print(f"{judged - len(missed)} of {judged} targets met.")
    if options.json:
        document = {
            "schema": 1,
            "command": name,
            "quick": options.quick,
            "machine": described,
            "rows": [each.record() for each in rows],
        }
        options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def run_sections(sections: Mapping[str, Callable[[], None]], names: list[str], console: Console) -> int:
    """Run the sections named, each under its docstring; return 2 if a name is unknown."""
    unknown = [name for name in names if name not in sections]
    if unknown:
        print(f"no section {', '.join(unknown)}; there are: {', '.join(sections)}")
        return 2
    for name in names or sections:
        console.rule(f"{name}: {sections[name].__doc__}", align="left")
        sections[name]()
    return 0
