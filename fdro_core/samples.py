"""Helpers for samples that the `fdro` command and the benchmarks share: the digits, and standardising."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import BackendMissing

CONSTANT = 1e-12
"""A feature whose deviation is at most this share of max(1, |mean|) is constant up to rounding."""


def load_digits() -> tuple[Array, NDArray[np.int64]]:
    """scikit-learn's 1,797 handwritten digits: (1797, 64) pixels in [0, 1], and the labels 0 to 9."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise BackendMissing('the digits come with scikit-learn: pip install "fdro[demo]"') from error
    pixels, labels = load(return_X_y=True)
    return pixels / 16.0, labels.astype(np.int64)


def mean_and_deviation(parts: Sequence[Array]) -> tuple[Array, Array]:
    """Mean and standard deviation of every feature over all parts; the deviation of a constant one is 0.

    A federation can compute this without moving samples: it needs three sums per worker.

    >>> mean_and_deviation([np.array([[0.0, 0.1]]), np.array([[2.0, 0.1], [4.0, 0.1]])])
    (array([2. , 0.1]), array([1.63299316, 0.        ]))
    """
    count = sum(map(len, parts))
    mean = np.sum([part.sum(axis=0) for part in parts], axis=0) / count
    variance = np.sum([((part - mean) ** 2).sum(axis=0) for part in parts], axis=0) / count
    deviation = np.sqrt(variance)
    deviation[deviation <= CONSTANT * np.maximum(1.0, np.abs(mean))] = 0.0
    return mean, deviation
