"""What every worker does: introduce its problem, begin at z⁰ and measure its curvature, answer probes.

It knows its own problem alone. It reads no clock and draws no randomness but what the seed, its index and
the step's number fix, so a reply depends on its state and the message alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from fdro_core.master import kernels
from fdro_core.protocol.messages import Begin, Hello, Introduction, Probe, Probed, Reply, Request, Update
from fdro_core.protocol.problem import (
    Problem,
    as_vector,
    check_convexity,
    check_dimension,
    check_samples,
    checked_evaluation,
    identity_of,
    read_only,
)
from uncertainty_sets.arrays import Array

POWER_SAMPLES = 1024  # enough for L_j: eight epochs before the first step would be too many for mini-batches


@dataclass(slots=True)
class WorkerState:
    """All that a worker remembers between messages.

    Attributes:
        ticket: of the last step taken, -1 before the first.
        w: w_j; replaced, never written to, since the master may hold the same array.
        gradient: ∇f_j(w_j), from the evaluation that gave the reported loss; a copy, since a problem may
            return every gradient in the same array.
        metric: D.
        inverse: 1/D.
        loss: f_j(w_j) as reported.
        gradient_sq: ‖∇f_j(w_j)‖² in the metric.
        curvature: L_j.
        steps: local steps taken, which number the random streams.
    """

    ticket: int
    w: Array
    gradient: Array
    metric: Array
    inverse: Array
    loss: float
    gradient_sq: float
    curvature: float
    steps: int


class FederatedWorker:
    """A state machine that answers one message with one reply. Subclasses add their algorithm's steps.

    Attributes:
        power_iterations: gradients that measure the curvature, after the one at z⁰.
    """

    power_iterations: ClassVar[int] = 8

    def __init__(self, index: int, problem: Problem, *, seed: int, batch_size: int | None) -> None:
        self.index = index
        self.problem = problem
        self.seed = seed
        self.batch_size = batch_size
        self.state: WorkerState | None = None

    def handle(self, message: Request) -> Reply:
        """The reply to a message."""
        if isinstance(message, Begin):
            return self._begin(message)
        if isinstance(message, Probe):
            return self._probe(message)
        assert isinstance(message, Hello)
        return self._introduce()

    def gradients(self, message: Request) -> int:
        """How many gradients the answer takes: the message's `steps`, 1 if it has none.

        It must be what the master counts for the reply.
        """
        steps: int = getattr(message, "steps", 1)
        return steps

    def snapshot(self) -> dict[str, Any] | None:
        """The state as plain values and arrays, for checkpoints and for a worker that moves."""
        if self.state is None:
            return None
        state = {item.name: getattr(self.state, item.name) for item in fields(WorkerState)}
        return state | {"gradient": self.state.gradient.copy()}  # which is written to

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go back to a snapshot."""
        if state is None:
            self.state = None
        else:
            self.state = WorkerState(**state)
            self.state.gradient = self.state.gradient.copy()

    def recall(self, opening: Sequence[Request], last: Reply | None, replies: int) -> None:
        """Continue in a new process, from what the master's side remembers.

        Args:
            opening: the questions answered before the first step.
            last: the last reply.
            replies: how many steps were answered.
        """
        begin = next((message for message in opening if isinstance(message, Begin)), None)
        if begin is not None:
            self._continue(begin, last, replies)

    def _continue(self, begin: Begin, last: Reply | None, replies: int) -> None:
        """Take up the state after so many replies; here it is the state at the beginning."""
        self.handle(begin)

    def _introduce(self) -> Introduction:
        problem, named = self.problem, f"problems[{self.index}]"
        metric = start = None
        dimension = check_dimension(problem.dimension, named)
        if hasattr(problem, "metric"):
            offered = problem.metric()
            metric = None if offered is None else as_vector(offered, dimension, f"{named}.metric()")
        if self.index == 0 and hasattr(problem, "initial_point"):
            start = as_vector(problem.initial_point(self._rng(0)), dimension, f"{named}.initial_point()")
        samples = check_samples(getattr(problem, "samples", None), named)
        self._strong_convexity()  # asked for at the end, too late for an error
        return Introduction(dimension, metric, start, samples, identity_of(problem))

    def _strong_convexity(self) -> float:
        """μ_j, -inf if the problem does not state it."""
        return check_convexity(getattr(self.problem, "strong_convexity", None), f"problems[{self.index}]")

    def _begin(self, message: Begin) -> Update:
        z, metric, inverse = message.z, message.metric, message.inverse
        loss, gradient = self._evaluate(z)
        gradient = gradient.copy()
        size = kernels.curvature(z, z, gradient, gradient, metric, inverse)[2]
        curvature = self._measure_curvature(z, gradient, metric)
        self.state = WorkerState(-1, z, gradient, metric, inverse, loss, size, curvature, 1)
        return Update(-1, z, loss, size, curvature)

    def _measure_curvature(self, z: Array, gradient: Array, metric: Array) -> float:
        """The largest curvature of f_j at z in the metric, by power iterations on gradient differences.

        A worker that takes mini-batches of a large data set measures it on one fixed sample.
        """
        evaluate = self._evaluate
        batch = self.batch_size
        if batch is not None and (getattr(self.problem, "samples", None) or 0) > max(batch, POWER_SAMPLES):
            evaluate = self._evaluate_fixed_sample
            gradient = evaluate(z)[1].copy()
        direction = self._rng(0).standard_normal(z.size) / np.sqrt(metric)
        reach = 1e-4 * max(1.0, float(np.sqrt(np.sum(metric * z * z))))
        largest = 0.0
        for _ in range(self.power_iterations):
            length = float(np.sqrt(np.sum(metric * direction * direction)))
            if not (np.isfinite(length) and length > 0):
                break
            nearby = z + (reach / length) * direction
            change = evaluate(nearby)[1] - gradient
            slope = float(np.sqrt(np.sum(change * change / metric))) / reach
            if not np.isfinite(slope):
                break
            largest = max(largest, slope)
            direction = change / metric
        return largest

    def _probe(self, message: Probe) -> Probed:
        """The loss at z; this worker has no term in Definition 1."""
        loss = self._evaluate(message.z)[0]
        return Probed(loss, loss, 0.0)

    def _evaluate(self, w: Array) -> tuple[float, Array]:
        """Evaluate on all data. The gradient may be the problem's own array: copy it to keep it."""
        return checked_evaluation(self.problem.loss_and_gradient(read_only(w)), w, self.index)

    def _evaluate_fixed_sample(self, w: Array) -> tuple[float, Array]:
        """Evaluate on a sample that is the same in every call."""
        size = max(self.batch_size or 0, POWER_SAMPLES)
        given = self.problem.loss_and_gradient(read_only(w), self._rng(0), size)
        return checked_evaluation(given, w, self.index)

    def _evaluate_batch(self, w: Array, rng: np.random.Generator) -> tuple[float, Array]:
        """Evaluate on a mini-batch; on all data if no batch size is set."""
        if self.batch_size is None:
            return self._evaluate(w)
        given = self.problem.loss_and_gradient(read_only(w), rng, self.batch_size)
        return checked_evaluation(given, w, self.index)

    def _rng(self, step: int) -> np.random.Generator:
        """The random stream of one step: a function of seed, worker and step, so none is saved."""
        return np.random.default_rng([self.seed, self.index, step])
