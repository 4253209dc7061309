"""The sums over workers that a step of mini-batches mixes: followed for every plane, or taken anew.

With s = Pᵀλ a step needs Σ_j s_jg_j and Σ_j s_ja_jx_j, a plane update also those of every plane. `PlaneSums`
follows the planes' sums: a reply costs O(|A|p), whatever N is. `WorkerSums` follows nothing and sums over the
workers: O(Np), less if there are hardly more workers than planes, for a reply then replaces one row alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import inf

import numpy as np

from fdro_core.aspire.models import kernels
from fdro_core.aspire.planes import Planes
from fdro_core.protocol.saved import Form, numbers
from uncertainty_sets.arrays import Array

FEW = 8  # workers: so many are summed anew
CHUNK = 64  # workers at a time when planes are summed anew

OF_SUMS: Form = {
    **dict.fromkeys(("slopes", "points"), numbers("planes p", most=inf)),
    "trusts": numbers("planes", most=inf),
}
"""What a snapshot of either form keeps."""


class Sums(ABC):
    """What the models of mini-batches ask of either form.

    Attributes:
        planes: P and λ.
        X, G: x_j and g_j, (N, p).
        trust: a_j.
    """

    def __init__(self, planes: Planes, X: Array, G: Array, trust: Array) -> None:
        self.planes, self.X, self.G, self.trust = planes, X, G, trust

    @property
    def table(self) -> Array:
        """P of the active planes, a row for every worker."""
        return self.planes.table[:, : self.planes.size]

    @abstractmethod
    def replace(self, j: int, gradient: Array, x: Array, trust: float) -> None:
        """Put (x, g, a) in the place of worker j's."""

    @abstractmethod
    def descent(self, out: Array) -> Array:
        """Write Σ_j s_jg_j into out, and return it."""

    @abstractmethod
    def anchor(self, out: Array) -> float:
        """Write Σ_j s_ja_jx_j into out; return Σ_j s_ja_j."""

    @abstractmethod
    def of_planes(self, part: slice) -> tuple[Array, Array, Array]:
        """Σ_j p_ljg_j and Σ_j p_lja_jx_j of every plane, a part of their entries, and Σ_j p_lja_j."""

    @abstractmethod
    def recentre(self) -> None:
        """Sum what is followed anew."""

    def snapshot(self) -> dict[str, Array]:
        """The planes' sums, whole."""
        return dict(zip(OF_SUMS, self.of_planes(slice(None)), strict=True))


class PlaneSums(Sums):
    """Sums of every plane, which follow each reply."""

    # An array that is used again: new pages of memory would cost more than the sums that are written to them.
    _room: Array = np.empty((2, 0, 0))

    def replace(self, j: int, gradient: Array, x: Array, trust: float) -> None:
        """Put (x, g, a) in the place of worker j's."""
        before, row = self.trust[j], self.planes.table[j, : self.planes.size]
        slopes, points = self.slopes, self.points
        kernels.replace_sums(slopes, points, row, gradient, self.G[j], x, trust, self.X[j], before)
        self.trusts += row * (trust - before)
        self.trust[j] = trust

    def descent(self, out: Array) -> Array:
        """Write Σ_j s_jg_j into out, and return it."""
        kernels.mix(self.slopes, self.planes.multipliers, out)
        return out

    def anchor(self, out: Array) -> float:
        """Write Σ_j s_ja_jx_j into out; return Σ_j s_ja_j."""
        kernels.mix(self.points, self.planes.multipliers, out)
        return float(self.planes.multipliers @ self.trusts)

    def of_planes(self, part: slice) -> tuple[Array, Array, Array]:
        """The sums of every plane, a part of their entries."""
        return self.slopes[:, part], self.points[:, part], self.trusts

    def recentre(self) -> None:
        """Sum the planes anew. Costs O(|A|Np)."""
        size, table = self.planes.size, self.table
        if self._room.shape[1] < size:
            self._room = np.empty((2, size + 2, self.X.shape[1]))
        self.slopes, self.points = self._room[:, :size]
        for begin in range(0, len(table), CHUNK):
            rows = slice(begin, begin + CHUNK)
            weights = table[rows]
            _add_product(weights, self.G[rows], self.slopes, begin)
            _add_product(weights * self.trust[rows, None], self.X[rows], self.points, begin)
        self.trusts = self.trust @ table

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from a snapshot's sums, to the bit."""
        self.slopes, self.points, self.trusts = (state[name] for name in OF_SUMS)


class WorkerSums(Sums):
    """Sums over the workers, taken when they are needed."""

    def replace(self, j: int, gradient: Array, x: Array, trust: float) -> None:
        """Put (x, g, a) in the place of worker j's."""
        self.G[j], self.X[j], self.trust[j] = gradient, x, trust

    def descent(self, out: Array) -> Array:
        """Write Σ_j s_jg_j into out, and return it."""
        kernels.mix(self.G, self.table @ self.planes.multipliers, out)
        return out

    def anchor(self, out: Array) -> float:
        """Write Σ_j s_ja_jx_j into out; return Σ_j s_ja_j."""
        weights = self.trust * (self.table @ self.planes.multipliers)
        kernels.mix(self.X, weights, out)
        return float(weights.sum())

    def of_planes(self, part: slice) -> tuple[Array, Array, Array]:
        """The sums of every plane, a part of their entries."""
        table = self.table
        points = (table * self.trust[:, None]).T @ self.X[:, part]
        return table.T @ self.G[:, part], points, self.trust @ table

    def recentre(self) -> None:
        """Nothing is followed."""


def _add_product(weights: Array, rows: Array, sums: Array, added: int) -> None:
    """Add weightsᵀ·rows to the sums of so many rows before."""
    if added:
        sums += weights.T @ rows
    else:
        np.matmul(weights.T, rows, out=sums)
