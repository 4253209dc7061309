"""What is used in place of the losses and weights of workers that are lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fdro_core.master.roster import NEVER
from uncertainty_sets.arrays import Array


def fill_losses(losses: Array, reported: Array, visited: Sequence[int]) -> Array:
    """The losses that the oracle is asked about: those measured, else the last ones reported.

    A worker that never reported any (`visited` is -1) counts with the mean of the others.

    >>> fill_losses(np.array([1.0, np.nan, np.nan]), np.array([9.0, 3.0, 9.0]), [4, 2, -1])
    array([1., 3., 2.])
    """
    known = np.where(np.isfinite(losses), losses, reported)
    guessed = ~np.isfinite(losses) & (np.asarray(visited) == NEVER)
    if guessed.any():
        known[guessed] = known[~guessed].mean()
    return known


def redistribute(p: Array, kept: Sequence[bool]) -> Array:
    """Give the weight of workers that are not kept to the others, in proportion; p if that leaves nothing.

    >>> redistribute(np.array([0.5, 0.25, 0.25]), [False, True, True])
    array([0. , 0.5, 0.5])
    """
    rest = np.where(kept, p, 0.0)
    total = float(rest.sum())
    return rest / total if total > 0 else p
