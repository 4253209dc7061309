"""FedBuff (Nguyen et al. 2022): the mean of the next K updates, whoever they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from fdro_core.baselines.arrivals import Arrival, Arrivals, ArrivalState
from fdro_core.protocol.settings import Number, Whole, documented, setting
from fdro_core.protocol.tuning import ARRIVALS_LOCAL_STEPS, ARRIVALS_STEP, Choice, Range, Tunable
from uncertainty_sets.arrays import Array


@documented
@dataclass(frozen=True, kw_only=True)
class FedBuff(Arrivals):
    """After every K arrivals w ← w - η_g·(1/K)·Σ Δ_j/√(1 + age_j), with Δ_j = w_sent - w_j.

    w_j is where E local steps led from the model w_sent that worker j was sent, age_j models ago. All updates
    count alike, as published; a fast worker may be in the sum several times, so it has more weight in what is
    minimised. An iteration is one new model: K arrivals, KE gradients and O(Kp). Until then a worker goes on
    from the model as it is.

    With a preconditioner the sum is one of gradients, g = (1/K)·Σ g_j/√(1 + age_j), and
    w ← w - η_g·Eη·g/P.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 2.0)]
    >>> config = FedBuff(step=0.5, buffer=4, server_step=0.01, iterations=3000)
    >>> result = solve(problems, Box([0, 0], [1, 1]), algorithm=config)
    >>> round(float(result.w[0]), 1)  # both workers are equally fast
    1.0
    """

    local_steps: int = setting(5, Whole(), "local steps per message", letter="E")
    buffer: int = setting(10, Whole(), "updates that make a new model", letter="K", why="the paper's")
    server_step: float = setting(1.0, Number(), "step along the mean update", letter="η_g")

    name: ClassVar[str] = "fed-buff"
    label: ClassVar[str] = "FedBuff"
    year: ClassVar[int] = 2022
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "step": ARRIVALS_STEP,
        "local_steps": ARRIVALS_LOCAL_STEPS,
        "buffer": Tunable(5, Choice((1, 2, 5, 10))),
        "server_step": Tunable(1.0, Range(0.1, 3.0)),
    }

    @property
    def arrivals(self) -> int:
        """K."""
        return self.buffer

    def server_scale(self, workers: int) -> float:
        """η_g."""
        return self.server_step

    def remember(self, workers: Sequence[int], w: Array) -> dict[str, Any]:
        """An empty buffer."""
        return {"sum": np.zeros_like(w), "count": 0}

    def combine(self, state: ArrivalState, arrival: Arrival) -> Array | None:
        """Add the update to the buffer; the mean if that makes K."""
        buffer = state.memory
        total = buffer["sum"] + arrival.move / sqrt(1.0 + arrival.age)
        buffer["count"] += 1
        if buffer["count"] < self.buffer:
            buffer["sum"] = total
            return None
        buffer |= {"sum": np.zeros_like(total), "count": 0}
        mean: Array = total / self.buffer
        return mean
