"""The master: a state machine that takes events and says which steps to send.

It reads no clock (events carry the time), does no I/O and draws nothing at random. Sums over workers and
P·f are kept up to date, so an iteration costs O(S(p + |A|)) whatever N is; only a plane update sees all N.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fdro_core import kernels, schedules
from fdro_core.algorithm import Verdict
from fdro_core.config import Plan
from fdro_core.consensus import Consensus
from fdro_core.engines.base import Back, Event, Lost
from fdro_core.errors import DriverError, InvalidSetting, NoWorkersLeft
from fdro_core.judge import judge
from fdro_core.messages import Probe, Reply, Request, Step, Update
from fdro_core.planes import Planes
from fdro_core.roster import Roster

Array = NDArray[np.float64]
Outgoing = list[tuple[int, Step]]

STATE = (
    "iteration", "time", "losses", "gradient_sq", "curvature",
    "weights", "plane_step", "stiffness", "caution", "objective", "value", "sent", "received",
    "theorem_numbers", "gradients", "next_report", "notices", "last_words",
)  # fmt: skip


class Oracle(Protocol):
    """The part of an uncertainty set that the driver uses."""

    def worst_case(self, losses: Array) -> Any:
        """An answer with `p` and `value`."""
        ...

    def reference(self) -> Array:
        """A distribution in the set."""
        ...


class Master:
    """The master of ASPIRE-EASE.

    Args:
        plan: the settings, settled for N workers.
        oracle: the uncertainty set.
        reference: q, a distribution in it: the first plane.
        z: where to start.
        metric: D.
        first: every worker's losses and curvature at z, or None for one that failed.
    """

    def __init__(
        self,
        plan: Plan,
        oracle: Oracle,
        reference: Array,
        z: Array,
        metric: Array,
        first: list[Update | None],
    ) -> None:
        N, config = plan.workers, plan.config
        self.plan, self.oracle = plan, oracle
        self.iteration = 0
        self.time = 0.0
        self.consensus = Consensus(config, z, metric, N)
        self.losses = np.array([np.nan if update is None else update.loss for update in first])
        self.gradient_sq = np.array([0.0 if update is None else update.gradient_sq for update in first])
        self.curvature = np.array([0.0 if update is None else update.curvature for update in first])
        self.planes = Planes(reference, keep_all=config.planes == "cp", limit=config.max_planes)
        self.weights = self.planes.weights()
        self.roster = Roster(plan)
        self.notices: list[dict[str, Any]] = []
        self.last_words = ""
        self.sent = self.received = self.theorem_numbers = self.gradients = 0
        self.last, self.next_report = plan.iterations, plan.report_interval
        for j, update in enumerate(first):
            if update is None or not self._usable(update):
                self.losses[j] = np.nan
                self._leave(j, "failed before the first step", for_good=True)
        if not self.roster.live:
            raise NoWorkersLeft("every worker raised or returned NaN at the starting point")
        known = np.isfinite(self.losses)
        self.losses[~known] = self.losses[known].mean()
        self.consensus.penalty = config.penalty or schedules.penalty(reference[known], self.curvature[known])
        self.planes.refresh(self.losses)
        self.objective = self.value = float(self.planes.losses[0])
        self.caution = schedules.START
        self._set_plane_step()

    @property
    def z(self) -> Array:
        """The consensus variable."""
        return self.consensus.z

    # -- events ---------------------------------------------------------------------------------------

    def start(self) -> Outgoing:
        """The first step of every live worker."""
        live = [j for j in range(self.plan.workers) if self.roster.alive[j]]
        return [(j, self._step(j, dual_step=0.0)) for j in live]

    @property
    def wake_at(self) -> float | None:
        """When to tick if nothing comes before: the next deadline or look at the delays."""
        return self.roster.wake_at()

    def handle(self, event: Event) -> Outgoing:
        """The steps to send after an event."""
        self.time = event.time
        payload, j = event.payload, event.worker
        if type(payload) is Update:
            out = self._take(j, payload)
        elif isinstance(payload, Lost):
            out = []
            if self.roster.alive[j]:
                self._leave(j, payload.reason)
        elif isinstance(payload, Back):
            out = [] if self.roster.alive[j] or j in self.roster.dropped else self._return(j)
        else:
            out = self._tick()
        if not self.roster.live:
            raise NoWorkersLeft(
                f"no worker is left at iteration {self.iteration}; the last, worker {j}: {self.last_words}. "
                "The error's `.result` keeps the last good state"
            )
        return out + self._advance() if self.roster.ready(self.iteration) else out

    def _take(self, j: int, update: Update) -> Outgoing:
        roster = self.roster
        self.received += update.numbers
        if update.ticket != roster.tickets[j] or j in roster.pending:
            return []  # a repeated message, or one from before a crash
        if not self._usable(update):
            return self._refuse(j)
        if not roster.alive[j]:
            if roster.staleness(j, self.iteration) > self.plan.max_staleness:
                return self._return(j)
            self._join(j)
        self.gradients += self.plan.config.local_steps
        roster.accept(j, update, self.time)
        return []

    def _tick(self) -> Outgoing:
        self._adapt(tick=True)
        out: Outgoing = []
        for j in self.roster.overdue(self.time):
            if self.roster.alive[j]:
                self._leave(j, f"silent for {self.plan.config.deadline} s")
            out.append((j, self._fresh(j)))
            self.roster.retry(j, self.time)
        return out

    # -- one iteration --------------------------------------------------------------------------------

    def _advance(self) -> Outgoing:
        """Eq. (13)-(16) for the active workers, and the steps they get."""
        config, roster, planes = self.plan.config, self.roster, self.planes
        active = roster.close(self.iteration)
        c1 = c2 = 0.0
        if config.regularisation == "setting-2":
            c1 = schedules.setting_2(self.plane_step, self.iteration, config.plane_damping_floor)
            c2 = schedules.setting_2(self.consensus.dual_step, self.iteration, config.consensus_damping_floor)
        for j, update in active:
            kernels.move_loss(planes.table[j], planes.losses, update.loss - self.losses[j])
            self.losses[j] = update.loss
            self.gradient_sq[j] = update.gradient_sq
            self.curvature[j] = update.curvature
        self.consensus.move(active, c2)
        if config.plane_dual_step is None:
            self.value = kernels.climb_planes(
                planes.losses, planes.multipliers, planes.previous, self.stiffness, self.plane_step, 20
            )
        else:
            self.value = kernels.advance_planes(
                planes.losses, planes.multipliers, planes.previous, self.value, self.plane_step, c1,
                config.value_step if config.value_update == "gradient" else 0.0,
                config.value_floor, config.value_bound, config.plane_dual_bound,
            )  # fmt: skip
        self.iteration += 1
        self.theorem_numbers += len(active) * (2 * self.z.size + 1 + planes.size)
        if self.plan.updates_planes(self.iteration):
            self._update_planes()
        steps = []
        for j, _ in active:
            self.weights[j] = kernels.weight_of(planes.table[j], planes.multipliers)
            steps.append((j, self._step(j, self.consensus.dual_step, c2)))
        self._adapt(tick=False)
        return steps

    def _adapt(self, *, tick: bool) -> None:
        if self.plan.config.adaptive is not None and self.roster.adapt(self.time, self.iteration, tick):
            self._notice("active-workers", active_workers=self.roster.active)

    def _update_planes(self) -> None:
        config, planes = self.plan.config, self.planes
        answer = self.oracle.worst_case(self.losses)
        p = np.asarray(answer.p, dtype=np.float64)
        self.objective = float(answer.value)
        if not config.value_floor <= self.objective <= config.value_bound:
            raise DriverError(
                f"the worst-case loss is {self.objective:g}, outside [value_floor, value_bound (α₂)] = "
                f"[{config.value_floor:g}, {config.value_bound:g}], where h cannot follow it: widen that range "
                "(value_floor=-inf where losses can be negative)"
            )
        if config.dead_losses == "drop" and self.roster.live < self.plan.workers:
            p = _without(p, self.roster.alive)
        returned = planes.returned
        if planes.update(p, self.losses):
            if planes.returned > returned:
                self.caution = max(schedules.LEAST, schedules.SHRINK * self.caution)
            self._set_plane_step()
        self.theorem_numbers += self.plan.workers**2 * planes.size

    def _set_plane_step(self) -> None:
        config, planes = self.plan.config, self.planes
        if config.plane_dual_step is not None:
            self.plane_step = config.plane_dual_step
            return
        share = self.roster.active / self.plan.workers
        stiffness = schedules.plane_stiffness(
            planes.table[:, : planes.size], self.gradient_sq, planes.weights(), self.curvature,
            self.consensus.penalty, np.maximum(1.0, share * self.roster.intervals(self.iteration)),
        )  # fmt: skip
        norm = float(np.linalg.norm(stiffness, 2))
        stiffness[np.diag_indices_from(stiffness)] += schedules.RIDGE * norm
        self.stiffness = stiffness
        self.plane_step = self.caution * share

    def _step(self, j: int, dual_step: float, damping: float = 0.0) -> Step:
        ticket = self.roster.dispatch(j, self.time, self.iteration)
        step = Step(ticket, self.z, float(self.weights[j]), self.consensus.penalty, dual_step, damping)
        self.sent += step.numbers
        return step

    # -- looking at the state -------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """The state in numbers. Bits count 32 a number, as Theorem 2 does; bytes are 8 a number, as sent."""
        self.next_report = self.iteration + self.plan.report_interval
        stalest, self.roster.stalest = self.roster.stalest, 0
        return {
            "event": "report",
            "iteration": self.iteration,
            "clock": self.time,
            "objective": self.objective,
            "value": self.value,
            "losses": self.losses.copy(),
            "planes": self.planes.size,
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
        weights = self.planes.weights()
        return {
            j: Probe(self.z, float(weights[j]), self.consensus.penalty)
            for j in range(self.plan.workers)
            if j not in self.roster.dropped
        }

    def judge(self, replies: Mapping[int, Reply | Exception]) -> Verdict:
        """The objective at z and ‖∇G‖² of Definition 1 with unit steps."""
        return judge(self, replies)

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        own = {name: getattr(self, name) for name in STATE}
        parts = {name: getattr(self, name).snapshot() for name in ("consensus", "planes", "roster")}
        return own | parts

    @classmethod
    def restored(cls, plan: Plan, oracle: Oracle, state: Mapping[str, Any]) -> Master:
        """The master of a snapshot."""
        master = cls.__new__(cls)
        master.plan, master.oracle = plan, oracle
        if len(state["losses"]) != plan.workers:
            raise InvalidSetting(
                f"the checkpoint has {len(state['losses'])} workers and there are {plan.workers} problems"
            )
        for name in STATE:
            setattr(master, name, state[name])
        master.consensus = Consensus.restored(plan.config, state["consensus"])
        master.planes = Planes.restored(state["planes"])
        master.roster = Roster.restored(plan, state["roster"])
        master.last = plan.iterations
        return master

    # -- workers that come and go ---------------------------------------------------------------------

    def _usable(self, update: Update) -> bool:
        numbers = update.loss + update.gradient_sq + update.curvature
        return bool(np.isfinite(numbers)) and kernels.finite(update.w)

    def _refuse(self, j: int) -> Outgoing:
        """A bad update: left out and counted; after too many the worker is dropped for good."""
        bad = self.roster.bad[j] = self.roster.bad[j] + 1
        self._notice("bad-update", worker=j, count=bad)
        if bad < self.plan.config.max_bad_updates:
            return [(j, self._fresh(j))]
        if self.roster.alive[j]:
            self._leave(j, f"{bad} updates with NaN or infinity", for_good=True)
        return []

    def _leave(self, j: int, reason: str, *, for_good: bool = False) -> None:
        """Worker j leaves the sums and gives up its claim on τ; its loss stays in the oracle or is dropped."""
        self.roster.leave(j, for_good)
        self.consensus.leave(j)
        self.last_words = reason
        self._notice("worker-dropped" if for_good else "worker-lost", worker=j, reason=reason)
        if self.plan.config.dead_losses == "drop" and self.roster.live:
            for column in range(self.planes.size):
                self.planes.table[:, column] = _without(self.planes.table[:, column], self.roster.alive)
            self.planes.refresh(np.nan_to_num(self.losses))

    def _join(self, j: int) -> None:
        """Worker j is in the sums again, with the φ_j it had."""
        self.consensus.join(j)
        self.roster.join(j)
        self._notice("worker-back", worker=j)

    def _return(self, j: int) -> Outgoing:
        """Worker j is back and starts from z."""
        self._join(j)
        return [(j, self._fresh(j))]

    def _fresh(self, j: int) -> Step:
        """A step that brings its own state: w_j = z and the master's φ_j."""
        self.weights[j] = kernels.weight_of(self.planes.table[j], self.planes.multipliers)
        step = self._step(j, 0.0)
        step.restore = self.consensus.reset(j, counted=self.roster.alive[j])
        self.sent += 2 * self.z.size
        return step

    def _notice(self, event: str, **facts: Any) -> None:
        self.notices.append({"event": event, "iteration": self.iteration, "clock": self.time, **facts})


def _without(p: Array, alive: list[bool]) -> Array:
    """p with the dead workers' share spread over the others; p itself where that leaves nothing."""
    kept = np.where(alive, p, 0.0)
    total = float(kept.sum())
    return kept / total if total > 0 else p
