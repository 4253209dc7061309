"""Clip and add noise: what a worker's samples become before anyone else sees them."""

from __future__ import annotations

import numpy as np

from fdro_core.privacy.entropy import Entropy
from fdro_core.privacy.settings import Privacy
from uncertainty_sets.arrays import Array


def clipped_sums(losses: Array, gradients: Array, bound: float, loss_bound: float) -> tuple[float, Array]:
    """Σ_i (clip(f_i, 0, B) - B/2) and Σ_i g_i·min(1, C/‖g_i‖).

    One sample changes them by at most B/2 and C, whatever it is: a loss that is not a number counts as B, a
    gradient whose norm is not finite as 0. Costs O(np).

    >>> loss, gradient = clipped_sums(
    ...     np.array([0.5, 9.0]), np.array([[0.3, 0.4], [6.0, 8.0]]), bound=1.0, loss_bound=2.0
    ... )
    >>> loss, gradient.round(9).tolist()  # (0.5 - 1) + (2 - 1), and the second gradient is (0.6, 0.8)
    (0.5, [0.9, 1.2])
    """
    centred = np.clip(np.where(np.isnan(losses), loss_bound, losses), 0.0, loss_bound) - 0.5 * loss_bound
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", gradients, gradients))
    usable = np.isfinite(norms)
    scale = np.where(usable, np.minimum(1.0, bound / np.maximum(norms, bound)), 0.0)
    total: Array = scale @ np.where(usable[:, None], gradients, 0.0)
    return float(centred.sum()), total


def release(
    losses: Array, gradients: Array, expected: float, privacy: Privacy, entropy: Entropy
) -> tuple[float, Array]:
    """The noised mean loss and mean gradient, by the formula of `Privacy`; `expected` is qn."""
    loss, gradient = clipped_sums(losses, gradients, privacy.bound, privacy.loss_bound)
    draws = entropy.normal(gradient.size + 1)
    loss += privacy.loss_noise * float(draws[0])
    gradient += privacy.gradient_noise * draws[1:]
    return 0.5 * privacy.loss_bound + loss / expected, gradient / expected
