"""The worker of baselines, in rounds or without: local steps from the model it is sent."""

from __future__ import annotations

import numpy as np

from fdro_core.baselines.training.method import TrainingMethod
from fdro_core.master import kernels, preconditioner
from fdro_core.master.worker import FederatedWorker, WorkerState
from fdro_core.protocol.messages import Begin, Reply, Request, Train, Trained
from fdro_core.protocol.problem import Problem
from uncertainty_sets.arrays import Array

Walk = tuple[Array, float | None, Array | None]


class RoundWorker(FederatedWorker):
    """E times w ← w - η/D·∇f_j(w) from the model sent. Costs E gradients and O(p).

    To each gradient it adds the shift of the message, and that of the method's proximal term if it has one.
    With a preconditioner it steps in P instead of D, and sends the mean of its gradients.
    Its curvature is measured only if the default step needs it, since nothing else uses it. Of its state it
    needs the metric alone: its random draws depend on the ticket, so a repeated message gets the same answer
    again.
    """

    def __init__(self, index: int, problem: Problem, settings: TrainingMethod) -> None:
        super().__init__(index, problem, seed=settings.seed, batch_size=settings.batch_size)
        self.settings = settings

    def handle(self, message: Request) -> Reply:
        """The reply to a message."""
        return self._train(message) if isinstance(message, Train) else super().handle(message)

    def _continue(self, begin: Begin, last: Reply | None, replies: int) -> None:
        """Take up the metric, which is all that a step needs. Costs no gradient."""
        self.state = WorkerState(-1, begin.z, begin.z, begin.metric, begin.inverse, 0.0, 0.0, 0.0, 1)

    def _measure_curvature(self, z: Array, gradient: Array, metric: Array) -> float:
        needed = self.settings.step is None and not self.settings.preconditioned
        return super()._measure_curvature(z, gradient, metric) if needed else 0.0

    def _train(self, message: Train) -> Trained:
        rng, reported = self._rng(message.ticket), self.settings.reported_loss
        walk = self._walk_preconditioned if self.settings.preconditioned else self._walk
        w, loss, marked = walk(message, rng)
        if loss is None or (self.batch_size is not None and reported == "full"):
            batch = reported == "batch"
            loss = (self._evaluate_batch(message.w, rng) if batch else self._evaluate(message.w))[0]
        return Trained(message.ticket, w if message.steps else None, loss, marked)

    def _slope(self, w: Array, message: Train, rng: np.random.Generator) -> tuple[float, Array]:
        """f_j(w), and ∇f_j(w) + shift + μD(w - w_t) with w_t the model sent."""
        assert self.state is not None
        loss, gradient = self._evaluate_batch(w, rng)
        if message.shift is not None:
            gradient = gradient + message.shift
        proximal = self.settings.proximal_weight
        if proximal > 0:
            gradient = gradient + proximal * self.state.metric * (w - message.w)
        return loss, gradient

    def _walk(self, message: Train, rng: np.random.Generator) -> Walk:
        """Take the local steps: the last model, the loss before the first step, the marked model."""
        assert self.state is not None
        w, loss, marked = message.w, None, None
        for step in range(1, message.steps + 1):
            value, gradient = self._slope(w, message, rng)
            loss = value if loss is None else loss
            w = _moved(w, message.step, self.state.inverse, gradient)
            if step == message.mark:
                marked = w
        return w, loss, marked

    def _walk_preconditioned(self, message: Train, rng: np.random.Generator) -> Walk:
        """Take the local steps in P: minus the mean of the gradients, the loss, the same mean up to the mark.

        Before the master knows P, a worker uses the one that follows from its own first gradient.
        """
        w, loss, marked, inverse = message.w, None, None, message.inverse
        total = np.zeros_like(w)
        for step in range(1, message.steps + 1):
            value, gradient = self._slope(w, message, rng)
            loss = value if loss is None else loss
            total -= gradient
            if step == message.mark:
                marked = total / step
            if step < message.steps:
                if inverse is None:
                    inverse = 1.0 / preconditioner.metric(preconditioner.follow(None, gradient))
                w = _moved(w, message.step, inverse, gradient)
        total /= max(1, message.steps)
        return total, loss, marked


def _moved(w: Array, step: float, inverse: Array, gradient: Array) -> Array:
    """w - step·inverse·gradient."""
    moved = np.empty_like(w)
    kernels.descend(w, inverse, gradient, step, moved)
    return moved
