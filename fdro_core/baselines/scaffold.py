"""SCAFFOLD (Karimireddy et al. 2020): control variates take the drift out of local steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fdro_core.baselines.fedavg import FedAvg
from fdro_core.baselines.rounds import Job, Replies, RoundState, follow_controls, mean_control
from fdro_core.protocol.settings import Number, documented, setting
from fdro_core.protocol.tuning import LOCAL_STEPS, STEP, Tunable
from uncertainty_sets.arrays import Array


@documented
@dataclass(frozen=True, kw_only=True)
class Scaffold(FedAvg):
    """Minimise (1/N)·Σ_j f_j with local steps along ∇f_j - c_j + c, where c = (1/N)·Σ_j c_j.

    Each worker that takes part goes E times w_j ← w_j - η/D·(∇f_j(w_j) - c_j + c) from w. Then

        c_j ← c_j - c + D(w - w_j)/(Eη),   w ← w + η_g·mean_j(w_j - w),

    so c_j is the mean of its E gradients (option II); all c_j start at 0. At the optimum c_j = ∇f_j(w) and
    c = 0, so every local step stays there, where those of `FedAvg` with E > 1 move away from it.

    c_j is kept by the master, (N, p) numbers, and c is over the live workers: one that is lost for good would
    pull with its last gradient for ever. A message down has w and c - c_j, 2p numbers as in the paper; one up
    has w_j alone, p numbers where the paper's has 2p, since c_j follows from it. With a preconditioner the
    scale of a step is P's, and η_g cancels in it.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[a]], [b], intercept=False) for a, b in ((1.0, 0.0), (2.0, 2.0))]
    >>> for method in (FedAvg, Scaffold):  # the optimum is (0 + 4) / (1 + 4)
    ...     config = method(step=0.1, local_steps=5, metric="none", iterations=200)
    ...     print(round(float(solve(problems, Box([0, 0], [1, 1]), algorithm=config).w[0]), 6))
    0.692502
    0.8
    """

    global_step: float = setting(
        1.0, Number(), "step of w along the mean of the workers' moves", letter="η_g"
    )

    name: ClassVar[str] = "scaffold"
    keeps: ClassVar[tuple[str, ...]] = ("metric", "controls")
    label: ClassVar[str] = "SCAFFOLD"
    year: ClassVar[int] = 2020
    tunable: ClassVar[Mapping[str, Tunable]] = {"step": STEP, "local_steps": LOCAL_STEPS}

    def start_weights(self, prior: Array, shares: Array) -> Array:
        """1/N each, which never changes."""
        return np.full(prior.size, 1.0 / prior.size)

    def draw(self, state: RoundState, phase: int, live: Sequence[int], rng: Generator) -> Job:
        """Draw as in `FedAvg`; c is over all live workers."""
        return replace(super().draw(state, phase, live, rng), control=mean_control(state, live))

    def close(self, state: RoundState, phase: int, job: Job, replies: Replies, rng: Generator) -> None:
        """Set c_j of those that replied, then take the global step."""
        follow_controls(self, state, job, replies)
        w = state.w
        super().close(state, phase, job, replies, rng)
        state.w = w + self.global_step * (state.w - w)
