"""The complexity table as a terminal table, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bench.complexity import paper, summary
from bench.display.tables import grid
from bench.measuring import machine

HEADINGS = (
    "set",
    "formulation",
    "flexibility: paper / all",
    "paper's cost",
    "our cost",
    "measured exponent",
    "10³",
    "10⁴",
    "10⁶",
    "over argsort",
    "cvxpy + Clarabel over ours",
    "gap reached",
)
SHORT = ("set", "our cost", "10³", "10⁴", "10⁶", "over argsort", "cvxpy + Clarabel over ours", "gap reached")
TERMINAL = ("set", "10⁴", "10⁶", "over argsort", "cvxpy + Clarabel over ours")
NARROW = 150  # columns of a terminal below which the first table is shown in short

EXPLANATION = (
    "Times are medians of one oracle call with the set's default method: wall-clock or processor time, "
    "whichever is less. The exponent is fitted over N ≥ 10⁴ if there are at least three such sizes, "
    'otherwise over the largest four, ± one standard error. "Over argsort" is measured at the largest N. '
    "The gap is the largest over all N, relative to max f - min f, and is proved by dual multipliers. "
    "Flexibility is the number of parameters by the paper's count / all numbers that define the set here."
)


def duration(seconds: float | None) -> str:
    """Format seconds with a unit."""
    if seconds is None:
        return "–"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def quantity(bytes_: float | None) -> str:
    """Format bytes as megabytes."""
    if bytes_ is None:
        return "–"
    return f"{bytes_ / 1e6:,.1f} MB"


def multiple(ratio: float | None, size: int | None) -> str:
    """Format a ratio and the N it was measured at."""
    if ratio is None or size is None:
        return "–"
    shown = f"{ratio:.2g}" if ratio < 100 else f"{float(f'{ratio:.2g}'):,.0f}"
    return f"{shown}× at {power(size)}"


def power(size: int) -> str:
    """Format 1000 as 10³, 3000 as 3·10³."""
    text = str(size)
    digits = text.rstrip("0")
    zeros = len(text) - len(digits)
    if zeros < 2 or len(digits) > 1:
        return f"{size:,}"
    ten = "10" + str(zeros).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return ten if digits == "1" else f"{digits}·{ten}"


def _exponent(row: dict[str, Any]) -> str:
    if row["exponent"] is None:
        return "–"
    return f"{row['exponent']:.2f} ± {row['exponent_error']:.2f}"


def lines(document: dict[str, Any]) -> list[list[str]]:
    """Return the cells of the first table, as text."""
    found = []
    for row in summary.rows(document):
        title = f"{row['set']}, {row['variant']}" if row["variant"] else row["set"]
        found.append(
            [
                title,
                row["formulation"],
                f"{row['paper_flexibility'] or '–'} / {row['parameters']}",
                row["paper_cost"] or "not in the paper",
                row["our_cost"],
                _exponent(row),
                *(duration(row[f"seconds_{size}"]) for size in summary.SHOWN),
                multiple(row["over_argsort"], row["largest"]),
                multiple(row["cvxpy_over_ours"], row["cvxpy_at"]),
                "–" if row["gap"] is None else f"{row['gap']:.0e}",
            ]
        )
    return found


def _series_lines(document: dict[str, Any]) -> list[list[str]]:
    return [
        [
            f"{row['set']}, {row['variant']}" if row["variant"] else row["set"],
            row["method"],
            _exponent(row),
            power(row["largest"]),
            duration(row["seconds"]),
            quantity(row["memory"]),
            "–" if row["gap"] is None else f"{row['gap']:.0e}",
        ]
        for row in summary.exponents(document)
    ]


SERIES_HEADINGS = ("set", "method", "exponent", "largest N", "time there", "peak memory there", "gap there")
OVERALL_HEADINGS = ("set", "paper's cost of a run", "gradients", "oracle", "driver", "run", "oracle calls")


def _overall_lines(document: dict[str, Any]) -> list[list[str]]:
    return [
        [
            row["set"],
            paper.overall(row["set"]) or "not in the paper",
            *(f"{100 * row[part] / row['total']:.0f} %" for part in ("gradient", "oracle", "driver")),
            duration(row["total"]),
            f"{row['oracle_calls']:,}",
        ]
        for row in document["overall"]
    ]


def tables(document: dict[str, Any]) -> list[tuple[str, tuple[str, ...], list[list[str]]]]:
    """Return every table: title, headings, lines."""
    found = [
        ("Uncertainty sets and their cost", HEADINGS, lines(document)),
        ("Every method", SERIES_HEADINGS, _series_lines(document)),
    ]
    if document["overall"]:
        about = document["notes"].get("overall", "")
        found.append(
            (f"Where the time of a whole run goes{about}", OVERALL_HEADINGS, _overall_lines(document))
        )
    return found


def short(entries: list[list[str]], names: tuple[str, ...]) -> list[list[str]]:
    """Return the first table's lines with some of its columns."""
    columns = [HEADINGS.index(name) for name in names]
    return [[entry[column] for column in columns] for entry in entries]


def rich_tables(document: dict[str, Any], width: int) -> list[Table]:
    """Return the tables for a terminal of that width; table.md has every column."""
    found = []
    for title, headings, entries in tables(document):
        brief = headings is HEADINGS and width < NARROW
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for heading in TERMINAL if brief else headings:
            table.add_column(heading, overflow="fold", no_wrap=heading == "set")
        for entry in short(entries, TERMINAL) if brief else entries:
            table.add_row(*entry)
        found.append(table)
    return found


def markdown(document: dict[str, Any]) -> str:
    """Return the tables and the remarks as Markdown."""
    parts = []
    for title, headings, entries in tables(document):
        parts.append(f"### {title}\n\n{grid(headings, entries)}\n")
    parts.append(EXPLANATION + "\n")
    parts.extend(f"{line}\n" for line in remarks(document))
    return "\n".join(parts)


def remarks(document: dict[str, Any]) -> list[str]:
    """Return what was missing, unfinished or failed, the settings and the machine."""
    notes, lines = document["notes"], []
    if notes.get("missing"):
        lines.append("Not installed, so not measured: " + "; ".join(notes["missing"]) + ".")
    if notes.get("without"):
        lines.append("Sets without an example, so not measured: " + ", ".join(notes["without"]) + ".")
    if notes.get("unfinished"):
        lines.append(f"Unfinished: {notes['unfinished']}; the same command continues from here.")
    failed = summary.failures(document)
    if failed:
        lines.append("No answer: " + "; ".join(failed) + ".")
    settings = document["settings"]
    if settings["quick"]:
        lines.append("This was a quick run; the full one has more sizes, repeats and larger programs.")
    lines.append(
        f"Repeats: up to {settings['rounds']} interleaved rounds and {settings['budget']:g} s per cell; "
        f"a method is not measured at larger N if its first call there is expected to take more than "
        f"{settings['limit']:g} s."
    )
    lines.append("Measured on " + machine.line(document["machine"]) + ".")
    return lines


def csv_of(records: list[dict[str, Any]]) -> str:
    """Return records as CSV, empty if a number is missing."""
    if not records:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()
