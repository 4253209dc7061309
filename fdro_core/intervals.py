"""Intervals for accuracies: what the number of held-out samples allows to say."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array

CONFIDENCE = 0.95


def wilson(share: ArrayLike, samples: ArrayLike, confidence: float = CONFIDENCE) -> tuple[Array, Array]:
    """Wilson's interval for shares of that many samples; NaN where one of the two is unknown.

    Its ends p solve (p - share)² = z² p (1 - p) / samples, with z the two-sided normal quantile. Unlike
    share ± error it stays within 0..1, and it does not shrink to a point if all or none are right.

    >>> low, high = wilson([1.0, 0.5], [10, 100])
    >>> low.round(3), high.round(3)
    (array([0.722, 0.404]), array([1.   , 0.596]))
    """
    p, n = np.asarray(share, dtype=np.float64), np.asarray(samples, dtype=np.float64)
    n = np.where(n > 0, n, np.nan)
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return np.clip(middle - half, 0.0, p), np.clip(middle + half, p, 1.0)  # exactly 0 and 1 despite rounding


def wilson_of_mean(shares: ArrayLike, samples: ArrayLike) -> tuple[float, float]:
    """A 95 % interval for the mean of shares of separate samples, from Wilson's intervals of each.

    The distances from the shares to their limits are combined as errors are, by the root of the sum of
    squares (Newcombe's method); NaN if nothing is known.

    >>> low, high = wilson_of_mean([0.9, 0.8], [50, 50])
    >>> round(low, 3), round(high, 3)
    (0.764, 0.902)
    """
    p = np.asarray(shares, dtype=np.float64)
    low, high = wilson(p, samples)
    known = np.isfinite(low)
    if not known.any():
        return np.nan, np.nan
    mean, count = p[known].mean(), known.sum()
    below, above = (np.sqrt(np.sum((limit - p)[known] ** 2)) / count for limit in (low, high))
    return float(mean - below), float(mean + above)
