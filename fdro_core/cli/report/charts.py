"""What a chart is: the numbers that charts.js draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

SPAN = 10.0
"""Losses whose largest is this many times the least or more are drawn on a logarithmic scale."""

Chart = dict[str, Any]
Line = dict[str, Any]
Entry = dict[str, Any]


def line(
    name: str,
    at: Sequence[Entry],
    values: Iterable[float | None],
    *,
    color: int | str = 0,
    dash: int = 0,
    band: tuple[Iterable[float | None], Iterable[float | None]] | None = None,
) -> Line:
    """One line over the reports `at`, with a band around it if given; NaN leaves a gap.

    `color` and `dash` are numbers of the style sheet.
    """
    made: Line = {
        "name": name,
        "clock": [entry["clock"] for entry in at],
        "iteration": [entry["iteration"] for entry in at],
        "values": rounded(values),
        "color": color,
        "dash": dash,
    }
    if band is not None:
        made["low"], made["high"] = rounded(band[0]), rounded(band[1])
    return made


def chart(
    name: str,
    title: str,
    note: str,
    lines: list[Line],
    *,
    digits: int | None = None,
    steps: bool = False,
    zero: bool = False,
    log: bool = False,
) -> Chart:
    """A chart with these lines.

    Args:
        name: the name in the page.
        title: above it.
        note: below the title.
        lines: from `line`.
        digits: decimals of the values under the pointer; None: four significant digits.
        steps: whether values jump, as counts do.
        zero: whether the scale begins at 0.
        log: whether the scale may be logarithmic, which it is if the numbers span decades.
    """
    return {
        "name": name,
        "title": title,
        "note": note,
        "digits": digits,
        "steps": steps,
        "zero": zero,
        "log": log and spans_decades(value for each in lines for value in each["values"]),
        "lines": lines,
    }


def spans_decades(values: Iterable[float | None]) -> bool:
    """Whether the numbers are positive and the largest is at least SPAN times the least.

    >>> spans_decades([2.0, 0.01, None]), spans_decades([2.0, 0.5]), spans_decades([1.0, 0.0])
    (True, False, False)
    """
    known = [value for value in values if value is not None]
    return bool(known) and min(known) > 0 and max(known) >= SPAN * min(known)


def rounded(values: Iterable[float | None]) -> list[float | None]:
    """Six significant digits, which is more than a line shows; None for what is not finite.

    >>> rounded([1 / 3, float("nan"), None])
    [0.333333, None, None]
    """
    return [None if value is None or not np.isfinite(value) else float(f"{value:.6g}") for value in values]
