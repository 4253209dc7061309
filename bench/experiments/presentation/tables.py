"""Tables of the experiments: means, deviations and paired tests over repeats, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.display.tables import Table
from bench.experiments.presentation import paper_numbers


@dataclass(frozen=True)
class Summary:
    """The mean and the sample deviation of so many numbers."""

    mean: float
    deviation: float
    count: int


def summary(values: Sequence[float | None]) -> Summary | None:
    """Summarise the numbers that are there; None if there are none.

    >>> summary([1.0, 3.0])
    Summary(mean=2.0, deviation=1.4142135623730951, count=2)
    """
    there = np.array([value for value in values if value is not None], dtype=float)
    if there.size == 0:
        return None
    deviation = float(there.std(ddof=1)) if there.size > 1 else 0.0
    return Summary(float(there.mean()), deviation, there.size)


@dataclass(frozen=True)
class Paired:
    """Two methods on the same seeds: the mean difference and the p-values of two tests.

    Attributes:
        difference: mean of first - second.
        t: p-value of the paired t-test.
        wilcoxon: p-value of the signed-rank test, exact for few repeats.
    """

    difference: float
    t: float
    wilcoxon: float


def paired(first: Sequence[float], second: Sequence[float]) -> Paired | None:
    """Both two-sided tests; None with fewer than two pairs.

    >>> paired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    Paired(difference=0.0, t=1.0, wilcoxon=1.0)
    """
    gaps = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    if gaps.size < 2:
        return None
    if np.ptp(gaps) == 0.0:  # no spread to compare with
        chance = 1.0 if gaps[0] == 0.0 else 0.0
        signs = 1.0 if gaps[0] == 0.0 else 2.0 ** (1 - gaps.size)
        return Paired(float(gaps.mean()), chance, signs)
    from scipy import stats

    t = float(stats.ttest_1samp(gaps, 0.0).pvalue)
    if np.any(gaps):
        rank = float(
            stats.wilcoxon(gaps, method="exact" if np.all(gaps) and _untied(gaps) else "approx").pvalue
        )
    return Paired(float(gaps.mean()), t, rank)


def holm(chances: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's rule: one of them is false at most that often.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(chances)
    scaled = np.asarray(chances, dtype=float)[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in corrected]


def _untied(gaps: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    return np.unique(np.abs(gaps)).size == gaps.size


MISSING = "–"
Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""Records of the repeats by method, in the order of their seeds."""


def values(records: Sequence[Mapping[str, Any]], metric: str, scale: float = 1.0) -> list[float | None]:
    """Return one number per repeat."""
    found = [record["metrics"].get(metric) for record in records]
    return [None if value is None else scale * value for value in found]


def pm(found: Summary | None, digits: int) -> str:
    """Format mean ± deviation.

    >>> pm(Summary(78.818, 0.071, 10), 2)
    '78.82 ± 0.07'
    """
    return MISSING if found is None else f"{found.mean:.{digits}f} ± {found.deviation:.{digits}f}"


def printed(cell: paper_numbers.Cell, digits: int) -> str:
    """Format a number of the paper."""
    if cell is None:
        return MISSING
    mean, deviation = cell
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}" if deviation else f"{mean:.{digits}f}"


def chance(found: Paired | None, digits: int = 1) -> str:
    """Return the difference from the reference method and the p-values of the t-test and of Wilcoxon's test.

    >>> chance(Paired(-9.31, 0.00002, 0.00195))
    '-9.3 (<0.001, 0.002)'
    """
    if found is None:
        return MISSING
    return f"{found.difference:+.{digits}f} ({_p(found.t)}, {_p(found.wilcoxon)})"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def against(runs: Runs, metric: str, method: str, reference: str, scale: float) -> Paired | None:
    """Test a method against the reference, paired over the seeds that both have."""
    if method == reference or reference not in runs:
        return None
    known = [
        {record["seed"]: record["metrics"].get(metric) for record in runs[m]} for m in (method, reference)
    ]
    seeds = [seed for seed in known[0] if known[0][seed] is not None and known[1].get(seed) is not None]
    return paired([scale * known[0][s] for s in seeds], [scale * known[1][s] for s in seeds])


def settings_text(settings: Mapping[str, Any]) -> str:
    """Join settings on one line."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in settings.items()
    )


def difference_from(reference: str, quantity: str = "") -> str:
    """Return the heading of a column of differences with p-values.

    >>> difference_from("CP", "objective")
    'objective: difference from CP (p: t-test, Wilcoxon)'
    """
    return f"{quantity}{': ' if quantity else ''}difference from {reference} (p: t-test, Wilcoxon)"


Column = tuple[str, str, float, int]
"""Heading, metric, scale and digits."""


MANY = 10
"""Workers; tables about more of them have a column for the worst fifth."""


def with_fifth(columns: Sequence[Column], runs: Runs) -> Sequence[Column]:
    """Return the columns, with the worst fifth's accuracy first or second if there are many workers.

    First comes what the search goes by, since the first column is the one that is tested.
    """
    record = next((record for records in runs.values() for record in records), {})
    if len(record.get("metrics", {}).get("accuracies", ())) <= MANY or "acc_20" not in record["metrics"]:
        return columns
    fifth = ("worst 20 %", "acc_20", 100.0, 2)
    first = record.get("judge", "acc_w") == "acc_20"
    return [fifth, *columns] if first else [columns[0], fifth, *columns[1:]]


def comparison(
    title: str,
    data: str,
    runs: Runs,
    columns: Sequence[Column],
    paper: paper_numbers.Numbers,
    reference: str,
) -> Table:
    """Return a table of methods by metrics, ours and the paper's; the first metric is tested."""
    headings = ["method"]
    printed_there = {
        metric
        for _, metric, _, _ in columns
        if any(paper_numbers.find(paper, method, data, metric) is not None for method in runs)
    }
    for heading, metric, _, _ in columns:
        headings += [heading, "paper"] if metric in printed_there else [heading]
    headings.append(difference_from(reference))
    rows = []
    for method, records in runs.items():
        row = [method]
        for _, metric, scale, digits in columns:
            row.append(pm(summary(values(records, metric, scale)), digits))
            if metric in printed_there:
                row.append(printed(paper_numbers.find(paper, method, data, metric), digits))
        row.append(chance(against(runs, columns[0][1], method, reference, columns[0][2])))
        rows.append(row)
    return Table(title, headings, rows)


def settings_found(found: Mapping[str, Runs]) -> Table:
    """Return the table of the settings that the search chose, by data set and method."""
    rows = [
        [data, method, settings_text(records[0]["settings"])]
        for data, runs in found.items()
        for method, records in runs.items()
    ]
    return Table("Settings found by the search", ["data", "method", "settings"], rows)
