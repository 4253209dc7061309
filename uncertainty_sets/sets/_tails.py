"""Checks of `tail`, the share of the worst losses that a risk measure looks at."""

from __future__ import annotations

from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.parameters import as_scalar_rows
from uncertainty_sets.ragged_parameters import Structure, as_row_numbers

LEAST = 1e-300
"""The smallest tail, so that 1/tail stays finite."""


def check_tail(name: str, tail: Array) -> Array:
    """Return shares in [LEAST, 1], or refuse them."""
    bad = tail[(tail <= 0.0) | (tail > 1.0)]
    if bad.size:
        raise InvalidParameter(
            f"{name} must be in (0, 1], the share of the worst losses (0.05 for the worst 5 %), "
            f"got {bad[0]:g}",
            parameter=name,
            value=tail,
        )
    if (tail < LEAST).any():
        raise InvalidParameter(
            f"{name} must be at least {LEAST:g}, since its reciprocal must be a number, got {tail.min():g}; "
            "the largest loss that has a probability is the limit",
            parameter=name,
            value=tail,
        )
    return tail


def as_tail_rows(tail: ArrayLike, rows: int) -> Array:
    """Return a share in (0, 1], or one per row of a batch, as (1 or B,)."""
    return check_tail("tail", as_scalar_rows("tail", tail, rows))


def as_ragged_tails(tail: ArrayLike, structure: Structure) -> Array:
    """Return a share in (0, 1] for all ragged rows, (1,), or one for each, (B,)."""
    return check_tail("tail", as_row_numbers("tail", tail, structure))
