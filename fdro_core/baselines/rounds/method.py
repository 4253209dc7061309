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
from fdro_core.baselines.training.method import TrainingMethod
from fdro_core.master.roster import RosterSettings
from fdro_core.protocol.messages import Trained
from fdro_core.protocol.settings import OneOf, Whole, setting
from uncertainty_sets.arrays import Array


@dataclass(frozen=True, kw_only=True)
class RoundMethod(TrainingMethod):
    """The settings of `Rounds` and what a method overrides, without what makes masters and workers."""

    iterations: int = setting(1500, Whole(), "rounds")
    dead_losses: str = setting(
        "freeze",
        OneOf("freeze", "drop"),
        'if λ adapts, "freeze" keeps a lost worker\'s last loss and its weight, "drop" gives its weight to '
        "the others",
    )
    report_interval: int = setting(1, Whole(), "rounds between two reports")

    phases: ClassVar[int] = 1
    adapts: ClassVar[bool] = False  # whether λ changes
    keeps: ClassVar[tuple[str, ...]] = ()  # optional parts of the state that it cannot go on without

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
