"""Asynchronous arrivals: what a method without rounds works on, the hooks it may override, and the master.

Every worker always has one message under way. When its update arrives, the method combines it with what it
remembers; the worker gets the newest model at once and goes on. Nobody waits for anybody. A method's own file
holds its update alone.

An iteration is one new model. It costs what the method's `combine` costs and O(p); the master keeps the last
message to every worker, so the models that are under way: N·p numbers at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar, Self

import numpy as np

from fdro_core.baselines._common import Training, TrainingMaster, follow_reply
from fdro_core.errors import CheckpointDamaged
from fdro_core.master import kernels, preconditioner
from fdro_core.master.base import FederatedMaster, Outgoing
from fdro_core.master.handshake import Handshake
from fdro_core.master.outliers import Outliers
from fdro_core.master.roster import RosterSettings, guess, redistribute
from fdro_core.protocol.algorithm import Oracle
from fdro_core.protocol.forms import LARGEST, LARGEST_SQ
from fdro_core.protocol.messages import Train, Trained, from_fields, to_fields
from fdro_core.protocol.saved import (
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
    row,
    worker_index,
)
from fdro_core.protocol.settings import Whole, documented, setting
from uncertainty_sets.arrays import Array

__all__ = ["Arrival", "ArrivalState", "Arrivals"]


def remembered(saved: Saved, name: str, value: Any) -> None:
    """What a method remembers: vectors have p entries, and numbers are finite."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            remembered(saved, f"{name}.{key}", part)
    elif isinstance(value, np.ndarray):
        numbers("p")(saved, name, value)
    elif isinstance(value, int | float) and not isfinite(value):
        raise saved.error(name, f"must be a finite number, got {value!r}")


@keeping
@dataclass
class ArrivalState(Kept):
    """What a method may read; of these it changes `memory` alone.

    Attributes:
        w: the model; replaced, never written to.
        weights: the weight of each worker in the mean that is reported: even, 0 for one that never began.
        losses: f_j as last reported.
        step: η.
        memory: what the method keeps between arrivals, by name: plain values, arrays, and dicts of them. It
            is saved in checkpoints.
        squares: v of the preconditioner, None without one and before the first reply.
        heard: epochs of replies that v has followed, N replies each.
        average: the running mean of w, which is the result; None if w itself is.
        moved: the last step of w, with a preconditioner; None before.
    """

    w: Array = kept(numbers("p"))
    weights: Array = kept(distribution("N"))
    losses: Array = kept(numbers("N"))
    step: float = kept(real(above=0.0))
    memory: dict[str, Any] = kept(remembered, default_factory=dict)
    squares: Array | None = kept(or_none(numbers("p", least=0.0, most=LARGEST_SQ)), default=None)
    heard: float = kept(real(least=0.0), default=0.0)
    average: Array | None = kept(or_none(numbers("p")), default=None)
    moved: Array | None = kept(or_none(numbers("p")), default=None)


@dataclass(frozen=True)
class Arrival:
    """The update of one worker.

    Attributes:
        worker: j.
        move: w_j - w_sent, from the model that j was sent to where its local steps led; with a preconditioner
            -(1/E)·Σ of its E gradients.
        sent_in: the iteration in which that model was sent.
        age: iterations since then: how many models were made meanwhile. So it is iteration sent_in + age now.
        local: w_j; with a preconditioner `move`, since the worker sends no model.
    """

    worker: int
    move: Array
    sent_in: int
    age: int
    local: Array


def fits(pattern: Any, value: Any) -> bool:
    """Whether a saved memory has the form of a new one; of a dict by worker it may have a part.

    >>> new = {"count": 0, "updates": {0: np.zeros(2), 1: np.zeros(2)}}
    >>> (
    ...     fits(new, {"count": 3, "updates": {1: np.ones(2)}}),
    ...     fits(new, {"count": 3, "updates": {7: np.ones(2)}}),
    ... )
    (True, False)
    """
    if isinstance(pattern, dict):
        if not isinstance(value, dict) or not value.keys() <= pattern.keys():
            return False
        whole = any(isinstance(key, str) for key in pattern)
        if whole and value.keys() != pattern.keys():
            return False
        return all(fits(pattern[key], part) for key, part in value.items())
    if isinstance(pattern, np.ndarray):
        return isinstance(value, np.ndarray) and value.shape == pattern.shape
    return type(value) is type(pattern)


# -- the master -------------------------------------------------------------------------------------


def _under_way(saved: Saved, name: str, value: Any) -> None:
    """A message to a worker."""
    numbers("p")(saved, f"{name}' w", value["w"])


class ArrivalMaster(TrainingMaster["Arrivals", ArrivalState]):
    """The master of an asynchronous method.

    Attributes:
        state: the model and what the method remembers.
        dispatched: the last message to each worker: the model that its update is relative to.
    """

    moment = "at iteration"
    model: ClassVar[str] = "state.w"
    mark: ClassVar[str] = "dispatched"
    saved: ClassVar[Form] = FederatedMaster.saved | {
        "state": ArrivalState.check_saved,
        "dispatched": listing("", row(worker_index, _under_way)),
    }

    def __init__(self, method: Arrivals, oracle: Oracle, handshake: Handshake) -> None:
        workers = len(handshake.first)
        super().__init__(method, oracle, handshake)
        self.dispatched: dict[int, Train] = {}
        losses, gradient_sq, curvature = handshake.measured()
        self.state = ArrivalState(
            w=handshake.z.copy(),
            weights=np.full(workers, 1.0 / workers),
            losses=losses,
            step=method.start_step(float(curvature.max()), workers),
            average=handshake.z.copy() if method.averaging else None,
        )
        self.outliers = Outliers(workers, handshake.z, losses, gradient_sq, curvature)
        self._enter_handshake(handshake)
        self.next_report = self.report_interval
        self.state.weights = redistribute(self.state.weights, self._ever_reported())
        live = [j for j, alive in enumerate(self.roster.alive) if alive]
        self.state.memory = method.remember(live, self.state.w)

    def _derive(self) -> None:
        super()._derive()
        method, workers = self.method, self.roster.settings.workers
        self.last, self.report_interval = method.iterations, method.reports_every(workers)
        self.scale = method.server_scale(workers)
        self.steps_each = method.local_steps
        self.passes = method.arrivals / workers  # of all workers, that an iteration's updates are

    @property
    def _epochs(self) -> float:
        return self.iteration * self.passes * self.method.local_steps

    @property
    def _taking_part(self) -> int:
        return min(self.method.arrivals, self.roster.live)

    # -- events ---------------------------------------------------------------------------------------

    def start(self) -> Outgoing:
        """The first message to every live worker."""
        return [(j, self._fresh(j)) for j, alive in enumerate(self.roster.alive) if alive]

    def _usable(self, j: int, reply: Trained) -> bool:
        assert reply.w is not None
        size = kernels.norm_sq(reply.w)
        if not (abs(reply.loss) <= LARGEST and size <= LARGEST_SQ):
            return False
        if not self.preconditioned:  # else it holds gradients
            self._enter(j, self.dispatched[j].w, size)
        return True

    def _ready(self) -> bool:
        return bool(self.roster.pending)

    def _advance(self) -> Outgoing:
        """Let the method use the update, move if it says where, and send its worker the newest model."""
        state, roster = self.state, self.roster
        last = roster.visited[next(iter(roster.pending))]
        ((j, reply),) = roster.close(self.iteration)
        state.losses[j] = reply.loss
        guess(state.losses, self.never)
        if self.preconditioned:
            assert reply.w is not None
            epochs = (self.iteration + 1 - last) * self.passes * self.method.local_steps
            follow_reply(state, reply.w, float(state.weights[j]), max(1.0, epochs))
        move = self.method.combine(state, self._arrival(j, reply))
        if move is not None:
            self._move(move)
            self.iteration += 1
            self._average()
        return [(j, self._fresh(j))]

    def _arrival(self, j: int, reply: Trained) -> Arrival:
        assert reply.w is not None
        move = reply.w if self.preconditioned else reply.w - self.dispatched[j].w
        sent_in = self.roster.sent_in[j]
        return Arrival(j, move, sent_in, self.iteration - sent_in, reply.w)

    def _move(self, move: Array) -> None:
        """w ← w + scale·move; with a preconditioner w ← w + scale·Eη·move/P.

        If η follows the steps (`preconditioner.adapted`), it does so with one worker.
        """
        state, method = self.state, self.method
        if not self.preconditioned:
            state.w = state.w + self.scale * move
        elif state.squares is not None and move.any():  # else there is no metric before the first gradient
            if method.follows and state.losses.size == 1:  # else who comes when is noise
                state.step = preconditioner.adapted(state.step, move, state.moved)
            length = self.scale * method.local_steps * self._step
            state.moved = length * move / preconditioner.metric(state.squares)
            state.w = state.w + state.moved
            self._derive_inverse()

    def _lose(self, j: int, reason: str, *, for_good: bool = False, error: Exception | None = None) -> None:
        super()._lose(j, reason, for_good=for_good, error=error)
        if self.state.memory:  # there is none yet for a worker that fails in the handshake
            self.method.leave(self.state, j)

    # -- messages -------------------------------------------------------------------------------------

    def _fresh(self, j: int) -> Train:
        steps = self.method.local_steps
        ticket = self.roster.dispatch(j, self.time, self.iteration)
        inverse = self.inverse if steps > 1 else None
        self.dispatched[j] = Train(ticket, self.state.w, steps, self._step, inverse=inverse)
        return self._repeat(j)

    def _repeat(self, j: int) -> Train:
        """The message under way once more, from the same model: which of the two is answered is unknown."""
        message = self.dispatched[j]
        self.sent += message.numbers
        return message

    # -- checkpoints ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        return super().snapshot() | {"dispatched": [[j, to_fields(m)] for j, m in self.dispatched.items()]}

    @classmethod
    def restored(cls, method: Arrivals, oracle: Oracle, workers: int, saved: Mapping[str, Any]) -> Self:
        """The master of a snapshot."""
        master = cls._blank(method, workers, saved)
        master.method = method
        master.state = ArrivalState(**saved["state"])
        if not fits(method.remember(range(workers), master.state.w), master.state.memory):
            raise CheckpointDamaged(
                f"the checkpoint holds in master.state.memory what {type(method).__name__} never remembers: "
                "resume from an older copy, or start again"
            )
        master.dispatched = {j: from_fields(parts) for j, parts in saved["dispatched"]}
        master.outliers = master._no_outliers(workers)
        master._restore(method.roster(workers), oracle, saved)
        return master

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check that there is a message to every worker that is under way."""
        super().check_saved(saved, name, value)
        roster = value["roster"]
        busy = {*roster["under_way"], *(j for j, _ in roster["pending"])}
        unknown = busy - {j for j, _ in value["dispatched"]}
        if unknown:
            raise saved.error(
                f"{name}.dispatched", f"leaves out workers {sorted(unknown)}, which are under way"
            )


# -- a method ---------------------------------------------------------------------------------------


@documented
@dataclass(frozen=True, kw_only=True)
class Arrivals(Training):
    """The parent of every asynchronous method: a subclass overrides `combine`, and what that needs."""

    master_kind: ClassVar[type[ArrivalMaster]] = ArrivalMaster

    iterations: int = setting(10000, Whole(), "models that the master makes")
    report_interval: int | None = setting(
        None,
        Whole(),
        "iterations between two reports",
        why="as many as take N updates, since a report costs O(N)",
    )

    @property
    def arrivals(self) -> int:
        """How many updates one iteration takes."""
        return 1

    def server_scale(self, workers: int) -> float:
        """What the combined update is multiplied by before it is added to w."""
        return 1.0

    def remember(self, workers: Sequence[int], w: Array) -> dict[str, Any]:
        """The method's memory at the start, with these workers alive at w."""
        return {}

    def combine(self, state: ArrivalState, arrival: Arrival) -> Array | None:
        """Where the model moves now that an update has arrived: that update; None to wait for more."""
        return arrival.move

    def leave(self, state: ArrivalState, worker: int) -> None:
        """Worker j was lost: it may come back, then with a fresh model."""

    def reports_every(self, workers: int) -> int:
        """Iterations between two reports: the setting, else one epoch of updates."""
        return self.report_interval or -(-workers // self.arrivals)

    def roster(self, workers: int) -> RosterSettings:
        """What the roster needs of the settings: nobody is ever waited for."""
        return self._roster(workers, 1)
