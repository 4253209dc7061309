"""The master with quadratic models: it asks for losses and gradients, and moves z by itself.

Workers keep no state, so losing one costs nothing but its gradients. An iteration costs O(S|A|p) whatever N
is; a plane update, once per epoch, sees all N.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, ClassVar

import numpy as np

from fdro_core.aspire.models import kernels
from fdro_core.aspire.models.clipping import Clip
from fdro_core.aspire.models.full import FullModels
from fdro_core.aspire.models.local import long_step
from fdro_core.aspire.models.messages import (
    Evaluate,
    EvaluateAhead,
    EvaluateMean,
    Evaluation,
    EvaluationAhead,
    Inspect,
    Inspected,
)
from fdro_core.aspire.models.sampled import Resting, SampledModels
from fdro_core.aspire.models.stopping import Convergence, best_bound, saddle_measure
from fdro_core.aspire.planes import VIOLATION, Planes
from fdro_core.aspire.settings import Plan
from fdro_core.errors import CheckpointMismatch
from fdro_core.master.base import FederatedMaster, Figures, Outgoing, Standing
from fdro_core.master.handshake import Handshake
from fdro_core.master.kernels import norm_sq
from fdro_core.master.outliers import Outliers
from fdro_core.master.roster import guess
from fdro_core.protocol.algorithm import Assessment, Oracle
from fdro_core.protocol.engine import Event
from fdro_core.protocol.forms import LARGEST, LARGEST_SQ
from fdro_core.protocol.messages import Reply, Request
from fdro_core.protocol.saved import (
    AGREE,
    Form,
    Saved,
    anything,
    listing,
    numbers,
    or_none,
    plain,
    real,
    row,
    worker_index,
)
from fdro_core.result import CONVERGED, contradiction, proved_gap
from uncertainty_sets.arrays import Array

PATIENCE = 14  # plane updates without weight before a plane is dropped: sooner dropped ones come back
SUBJECT = "its gradient leads to"  # in notices of suspicious workers


def _check_models(saved: Saved, name: str, value: Any) -> None:
    """Models of full batches, which have curvatures of their own, or of mini-batches."""
    full = isinstance(value, Mapping) and "curvature" in value
    (FullModels if full else SampledModels).check_saved(saved, name, value)


class ModelMaster(FederatedMaster):
    """The master of `AspireModels`.

    Args:
        plan: the settings, worked out for N workers.
        oracle: the uncertainty set.
        handshake: where to start, and what every worker reported there.

    Attributes:
        objective: the set's value at the models' values, from the last plane update.
        value: the value of λ's mix of planes then.
        metric: D of the handshake.
        reach: 1/L_j with L_j of the handshake: the step of worker j's own gradient; 0 if L_j is 0.
        sent_points: x_j, where each worker was last asked.
        violation: how far outside the uncertainty set one of its planes may be: the largest certified
            violation of the oracle's answers.
        start_point, start_losses: z⁰ and every worker's loss there, NaN if it was not measured.
        start_objective: the set's value at those losses, with full batches; infinite if one is not known.
        at_start: whether the result is z⁰.
        convergence: the rule that ends a run with full batches.
        clip: the bounds on replies, None without `clip`.
    """

    reply_kind = Evaluation
    model: ClassVar[str] = "models.z"
    mark: ClassVar[str] = "models"
    saved: ClassVar[Form] = FederatedMaster.saved | {
        **dict.fromkeys(("objective", "value"), real()),
        "metric": numbers("p", above=0.0),
        "reach": numbers("N"),
        "violation": real(least=0.0, infinite=True),
        "start_point": numbers("p"),
        "start_losses": numbers("N", unknown=True, most=inf),
        "start_objective": real(infinite=True),
        "planes": Planes.check_saved,
        "models": _check_models,
        "convergence": Convergence.check_saved,
        "sent_points": numbers("N p"),
        "sent_steps": anything,
        "resting": listing("", row(worker_index, plain(int))),
        "clip": or_none(Clip.check_saved),
    }
    at_start = False

    def __init__(self, plan: Plan, oracle: Oracle, handshake: Handshake) -> None:
        super().__init__(plan.roster(), oracle, handshake)
        config = plan.config
        self.plan = plan
        self.next_report = plan.report_interval
        losses, gradient_sq, curvature = handshake.measured()
        self.reach = np.divide(1.0, curvature, out=np.zeros_like(curvature), where=curvature > 0)
        self.metric = handshake.metric
        self.start_point = handshake.z
        self.start_losses = np.where([first is None for first in handshake.first], np.nan, losses)
        self.start_objective = np.inf
        nothing = np.zeros_like(handshake.z)
        gradients = np.array([nothing if first is None else first.gradient for first in handshake.first])
        self.clip: Clip | None = None
        if config.clip is not None:
            began = [first is not None for first in handshake.first]
            steps = config.local_steps
            self.clip = Clip(config.clip, losses, gradients, curvature, self.metric, began, steps)
            losses, gradients, curvature = self.clip.begin(losses, gradients, curvature)
        self.planes = Planes(
            handshake.reference, keep_all=config.planes == "cp", limit=config.max_planes, patience=PATIENCE
        )
        self.planes.refresh(losses)
        self.objective = self.value = float(self.planes.losses[0])
        self.violation = 0.0
        self.convergence = Convergence(self._tolerance(), self.objective)
        self.models = self._models(handshake.z, losses, gradients, curvature)
        self._tie_clip()
        self.outliers = Outliers(plan.workers, handshake.z, losses, gradient_sq, curvature, SUBJECT)
        self.sent_points: list[Array] = [handshake.z] * plan.workers
        nowhere = np.zeros((2, handshake.z.size))
        self.resting = Resting(self._longest_rest(), plan.workers)
        self.sent_steps: list[Array] = [nowhere] * (plan.workers if config.local_steps > 1 else 0)
        self._enter_handshake(handshake)
        if handshake.failures:
            self._leave_out(self._may_weigh() or self.roster.alive)

    def _models(
        self, z: Array, losses: Array, gradients: Array, curvature: Array
    ) -> FullModels | SampledModels:
        """Full batches are modelled by their own curvatures, mini-batches by one step size."""
        if self.plan.config.batch_size is None:
            local = self.plan.config.local_steps > 1
            return FullModels(self.planes, z, self.metric, losses, gradients, curvature, local_steps=local)
        return SampledModels(self.planes, z, losses, gradients, **self._sampled())

    def _sampled(self) -> dict[str, float]:
        config = self.plan.config
        step = long_step(config.longest_step(self.plan.workers), config.local_steps)
        return {"step": step, "prox": config.weight_step, "window": config.averaging}

    def _derive(self) -> None:
        """Set what follows from the state and is not saved."""
        super()._derive()
        plan = self.plan
        self.last, self.report_interval = plan.iterations, plan.report_interval
        self.steps_each = plan.config.local_steps
        self.inverse = 1.0 / self.metric

    def _longest_rest(self) -> float:
        """With full batches 0: an old model is of use as long as nothing moves, an old batch never."""
        return 0.0 if self.plan.config.batch_size is None else self.plan.config.rest

    def _tolerance(self) -> float:
        """With mini-batches 0: their noise cannot be told from slow progress."""
        return self.plan.config.tolerance if self.plan.config.batch_size is None else 0.0

    @property
    def z(self) -> Array:
        """The model: z with full batches, its running average with mini-batches."""
        return self.start_point if self.at_start else self.models.average

    @property
    def reported(self) -> Array:
        """Every worker's loss as it last reported it, or the running mean of its batches."""
        return self.models.losses

    # -- one iteration --------------------------------------------------------------------------------

    def start(self) -> Outgoing:
        """Ask every live worker for its gradient, with full batches at the first step's z.

        The handshake brought all gradients at z⁰: asking for them again would cost an epoch.
        """
        if self.plan.config.batch_size is None:
            self._update_planes()
            if self.clip is None and not self.never:
                self.start_objective = self.objective
            self.models.step(1.0)
        return [(j, self._fresh(j)) for j in range(self.plan.workers) if self.roster.alive[j]]

    def _usable(self, j: int, reply: Evaluation) -> bool:
        if not (-LARGEST <= reply.loss <= LARGEST and norm_sq(reply.gradient) <= LARGEST_SQ):
            return False
        if not isinstance(reply, EvaluationAhead):
            return True
        return bool(norm_sq(reply.point) <= LARGEST_SQ and norm_sq(reply.first) <= LARGEST_SQ)

    def _accept(self, j: int, reply: Evaluation) -> Outgoing:
        if j in self.resting.until:
            return []  # a repeated message: the reply was used before its rest
        return super()._accept(j, reply)

    def _advance(self) -> Outgoing:
        """Learn from the active workers, move λ and z, and ask the same workers again."""
        active = self.roster.close(self.iteration)
        share = len(active) / self.plan.workers
        for j, reply in active:
            length = self._enter(j, reply.gradient)
            self._learn(j, reply if self.clip is None else self._clipped(self.clip, j, reply, length))
        self.models.step(share * self.steps_each)
        self.convergence.epochs += share
        self.iteration += 1
        if self.plan.updates_planes(self.iteration):
            self._update_planes()
        asked = [(j, self._fresh(j)) for j in self._to_ask([j for j, _ in active])]
        self._adapt(tick=False)  # with the requests under way: their wait is what a tick looks at
        return asked

    def _to_ask(self, active: list[int]) -> list[int]:
        """The workers to ask after an iteration: active ones that do not rest, and those that have rested."""
        planes, resting = self.planes, self.resting
        ask = resting.leave(active, planes.weight, self.iteration)
        if not resting.until:
            return ask
        if self.plan.updates_planes(self.iteration):
            ask += resting.reconsider(planes.weights())
        return ask + resting.wake(self._missing() - len(ask))

    def _missing(self) -> int:
        """How many more workers must be under way for an iteration to become ready."""
        roster = self.roster
        return min(roster.active, roster.live) - len(roster.under_way) - len(roster.pending)

    def handle(self, event: Event) -> Outgoing:
        """The messages to send after an event; workers that rest are asked if too few others are left."""
        out = super().handle(event)
        if self.resting.until and self._missing() > 0:
            out += [(j, self._fresh(j)) for j in self.resting.wake(self._missing())]
        return out

    def _enter(self, j: int, gradient: Array) -> float:
        """Enter how far j's gradient alone would lead into the books that compare workers; ‖D⁻¹g_j‖.

        That is ‖x_j‖ + ‖D⁻¹g_j‖/L_j at most. L_j is that of the handshake: if a worker uses other units, both
        g_j and L_j are in them.
        """
        sent, slope = kernels.lengths(self.sent_points[j], gradient, self.inverse)
        size = sent + self.reach[j] * slope
        book = self.outliers.rows[j]
        book[0], book[1] = size * size, sent * sent
        book[2] = max(0.9 * book[2], (size / sent) ** 2 if sent > 0.0 else 0.0)
        return float(slope)

    def _clipped(self, clip: Clip, j: int, reply: Evaluation, length: float) -> Evaluation:
        """The reply within j's bounds, which are worked out anew once per epoch."""
        if clip.due <= 0:
            clip.refresh(self.roster.alive)
        reply, what = clip.bounded(j, reply, self.sent_points[j], self.inverse, length)
        if what and clip.counts[j] == 1:
            self.notice("clipped", worker=j, reason=f"{what}; clip = {clip.factor:g}")
        return reply

    def _tie_clip(self) -> None:
        """Let full batches' models have the bounds on their curvatures, and the bounds the curvatures."""
        if self.clip is not None and isinstance(self.models, FullModels):
            self.models.ceiling, self.clip.curvature = self.clip.ceiling, self.models.curvature

    def _learn(self, j: int, reply: Evaluation) -> None:
        """Replace worker j's model: at the point that was sent, or where its local steps ended."""
        point = self.sent_points[j]
        if isinstance(reply, EvaluationAhead):
            assert isinstance(self.models, FullModels)
            assert self.models.controls is not None
            self.models.controls.learn(j, reply.first)
            point = reply.point
        self.models.learn(j, point, reply.loss, reply.gradient)

    def _update_planes(self) -> None:
        """Ask the oracle about the models' values, take its plane in, drop idle ones, and sum anew."""
        values = self.models.values()
        if self.never:
            values = values.copy()
            guess(values, self.never)
        answer = self.oracle.worst_case(values)
        self.objective = float(answer.value)
        p = np.asarray(answer.p, dtype=np.float64)
        self.violation = max(self.violation, float(getattr(answer, "violation", np.inf)))
        self.planes.leave_out(self._may_weigh())
        self._look_for_the_end(self.planes.in_use(p), values)
        self.planes.update(p, values)
        self.planes.settle()
        self.models.recentre()
        self.value = float(self.planes.losses @ self.planes.multipliers)

    def _look_for_the_end(self, p: Array, values: Array) -> None:
        """Set `finished` if the run seems to have converged.

        A lost worker counts like any other as long as its loss is in the objective. One that will return is
        waited for.
        """
        if not isinstance(self.models, FullModels):
            return
        if self.roster.expected:
            self.convergence.restart()
            return
        strayed = self.models.strayed
        if self.roster.settings.drops:
            strayed = np.where(self.roster.alive, strayed, 0.0)
        if self.never:
            strayed = np.delete(strayed, self.never)
        ahead = float((p - self.planes.weights()) @ values)
        self.convergence.look(self.objective, values, ahead, float(strayed.max()))
        self.finished = CONVERGED if self.convergence.reached else ""

    def conclude(self, assessment: Assessment) -> str:
        """Why the run ends, now that it seems to be at its end and all workers were asked; "" to go on."""
        if self.finished != CONVERGED:
            return self.finished
        losses, values = assessment.losses, self.models.values()
        asked = np.isfinite(losses)
        apart = float(np.abs(losses - values)[asked].max(initial=0.0))
        gap = proved_gap(losses, assessment.worst_case, assessment.lower_bound)
        reason = self.convergence.conclude(gap, apart)
        if not reason:
            self.finished = ""
        return reason

    def above_start(self, assessment: Assessment) -> bool:
        """Whether the objective was lower at z⁰; False if one of the two is not known."""
        return bool(np.isfinite(assessment.losses).all() and assessment.objective > self.start_objective)

    # -- messages -------------------------------------------------------------------------------------

    def _fresh(self, j: int) -> Evaluate:
        self.resting.forget(j)
        self.sent_points[j] = self.models.z
        if self.steps_each > 1:
            self.sent_steps[j] = np.array(self.models.local_step(j, self.steps_each))
        self.roster.dispatch(j, self.time, self.iteration)
        return self._repeat(j)

    def _repeat(self, j: int) -> Evaluate:
        ticket, z = self.roster.tickets[j], self.sent_points[j]
        if self.steps_each == 1:
            self.sent += z.size + 1
            return Evaluate(ticket, z)
        self.sent += 3 * z.size + 1
        scale, shift = self.sent_steps[j]
        if isinstance(self.models, FullModels):
            return EvaluateAhead(ticket, z, scale, shift)
        self.sent += 1
        return EvaluateMean(ticket, z, scale, shift, self.models.reach(self.steps_each))

    # -- lost workers ---------------------------------------------------------------------------------

    def _lose(self, j: int, reason: str, *, for_good: bool = False, error: Exception | None = None) -> None:
        """Stop waiting for worker j; its model stays, or is dropped."""
        super()._lose(j, reason, for_good=for_good, error=error)
        self.resting.forget(j)

    def _leave_out(self, kept: Sequence[bool] | None) -> None:
        """Give the weight of the others in every plane to the workers that are kept, None: to all its own."""
        if self.planes.leave_out(kept):
            self.convergence.restart()
            self.models.recentre()

    # -- reports, assessment, checkpoints -------------------------------------------------------------

    def _figures(self) -> Figures:
        return Figures(
            objective=self.objective,
            value=self.value,
            losses=self.models.losses.copy(),
            weights=self.planes.weights(),
            planes=self.planes.size,
            active_workers=min(self.roster.active, self.roster.live),
            theorem_numbers=self.sent + self.received,  # Theorem 2 is about the other form's messages
        )

    def report(self) -> dict[str, Any]:
        """The state in numbers; with `clip` also how many replies of which workers were clipped so far."""
        report = super().report()
        if self.clip is not None:
            report["clipped"] = self.clip.clipped()
        return report

    def probes(self) -> dict[int, Request]:
        """A question for every worker that is not dropped: loss and gradient at the model, on all data."""
        return dict.fromkeys(self.roster.kept(), Inspect(self.z))

    def _standing(self, replies: Mapping[int, Reply | Exception], losses: Array, answer: Any) -> Standing:
        """The weights, the planes, how far from stationary the model is, and a bound on the optimum.

        The measure is infinite if a live worker with weight did not answer.
        """
        weights = self.planes.weights()
        model = "start" if self.at_start else "z" if isinstance(self.models, FullModels) else "average"
        answered = {j: reply for j, reply in replies.items() if isinstance(reply, Inspected)}
        measure = saddle_measure(weights, losses, float(answer.value), answered, self.metric)
        if any(self.roster.alive[j] and weights[j] > 0 for j in replies if j not in answered):
            measure = np.inf
        bound = -np.inf
        if len(answered) == self.plan.workers:
            worst = np.asarray(answer.p, dtype=np.float64), float(getattr(answer, "violation", np.inf))
            bound = best_bound([(weights, self._violation(weights)), worst], losses, answered)
        if wrong := contradiction(losses, answer, bound):
            self.notice("contradiction", reason=wrong)
        return Standing(weights, self.planes.matrix(), measure, bound, model)

    def _violation(self, weights: Array) -> float:
        """How far outside the set the weights are; the most that the planes may be, if the set cannot say."""
        measure = getattr(self.oracle, "violation", None)
        if callable(measure):
            return float(measure(weights))
        return self.violation if self.planes.kept is None else np.inf

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        return super().snapshot() | {
            "sent_points": np.array(self.sent_points),
            "sent_steps": np.array(self.sent_steps),
            "resting": self.resting.snapshot(),
        }

    @classmethod
    def restored(cls, plan: Plan, oracle: Oracle, state: Mapping[str, Any]) -> ModelMaster:
        """The master of a snapshot."""
        master = cls._blank(plan.config, plan.workers, state)
        _check_batches(plan, state)
        master.plan = plan
        master.planes = Planes.restored(state["planes"])
        kept = state["models"]
        if plan.config.batch_size is None:
            master.models = FullModels.restored(master.planes, kept)
        else:
            master.models = SampledModels.restored(master.planes, kept, **master._sampled())
        clip = plan.config.clip
        master.clip = None if clip is None else Clip.restored(clip, plan.workers, state["clip"])
        master._tie_clip()
        master.sent_points = list(state["sent_points"])
        master.sent_steps = list(state["sent_steps"])
        master.resting = Resting(master._longest_rest(), plan.workers, state["resting"])
        master.convergence = Convergence.restored(master._tolerance(), state["convergence"])
        N = plan.workers
        master.outliers = Outliers(N, master.z, master.reported, np.zeros(N), np.ones(N), SUBJECT)
        master._restore(plan.roster(), oracle, state)
        if master.planes.check(getattr(oracle, "violation", None), oracle.reference()):
            master.models.recentre()
            master.convergence.restart()
        if np.isfinite(master.start_objective):  # perhaps in another set
            master.start_objective = float(oracle.worst_case(master.start_losses).value)
        master.finished = CONVERGED if master.convergence.reached and not master._has_new_plane() else ""
        return master

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check that λ is a distribution."""
        super().check_saved(saved, name, value)
        planes = value["planes"]
        multipliers = planes["_multipliers"][: planes["size"]]
        if abs(multipliers.sum() - 1.0) > AGREE or multipliers.min() < 0.0:
            raise saved.error(f"{name}.planes._multipliers", "is not a distribution")

    @classmethod
    def _at_rest(cls, value: Mapping[str, Any]) -> list[int]:
        return [j for j, _ in value["resting"]]

    def _has_new_plane(self) -> bool:
        """Whether the set, perhaps another one than before, has a worst case that the planes do not show."""
        values = self.models.values()
        p = self.planes.in_use(np.asarray(self.oracle.worst_case(values).p, dtype=np.float64))
        ahead = float((p - self.planes.weights()) @ values) - 2.0 * VIOLATION * float(np.ptp(values))
        if ahead <= self.convergence.records[-1][1] + self.convergence.floor:
            return False
        self.convergence.restart()
        return True


def _check_batches(plan: Plan, state: Mapping[str, Any]) -> None:
    """Raise `CheckpointMismatch` for a snapshot with other batches."""
    full, batch = "curvature" in state["models"], plan.config.batch_size
    if full != (batch is None):
        kind = "full batches" if full else "mini-batches"
        raise CheckpointMismatch(
            f"the checkpoint is one with {kind}, and batch_size is {batch}: give that of the first time"
        )
