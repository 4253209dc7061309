"""What an asynchronous method works on: the model, its own memory, and the update that has just arrived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from fdro_core.protocol.forms import LARGEST_SQ
from fdro_core.protocol.saved import Kept, Saved, distribution, keeping, kept, numbers, or_none, real
from uncertainty_sets.arrays import Array


def remembered(saved: Saved, name: str, value: Any) -> None:
    """What a method remembers: vectors have p entries, and numbers are finite."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            remembered(saved, f"{name}.{key}", part)
    elif isinstance(value, np.ndarray):
        numbers("p")(saved, name, value)
    elif isinstance(value, int | float) and not isfinite(value):
        raise saved.error(name, f"must be a finite number, got {value!r}")


@keeping
@dataclass
class ArrivalState(Kept):
    """What a method may read; of these it changes `memory` alone.

    Attributes:
        w: the model; replaced, never written to.
        weights: the weight of each worker in the mean that is reported: even, 0 for one that never began.
        losses: f_j as last reported.
        step: η.
        memory: what the method keeps between arrivals, by name: plain values, arrays, and dicts of them. It
            is saved in checkpoints.
        squares: v of the preconditioner, None without one and before the first step.
        average: the running mean of w, which is the result; None if w itself is.
        moved: the last step of w, with a preconditioner; None before.
    """

    w: Array = kept(numbers("p"))
    weights: Array = kept(distribution("N"))
    losses: Array = kept(numbers("N"))
    step: float = kept(real(above=0.0))
    memory: dict[str, Any] = kept(remembered, default_factory=dict)
    squares: Array | None = kept(or_none(numbers("p", least=0.0, most=LARGEST_SQ)), default=None)
    average: Array | None = kept(or_none(numbers("p")), default=None)
    moved: Array | None = kept(or_none(numbers("p")), default=None)


@dataclass(frozen=True)
class Arrival:
    """The update of one worker.

    Attributes:
        worker: j.
        move: w_j - w_sent, from the model that j was sent to where its local steps led; with a preconditioner
            -(1/E)·Σ of its E gradients.
        sent_in: the iteration in which that model was sent.
        age: iterations since then: how many models were made meanwhile. So it is iteration sent_in + age now.
        local: w_j; with a preconditioner `move`, since the worker sends no model.
    """

    worker: int
    move: Array
    sent_in: int
    age: int
    local: Array


def fits(pattern: Any, value: Any) -> bool:
    """Whether a saved memory has the form of a new one; of a dict by worker it may have a part.

    >>> new = {"count": 0, "updates": {0: np.zeros(2), 1: np.zeros(2)}}
    >>> (
    ...     fits(new, {"count": 3, "updates": {1: np.ones(2)}}),
    ...     fits(new, {"count": 3, "updates": {7: np.ones(2)}}),
    ... )
    (True, False)
    """
    if isinstance(pattern, dict):
        if not isinstance(value, dict) or not value.keys() <= pattern.keys():
            return False
        whole = any(isinstance(key, str) for key in pattern)
        if whole and value.keys() != pattern.keys():
            return False
        return all(fits(pattern[key], part) for key, part in value.items())
    if isinstance(pattern, np.ndarray):
        return isinstance(value, np.ndarray) and value.shape == pattern.shape
    return type(value) is type(pattern)
