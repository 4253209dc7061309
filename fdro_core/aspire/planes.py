"""The cutting planes: EASE and CP (Section IV).

A plane is stored as its distribution p_l, since the paper's nominal p̄ cancels: the constraint is
p_lᵀf <= h. The planes stand in the columns of an (N, capacity) array, so that one worker's entries lie
together, and P·f follows every loss as it comes: an iteration costs O(|A|), a plane update O(N|A|).

While workers are left out, a plane in use is that of the set with their weight given to the others. It need
not be in the set, so the set's own plane is kept beside it, for the time when the workers are back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fdro_core.aspire.admm.kernels import weight_of
from fdro_core.history import largest_loss
from fdro_core.master.roster import redistribute
from fdro_core.protocol.saved import AGREE, Form, Kept, Saved, flag, listing, numbers, or_none, whole
from uncertainty_sets.arrays import Array

VIOLATION = 1e-10  # of the losses' spread: a new plane must cut off more than that
STRAY = 1e-7  # a plane that violates the set by more is none of its planes; conic answers reach 1e-8
SAME = 1e-6  # planes closer than this in every entry are the same plane coming back
DUST = 1e-16  # what rounding leaves of a zero in an answer; a true zero saves a pass over all parameters


class Planes(Kept):
    """The active planes A.

    Attributes:
        table: the planes as columns, (N, capacity); the first `size` are in use.
        whole: the same as the set has them, None if that is `table`.
        kept: which workers are not left out, None for all.
        multipliers: λ, a view of `size` entries, like the next two.
        previous: λ of the iteration before.
        losses: P·f.
        peak, added, returned: the most planes at a time, all that were added, and those that came back
            after they had been dropped.

    Args:
        first: the distribution of the first plane, which gets λ = 1.
        keep_all: CP; False is EASE.
        limit: M, for EASE.
        patience: plane updates in a row at which a plane is found without weight before EASE drops it; the
            paper's rule is 1.
    """

    saved: ClassVar[Form] = {
        "keep_all": flag,
        **dict.fromkeys(("limit", "patience", "peak", "added", "returned"), whole()),
        "size": whole(1),
        "table": numbers("N capacity"),
        "kept": or_none(listing("N")),
        "whole": or_none(numbers("N capacity")),
        **dict.fromkeys(("_multipliers", "_previous", "_losses", "_idle"), numbers("capacity")),
        "dropped": numbers("dropped N"),
    }

    def __init__(self, first: Array, *, keep_all: bool, limit: int, patience: int = 1) -> None:
        self.keep_all = keep_all
        self.limit = limit
        self.patience = patience
        self.size = 1
        capacity = 8 if keep_all else limit
        self.table = np.zeros((first.size, capacity))
        self.table[:, 0] = first
        self.whole: Array | None = None
        self.kept: list[bool] | None = None
        self._multipliers = np.zeros(capacity)
        self._multipliers[0] = 1.0
        self._previous = np.zeros(capacity)
        self._previous[0] = 1.0
        self._losses = np.zeros(capacity)
        self._idle = np.zeros(capacity)  # plane updates since it was last found with weight
        self.dropped = np.zeros((0, first.size))
        self.peak = 1
        self.added = 0
        self.returned = 0
        self._view()

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Planes:
        """The planes of a snapshot."""
        planes = cls.__new__(cls)
        planes.take(state)
        planes._view()
        return planes

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check that the planes in use are distributions."""
        super().check_saved(saved, name, value)
        size, capacity = value["size"], value["table"].shape[1]
        if size > capacity:
            raise saved.error(f"{name}.size", f"is {size}, with room for {capacity}")
        if (value["kept"] is None) != (value["whole"] is None):
            raise saved.error(f"{name}.whole", "and kept must both be there, or neither")
        planes = value["table"][:, :size]
        if np.abs(planes.sum(axis=0) - 1.0).max() > AGREE or planes.min() < -AGREE:
            raise saved.error(f"{name}.table", "holds a plane that is not a distribution")
        saved.sizes["planes"] = size

    def _view(self) -> None:
        """Make views of the entries in use, once: an iteration reads them several times."""
        self.multipliers = self._multipliers[: self.size]
        self.previous = self._previous[: self.size]
        self.losses = self._losses[: self.size]

    def matrix(self) -> Array:
        """The planes as rows, (|A|, N), a copy."""
        return np.ascontiguousarray(self.table[:, : self.size].T)

    def refresh(self, losses: Array) -> None:
        """Compute P·f from scratch, which also removes the rounding errors of its running updates."""
        self._losses[: self.size] = losses @ self.table[:, : self.size]

    def weights(self) -> Array:
        """s = Pᵀλ for every worker."""
        weights: Array = self.table[:, : self.size] @ self.multipliers
        return weights

    def weight(self, j: int) -> float:
        """s_j = Σ_l λ_l p_{l,j}."""
        return weight_of(self.table[j], self.multipliers)

    def in_use(self, p: Array) -> Array:
        """The plane p as it is used: the weight of workers that are left out goes to the others."""
        return p if self.kept is None else redistribute(p, self.kept)

    def leave_out(self, kept: Sequence[bool] | None) -> bool:
        """Leave out all workers but those kept, None: none, from planes that are there and those to come.

        Returns whether the planes changed. P·f is to be refreshed.
        """
        kept = None if kept is None or all(kept) else list(kept)
        if kept == self.kept:
            return False
        whole = self.table if self.whole is None else self.whole
        self.kept, self.whole = kept, None if kept is None else whole
        self.table = whole
        self._use()
        return True

    def _use(self) -> None:
        """Derive the planes in use from those of the set."""
        if self.whole is not None:
            self.table = self.whole.copy()
            for column in range(self.size):
                self.table[:, column] = self.in_use(self.whole[:, column])

    def check(self, violation: Callable[[Array], float] | None, reference: Array) -> bool:
        """Remove the planes that are not in the set, after a resume with another one; whether there were any.

        A set that cannot measure a violation has none but its reference, which takes the place of the last
        plane removed.
        """
        whole = self.table if self.whole is None else self.whole
        columns = whole.T[: self.size]
        if violation is None:
            outside = ~(columns == reference).all(axis=1)
        else:
            outside = np.array([not violation(column.copy()) <= STRAY for column in columns])
        if not outside.any():
            return False
        if outside.all():
            whole[:, 0], outside[0] = reference, False
        self._remove(np.flatnonzero(outside), remember=False)
        self.dropped = self.dropped[:0]
        self._use()
        self.settle()
        return True

    def settle(self) -> None:
        """Scale λ to a sum of 1, since a plane that was removed may have had some; if none is left, the last
        plane has all.
        """
        total = float(self.multipliers.sum())
        if total > 0:
            self.multipliers[:] /= total
        else:
            self.multipliers[-1] = 1.0

    def update(self, p: Array, losses: Array) -> bool:
        """Add the oracle's answer p if it is violated, Eq. (19)-(20), and remove idle planes, Eq. (21).

        Returns whether the planes changed.
        """
        self.refresh(losses)
        spread = float(np.ptp(losses))
        value = float(self.in_use(p) @ losses)
        violated = value > float(self.losses.max()) + VIOLATION * spread
        idle = np.zeros(0, dtype=np.intp)
        if not self.keep_all:
            since = self._idle[: self.size]
            since += 1.0
            since[(self.multipliers != 0) | (self.previous != 0)] = 0.0
            idle = np.flatnonzero(since >= self.patience)
            if idle.size == self.size and not violated:
                idle = idle[1:]  # never the last one
        if idle.size:
            self._remove(idle)
        if violated:
            self._add(p, value)
        if self.whole is not None:
            self._use()
            self.refresh(losses)
        return violated or idle.size > 0

    def _add(self, p: Array, loss: float) -> None:
        if len(self.dropped) and float(np.abs(self.dropped - p).max(axis=1).min()) < SAME:
            self.returned += 1
        if not self.keep_all and self.size == self.limit:
            self._merge()
        if self.size == self.table.shape[1]:
            self.table = np.concatenate([self.table, np.zeros_like(self.table)], axis=1)
            if self.whole is not None:
                self.whole = np.concatenate([self.whole, np.zeros_like(self.whole)], axis=1)
            self._multipliers, self._previous, self._losses, self._idle = (
                np.concatenate([part, np.zeros_like(part)])
                for part in (self._multipliers, self._previous, self._losses, self._idle)
            )
        last = self.size
        for table in self._tables():
            table[:, last] = np.where(p > DUST, p, 0.0)
        self._multipliers[last] = self._previous[last] = self._idle[last] = 0.0
        self._losses[last] = loss
        self.size += 1
        self.added += 1
        self._view()
        self.peak = max(self.peak, self.size)

    def _merge(self) -> None:
        """Make room: drop the plane that is idle for longest, the one of smaller loss among equals.

        If all have had weight since the last update, replace the two of smallest λ by their weighted mean,
        which is still in P.
        """
        a, b = np.lexsort((self.losses, self.multipliers, -self._idle[: self.size]))[:2]
        if self._idle[a] > 0.0:
            self._remove(np.array([a]))
            return
        total = self._multipliers[a] + self._multipliers[b]
        if total > 0:
            share = self._multipliers[b] / total
            for table in self._tables():
                table[:, b] = (1 - share) * table[:, a] + share * table[:, b]
            self._losses[b] = (1 - share) * self._losses[a] + share * self._losses[b]
            self._multipliers[b] = total
            self._previous[b] += self._previous[a]
        self._remove(np.array([a]), remember=total == 0)

    def _remove(self, which: NDArray[np.intp], *, remember: bool = True) -> None:
        if remember:
            removed = self._tables()[-1][:, which].T
            self.dropped = np.concatenate([self.dropped, removed])[-self.limit :]
        keep = np.ones(self.size, dtype=bool)
        keep[which] = False
        left = int(keep.sum())
        for table in self._tables():
            table[:, :left] = table[:, : self.size][:, keep]
        for part in (self._multipliers, self._previous, self._losses, self._idle):
            part[:left] = part[: self.size][keep]
        self.size = left
        self._view()

    def _tables(self) -> list[Array]:
        """The planes in use and those of the set; one table if they are the same."""
        return [self.table] if self.whole is None else [self.table, self.whole]


def check_plane_losses(saved: Saved, name: str, planes: Mapping[str, Any], losses: Array) -> None:
    """Check P·f of saved planes against the workers' losses."""
    size = planes["size"]
    off = np.abs(losses @ planes["table"][:, :size] - planes["_losses"][:size]).max()
    scale = max(np.abs(losses).max(), largest_loss(saved.of("history")), 1.0)  # as large as they were
    saved.agree(f"{name}._losses", off, scale, "do not agree with the planes and the workers' losses")
