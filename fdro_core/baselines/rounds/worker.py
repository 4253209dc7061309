"""The worker of a synchronous round: local steps from the model it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fdro_core.aspire.settings import AspireEase
from fdro_core.aspire.worker import Worker
from fdro_core.contracts.messages import Probe, Probed, Reply, Request, Train, Trained
from fdro_core.contracts.problem import Problem, checked_evaluation, read_only
from uncertainty_sets.arrays import Array

if TYPE_CHECKING:
    from fdro_core.baselines.rounds.settings import Rounds


class RoundWorker(Worker):
    """E times w ← w - η/D·∇f_j(w) from the model sent. Costs E gradients and O(p).

    It introduces itself as a worker of ASPIRE-EASE does, and measures its curvature where no step is given,
    since the curvature serves for nothing else. It remembers the metric alone: its random draws depend on the
    ticket, so a repeated message gets the same answer again.
    """

    def __init__(self, index: int, problem: Problem, settings: Rounds) -> None:
        super().__init__(index, problem, AspireEase(seed=settings.seed, batch_size=settings.batch_size))
        self.settings = settings

    def handle(self, message: Request) -> Reply:
        """The reply to a message."""
        return self._train(message) if isinstance(message, Train) else super().handle(message)

    def _power_iterations(self, z: Array, gradient: Array, metric: Array) -> float:
        return super()._power_iterations(z, gradient, metric) if self.settings.step is None else 0.0

    def _train(self, message: Train) -> Trained:
        assert self.state is not None
        rng, batch = self._rng(message.ticket), self.settings.batch_size
        w, loss, marked = message.w, None, None
        for step in range(1, message.steps + 1):
            given = self.problem.loss_and_gradient(read_only(w), None if batch is None else rng, batch)
            value, gradient = checked_evaluation(given, w, self.index)
            loss = value if loss is None else loss
            w = w - message.step * self.state.inverse * gradient
            if step == message.mark:
                marked = w
        if batch is not None and (loss is None or self.settings.reported_loss == "full"):
            sampled = self.settings.reported_loss == "batch"
            given = self.problem.loss_and_gradient(read_only(message.w), *((rng, batch) if sampled else ()))
            loss = checked_evaluation(given, message.w, self.index)[0]
        elif loss is None:
            loss = self._evaluate(message.w)[0]
        return Trained(message.ticket, w if message.steps else None, loss, marked)

    def _probe(self, message: Probe) -> Probed:
        loss = self._evaluate(message.z)[0]
        return Probed(loss, loss, 0.0)
