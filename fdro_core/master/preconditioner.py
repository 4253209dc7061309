"""A metric that follows the gradients, as in RMSprop: P = √v + 1e-3·√mean(v) + 1e-12, v a running mean of d².

d is the descent of one step, a weighted mean of the workers' gradients. A step d/P has the same length
whatever the scale of the losses is. It is short at first, while v knows one gradient only and long steps
would switch off units of a network for good, and falls later, since the noise of batches stays.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from uncertainty_sets.arrays import Array

MEMORY = 0.05  # weight of the newest epoch in v
FLOOR = 1e-3  # of the root of the mean of v
TINY = 1e-12
SHORTER, LONGER = 0.5, 1.1  # by what η changes without noise
STEP = 0.006  # the usual longest step in this metric, for networks and softmax regression alike
RISE = 50.0  # epochs until steps have their full length, with few workers
FEW = 100.0  # workers: with more, so many times RISE gradients are enough
FALL = 100.0  # epochs after which they begin to fall


def follow(squares: Array | None, descent: Array, share: float = 1.0) -> Array:
    """v after a step by d, which stands for this share of an epoch: v + 0.05·share·(d² - v); d² at first.

    >>> follow(follow(None, np.array([1.0, 2.0])), np.array([1.0, 0.0]))
    array([1. , 3.8])
    """
    if squares is None:
        return descent * descent
    return squares + MEMORY * share * (descent * descent - squares)


def adapted(step: float, move: Array, last: Array | None) -> float:
    """η without noise, for a step along `move` after one by `last`: half if it goes back, else 1.1 times.

    A step d/P has the same length however near the minimum is: a fixed η circles around it for ever, and is
    slow from afar.

    >>> adapted(1.0, np.array([1.0, 0.0]), np.array([-3.0, 1.0])), adapted(1.0, np.ones(2), np.ones(2))
    (0.5, 1.1)
    """
    along = 0.0 if last is None else float(move @ last)
    return step if along == 0.0 else step * (SHORTER if along < 0.0 else LONGER)


def metric(squares: Array) -> Array:
    """P."""
    found: Array = np.sqrt(squares) + floor(float(squares.mean()))
    return found


def pace(epochs: float, workers: int) -> float:
    """The step after t epochs, as a share of the longest: min(1, (1 + t·max(1, N/100))/50)/√(1 + t/100).

    So steps rise for 50 epochs, and with more than a hundred workers for 5,000 gradients.

    >>> [round(pace(t, workers=3), 2) for t in (0, 24, 49, 300, 2400)]
    [0.02, 0.45, 0.82, 0.5, 0.2]
    >>> [round(pace(t, workers=500), 2) for t in (0, 5, 10)]
    [0.02, 0.51, 0.95]
    """
    return min(1.0, (1.0 + epochs * max(1.0, workers / FEW)) / RISE) / sqrt(1.0 + epochs / FALL)


def floor(mean: float) -> float:
    """What is added to √v, from the mean of v."""
    return FLOOR * sqrt(mean) + TINY
