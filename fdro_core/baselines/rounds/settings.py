"""Synchronous rounds: what the baselines share. Each method's own file holds its update and nothing else.

A round has one phase or more. In a phase the master sends a model to the workers that take part, waits for
all of them (those that die on the way are left out) and lets the method take their replies in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fdro_core.aspire import kernels
from fdro_core.aspire.settings import AspireEase, Plan
from fdro_core.contracts.messages import Trained
from fdro_core.contracts.problem import ProblemSource, build
from fdro_core.errors import InvalidSetting
from uncertainty_sets.arrays import Array

if TYPE_CHECKING:
    from fdro_core.baselines.rounds.master import RoundMaster
    from fdro_core.baselines.rounds.worker import RoundWorker
    from fdro_core.contracts.algorithm import Ask
    from fdro_core.contracts.engine import WorkerFactory


@dataclass
class RoundState:
    """What a method may read and change.

    Attributes:
        w: the model; replaced, never written to.
        weights: λ, the weight of each worker.
        prior: q, the set's reference().
        shares: each worker's part of all samples; equal where a problem does not say.
        losses: f_j as last reported.
        step: η.
        marked: a model that the next phase is about, or None.
    """

    w: Array
    weights: Array
    prior: Array
    shares: Array
    losses: Array
    step: float
    marked: Array | None = None


@dataclass
class Job:
    """What the workers are asked in a phase.

    Attributes:
        workers: who takes part.
        steps: E; 0 asks for the loss alone.
        mark: the local step whose model is sent along, 0 for none.
        counts: how often each was drawn, where workers are drawn with repetition.
    """

    workers: list[int]
    steps: int
    mark: int = 0
    counts: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Settings of every synchronous method. None means "by the rule given here".

    Attributes:
        iterations: rounds.
        step: η of the local steps w ← w - η/D·∇f_j; None: 1/max_j L_j, with L_j measured at the start.
        local_steps: E, local steps a round.
        batch_size: samples a gradient; None: all.
        reported_loss: with mini-batches, "full" sends f_j on all data, "batch" that of the first batch.
        metric: "problem" takes steps in the mean of the problems' metrics, "none" in D = 1.
        deadline: seconds of silence after which a worker is asked again; "auto" goes by the answers seen so
            far, on engines whose workers can hang (never on a virtual clock); None: wait for ever.
        resends: how often a silent worker is asked again before it counts as dead.
        dead_losses: where λ adapts, "freeze" keeps a dead worker's last loss and its weight, "drop" gives its
            weight to the others.
        max_bad_updates: after so many updates out of range (NaN, infinity, beyond 1e150) a worker is dropped.
        on_failed_start: "raise" where a worker fails before the first round, or "warn" and go on without it.
        report_interval: rounds between reports.
        seed: fixes every bit.
    """

    iterations: int = 1500
    step: float | None = None
    local_steps: int = 1
    batch_size: int | None = None
    reported_loss: str = "full"
    metric: str = "problem"
    deadline: float | str | None = "auto"
    resends: int = 1
    dead_losses: str = "freeze"
    max_bad_updates: int = 3
    on_failed_start: str = "raise"
    report_interval: int = 1
    seed: int = 0

    phases: ClassVar[int] = 1
    adapts: ClassVar[bool] = False  # whether λ changes

    # -- what a method overrides ----------------------------------------------------------------------

    def start_weights(self, prior: Array, shares: Array) -> Array:
        """λ⁰."""
        return prior.copy()

    def draw(self, state: RoundState, phase: int, live: Sequence[int], rng: np.random.Generator) -> Job:
        """Who takes part in a phase, and what they do: everyone alive, E steps."""
        return Job(list(live), self.local_steps)

    def close(
        self,
        state: RoundState,
        phase: int,
        job: Job,
        replies: Mapping[int, Trained],
        rng: np.random.Generator,
    ) -> None:
        """Take the replies of a phase in: w ← Σ_j λ_jw_j / Σ_j λ_j over those who replied."""
        state.w = average({j: reply.w for j, reply in replies.items()}, state.weights, state.w)

    # -- the Algorithm protocol -----------------------------------------------------------------------

    def check(self, workers: int, uncertainty_set: Any) -> None:
        """Refuse what cannot work, before anything is made."""
        from fdro_core.federation import handshake as setup

        if self.reported_loss not in {"full", "batch"}:
            raise InvalidSetting(f"reported_loss must be one of full, batch, got {self.reported_loss!r}")
        check_positive("step", self.step)
        self.plan(workers)
        setup.check_set(workers, uncertainty_set)

    def plan(self, workers: int) -> Plan:
        """The settings shared with ASPIRE-EASE, as those of its synchronous form; checked there."""
        return AspireEase(
            active_workers=workers,
            iterations=self.iterations,
            local_steps=self.local_steps,
            batch_size=self.batch_size,
            metric=self.metric,
            deadline=self.deadline,
            resends=self.resends,
            dead_losses=self.dead_losses,
            max_bad_updates=self.max_bad_updates,
            on_failed_start=self.on_failed_start,
            report_interval=self.report_interval,
            seed=self.seed,
        ).resolve(workers)

    def worker(self, index: int, source: ProblemSource) -> WorkerFactory:
        """What makes worker j where it is to live."""
        return partial(make_worker, index, source, self)

    def master(self, uncertainty_set: Any, workers: int, ask: Ask, start: Array | None) -> RoundMaster:
        """The master at the start, after two rounds: what are the problems like, how curved are they."""
        from fdro_core.baselines.rounds.master import RoundMaster
        from fdro_core.federation import handshake as setup

        met = setup.meet(uncertainty_set, workers, ask, start, self.plan(workers).config)
        return RoundMaster(self, uncertainty_set, met)

    def restore(self, uncertainty_set: Any, workers: int, state: Mapping[str, Any]) -> RoundMaster:
        """The master of a snapshot."""
        from fdro_core.baselines.rounds.master import RoundMaster

        return RoundMaster.restored(self, uncertainty_set, workers, state)


def make_worker(index: int, source: ProblemSource, config: Rounds) -> RoundWorker:
    """Worker j; runs where the worker lives."""
    from fdro_core.baselines.rounds.worker import RoundWorker

    return RoundWorker(index, build(source, index), config)


def average(points: Mapping[int, Array | None], weights: Array, otherwise: Array) -> Array:
    """Σ_j weights_j·points_j / Σ_j weights_j in the order of j; `otherwise` where that is 0/0."""
    total = float(sum(weights[j] for j in points))
    if not total > 0:
        return otherwise
    mean = np.zeros_like(otherwise)
    for j, point in sorted(points.items()):
        assert point is not None
        mean += (weights[j] / total) * point
    return mean


def project(values: Array) -> Array:
    """The nearest distribution: the Euclidean projection on the simplex.

    >>> project(np.array([0.9, 0.5, -1.0]))
    array([0.7, 0.3, 0. ])
    """
    above = np.maximum(values - kernels.simplex_threshold(values), 0.0)
    nearest: Array = above / above.sum()
    return nearest


def check_positive(name: str, value: float | None, least: float | None = None) -> None:
    """Refuse a number that is not finite and above 0 (or at least `least`); None passes."""
    if value is None:
        return
    allowed = isfinite(value) and (value > 0 if least is None else value >= least)
    if not allowed:
        bound = "> 0" if least is None else f">= {least:g}"
        raise InvalidSetting(f"{name} must be a finite number {bound}, got {value!r}")
