"""Cells of tables on times and differences, and how tables and remarks are published."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.display.tables import Table
from bench.experiments.presentation.tables import MISSING, chance, paired, pm, summary
from bench.experiments.runs import stopping
from bench.measuring import machine


def seconds(times: Sequence[float | None], digits: int = 0) -> str:
    """Return the mean ± deviation over the repeats that got there, and how many did if not all.

    >>> seconds([10.0, 14.0]), seconds([3.0, None]), seconds([None])
    ('12 ± 3', '3 ± 0 (1 of 2)', 'never')
    """
    there = [value for value in times if value is not None]
    if not there:
        return "never" if times else MISSING
    text = pm(summary(there), digits)
    return text if len(there) == len(times) else f"{text} ({len(there)} of {len(times)})"


def ratio(slow: Sequence[float | None], fast: Sequence[float | None], digits: int = 1) -> str:
    """Return the mean ± deviation of slow over fast, repeat by repeat.

    >>> ratio([10.0, 30.0, None], [5.0, 10.0, 1.0])
    '2.5 ± 0.7'
    """
    return pm(summary([one / other for one, other in _both(slow, fast)]), digits)


def ratio_of_means(slow: Sequence[float | None], fast: Sequence[float | None]) -> str:
    """Return the mean of slow over the mean of fast, over the repeats that have both.

    A single short time decides less here than in `ratio`.

    >>> ratio_of_means([10.0, 30.0, None], [19.0, 1.0, 1.0])
    '2.0'
    """
    both = _both(slow, fast)
    total = sum(other for _, other in both)
    return f"{sum(one for one, _ in both) / total:.1f}" if total > 0 else MISSING


def difference(first: Sequence[float | None], second: Sequence[float | None], digits: int = 1) -> str:
    """Return the mean of first - second and the p-values of the paired tests, over complete pairs.

    >>> difference([5.0, 6.0, 7.5, None], [4.0, 4.5, 5.0, 1.0])
    '+1.7 (0.063, 0.25)'
    """
    both = _both(first, second)
    return chance(paired([one for one, _ in both], [other for _, other in both]), digits)


def _both(first: Sequence[float | None], second: Sequence[float | None]) -> list[tuple[float, float]]:
    """The pairs of which neither is missing."""
    pairs = zip(first, second, strict=True)
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def effort(records: Sequence[dict[str, Any]], began: float) -> str:
    """Return how images were loaded, then `run_time`."""
    pools = sorted({(r["data"], r["options"]["pool"]) for r in records if r["options"].get("pool", 1) > 1})
    images = "".join(f"Images of {data} are averaged over {n} × {n} pixels. " for data, n in pools)
    return images + run_time(records, began)


def about(options: argparse.Namespace, records: Sequence[dict[str, Any]], began: float) -> str:
    """Return the remarks of experiments that tune every method: search, budget, tests, effort."""
    budgets = sorted({(r["data"], r["gradients"], r["batch"] or "all", r["model"]) for r in records}, key=str)
    budget = "; ".join(
        f"{data}: {gradients:,} gradients of {batch} samples, {model}"
        for data, gradients, batch, model in budgets
    )
    return (
        f"Every method: {search(options)}, judged on "
        f"held-out training data; {beyond(options)}then {options.repeats} repeats with the "
        f"best, mean ± deviation. Stopping "
        f"rule: {stopping.RULE} (the worst worker's accuracy on held-out training data{fifth(records)}). "
        f"Budget per run ({budget}), all workers together. p-values are two-sided, of the paired t-test "
        f"and of Wilcoxon's signed-rank test over seeds. " + run_time(records, began)
    )


def fifth(records: Sequence[dict[str, Any]]) -> str:
    """Return the data sets on which the worst fifth of the workers is gone by."""
    found = sorted({record["data"] for record in records if record.get("judge") == "acc_20"})
    return f"; {', '.join(found)}: that of the worst fifth of the workers" if found else ""


def search(options: argparse.Namespace) -> str:
    """Return how many settings were tried with how many seeds, for the middle of a sentence."""
    if options.halving and options.search_seeds > 1:
        return (
            f"{options.trials} trials of settings, {options.search_seeds} seeds, the better half of the "
            "trials going on to the next seed"
        )
    return f"{options.trials} trials of settings, {options.search_seeds} seeds each"


def beyond(options: argparse.Namespace) -> str:
    """Return how searches went on beyond ranges, for the middle of a sentence; "" if they did not."""
    if not options.widen:
        return ""
    return (
        f"a best value in the outer {options.outer:.0%} of its range is moved outwards, trial by trial on "
        "the same seeds, while that is better; "
    )


def open_ends(found: Sequence[str]) -> str:
    """Return the warning of settings whose best value stayed at the end of a range; "" if there are none.

    >>> open_ends(["digits, softmax: AFL: step 9.9, upper end of [0.1, 10]"])
    ' At the end of a range, which was too small: digits, softmax: AFL: step 9.9, upper end of [0.1, 10].'
    """
    return f" At the end of a range, which was too small: {'; '.join(found)}." if found else ""


def run_time(records: Sequence[dict[str, Any]], began: float) -> str:
    """Return how many runs and how much time are behind a result, and on which machine."""
    cpu = sum(record["cpu"] for record in records)
    return (
        f"{len(records)} runs, {cpu / 60:.1f} minutes of processor time in all; the last start of the "
        f"command took {(time.monotonic() - began) / 60:.1f} minutes. {machine.line(machine.describe())}."
    )


QUICK = "A quick run, too short to compare methods: it shows that everything works."
"""What stands over tables and under their remarks after `--quick`."""


def publish(
    console: Console,
    folder: Path,
    tables: Sequence[Table],
    remarks: str,
    name: str = "tables.md",
    *,
    quick: bool = False,
) -> None:
    """Print the tables and write them as Markdown, the remarks below; a quick run is called one."""
    for table in tables:
        console.print(table.rich())
    console.print(remarks, markup=False)
    warning = [f"**{QUICK}**\n"] if quick else []
    if quick:
        console.print(QUICK, markup=False)
    text = "\n".join([*warning, *(table.markdown() for table in tables), remarks, ""])
    (folder / name).write_text(text, encoding="utf-8")
