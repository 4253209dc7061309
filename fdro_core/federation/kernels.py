"""Passes over vectors that every master and worker makes, in numba: arrays in, nothing checked."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import kernel, summing


@summing
def curvature(
    w_old: Array, w_new: Array, g_old: Array, g_new: Array, metric: Array, inverse: Array
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


@summing
def norm_sq(values: Array) -> float:
    """‖x‖²; NaN or infinity where an entry is, or where the square overflows."""
    total = 0.0
    for i in range(values.size):
        total += values[i] * values[i]
    return total


@kernel
def enter(book: Array, size: float, sent: float) -> None:
    """One worker's book after a reply of ‖w_j‖² = size: that, what its next step starts from, the excess.

    An honest step ends between w_j, y_j/κ₁ and the minimum of f_j; so ‖w_j‖² is at most a few times the
    larger of the first two (`sent` is the second's square), once those are far from the minimum. The excess
    is how far beyond them it ever was, and fades.
    """
    excess = size / book[1] if book[1] > 0.0 else 0.0
    book[0] = size
    book[1] = max(size, sent)
    book[2] = max(0.9 * book[2], excess)


@kernel
def simplex_threshold(values: Array) -> float:
    """The h with Σ max(0, values - h) = 1."""
    order = np.sort(values)[::-1]
    total = 0.0
    threshold = 0.0
    for i in range(order.size):
        total += order[i]
        candidate = (total - 1.0) / (i + 1)
        if order[i] > candidate:
            threshold = candidate
    return threshold
