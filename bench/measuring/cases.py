"""The sets that the oracles' targets are measured on: each closed form with a small, middle and large set."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from uncertainty_sets import (
    KL,
    Box,
    Burg,
    CDNorm,
    ChiSquare,
    CressieRead,
    Ellipsoid,
    Hellinger,
    TotalVariation,
    UncertaintySet,
    Wasserstein1,
    WeightedL1,
)
from uncertainty_sets.arrays import Array

LEVELS = ("small", "middle", "large")


class Case(NamedTuple):
    """A closed form: its label, how its sets are made, and the largest N it is meant for."""

    label: str
    make: Callable[[Array, str, np.random.Generator], UncertaintySet]
    largest: int = 10**6


def losses(size: int, rng: np.random.Generator) -> Array:
    """Continuous random losses: argsort is ten times faster on sorted or tied data."""
    return rng.normal(size=size)


def center(size: int, rng: np.random.Generator) -> Array:
    """Probabilities that differ by a factor of up to three."""
    weights = rng.uniform(0.5, 1.5, size)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def well_conditioned(q: Array, rng: np.random.Generator) -> Array:
    """A dense shape of condition about 10: the diagonal q and a random part of a few dimensions."""
    factors = rng.normal(size=(q.size, 5)) * np.sqrt(q)[:, None]
    return np.asarray(np.diag(q) + 0.5 * factors @ factors.T / 5, dtype=np.float64)


def _box(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    low, high = {"small": (0.9, 1.1), "middle": (0.5, 2.0), "large": (0.0, 50.0)}[level]
    return Box(low * q, high * q)


def _budget(level: str, size: int) -> float:
    return {"small": 0.01, "middle": 0.2, "large": 0.9}[level] * size


def _equal_spreads(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return CDNorm(q, 0.5 / q.size, _budget(level, q.size))


def _any_spreads(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return CDNorm(q, q * rng.uniform(0.2, 1.2, q.size), _budget(level, q.size))


def _kl(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return KL(q, {"small": 1e-3, "middle": 0.1, "large": 3.0}[level])


def _chi_square(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return ChiSquare(q, {"small": 1e-2, "middle": 0.3, "large": 5.0}[level])


def _hellinger(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return Hellinger(q, {"small": 1e-3, "middle": 0.05, "large": 0.5}[level])


def _burg(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return Burg(q, {"small": 1e-3, "middle": 0.1, "large": 3.0}[level])


def _cressie_read(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return CressieRead(q, {"small": 1e-3, "middle": 0.1, "large": 3.0}[level], 1.5)


def _diagonal(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    shape = q * rng.uniform(0.5, 1.5, q.size)
    return Ellipsoid(q, shape, {"small": 1e-2, "middle": 0.3, "large": 5.0}[level])


def _dense(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return Ellipsoid(q, well_conditioned(q, rng), {"small": 1e-2, "middle": 0.3, "large": 5.0}[level])


def line_radius(level: str, size: int) -> float:
    """A tenth of a step, ten steps, and a hundredth of the line."""
    return {"small": 0.1, "middle": min(10.0, 0.1 * size), "large": 0.01 * size + 0.2}[level]


def _line(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return Wasserstein1(q, line_radius(level, q.size))


def _matrix(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    points = rng.normal(size=(q.size, 2))
    apart = np.linalg.norm(points[:, None, :] - points[None, :, :], axis=2)
    return Wasserstein1(q, {"small": 1e-2, "middle": 0.1, "large": 1.0}[level], apart)


def _total_variation(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return TotalVariation(q, {"small": 1e-3, "middle": 0.1, "large": 0.9}[level])


def _weighted_l1(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    radius = {"small": 1e-3, "middle": 0.2, "large": 1.8}[level]
    return WeightedL1(q, rng.uniform(0.5, 2.0, q.size), radius)


BOX = Case("Box", _box)
EQUAL = Case("CDNorm equal spreads", _equal_spreads)
CD = Case("CDNorm any spreads", _any_spreads)
KL_ = Case("KL", _kl)
CHI_SQUARE = Case("ChiSquare", _chi_square)
HELLINGER = Case("Hellinger", _hellinger)
BURG = Case("Burg", _burg)
CRESSIE_READ = Case("CressieRead power 1.5", _cressie_read)
DIAGONAL = Case("Ellipsoid diagonal", _diagonal)
DENSE = Case("Ellipsoid dense", _dense, 1_000)
LINE = Case("Wasserstein1 line", _line)
MATRIX = Case("Wasserstein1 cost matrix", _matrix, 1_000)

TV = Case("TotalVariation", _total_variation)
L1 = Case("WeightedL1", _weighted_l1)

LINEAR = (BOX, EQUAL, CD, KL_, CHI_SQUARE, HELLINGER, BURG, CRESSIE_READ, DIAGONAL, LINE, TV, L1)
ALL = (*LINEAR, DENSE, MATRIX)
