"""A command that measures numbers beside their targets: its options, the table, and a file."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from bench.measuring import machine
from bench.measuring.targets import Row, table
from uncertainty_sets.names import nearest

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
