"""A network on one machine: runs on Ray and Flower under delay, loss, a partition, a dead head, wrong clocks.

Every host is a set of Linux namespaces, joined by a switch in user space; nodes are started by the documented
commands (docs/network.md). It needs root and TAP devices. Elsewhere hosts are addresses of the loopback
interface, and what needs the switch is left out. `--quick` has the undisturbed run and delay, loss and
partition together. Rows that the file of `--json` has already are not measured again.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.display.tables import Table, console
from bench.measuring import machine
from bench.network.disturbances import ALL, UNDISTURBED, Disturbance
from bench.network.hosts import refusal
from bench.network.rows import TRANSPORTS, Row, measure

TARGET = 0.01
QUICK = "together"
HEADINGS = (
    "disturbance", "transport", "objective", "away, %", "seconds", "iterations", "lost / back",
    "frames lost / cut", "what the run said",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run what was asked for; return 1 if a run neither ended within 1 % nor said what was lost."""
    by_name = {each.name: each for each in ALL}
    parser = argparse.ArgumentParser(prog="python -m bench network", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the undisturbed run and the worst weather only")
    parser.add_argument("--transport", choices=[*TRANSPORTS, "both"], default="both")
    parser.add_argument("--disturbances", nargs="+", choices=by_name, metavar="NAME", help=", ".join(by_name))
    parser.add_argument("--loopback", action="store_true", help="no namespaces even where they are permitted")
    parser.add_argument("--seed", type=int, default=0, help="of lost frames")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, row by row")
    options = parser.parse_args(arguments)
    names = options.disturbances or ([QUICK] if options.quick else by_name)
    why_not = "asked for" if options.loopback else refusal()
    screen = console()
    screen.print(
        "Hosts are network namespaces." if not why_not else f"Hosts are loopback addresses: {why_not}."
    )
    book = Book(options.json)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else hosts' folders stay behind
    chosen = [UNDISTURBED, *(by_name[name] for name in names)]
    rows: list[Row] = []
    for transport in TRANSPORTS if options.transport == "both" else [options.transport]:
        rows += _transport(transport, chosen, options, book)
    screen.print(Table("Runs in the test bed", HEADINGS, [cells(row) for row in rows]).rich())
    screen.print(machine.line(machine.describe()), soft_wrap=True)
    return 1 if any(_unexplained(row) for row in rows) else 0


class Book:
    """The rows measured so far, in a file if one is given."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        found: dict[str, Any] = {}
        if path is not None and path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
        self._rows = [Row(**fields) for fields in found.get("rows", [])]

    def find(self, disturbance: str, transport: str) -> Row | None:
        """Return the row that was measured before, if there is one."""
        same = [row for row in self._rows if (row.disturbance, row.transport) == (disturbance, transport)]
        return same[0] if same else None

    def add(self, row: Row) -> None:
        """Write one more row."""
        self._rows.append(row)
        if self._path is not None:
            document = {
                "schema": 1,
                "command": "network",
                "machine": machine.describe(),
                "rows": [asdict(each) for each in self._rows],
            }
            text = json.dumps(document, indent=1, ensure_ascii=False)
            self._path.write_text(text + "\n", encoding="utf-8")


def _transport(name: str, chosen: list[Disturbance], options: argparse.Namespace, book: Book) -> list[Row]:
    """Measure the rows of one transport, the undisturbed one first."""
    missing = TRANSPORTS[name].missing()
    if missing:
        return [Row("all", TRANSPORTS[name].name, skipped=missing)]
    rows: list[Row] = []
    for disturbance in chosen:
        row = book.find(disturbance.words, TRANSPORTS[name].name)
        if row is None:
            row = measure(disturbance, name, seed=options.seed, loopback=options.loopback)
            best = rows[0].objective if rows else row.objective
            if best is not None and row.objective is not None:
                row.distance = abs(row.objective - best) / abs(best)
            if not row.skipped:
                book.add(row)
        rows.append(row)
        print("; ".join(cell for cell in cells(row) if cell), flush=True)
    return rows


def cells(row: Row) -> list[str]:
    """Return a row of the table."""
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


def _unexplained(row: Row) -> bool:
    """Whether a run missed the target and did not say why."""
    missed = row.distance is None or row.distance > TARGET
    return not row.skipped and missed and not row.said
