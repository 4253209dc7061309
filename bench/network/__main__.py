"""A network on one machine: runs on Ray and Flower under delay, loss, a partition, a dead head, wrong clocks.

Every host is a set of Linux namespaces, joined by a switch in user space; nodes are started by the documented
commands (docs/network.md). It needs root and TAP devices. Elsewhere hosts are addresses of the loopback
interface, and what needs the switch is left out. `--quick` has the undisturbed run and all three together.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.display.tables import Table, console
from bench.measuring import machine
from bench.network.disturbances import ALL, UNDISTURBED
from bench.network.namespaces import refusal
from bench.network.rows import TRANSPORTS, Row, measure

TARGET = 0.01
QUICK = ("together",)


def main(arguments: list[str]) -> int:
    """Run what was asked for; return 1 if a run neither ended within 1 % nor said what was lost."""
    names = [each.name for each in ALL]
    parser = argparse.ArgumentParser(prog="python -m bench network", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the undisturbed run and all three together")
    parser.add_argument("--transport", choices=[*TRANSPORTS, "both"], default="both")
    parser.add_argument("--disturbances", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument(
        "--loopback", action="store_true", help="no namespaces, even where they are permitted"
    )
    parser.add_argument("--seed", type=int, default=0, help="of lost frames")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    options = parser.parse_args(arguments)
    chosen = options.disturbances or (QUICK if options.quick else names)
    screen = console()
    why_not = "asked for" if options.loopback else refusal()
    place = f"addresses of the loopback interface ({why_not})" if why_not else "network namespaces"
    screen.print(f"Hosts are {place}.")
    rows: list[Row] = []
    try:
        for transport in TRANSPORTS if options.transport == "both" else [options.transport]:
            rows += _transport(transport, chosen, options)
    except KeyboardInterrupt:
        screen.print("Interrupted; the rows so far:")
    screen.print(_table(rows).rich())
    described = machine.describe()
    screen.print(machine.line(described), soft_wrap=True)
    if options.json:
        document = {
            "schema": 1,
            "command": "network",
            "machine": described,
            "rows": [asdict(r) for r in rows],
        }
        options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if any(_unexplained(row) for row in rows) else 0


def _transport(name: str, chosen: Sequence[str], options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    missing = TRANSPORTS[name].missing()
    if missing:
        return [Row("all", TRANSPORTS[name].name, skipped=missing)]
    for disturbance in (UNDISTURBED, *(each for each in ALL if each.name in chosen)):
        row = measure(disturbance, name, seed=options.seed, loopback=options.loopback)
        best = rows[0].objective if rows else row.objective
        if best is not None and row.objective is not None:
            row.distance = abs(row.objective - best) / abs(best)
        rows.append(row)
        print(
            f"{row.transport}, {row.disturbance}: {_outcome(row)}; {'; '.join(row.said) or 'nothing lost'}",
            flush=True,
        )
    return rows


def _outcome(row: Row) -> str:
    if row.skipped:
        return row.skipped
    if row.objective is None:
        return "no objective"
    return f"objective {row.objective:.9f}, {100 * (row.distance or 0):.2g} % away, in {row.seconds:.0f} s"


def _unexplained(row: Row) -> bool:
    """Whether a run missed the target and did not say why."""
    if row.skipped:
        return False
    return (row.distance is None or row.distance > TARGET) and not row.said


def _table(rows: list[Row]) -> Table:
    headings = ["disturbance", "transport", "objective", "away, %", "seconds", "iterations", "lost / back",
                "frames lost / cut", "what the run said"]  # fmt: skip
    return Table("Runs in the test bed", headings, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    if row.skipped:
        return [row.disturbance, row.transport, "", "", "", "", "", "", row.skipped]
    return [
        row.disturbance,
        row.transport,
        "none" if row.objective is None else f"{row.objective:.9f}",
        "" if row.distance is None else f"{100 * row.distance:.2g}",
        f"{row.seconds:.0f}",
        str(row.iterations),
        f"{row.lost} / {row.back}",
        f"{row.frames.get('lost', 0)} / {row.frames.get('cut', 0)}",
        "; ".join(row.said),
    ]
