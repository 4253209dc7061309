"""The complexity table as a terminal table, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bench.complexity import paper, summary
from bench.display.tables import grid
from bench.measuring import machine
from uncertainty_sets.registry import join_names

HEADINGS = (
    "set",
    "formulation",
    "flexibility: paper / all",
    "paper's cost",
    "our cost",
    "exponent",
    "10³",
    "10⁴",
    "10⁶",
    "over argsort",
    "NumPy over ours",
    "cvxpy over ours",
    "gap",
)
SHORT = ("set", "10³", "10⁶", "over argsort", "NumPy over ours", "cvxpy over ours")
TERMINAL = ("set", "formulation", "paper's cost", "our cost", "exponent", "gap")
WIDE = (*TERMINAL, "10⁴", "10⁶", "over argsort", "NumPy over ours", "cvxpy over ours")
NARROW = 150
"""Columns of a terminal from which on the times and ratios fit, too."""

WIDTHS = {"set": 15, "formulation": 11, "paper's cost": 21, "our cost": 12, "exponent": 11, "gap": 5}
"""Together they fit into 80 columns."""

EXPONENT = (
    "The exponent is that of N in the time of a call, fitted over N ≥ 10⁴ or else over the largest sizes, "
    "± one standard error; a dash if the sizes span less than 1.5 decades or the error is above 0.1."
)
GAP = "The gap is the largest over all N, relative to max f - min f, and is proved by dual multipliers."
COST = "The paper's cost is its Table II's; m is the number of constraints, ε′ the accuracy."
EXPLANATION = (
    "Times are medians of one oracle call with the set's default method: wall-clock or processor time, "
    f"whichever is less, on one thread. {EXPONENT} "
    '"Over argsort" is measured at the largest N. "NumPy over ours" is the range over all N of the time of '
    "what an expert writes in NumPy (`bench/complexity/by_hand.py`; SciPy's `linprog` for the polyhedron), "
    'which gives the same value without a proof. "cvxpy over ours" is cvxpy with Clarabel, compiled once for '
    "losses that are a parameter or each time for constant ones, whichever is quicker, at the largest N. "
    f"{GAP} Flexibility is the number of parameters by the paper's count / all numbers that define the set."
)


def legend(width: int, *, everything: bool) -> str:
    """Return what the columns on the terminal mean."""
    if everything or width >= NARROW:
        return EXPLANATION
    return f"{COST} {EXPONENT} {GAP} Times, ratios and other methods: --all."


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


def _title(row: dict[str, Any]) -> str:
    return f"{row['set']}, {row['variant']}" if row["variant"] else str(row["set"])


def _gap(gap: float | None) -> str:
    return "–" if gap is None else f"{gap:.0e}"


def lines(document: dict[str, Any]) -> list[list[str]]:
    """Return the cells of the first table, as text."""
    return [
        [
            _title(row),
            row["formulation"],
            f"{row['paper_flexibility'] or '–'} / {row['parameters']}",
            row["paper_cost"] or "not in the paper",
            row["our_cost"],
            _exponent(row),
            *(duration(row[f"seconds_{size}"]) for size in summary.SHOWN),
            multiple(row["over_argsort"], row["largest"]),
            _between(row["numpy_over_ours_least"], row["numpy_over_ours_most"]),
            multiple(row["cvxpy_over_ours"], row["cvxpy_at"]),
            _gap(row["gap"]),
        ]
        for row in summary.rows(document)
    ]


def _between(least: float | None, most: float | None) -> str:
    """Format the range of a ratio."""
    if least is None or most is None:
        return "–"
    low, high = f"{least:.2g}", f"{most:.2g}" if most < 100 else f"{most:,.0f}"
    return f"{low}×" if low == high else f"{low}–{high}×"


def _series_lines(document: dict[str, Any]) -> list[list[str]]:
    return [
        [
            _title(row),
            row["method"],
            _exponent(row),
            power(row["largest"]),
            duration(row["seconds"]),
            quantity(row["memory"]),
            _gap(row["gap"]),
        ]
        for row in summary.exponents(document)
    ]


SERIES_HEADINGS = ("set", "method", "exponent", "largest N", "time there", "peak memory there", "gap there")
MEMORY_HEADINGS = (
    *("set", "N", "ours", "NumPy"),
    *("cvxpy, losses a parameter", "cvxpy, losses constant"),
)
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


def _memory_lines(document: dict[str, Any]) -> list[list[str]]:
    return [
        [
            _title(row),
            power(row["size"]),
            *(quantity(row[key]) for key in ("ours", "numpy", "parameter", "constant")),
        ]
        for row in summary.memory(document)
    ]


def tables(document: dict[str, Any]) -> list[tuple[str, tuple[str, ...], list[list[str]]]]:
    """Return every table: title, headings, lines."""
    found = [
        ("Uncertainty sets and their cost", HEADINGS, lines(document)),
        ("Peak memory of a first call", MEMORY_HEADINGS, _memory_lines(document)),
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


def rich_tables(document: dict[str, Any], width: int, *, everything: bool = False) -> list[Table]:
    """Return the complexity table for a terminal of that width, or every table with every column."""
    found = []
    for title, headings, entries in tables(document):
        names = headings
        if headings is HEADINGS and not everything:
            names = WIDE if width >= NARROW else TERMINAL
        table = Table(
            title=title,
            title_justify="left",
            box=SIMPLE_HEAD,
            padding=0,
            show_edge=False,
        )
        for name in names:
            table.add_column(name, overflow="fold", width=WIDTHS.get(name) if headings is HEADINGS else None)
        last = ""
        for full in entries:
            entry = short([full], names)[0] if headings is HEADINGS else full
            ours = headings is HEADINGS and full[HEADINGS.index("paper's cost")] == "not in the paper"
            if ours and last != "ours" and last:
                table.add_section()
            last = "ours" if ours else "paper's"
            if headings is HEADINGS:
                cost = names.index("paper's cost")
                entry[cost] = "–" if ours else _broken(entry[cost], WIDTHS["paper's cost"])
            table.add_row(*entry)
        found.append(table)
        if not everything:
            break
    return found


def _broken(formula: str, width: int) -> str:
    """Return a formula in lines of that width, broken before its signs.

    >>> _broken("O((m+n)^1.5·n²·log(1/ε′)), n = N+N²", 24).split(chr(10))
    ['O((m+n)^1.5·n²', '·log(1/ε′)), n = N+N²']
    """
    found, line = [], ""
    for part in formula.replace("·", "\0·").split("\0"):
        if line and len(line) + len(part) > width:
            found.append(line)
            line = ""
        line += part
    return "\n".join([*found, line])


def markdown(document: dict[str, Any]) -> str:
    """Return the tables and the remarks as Markdown."""
    parts = []
    for title, headings, entries in tables(document):
        parts.append(f"### {title}\n\n{grid(headings, entries)}\n")
    parts.append(EXPLANATION + "\n")
    parts.extend(f"{line}\n" for line in remarks(document))
    return "\n".join(parts)


def remarks(document: dict[str, Any]) -> list[str]:
    """Return what was left out, the settings and the machine."""
    notes, settings = document["notes"], document["settings"]
    lines = []
    if notes.get("interrupted"):
        lines.append("Interrupted; the same command continues from here.")
    lines.append(left_out(document))
    lines.append(
        f"Repeats: up to {settings['rounds']} interleaved rounds and {settings['budget']:g} s per cell."
        + (" This was a quick run; the full one has more repeats and larger programs." * settings["quick"])
    )
    lines.append(
        f"Measured on {machine.line(document['machine'])}. {machine.busy(document['machine'])}".rstrip()
    )
    return lines


def left_out(document: dict[str, Any]) -> str:
    """Return what is not in the tables and why, as one line."""
    notes, settings = document["notes"], document["settings"]
    parts = []
    if notes.get("late"):
        parts.append(
            f"{_late(notes['late'])} (out of the budget of {notes['budget']:g} processor seconds; "
            "the same command goes on from here)"
        )
    ends = defaultdict(list)
    for about in notes.get("variants", []):
        if about["largest"] < max(settings["sizes"]):
            reason = "a program" if about["default"] != "closed-form" else "N² numbers"
            ends[about["largest"], reason].append(_title(about))
    parts += [
        f"{_some(titles)} above N = {power(size)} ({reason})"
        for (size, reason), titles in sorted(ends.items())
    ]
    beyond = f"above N = {power(settings['programs_to'])} or " if settings["quick"] else ""
    parts.append(
        f"methods other than the set's own {beyond}where a first call was expected to take more than "
        f"{settings['limit']:g} s"
    )
    if notes.get("missing"):
        parts.append("what is not installed: " + ", ".join(notes["missing"]))
    parts += [f"{name} ({reason})" for name, reason in notes.get("without", {}).items()]
    failed = summary.failures(document)
    if failed:
        parts.append("without an answer: " + ", ".join(failed))
    return "Left out: " + "; ".join(parts) + "."


def _late(late: list[list[Any]]) -> str:
    """Return the sets that the budget left, by the first N that they lack, and the runs."""
    first: dict[str, int] = {}
    for title, size in late:
        first.setdefault(title, size)
    by_size = defaultdict(list)
    for title, size in first.items():
        by_size[size].append(title)
    parts = [f"{_some(titles)} from N = {power(size)} on" for size, titles in sorted(by_size.items()) if size]
    runs = sum(size == 0 for _, size in late)
    return ", ".join([*parts, *([f"{runs} whole run{'s' * (runs > 1)}"] if runs else [])])


def _some(titles: list[str]) -> str:
    """Name a few of many.

    >>> _some(["a", "b", "c", "d"])
    'a, b and 2 more'
    """
    return join_names(titles) if len(titles) < 4 else f"{', '.join(titles[:2])} and {len(titles) - 2} more"


def csv_of(records: list[dict[str, Any]]) -> str:
    """Return records as CSV, empty if a number is missing."""
    if not records:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()
