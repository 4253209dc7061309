"""A method in synchronous rounds: the settings that all have, and the three steps that each may override.

A round has one phase or more. In a phase the master sends a model to the workers that take part, waits for
all of them (those that are lost on the way are left out) and lets the method use their replies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fdro_core.baselines.rounds.state import Job, RoundState, average
from fdro_core.contracts.messages import Trained
from fdro_core.contracts.settings import Number, OneOf, Whole, setting
from fdro_core.contracts.tuning import PRECONDITIONED, Tunable, Variant
from fdro_core.federation import preconditioner
from fdro_core.federation import settings as shared
from fdro_core.federation.roster import RosterSettings
from uncertainty_sets.arrays import Array


@dataclass(frozen=True, kw_only=True)
class RoundMethod:
    """The settings of `Rounds` and what a method overrides, without what makes masters and workers."""

    iterations: int = setting(1500, Whole(), "rounds")
    step: float | None = setting(
        None,
        Number(),
        "step size of the local steps w ← w - η/D·∇f_j",
        letter="η",
        why="1/max_j L_j, with L_j measured at the start; with a preconditioner 0.006, the longest step",
    )
    preconditioner: str = setting(
        "none",
        OneOf("none", "gradients"),
        '"gradients" steps in the metric P of ASPIRE-EASE with mini-batches, which follows the gradients',
        letter="P",
    )
    averaging: float = setting(
        0.0,
        Number(inclusive=True),
        "share of the rounds so far over which w is averaged for the result; 0: the result is the last w",
    )
    local_steps: int = setting(1, Whole(), "local steps per round", letter="E")
    batch_size: int | None = shared.batch_size()
    reported_loss: str = setting(
        "full",
        OneOf("full", "batch"),
        'with mini-batches, "full" sends f_j on all data, "batch" that of the first batch',
    )
    metric: str = shared.metric()
    deadline: float | str | None = shared.deadline()
    resends: int = shared.resends()
    dead_losses: str = setting(
        "freeze",
        OneOf("freeze", "drop"),
        'if λ adapts, "freeze" keeps a lost worker\'s last loss and its weight, "drop" gives its weight to '
        "the others",
    )
    max_bad_updates: int = shared.max_bad_updates()
    on_failed_start: str = shared.on_failed_start()
    report_interval: int = setting(1, Whole(), "rounds between two reports")
    seed: int = shared.seed()

    phases: ClassVar[int] = 1
    adapts: ClassVar[bool] = False  # whether λ changes
    keeps: ClassVar[tuple[str, ...]] = ()  # optional parts of the state that it cannot go on without
    label: ClassVar[str] = ""  # the method's name in the experiments' tables; "": it has no row there
    year: ClassVar[int] = 0  # of its publication, which orders the rows
    tunable: ClassVar[Mapping[str, Tunable]] = {}  # what the experiments search, and from where
    variants: ClassVar[tuple[Variant, ...]] = (PRECONDITIONED,)  # further rows of a method with a label

    def start_weights(self, prior: Array, shares: Array) -> Array:
        """λ⁰."""
        return prior.copy()

    def draw(self, state: RoundState, phase: int, live: Sequence[int], rng: np.random.Generator) -> Job:
        """Who takes part in a phase, and what they do: all live workers, E steps."""
        return Job(list(live), self.local_steps)

    def close(
        self,
        state: RoundState,
        phase: int,
        job: Job,
        replies: Mapping[int, Trained],
        rng: np.random.Generator,
    ) -> None:
        """Use the replies of a phase: w ← Σ_j λ_jw_j / Σ_j λ_j over the workers that replied."""
        state.w = average({j: reply.w for j, reply in replies.items()}, state.weights, state.w)

    @property
    def proximal_weight(self) -> float:
        """μ, if local steps are on f_j(w) + (μ/2)‖w - w_t‖² in the metric D, w_t the model sent; else 0."""
        return 0.0

    @property
    def preconditioned(self) -> bool:
        """Whether steps are in the metric that follows the gradients."""
        return self.preconditioner == "gradients"

    def start_step(self, curvature: float) -> float:
        """η: the setting, else a default; the curvature is max_j L_j."""
        if self.step is not None:
            return self.step
        if self.preconditioned:
            return preconditioner.STEP
        return 1.0 / curvature if curvature > 0 else 1.0

    def roster(self, workers: int) -> RosterSettings:
        """What the roster needs of the settings."""
        return RosterSettings(
            workers=workers,
            active_workers=workers,
            max_staleness=1,  # a phase waits for all its workers
            deadline=self.deadline,
            resends=self.resends,
            max_bad_updates=self.max_bad_updates,
        )
