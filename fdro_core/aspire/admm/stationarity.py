"""The stationarity gap of Definition 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fdro_core.aspire.admm.adversary import Adversary
from fdro_core.aspire.admm.consensus import Consensus
from fdro_core.protocol.messages import Probed, Reply

if TYPE_CHECKING:
    from fdro_core.aspire.admm.algorithm import AspireEase


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
