"""The consensus variable z, and the master's copies of every w_j and φ_j with their running sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core import kernels
from fdro_core.config import AspireEase
from fdro_core.messages import Update

Array = NDArray[np.float64]

STATE = ("z", "W", "U", "sum_w", "sum_u", "metric", "penalty", "live")


class Consensus:
    """z ← Π(z - η_z∇_zL) and φ_j ← Π(φ_j + ρ₂∇_{φ_j}L), Eq. (13) and (16), for S workers in O(Sp).

    Attributes:
        z: the consensus variable; replaced, never written to, since workers keep the z they were sent.
        W: w_j as last received, (N, p).
        U: φ_j/D, (N, p).
        sum_w, sum_u: their sums over live workers.
        live: how many those are, n.
        penalty: κ₁.
    """

    def __init__(self, config: AspireEase, z: Array, metric: Array, workers: int) -> None:
        self.z = z
        self.W = np.tile(z, (workers, 1))
        self.U = np.zeros((workers, z.size))
        self.sum_w = workers * z
        self.sum_u = np.zeros(z.size)
        self.metric = metric
        self.penalty = 1.0
        self.live = workers
        self._derive(config)

    def _derive(self, config: AspireEase) -> None:
        self.config = config
        self.inverse = 1.0 / self.metric
        self._w, self._u = list(self.W), list(self.U)  # rows, since slicing costs as much as a small pass
        self.free = (
            config.consensus_step is None
            and config.regularisation == "none"
            and config.parameter_bound == np.inf
            and config.consensus_dual_bound == np.inf
        )

    @property
    def dual_step(self) -> float:
        """ρ₂."""
        return self.config.consensus_dual_step or self.penalty

    def move(self, active: Sequence[tuple[int, Update]], damping: float) -> None:
        """One iteration for the active workers; damping is c₂ᵗ."""
        z = np.empty(self.z.size)
        if self.free and len(active) == 1:
            j, update = active[0]
            kernels.advance_one(
                update.w, self._w[j], self._u[j], self.sum_w, self.sum_u, z,
                float(self.live), self.penalty, self.dual_step,
            )  # fmt: skip
            self.z = z
            return
        config = self.config
        for j, update in active:
            kernels.absorb(self.W[j], update.w, self.sum_w)
        kernels.consensus(
            self.sum_w, self.sum_u, self.z, z, float(self.live), self.penalty,
            config.consensus_step or 0.0, config.parameter_bound,
        )  # fmt: skip
        for j, _ in active:
            kernels.follow_dual(
                self.W[j], self.U[j], self.sum_u, self.inverse, z, self.dual_step, damping,
                config.consensus_dual_bound,
            )  # fmt: skip
        self.z = z

    def leave(self, j: int) -> None:
        """w_j and φ_j leave the sums."""
        kernels.shift(self.sum_w, self.W[j], -1.0)
        kernels.shift(self.sum_u, self.U[j], -1.0)
        self.live -= 1

    def join(self, j: int) -> None:
        """w_j and φ_j are in the sums again."""
        kernels.shift(self.sum_w, self.W[j], 1.0)
        kernels.shift(self.sum_u, self.U[j], 1.0)
        self.live += 1

    def reset(self, j: int, *, counted: bool) -> tuple[Array, Array]:
        """w_j ← z; the state (w_j, φ_j/D) that worker j is to start from."""
        if counted:
            kernels.absorb(self.W[j], self.z, self.sum_w)
        else:
            self.W[j] = self.z
        return self.z, self.U[j].copy()

    def gap_sq(self) -> float:
        """‖z - Π(z - ∇_zL)‖², z's part of Definition 1 with a unit step."""
        slope = self.metric * (self.sum_u + self.penalty * (self.live * self.z - self.sum_w))
        bound = self.config.parameter_bound
        gap = self.z - np.clip(self.z - slope, -bound, bound)
        return float(gap @ gap)

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        return {name: getattr(self, name) for name in STATE}

    @classmethod
    def restored(cls, config: AspireEase, state: Mapping[str, Any]) -> Consensus:
        """The consensus of a snapshot."""
        consensus = cls.__new__(cls)
        for name in STATE:
            setattr(consensus, name, state[name])
        consensus._derive(config)
        return consensus
