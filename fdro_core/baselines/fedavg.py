"""FedAvg (McMahan et al. 2017): local steps, then the mean of the models by sample counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fdro_core.baselines.rounds import Job, Rounds, RoundState
from fdro_core.protocol.settings import Whole, WorkerCount, documented, setting
from fdro_core.protocol.tuning import LOCAL_STEPS, STEP, Tunable
from uncertainty_sets.arrays import Array


@documented
@dataclass(frozen=True, kw_only=True)
class FedAvg(Rounds):
    """Every worker takes E local steps from w; then w ← Σ_j n_jw_j / Σ_j n_j over those that took part.

    n_j is the number of samples (a problem's `samples`); equal weights if a problem does not have it.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [
    ...     LeastSquares([[1.0]], [0.0], intercept=False),
    ...     LeastSquares([[1.0], [1.0], [1.0]], [2.0, 2.0, 2.0], intercept=False),
    ... ]
    >>> result = solve(
    ...     problems, Box([0, 0], [1, 1]), algorithm=FedAvg(step=0.5, local_steps=5, iterations=60)
    ... )
    >>> round(float(result.w[0]), 6)
    1.5
    """

    local_steps: int = setting(5, Whole(), "local steps per round", letter="E")
    clients: int | None = setting(
        None, WorkerCount(), "workers that take part in a round, drawn evenly; None: all"
    )

    name: ClassVar[str] = "fed-avg"
    label: ClassVar[str] = "FedAvg"
    year: ClassVar[int] = 2017
    tunable: ClassVar[Mapping[str, Tunable]] = {"step": STEP, "local_steps": LOCAL_STEPS}

    def start_weights(self, prior: Array, shares: Array) -> Array:
        """n_j / Σ n_j, which never changes."""
        return shares.copy()

    def draw(self, state: RoundState, phase: int, live: Sequence[int], rng: np.random.Generator) -> Job:
        """All live workers, or `clients` of them drawn evenly."""
        if self.clients is None or self.clients >= len(live):
            return Job(list(live), self.local_steps)
        drawn = rng.choice(len(live), size=self.clients, replace=False)
        return Job([live[i] for i in sorted(drawn.tolist())], self.local_steps)
