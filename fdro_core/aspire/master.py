"""The master: a state machine that takes events and says which steps to send.

It reads no clock (events carry the time), does no I/O and draws nothing at random. Sums over workers and
P·f are kept up to date, so an iteration costs O(S(p + |A|)) whatever N is; only a plane update sees all N.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fdro_core.aspire import kernels
from fdro_core.aspire import step_sizes as schedules
from fdro_core.aspire.adversary import Adversary, Oracle
from fdro_core.aspire.consensus import Consensus
from fdro_core.aspire.settings import Plan
from fdro_core.aspire.stationarity import judge
from fdro_core.contracts.algorithm import Verdict
from fdro_core.contracts.engine import Back, Event, Lost, Silent
from fdro_core.contracts.failures import no_workers_left, traceback_of, words
from fdro_core.contracts.messages import Probe, Reply, Request, Step, Update
from fdro_core.contracts.replies import LARGEST_SQ, in_range
from fdro_core.errors import CheckpointMismatch
from fdro_core.federation.meeting import Meeting
from fdro_core.federation.outliers import Outliers
from fdro_core.federation.roster import Roster
from uncertainty_sets.arrays import Array

Outgoing = list[tuple[int, Step]]

STATE = (
    "iteration", "time", "weights", "sent", "received", "theorem_numbers", "gradients", "next_report",
    "notices", "last_words",
)  # fmt: skip

NEVER = -1  # where the iteration of a worker's last visit stands, for one that never reported
OUT_OF_RANGE = "NaN, infinity or numbers beyond 1e150"


class Master:
    """The master of ASPIRE-EASE.

    Args:
        plan: the settings, settled for N workers.
        oracle: the uncertainty set.
        met: where to start, and what every worker said there.
    """

    def __init__(self, plan: Plan, oracle: Oracle, met: Meeting) -> None:
        N, config, reference = plan.workers, plan.config, met.reference
        self.plan = plan
        self.iteration = 0
        self.time = 0.0
        self.consensus = Consensus(config, met.z, met.metric, N)
        self.weights = reference.copy()
        self.roster = Roster(plan)
        self.notices: list[dict[str, Any]] = []
        self.last_words = ""
        self.last_failure: tuple[int, Exception] | None = None
        self.sent, self.received = met.sent, met.received
        self.theorem_numbers = self.gradients = 0
        self.last, self.next_report = plan.iterations, plan.report_interval
        self.adversary = Adversary(config, oracle, reference, met.first)
        self.outliers = self._outliers()
        for j, what in met.suspicious.items():
            self.notice("suspicious", worker=j, reason=what)
        for j, error in met.failures.items():
            self.roster.visited[j] = NEVER
            self._leave(j, f"failed before the first step: {words(error)}", for_good=True, error=error)
        self._derive()
        if met.failures:
            self.adversary.drop(self._may_weigh() or self.roster.alive)
            self.weights = self.adversary.planes.weights()
        live = np.array(self.roster.alive)
        self.consensus.penalty = config.penalty or schedules.penalty(
            reference[live], self.adversary.curvature[live]
        )
        self.adversary.set_step(self.consensus.penalty, *self._pace())

    def _outliers(self) -> Outliers:
        known = self.adversary
        return Outliers(self.plan.workers, self.z, known.losses, known.gradient_sq, known.curvature)

    def _derive(self) -> None:
        """Counts that every step needs."""
        self.down, self.up = self.z.size + 3, self.z.size + 4  # numbers in a Step and in an Update
        self.steps_each = self.plan.config.local_steps
        self.ticks = self.roster.deadline is not None or self.plan.config.adaptive is not None
        self.single = self.consensus.free
        self.damped = self.plan.config.regularisation == "setting-2"
        self.never = [j for j, iteration in enumerate(self.roster.visited) if iteration == NEVER]

    @property
    def z(self) -> Array:
        """The consensus variable."""
        return self.consensus.z

    @property
    def reported(self) -> Array:
        """Every worker's loss as it last reported it."""
        losses: Array = self.adversary.losses
        return losses

    # -- events ---------------------------------------------------------------------------------------

    def start(self) -> Outgoing:
        """The first step of every live worker."""
        live = [j for j in range(self.plan.workers) if self.roster.alive[j]]
        pull = self.consensus.penalty * self.z  # φ = 0
        return [(j, self._step(j, pull, float(self.weights[j]))) for j in live]

    @property
    def wake_at(self) -> float | None:
        """When to tick if nothing comes before: the next deadline or look at the delays."""
        return self.roster.wake_at() if self.ticks or self.roster.retries else None

    def handle(self, event: Event) -> Outgoing:
        """The steps to send after an event."""
        self.time = event.time
        payload, j = event.payload, event.worker
        if type(payload) is Update:
            if self.single and self.roster.alone(j, payload.ticket, self.iteration):
                step = self._advance_one(j, payload)
                if step is not None:
                    return [(j, step)]
            out = self._take(j, payload)
        elif isinstance(payload, Lost):
            out = []
            if self.roster.lost(j, payload.returns):
                self._leave(j, payload.reason, error=payload.error)
        elif isinstance(payload, Back):
            out = [] if self.roster.alive[j] or j in self.roster.dropped else self._return(j)
        elif isinstance(payload, Silent):
            out = self._suspect(j, payload)
        elif payload is None:
            out = self._tick()
        else:
            out = self._refuse(j)
        if self.roster.deserted:
            when = f"at iteration {self.iteration}"
            raise no_workers_left(when, j, self.last_words, self.last_failure)
        return out + self._advance() if self.roster.ready(self.iteration) else out

    def _take(self, j: int, update: Update) -> Outgoing:
        roster = self.roster
        self.received += self.up
        if update.ticket < roster.tickets[j] or j in roster.pending:
            return []  # a repeated message, or one from before a crash
        sound = in_range(update) and kernels.norm_sq(update.w) <= LARGEST_SQ
        if update.ticket != roster.tickets[j] or not sound:
            return self._refuse(j)
        if not roster.alive[j]:
            if roster.staleness(j, self.iteration) > self.plan.max_staleness:
                return self._return(j)
            self._join(j)
        self.gradients += self.steps_each
        roster.accept(j, update, self.time)
        return []

    def _tick(self) -> Outgoing:
        self._adapt(tick=True)
        return [(j, self._press(j)) for j in self.roster.overdue(self.time)]

    def _suspect(self, j: int, silent: Silent) -> Outgoing:
        """The engine says that j may hang."""
        if not self.roster.silent(j, silent.deadline):
            return []
        self.notice("worker-silent", worker=j, seconds=silent.seconds, reason=silent.reason)
        return [(j, self._press(j))]

    def _press(self, j: int) -> Step:
        """What silent j is sent: its step again; a fresh one once it counts as dead."""
        if self.roster.ask_again(j, self.time):
            return self._repeat(j)
        if self.roster.alive[j]:
            self._leave(j, f"silent for {self.time - self.roster.sent_at[j]:.3g} s")
        step = self._fresh(j)
        self.roster.retry(j, self.time)
        return step

    # -- one iteration --------------------------------------------------------------------------------

    def _advance(self) -> Outgoing:
        """Eq. (13)-(16) for the active workers, and the steps they get."""
        adversary, consensus = self.adversary, self.consensus
        active = self.roster.close(self.iteration)
        c1 = c2 = 0.0
        if self.damped:
            c1, c2 = self._setting_2()
        pulls = consensus.move(active, c2, self.outliers.books)
        self.theorem_numbers += len(active) * (2 * consensus.z.size + 1 + adversary.planes.size)
        weights = adversary.respond(active, c1)
        self.iteration += 1
        if self.plan.updates_planes(self.iteration):
            self._update_planes()
        steps = []
        for (j, _), pull, weight in zip(active, pulls, weights, strict=True):
            self.weights[j] = weight
            steps.append((j, self._step(j, pull, weight)))
        if self.plan.config.adaptive is not None:
            self._adapt(tick=False)
        return steps

    def _advance_one(self, j: int, update: Update) -> Step | None:
        """`_take` and `_advance` for one active worker, where `single`: the same in fewer passes and calls.

        None, and nothing changed, where a number of the update is out of range.
        """
        if not in_range(update):
            return None
        pull = self.consensus.move_one(j, update.w, self.outliers.rows[j])
        if pull is None:
            return None
        adversary = self.adversary
        self.received += self.up
        self.sent += self.down
        self.gradients += self.steps_each
        self.theorem_numbers += 2 * pull.size + 1 + adversary.planes.size
        self.weights[j] = weight = adversary.respond_to_one(j, update)
        self.iteration = iteration = self.iteration + 1
        ticket = self.roster.turn(j, self.time, iteration)
        if iteration % self.plan.plane_interval == 0 and self.plan.updates_planes(iteration):
            self._update_planes()
        if self.ticks:
            self._adapt(tick=False)
        return Step(ticket, pull, weight, self.consensus.penalty)

    def _update_planes(self) -> None:
        adversary = self.adversary
        if self.never:
            adversary.guess(self.never)
        adversary.update_planes(self._may_weigh(), self.consensus.penalty, *self._pace())
        self.theorem_numbers += self.plan.workers**2 * adversary.planes.size

    def _may_weigh(self) -> Sequence[bool] | None:
        """Who may have weight in a plane, None for all: a loss that nobody ever measured earns none."""
        if self.plan.config.dead_losses == "drop" and self.roster.live < self.plan.workers:
            return self.roster.alive
        return [iteration != NEVER for iteration in self.roster.visited] if self.never else None

    def _setting_2(self) -> tuple[float, float]:
        """c₁ᵗ and c₂ᵗ."""
        config, t = self.plan.config, self.iteration
        c1 = schedules.setting_2(self.adversary.step, t, config.plane_damping_floor)
        return c1, schedules.setting_2(self.consensus.dual_step, t, config.consensus_damping_floor)

    def _pace(self) -> tuple[Array, float]:
        """How much rarer than average each worker is seen (r_j >= 1), and S/N."""
        share = self.roster.active / self.plan.workers
        return np.maximum(1.0, share * self.roster.intervals(self.iteration)), share

    def _adapt(self, *, tick: bool) -> None:
        if self.plan.config.adaptive is not None and self.roster.adapt(self.time, self.iteration, tick):
            self.notice("active-workers", active_workers=self.roster.active)

    def _step(self, j: int, pull: Array, weight: float) -> Step:
        self.sent += self.down
        return Step(self.roster.dispatch(j, self.time, self.iteration), pull, weight, self.consensus.penalty)

    # -- looking at the state -------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """The state in numbers. Bits count 32 a number, as Theorem 2 does; bytes are 8 a number, as sent."""
        self.next_report = self.iteration + self.plan.report_interval
        for j, what in self.outliers.look(self.roster.alive, self.roster.tickets, self.adversary.objective):
            self.notice("suspicious", worker=j, reason=what)
        stalest, self.roster.stalest = self.roster.stalest, 0
        return {
            "event": "report",
            "iteration": self.iteration,
            "clock": self.time,
            "objective": self.adversary.objective,
            "value": self.adversary.value,
            "losses": self.adversary.losses.copy(),
            "planes": self.adversary.planes.size,
            "active_workers": min(self.roster.active, self.roster.live),
            "live_workers": self.roster.live,
            "staleness": stalest,
            "gradients": self.gradients,
            "bits_down": 32 * self.sent,
            "bits_up": 32 * self.received,
            "bits_theorem_2": 32 * self.theorem_numbers,
            "bytes": 8 * (self.sent + self.received),
        }

    def take_notices(self) -> list[dict[str, Any]]:
        """What happened since the last call."""
        notices, self.notices = self.notices, []
        return notices

    def probes(self) -> dict[int, Request]:
        """A probe for every worker that is not dropped."""
        weights = self.adversary.planes.weights()
        return {
            j: Probe(self.z, self.consensus.pull(j), float(weights[j]), self.consensus.penalty)
            for j in range(self.plan.workers)
            if j not in self.roster.dropped
        }

    def judge(self, replies: Mapping[int, Reply | Exception]) -> Verdict:
        """The objective at z and ‖∇G‖² of Definition 1 with unit steps."""
        return judge(self, replies)

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        own = {name: getattr(self, name) for name in STATE}
        names = ("adversary", "consensus", "roster", "outliers")
        parts = {name: getattr(self, name).snapshot() for name in names}
        return own | parts

    @classmethod
    def restored(cls, plan: Plan, oracle: Oracle, state: Mapping[str, Any]) -> Master:
        """The master of a snapshot."""
        if "consensus" not in state:
            raise CheckpointMismatch(
                "the checkpoint is not one of AspireEase: give the same problems and config as the first time"
            )
        master = cls.__new__(cls)
        master.plan = plan
        workers = len(state["weights"])
        if workers != plan.workers:
            raise CheckpointMismatch(
                f"the checkpoint has {workers} workers and there are {plan.workers} problems"
            )
        for name in STATE:
            setattr(master, name, state[name])
        master.consensus = Consensus.restored(plan.config, state["consensus"])
        master.adversary = Adversary.restored(plan.config, oracle, state["adversary"])
        master.roster = Roster.restored(plan, state["roster"])
        master.outliers = master._outliers()
        if "outliers" in state:  # checkpoints of fdro 0.1 have none
            master.outliers.restore(state["outliers"])
        master.last = plan.iterations
        master.last_failure = None
        master._derive()
        return master

    # -- workers that come and go ---------------------------------------------------------------------

    def _refuse(self, j: int) -> Outgoing:
        """A bad update: left out and counted; after too many the worker is dropped for good."""
        bad = self.roster.bad[j] = self.roster.bad[j] + 1
        self.notice("bad-update", worker=j, count=bad)
        if bad < self.plan.config.max_bad_updates:
            return [(j, self._fresh(j))]
        if self.roster.alive[j]:
            self._leave(j, f"{bad} updates with {OUT_OF_RANGE}", for_good=True)
        return []

    def _leave(self, j: int, reason: str, *, for_good: bool = False, error: Exception | None = None) -> None:
        """Worker j leaves the sums and gives up its claim on τ; its loss stays or is dropped."""
        self.roster.leave(j, for_good)
        self.consensus.leave(j)
        self.last_words = reason
        facts = {"worker": j, "reason": reason}
        if error is not None:
            self.last_failure = (j, error)
            facts["traceback"] = traceback_of(error)
        self.notice("worker-dropped" if for_good else "worker-lost", **facts)
        if self.plan.config.dead_losses == "drop" and self.roster.live:
            self.adversary.drop(self.roster.alive)

    def _join(self, j: int) -> None:
        """Worker j is in the sums again, with the φ_j it had."""
        self.consensus.join(j)
        self.roster.join(j)
        self.notice("worker-back", worker=j)

    def _return(self, j: int) -> Outgoing:
        """Worker j is back and starts from z."""
        self._join(j)
        return [(j, self._fresh(j))]

    def _fresh(self, j: int) -> Step:
        """A step that brings its own point: w_j = z."""
        self.weights[j] = weight = self.adversary.weight(j)
        step = self._step(j, self.consensus.pull(j), weight)
        step.start = self.consensus.reset(j, counted=self.roster.alive[j])
        self.sent += self.z.size
        return step

    def _repeat(self, j: int) -> Step:
        """The step under way once more, from the newest z; a worker that answered it repeats its answer."""
        self.sent += self.down + self.z.size
        step = Step(self.roster.tickets[j], self.consensus.pull(j), self.weights[j], self.consensus.penalty)
        step.start = self.consensus.w[j]  # the worker may have died and come back empty
        self.notice("asked-again", worker=j)
        return step

    def notice(self, event: str, **facts: Any) -> None:
        """Put something in the history."""
        self.notices.append({"event": event, "iteration": self.iteration, "clock": self.time, **facts})
