"""What all baselines have: settings, the worker and its local steps, and the master's model and reports.

`rounds` and `arrivals` add who is asked when; a method's own file adds its update.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np

from fdro_core.master import kernels, preconditioner
from fdro_core.master import settings as shared
from fdro_core.master.base import FederatedMaster, Figures, Standing
from fdro_core.master.handshake import Handshake, check_set, shake_hands
from fdro_core.master.outliers import Outliers
from fdro_core.master.roster import NEVER, RosterSettings
from fdro_core.master.worker import FederatedWorker, WorkerState
from fdro_core.protocol.algorithm import AlgorithmTraits, Ask, Oracle
from fdro_core.protocol.engine import WorkerFactory
from fdro_core.protocol.messages import Begin, Probe, Reply, Request, Train, Trained
from fdro_core.protocol.problem import Problem, ProblemSource, build
from fdro_core.protocol.settings import Number, OneOf, Whole, check_settings, setting
from fdro_core.protocol.tuning import PRECONDITIONED, Tunable, Variant
from uncertainty_sets.arrays import Array


@dataclass(frozen=True, kw_only=True)
class Training(AlgorithmTraits, ABC):
    """A method whose workers take local steps from the master's model. Its kinds have fields of their own."""

    iterations: int = setting(1500, Whole(), "models that the master makes")
    step: float | None = setting(
        None,
        Number(),
        "step size of the local steps w ← w - η/D·∇f_j",
        letter="η",
        why="1/max_j L_j, with L_j measured at the start; with a preconditioner 0.006√N, the longest step, "
        "or with full batches the first one: it then follows the progress",
    )
    preconditioner: str = setting(
        "none",
        OneOf("none", "gradients"),
        '"gradients" steps in the metric P of AspireModels with mini-batches, which follows the replies',
        letter="P",
    )
    averaging: float = setting(
        0.0,
        Number(inclusive=True),
        "share of the iterations so far over which w is averaged for the result; 0: the result is the last w",
    )
    local_steps: int = setting(1, Whole(), "local steps per message", letter="E")
    batch_size: int | None = shared.batch_size()
    reported_loss: str = setting(
        "full",
        OneOf("full", "batch"),
        'with mini-batches, "full" sends f_j on all data, "batch" that of the first batch',
    )
    metric: str = shared.metric()
    deadline: float | str | None = shared.deadline()
    resends: int = shared.resends()
    max_bad_updates: int = shared.max_bad_updates()
    on_failed_start: str = shared.on_failed_start()
    seed: int = shared.seed()

    label: ClassVar[str] = ""  # the method's name in the experiments' tables; "": it has no row there
    year: ClassVar[int] = 0  # of its publication, which orders the rows
    tunable: ClassVar[Mapping[str, Tunable]] = {}  # what the experiments search, and from where
    variants: ClassVar[tuple[Variant, ...]] = (PRECONDITIONED,)  # further rows of a method with a label

    master_kind: ClassVar[type[TrainingMaster[Any, Any]]]

    @property
    def proximal_weight(self) -> float:
        """μ, if local steps are on f_j(w) + (μ/2)‖w - w_t‖² in the metric D, w_t the model sent; else 0."""
        return 0.0

    @property
    def preconditioned(self) -> bool:
        """Whether steps are in the metric that follows the gradients."""
        return self.preconditioner == "gradients"

    @property
    def follows(self) -> bool:
        """Whether η follows the steps: the default one in the metric of the gradients, if these are exact."""
        return self.preconditioned and self.step is None and self.batch_size is None

    def start_step(self, curvature: float, workers: int) -> float:
        """η: the setting, else a default; the curvature is max_j L_j."""
        if self.step is not None:
            return self.step
        if self.preconditioned:
            return preconditioner.usual_step(workers)
        return 1.0 / curvature if curvature > 0 else 1.0

    @abstractmethod
    def roster(self, workers: int) -> RosterSettings:
        """What the roster needs of the settings."""

    def _roster(self, workers: int, active_workers: int, *, drops: bool = False) -> RosterSettings:
        return RosterSettings(
            workers=workers,
            active_workers=active_workers,
            max_staleness=self.iterations + 1,  # no reply is too old
            deadline=self.deadline,
            resends=self.resends,
            max_bad_updates=self.max_bad_updates,
            drops=drops,
        )

    # -- the algorithm --------------------------------------------------------------------------------

    def check(self, workers: int, uncertainty_set: Any) -> None:
        """Check the settings and the set against the number of workers, before anything is made."""
        check_settings(self, workers)
        check_set(workers, uncertainty_set)

    def worker(self, index: int, source: ProblemSource) -> WorkerFactory:
        """What makes worker j on the machine where it is to run."""
        return partial(make_worker, index, source, self)

    def master(
        self, uncertainty_set: Any, workers: int, ask: Ask, start: Array | None
    ) -> TrainingMaster[Any, Any]:
        """The master at the start, after the handshake."""
        handshake = shake_hands(
            uncertainty_set,
            workers,
            ask,
            start,
            use_metrics=self.metric == "problem",
            on_failed_start=self.on_failed_start,
        )
        return self.master_kind(self, uncertainty_set, handshake)

    def restore(
        self, uncertainty_set: Any, workers: int, state: Mapping[str, Any]
    ) -> TrainingMaster[Any, Any]:
        """The master of a snapshot."""
        return self.master_kind.restored(self, uncertainty_set, workers, state)


def make_worker(index: int, source: ProblemSource, settings: Training) -> RoundWorker:
    """Make worker j; called on the machine where it runs."""
    return RoundWorker(index, build(source, index), settings)


# -- the worker -------------------------------------------------------------------------------------

Walk = tuple[Array, float | None, Array | None]


class RoundWorker(FederatedWorker):
    """E times w ← w - η/D·∇f_j(w) from the model sent. Costs E gradients and O(p).

    To each gradient it adds the shift of the message, and that of the method's proximal term if it has one.
    With a preconditioner it steps in P instead of D, and sends the mean of its gradients.
    Its curvature is measured only if the default step needs it, since nothing else uses it. Of its state it
    needs the metric alone: its random draws depend on the ticket, so a repeated message gets the same answer
    again.
    """

    def __init__(self, index: int, problem: Problem, settings: Training) -> None:
        super().__init__(index, problem, seed=settings.seed, batch_size=settings.batch_size)
        self.settings = settings
        self.preconditioned, self.proximal = settings.preconditioned, settings.proximal_weight

    def handle(self, message: Request) -> Reply:
        """The reply to a message."""
        return self._train(message) if isinstance(message, Train) else super().handle(message)

    def _continue(self, begin: Begin, last: Reply | None, replies: int) -> None:
        """Take up the metric, which is all that a step needs. Costs no gradient."""
        self.state = WorkerState(-1, begin.z, begin.z, begin.metric, begin.inverse, 0.0, 0.0, 0.0, 1)

    def _measure_curvature(self, z: Array, gradient: Array, metric: Array) -> float:
        needed = self.settings.step is None and not self.preconditioned
        return super()._measure_curvature(z, gradient, metric) if needed else 0.0

    def _train(self, message: Train) -> Trained:
        rng, reported = self._rng(message.ticket), self.settings.reported_loss
        walk = self._walk_preconditioned if self.preconditioned else self._walk
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
        if self.proximal > 0:
            gradient = gradient + self.proximal * self.state.metric * (w - message.w)
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
                    inverse = 1.0 / preconditioner.metric(gradient * gradient)
                w = _moved(w, message.step, inverse, gradient)
        total /= max(1, message.steps)
        return total, loss, marked


def _moved(w: Array, step: float, inverse: Array, gradient: Array) -> Array:
    """w - step·inverse·gradient."""
    moved = np.empty_like(w)
    kernels.descend(w, inverse, gradient, step, moved)
    return moved


# -- the master -------------------------------------------------------------------------------------


class TrainingState(Protocol):
    """What the state of every method has.

    Attributes:
        w: the model; replaced, never written to.
        weights: the weight of each worker.
        losses: f_j as last reported.
        step: η.
        squares: v of the preconditioner, None without one and before the first reply.
        heard: epochs of replies that v has followed, N replies each.
        average: the running mean of w, which is the result; None if w itself is.
    """

    w: Array
    weights: Array
    losses: Array
    step: float
    squares: Array | None
    heard: float
    average: Array | None


def follow_reply(state: TrainingState, gradient: Array, weight: float, gap: float) -> None:
    """Let v follow a worker's reply of that weight, `gap` epochs after its last one. Costs O(p).

    In the first epoch v is the plain mean of the replies: no handshake brought gradients to begin with.
    """
    if not weight > 0.0 or not gradient.any():
        return
    N = state.losses.size
    replies = 1.0 + round(N * state.heard)
    state.heard = replies / N
    if state.squares is None:
        state.squares = gradient * gradient
        return
    part = preconditioner.rate(state.heard, weight, gap)
    preconditioner.follow(state.squares, gradient, max(part, 1.0 / replies if replies <= N else 0.0))


Method = TypeVar("Method", bound=Training)
State = TypeVar("State", bound=TrainingState)


class TrainingMaster(FederatedMaster, Generic[Method, State]):
    """The parent of the masters of rounds and of arrivals.

    Attributes:
        method: the settings and the updates.
        state: the model and what the method works on.
        inverse: 1/P, which workers need from their second local step on; None if v is not known.
    """

    reply_kind = Trained
    method: Method
    state: State

    def __init__(self, method: Method, oracle: Oracle, handshake: Handshake) -> None:
        super().__init__(method.roster(len(handshake.first)), oracle, handshake)
        self.method = method

    @classmethod
    @abstractmethod
    def restored(cls, method: Method, oracle: Oracle, workers: int, saved: Mapping[str, Any]) -> Self:
        """The master of a snapshot."""

    @property
    @abstractmethod
    def _epochs(self) -> float:
        """The epochs so far, of N gradients each."""

    @property
    @abstractmethod
    def _taking_part(self) -> int:
        """How many workers an iteration is made of."""

    def _derive(self) -> None:
        super()._derive()
        self.preconditioned = self.method.preconditioned
        self._derive_inverse()

    def _derive_inverse(self) -> None:
        squares = self.state.squares
        self.inverse = None if squares is None else 1.0 / preconditioner.metric(squares)

    @property
    def z(self) -> Array:
        """The model: w, or its running mean."""
        state = self.state
        return state.w if state.average is None else state.average

    @property
    def _step(self) -> float:
        """η; with a preconditioner it rises and falls with the epochs, as that of `AspireModels` does."""
        if not self.preconditioned:
            return self.state.step
        return self.state.step * preconditioner.pace(self._epochs, self.state.losses.size)

    @property
    def reported(self) -> Array:
        """Every worker's loss as it last reported it."""
        return self.state.losses

    def _ever_reported(self) -> list[bool]:
        return [visit != NEVER for visit in self.roster.visited]

    def _enter(self, j: int, began: Array, size: float) -> None:
        """Enter ‖w_j‖² into the book that compares workers; `began` is where its steps began."""
        book = self.outliers.books[j]
        book[1] = kernels.norm_sq(began)
        kernels.enter(book, size, size)

    def _average(self) -> None:
        """Take w into its running mean, over the last share `averaging` of the iterations."""
        state = self.state
        if state.average is not None:
            pace = 1.0 / max(1.0, self.method.averaging * self.iteration)
            state.average = state.average + pace * (state.w - state.average)

    # -- reports, assessment, checkpoints -------------------------------------------------------------

    def _figures(self) -> Figures:
        losses = self.state.losses.copy()
        return Figures(
            objective=float(self.oracle.worst_case(losses).value),
            value=float(self.state.weights @ losses),
            losses=losses,
            weights=self.state.weights.copy(),
            planes=1,
            active_workers=self._taking_part,
            theorem_numbers=self.sent + self.received,
        )

    def probes(self) -> dict[int, Request]:
        """The loss at the model, from every worker that is not dropped."""
        w = self.z
        return {j: Probe(w, w, 0.0, 0.0) for j in self.roster.kept()}

    def _standing(self, replies: Mapping[int, Reply | Exception], losses: Array, answer: Any) -> Standing:
        """Definition 1 is about ASPIRE's Lagrangian: here the gap is infinite."""
        weights = self.state.weights.copy()
        return Standing(weights, weights[None, :], np.inf)

    def _no_outliers(self, workers: int) -> Outliers:
        """The books of a restored master, before it has its own from the snapshot."""
        none = np.zeros(workers)
        return Outliers(workers, self.state.w, self.state.losses, none, none)
