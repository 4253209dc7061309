"""A metric that follows the replies, as RMSprop follows gradients: P = √v + 1e-3·√mean(v) + 1e-12.

v is a running mean of Σ_j s_jg_j², the workers' squared gradients by their weights:

    on a reply g of worker j, heard Δ epochs ago:   v ← v + r(g² - v),   r = min(½, max(0.05, 1/(1+t))·s_j·Δ)

with t the epochs of replies so far. So v is the mean of all replies in the first 20 epochs and forgets the
oldest then. The descent d = Σ_j s_jg_j has |d_i| <= √v_i (Jensen), so a step d/P is at most 1 long in every
coordinate, whatever the scale of the losses is; and as workers, or batches, disagree at a solution, v stays
above 0 there, and steps become short. Steps are short at first too, while d is far from settled and long ones
would switch off units of a network for good, and fall later, since the noise of batches stays.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from fdro_core.master import kernels
from uncertainty_sets.arrays import Array

MEMORY = 0.05  # weight of the newest epoch in v
MOST = 0.5  # of one reply
FLOOR = 1e-3  # of the root of the mean of v
TINY = 1e-12
SHORTER, LONGER = 0.5, 1.1  # by what η changes without noise
STEP = 0.006  # the usual longest step in this metric, times √N
RISE = 15.0  # epochs until steps have their full length, with few workers
FEW = 100.0  # workers: with more, so many times RISE gradients are enough
FALL = 100.0  # epochs after which they begin to fall


def usual_step(workers: int) -> float:
    """The longest step by default, 0.006√N: of N replies that are noise, the mean is √N times shorter.

    >>> [round(usual_step(N), 4) for N in (1, 3, 15, 539)]
    [0.006, 0.0104, 0.0232, 0.1393]
    """
    return STEP * sqrt(workers)


def rate(heard: float, weight: float, gap: float) -> float:
    """The part r of v that a reply replaces, after so many epochs of replies, it counted.

    >>> [round(rate(t, weight=0.1, gap=1.0), 3) for t in (0.1, 4.0, 100.0)], rate(100.0, 1.0, gap=30.0)
    ([0.091, 0.02, 0.005], 0.5)
    """
    return min(MOST, max(MEMORY, 1.0 / (1.0 + heard)) * weight * gap)


def follow(squares: Array, gradient: Array, part: float) -> float:
    """v + part·(g² - v), in place; the mean of v. Costs O(p).

    >>> v = np.array([1.0, 4.0])
    >>> follow(v, np.array([3.0, 0.0]), 0.5), v
    (3.5, array([5., 2.]))
    """
    return kernels.follow_squares(squares, gradient, part)


def adapted(step: float, move: Array, last: Array | None) -> float:
    """η without noise, for a step along `move` after one by `last`: half if it goes back, else 1.1 times.

    Where all workers agree v falls with the gradient, and a step d/P has the same length however near the
    minimum is: a fixed η circles around it for ever, and is slow from afar.

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
    """The step after t epochs, as a share of the longest: min(1, (1 + t·max(1, N/100))/15)/√(1 + t/100).

    So steps rise for 15 epochs, and with more than a hundred workers for 1,500 gradients.

    >>> [round(pace(t, workers=3), 2) for t in (0, 6, 14, 300, 2400)]
    [0.07, 0.45, 0.94, 0.5, 0.2]
    >>> [round(pace(t, workers=500), 2) for t in (0, 1, 3)]
    [0.07, 0.4, 0.99]
    """
    return min(1.0, (1.0 + epochs * max(1.0, workers / FEW)) / RISE) / sqrt(1.0 + epochs / FALL)


def floor(mean: float) -> float:
    """What is added to √v, from the mean of v."""
    return FLOOR * sqrt(mean) + TINY
