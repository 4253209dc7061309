"""q-FFL by q-FedAvg (Li et al. 2020): workers of larger loss pull harder, by the power q of the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fdro_core.baselines.rounds import Job, Replies, Rounds, RoundState, average
from fdro_core.errors import InvalidProblem
from fdro_core.protocol.settings import Number, Whole, documented, setting
from fdro_core.protocol.tuning import LOCAL_STEPS, STEP, Range, Tunable
from uncertainty_sets.arrays import Array


@documented
@dataclass(frozen=True, kw_only=True)
class QFFL(Rounds):
    """q-FedAvg on the objective Σ_j p_jf_j(w)^(q+1) / (q+1) of q-FFL, with p_j = n_j / Σ n_j.

    Worker j takes E local steps from w to w_j. With L = 1/η and the losses f_j = f_j(w),

        Δ_j = f_j^q·L(w - w_j),   h_j = q·f_j^(q-1)·‖L(w - w_j)‖² + L·f_j^q,   w ← w - Σ_j p_jΔ_j / Σ_j p_jh_j

    with ‖x‖² = Σ_i D_ix_i² in the metric D of the steps. q = 0 is `FedAvg`; the larger q, the more large
    losses count. All workers take part, so p_j is a weight here, where the authors draw workers by it. A
    round costs E gradients per worker. The weights reported are p_jf_j^q over their sum.

    Losses must be >= 0 if q > 0: a power of a negative loss has no meaning, and the run ends with an error
    that says so. A worker whose loss is 0 has Δ_j = h_j = 0, the limit for a smooth loss at its minimum even
    if q < 1; if all losses are 0, w stays. With a preconditioner h_j has no part, since P sets the length of
    the step: d = Σ_j p_jf_j^q·d_j / Σ_j p_jf_j^q.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[a]], [2.0 * a], intercept=False) for a in (1.0, 3.0)]
    >>> problems += [LeastSquares([[2.0]], [0.0], intercept=False)]
    >>> for power in (0.0, 1.0, 10.0):
    ...     config = QFFL(power=power, step=0.1, local_steps=1, iterations=3000)
    ...     print(solve(problems, Box([0.0] * 3, [1.0] * 3), algorithm=config).losses.round(2))
    [0.16 1.47 4.08]
    [0.27 2.43 3.2 ]
    [0.31 2.81 2.92]
    """

    local_steps: int = setting(5, Whole(), "local steps per round", letter="E")
    power: float = setting(
        1.0,
        Number(inclusive=True),
        "0 is FedAvg; a larger power favours workers with large losses",
        letter="q",
    )

    name: ClassVar[str] = "qffl"
    adapts: ClassVar[bool] = True
    keeps: ClassVar[tuple[str, ...]] = ("metric",)
    label: ClassVar[str] = "q-FFL"
    year: ClassVar[int] = 2020
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "step": STEP,
        "local_steps": LOCAL_STEPS,
        "power": Tunable(1.0, Range(0.01, 15.0)),  # the authors tried 0.001 to 15
    }

    def start_weights(self, prior: Array, shares: Array) -> Array:
        """n_j / Σ n_j, until losses are known."""
        return shares.copy()

    def close(self, state: RoundState, phase: int, job: Job, replies: Replies, rng: Generator) -> None:
        """Set the weights from the losses, then take the step."""
        weights = state.shares * self._powers(state.losses)
        if weights.sum() > 0:
            state.weights = weights / weights.sum()
        if self.preconditioned:
            state.w = average({j: reply.w for j, reply in replies.items()}, weights, state.w)
            return
        assert state.metric is not None
        move, scale = np.zeros_like(state.w), 0.0
        for j, reply in sorted(replies.items()):
            assert reply.w is not None
            if weights[j] > 0:
                way = state.w - reply.w
                move += weights[j] * way  # p_jΔ_j / L
                scale += weights[j]  # p_jh_j / L
                if self.power > 0:
                    length = float(np.sum(state.metric * way * way)) / state.step
                    scale += weights[j] * self.power * length / float(state.losses[j])
        if scale > 0:
            state.w = state.w - move / scale

    def _powers(self, losses: Array) -> Array:
        """f_j^q in units of the largest: that cancels in a step, and nothing overflows."""
        if self.power == 0:
            return np.ones(losses.size)
        least, largest = int(losses.argmin()), float(losses.max())
        if losses[least] < 0:
            raise InvalidProblem(
                f"q-FFL takes powers of losses, so they must be >= 0, and worker {least} reports "
                f"{losses[least]:g}: add a constant to every problem's loss, or set power=0"
            )
        powers: Array = (losses / largest) ** self.power if largest > 0 else np.zeros(losses.size)
        return powers
