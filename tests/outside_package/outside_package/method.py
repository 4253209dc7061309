"""A baseline in rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fdro_core.baselines.rounds import Rounds
from fdro_core.protocol.settings import Number, documented, setting


@documented
@dataclass(frozen=True, kw_only=True)
class QFedAvg(Rounds):
    """FedAvg with weights λ_j ∝ n_j·f_j(w)^power."""

    power: float = setting(1.0, Number(inclusive=True), "0 is FedAvg; more favours workers with large losses")

    adapts: ClassVar[bool] = True

    def start_weights(self, prior, shares):
        return shares.copy()

    def close(self, state, phase, job, replies, rng):
        weights = state.shares * np.maximum(state.losses, 0.0) ** self.power
        if weights.sum() > 0:
            state.weights = weights / weights.sum()
        super().close(state, phase, job, replies, rng)
