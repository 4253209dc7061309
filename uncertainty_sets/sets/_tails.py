"""Checks of `tail`, the share of the worst losses that a risk measure looks at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.parameters import as_numbers, as_scalar_rows
from uncertainty_sets.rows import Along, as_row_numbers
from uncertainty_sets.sets._balls import CenteredSet

LEAST = 1e-300
"""The smallest tail, so that 1/tail stays finite."""


def check_tail(name: str, tail: Array) -> Array:
    """Return shares in [LEAST, 1], or refuse them."""
    least, most = np.minimum.reduce(tail, axis=None), np.maximum.reduce(tail, axis=None)
    if least <= 0.0 or most > 1.0:
        bad = tail[(tail <= 0.0) | (tail > 1.0)]
        raise InvalidParameter(
            f"{name} must be in (0, 1], the share of the worst losses (0.05 for the worst 5 %), "
            f"got {bad[0]:g}",
            parameter=name,
            value=tail,
        )
    if least < LEAST:
        raise InvalidParameter(
            f"{name} must be at least {LEAST:g}, since its reciprocal must be a number, got {least:g}; "
            "the largest loss that has a probability is the limit",
            parameter=name,
            value=tail,
        )
    return tail


EACH_TAIL = Along(
    "rows", lambda name, tail, structure: check_tail(name, as_row_numbers(name, tail, structure))
)
"""A share in (0, 1] for all ragged rows, or one for each."""


def as_tail_rows(tail: ArrayLike, rows: int) -> Array:
    """Return a share in (0, 1], or one per row of a batch, as (1 or B,)."""
    return check_tail("tail", as_scalar_rows("tail", tail, rows))


class TailMeasure(CenteredSet):
    """What CVaR and EVaR share: a centre and a tail; a subclass stores it as `_tail`."""

    _tail: Array

    @property
    def tail(self) -> float | Array:
        """The share of the worst losses."""
        return as_numbers(self, self._tail)

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """The worst half."""
        return super().default_parameters(center) | {"tail": 0.5}
