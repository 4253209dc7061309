"""A measured number beside its target, as a row of a table and of a result file."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from bench.measuring.timing import Spread


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
