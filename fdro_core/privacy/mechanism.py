"""Clip and add noise: what a worker's samples become before anyone else sees them.

And where noise comes from: the operating system, or a seed for tests.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np

from fdro_core.privacy.settings import Privacy
from uncertainty_sets.arrays import Array

# -- where noise comes from ----------------------------------------------------------------------------
# The noise of a release must be known to its worker alone. Numbers from `os.urandom` cannot be predicted from
# earlier ones. A normal number is half the sum of four, by Box and Muller: a single one in floating point
# tells which values it cannot be (Mironov 2012), a sum of four tells far less (Holohan and Braghin 2021).
# That is a defence, not a proof.


PARTS = 4  # normal numbers in each that is returned


class Entropy(Protocol):
    """A source of random numbers.

    Attributes:
        secret: whether nobody else can know the numbers.
    """

    secret: bool

    def uniform(self, size: int) -> Array:
        """So many numbers in (0, 1)."""
        ...

    def normal(self, size: int) -> Array:
        """So many numbers of N(0, 1)."""
        ...

    def generator(self) -> np.random.Generator:
        """A generator with a new seed, for a problem that draws its own batch."""
        ...


class SystemEntropy:
    """Numbers of the operating system's generator. A normal number takes 64 bytes of it.

    >>> draws = SystemEntropy().normal(1000)
    >>> draws.shape, bool(abs(draws.std() - 1) < 0.2)
    ((1000,), True)
    """

    secret = True

    def uniform(self, size: int) -> Array:
        """So many multiples of 2⁻⁵³, each plus half of that."""
        words = np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
        return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def normal(self, size: int) -> Array:
        """So many numbers of N(0, 1)."""
        radius, angle = self.uniform(2 * PARTS * size).reshape(2, PARTS, size)
        draws = np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)
        total: Array = draws.sum(axis=0) / np.sqrt(PARTS)
        return total

    def generator(self) -> np.random.Generator:
        """A generator seeded by the system."""
        return np.random.default_rng()


class SeededEntropy:
    """Numbers that a seed fixes: for tests and measurements, since they hide nothing."""

    secret = False

    def __init__(self, *seed: int) -> None:
        self._rng = np.random.default_rng(list(seed))

    def uniform(self, size: int) -> Array:
        """So many numbers in [0, 1)."""
        return self._rng.random(size)

    def normal(self, size: int) -> Array:
        """So many numbers of N(0, 1)."""
        return self._rng.standard_normal(size)

    def generator(self) -> Any:
        """A generator that the seed fixes."""
        return np.random.default_rng(self._rng.integers(2**63))


# -- clip and add noise --------------------------------------------------------------------------------


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
