"""Mini-batches: models of one curvature in a metric that follows the gradients, and a prox on the weights.

With s = Pᵀλ the worst-case weights of the workers,

    z = Σ_j s_ja_jx_j / Σ_j s_ja_j - ηD⁻¹Σ_j s_jg_j

minimises Σ_j s_jm_j if every a_j is 1. The trust a_j in an old point falls with the time between a worker's
visits: without it a slow worker's old x_j would hold z back. Losses are running means, since the loss of one
batch is noise to the adversary; D is the root of a running mean of (Σ_j s_jg_j)², as in RMSprop; η rises and
falls with the epochs (`preconditioner.pace`). Nothing of this is proved.

A reply costs O(|A|p), whatever N is: the planes' sums of g_j and a_jx_j follow it, and are summed anew at
every plane update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fdro_core.aspire.models import kernels
from fdro_core.aspire.models.state import arrays
from fdro_core.aspire.planes import Planes
from fdro_core.federation import preconditioner
from uncertainty_sets.arrays import Array

MEMORY = 0.1  # weight of the newest epoch in a worker's running loss
INTERVAL_MEMORY = 0.2  # of the newest interval between a worker's visits
MOVES = 200  # of weight between planes in one step
COLUMNS = 8192  # of the planes at a time, where their products are added up
CHUNK = 64  # workers at a time when planes are summed anew

STATE = {
    "z": "p", "average": "p", "X": "N p", "G": "N p", "losses": "N", "visits": "N", "seen_at": "N",
    "interval": "N", "trust": "N", "epochs": "", "squares": "p", "stiffness": "planes planes",
    "slopes": "planes p", "points": "planes p", "trusts": "planes", "overlap": "planes planes",
}  # fmt: skip
"""What a snapshot keeps, with its shape."""


class SampledModels:
    """The models of all workers and of the active planes.

    Attributes:
        z: the model that workers are sent; replaced, never written to.
        average: the running mean of z, which is the result.
        X, G: x_j and g_j, (N, p).
        losses: running means of f_j.
        visits, seen_at, interval: how often and when each worker replied, and the epochs between its visits.
        trust: a_j.
        epochs: how many were taken.
        squares: v, whose root is D.
        stiffness: how the planes' losses answer to λ, from the last plane update.
        slopes, points, trusts: Σ_j p_ljg_j, Σ_j p_lja_jx_j and Σ_j p_lja_j of every plane.
        overlap: PPᵀ of the planes.
    """

    # Arrays that are used again: new pages of memory would cost more than the sums that are written to them.
    _room: Array = np.empty((2, 0, 0))  # for slopes and points
    _slope: Array = np.empty(0)

    def __init__(
        self,
        planes: Planes,
        z: Array,
        losses: Array,
        gradients: Array,
        *,
        step: float,
        prox: float,
        window: float,
    ) -> None:
        workers = losses.size
        self.planes = planes
        self.z = z
        self.average = z
        self.X = np.repeat(z[None, :], workers, axis=0)
        self.G = gradients.copy()
        self.losses = losses.copy()
        self.visits = np.zeros(workers)
        self.seen_at = np.zeros(workers)
        self.interval = np.ones(workers)
        self.trust = np.ones(workers)
        self.epochs = 0.0
        self.configure(step, prox, window)
        self.squares: Any = None
        self.recentre()

    def configure(self, step: float, prox: float, window: float) -> None:
        """Set the longest η, the prox step ρ of the weights, and the share of the epochs averaged."""
        self.longest_step, self.prox, self.window = step, prox, window

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        return {name: getattr(self, name) for name in STATE}

    @classmethod
    def restored(
        cls, planes: Planes, state: Mapping[str, Any], *, step: float, prox: float, window: float
    ) -> SampledModels:
        """The models of a snapshot."""
        models = cls.__new__(cls)
        models.planes = planes
        vars(models).update(arrays(STATE, state, planes))
        models.configure(step, prox, window)
        return models

    @property
    def step_size(self) -> float:
        """η after the epochs taken."""
        return self.longest_step * preconditioner.pace(self.epochs)

    @property
    def metric(self) -> Array:
        """D."""
        return preconditioner.metric(self.squares)

    # -- one reply ------------------------------------------------------------------------------------

    def learn(self, j: int, x: Array, loss: float, gradient: Array) -> None:
        """Replace worker j's model by that of its reply at x."""
        self.visits[j] += 1
        gap = max(1.0, self.epochs - self.seen_at[j])
        self.seen_at[j] = self.epochs
        rate = max(1.0 - (1.0 - MEMORY) ** gap, 1.0 / (self.visits[j] + 1))
        change = rate * (loss - self.losses[j])
        self.losses[j] += change
        self.interval[j] += max(INTERVAL_MEMORY, 1.0 / self.visits[j]) * (gap - self.interval[j])
        before, now = self.trust[j], 1.0 / self.interval[j]
        row = self.planes.table[j, : self.planes.size]
        self.planes.losses += row * change
        kernels.replace_sums(self.slopes, self.points, row, gradient, self.G[j], x, now, self.X[j], before)
        self.trusts += row * (now - before)
        self.trust[j] = now

    def local_step(self, j: int, steps: int) -> tuple[Array, Array]:
        """a and b of worker j's local steps (`models.local`), each of η over their number."""
        scale: Array = self.step_size / steps / self.metric
        return scale, scale * (self.planes.multipliers @ self.slopes - self.G[j])

    def step(self, share: float) -> None:
        """D, λ, z and its average; share is S/N, times the local steps."""
        planes = self.planes
        self.epochs += share
        slope = self._slope = self._slope if self._slope.size else np.empty_like(self.z)
        kernels.mix(self.slopes, planes.multipliers, slope)
        mean = kernels.follow_squares(self.squares, slope, min(1.0, preconditioner.MEMORY * share))
        planes.previous[:] = planes.multipliers
        if planes.size > 1:
            pull = self.overlap / (self.prox * share)
            values = planes.losses + pull @ planes.multipliers
            kernels.climb(values, self.stiffness + pull, planes.multipliers, MOVES)
            kernels.mix(self.slopes, planes.multipliers, slope)
        pace = min(1.0, share / max(1.0, self.window * self.epochs))
        z, average = np.empty_like(slope), np.empty_like(slope)
        kernels.mix(self.points, planes.multipliers, z)
        trust = float(planes.multipliers @ self.trusts)
        kernels.precondition(
            z, self.average, slope, self.squares, preconditioner.floor(mean), self.step_size, trust, pace,
            average,
        )  # fmt: skip
        self.z, self.average = z, average

    # -- planes ---------------------------------------------------------------------------------------

    def values(self) -> Array:
        """The losses that the oracle is asked about: the running means."""
        return self.losses

    def recentre(self) -> None:
        """Sum the planes anew, and how their losses answer to λ: ηBD⁻¹Bᵀ, B the models' slopes at z.

        Costs O(|A|Np).
        """
        planes = self.planes
        table = planes.table[:, : planes.size]
        if self._room.shape[1] < planes.size:
            self._room = np.empty((2, planes.size + 2, self.z.size))
        self.slopes, self.points = self._room[:, : planes.size]
        for begin in range(0, self.losses.size, CHUNK):
            rows = slice(begin, begin + CHUNK)
            weights = table[rows]
            _add_product(weights, self.G[rows], self.slopes, begin)
            _add_product(weights * self.trust[rows, None], self.X[rows], self.points, begin)
        self.trusts = self.trust @ table
        self.overlap = table.T @ table
        planes.refresh(self.losses)
        if self.squares is None:  # the first time
            self.squares = preconditioner.follow(None, planes.multipliers @ self.slopes)
        self.stiffness = self.step_size * self._answers()

    def _answers(self) -> Array:
        """BD⁻¹Bᵀ, in blocks of columns: B whole would be written and read several times."""
        floor = preconditioner.floor(float(self.squares.mean()))
        answers = np.zeros((self.planes.size, self.planes.size))
        for begin in range(0, self.z.size, COLUMNS):
            part = slice(begin, begin + COLUMNS)
            metric = np.sqrt(self.squares[part]) + floor
            behind = self.trusts[:, None] * self.z[part] - self.points[:, part]
            slopes = self.slopes[:, part] + behind * (metric / self.step_size)
            answers += (slopes / metric) @ slopes.T
        return answers


def _add_product(weights: Array, rows: Array, sums: Array, added: int) -> None:
    """Add weightsᵀ·rows to the sums of so many rows before."""
    if added:
        sums += weights.T @ rows
    else:
        np.matmul(weights.T, rows, out=sums)
