"""A case: a set's parameters, a batch of losses, and how the oracle is called; drawn by seed and number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.soak import centers, losses
from bench.soak.drawing import Draw
from bench.soak.families import mixed
from bench.soak.parameters import MAKERS
from uncertainty_sets import UncertaintySet
from uncertainty_sets.arrays import Array

SIZES = (1, 2, 3, 5, 10, 24, 25, 97, 300, 5000, 100_000)
SHARES = (0.03, 0.08, 0.15, 0.2, 0.2, 0.1, 0.1, 0.08, 0.05, 0.0095, 0.0005)
"""How often each size is drawn."""

ENTRIES = 4000
"""Rows times size of a batch, about."""

ROWS = 200
"""Rows of a batch, at most."""

GENERATORS: tuple[tuple[str, str], ...] = (
    *(("losses", name) for name in losses.FAMILIES),
    *(("weights", name) for name in centers.FAMILIES if name != "plain"),
    ("radii", "saturation"),
    ("start", "unrelated"),
)
"""What a batch concentrates on: (aspect, family); the other aspects are drawn from all families."""


@dataclass
class Case:
    """A batch for one set; `by_row` names the parameters that have a row for each loss vector."""

    name: str
    generator: str
    parameters: dict[str, Any]
    by_row: frozenset[str]
    losses: Array
    single: bool = False
    warm: dict[str, Any] | None = None

    @property
    def rows(self) -> int:
        """How many loss vectors."""
        return len(self.losses)

    @property
    def size(self) -> int:
        """N."""
        return int(self.losses.shape[1])

    def row_parameters(self, row: int) -> dict[str, Any]:
        """The parameters of one row, for a set of that row alone."""
        return {key: value[row] if key in self.by_row else value for key, value in self.parameters.items()}

    def subject(self, row: int | None = None) -> UncertaintySet:
        """The set of one row, or of the whole batch."""
        given = self.parameters if row is None else self.row_parameters(row)
        made: UncertaintySet = MAKERS[self.name].build(**given)
        return made

    def only(self, rows: Any) -> Case:
        """The case with only those rows."""
        given = {key: value[rows] if key in self.by_row else value for key, value in self.parameters.items()}
        warm = None if self.warm is None else {key: value[rows] for key, value in self.warm.items()}
        return Case(self.name, self.generator, given, self.by_row, self.losses[rows], self.single, warm)


def draw(name: str, generator: tuple[str, str], rng: np.random.Generator) -> Case:
    """Draw a batch for that set that concentrates on that aspect."""
    maker = MAKERS[name]
    sizes, shares = np.array(SIZES), np.array(SHARES) * (np.array(SIZES) <= maker.largest)
    size = int(rng.choice(sizes, p=shares / shares.sum()))
    aspect, family = generator
    single = bool(rng.random() < 0.15)
    rows = max(1, min(ROWS, maker.rows, ENTRIES // size, 20 if single else ROWS))
    shape = (rows, size)
    f = mixed(losses.FAMILIES, rng, shape, family if aspect == "losses" else "plain")
    if maker.conic or maker.far:
        largest = np.abs(f).max(axis=1, keepdims=True)
        f = f * np.where(largest > 1e290, 2.0**-100, np.where(largest < 1e-290, 2.0**100, 1.0))
    q = mixed(centers.FAMILIES, rng, shape, family if aspect == "weights" else "plain")
    parameters, by_row = maker.make(Draw(rng, f, q, saturated=aspect == "radii"))
    warm = _unrelated(rng, rows, maker.multipliers) if aspect == "start" or rng.random() < 0.1 else None
    return Case(name, f"{aspect}: {family}", parameters, frozenset(by_row), f, single, warm)


def _unrelated(rng: np.random.Generator, rows: int, keys: tuple[str, ...]) -> dict[str, Array]:
    """Multipliers unrelated to the problem: of any size, zero, infinite, NaN, negative."""
    warm = {}
    for key in keys:
        value = 10.0 ** rng.uniform(-20.0, 20.0, rows)
        odd = rng.choice([0.0, np.inf, np.nan, -1.0, 1e300, 5e-324], rows)
        ordinary = rng.normal(size=rows)
        kind = rng.integers(3, size=rows)
        warm[key] = np.where(kind == 0, value, np.where(kind == 1, odd, ordinary))
    return warm
