"""What the master and the workers say to each other.

Plain classes with slots: one is made for every step, and a dataclass costs five times as much.
`numbers` is what a message puts on the wire, counted in numbers as Theorem 2 counts them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Step:
    """Master to worker: take the next local step from z with weight s_j.

    Attributes:
        ticket: which step of this worker it is; a repeated message repeats its ticket.
        z: the consensus variable.
        weight: s_j = Σ_l λ_l p_{l,j}, all that worker j needs of the planes.
        penalty: κ₁.
        dual_step: ρ₂ for the update of φ_j that comes first.
        damping: c₂ᵗ of that update.
        restore: (w_j, φ_j/D) to start from, for a worker that lost its own or returned NaN; its φ_j is
            taken as it is.
    """

    __slots__ = ("damping", "dual_step", "penalty", "restore", "ticket", "weight", "z")

    def __init__(
        self,
        ticket: int,
        z: Array,
        weight: float,
        penalty: float,
        dual_step: float,
        damping: float,
        restore: tuple[Array, Array] | None = None,
    ) -> None:
        self.ticket = ticket
        self.z = z
        self.weight = weight
        self.penalty = penalty
        self.dual_step = dual_step
        self.damping = damping
        self.restore = restore

    @property
    def numbers(self) -> int:
        """z and five scalars, and twice more z's length where the state is restored."""
        return self.z.size * (1 if self.restore is None else 3) + 5


class Update:
    """Worker to master: the new local variable and what the master's step sizes need.

    Attributes:
        ticket: of the Step it answers.
        w: w_jᵗ⁺¹; nobody writes to it any more.
        loss: f_j(w_jᵗ⁺¹), on all of the worker's data or as a running average.
        gradient_sq: ‖∇f_j(w_jᵗ⁺¹)‖² in the metric.
        curvature: L_j, the largest ‖Δ∇f_j‖ / ‖Δw_j‖ seen, in the metric.
    """

    __slots__ = ("curvature", "gradient_sq", "loss", "ticket", "w")

    def __init__(self, ticket: int, w: Array, loss: float, gradient_sq: float, curvature: float) -> None:
        self.ticket = ticket
        self.w = w
        self.loss = loss
        self.gradient_sq = gradient_sq
        self.curvature = curvature

    @property
    def numbers(self) -> int:
        """W_j and four scalars."""
        return self.w.size + 4


class Hello:
    """Master to worker, before the first step: what is your problem like?"""

    numbers = 1


class Introduction:
    """Worker to master: its dimension, its metric and, from the first worker, a point to start from."""

    __slots__ = ("dimension", "metric", "start")

    def __init__(self, dimension: int, metric: Array | None, start: Array | None) -> None:
        self.dimension = dimension
        self.metric = metric
        self.start = start

    @property
    def numbers(self) -> int:
        """The dimension, and the metric and the point where there are any."""
        return 1 + sum(part.size for part in (self.metric, self.start) if part is not None)


class Begin:
    """Master to worker: start at z in this metric, and measure your curvature there."""

    __slots__ = ("metric", "z")

    def __init__(self, z: Array, metric: Array) -> None:
        self.z = z
        self.metric = metric

    @property
    def numbers(self) -> int:
        """Z and the metric."""
        return 2 * self.z.size


class Probe:
    """Master to worker, in a round of its own: how do z and your own state look on all your data?"""

    __slots__ = ("penalty", "weight", "z")

    def __init__(self, z: Array, weight: float, penalty: float) -> None:
        self.z = z
        self.weight = weight
        self.penalty = penalty

    @property
    def numbers(self) -> int:
        """Z and two scalars."""
        return self.z.size + 2


class Probed:
    """Worker to master: f_j(z), f_j(w_j), and this worker's two terms of ‖∇G‖² (Definition 1)."""

    __slots__ = ("consensus_sq", "loss_at_w", "loss_at_z", "worker_sq")

    numbers = 4

    def __init__(self, loss_at_z: float, loss_at_w: float, worker_sq: float, consensus_sq: float) -> None:
        self.loss_at_z = loss_at_z
        self.loss_at_w = loss_at_w
        self.worker_sq = worker_sq
        self.consensus_sq = consensus_sq


Request = Step | Hello | Begin | Probe
Reply = Update | Introduction | Probed
