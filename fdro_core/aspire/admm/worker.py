"""The worker of ASPIRE-EASE: local steps towards z, and what the master's step sizes need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fdro_core.aspire.admm import kernels
from fdro_core.master.kernels import curvature
from fdro_core.master.worker import FederatedWorker, WorkerState
from fdro_core.protocol.messages import Begin, Probe, Probed, Reply, Request, Step, Update
from fdro_core.protocol.problem import Problem
from uncertainty_sets.arrays import Array

if TYPE_CHECKING:
    from fdro_core.aspire.admm.algorithm import AspireEase


MEASURE_ALL, MEASURE_EVERY = 16, 8  # measuring is a whole pass: each of the first steps, then one in eight
AVERAGING = 0.1  # weight of the newest batch in the running loss


class Worker(FederatedWorker):
    """Worker j of ASPIRE-EASE.

    A step is E times w_j ← Π(w_j - η_w/D·(s_j∇f_j(w_j) - φ_j + κ₁D(w_j - z))), where φ_j and z come as one
    vector (`Step.pull`). It costs E gradients and O(p).
    """

    def __init__(self, index: int, problem: Problem, config: AspireEase) -> None:
        super().__init__(index, problem, seed=config.seed, batch_size=config.batch_size)
        self.config = config

    def handle(self, message: Request) -> Reply:
        """The reply to a message. A Step whose ticket was answered before gets the same answer again."""
        return self._step(message) if type(message) is Step else super().handle(message)

    def gradients(self, message: Request) -> int:
        """E for a step."""
        return self.config.local_steps

    def _continue(self, begin: Begin, last: Reply | None, replies: int) -> None:
        """Take up the state that the last reply shows. Costs one gradient."""
        if not isinstance(last, Update):
            super()._continue(begin, last, replies)
            return
        self.state = WorkerState(
            last.ticket, last.w, last.w, begin.metric, begin.inverse, last.loss, last.gradient_sq,
            last.curvature, 1 + replies * self.config.local_steps,
        )  # fmt: skip
        whole = replies == 0
        self.state.gradient = (self._evaluate(last.w) if whole else self._sample(last.w))[1].copy()

    def _step(self, message: Step) -> Update:
        state, config = self.state, self.config
        assert state is not None
        if message.ticket <= state.ticket:
            return Update(state.ticket, state.w, state.loss, state.gradient_sq, state.curvature)
        weight, penalty, pull = message.weight, message.penalty, message.pull
        full = config.batch_size is None
        if message.start is not None:
            state.w = message.start
            state.loss, gradient = self._evaluate(state.w)
            state.gradient[:] = gradient
        for _ in range(config.local_steps):
            step = message.step or config.step_scale / (weight * state.curvature + penalty)
            w_old = state.w
            w_new = np.empty(w_old.size)
            kernels.worker_step(
                w_old, pull, state.gradient, state.inverse, w_new, weight, penalty, step,
                config.parameter_bound,
            )  # fmt: skip
            state.steps = steps = state.steps + 1
            loss, gradient = self._evaluate(w_new) if full else self._sample(w_new)
            state.w = w_new
            if full:
                state.loss = loss
            elif config.reported_loss == "average":
                state.loss += AVERAGING * (loss - state.loss)
            if steps < MEASURE_ALL or steps % MEASURE_EVERY == 0:
                self._measure(state, w_old, gradient)
            state.gradient[:] = gradient
        if not full and config.reported_loss == "full":
            state.loss = self._evaluate(state.w)[0]
        state.ticket = message.ticket
        return Update(message.ticket, state.w, state.loss, state.gradient_sq, state.curvature)

    def _measure(self, state: WorkerState, w_old: Array, gradient: Array) -> None:
        """Set ‖∇f_j‖², and raise L_j if this step, from w_old and the gradient kept, saw more curvature."""
        change, moved, state.gradient_sq, length = curvature(
            w_old, state.w, state.gradient, gradient, state.metric, state.inverse
        )
        # Two mini-batches differ by more than curvature; below that length the difference is rounding.
        if self.batch_size is None and moved > 1e-16 * length:
            state.curvature = max(state.curvature, (change / moved) ** 0.5)

    def _probe(self, message: Probe) -> Probed:
        """This worker's term of Definition 1 with a unit step, and its loss at z."""
        state, config = self.state, self.config
        assert state is not None
        loss, gradient = self._evaluate(state.w)
        slope = message.weight * gradient + state.metric * (message.penalty * state.w - message.pull)
        bound = config.parameter_bound
        gap = state.w - np.clip(state.w - slope, -bound, bound)
        return Probed(self._evaluate(message.z)[0], loss, float(gap @ gap))

    def _sample(self, w: Array) -> tuple[float, Array]:
        """Evaluate on the mini-batch of the step under way."""
        assert self.state is not None
        return self._evaluate_batch(w, self._rng(self.state.steps))
