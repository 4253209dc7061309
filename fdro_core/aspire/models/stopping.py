"""When a run with full batches has converged: the rule behind `tolerance`.

At a plane update the master knows m(z), the worst case p of those values and its own weights s = Pᵀλ. Since z
minimises Σ_j s_jm_j,

    δ = [pᵀm(z) - sᵀm(z)] + max_j c_j‖z - x_j‖²_D

measures how far the models are from a saddle point, and from the losses that they stand for. Both parts are
in units of the loss. A slow worker keeps δ large until it was heard near z. If δ falls by the factor ρ² per
epoch, about δ/(1 - ρ) of the objective is still to be gained: while δ hardly falls, a small δ means nothing.

This is an estimate. It proves nothing, and on a plateau of a network it can be wrong. So when it says that
the run is at its end, all workers are asked for loss and gradient at the model. The run has converged if they
prove a small gap, and the losses are what the models say. If they do not, it goes on as long as that helps:
until the gap has not halved since the last time, or at once if a gap cannot be proved and the models are
right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from fdro_core.aspire.models.messages import Inspected
from fdro_core.aspire.planes import VIOLATION
from fdro_core.protocol.saved import Form, Kept, listing, real, row
from fdro_core.result import CONVERGED, EPS, SPARE, STOPPED
from uncertainty_sets.arrays import Array

WINDOW = 3  # values of δ of which the largest counts: one small value can be luck
ROUNDING = 1e-14  # of the largest |m_j(z)|: below it δ is rounding
PROVED = 1e-5  # of the scale: a gap that is called converged; one that seems to be 1e-8 is proved to 1e-6
EXACT = (
    1e-12  # of the size: the same where the scale is 0, for a run that began at the optimum, or if that is 0
)


class Convergence(Kept):
    """The last values of δ, one per epoch, and what they are compared with. A look costs O(N).

    Attributes:
        tolerance: 0 if the run does not stop by itself.
        epochs: replies so far, over N.
        highest: the largest objective seen.
        records: [epochs, δ] of the last `2·WINDOW` looks.
        scale: what the tolerance is relative to: the objective or its fall from `highest`, whichever is
            smaller. The first does not depend on the starting point, the second not on a constant that is
            added to all losses.
        size: the objective or its fall, whichever is larger.
        floor: the size of rounding in δ.
        left: the gap when the rule last was at its end and the run went on; infinite before.
    """

    saved: ClassVar[Form] = {
        **dict.fromkeys(("epochs", "highest", "scale", "size", "floor"), real()),
        "records": listing("", row(real(), real())),
        "left": real(least=0.0, infinite=True),
    }

    def __init__(self, tolerance: float, objective: float) -> None:
        self.tolerance = tolerance
        self.epochs = 0.0
        self.highest = objective
        self.records: list[list[float]] = []
        self.scale = self.size = self.floor = 0.0
        self.left = np.inf

    @classmethod
    def restored(cls, tolerance: float, state: Mapping[str, Any]) -> Convergence:
        """The rule at a snapshot, perhaps with another tolerance."""
        rule = cls(tolerance, 0.0)
        rule.take(state)
        return rule

    def look(self, objective: float, values: Array, ahead: float, moved: float) -> None:
        """Record δ; a second look in an epoch is ignored, and one at z⁰, which no step has chosen.

        Args:
            objective: the largest pᵀm(z).
            values: m(z).
            ahead: pᵀm(z) - sᵀm(z).
            moved: the largest c_j‖z - x_j‖²_D of the workers that count.
        """
        self.highest = max(self.highest, objective)
        if self.epochs == 0.0 or (self.records and self.epochs - self.records[-1][0] < 1.0 - 1e-9):
            return
        self.scale, self.size = sorted((abs(objective), self.highest - objective))
        self.floor = ROUNDING * float(np.abs(values).max())
        # Planes that are ahead by less than VIOLATION of the losses' range are never added.
        unseen = 2.0 * VIOLATION * float(np.ptp(values))
        self.records.append([self.epochs, max(ahead - unseen, 0.0) + moved])
        del self.records[: -2 * WINDOW]

    def restart(self) -> None:
        """Forget δ: something is about to change that it does not show."""
        self.records.clear()

    @property
    def reached(self) -> bool:
        """Whether what is still to be gained is within the tolerance, or δ is rounding."""
        if self.tolerance == 0.0 or len(self.records) < WINDOW:
            return False
        level = max(delta for _, delta in self.records[-WINDOW:])
        if level <= self.floor:
            return True
        if len(self.records) < 2 * WINDOW:
            return False
        before = max(delta for _, delta in self.records[:WINDOW])
        if level >= before:
            return False
        epochs = self.records[-1][0] - self.records[WINDOW - 1][0]
        rate = sqrt((level / before) ** (1.0 / epochs))
        return level <= self.tolerance * self.scale * (1.0 - rate)

    def conclude(self, gap: float, apart: float) -> str:
        """The reason to end, now that the rule says so and all workers were asked; "" to go on.

        Args:
            gap: what is proved, infinite if nothing is.
            apart: how far a worker's loss is from its model, at most.
        """
        level = max(PROVED, self.tolerance) * self.scale + EXACT * self.size + self.floor
        if max(gap, apart) <= level:
            return CONVERGED
        left = max(gap, apart) if np.isfinite(gap) else apart
        if left <= level or not left <= 0.5 * self.left:
            return STOPPED
        self.left = left
        self.restart()
        return ""


# -- a proven lower bound ------------------------------------------------------------------------------
# If f_j - μ_j/2·‖·‖² is convex for every j, then for any s in P and any model z
#
#     min over w of max over p in P of pᵀf(w)  >=  min over w of sᵀf(w)
#                                              >=  sᵀf(z) - ‖Σ_j s_j∇f_j(z)‖² / (2 Σ_j s_jμ_j)


OUTSIDE = 1e-9  # weights that violate the set by more are not in it; the same as in `UncertaintySet.contains`


def lower_bound(
    weights: Array, violation: float, losses: Array, gradients: Array, convexities: Array
) -> float:
    """The bound for weights s; -inf if s is not in the set, or Σ_j s_jμ_j is not known to be positive.

    It is lowered by what rounding can change in it, and by what another s can: every s whose entries differ
    by no more than N times the violation, in sum, has at least this bound.

    Args:
        weights: s.
        violation: how far s may be outside the set (`WorstCase.violation`).
        losses: f_j(z).
        gradients: ∇f_j(z), (N, p).
        convexities: μ_j, -inf if unknown.

    >>> f, g, mu = np.array([0.5, 0.5]), np.array([[1.0], [-1.0]]), np.ones(2)  # ½(w ± 1)² at w = 0
    >>> [round(lower_bound(np.array(s), 0.0, f, g, mu), 9) for s in ([0.5, 0.5], [0.75, 0.25])]
    [0.5, 0.375]
    """
    N, p = gradients.shape
    if not (violation <= OUTSIDE and np.isfinite(convexities).all()):
        return -np.inf
    s = np.maximum(weights, 0.0)
    s /= s.sum()
    off = N * (max(violation, 0.0) + EPS)
    rounding = (N + p + SPARE) * EPS
    convexity = float(s @ convexities) - (off + rounding) * float(np.abs(convexities).max())
    if not convexity > 0.0:
        return -np.inf
    lengths = np.sqrt(np.einsum("ij,ij->i", gradients, gradients))
    slope = float(np.linalg.norm(s @ gradients)) + rounding * float(s @ lengths) + off * float(lengths.max())
    fall = slope * slope / (2.0 * convexity)
    value = float(s @ losses) - off * float(np.ptp(losses))
    bound: float = value - fall - rounding * (float(s @ np.abs(losses)) + fall)
    return bound


def best_bound(
    candidates: Sequence[tuple[Array, float]], losses: Array, answered: Mapping[int, Inspected]
) -> float:
    """The best of the bounds by several weights, each with its violation, if all workers have answered."""
    everyone = [answered[j] for j in range(len(answered))]
    convexities = np.array([reply.strong_convexity for reply in everyone])
    if not np.isfinite(convexities).all():
        return -np.inf
    gradients = np.array([reply.gradient for reply in everyone])
    return max(lower_bound(s, off, losses, gradients, convexities) for s, off in candidates)


def saddle_measure(
    weights: Array, losses: Array, value: float, answered: Mapping[int, Inspected], metric: Array
) -> float:
    """max over p of pᵀf(z) - sᵀf(z) + ‖Σ_j s_j∇f_j(z)‖² in 1/D: both terms are 0 at a saddle point.

    z is the returned model, s the weights at the end, D the mean of the problems' metrics.
    """
    slope = np.zeros_like(metric)
    for j, reply in answered.items():
        slope += weights[j] * reply.gradient
    return max(value - float(weights @ losses), 0.0) + float((slope * slope) @ (1.0 / metric))
