"""Losses of residuals r = prediction - target: each returns every sample's loss and its derivative in r."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array


def squared(r: Array) -> tuple[Array, Array]:
    """½r²."""
    return 0.5 * r * r, r


def absolute(r: Array) -> tuple[Array, Array]:
    """|r|, with the subgradient 0 at r = 0."""
    return np.abs(r), np.sign(r)


def smoothed(r: Array, width: float, center: Array | float = 0.0) -> tuple[Array, Array]:
    """Smooth |r| from below: the maximum over -1 <= s <= 1 of s·r - width/2·(s - center)².

    The derivative is the maximiser s. The value is at most |r|, and at least |r| - width/2·(1 + |center|)².

    >>> smoothed(np.array([0.5, 3.0]), 1.0)
    (array([0.125, 2.5  ]), array([0.5, 1. ]))
    """
    s = np.clip(center + r / width, -1.0, 1.0)
    return s * r - 0.5 * width * (s - center) ** 2, s


def huber(r: Array, epsilon: float) -> tuple[Array, Array]:
    """½r² up to |r| = epsilon, and epsilon·(|r| - epsilon/2) beyond.

    >>> huber(np.array([0.5, 3.0]), 1.0)
    (array([0.125, 2.5  ]), array([0.5, 1. ]))
    """
    loss, slope = smoothed(r, epsilon)
    return epsilon * loss, epsilon * slope
