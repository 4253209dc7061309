"""What the commands on the virtual clock share: text for times and for how it was done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.experiments.presentation.statistics import paired, summary
from bench.experiments.presentation.tables import MISSING, chance, pm
from bench.experiments.runs.compare import run_time


def seconds(times: Sequence[float | None], digits: int = 0) -> str:
    """Mean ± deviation of the repeats that got there, and how many did where not all.

    >>> seconds([10.0, 14.0]), seconds([3.0, None]), seconds([None])
    ('12 ± 3', '3 ± 0 (1 of 2)', 'never')
    """
    there = [value for value in times if value is not None]
    if not there:
        return "never" if times else MISSING
    text = pm(summary(there), digits)
    return text if len(there) == len(times) else f"{text} ({len(there)} of {len(times)})"


def ratio(slow: Sequence[float | None], fast: Sequence[float | None], digits: int = 1) -> str:
    """Mean ± deviation of slow over fast, repeat by repeat.

    >>> ratio([10.0, 30.0, None], [5.0, 10.0, 1.0])
    '2.5 ± 0.7'
    """
    return pm(summary([one / other for one, other in _both(slow, fast)]), digits)


def ratio_of_means(slow: Sequence[float | None], fast: Sequence[float | None]) -> str:
    """The mean of slow over the mean of fast, over the repeats that have both: no single short time decides.

    >>> ratio_of_means([10.0, 30.0, None], [19.0, 1.0, 1.0])
    '2.0'
    """
    both = _both(slow, fast)
    total = sum(other for _, other in both)
    return f"{sum(one for one, _ in both) / total:.1f}" if total > 0 else MISSING


def less(first: Sequence[float | None], second: Sequence[float | None], digits: int = 1) -> str:
    """The mean of first - second and the p-values of the paired tests, over the repeats that have both.

    >>> less([5.0, 6.0, 7.5, None], [4.0, 4.5, 5.0, 1.0])
    '+1.7 (0.063, 0.25)'
    """
    both = _both(first, second)
    return chance(paired([one for one, _ in both], [other for _, other in both]), digits)


def _both(first: Sequence[float | None], second: Sequence[float | None]) -> list[tuple[float, float]]:
    """The pairs of which neither is missing."""
    pairs = zip(first, second, strict=True)
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def effort(records: Sequence[dict[str, Any]], began: float) -> str:
    """How the images were loaded, how much work is behind a result, and on what machine."""
    pools = sorted({(r["data"], r["options"]["pool"]) for r in records if r["options"].get("pool", 1) > 1})
    images = "".join(f"Images of {data} are averaged over {n} × {n} pixels. " for data, n in pools)
    return images + run_time(records, began)
