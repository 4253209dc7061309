"""Curves over virtual time. Between two looks a curve stays at the earlier one's value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array


def at(times: ArrayLike, clock: Sequence[float], values: Sequence[float]) -> Array:
    """Return the curve at other times; NaN before its first look.

    >>> at([0, 1, 2.5, 9], [1, 2], [10, 20])
    array([nan, 10., 20., 20.])
    """
    place = np.searchsorted(np.asarray(clock, dtype=float), np.asarray(times, dtype=float), side="right") - 1
    found = np.asarray(values, dtype=float)[np.maximum(place, 0)]
    found[place < 0] = np.nan
    return found


def average_over(clock: Sequence[float], values: Sequence[float], seconds: float) -> float:
    """Return the mean over [0, seconds], with 0 before the first look.

    >>> average_over([1, 3], [10, 20], 4)
    10.0
    """
    edges = np.minimum(np.append(np.asarray(clock, dtype=float), max(seconds, clock[-1])), seconds)
    return float(np.diff(edges) @ np.asarray(values, dtype=float) / seconds)


def tail(clock: Sequence[float], values: Sequence[float], seconds: float, share: float = 0.2) -> float:
    """Return the mean over the last share of [0, seconds], with 0 before the first look.

    >>> tail([1, 9, 11], [10, 20, 99], 10)  # 10 from 8 s to 9 s, then 20; 11 s is too late
    15.0
    """
    begin = (1 - share) * seconds
    starts = np.clip(np.asarray(clock, dtype=float), begin, seconds)
    lengths = np.diff(np.append(starts, seconds))
    return float(lengths @ np.asarray(values, dtype=float) / (seconds - begin))


def smoothed(values: Sequence[float], width: int = 3) -> Array:
    """Return the mean of the last `width` values, of fewer at the start.

    >>> smoothed([0, 3, 6, 9])
    array([0. , 1.5, 3. , 6. ])
    """
    total = np.cumsum(np.asarray(values, dtype=float))
    total[width:] = total[width:] - total[:-width]
    means: Array = total / np.minimum(np.arange(1, total.size + 1), width)
    return means


def steadily(values: Sequence[float], level: float, width: int = 3) -> int | None:
    """Return the first place at which the mean of `width` values is at the level; None if there is none.

    A single lucky look at the start is no mean of three.

    >>> steadily([0.9, 0.1, 0.6, 0.6, 0.6], 0.6)
    4
    """
    means = smoothed(values, width)
    means[: width - 1] = -np.inf
    there = np.flatnonzero(means >= level)
    return int(there[0]) if there.size else None


def first_time(clock: Sequence[float], values: Sequence[float], level: float) -> float | None:
    """Return when the curve first is at the level or above, None if it never is.

    >>> first_time([1, 2, 3], [0.1, 0.6, 0.4], 0.5)
    2
    """
    there = np.flatnonzero(np.asarray(values, dtype=float) >= level)
    return clock[int(there[0])] if there.size else None


def band(
    records: Sequence[Mapping[str, Any]], name: str, times: ArrayLike, axis: str = "clock"
) -> tuple[Array, Array]:
    """Return mean and sample deviation over records of a curve at those times."""
    rows = np.array([at(times, record["curve"][axis], record["curve"][name]) for record in records])
    deviation = rows.std(axis=0, ddof=1) if len(rows) > 1 else np.zeros(rows.shape[1])
    return rows.mean(axis=0), deviation
