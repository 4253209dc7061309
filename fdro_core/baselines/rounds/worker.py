"""The worker of a synchronous round: local steps from the model it is sent."""

from __future__ import annotations

from fdro_core.baselines.rounds.method import RoundMethod
from fdro_core.contracts.messages import Reply, Request, Train, Trained
from fdro_core.contracts.problem import Problem
from fdro_core.federation.worker import FederatedWorker
from uncertainty_sets.arrays import Array


class RoundWorker(FederatedWorker):
    """E times w ← w - η/D·∇f_j(w) from the model sent. Costs E gradients and O(p).

    Its curvature is measured only if no step is set, since nothing else uses it. Of its state it needs the
    metric alone: its random draws depend on the ticket, so a repeated message gets the same answer again.
    """

    def __init__(self, index: int, problem: Problem, settings: RoundMethod) -> None:
        super().__init__(index, problem, seed=settings.seed, batch_size=settings.batch_size)
        self.settings = settings

    def handle(self, message: Request) -> Reply:
        """The reply to a message."""
        return self._train(message) if isinstance(message, Train) else super().handle(message)

    def _measure_curvature(self, z: Array, gradient: Array, metric: Array) -> float:
        return super()._measure_curvature(z, gradient, metric) if self.settings.step is None else 0.0

    def _train(self, message: Train) -> Trained:
        assert self.state is not None
        rng, reported = self._rng(message.ticket), self.settings.reported_loss
        w, loss, marked = message.w, None, None
        for step in range(1, message.steps + 1):
            value, gradient = self._evaluate_batch(w, rng)
            loss = value if loss is None else loss
            w = w - message.step * self.state.inverse * gradient
            if step == message.mark:
                marked = w
        if loss is None or (self.batch_size is not None and reported == "full"):
            batch = reported == "batch"
            loss = (self._evaluate_batch(message.w, rng) if batch else self._evaluate(message.w))[0]
        return Trained(message.ticket, w if message.steps else None, loss, marked)
