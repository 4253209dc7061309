"""The master of synchronous rounds: a state machine that opens a phase, waits for all of it, and goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from fdro_core.aspire import kernels
from fdro_core.aspire.adversary import Oracle, without
from fdro_core.aspire.master import NEVER, OUT_OF_RANGE
from fdro_core.aspire.stationarity import look_over, stand_in
from fdro_core.baselines.rounds.settings import Job, Rounds, RoundState
from fdro_core.contracts.algorithm import Verdict
from fdro_core.contracts.engine import Back, Event, Lost, Silent
from fdro_core.contracts.failures import no_workers_left, traceback_of, words
from fdro_core.contracts.messages import Probe, Probed, Reply, Request, Train, Trained
from fdro_core.contracts.replies import LARGEST, LARGEST_SQ
from fdro_core.errors import CheckpointMismatch
from fdro_core.federation.meeting import Meeting
from fdro_core.federation.outliers import Outliers
from fdro_core.federation.roster import Roster
from uncertainty_sets.arrays import Array

Outgoing = list[tuple[int, Train]]

OWN = ("iteration", "phase", "opened", "time", "sent", "received", "gradients", "next_report", "last_words",
       "notices")  # fmt: skip
MASTER_STREAM = 2**32 - 1  # where a worker's index stands in the workers' seeds


class RoundMaster:
    """The master of a method in synchronous rounds.

    Attributes:
        state: the model and the weights.
        job: what the workers were asked in the phase under way.
        opened: phases opened so far; a reply belongs to the phase in which its message was sent.
    """

    def __init__(self, method: Rounds, oracle: Oracle, met: Meeting) -> None:
        workers = len(met.first)
        self._settle(method, oracle, workers)
        self.iteration = self.phase = self.opened = 0
        self.time = 0.0
        self.gradients = 0
        self.sent, self.received = met.sent, met.received
        self.next_report = method.report_interval
        self.notices: list[dict[str, Any]] = []
        self.last_words = ""
        self.last_failure: tuple[int, Exception] | None = None
        self.roster = Roster(self.plan)
        reports = [
            (np.nan, 0.0, 0.0) if u is None else (u.loss, u.gradient_sq, u.curvature) for u in met.first
        ]
        losses, gradient_sq, curvature = np.array(reports).T.copy()
        good = np.isfinite(losses)
        losses[~good] = losses[good].mean()
        counts = np.array([np.nan if n is None else float(n) for n in met.samples])
        known = np.isfinite(counts[good]).all() and counts[good].sum() > 0
        shares = np.where(good, counts, 0.0) if known else good.astype(np.float64)
        shares = shares / shares.sum()
        largest = float(curvature.max())
        self.state = RoundState(
            w=met.z.copy(),
            weights=method.start_weights(met.reference, shares),
            prior=met.reference.copy(),
            shares=shares,
            losses=losses,
            step=method.step or (1.0 / largest if largest > 0 else 1.0),
        )
        self.outliers = Outliers(workers, met.z, losses, gradient_sq, curvature)
        for j, what in met.suspicious.items():
            self.notice("suspicious", worker=j, reason=what)
        for j, error in met.failures.items():
            self.roster.visited[j] = NEVER
            self._leave(j, f"failed before the first step: {words(error)}", for_good=True, error=error)
        self._derive()
        if self.never:
            self.state.weights = without(self.state.weights, good.tolist())
        self.job = self._draw()

    def _derive(self) -> None:
        self.never = [j for j, phase in enumerate(self.roster.visited) if phase == NEVER]

    def _settle(self, method: Rounds, oracle: Oracle, workers: int) -> None:
        self.method, self.oracle = method, oracle
        self.plan = method.plan(workers)
        self.last = self.plan.iterations

    @property
    def z(self) -> Array:
        """The model."""
        return self.state.w

    @property
    def reported(self) -> Array:
        """Every worker's loss as it last reported it."""
        return self.state.losses

    @property
    def wake_at(self) -> float | None:
        """The next time at which silence means something."""
        return self.roster.wake_at()

    # -- events ---------------------------------------------------------------------------------------

    def start(self) -> Outgoing:
        """The messages of the first phase."""
        return [(j, self._send(j)) for j in self.job.workers]

    def handle(self, event: Event) -> Outgoing:
        """The messages to send after an event."""
        self.time = event.time
        payload, j = event.payload, event.worker
        out: Outgoing = []
        if isinstance(payload, Trained):
            out = self._take(j, payload)
        elif isinstance(payload, Lost):
            if self.roster.lost(j, payload.returns):
                self._leave(j, payload.reason, error=payload.error)
        elif isinstance(payload, Back):
            if not self.roster.alive[j] and j not in self.roster.dropped:
                out = self._return(j)
        elif isinstance(payload, Silent):
            out = self._suspect(j, payload)
        elif payload is None:
            out = [(k, self._press(k)) for k in self.roster.overdue(self.time)]
        else:
            out = self._refuse(j)
        if self.roster.deserted:
            raise no_workers_left(f"in round {self.iteration}", j, self.last_words, self.last_failure)
        return out if self.roster.under_way or not self.roster.live else out + self._close()

    def _take(self, j: int, reply: Trained) -> Outgoing:
        roster = self.roster
        self.received += reply.numbers
        if reply.ticket < roster.tickets[j] or j in roster.pending:
            return []  # a repeated message, or one from before a crash
        size = _size(reply)
        if reply.ticket != roster.tickets[j] or not (abs(reply.loss) <= LARGEST and size <= LARGEST_SQ):
            return self._refuse(j)
        if reply.w is not None:
            books = self.outliers.books[j]
            books[1] = kernels.norm_sq(self.state.w)  # where its steps began
            kernels.enter(books, size, size)
        if not roster.alive[j]:
            self._join(j)
        if roster.sent_in[j] != self.opened or j not in self.job.workers:
            roster.under_way.pop(j, None)  # from a phase that closed without it: it takes part from the next
            return []
        self.gradients += self.job.steps
        roster.accept(j, reply, self.time)
        return []

    def _suspect(self, j: int, silent: Silent) -> Outgoing:
        """The engine says that j may hang."""
        if not self.roster.silent(j, silent.deadline):
            return []
        self.notice("worker-silent", worker=j, seconds=silent.seconds, reason=silent.reason)
        return [(j, self._press(j))]

    def _press(self, j: int) -> Train:
        """What silent j is sent: its message again; a fresh one once it counts as dead."""
        if self.roster.ask_again(j, self.time):
            self.notice("asked-again", worker=j)
            return self._message(self.roster.tickets[j])
        if self.roster.alive[j]:
            self._leave(j, f"silent for {self.time - self.roster.sent_at[j]:.3g} s")
        message = self._send(j)
        self.roster.retry(j, self.time)
        return message

    # -- one phase ------------------------------------------------------------------------------------

    def _close(self) -> Outgoing:
        """Let the method take the replies in, and open the next phase."""
        replies: dict[int, Trained] = dict(sorted(self.roster.close(self.opened)))
        for j, reply in replies.items():
            self.state.losses[j] = reply.loss
        self.method.close(self.state, self.phase, self.job, replies, self._rng(closing=True))
        if self.never:
            self.state.losses[self.never] = np.delete(self.state.losses, self.never).mean()
        if self.method.adapts:
            if self.method.dead_losses == "drop" and not all(self.roster.alive):
                self.state.weights = without(self.state.weights, self.roster.alive)
            elif self.never:  # a loss that nobody ever measured earns no weight
                self.state.weights = without(
                    self.state.weights, [phase != NEVER for phase in self.roster.visited]
                )
        self.phase += 1
        if self.phase == self.method.phases:
            self.phase = 0
            self.iteration += 1
        self.opened += 1
        self.job = self._draw()
        return self.start()

    def _draw(self) -> Job:
        live = [j for j, alive in enumerate(self.roster.alive) if alive]
        return self.method.draw(self.state, self.phase, live, self._rng(closing=False))

    def _rng(self, *, closing: bool) -> np.random.Generator:
        """The random stream of a phase: a function of the seed and its number, so nothing need be saved."""
        return np.random.default_rng([self.method.seed, MASTER_STREAM, self.opened, int(closing)])

    def _send(self, j: int) -> Train:
        return self._message(self.roster.dispatch(j, self.time, self.opened))

    def _message(self, ticket: int) -> Train:
        state, job = self.state, self.job
        w = state.w if state.marked is None or self.phase == 0 else state.marked
        message = Train(ticket, w, job.steps, state.step, job.mark)
        self.sent += message.numbers
        return message

    # -- workers that come and go ---------------------------------------------------------------------

    def _refuse(self, j: int) -> Outgoing:
        """A bad update: left out and counted; after too many the worker is dropped for good."""
        bad = self.roster.bad[j] = self.roster.bad[j] + 1
        self.notice("bad-update", worker=j, count=bad)
        if bad < self.plan.config.max_bad_updates:
            return [(j, self._send(j))]
        if self.roster.alive[j]:
            self._leave(j, f"{bad} updates with {OUT_OF_RANGE}", for_good=True)
        return []

    def _leave(self, j: int, reason: str, *, for_good: bool = False, error: Exception | None = None) -> None:
        self.roster.leave(j, for_good)
        self.last_words = reason
        facts = {"worker": j, "reason": reason}
        if error is not None:
            self.last_failure = (j, error)
            facts["traceback"] = traceback_of(error)
        self.notice("worker-dropped" if for_good else "worker-lost", **facts)

    def _join(self, j: int) -> None:
        self.roster.join(j)
        self.notice("worker-back", worker=j)

    def _return(self, j: int) -> Outgoing:
        """Worker j is back: it does its part of the phase under way, or waits for the next."""
        self._join(j)
        if j in self.job.workers and j not in self.roster.pending:
            return [(j, self._send(j))]
        self.roster.under_way.pop(j, None)
        return []

    def notice(self, event: str, **facts: Any) -> None:
        """Put something in the history."""
        self.notices.append({"event": event, "iteration": self.iteration, "clock": self.time, **facts})

    # -- looking at the state -------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """The state in numbers, as ASPIRE-EASE reports it; `bits_theorem_2` is what was sent."""
        self.next_report = self.iteration + self.method.report_interval
        stalest, self.roster.stalest = self.roster.stalest, 0
        losses, numbers = self.state.losses.copy(), self.sent + self.received
        objective = float(self.oracle.worst_case(losses).value)
        for j, what in self.outliers.look(self.roster.alive, self.roster.tickets, objective):
            self.notice("suspicious", worker=j, reason=what)
        return {
            "event": "report",
            "iteration": self.iteration,
            "clock": self.time,
            "objective": objective,
            "value": float(self.state.weights @ losses),
            "losses": losses,
            "planes": 1,
            "active_workers": len(self.job.workers),
            "live_workers": self.roster.live,
            "staleness": stalest,
            "gradients": self.gradients,
            "bits_down": 32 * self.sent,
            "bits_up": 32 * self.received,
            "bits_theorem_2": 32 * numbers,
            "bytes": 8 * numbers,
        }

    def take_notices(self) -> list[dict[str, Any]]:
        """What happened since the last call."""
        notices, self.notices = self.notices, []
        return notices

    def probes(self) -> dict[int, Request]:
        """The loss at the model, from every worker that is not dropped."""
        w = self.state.w
        return {j: Probe(w, w, 0.0, 0.0) for j in range(self.plan.workers) if j not in self.roster.dropped}

    def judge(self, replies: Mapping[int, Reply | Exception]) -> Verdict:
        """The objective at the model. Definition 1 speaks of ASPIRE's Lagrangian: here it is infinite."""
        losses = np.full(self.plan.workers, np.nan)
        for j, reply in replies.items():
            if isinstance(reply, Probed):
                losses[j] = reply.loss_at_z
        look_over(self, replies, losses)
        visited = self.roster.visited
        answer = self.oracle.worst_case(stand_in(losses, self.state.losses, visited))
        phases = self.method.phases  # which visits are counted in
        rounds = [NEVER if phase == NEVER else -(-phase // phases) for phase in visited]
        known_at = np.where(np.isfinite(losses), self.iteration, rounds)
        weights = self.state.weights.copy()
        return Verdict(losses, known_at, answer, float(answer.value), weights, weights[None, :], np.inf)

    # -- checkpoints ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        parts = {"roster": self.roster.snapshot(), "outliers": self.outliers.snapshot()}
        for name in ("state", "job"):
            part = getattr(self, name)
            parts[name] = {item.name: getattr(part, item.name) for item in fields(part)}
        return {name: getattr(self, name) for name in OWN} | parts

    @classmethod
    def restored(cls, method: Rounds, oracle: Oracle, workers: int, saved: Mapping[str, Any]) -> RoundMaster:
        """The master of a snapshot."""
        if "job" not in saved or len(saved["state"]["weights"]) != workers:
            raise CheckpointMismatch(
                f"the checkpoint is not one of {type(method).__name__} with {workers} workers: give the same "
                "problems and config as the first time"
            )
        master = cls.__new__(cls)
        master._settle(method, oracle, workers)
        for name in OWN:
            setattr(master, name, saved[name])
        master.roster = Roster.restored(master.plan, saved["roster"])
        master.state = RoundState(**saved["state"])
        master.job = Job(**saved["job"])
        none = np.zeros(workers)
        master.outliers = Outliers(workers, master.state.w, master.state.losses, none, none)
        if "outliers" in saved:  # checkpoints of fdro 0.1 have none
            master.outliers.restore(saved["outliers"])
        master.last_failure = None
        master._derive()
        return master


def _size(reply: Trained) -> float:
    """The largest ‖w‖² among the models in it, NaN where one holds NaN."""
    models = [model for model in (reply.w, reply.marked) if model is not None]
    return float(np.max([kernels.norm_sq(model) for model in models], initial=0.0))
