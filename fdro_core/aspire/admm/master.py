"""The master of ASPIRE-EASE.

Sums over workers and P·f are kept up to date, so an iteration costs O(S(p + |A|)) whatever N is; only a
plane update sees all N. Nothing is drawn at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fdro_core.aspire.admm.adversary import Adversary, default_penalty, setting_2
from fdro_core.aspire.admm.consensus import Consensus
from fdro_core.aspire.planes import Planes
from fdro_core.aspire.settings import Plan
from fdro_core.master.base import FederatedMaster, Figures, Outgoing, Standing
from fdro_core.master.handshake import Handshake
from fdro_core.master.kernels import norm_sq
from fdro_core.master.outliers import Outliers
from fdro_core.master.roster import guess
from fdro_core.protocol.algorithm import Oracle
from fdro_core.protocol.engine import Event
from fdro_core.protocol.messages import Probe, Probed, Reply, Request, Step, Update
from fdro_core.protocol.replies import LARGEST_SQ, in_range
from fdro_core.protocol.saved import Form, numbers, whole
from fdro_core.protocol.settings import step_at
from uncertainty_sets.arrays import Array

if TYPE_CHECKING:
    from fdro_core.aspire.admm.algorithm import AspireEase


class Master(FederatedMaster):
    """The master of ASPIRE-EASE.

    Args:
        plan: the settings, worked out for N workers.
        oracle: the uncertainty set.
        handshake: where to start, and what every worker reported there.
    """

    reply_kind = Update
    model: ClassVar[str] = "consensus.z"
    mark: ClassVar[str] = "consensus"
    saved: ClassVar[Form] = FederatedMaster.saved | {
        "weights": numbers("N"),
        "theorem_numbers": whole(),
        "consensus": Consensus.check_saved,
        "adversary": Adversary.check_saved,
    }

    def __init__(self, plan: Plan, oracle: Oracle, handshake: Handshake) -> None:
        super().__init__(plan.roster(), oracle, handshake)
        config, reference = plan.config, handshake.reference
        self.plan = plan
        self.theorem_numbers = 0
        self.next_report = plan.report_interval
        self.weights = reference.copy()
        self.consensus = Consensus(config, handshake.z, handshake.metric, plan.workers)
        self.adversary = Adversary(config, oracle, handshake)
        self.outliers = self._outliers()
        self._enter_handshake(handshake)
        if handshake.failures:
            self._leave_out(self._may_weigh() or self.roster.alive)
            self.weights = self.adversary.planes.weights()
        live = np.array(self.roster.alive)
        self.consensus.penalty = config.penalty or default_penalty(
            reference[live], self.adversary.curvature[live]
        )
        self.adversary.set_step(self.consensus.penalty, *self._pace())

    def _outliers(self) -> Outliers:
        known = self.adversary
        return Outliers(self.plan.workers, self.z, known.losses, known.gradient_sq, known.curvature)

    def _derive(self) -> None:
        """Set the counts and flags that every step needs."""
        super()._derive()
        plan = self.plan
        self.last, self.report_interval = plan.iterations, plan.report_interval
        self.steps_each = plan.config.local_steps
        scheduled = self.plan.config.worker_step is not None
        self.down, self.up = (
            self.z.size + 3 + scheduled,
            self.z.size + 4,
        )  # numbers in a Step and in an Update
        self.single = self.consensus.free
        self.damped = self.plan.config.regularisation == "setting-2"

    @property
    def z(self) -> Array:
        """The consensus variable."""
        return self.consensus.z

    @property
    def planes(self) -> Planes:
        """The active planes with λ."""
        return self.adversary.planes

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

    def handle(self, event: Event) -> Outgoing:
        """The steps to send after an event: at once if it is an update that completes an iteration alone."""
        payload, j = event.payload, event.worker
        if type(payload) is Update and self.single and self.roster.alone(j, payload.ticket, self.iteration):
            self.time = event.time
            step = self._advance_one(j, payload)
            if step is not None:
                return [(j, step)]
        return super().handle(event)

    def _usable(self, j: int, reply: Update) -> bool:
        return bool(in_range(reply) and norm_sq(reply.w) <= LARGEST_SQ)

    # -- one iteration --------------------------------------------------------------------------------

    def _advance(self) -> Outgoing:
        """Eq. (13)-(16) for the active workers, and the steps they get."""
        adversary, consensus = self.adversary, self.consensus
        active = self.roster.close(self.iteration)
        c1 = c2 = 0.0
        if self.damped:
            c1, c2 = self._setting_2()
        t, planes = self.iteration, adversary.planes.size
        step = step_at(self.plan.config.consensus_step, t, planes, "consensus_step")
        pulls = consensus.move(active, step, c2, self.outliers.books)
        self.theorem_numbers += len(active) * (2 * consensus.z.size + 1 + adversary.planes.size)
        weights = adversary.respond(active, t, c1)
        self.iteration += 1
        if self.plan.updates_planes(self.iteration):
            self._update_planes()
        steps = []
        for (j, _), pull, weight in zip(active, pulls, weights, strict=True):
            self.weights[j] = weight
            steps.append((j, self._step(j, pull, weight)))
        self._adapt(tick=False)
        return steps

    def _advance_one(self, j: int, update: Update) -> Step | None:
        """`_receive` and `_advance` for one active worker, if `single`: the same in fewer passes and calls.

        None, and nothing changed, if a number of the update is out of range.
        """
        # 1. Check the update; z and φ_j, Eq. (13) and (16).
        if not in_range(update):
            return None
        pull = self.consensus.move_one(j, update.w, self.outliers.rows[j])
        if pull is None:
            return None
        # 2. Count what was sent and computed.
        adversary = self.adversary
        self.received += self.up
        self.sent += self.down
        self.gradients += self.steps_each
        self.theorem_numbers += 2 * pull.size + 1 + adversary.planes.size
        # 3. h and λ, Eq. (14) and (15), and with them s_j.
        self.weights[j] = weight = adversary.respond_to_one(j, update, self.iteration)
        # 4. Close the iteration and open j's next step.
        self.iteration = iteration = self.iteration + 1
        ticket = self.roster.turn(j, self.time, iteration)
        # 5. Every k iterations the planes, Eq. (18)-(21); ADP's look at the delays.
        if iteration % self.plan.plane_interval == 0 and self.plan.updates_planes(iteration):
            self._update_planes()
        if self.ticks:
            self._adapt(tick=False)
        return Step(ticket, pull, weight, self.consensus.penalty, step=self._worker_step())

    def _update_planes(self) -> None:
        adversary = self.adversary
        guess(adversary.losses, self.never)
        adversary.update_planes(self._may_weigh(), self.consensus.penalty, *self._pace())
        self.theorem_numbers += self.plan.workers**2 * adversary.planes.size

    def _setting_2(self) -> tuple[float, float]:
        """c₁ᵗ and c₂ᵗ."""
        config, t = self.plan.config, self.iteration
        c1 = setting_2(self.adversary.step, t, config.plane_damping_floor)
        return c1, setting_2(self.consensus.dual_step, t, config.consensus_damping_floor)

    def _pace(self) -> tuple[Array, float]:
        """How much rarer than average each worker is seen (r_j >= 1), and S/N."""
        share = self.roster.active / self.plan.workers
        return np.maximum(1.0, share * self.roster.intervals(self.iteration)), share

    # -- messages -------------------------------------------------------------------------------------

    def _step(self, j: int, pull: Array, weight: float) -> Step:
        self.sent += self.down
        ticket = self.roster.dispatch(j, self.time, self.iteration)
        return Step(ticket, pull, weight, self.consensus.penalty, step=self._worker_step())

    def _worker_step(self) -> float | None:
        """η_w at this iteration, None for the worker's own rule."""
        if self.plan.config.worker_step is None:
            return None
        t, planes = self.iteration, self.adversary.planes.size
        return step_at(self.plan.config.worker_step, t, planes, "worker_step")

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
        pull, penalty = self.consensus.pull(j), self.consensus.penalty
        step = Step(self.roster.tickets[j], pull, self.weights[j], penalty, step=self._worker_step())
        step.start = self.consensus.w[j]  # the worker may have crashed and come back without its state
        return step

    # -- lost workers ---------------------------------------------------------------------------------

    def _lose(self, j: int, reason: str, *, for_good: bool = False, error: Exception | None = None) -> None:
        """Take worker j out of the sums and stop waiting for it; its loss stays or is dropped."""
        super()._lose(j, reason, for_good=for_good, error=error)
        self.consensus.remove(j)

    def _rejoin(self, j: int) -> None:
        """Put worker j back into the sums, with the φ_j it had, and its loss into the planes."""
        super()._rejoin(j)
        self.consensus.add(j)

    def _leave_out(self, kept: Sequence[bool] | None) -> None:
        self.adversary.leave_out(kept)

    # -- reports, assessment, checkpoints -------------------------------------------------------------

    def _figures(self) -> Figures:
        adversary = self.adversary
        return Figures(
            objective=adversary.objective,
            value=adversary.value,
            losses=adversary.losses.copy(),
            weights=adversary.planes.weights(),
            planes=adversary.planes.size,
            active_workers=min(self.roster.active, self.roster.live),
            theorem_numbers=self.theorem_numbers,
        )

    def probes(self) -> dict[int, Request]:
        """A probe for every worker that is not dropped."""
        weights = self.adversary.planes.weights()
        return {
            j: Probe(self.z, self.consensus.pull(j), float(weights[j]), self.consensus.penalty)
            for j in self.roster.kept()
        }

    def _standing(self, replies: Mapping[int, Reply | Exception], losses: Array, answer: Any) -> Standing:
        """Stationarity is ‖∇G‖² of Definition 1."""
        planes, alive = self.adversary.planes, self.roster.alive
        gap = gap_sq(self.plan.config, self.adversary, self.consensus, alive, replies)
        return Standing(planes.weights(), planes.matrix(), gap)

    @classmethod
    def restored(cls, plan: Plan, oracle: Oracle, state: Mapping[str, Any]) -> Master:
        """The master of a snapshot."""
        master = cls._blank(plan.config, plan.workers, state)
        master.plan = plan
        master.consensus = Consensus.restored(plan.config, state["consensus"])
        master.adversary = Adversary.restored(plan.config, oracle, state["adversary"])
        master.outliers = master._outliers()
        master._restore(plan.roster(), oracle, state)
        if master.adversary.planes.check(getattr(oracle, "violation", None), oracle.reference()):
            master.adversary.planes.refresh(master.adversary.losses)
            master.adversary.set_step(master.consensus.penalty, *master._pace())
        return master


def gap_sq(
    config: AspireEase,
    adversary: Adversary,
    consensus: Consensus,
    alive: Sequence[bool],
    replies: Mapping[int, Reply | Exception],
) -> float:
    """‖∇G‖² with unit steps, from a round of probes.

    ∇G stacks w_j - Π(w_j - ∇_{w_j}L), z - Π(z - ∇_zL), h - Π(h - ∇_hL), λ_l - Π(λ_l + ∇_{λ_l}L) and
    φ_j - Π(φ_j + ∇_{φ_j}L); each worker sends the norm of its own w_j's part. While a worker that gives no
    answer is in the sums ‖∇G‖² is not known without it, and infinite here.
    """
    planes = adversary.planes
    local = adversary.losses.copy()
    total = 0.0
    for j, reply in replies.items():
        if not alive[j]:
            continue
        if not isinstance(reply, Probed):
            return np.inf
        local[j] = reply.loss_at_w
        total += reply.worker_sq + consensus.dual_gap_sq(j)
    multipliers = planes.multipliers
    h = adversary.value
    h_gap = h - np.clip(h - (1.0 - multipliers.sum()), config.value_floor, config.value_bound)
    ascent = local @ planes.table[:, : planes.size] - h
    plane_gap = multipliers - np.clip(multipliers + ascent, 0.0, config.plane_dual_bound)
    return float(total + (consensus.gap_sq() + float(h_gap) ** 2 + float(plane_gap @ plane_gap)))
