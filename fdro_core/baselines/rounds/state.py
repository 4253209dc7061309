"""What the rounds of a method work on: the model and weights, and what the workers are asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fdro_core.master.kernels import add, simplex_threshold
from fdro_core.protocol.forms import LARGEST_SQ
from fdro_core.protocol.saved import (
    TINY,
    Kept,
    distribution,
    keeping,
    kept,
    listing,
    numbers,
    or_none,
    real,
    whole,
    worker_index,
)
from uncertainty_sets.arrays import Array


@keeping
@dataclass
class RoundState(Kept):
    """What a method may read and change.

    Attributes:
        w: the model; replaced, never written to.
        weights: λ, the weight of each worker.
        prior: q, the set's reference().
        shares: each worker's part of all samples; equal if a problem does not say how many it has.
        losses: f_j as last reported.
        step: η.
        marked: a model that the next phase is about, or None.
        squares: v of the preconditioner, None without one and before the first step.
        average: the running mean of w, which is the result; None if w itself is.
        metric: D.
        controls: the control variate c_j of every worker, (N, p); None if the method has none.
        moved: the last step of w, with a preconditioner; None before.
        earlier: the losses of the last step of λ, for a method that extrapolates them; else None.
    """

    w: Array = kept(numbers("p"))
    weights: Array = kept(distribution("N"))
    prior: Array = kept(distribution("N"))
    shares: Array = kept(distribution("N"))
    losses: Array = kept(numbers("N"))
    step: float = kept(real(above=0.0))
    marked: Array | None = kept(or_none(numbers("p")), default=None)
    squares: Array | None = kept(or_none(numbers("p", least=0.0, most=LARGEST_SQ)), default=None)
    average: Array | None = kept(or_none(numbers("p")), default=None)
    metric: Array | None = kept(or_none(numbers("p", least=TINY)), default=None)
    controls: Array | None = kept(or_none(numbers("N p")), default=None)
    earlier: Array | None = kept(or_none(numbers("N")), default=None)
    moved: Array | None = kept(or_none(numbers("p")), default=None)


@keeping
@dataclass
class Job(Kept):
    """What the workers are asked in a phase.

    Attributes:
        workers: who takes part.
        steps: E; 0 asks for the loss alone.
        mark: the local step whose model is sent too, 0 for none.
        counts: how often each worker was drawn, if workers are drawn with repetition.
        control: c; worker j adds c - c_j to its gradients, with c_j of the state's `controls`. None: nothing.
    """

    workers: list[int] = kept(listing("", worker_index))
    steps: int = kept(whole())
    mark: int = kept(whole(), default=0)
    counts: list[int] = kept(listing(), default_factory=list)
    control: Array | None = kept(or_none(numbers("p")), default=None)


def average(points: Mapping[int, Array | None], weights: Array, otherwise: Array) -> Array:
    """Σ_j weights_j·points_j / Σ_j weights_j in the order of j; `otherwise` if that is 0/0."""
    total = float(sum(weights[j] for j in points))
    if not total > 0:
        return otherwise
    mean = np.zeros_like(otherwise)
    for j, point in sorted(points.items()):
        assert point is not None
        add(mean, float(weights[j]) / total, point)
    return mean


def project(values: Array) -> Array:
    """The nearest distribution: the Euclidean projection on the simplex.

    >>> project(np.array([0.9, 0.5, -1.0]))
    array([0.7, 0.3, 0. ])
    """
    above = np.maximum(values - simplex_threshold(values), 0.0)
    nearest: Array = above / above.sum()
    return nearest
