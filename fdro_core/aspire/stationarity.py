"""How good a state is: the objective at z, and the stationarity gap of Definition 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fdro_core.contracts.algorithm import Verdict
from fdro_core.contracts.engine import Away
from fdro_core.contracts.failures import traceback_of, words
from fdro_core.contracts.messages import Probed, Reply
from fdro_core.federation.outliers import Outliers
from uncertainty_sets.arrays import Array

if TYPE_CHECKING:
    from fdro_core.aspire.master import Master


class Probing(Protocol):
    """What a master needs to have its probes looked over."""

    outliers: Outliers

    @property
    def reported(self) -> Array:
        """Every worker's loss as it last reported it."""
        ...

    def notice(self, event: str, **facts: Any) -> None:
        """Put something in the history."""
        ...


def stand_in(losses: Array, reported: Array, visited: Sequence[int]) -> Array:
    """The losses that the oracle is asked about: those measured, else the last ones reported.

    The mean of the others stands in for a worker that never reported any (`visited` is -1).
    """
    known = np.where(np.isfinite(losses), losses, reported)
    guessed = ~np.isfinite(losses) & (np.asarray(visited) < 0)
    if guessed.any():
        known[guessed] = known[~guessed].mean()
    return known


def look_over(master: Probing, replies: Mapping[int, Reply | Exception], losses: Array) -> None:
    """Give notice of workers that failed when they were probed, and of losses that are hard to believe.

    Of those that were known to be away notice was given before.
    """
    for j, reply in replies.items():
        if isinstance(reply, Exception) and not isinstance(reply, Away):
            facts = {"reason": words(reply), "traceback": traceback_of(reply)}
            master.notice("probe-failed", worker=j, **facts)
    for j, what in master.outliers.probed(losses, master.reported):
        master.notice("suspicious", worker=j, reason=what)


def judge(master: Master, replies: Mapping[int, Reply | Exception]) -> Verdict:
    """The verdict of a round of probes.

    ∇G stacks, with unit steps, w_j - Π(w_j - ∇_{w_j}L), z - Π(z - ∇_zL), h - Π(h - ∇_hL),
    λ_l - Π(λ_l + ∇_{λ_l}L) and φ_j - Π(φ_j + ∇_{φ_j}L); each worker sends the norm of its own w_j's part.
    A worker that gives no answer keeps its last known loss in the oracle and shows NaN in `losses`. While it
    is in the sums ‖∇G‖² is not known without it, and infinite here.
    """
    config, adversary = master.plan.config, master.adversary
    planes = adversary.planes
    losses = np.full(master.plan.workers, np.nan)
    local = adversary.losses.copy()
    total = 0.0
    for j, reply in replies.items():
        if not isinstance(reply, Probed):
            total += np.inf if master.roster.alive[j] else 0.0
            continue
        losses[j] = reply.loss_at_z
        if master.roster.alive[j]:
            local[j] = reply.loss_at_w
            total += reply.worker_sq + master.consensus.dual_gap_sq(j)
    multipliers = planes.multipliers
    h = adversary.value
    h_gap = h - np.clip(h - (1.0 - multipliers.sum()), config.value_floor, config.value_bound)
    ascent = local @ planes.table[:, : planes.size] - h
    plane_gap = multipliers - np.clip(multipliers + ascent, 0.0, config.plane_dual_bound)
    total += master.consensus.gap_sq() + float(h_gap) ** 2 + float(plane_gap @ plane_gap)
    look_over(master, replies, losses)
    visited = master.roster.visited
    answer = adversary.oracle.worst_case(stand_in(losses, adversary.losses, visited))
    known_at = np.where(np.isfinite(losses), master.iteration, visited)
    return Verdict(losses, known_at, answer, float(answer.value), planes.weights(), planes.matrix(), total)
