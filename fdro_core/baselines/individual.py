"""Ind_j: the model that one worker learns from its own data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fdro_core.baselines.rounds import Job, Rounds, RoundState
from fdro_core.protocol.settings import WorkerIndex, documented, setting
from fdro_core.protocol.tuning import STEP, Tunable
from uncertainty_sets.arrays import Array


@documented
@dataclass(frozen=True, kw_only=True)
class Individual(Rounds):
    """Minimise f_j of one worker j alone: w ← w - η/D·∇f_j(w). The others only report losses at the end.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 2.0)]
    >>> result = solve(
    ...     problems, Box([0, 0], [1, 1]), algorithm=Individual(worker_index=1, step=1.0, iterations=9)
    ... )
    >>> round(float(result.w[0]), 6)
    2.0
    """

    worker_index: int = setting(0, WorkerIndex(), "the worker whose data is used", letter="j")

    name: ClassVar[str] = "individual"
    label: ClassVar[str] = "max{Ind}"
    year: ClassVar[int] = 0
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "step": STEP,
        "worker": Tunable(0, None, field="worker_index"),
    }

    def start_weights(self, prior: Array, shares: Array) -> Array:
        """All weight on j."""
        weights = np.zeros(prior.size)
        weights[self.worker_index] = 1.0
        return weights

    def draw(self, state: RoundState, phase: int, live: Sequence[int], rng: np.random.Generator) -> Job:
        """Worker j; while it is lost, one of the others is asked for its loss, so that rounds go on."""
        own = self.worker_index
        return Job([own], self.local_steps) if own in live else Job(list(live)[:1], 0)
