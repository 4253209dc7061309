"""Every set around a prior with one number for its size, for the sweeps over radii."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uncertainty_sets import KL, Box, CDNorm, Ellipsoid, Polyhedron, Wasserstein1
from uncertainty_sets.arrays import Array


def _box(q: Array, size: float) -> Any:
    return Box(np.maximum(0.0, q - size), np.minimum(1.0, q + size))


def _polyhedron(q: Array, size: float) -> Any:
    """Neighbours' weights differ by at most their priors' difference and `size`."""
    steps = np.eye(q.size)[:-1] - np.eye(q.size)[1:]
    gaps = np.abs(np.diff(q)) + size
    return Polyhedron(np.vstack([steps, -steps]), np.concatenate([gaps, gaps]))


SETS: dict[str, tuple[str, Callable[[Array, float], Any], Callable[[int], float]]] = {
    "cd-norm": (
        "budget Γ",
        lambda q, size: CDNorm(q, np.full(q.size, 1.0 - q.min()), size),
        lambda n: 2.0,
    ),
    "box": ("largest deviation", _box, lambda n: 1.0 - 1.0 / n),
    "ellipsoid": (
        "radius",
        lambda q, size: Ellipsoid(q, 1.0, size),
        lambda n: 1.0 - 1.0 / n,
    ),
    "kl": ("radius", KL, lambda n: float(np.log(n))),
    "wasserstein-1": (
        "radius, moving mass costs 1",
        lambda q, size: Wasserstein1(q, size, cost=1.0 - np.eye(q.size)),
        lambda n: 1.0 - 1.0 / n,
    ),
    "polyhedron": ("largest step between neighbours", _polyhedron, lambda n: 1.0),
}
"""Name of a set: what its size is called, how it is made, and the size that makes it the whole simplex."""


def make(name: str, size: float, prior: Array) -> Any:
    """Build the set of that name and size around the prior."""
    return SETS[name][1](prior, size)


def sizes(name: str, workers: int, count: int) -> list[float]:
    """Return sizes from 0 to the whole simplex, denser for small sets.

    >>> [round(size, 3) for size in sizes("kl", 3, 3)]
    [0.0, 0.275, 1.099]
    """
    largest = SETS[name][2](workers)
    return [float(largest * (k / (count - 1)) ** 2) for k in range(count)]
