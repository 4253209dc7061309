"""How good a state is: the objective at z, and the stationarity gap of Definition 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fdro_core.algorithm import Verdict
from fdro_core.messages import Probed, Reply

if TYPE_CHECKING:
    from fdro_core.master import Master


def judge(master: Master, replies: Mapping[int, Reply | Exception]) -> Verdict:
    """The verdict of a round of probes.

    ∇G stacks, with unit steps, w_j - Π(w_j - ∇_{w_j}L), z - Π(z - ∇_zL), h - Π(h - ∇_hL),
    λ_l - Π(λ_l + ∇_{λ_l}L) and φ_j - Π(φ_j + ∇_{φ_j}L); each worker sends the norm of its own w_j's part.
    A worker that gives no answer keeps its last known loss in the oracle and shows NaN in `losses`.
    """
    config, adversary = master.plan.config, master.adversary
    planes = adversary.planes
    losses = np.full(master.plan.workers, np.nan)
    local = adversary.losses.copy()
    total = 0.0
    for j, reply in replies.items():
        if not isinstance(reply, Probed):
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
    known = np.where(np.isfinite(losses), losses, adversary.losses)
    answer = adversary.oracle.worst_case(known)
    return Verdict(losses, answer, float(answer.value), planes.weights(), planes.matrix(), total)
