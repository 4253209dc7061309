"""Measure the oracles against their targets: exactness, speed, small calls, imports, memory."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console

from bench.measuring import machine
from bench.measuring.targets import Row, table
from bench.oracles import cd_norm as oracle_cd_norm
from bench.oracles import compiled as oracle_compiled
from bench.oracles import exact as oracle_exact
from bench.oracles import hard as oracle_hard
from bench.oracles import plugins as oracle_plugins
from bench.oracles import process as oracle_process
from bench.oracles import ragged as oracle_ragged
from bench.oracles import rows as oracle_rows
from bench.oracles import solvers as oracle_solvers
from bench.oracles import speed as oracle_speed

Say = Callable[[str], None]


def measurements(quick: bool, seed: int, scale: float, say: Say) -> dict[str, Callable[[], Iterable[Row]]]:
    """What is measured, by name; `scale` shrinks the sizes (for tests; the numbers then mean nothing)."""

    def n(size: int) -> int:
        return max(10, int(size * scale))

    few, many = (5, 7) if quick else (11, 21)
    sizes = [size for size in oracle_exact.SIZES if size <= max(10, 10**6 * scale)]
    return {
        "exact": lambda: oracle_exact.measure(sizes, seed, say),
        "argsort": lambda: oracle_speed.against_argsort(n(10**6), few, seed, say),
        "radius-for": lambda: oracle_speed.radius_for(n(5 * 10**5), few, seed, say),
        "cd-norm": lambda: oracle_cd_norm.every_kind(n(10**6), few, seed, say),
        "line": lambda: oracle_speed.line_losses(n(10**6), few, seed, say),
        "hard": lambda: [
            *oracle_hard.against_ordinary(n(10**5), few, seed, say),
            *oracle_hard.against_selection(n(10**6), few, seed, say),
        ],
        "small": lambda: oracle_speed.small_calls(many, seed, say),
        "batch": lambda: oracle_speed.batches(n(10**5), few, seed, say),
        "rows": lambda: oracle_rows.measure(n(10**6 if not quick else 10**5), few, seed, say),
        "ragged": lambda: oracle_ragged.measure(n(10**5 if quick else 10**6), few, seed, say),
        "clarabel": lambda: oracle_solvers.against_clarabel(n(10**3 if quick else 10**4), few, seed, say),
        "programs": lambda: oracle_solvers.small_problems(
            n(60 if quick else 200), n(200 if quick else 500), few, seed, say
        ),
        "polyhedron": lambda: oracle_solvers.polyhedron(n(10**3), n(200), many, seed, say),
        "first": lambda: oracle_compiled.first_answers(3 if quick else 9, not quick, say),
        "compiled": lambda: oracle_compiled.over_numba(n(10**6), many, seed, say),
        "plugins": lambda: oracle_plugins.rows(n(100), 10, few, seed, say),
        "import": lambda: oracle_process.imports(3 if quick else 9, say),
        "cache": lambda: oracle_process.cache(fresh=not quick, say=say),
        "memory": lambda: oracle_process.memory(n(10**6), say),
    }


def main(arguments: list[str]) -> int:
    """Measure, print the table, and exit with 0 even if a target is missed: a benchmark is not a test."""
    names = list(measurements(True, 0, 1.0, print))
    parser = argparse.ArgumentParser(prog="python -m bench oracles", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer repeats, smaller programs for the solvers"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="PART", help=", ".join(names)
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    console = Console()
    rows: list[Row] = []
    with warnings.catch_warnings(), console.status("starting") as status:
        warnings.simplefilter("ignore")  # cvxpy warns of inaccurate solutions, which are counted here
        parts = measurements(options.quick, options.seed, options.scale, status.update)
        try:
            for name in options.only:
                rows.extend(parts[name]())
        except KeyboardInterrupt:  # what was measured is shown and written all the same
            console.print("Interrupted; the numbers so far:")
    described = machine.describe()
    console.print(table(rows, "The oracles' numbers"))
    console.print(machine.line(described), soft_wrap=True)
    missed = [each for each in rows if each.met is False]
    judged = sum(each.met is not None for each in rows)
    console.print(f"{judged - len(missed)} of {judged} targets met.")
    if options.json:
        document = {
            "schema": 1,
            "command": "oracles",
            "quick": options.quick,
            "machine": described,
            "rows": [each.record() for each in rows],
        }
        options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0
