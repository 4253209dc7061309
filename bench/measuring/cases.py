"""The sets that the oracles' targets are measured on: each closed form with a small, middle and large set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from uncertainty_sets import (
    KL,
    Box,
    Burg,
    CDNorm,
    ChiSquare,
    CressieRead,
    CVaR,
    CVaRMixture,
    Ellipsoid,
    EVaR,
    Hellinger,
    Intersection,
    Spectral,
    TotalVariation,
    UncertaintySet,
    Wasserstein,
    Wasserstein1,
    WeightedL1,
    available_sets,
    get_set,
)
from uncertainty_sets.arrays import Array

LEVELS = ("small", "middle", "large")


class Case(NamedTuple):
    """A closed form: its label, how its sets are made, and how large N may be.

    Attributes:
        label: as printed.
        make: the set of a centre and a level.
        largest: the largest N that it is meant for.
        programs: the largest N at which its program is solved by cvxpy; less if that has N² numbers.
    """

    label: str
    make: Callable[[Array, str, np.random.Generator], UncertaintySet]
    largest: int = 10**6
    programs: int = 10**4


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


Make = Callable[[Array, str, np.random.Generator], UncertaintySet]


def _of_size(
    cls: Callable[..., UncertaintySet], small: float, middle: float, large: float, *more: Any
) -> Make:
    """Sets of a centre and a size of the level, with further parameters after it."""
    sizes = dict(zip(LEVELS, (small, middle, large), strict=True))
    return lambda q, level, rng: cls(q, sizes[level], *more)


def _box(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    low, high = {"small": (0.9, 1.1), "middle": (0.5, 2.0), "large": (0.0, 50.0)}[level]
    return Box(low * q, high * q)


def _budget(level: str, size: int) -> float:
    return {"small": 0.01, "middle": 0.2, "large": 0.9}[level] * size


def _equal_spreads(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return CDNorm(q, 0.5 / q.size, _budget(level, q.size))


def _any_spreads(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return CDNorm(q, q * rng.uniform(0.2, 1.2, q.size), _budget(level, q.size))


AXES = {"small": 1e-2, "middle": 0.3, "large": 5.0}


def _diagonal(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return Ellipsoid(q, q * rng.uniform(0.5, 1.5, q.size), AXES[level])


def _dense(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return Ellipsoid(q, well_conditioned(q, rng), AXES[level])


def line_radius(level: str, size: int) -> float:
    """A tenth of a step, ten steps, and a hundredth of the line."""
    return {"small": 0.1, "middle": min(10.0, 0.1 * size), "large": 0.01 * size + 0.2}[level]


def _matrix(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    points = rng.normal(size=(q.size, 2))
    apart = np.linalg.norm(points[:, None, :] - points[None, :, :], axis=2)
    return Wasserstein1(q, {"small": 1e-2, "middle": 0.1, "large": 1.0}[level], apart)


def _weighted_l1(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    radius = {"small": 1e-3, "middle": 0.2, "large": 1.8}[level]
    return WeightedL1(q, rng.uniform(0.5, 2.0, q.size), radius)


TAILS = (0.9, 0.2, 0.01)
"""Small, middle, large."""


def _mixture(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    return CVaRMixture(q, [1.0, 0.5, TAILS[LEVELS.index(level)]], [0.3, 0.3, 0.4])


def _spectral(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    points = {
        "small": [(0.0, 0.0), (0.5, 0.55), (1.0, 1.0)],
        "middle": [(0.0, 0.0), (0.2, 0.6), (1.0, 1.0)],
        "large": [(0.0, 0.0), (0.01, 0.8), (0.1, 0.95), (1.0, 1.0)],
    }
    return Spectral(q, points[level])


def _clipped(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
    most = {"small": 1.2, "middle": 2.0, "large": 50.0}[level]
    return Intersection(KL_.make(q, level, rng), Box(0.5 * q, most * q))


BOX = Case("Box", _box)
EQUAL = Case("CDNorm equal spreads", _equal_spreads)
CD = Case("CDNorm any spreads", _any_spreads)
KL_ = Case("KL", _of_size(KL, 1e-3, 0.1, 3.0))
CHI_SQUARE = Case("ChiSquare", _of_size(ChiSquare, 1e-2, 0.3, 5.0))
HELLINGER = Case("Hellinger", _of_size(Hellinger, 1e-3, 0.05, 0.5))
BURG = Case("Burg", _of_size(Burg, 1e-3, 0.1, 3.0))
CRESSIE_READ = Case("CressieRead power 1.5", _of_size(CressieRead, 1e-3, 0.1, 3.0, 1.5))
DIAGONAL = Case("Ellipsoid diagonal", _diagonal)
DENSE = Case("Ellipsoid dense", _dense, 1_000, 500)
LINE = Case("Wasserstein1 line", lambda q, level, rng: Wasserstein1(q, line_radius(level, q.size)))
MATRIX = Case("Wasserstein1 cost matrix", _matrix, 1_000, 200)
LINE_2 = Case(
    "Wasserstein line, order 2",
    lambda q, level, rng: Wasserstein(q, line_radius(level, q.size)),
    programs=200,
)
TV = Case("TotalVariation", _of_size(TotalVariation, 1e-3, 0.1, 0.9))
L1 = Case("WeightedL1", _weighted_l1)
CVAR = Case("CVaR", _of_size(CVaR, *TAILS))
EVAR = Case("EVaR", _of_size(EVaR, *TAILS))
MIXTURE = Case("CVaRMixture", _mixture)
SPECTRAL = Case("Spectral", _spectral)
CLIPPED = Case("Intersection of KL and Box", _clipped)

LINEAR = (
    *(BOX, EQUAL, CD, KL_, CHI_SQUARE, HELLINGER, BURG, CRESSIE_READ, DIAGONAL, LINE, TV, L1),
    *(CVAR, EVAR, MIXTURE, SPECTRAL, CLIPPED, LINE_2),
)
ALL = (*LINEAR, DENSE, MATRIX)


PROGRAMS = {"nested": 1_000}
"""`programs` of examples whose cvxpy program fills in: a solve at 10⁴ takes minutes."""


def closed_forms() -> list[Case]:
    """Those above, and an example of every other closed form in the registry."""
    rng = np.random.default_rng(0)
    known = {case.make(center(3, rng), "middle", rng).name for case in ALL}
    kinds = [get_set(name) for name in available_sets() if name not in known]
    return [*ALL, *(_of_example(kind) for kind in kinds if kind.has_closed_form)]


def _of_example(kind: type[UncertaintySet]) -> Case:
    """A case without levels."""

    def make(q: Array, level: str, rng: np.random.Generator) -> UncertaintySet:
        return kind.example(q.size, rng)

    return Case(f"{kind.__name__} (its example)", make, programs=PROGRAMS.get(kind.name, 10**4))
