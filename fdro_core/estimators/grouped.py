"""Softmax regression over groups of samples, all in one matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.estimators.central import Pull
from fdro_core.problems.kernels import cross_entropies
from uncertainty_sets.arrays import Array


class GroupedSoftmax:
    """f_g(w) = the mean cross-entropy of group g; w the C-order ravel of (features + 1, classes), bias last.

    One evaluation costs one product with X, and one more for a gradient, for any number of groups.

    Args:
        X: (samples, features), dense or scipy sparse.
        y: labels 0..classes-1.
        group: 0..groups-1 for each sample; every group has samples.
        classes: C.
        l2: the ridge that will be added; only the metric uses it.
    """

    def __init__(
        self, X: Any, y: NDArray[np.intp], group: NDArray[np.intp], classes: int, l2: float = 0.0
    ) -> None:
        self.X, self.y, self.group, self.classes, self.l2 = X, y, group, classes, l2
        self.sizes = np.bincount(group)
        self._share = 1.0 / self.sizes[group]
        self._alone = bool((self.sizes == 1).all() and (group == np.arange(group.size)).all())
        self.dimension = (X.shape[1] + 1) * classes

    def scores(self, w: Array) -> Array:
        """X W + b, (samples, classes)."""
        matrix = w.reshape(-1, self.classes)
        product: Array = np.ascontiguousarray(self.X @ matrix[:-1])
        product += matrix[-1]
        return product

    def evaluate(self, w: Array) -> tuple[Array, Pull]:
        """Every group's loss, and p ↦ Σ_g p_g ∇f_g(w)."""
        residual, losses = self.scores(w), np.empty(self.y.size)
        cross_entropies(residual, self.y, losses)

        def pull(p: Array) -> Array:
            weighted = residual * (p if self._alone else p[self.group] * self._share)[:, None]
            return np.concatenate([np.ravel(self.X.T @ weighted), weighted.sum(axis=0)])

        if self._alone:
            return losses, pull
        means: Array = np.bincount(self.group, weights=losses * self._share).astype(np.float64)
        return means, pull

    def metric(self) -> Array:
        """½·E x² + l2, since the softmax Hessian is at most ½ in each class; at least 1e-9 of the largest."""
        square = self.X.multiply(self.X) if hasattr(self.X, "multiply") else self.X**2
        mean = np.append(np.asarray(square.mean(axis=0)).ravel(), 1.0)
        curvature = 0.5 * mean + self.l2
        floored: Array = np.repeat(np.maximum(curvature, 1e-9 * curvature.max()), self.classes)
        return floored
