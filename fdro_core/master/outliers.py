"""Find workers whose numbers are far beyond the others'.

A worker may send numbers that are finite and still wrong: a model that it scaled, a curvature in other units.
Nothing here bounds what that does to the run; it is reported, with the worker's index. A comparison costs
O(N) and no pass over parameters: the master's own pass over every w_j gives ‖w_j‖². If workers send gradients
instead of models, ‖w_j‖ is how far the gradient alone would lead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fdro_core.protocol.saved import Form, Kept, listing, numbers, real, worker_index
from uncertainty_sets.arrays import Array

Found = list[tuple[int, str]]

FAR = 1e4  # times the others' norm; honest copies of one model are within a few N of each other
GROWTH = 1e8  # of the model's norm, or of the losses, since the start
HOPELESS = 1e12  # the same, from which the model does not recover
UNEQUAL = 1e8  # of metrics or curvatures: the others' steps are too short by that factor
EXCESS = 2.0  # of ‖w_j‖ over what the worker was sent: less may be an honest step
LEADS = 1.05  # the same, if the model certainly diverges and no worker was named
BEFORE = 3  # tickets, so two answers: copies that start from 0 are as different as the first gradients


class Outliers(Kept):
    """What the master keeps to compare its workers.

    Attributes:
        books: one row per worker, written by the master: ‖w_j‖² as last received, the square of what it was
            sent, and its excess over that.
        subject: the begin of the sentence that names a worker.
        scale: of the losses at the start, |f_j| + ‖g_j‖²/L_j.
        baseline: the model's norm after the first answers, 0 before.
        told: workers that were named, each once.
    """

    saved: ClassVar[Form] = {
        "books": numbers("N 3"),
        "scale": real(),
        "baseline": real(),
        "told": listing("", worker_index),
    }

    def __init__(
        self,
        workers: int,
        z: Array,
        losses: Array,
        gradient_sq: Array,
        curvature: Array,
        subject: str = "its model has",
    ) -> None:
        self.subject = subject
        self.books = np.zeros((workers, 3))
        self.books[:, :2] = float(z @ z)
        drop = np.divide(gradient_sq, curvature, out=np.zeros(workers), where=curvature > 0)
        self.scale = float(np.max(np.abs(losses) + drop))
        self.baseline = 0.0
        self.told: list[int] = []
        self._derive()

    def _derive(self) -> None:
        self.rows = list(self.books)  # views, made once: one is needed in every iteration

    def look(self, alive: Sequence[bool], tickets: Sequence[int], objective: float) -> Found:
        """Name the worker that draws the model away, if one does and was not named before.

        That one does shows in the copies' norms, in the model's norm or in the losses. By then honest copies
        follow it; the leader is the one that went furthest beyond what it was sent.
        """
        seen = np.flatnonzero(np.asarray(alive) & (np.asarray(tickets) >= BEFORE))
        if seen.size == 0:
            return []
        norms = np.sqrt(self.books[seen, 0])
        usual, largest = lower_median(norms), float(norms.max())
        self.baseline = self.baseline or usual
        spread = largest / usual if usual > 0 else 0.0
        grown = max(usual / self.baseline if self.baseline else 0.0, self._growth(objective))
        if spread <= max(FAR, 100.0 * len(alive)) and grown <= GROWTH:
            return []
        leader = int(seen[np.argmax(self.books[seen, 2])])
        excess = float(np.sqrt(self.books[leader, 2]))
        if excess <= self._needed(grown):
            return []  # no worker stands out yet
        reason = f"{self.subject} up to {excess:.2g} times the norm of what it was sent, and "
        if grown > GROWTH:
            reason += f"model or losses have grown {grown:.1g}-fold since the start"
        else:
            reason += f"norms of models reach {largest:.2g}, and the usual is {usual:.2g}"
        return self._new([(leader, reason)])

    def probed(self, losses: Array, known: Array) -> Found:
        """Name workers whose loss at the model is far beyond what they and the others reported before."""
        measured = np.isfinite(losses)
        if not measured.any():
            return []
        magnitude = np.abs(losses)
        usual = max(lower_median(magnitude[measured]), self.scale)
        odd = measured & (magnitude > GROWTH * np.maximum(usual, np.abs(known)))
        found = [
            (int(j), f"its loss at the model is {losses[j]:.2g}, and it reported {known[j]:.2g} before")
            for j in np.flatnonzero(odd)
        ]
        return self._new(found)

    def _needed(self, grown: float) -> float:
        """The excess above which a worker is named; any, if the model has diverged beyond recovery."""
        if self.told or grown <= GROWTH:
            return EXCESS
        return LEADS if grown <= HOPELESS else 0.0

    def _growth(self, objective: float) -> float:
        return abs(objective) / self.scale if self.scale > 0 else 0.0

    def _new(self, found: Found) -> Found:
        """Keep those that were not named before, each once."""
        fresh = {j: reason for j, reason in found if j not in self.told}
        self.told.extend(fresh)
        return list(fresh.items())

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        self.take(state)
        self._derive()


def unequal(what: str, values: Mapping[int, float]) -> Found:
    """Name workers whose metric or curvature makes the others' steps far too short."""
    if len(values) < 2:
        return []
    usual = lower_median(np.array(list(values.values())))
    if not usual > 0:
        return []
    return [
        (j, f"its {what} is {value:.2g} and those of the others {usual:.2g}: steps are shorter by that much")
        for j, value in values.items()
        if value > UNEQUAL * usual
    ]


def lower_median(values: Array) -> float:
    """The middle one, the lower of two: among two workers the smaller is the usual one.

    >>> lower_median(np.array([3.0, 1.0])), lower_median(np.array([3.0, 1.0, 2.0]))
    (1.0, 2.0)
    """
    return float(np.sort(values)[(values.size - 1) // 2])


def others_median(values: Array) -> Array:
    """For each of two or more values the median of all others, the upper of two.

    One false value among the others moves it by one place at most, to a true one: with three workers, a
    liar that reports 0 does not lower the bound of the honest ones. Costs a sort.

    >>> others_median(np.array([1.0, 5.0, 2.0, 9.0]))
    array([5., 2., 5., 2.])
    """
    order = np.argsort(values, kind="stable")
    below, above, first = _middle(values[order])
    medians = np.full(values.size, below)
    medians[order[:first]] = above
    return medians


def others_spread(values: Array) -> tuple[Array, Array]:
    """For each of two or more values the median m of all others, and the median of their distances to m.

    >>> middle, spread = others_spread(np.array([1.0, 5.0, 2.0, 9.0]))
    >>> spread  # of 2, 5, 9 around 5; of 1, 2, 9 around 2; of 1, 5, 9 around 5; of 1, 2, 5 around 2
    array([3., 1., 4., 1.])
    """
    middle = others_median(values)
    below, above, _ = _middle(np.sort(values))
    around = [others_median(np.abs(values - each)) for each in (below, above)]
    return middle, np.where(middle == below, *around)


def _middle(ordered: Array) -> tuple[float, float, int]:
    """The two values that are medians of the others, and to how many of the lowest the second belongs."""
    place = (ordered.size - 1) // 2
    return float(ordered[place]), float(ordered[place + 1]), place + 1
