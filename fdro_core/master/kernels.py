"""Passes over vectors that every master and worker makes, in numba: arrays in, nothing checked."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Vector
from uncertainty_sets.kernels.jit import entry, kernel, strict, summing


@entry()
@summing
def curvature(
    w_old: Vector, w_new: Vector, g_old: Vector, g_new: Vector, metric: Vector, inverse: Vector
) -> tuple[float, float, float, float]:
    """‖Δg‖², ‖Δw‖², ‖g‖² and ‖w‖², gradients in the metric 1/D and points in D."""
    change, moved, size, length = 0.0, 0.0, 0.0, 0.0
    for i in range(w_old.size):
        dg = g_new[i] - g_old[i]
        dw = w_new[i] - w_old[i]
        change += inverse[i] * dg * dg
        moved += metric[i] * dw * dw
        size += inverse[i] * g_new[i] * g_new[i]
        length += metric[i] * w_new[i] * w_new[i]
    return change, moved, size, length


@entry()
@summing
def norm_sq(values: Vector) -> float:
    """‖x‖²; NaN or infinity where an entry is, or where the square overflows."""
    total = 0.0
    for i in range(values.size):
        total += values[i] * values[i]
    return total


@entry("out")
@strict
def descend(w: Vector, inverse: Vector, gradient: Vector, step: float, out: Vector) -> None:
    """out ← w - (step/D)·gradient, every rounding as in NumPy."""
    for i in range(w.size):
        out[i] = w[i] - step * inverse[i] * gradient[i]


@entry("total")
@strict
def add(total: Vector, part: float, point: Vector) -> None:
    """Total += part·point, in place, every rounding as in NumPy."""
    for i in range(total.size):
        total[i] += part * point[i]


@entry("squares")
@summing
def follow_squares(squares: Vector, gradient: Vector, rate: float) -> float:
    """v += rate·(g² - v), in place; the mean of v."""
    total = 0.0
    for i in range(gradient.size):
        squares[i] += rate * (gradient[i] * gradient[i] - squares[i])
        total += squares[i]
    return total / gradient.size


@entry("book")
@kernel
def enter(book: Vector, size: float, sent: float) -> None:
    """One worker's book after a reply of ‖w_j‖² = size: that, what its next step starts from, the excess.

    An honest step ends between w_j, y_j/κ₁ and the minimum of f_j; so ‖w_j‖² is at most a few times the
    larger of the first two (`sent` is the second's square), once those are far from the minimum. The excess
    is how far beyond them it ever was, and fades.
    """
    excess = size / book[1] if book[1] > 0.0 else 0.0
    book[0] = size
    book[1] = max(size, sent)
    book[2] = max(0.9 * book[2], excess)


@entry()
@kernel
def simplex_threshold(values: Vector) -> float:
    """The h with Σ max(0, values - h) = 1.

    Each round takes the h of the entries that are left and drops those below it. The first h, of all entries,
    is at most the true one; h rises until no entry is dropped.
    """
    threshold, left = -np.inf, values.size + 1
    while True:
        total, above = 0.0, 0
        for i in range(values.size):
            if values[i] > threshold:
                total += values[i]
                above += 1
        if above in (0, left):  # 0 if 1 is less than the last digit of the values
            return threshold
        threshold, left = (total - 1.0) / above, above
