"""The mean and deviation of every feature over data that lies in several places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uncertainty_sets.arrays import Array

ROUNDING = 1e-12
"""A deviation of at most this, over max(1, |mean|), is rounding: the feature never changes."""


def mean_and_deviation(parts: Sequence[Array]) -> tuple[Array, Array]:
    """Each feature's mean and standard deviation over all parts, (samples, features) each.

    The deviation is exactly 0 for a feature that never changes. Workers can compute both without moving
    data: they need three sums from each.

    >>> mean_and_deviation([np.array([[0.0, 0.1]]), np.array([[1.0, 0.1], [2.0, 0.1]])])
    (array([1. , 0.1]), array([0.81649658, 0.        ]))
    """
    samples = sum(len(part) for part in parts)
    mean = np.sum([part.sum(axis=0) for part in parts], axis=0) / samples
    square = np.sum([((part - mean) ** 2).sum(axis=0) for part in parts], axis=0) / samples
    deviation = np.sqrt(square)
    deviation[deviation <= ROUNDING * np.maximum(1.0, np.abs(mean))] = 0.0
    return mean, deviation
