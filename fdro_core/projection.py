"""The point of a set nearest to a given one, by the set's oracle alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Projection:
    """Wolfe's method: the nearest point as a mix of oracle answers, kept from call to call.

    Each step asks the oracle for the point of the set farthest towards the target, adds it to the mix, and
    finds the nearest point of the new mix; points that lose their weight leave. For a polytope it ends at
    the exact answer. A step costs an oracle call and O(k³ + kN) for k points in the mix.

    >>> from uncertainty_sets import Box
    >>> box = Box([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    >>> Projection(box, np.array([1.0, 0.0, 0.0])).nearest(np.array([0.5, 0.9, -1.0]), 1e-12).round(12)
    array([0.3, 0.7, 0. ])
    """

    MOST = 100
    """Steps in one call; the mix reached then is in the set, if not quite the nearest point."""

    def __init__(self, oracle: Any, member: Array) -> None:
        self.oracle = oracle
        self.planes = member[None, :].copy()
        self.weights = np.ones(1)

    def nearest(self, target: Array, tolerance: float) -> Array:
        """The nearest p, to where no point of the set has (point - p)ᵀ(target - p) above the tolerance."""
        self._correct(target)
        for _ in range(self.MOST):
            p = self.weights @ self.planes
            towards = target - p
            farthest = self.oracle.worst_case(towards).p
            if float((farthest - p) @ towards) <= tolerance:
                break
            if (np.abs(self.planes - farthest).max(axis=1) < 1e-14).any():
                break  # rounding: it is in the mix already
            self.planes = np.vstack([self.planes, farthest])
            self.weights = np.append(self.weights, 0.0)
            self._correct(target)
        nearest: Array = self.weights @ self.planes
        return nearest

    def _correct(self, target: Array) -> None:
        """The nearest point of the mix: least squares with Σλ = 1, leaving the simplex's faces one by one."""
        while True:
            free = _affine_weights(self.planes - target)
            negative = free <= 1e-13
            if not negative.any():
                self.weights = free
                return
            # From the old weights as far towards the free ones as all stay >= 0; who is 0 there leaves.
            fall = self.weights - free
            limit = np.where(negative & (fall > 0.0), self.weights / np.where(fall > 0.0, fall, 1.0), np.inf)
            step = min(1.0, float(limit.min()))
            mixed = self.weights + step * (free - self.weights)
            leaving = int(np.where(negative, limit, np.inf).argmin())
            keep = mixed > 1e-13
            keep[leaving] = False
            if not keep.any():
                keep[int(mixed.argmax())] = True
            self.planes, self.weights = self.planes[keep], mixed[keep] / mixed[keep].sum()


def _affine_weights(rows: Array) -> Array:
    """λ with Σλ = 1 that makes ‖λᵀrows‖ least."""
    gram = rows @ rows.T
    size = len(gram)
    if size == 1:
        return np.ones(1)
    gram[np.diag_indices(size)] += 1e-13 * float(np.trace(gram)) / size
    solved = np.linalg.solve(gram + float(np.trace(gram)) / size, np.ones(size))
    weights: Array = np.asarray(solved / solved.sum(), dtype=np.float64)
    return weights
