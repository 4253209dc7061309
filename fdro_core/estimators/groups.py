"""Linear models over groups of samples: every group's loss, and the gradient of any mix of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.problems.kernels import cross_entropies
from uncertainty_sets.arrays import Array

if TYPE_CHECKING:
    from fdro_core.estimators.central import Pull


class Grouped(ABC):
    """f_g(w) = the (weighted) mean loss of group g; w is the C-order ravel of (features + 1, outputs).

    The bias is last.

    One evaluation costs one product with X, and one more for a gradient, for any number of groups.

    Args:
        X: (samples, features), dense or scipy sparse.
        y: the samples' labels or targets.
        group: 0..groups-1 for each sample; every group has samples.
        outputs: scores per sample.
        l2: the ridge that will be added; only the metric uses it.
        weight: of each sample within its group, > 0; None: all the same.
    """

    curvature = 1.0
    """A bound or estimate of a sample's second derivative in each score, for the metric."""

    def __init__(
        self,
        X: Any,
        y: NDArray[Any],
        group: NDArray[np.intp],
        outputs: int,
        l2: float = 0.0,
        weight: Array | None = None,
    ) -> None:
        self.X, self.y, self.group, self.outputs, self.l2, self.weight = X, y, group, outputs, l2, weight
        self.sizes = np.bincount(group)
        if weight is None:
            self._share = 1.0 / self.sizes[group]
        else:
            self._share = weight / np.bincount(group, weights=weight)[group]
        self._alone = bool((self.sizes == 1).all() and (group == np.arange(group.size)).all())
        self.dimension = (X.shape[1] + 1) * outputs

    @abstractmethod
    def samples(self, scores: Array) -> tuple[Array, Array]:
        """Every sample's loss, and its derivatives in the scores, (samples, outputs); may use up `scores`."""

    def scores(self, w: Array) -> Array:
        """X W + b, (samples, outputs)."""
        matrix = w.reshape(-1, self.outputs)
        product: Array = np.ascontiguousarray(self.X @ matrix[:-1])
        product += matrix[-1]
        return product

    def evaluate(self, w: Array) -> tuple[Array, Pull]:
        """Every group's loss, and p ↦ Σ_g p_g ∇f_g(w)."""
        losses, slopes = self.samples(self.scores(w))

        def pull(p: Array) -> Array:
            weighted = slopes * (p if self._alone else p[self.group] * self._share)[:, None]
            return np.concatenate([np.ravel(self.X.T @ weighted), weighted.sum(axis=0)])

        if self._alone:
            return losses, pull
        return self.means(losses), pull

    def means(self, values: Array) -> Array:
        """Every group's (weighted) mean of one value per sample."""
        found: Array = np.bincount(self.group, weights=values * self._share).astype(np.float64)
        return found

    def metric(self) -> Array:
        """curvature·E x² + l2, at least 1e-9 of the largest entry."""
        square = self.X.multiply(self.X) if hasattr(self.X, "multiply") else self.X**2
        mean = np.append(np.asarray(square.mean(axis=0)).ravel(), 1.0)
        curvature = self.curvature * mean + self.l2
        floored: Array = np.repeat(np.maximum(curvature, 1e-9 * curvature.max()), self.outputs)
        return floored


class GroupedSoftmax(Grouped):
    """Cross-entropies of softmax regression; y holds labels 0..outputs-1."""

    curvature = 0.5

    def samples(self, scores: Array) -> tuple[Array, Array]:
        """Cross-entropies, and softmax - one-hot."""
        losses = np.empty(self.y.size)
        cross_entropies(scores, self.y, losses)
        return losses, scores


class GroupedRegression(Grouped):
    """A loss of the residuals of linear regression, by a function as in fdro_core/problems/linear.py."""

    def __init__(
        self,
        X: Any,
        y: Array,
        group: NDArray[np.intp],
        loss: Callable[[Array], tuple[Array, Array]],
        l2: float = 0.0,
        weight: Array | None = None,
    ) -> None:
        super().__init__(X, y, group, 1, l2, weight)
        self.loss = loss

    def samples(self, scores: Array) -> tuple[Array, Array]:
        """The loss of prediction - target, and its derivative."""
        losses, slopes = self.loss(scores[:, 0] - self.y)
        return losses, slopes[:, None]

    def with_loss(self, loss: Callable[[Array], tuple[Array, Array]]) -> GroupedRegression:
        """The same samples and groups with another loss."""
        return GroupedRegression(self.X, self.y, self.group, loss, self.l2, self.weight)
