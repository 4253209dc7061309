"""The point of a set nearest to a given one, for any set by its oracle alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from fdro_core.estimators.budget_projection import exact_projection
from uncertainty_sets.arrays import Array

GONE = 1e-13  # a weight that counts as zero


class Projection:
    """The nearest point in closed form where there is one (budget_projection.py), else by Wolfe's method.

    That holds the nearest point as a mix of oracle answers, kept from call to call. Each step asks the oracle
    for the point of the set farthest towards the target, adds it to the mix, and finds the nearest point of
    the new mix; points that lose their weight leave. For a polytope it ends at the exact answer. A
    step costs an oracle call and O(k³ + kN) for k points in the mix.

    Args:
        oracle: the set.
        member: any point of it.
        most: steps in one call; the mix reached then is in the set, if not quite the nearest point.

    >>> from uncertainty_sets import Polyhedron
    >>> anywhere = Polyhedron([[1.0, 0.0, 0.0]], [1.0])
    >>> Projection(anywhere, np.array([1.0, 0.0, 0.0])).nearest(np.array([0.5, 0.9, -1.0]), 1e-12).round(12)
    array([0.3, 0.7, 0. ])
    """

    def __init__(self, oracle: Any, member: Array, most: int = 25) -> None:
        self.oracle, self.most = oracle, most
        self.exact = exact_projection(oracle)
        self.points = member[None, :].copy()
        self.products = self.points @ self.points.T
        self.weights = np.ones(1)

    def nearest(self, target: Array, tolerance: float) -> Array:
        """The nearest p, to where no point of the set has (point - p)ᵀ(target - p) above the tolerance."""
        if self.exact is not None:
            return self.exact(target)
        towards_points = self._correct(self.points @ target)
        for _ in range(self.most):
            p = self.weights @ self.points
            towards = target - p
            farthest = self.oracle.worst_case(towards).p
            if float((farthest - p) @ towards) <= tolerance:
                break
            if (np.abs(self.points - farthest).max(axis=1) < 1e-14).any():
                break  # rounding: it is in the mix already
            self._add(farthest)
            towards_points = self._correct(np.append(towards_points, farthest @ target))
        nearest: Array = self.weights @ self.points
        return nearest

    def _add(self, point: Array) -> None:
        column = self.points @ point
        self.products = np.block(
            [[self.products, column[:, None]], [column[None, :], np.array([[point @ point]])]]
        )
        self.points = np.vstack([self.points, point])
        self.weights = np.append(self.weights, 0.0)

    def _correct(self, towards: Array) -> Array:
        """Go to the nearest point of the mix, leaving the faces of its simplex one by one.

        `towards` is points·target; what belongs to the points that stay is given back.
        """
        while True:
            free = _nearest_in_plane(self.products, towards)
            negative = free <= GONE
            if not negative.any():
                self.weights = free
                return towards
            # From the old weights as far towards the free ones as all stay >= 0; who is 0 there leaves.
            fall = np.where(negative, self.weights - free, 0.0)
            limit = np.full(free.size, np.inf)
            np.divide(self.weights, fall, out=limit, where=fall > 0.0)
            limit[negative & (self.weights <= GONE)] = 0.0
            step = min(1.0, float(limit.min()))
            mixed = self.weights + step * (free - self.weights)
            keep = mixed > GONE
            keep[int(limit.argmin())] = False
            if not keep.any():
                keep[int(mixed.argmax())] = True
            self.points, self.products = self.points[keep], self.products[np.ix_(keep, keep)]
            self.weights, towards = mixed[keep] / mixed[keep].sum(), towards[keep]


def _nearest_in_plane(products: Array, towards: Array) -> Array:
    """λ with Σλ = 1 that makes ‖λᵀpoints - target‖ least, from points·pointsᵀ and points·target."""
    size = towards.size
    if size == 1:
        return np.ones(1)
    scale = float(products.trace()) / size
    matrix = products + scale  # the same on Σλ = 1, and regular where the points' plane holds the origin
    matrix.flat[:: size + 1] += 1e-13 * scale
    both = np.linalg.solve(matrix, np.column_stack([towards, np.ones(size)]))
    weights: Array = both[:, 0] + (1.0 - both[:, 0].sum()) / both[:, 1].sum() * both[:, 1]
    return weights
