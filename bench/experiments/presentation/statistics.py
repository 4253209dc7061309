"""Means, deviations and paired tests over repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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
