"""Where noise comes from: the operating system, or a seed for tests.

The noise of a release must be known to its worker alone. Numbers from `os.urandom` cannot be predicted from
earlier ones. A normal number is half the sum of four, by Box and Muller: a single one in floating point tells
which values it cannot be (Mironov 2012), a sum of four tells far less (Holohan and Braghin 2021). That is a
defence, not a proof.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np

from uncertainty_sets.arrays import Array

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
