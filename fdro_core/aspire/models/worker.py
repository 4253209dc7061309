"""The worker: it evaluates its problem where it is told to, and remembers nothing.

A batch is drawn by seed, worker, ticket and local step, so a repeated message gets the same answer, and a
worker that is replaced by a new one goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fdro_core.aspire.models.local import look_ahead, mean_gradient
from fdro_core.aspire.models.messages import (
    Begun,
    Evaluate,
    EvaluateAhead,
    EvaluateMean,
    Evaluation,
    EvaluationAhead,
    Inspect,
    Inspected,
)
from fdro_core.master import kernels
from fdro_core.master.worker import FederatedWorker
from fdro_core.protocol.messages import Begin, Reply, Request
from fdro_core.protocol.problem import Problem
from uncertainty_sets.arrays import Array


class ModelWorker(FederatedWorker):
    """Worker j. A step costs E gradients, one without local steps."""

    def __init__(
        self,
        index: int,
        problem: Problem,
        *,
        seed: int,
        batch_size: int | None,
        local_steps: int = 1,
    ) -> None:
        super().__init__(index, problem, seed=seed, batch_size=batch_size)
        self.local_steps = local_steps

    power_iterations: ClassVar[int] = (
        1  # replies raise a c_j that is too small; one too large only falls slowly
    )

    def handle(self, message: Request) -> Reply:
        """The reply to a message."""
        if type(message) is Evaluate:
            if self.batch_size is None:
                loss, gradient = self._evaluate(message.z)
            else:
                loss, gradient = self._evaluate_batch(message.z, self._rng(message.ticket))
            return Evaluation(message.ticket, loss, gradient.copy())
        if isinstance(message, EvaluateMean):
            return self._take_steps(message)
        if isinstance(message, Inspect):
            loss, gradient = self._evaluate(message.z)
            return Inspected(loss, gradient.copy(), self._strong_convexity())
        return super().handle(message)

    def gradients(self, message: Request) -> int:
        """E with local steps, else 1."""
        return self.local_steps if isinstance(message, EvaluateMean) else 1

    def _take_steps(self, message: EvaluateMean) -> Evaluation:
        """Local steps from z, each on a batch of its own."""

        def evaluate(y: Array, step: int) -> tuple[float, Array]:
            rng = np.random.default_rng([self.seed, self.index, message.ticket, step])
            return self._evaluate_batch(y, rng)

        sent = (message.z, message.scale, message.shift)
        if isinstance(message, EvaluateAhead):
            point, loss, gradient, first = look_ahead(evaluate, *sent, self.local_steps)
            return EvaluationAhead(message.ticket, loss, gradient, point, first)
        return Evaluation(message.ticket, *mean_gradient(evaluate, *sent, self.local_steps, message.reach))

    def _begin(self, message: Begin) -> Begun:  # type: ignore[override]  # the gradient comes along
        z = message.z
        loss, gradient = self._evaluate(z)
        gradient = gradient.copy()
        size = kernels.curvature(z, z, gradient, gradient, message.metric, message.inverse)[2]
        return Begun(loss, gradient, size, self._measure_curvature(z, gradient, message.metric))

    def snapshot(self) -> dict[str, Any] | None:
        """There is no state."""
        return None

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """There is no state."""

    def recall(self, opening: Sequence[Request], last: Reply | None, replies: int) -> None:
        """There is nothing to recall."""
