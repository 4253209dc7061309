"""The master of synchronous rounds: it opens a phase, waits for all its workers, and opens the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from fdro_core.baselines.rounds.controls import shift_of
from fdro_core.baselines.rounds.method import RoundMethod
from fdro_core.baselines.rounds.preconditioned import close_preconditioned
from fdro_core.baselines.rounds.state import Job, RoundState
from fdro_core.baselines.training.master import TrainingMaster, check_saved
from fdro_core.errors import CheckpointMismatch
from fdro_core.master import kernels
from fdro_core.master.base import FederatedMaster, Outgoing
from fdro_core.master.handshake import Handshake
from fdro_core.master.missing import redistribute
from fdro_core.master.outliers import Outliers
from fdro_core.master.roster import NEVER
from fdro_core.protocol.algorithm import Oracle
from fdro_core.protocol.messages import Train, Trained
from fdro_core.protocol.replies import LARGEST, LARGEST_SQ
from fdro_core.protocol.saved import Form, Saved, numbers, whole
from uncertainty_sets.arrays import Array

MASTER_STREAM = 2**32 - 1  # in the place of a worker's index in the workers' seeds


class RoundMaster(TrainingMaster[RoundMethod, RoundState]):
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

    def __init__(self, method: RoundMethod, oracle: Oracle, handshake: Handshake) -> None:
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
            step=method.start_step(float(curvature.max())),
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
    def _epochs(self) -> float:
        return self.iteration * self.method.local_steps

    @property
    def _taking_part(self) -> int:
        return len(self.job.workers)

    # -- events ---------------------------------------------------------------------------------------

    def start(self) -> Outgoing:
        """The messages of the phase under way."""
        return [(j, self._fresh(j)) for j in self.job.workers]

    def _accept(self, j: int, reply: Trained) -> Outgoing:
        size = _largest_norm_sq(reply)
        if not (abs(reply.loss) <= LARGEST and size <= LARGEST_SQ):
            return self._refuse(j)
        if reply.w is not None and not self.method.preconditioned:  # else it holds gradients
            self._enter(j, self.state.w, size)
        roster = self.roster
        if not roster.alive[j]:
            self._rejoin(j)
        if roster.sent_in[j] != self.opened or j not in self.job.workers:
            roster.under_way.pop(j, None)  # from a phase that closed without it: it takes part from the next
            return []
        self.gradients += self.job.steps
        roster.accept(j, reply, self.time)
        return []

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

    def _close(self, replies: Mapping[int, Trained]) -> None:
        state, rng = self.state, self._rng(closing=True)
        if self.method.preconditioned and self.job.steps > 0:
            close_preconditioned(self.method, state, self.phase, self.job, replies, rng, self._step)
            self._derive_inverse()
        else:
            self.method.close(state, self.phase, self.job, replies, rng)

    def _leave_out_lost(self) -> None:
        """Guess the losses that were never measured, and give no weight to workers that may have none."""
        state, method = self.state, self.method
        if self.never:
            state.losses[self.never] = np.delete(state.losses, self.never).mean()
        if not method.adapts:
            return
        if method.dead_losses == "drop" and not all(self.roster.alive):
            state.weights = redistribute(state.weights, self.roster.alive)
        elif self.never:
            state.weights = redistribute(state.weights, self._ever_reported())

    def _ever_reported(self) -> list[bool]:
        return [phase != NEVER for phase in self.roster.visited]

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
    def restored(cls, method: RoundMethod, oracle: Oracle, workers: int, saved: Mapping[str, Any]) -> Self:
        """The master of a snapshot."""
        check_saved(method, workers, saved, "job")
        master = cls.__new__(cls)
        master.method = method
        master.state = RoundState(**saved["state"])
        missing = [name for name in method.keeps if getattr(master.state, name) is None]
        if missing:
            raise CheckpointMismatch(
                f"the checkpoint has no {missing[0]}, which {type(method).__name__} needs: start the run anew"
            )
        if master.state.average is None and method.averaging:  # a checkpoint from before it was a setting
            master.state.average = master.state.w
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
