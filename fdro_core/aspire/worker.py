"""The worker: a state machine that answers one message with one reply.

It knows its own problem and w_j. It reads no clock and draws no randomness but what the seed, its
index and the step's number fix, so a reply depends on its state and the message alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fdro_core.aspire import kernels
from fdro_core.aspire.settings import AspireEase
from fdro_core.contracts.messages import (
    Begin,
    Hello,
    Introduction,
    Probe,
    Probed,
    Reply,
    Request,
    Step,
    Update,
)
from fdro_core.contracts.problem import (
    Problem,
    as_vector,
    check_dimension,
    check_samples,
    checked_evaluation,
    identity_of,
    read_only,
)
from uncertainty_sets.arrays import Array

POWER_ITERATIONS = 8
POWER_SAMPLES = 1024  # enough for L_j: with mini-batches nobody wants eight epochs before the first step
MEASURE_ALL, MEASURE_EVERY = 16, 8  # the first steps are measured all, then one in eight: it is a whole pass
AVERAGING = 0.1  # weight of the newest batch in the running loss


@dataclass(slots=True)
class WorkerState:
    """All that a worker remembers between messages.

    Attributes:
        ticket: of the last step taken, -1 before the first.
        w: w_j; replaced, never written to, since the master may hold the same array.
        gradient: ∇f_j(w_j), from the evaluation that gave the reported loss; the worker's own copy, since a
            problem may give every gradient in the same array.
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


class Worker:
    """Worker j of ASPIRE-EASE.

    A step is E times w_j ← Π(w_j - η_w/D·(s_j∇f_j(w_j) - φ_j + κ₁D(w_j - z))), where φ_j and z come as one
    vector (`Step.pull`). It costs E gradients and O(p).
    """

    def __init__(self, index: int, problem: Problem, config: AspireEase) -> None:
        self.index = index
        self.problem = problem
        self.config = config
        self.state: WorkerState | None = None

    def handle(self, message: Request) -> Reply:
        """The reply to a message. A Step whose ticket was answered before gets the same answer again."""
        if type(message) is Step:
            return self._step(message)
        if isinstance(message, Begin):
            return self._begin(message)
        if isinstance(message, Probe):
            return self._probe(message)
        assert isinstance(message, Hello)
        return self._introduce()

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
        """Take up again in a new place, from what the master's side remembers. Costs one gradient.

        Args:
            opening: the questions answered before the first step.
            last: the last reply.
            replies: how many steps were answered.
        """
        begin = next((message for message in opening if isinstance(message, Begin)), None)
        if begin is None:
            return
        if not isinstance(last, Update):
            self.handle(begin)
            return
        self.state = WorkerState(
            last.ticket, last.w, last.w, begin.metric, begin.inverse, last.loss, last.gradient_sq,
            last.curvature, 1 + replies * self.config.local_steps,
        )  # fmt: skip
        whole = self.config.batch_size is None or replies == 0
        self.state.gradient = (self._evaluate(last.w) if whole else self._sample(last.w))[1].copy()

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
        return Introduction(dimension, metric, start, samples, identity_of(problem))

    def _begin(self, message: Begin) -> Update:
        z, metric, inverse = message.z, message.metric, message.inverse
        loss, gradient = self._evaluate(z)
        gradient = gradient.copy()
        size = kernels.curvature(z, z, gradient, gradient, metric, inverse)[2]
        curvature = self._power_iterations(z, gradient, metric)
        self.state = WorkerState(-1, z, gradient, metric, inverse, loss, size, curvature, 1)
        return Update(-1, z, loss, size, curvature)

    def _power_iterations(self, z: Array, gradient: Array, metric: Array) -> float:
        """The largest curvature of f_j at z in the metric, by power iterations on gradient differences.

        A worker that takes mini-batches of a large data set measures it on one fixed sample.
        """
        evaluate = self._evaluate
        batch = self.config.batch_size
        if batch is not None and (getattr(self.problem, "samples", None) or 0) > max(batch, POWER_SAMPLES):
            evaluate = self._evaluate_some
            gradient = evaluate(z)[1].copy()
        direction = self._rng(0).standard_normal(z.size) / np.sqrt(metric)
        reach = 1e-4 * max(1.0, float(np.sqrt(np.sum(metric * z * z))))
        largest = 0.0
        for _ in range(POWER_ITERATIONS):
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
            step = config.worker_step or config.step_scale / (weight * state.curvature + penalty)
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
        """‖∇f_j‖², and L_j raised where this step, from w_old and the gradient kept, saw more curvature."""
        change, moved, state.gradient_sq, length = kernels.curvature(
            w_old, state.w, state.gradient, gradient, state.metric, state.inverse
        )
        # Two mini-batches differ by more than curvature; below that length the difference is rounding.
        if self.config.batch_size is None and moved > 1e-16 * length:
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

    def _evaluate(self, w: Array) -> tuple[float, Array]:
        """On all data. The gradient may be the problem's own array: whoever keeps it copies it."""
        return checked_evaluation(self.problem.loss_and_gradient(read_only(w)), w, self.index)

    def _evaluate_some(self, w: Array) -> tuple[float, Array]:
        """On a sample that is the same in every call."""
        size = max(self.config.batch_size or 0, POWER_SAMPLES)
        given = self.problem.loss_and_gradient(read_only(w), self._rng(0), size)
        return checked_evaluation(given, w, self.index)

    def _sample(self, w: Array) -> tuple[float, Array]:
        assert self.state is not None
        rng, batch = self._rng(self.state.steps), self.config.batch_size
        return checked_evaluation(self.problem.loss_and_gradient(read_only(w), rng, batch), w, self.index)

    def _rng(self, step: int) -> np.random.Generator:
        """The random stream of one step: a function of seed, worker and step, so nothing need be saved."""
        return np.random.default_rng([self.config.seed, self.index, step])
