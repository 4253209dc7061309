"""Families of rows to draw from, and a mixture of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from uncertainty_sets.arrays import Array

Rng = np.random.Generator
Shape = tuple[int, int]
Family = Callable[[Rng, Shape], Array]
"""Draws rows of that shape, (rows, N)."""


def mixed(families: Mapping[str, Family], rng: Rng, shape: Shape, first: str) -> Array:
    """Rows of all families, about half of them of the family `first`."""
    names = list(families)
    picked = rng.integers(len(names), size=shape[0])
    picked = np.where(rng.random(shape[0]) < 0.5, names.index(first), picked)
    drawn = np.empty(shape)
    for k in np.unique(picked):
        rows: Any = picked == k
        drawn[rows] = families[names[k]](rng, (int(rows.sum()), shape[1]))
    return drawn
