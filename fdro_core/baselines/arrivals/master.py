"""The master of asynchronous arrivals: it uses each update as it comes, and sends the newest model back.

An iteration is one new model. It costs what the method's `combine` costs and O(p); the master keeps the last
message to every worker, so the models that are under way: N·p numbers at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from fdro_core.baselines.arrivals.method import ArrivalMethod
from fdro_core.baselines.arrivals.state import Arrival, ArrivalState, fits
from fdro_core.baselines.training.master import TrainingMaster, check_saved
from fdro_core.errors import CheckpointDamaged
from fdro_core.master import kernels, preconditioner
from fdro_core.master.base import FederatedMaster, Outgoing
from fdro_core.master.handshake import Handshake
from fdro_core.master.missing import redistribute
from fdro_core.master.outliers import Outliers
from fdro_core.master.roster import NEVER
from fdro_core.protocol.algorithm import Oracle
from fdro_core.protocol.messages import Train, Trained, from_fields, to_fields
from fdro_core.protocol.replies import LARGEST, LARGEST_SQ
from fdro_core.protocol.saved import Form, Saved, listing, numbers, row, worker_index
from uncertainty_sets.arrays import Array


def _under_way(saved: Saved, name: str, value: Any) -> None:
    """A message to a worker."""
    numbers("p")(saved, f"{name}' w", value["w"])


class ArrivalMaster(TrainingMaster[ArrivalMethod, ArrivalState]):
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

    def __init__(self, method: ArrivalMethod, oracle: Oracle, handshake: Handshake) -> None:
        workers = len(handshake.first)
        super().__init__(method, oracle, handshake)
        self.dispatched: dict[int, Train] = {}
        losses, gradient_sq, curvature = handshake.measured()
        self.state = ArrivalState(
            w=handshake.z.copy(),
            weights=np.full(workers, 1.0 / workers),
            losses=losses,
            step=method.start_step(float(curvature.max())),
            average=handshake.z.copy() if method.averaging else None,
        )
        self.outliers = Outliers(workers, handshake.z, losses, gradient_sq, curvature)
        self._enter_handshake(handshake)
        self.next_report = self.report_interval
        reported = [visit != NEVER for visit in self.roster.visited]
        self.state.weights = redistribute(self.state.weights, reported)
        live = [j for j, alive in enumerate(self.roster.alive) if alive]
        self.state.memory = method.remember(live, self.state.w)

    def _derive(self) -> None:
        super()._derive()
        method, workers = self.method, self.roster.settings.workers
        self.last, self.report_interval = method.iterations, method.reports_every(workers)
        self.scale = method.server_scale(workers)
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

    def _accept(self, j: int, reply: Trained) -> Outgoing:
        assert reply.w is not None
        size = kernels.norm_sq(reply.w)
        if not (abs(reply.loss) <= LARGEST and size <= LARGEST_SQ):
            return self._refuse(j)
        if not self.method.preconditioned:  # else it holds gradients
            self._enter(j, self.dispatched[j].w, size)
        if not self.roster.alive[j]:
            self._rejoin(j)
        self.gradients += self.method.local_steps
        self.roster.accept(j, reply, self.time)
        return []

    def _ready(self) -> bool:
        return bool(self.roster.pending)

    def _advance(self) -> Outgoing:
        """Let the method use the update, move if it says where, and send its worker the newest model."""
        state = self.state
        ((j, reply),) = self.roster.close(self.iteration)
        state.losses[j] = reply.loss
        if self.never:
            state.losses[self.never] = np.delete(state.losses, self.never).mean()
        move = self.method.combine(state, self._arrival(j, reply))
        if move is not None:
            self._move(move)
            self.iteration += 1
            self._average()
        return [(j, self._fresh(j))]

    def _arrival(self, j: int, reply: Trained) -> Arrival:
        assert reply.w is not None
        move = reply.w if self.method.preconditioned else reply.w - self.dispatched[j].w
        sent_in = self.roster.sent_in[j]
        return Arrival(j, move, sent_in, self.iteration - sent_in, reply.w)

    def _move(self, move: Array) -> None:
        """w ← w + scale·move; with a preconditioner v follows it first, and w ← w + scale·Eη·move/P.

        v takes of it the share of all workers whose updates it is made of, at most 1, that of a round. If η
        follows the steps (`preconditioner.adapted`), it does so with one worker.
        """
        state, method = self.state, self.method
        if not method.preconditioned:
            state.w = state.w + self.scale * move
        elif move.any():  # else there is no metric before the first gradient
            state.squares = preconditioner.follow(state.squares, move, min(1.0, self.passes))
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
    def restored(cls, method: ArrivalMethod, oracle: Oracle, workers: int, saved: Mapping[str, Any]) -> Self:
        """The master of a snapshot."""
        check_saved(method, workers, saved, "dispatched")
        master = cls.__new__(cls)
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
