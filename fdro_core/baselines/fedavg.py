"""FedAvg (McMahan et al. 2017): local steps, then the mean of the models by sample counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fdro_core.baselines.rounds.settings import Job, Rounds, RoundState
from fdro_core.contracts.tuning import LOCAL_STEPS, STEP, Tunable
from fdro_core.errors import InvalidSetting
from uncertainty_sets.arrays import Array


@dataclass(frozen=True, kw_only=True)
class FedAvg(Rounds):
    """Every worker takes E local steps from w; then w ← Σ_j n_jw_j / Σ_j n_j over those who took part.

    n_j is the number of samples (a problem's `samples`); equal weights where a problem does not say.

    Attributes:
        clients: how many workers take part in a round, drawn evenly; None: all.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [0.0]), LeastSquares([[1.0], [1.0], [1.0]], [2.0, 2.0, 2.0])]
    >>> result = solve(
    ...     problems, Box([0, 0], [1, 1]), algorithm=FedAvg(step=0.5, local_steps=5, iterations=60)
    ... )
    >>> round(float(result.w[0]), 6)
    1.5
    """

    local_steps: int = 5
    clients: int | None = None

    label: ClassVar[str] = "FedAvg"
    year: ClassVar[int] = 2017
    tunable: ClassVar[Mapping[str, Tunable]] = {"step": STEP, "local_steps": LOCAL_STEPS}

    def check(self, workers: int, uncertainty_set: Any) -> None:
        """Refuse more clients than there are."""
        super().check(workers, uncertainty_set)
        if self.clients is not None and not 1 <= self.clients <= workers:
            raise InvalidSetting(
                f"clients must be in 1..{workers}, the number of workers, got {self.clients}"
            )

    def start_weights(self, prior: Array, shares: Array) -> Array:
        """n_j / Σ n_j, for good."""
        return shares.copy()

    def draw(self, state: RoundState, phase: int, live: Sequence[int], rng: np.random.Generator) -> Job:
        """Everyone, or `clients` of them drawn evenly."""
        if self.clients is None or self.clients >= len(live):
            return Job(list(live), self.local_steps)
        drawn = rng.choice(len(live), size=self.clients, replace=False)
        return Job([live[i] for i in sorted(drawn.tolist())], self.local_steps)
