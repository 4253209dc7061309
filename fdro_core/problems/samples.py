"""Samples that problems are made from: scikit-learn's digits, and standardising features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import BackendMissing


def load_digits() -> tuple[Array, NDArray[np.int64]]:
    """Return scikit-learn's 1,797 hand-written digits: 8 × 8 pixels in [0, 1], and which digit each is.

    >>> X, y = load_digits()
    >>> X.shape, float(X.max()), int(y[0])
    ((1797, 64), 1.0, 0)
    """
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise BackendMissing('the digits come with scikit-learn: pip install "fdro[demo]"') from error
    X, y = load(return_X_y=True)
    return X / 16.0, y.astype(np.int64)


HOSPITALS = {"A": 900, "B": 800, "C": 700, "D": 600, "E": 500, "F": 400, "G": 300, "H": 200}
"""Patients per hospital."""

SHORTCUT = (1.5, 1.5, 1.5, 1.5, 1.0, 1.0, 0.0, -1.0)
"""By how many deviations illness moves the second feature, per hospital."""


def make_hospitals(seed: int) -> tuple[Array, NDArray[np.int64], NDArray[np.str_]]:
    """Draw patients of eight hospitals: six features, whether each is ill, and the hospital.

    Illness moves the first feature up by one deviation, and health down by one, at every hospital. The
    second one is a shortcut: it says more at the large hospitals, nothing at G, and the opposite at H. The
    others are noise. A model for the mean patient uses the shortcut and fails at H.

    >>> X, ill, hospital = make_hospitals(seed=0)
    >>> X.shape, hospital[-1].item()
    ((4400, 6), 'H')
    """
    rng = np.random.default_rng(seed)
    hospital = np.repeat(list(HOSPITALS), list(HOSPITALS.values()))
    ill = rng.integers(0, 2, size=hospital.size)
    X = rng.normal(size=(hospital.size, 6))
    side = 2.0 * ill - 1.0
    X[:, 0] += side
    X[:, 1] += side * np.repeat(SHORTCUT, list(HOSPITALS.values()))
    return X, ill, hospital


def mean_and_scale(parts: Sequence[Array], constant: float = 1.0) -> tuple[Array, Array]:
    """Return every feature's mean and standard deviation over all parts together.

    The scale of a feature that never changes is `constant`: with infinity, (X - mean) / scale is 0 for it
    whatever X is.

    >>> mean_and_scale([np.array([[1.0, 5.0]]), np.array([[3.0, 5.0]])])
    (array([2., 5.]), array([1., 1.]))
    """
    together = np.concatenate(parts)
    mean, deviation = together.mean(axis=0), together.std(axis=0)
    still = deviation <= 1e-12 * np.maximum(1.0, np.abs(mean))  # rounding leaves a little
    return mean, np.where(still, constant, deviation)
