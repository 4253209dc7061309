"""Measure robust Markov decision processes against their targets: rows, sweeps, whole problems."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rich.console import Console

from bench.mdp import solving, sweeps
from bench.measuring import machine
from bench.measuring.targets import Row, table

Say = Callable[[str], None]


def measurements(quick: bool, seed: int, scale: float, say: Say) -> dict[str, Callable[[], list[Row]]]:
    """What is measured, by name; `scale` shrinks the sizes (for tests; the numbers then mean nothing)."""
    rounds = 5 if quick else 15
    return {
        "rows": lambda: sweeps.per_row(max(60, int(5_000 * scale)), rounds, seed, say),
        "joint": lambda: sweeps.joint(rounds, seed, say),
        "small": lambda: solving.small(say),
        "large": lambda: solving.large(max(60, int((20_000 if quick else 100_000) * scale)), seed, say),
    }


def main(arguments: list[str]) -> int:
    """Measure and print the table; return 0 even if a target is missed: a benchmark is not a test."""
    names = list(measurements(True, 0, 1.0, print))
    parser = argparse.ArgumentParser(prog="python -m bench mdp", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, 20,000 states")
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="PART", help=", ".join(names)
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    console = Console()
    rows: list[Row] = []
    with console.status("starting") as status:
        parts = measurements(options.quick, options.seed, options.scale, status.update)
        try:
            for name in options.only:
                rows.extend(parts[name]())
        except KeyboardInterrupt:  # what was measured is shown all the same
            console.print("Interrupted; the numbers so far:")
    console.print(table(rows, "Robust Markov decision processes"))
    console.print(machine.line(machine.describe()), soft_wrap=True)
    return 0
