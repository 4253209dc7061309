"""The worker: it evaluates its problem where it is told to, and remembers nothing.

A batch is drawn by seed, worker and ticket, so a repeated message gets the same answer, and a worker that is
replaced by a new one goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fdro_core.aspire.models.messages import Begun, Evaluate, Evaluation, Inspect, Inspected
from fdro_core.contracts.messages import Begin, Reply, Request
from fdro_core.federation import kernels
from fdro_core.federation.worker import FederatedWorker


class ModelWorker(FederatedWorker):
    """Worker j. A step costs one gradient."""

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
        if isinstance(message, Inspect):
            loss, gradient = self._evaluate(message.z)
            return Inspected(loss, gradient.copy(), self._strong_convexity())
        return super().handle(message)

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
