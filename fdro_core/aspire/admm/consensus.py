"""The consensus variable z, and every w_j and φ_j with their running sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fdro_core.aspire.admm import kernels
from fdro_core.master.kernels import enter, norm_sq
from fdro_core.protocol.messages import Update
from fdro_core.protocol.replies import LARGEST_SQ
from fdro_core.protocol.saved import Form, Kept, Saved, listing, numbers, real, whole
from uncertainty_sets.arrays import Array

if TYPE_CHECKING:
    from fdro_core.aspire.admm.algorithm import AspireEase


class Consensus(Kept):
    """z ← Π(z - η_z∇_zL) and φ_j ← Π(φ_j + ρ₂∇_{φ_j}L), Eq. (13) and (16), for S workers in O(Sp).

    Attributes:
        z: the consensus variable, changed in place.
        w: w_j as last received; the worker's own array if both are in one process, never written to.
        U: φ_j/D, (N, p).
        total: Σ_j(w_j - φ_j/(κ₁D)) over live workers, all that z needs of them.
        live: how many those are, n.
        penalty: κ₁.
    """

    saved: ClassVar[Form] = {
        "z": numbers("p"),
        "w": listing("N", numbers("p")),
        "U": numbers("N p"),
        "total": numbers("p"),
        "metric": numbers("p", above=0.0),
        "penalty": real(above=0.0),
        "live": whole(),
    }

    def __init__(self, config: AspireEase, z: Array, metric: Array, workers: int) -> None:
        self.z = z.copy()
        self.w: list[Array] = [z] * workers
        # Not `zeros`, whose memory is only taken and cleared when a worker's first step touches it.
        self.U = np.full((workers, z.size), 0.0)
        self.total = workers * z
        self.metric = metric
        self.penalty = 1.0
        self.live = workers
        self._derive(config)

    def _derive(self, config: AspireEase) -> None:
        self.config = config
        self.inverse = 1.0 / self.metric
        self._u = list(self.U)  # its rows
        self._dual_step = config.consensus_dual_step
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

    def move(
        self, active: Sequence[tuple[int, Update]], step: float, damping: float, books: Array
    ) -> list[Array]:
        """Make one iteration for the active workers; return y_j of each.

        step is η_z, 0 for 1/(nκ₁), the exact z; damping is c₂ᵗ.

        `books` has one row per worker, for `kernels.enter`.
        """
        size, live, config = self.z.size, float(self.live), self.config
        for j, update in active:
            kernels.absorb(self.w[j], update.w, self.total)
            self.w[j] = update.w
        kernels.consensus(self.total, self.z, live, self.penalty, step, config.parameter_bound)
        pulls = [np.empty(size) for _ in active]
        for (j, _), pull in zip(active, pulls, strict=True):
            kernels.dual(
                self.w[j], self._u[j], self.total, self.inverse, self.z, pull, self.penalty,
                self.dual_step, damping, config.consensus_dual_bound,
            )  # fmt: skip
            sent = norm_sq(pull) / self.penalty**2
            enter(books[j], norm_sq(self.w[j]), sent)
        return pulls

    def move_one(self, j: int, w: Array, book: Array) -> Array | None:
        """`move` for one active worker in one pass, if `free`; None if w is out of range."""
        pull = np.empty(w.size)
        own, penalty = self.w, self.penalty
        moved = kernels.advance_one(
            w, own[j], self._u[j], self.total, self.z, pull, self.live, penalty,
            self._dual_step or penalty, LARGEST_SQ, book,
        )  # fmt: skip
        if not moved:
            return None
        own[j] = w
        return pull

    def pull(self, j: int) -> Array:
        """y_j = φ_j/D + κ₁z, what worker j needs of φ_j and z."""
        pull: Array = self.U[j] + self.penalty * self.z
        return pull

    def remove(self, j: int) -> None:
        """Take w_j and φ_j out of the sum."""
        kernels.shift(self.total, self.w[j], self._u[j], self.penalty, -1.0)
        self.live -= 1

    def add(self, j: int) -> None:
        """Put w_j and φ_j back into the sum."""
        kernels.shift(self.total, self.w[j], self._u[j], self.penalty, 1.0)
        self.live += 1

    def reset(self, j: int, *, counted: bool) -> Array:
        """Set w_j to z, and return it as the point that worker j is to start from."""
        z = self.z.copy()
        if counted:
            kernels.absorb(self.w[j], z, self.total)
        self.w[j] = z
        return z

    def dual_gap_sq(self, j: int) -> float:
        """‖φ_j - Π(φ_j + ∇_{φ_j}L)‖², φ_j's part of Definition 1 with a unit step."""
        phi, bound = self.metric * self.U[j], self.config.consensus_dual_bound
        gap = phi - np.clip(phi + self.z - self.w[j], -bound, bound)
        return float(gap @ gap)

    def gap_sq(self) -> float:
        """‖z - Π(z - ∇_zL)‖², z's part of Definition 1 with a unit step."""
        slope = self.penalty * self.metric * (self.live * self.z - self.total)
        bound = self.config.parameter_bound
        gap = self.z - np.clip(self.z - slope, -bound, bound)
        return float(gap @ gap)

    @classmethod
    def restored(cls, config: AspireEase, state: Mapping[str, Any]) -> Consensus:
        """The consensus of a snapshot."""
        consensus = cls.__new__(cls)
        consensus.take(state)
        consensus._derive(config)
        return consensus

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check that the sum is one of what the live workers of the roster sent."""
        super().check_saved(saved, name, value)
        live = saved.of("master.roster.live")
        if value["live"] != live:
            raise saved.error(f"{name}.live", f"is {value['live']}, and the roster's {live}")
        alive = np.asarray(saved.of("master.roster.alive"), dtype=bool)
        parts = np.asarray(value["w"])[alive] - value["U"][alive] / value["penalty"]
        off = np.abs(parts.sum(axis=0) - value["total"]).max(initial=0.0)
        # At least 1: a model that is at 0 now was elsewhere when its sum was rounded.
        scale = max(1.0, np.abs(parts).sum(axis=0).max(initial=0.0))
        saved.agree(f"{name}.total", off, scale, "is not the sum of what the workers sent")
