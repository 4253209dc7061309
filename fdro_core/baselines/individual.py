"""Ind_j: the model that one worker learns from its own data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fdro_core.baselines.rounds.settings import Job, Rounds, RoundState
from fdro_core.contracts.tuning import STEP, Tunable
from fdro_core.errors import InvalidSetting
from uncertainty_sets.arrays import Array


@dataclass(frozen=True, kw_only=True)
class Individual(Rounds):
    """Minimise f_j of one worker j alone: w ← w - η/D·∇f_j(w). The others are only asked at the end.

    Attributes:
        worker_index: j.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [0.0]), LeastSquares([[1.0]], [2.0])]
    >>> result = solve(
    ...     problems, Box([0, 0], [1, 1]), algorithm=Individual(worker_index=1, step=1.0, iterations=9)
    ... )
    >>> round(float(result.w[0]), 6)
    2.0
    """

    worker_index: int = 0

    label: ClassVar[str] = "max{Ind}"
    year: ClassVar[int] = 0
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "step": STEP,
        "worker": Tunable(0, None, field="worker_index"),
    }

    def check(self, workers: int, uncertainty_set: Any) -> None:
        """Refuse a worker that is not there."""
        super().check(workers, uncertainty_set)
        if not 0 <= self.worker_index < workers:
            raise InvalidSetting(f"worker_index must be in 0..{workers - 1}, got {self.worker_index}")

    def start_weights(self, prior: Array, shares: Array) -> Array:
        """All weight on j."""
        weights = np.zeros(prior.size)
        weights[self.worker_index] = 1.0
        return weights

    def draw(self, state: RoundState, phase: int, live: Sequence[int], rng: np.random.Generator) -> Job:
        """Worker j; while it is away, whoever is there waits with it."""
        own = self.worker_index
        return Job([own], self.local_steps) if own in live else Job(list(live)[:1], 0)
