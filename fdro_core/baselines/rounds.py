"""Synchronous rounds: what a method works on, the hooks that it may override, and the master.

A round has one phase or more. In a phase the master sends a model to the workers that take part, waits for
all of them (those that are lost on the way are left out) and lets the method use their replies. A method's
own file holds its update and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator

from fdro_core.baselines._common import Training, TrainingMaster, follow_reply
from fdro_core.errors import CheckpointMismatch
from fdro_core.master import kernels, preconditioner
from fdro_core.master.base import FederatedMaster, Outgoing
from fdro_core.master.handshake import Handshake
from fdro_core.master.outliers import Outliers
from fdro_core.master.roster import NEVER, RosterSettings, guess, redistribute
from fdro_core.protocol.algorithm import Oracle
from fdro_core.protocol.forms import LARGEST, LARGEST_SQ
from fdro_core.protocol.messages import Train, Trained
from fdro_core.protocol.saved import (
    TINY,
    Form,
    Kept,
    Saved,
    distribution,
    keeping,
    kept,
    listing,
    numbers,
    or_none,
    real,
    whole,
    worker_index,
)
from fdro_core.protocol.settings import OneOf, Whole, documented, setting
from uncertainty_sets.arrays import Array

__all__ = [
    "Job",
    "Replies",
    "RoundState",
    "Rounds",
    "ascend",
    "average",
    "follow_controls",
    "mean_control",
    "project",
]

Replies = Mapping[int, Trained]
"""By worker, what came back in a phase."""

MASTER_STREAM = 2**32 - 1  # in the place of a worker's index in the workers' seeds


@keeping
@dataclass
class RoundState(Kept):
    """What a method may read and change.

    Attributes:
        w: the model; replaced, never written to.
        weights: λ, the weight of each worker.
        prior: q, the set's reference().
        shares: each worker's part of all samples; equal if a problem does not say how many it has.
        losses: f_j as last reported.
        step: η.
        marked: a model that the next phase is about, or None.
        squares: v of the preconditioner, None without one and before the first reply.
        heard: epochs of replies that v has followed, N replies each.
        average: the running mean of w, which is the result; None if w itself is.
        metric: D.
        controls: the control variate c_j of every worker, (N, p); None if the method has none.
        moved: the last step of w, with a preconditioner; None before.
        earlier: the losses of the last step of λ, for a method that extrapolates them; else None.
    """

    w: Array = kept(numbers("p"))
    weights: Array = kept(distribution("N"))
    prior: Array = kept(distribution("N"))
    shares: Array = kept(distribution("N"))
    losses: Array = kept(numbers("N"))
    step: float = kept(real(above=0.0))
    marked: Array | None = kept(or_none(numbers("p")), default=None)
    squares: Array | None = kept(or_none(numbers("p", least=0.0, most=LARGEST_SQ)), default=None)
    heard: float = kept(real(least=0.0), default=0.0)
    average: Array | None = kept(or_none(numbers("p")), default=None)
    metric: Array | None = kept(or_none(numbers("p", least=TINY)), default=None)
    controls: Array | None = kept(or_none(numbers("N p")), default=None)
    earlier: Array | None = kept(or_none(numbers("N")), default=None)
    moved: Array | None = kept(or_none(numbers("p")), default=None)


@keeping
@dataclass
class Job(Kept):
    """What the workers are asked in a phase.

    Attributes:
        workers: who takes part.
        steps: E; 0 asks for the loss alone.
        mark: the local step whose model is sent too, 0 for none.
        counts: how often each worker was drawn, if workers are drawn with repetition.
        control: c; worker j adds c - c_j to its gradients, with c_j of the state's `controls`. None: nothing.
    """

    workers: list[int] = kept(listing("", worker_index))
    steps: int = kept(whole())
    mark: int = kept(whole(), default=0)
    counts: list[int] = kept(listing(), default_factory=list)
    control: Array | None = kept(or_none(numbers("p")), default=None)


def average(points: Mapping[int, Array | None], weights: Array, otherwise: Array) -> Array:
    """Σ_j weights_j·points_j / Σ_j weights_j in the order of j; `otherwise` if that is 0/0."""
    total = float(sum(weights[j] for j in points))
    if not total > 0:
        return otherwise
    mean = np.zeros_like(otherwise)
    for j, point in sorted(points.items()):
        assert point is not None
        kernels.add(mean, float(weights[j]) / total, point)
    return mean


def project(values: Array) -> Array:
    """The nearest distribution: the Euclidean projection on the simplex.

    >>> project(np.array([0.9, 0.5, -1.0]))
    array([0.7, 0.3, 0. ])
    """
    above = np.maximum(values - kernels.simplex_threshold(values), 0.0)
    nearest: Array = above / above.sum()
    return nearest


def ascend(state: RoundState, gains: Array, reach: float, regularisation: float = 0.0) -> None:
    """λ ← Π((λ + γ(v + μq)) / (1 + γμ)), the maximum over u of γ·(vᵀu - (μ/2)‖u - q‖²) - ½‖u - λ‖²."""
    target = state.weights + reach * (gains + regularisation * state.prior)
    state.weights = project(target / (1.0 + reach * regularisation))


# -- the master -------------------------------------------------------------------------------------


class RoundMaster(TrainingMaster["Rounds", RoundState]):
    """The master of a method in synchronous rounds.

    Attributes:
        state: the model and the weights.
        job: what the workers were asked in the phase under way.
        opened: phases opened so far; a reply belongs to the phase in which its message was sent.
    """

    moment = "in round"
    model: ClassVar[str] = "state.w"
    mark: ClassVar[str] = "job"
    in_rounds: ClassVar[bool] = True
    saved: ClassVar[Form] = FederatedMaster.saved | {
        "state": RoundState.check_saved,
        "job": Job.check_saved,
        "phase": whole(),
        "opened": whole(),
    }

    def __init__(self, method: Rounds, oracle: Oracle, handshake: Handshake) -> None:
        workers = len(handshake.first)
        super().__init__(method, oracle, handshake)
        self.phase = self.opened = 0
        self.next_report = method.report_interval
        losses, gradient_sq, curvature = handshake.measured()
        shares = _shares(handshake)
        self.state = RoundState(
            w=handshake.z.copy(),
            weights=method.start_weights(handshake.reference, shares),
            prior=handshake.reference.copy(),
            shares=shares,
            losses=losses,
            step=method.start_step(float(curvature.max()), workers),
            average=handshake.z.copy() if method.averaging else None,
            metric=handshake.metric.copy(),
        )
        self.outliers = Outliers(workers, handshake.z, losses, gradient_sq, curvature)
        self._enter_handshake(handshake)
        if self.never:
            self.state.weights = redistribute(self.state.weights, self._ever_reported())
        self.job = self._draw()

    def _derive(self) -> None:
        super()._derive()
        self.last, self.report_interval = self.method.iterations, self.method.report_interval

    @property
    def steps_each(self) -> int:  # type: ignore[override]
        """Gradients that a reply of the phase under way takes."""
        return self.job.steps

    @property
    def _epochs(self) -> float:
        return self.iteration * self.method.local_steps

    @property
    def _taking_part(self) -> int:
        return len(self.job.workers)

    # -- events ---------------------------------------------------------------------------------------

    def start(self) -> Outgoing:
        """The messages of the phase under way."""
        return [(j, self._fresh(j)) for j in self.job.workers]

    def _usable(self, j: int, reply: Trained) -> bool:
        size = _largest_norm_sq(reply)
        if not (abs(reply.loss) <= LARGEST and size <= LARGEST_SQ):
            return False
        if reply.w is not None and not self.preconditioned:  # else it holds gradients
            self._enter(j, self.state.w, size)
        return True

    def _keep(self, j: int, reply: Trained) -> None:
        """Keep a reply of the phase under way; j takes part from the next one if that closed without it."""
        if self.roster.sent_in[j] == self.opened and j in self.job.workers:
            super()._keep(j, reply)
        else:
            self.roster.under_way.pop(j, None)

    def _return(self, j: int) -> Outgoing:
        """Let lost worker j do its part of the phase under way, or wait for the next."""
        self._rejoin(j)
        if j in self.job.workers and j not in self.roster.pending:
            return [(j, self._fresh(j))]
        self.roster.under_way.pop(j, None)
        return []

    # -- one phase ------------------------------------------------------------------------------------

    def _ready(self) -> bool:
        return bool(self.roster.live) and not self.roster.under_way

    def _advance(self) -> Outgoing:
        """Let the method use the replies, and open the next phase."""
        replies: dict[int, Trained] = dict(self.roster.close(self.opened))
        for j, reply in replies.items():
            self.state.losses[j] = reply.loss
        self._close(replies)
        self._leave_out_lost()
        self.phase += 1
        if self.phase == self.method.phases:
            self.phase = 0
            self.iteration += 1
            self._average()
        self.opened += 1
        self.job = self._draw()
        return self.start()

    def _close(self, replies: Replies) -> None:
        state, rng = self.state, self._rng(closing=True)
        if self.preconditioned and self.job.steps > 0:
            close_preconditioned(self.method, state, self.phase, self.job, replies, rng, self._step)
            self._derive_inverse()
        else:
            self.method.close(state, self.phase, self.job, replies, rng)

    def _leave_out_lost(self) -> None:
        """Guess the losses that were never measured, and give no weight to workers that may have none."""
        guess(self.state.losses, self.never)
        kept = self._may_weigh() if self.method.adapts else None
        if kept is not None:
            self.state.weights = redistribute(self.state.weights, kept)

    def _draw(self) -> Job:
        live = [j for j, alive in enumerate(self.roster.alive) if alive]
        return self.method.draw(self.state, self.phase, live, self._rng(closing=False))

    def _rng(self, *, closing: bool) -> np.random.Generator:
        """The random stream of a phase: a function of the seed and its number, so none is saved."""
        return np.random.default_rng([self.method.seed, MASTER_STREAM, self.opened, int(closing)])

    # -- messages -------------------------------------------------------------------------------------

    def _fresh(self, j: int) -> Train:
        return self._message(j, self.roster.dispatch(j, self.time, self.opened))

    def _repeat(self, j: int) -> Train:
        return self._message(j, self.roster.tickets[j])

    def _message(self, j: int, ticket: int) -> Train:
        state, job = self.state, self.job
        w = state.w if state.marked is None or self.phase == 0 else state.marked
        inverse = self.inverse if job.steps > 1 else None
        shift = None if job.control is None else shift_of(job.control, state, j)
        message = Train(ticket, w, job.steps, self._step, job.mark, inverse, shift)
        self.sent += message.numbers
        return message

    # -- reports, checkpoints -------------------------------------------------------------------------

    def _last_visits(self) -> list[int]:
        """Visits are counted in phases: the rounds that those belong to."""
        phases = self.method.phases
        return [NEVER if phase == NEVER else -(-phase // phases) for phase in self.roster.visited]

    @classmethod
    def restored(cls, method: Rounds, oracle: Oracle, workers: int, saved: Mapping[str, Any]) -> Self:
        """The master of a snapshot."""
        master = cls._blank(method, workers, saved)
        master.method = method
        master.state = RoundState(**saved["state"])
        missing = [name for name in method.keeps if getattr(master.state, name) is None]
        if missing:
            raise CheckpointMismatch(
                f"the checkpoint has no {missing[0]}, which {type(method).__name__} needs: start the run anew"
            )
        master.job = Job(**saved["job"])
        master.outliers = master._no_outliers(workers)
        master._restore(method.roster(workers), oracle, saved)
        return master

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check that the job is one of this state."""
        super().check_saved(saved, name, value)
        job = value["job"]
        if job["control"] is not None:
            numbers("N p")(saved, f"{name}.state.controls", value["state"]["controls"])
        counts, drawn = job["counts"], job["workers"]
        if len(counts) != len(drawn) and (counts or job["mark"]):
            raise saved.error(f"{name}.job.counts", f"has {len(counts)} entries for {len(drawn)} workers")
        if value["roster"]["look_at"] is not None:
            # A round has no delays to look at, and would tick for ever.
            raise saved.error(f"{name}.roster.look_at", "must be None in rounds")


def _shares(handshake: Handshake) -> Array:
    """Each worker's part of all samples: equal if a problem does not say how many it has, 0 if it failed."""
    began = np.array([update is not None for update in handshake.first])
    counts = np.array([np.nan if samples is None else float(samples) for samples in handshake.samples])
    known = np.isfinite(counts[began]).all() and counts[began].sum() > 0
    parts = np.where(began, counts, 0.0) if known else began.astype(np.float64)
    shares: Array = parts / parts.sum()
    return shares


def _largest_norm_sq(reply: Trained) -> float:
    """The largest ‖w‖² among the models in a reply, NaN if one holds NaN."""
    models = [model for model in (reply.w, reply.marked) if model is not None]
    return float(np.max([kernels.norm_sq(model) for model in models], initial=0.0))


# -- a method ---------------------------------------------------------------------------------------


@documented
@dataclass(frozen=True, kw_only=True)
class Rounds(Training):
    """The parent of every synchronous method: a subclass overrides `start_weights`, `draw` or `close`."""

    iterations: int = setting(1500, Whole(), "rounds")
    dead_losses: str = setting(
        "freeze",
        OneOf("freeze", "drop"),
        'if λ adapts, "freeze" keeps a lost worker\'s last loss and its weight, "drop" gives its weight to '
        "the others",
    )
    report_interval: int = setting(1, Whole(), "rounds between two reports")

    master_kind: ClassVar[type[RoundMaster]] = RoundMaster
    phases: ClassVar[int] = 1
    adapts: ClassVar[bool] = False  # whether λ changes
    keeps: ClassVar[tuple[str, ...]] = ()  # optional parts of the state that it cannot go on without

    def start_weights(self, prior: Array, shares: Array) -> Array:
        """λ⁰."""
        return prior.copy()

    def draw(self, state: RoundState, phase: int, live: Sequence[int], rng: Generator) -> Job:
        """Who takes part in a phase, and what they do: all live workers, E steps."""
        return Job(list(live), self.local_steps)

    def close(self, state: RoundState, phase: int, job: Job, replies: Replies, rng: Generator) -> None:
        """Use the replies of a phase: w ← Σ_j λ_jw_j / Σ_j λ_j over the workers that replied."""
        state.w = average({j: reply.w for j, reply in replies.items()}, state.weights, state.w)

    def roster(self, workers: int) -> RosterSettings:
        """What the roster needs of the settings: a phase waits for all its workers."""
        return self._roster(workers, workers, drops=self.dead_losses == "drop")


def close_preconditioned(
    method: Rounds,
    state: RoundState,
    phase: int,
    job: Job,
    replies: Replies,
    rng: Generator,
    step: float,
) -> None:
    """Let v follow the replies and the method combine them to -d; then w ← w - Eη·d/P with the new P.

    A local model is sent as -(1/E)·Σ of its E gradients instead of w_j: relative to the model that the worker
    was sent, in the unit of one gradient. So the master sees the gradients to the last bit, and averages of
    models are averages of gradients: a method's `close` works on them as on models, with w = 0.

    A reply counts in v by its worker's weight, or by how often the worker was drawn; without the shift that a
    control variate adds. The marked model is w - t'η·d'/P with the same P, d' the mean of the first t'
    gradients. If η follows the steps (`preconditioner.adapted`), it does so when all workers take part.
    """
    w = state.w
    _follow_replies(state, job, replies)
    state.w = np.zeros_like(w)
    method.close(state, phase, job, replies, rng)
    move, marked = state.w, state.marked
    everyone = len(replies) == state.weights.size and len(job.counts) <= 1  # none were drawn
    if move.any() and method.follows and everyone:
        before, state.step = state.step, preconditioner.adapted(state.step, move, state.moved)
        step *= state.step / before
    if state.squares is None:
        state.w, state.marked = w, None if marked is None else w
        return
    metric = preconditioner.metric(state.squares)
    way = (job.steps * step) * move / metric
    state.w = w + way
    state.moved = way if way.any() else state.moved
    if marked is not None:
        state.marked = w + (job.mark * step) * marked / metric


def _follow_replies(state: RoundState, job: Job, replies: Replies) -> None:
    """Let v follow every reply of a round, the parts of the weights adding up to 1."""
    weights = state.weights.copy()
    if job.counts:
        weights[job.workers] = job.counts
    total = float(sum(weights[j] for j in replies))
    if not total > 0.0:
        return
    for j, reply in sorted(replies.items()):
        assert reply.w is not None
        gradient = reply.w if job.control is None else reply.w + shift_of(job.control, state, j)
        follow_reply(state, gradient, float(weights[j]) / total, float(job.steps))


# -- control variates -------------------------------------------------------------------------------


def mean_control(state: RoundState, live: Sequence[int]) -> Array:
    """c = Σ_j λ_jc_j / Σ_j λ_j over the live workers; a c_j is 0 before it is known. Costs O(Np).

    c_j stands for worker j's gradient, and c - c_j takes its local steps where all go. The master keeps every
    c_j, so workers stay without state: a message carries w and c - c_j, as many numbers as w and c would be.
    A new c_j follows from the model that comes back, which is all that is sent.
    """
    if state.controls is None:
        state.controls = np.zeros((state.weights.size, state.w.size))
    return average({j: state.controls[j] for j in live}, state.weights, np.zeros_like(state.w))


def shift_of(control: Array, state: RoundState, j: int) -> Array:
    """c - c_j, which worker j adds to its gradients."""
    assert state.controls is not None
    shift: Array = control - state.controls[j]
    return shift


def follow_controls(method: Rounds, state: RoundState, job: Job, replies: Replies) -> None:
    """Set c_j to the mean of worker j's E gradients, for those that replied: c_j - c + D(w - w_j)/(Eη).

    With a preconditioner w is 0 here and w_j is minus the mean of what was stepped along, so D/(Eη) is not
    needed. To be called before w changes. Costs O(Np).
    """
    assert state.controls is not None
    assert state.metric is not None
    controls = state.controls.copy()
    scale = 1.0 if method.preconditioned else state.metric / (job.steps * state.step)
    for j, reply in replies.items():
        assert reply.w is not None
        stepped = scale * (state.w - reply.w)
        controls[j] = stepped if job.control is None else stepped - shift_of(job.control, state, j)
    state.controls = controls
