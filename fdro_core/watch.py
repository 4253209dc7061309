"""A look at the workers beside each other: whose numbers are far beyond the others'?

A worker may send numbers that are finite and still wrong: a model that it scaled, a curvature in other units.
Nothing here bounds what that does to the run; it is noticed and told, with the worker's name. A look costs
O(N) and no pass over parameters: ‖w_j‖² falls out of the pass that the master makes over every w_j.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Found = list[tuple[int, str]]

FAR = 1e4  # times the others' norm; honest copies of one model are within a few N of each other
GROWTH = 1e8  # of the model's norm, or of the losses, since the start
UNEQUAL = 1e8  # of metrics or curvatures: the others' steps are that much too short
BEFORE = 3  # tickets, so two answers: copies that start from 0 are as different as the first gradients

STATE = ("sizes", "scale", "baseline", "told")


class Watch:
    """What the master remembers to compare its workers by.

    Attributes:
        sizes: ‖w_j‖² as last received.
        scale: of the losses at the start, |f_j| + ‖g_j‖²/L_j.
        baseline: the model's norm after the first answers, 0 before.
        told: workers that were named, each once; -1 where the model ran away and that was told.
    """

    def __init__(self, workers: int, z: Array, losses: Array, gradient_sq: Array, curvature: Array) -> None:
        self.sizes = np.full(workers, float(z @ z))
        drop = np.divide(gradient_sq, curvature, out=np.zeros(workers), where=curvature > 0)
        self.scale = float(np.max(np.abs(losses) + drop))
        self.baseline = 0.0
        self.told: list[int] = []

    def look(self, alive: Sequence[bool], tickets: Sequence[int], objective: float) -> Found:
        """Who is far beyond the others now and was not before."""
        seen = np.flatnonzero(np.asarray(alive) & (np.asarray(tickets) >= BEFORE))
        if seen.size == 0:
            return []
        norms = np.sqrt(self.sizes[seen])
        usual, largest = lower_median(norms), int(np.argmax(norms))
        found: Found = []
        if usual > 0:
            # Once a worker has drawn the model away, those that follow are beyond those that have not yet.
            known = max([usual, *np.sqrt(self.sizes[[j for j in self.told if j >= 0]])])
            if norms[largest] > max(FAR, 100.0 * len(alive)) * known:
                said = f"its model has a norm of {norms[largest]:.2g}, those of the others {usual:.2g}"
                found.append((int(seen[largest]), said))
            self.baseline = self.baseline or usual
        grown = max(usual / self.baseline if self.baseline else 0.0, self._growth(objective))
        if grown > GROWTH and -1 not in self.told:
            self.told.append(-1)
            said = f"model or losses have grown {grown:.1g}-fold since the start, and its copy is the largest"
            found.append((int(seen[largest]), said))
        return self._new(found)

    def probed(self, losses: Array, known: Array) -> Found:
        """Whose loss at the model is far beyond what it reported before and what the others have."""
        measured = np.isfinite(losses)
        if not measured.any():
            return []
        sizes = np.abs(losses)
        usual = max(lower_median(sizes[measured]), self.scale)
        odd = measured & (sizes > GROWTH * np.maximum(usual, np.abs(known)))
        found = [
            (int(j), f"its loss at the model is {losses[j]:.2g}, and it reported {known[j]:.2g} before")
            for j in np.flatnonzero(odd)
        ]
        return self._new(found)

    def _growth(self, objective: float) -> float:
        return abs(objective) / self.scale if self.scale > 0 else 0.0

    def _new(self, found: Found) -> Found:
        """Those that were not named before, each once."""
        fresh = {j: said for j, said in found if j not in self.told}
        self.told.extend(fresh)
        return list(fresh.items())

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        return {name: getattr(self, name) for name in STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        for name in STATE:
            setattr(self, name, state[name])


def unequal(what: str, values: Mapping[int, float]) -> Found:
    """Whose metric or curvature leaves the others no step worth the name."""
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
