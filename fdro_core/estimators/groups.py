"""Linear models over groups of samples: every group's loss, and their derivatives."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.estimators.curvature import Point
from fdro_core.problems import kernels
from uncertainty_sets.arrays import Array

KINDS = {
    "squared": kernels.SQUARED,
    "huber": kernels.HUBER,
    "absolute": kernels.ABSOLUTE,
    "smoothed": kernels.SMOOTHED,
}
"""The losses of residuals (fdro_core/problems/linear.py)."""

FUSED = 2**17  # numbers that the groups' gradients may have to be made with the losses, in one pass over X


class Grouped:
    """f_g(w) = the (weighted) mean loss of group g; w is the C-order ravel of (features + 1, outputs).

    The bias is last.

    One evaluation reads X once, for losses and all groups' gradients; with more than 130,000 numbers in the
    gradients, or a group for each sample, once more for a gradient.

    Args:
        X: (samples, features), dense in C order or scipy sparse.
        y: the samples' labels or targets, as the kernel has them.
        group: 0..groups-1 for each sample; every group has samples.
        kind: the loss, see fdro_core/problems/kernels.py.
        outputs: scores per sample.
        l2: the ridge that will be added; only the metric uses it.
        weight: of each sample within its group, > 0; None: all the same.
        width, center: of losses that have them.
    """

    curvature = 1.0
    """A bound or estimate of a sample's second derivative in each score, for the metric."""

    def __init__(
        self,
        X: Any,
        y: Array,
        group: NDArray[np.intp],
        kind: int,
        outputs: int,
        l2: float = 0.0,
        weight: Array | None = None,
        width: float = 0.0,
        center: Array | None = None,
    ) -> None:
        self.X, self.y, self.group, self.kind, self.outputs = X, y, group, kind, outputs
        self.labels: NDArray[Any] = y
        self.l2, self.weight, self.width = l2, weight, width
        self.center = np.empty(0) if center is None else center
        self.sizes = np.bincount(group)
        if weight is None:
            self.share = 1.0 / self.sizes[group]
        else:
            self.share = weight / np.bincount(group, weights=weight)[group]
        self.alone = bool((self.sizes == 1).all() and (group == np.arange(group.size)).all())
        self.dimension = (X.shape[1] + 1) * outputs
        self.sparse = hasattr(X, "tocsr")

    def evaluate(self, w: Array) -> tuple[Array, Point]:
        """Every group's loss, and the derivatives there."""
        samples, matrix = self.group.size, np.ascontiguousarray(w.reshape(-1, self.outputs).T)
        slopes = np.empty(samples * self.outputs)
        losses, bends = np.empty(samples), np.empty(samples if self.outputs == 1 else 0)
        groups = self.sizes.size
        fused = not self.alone and groups * self.dimension <= FUSED
        gradients, means = np.zeros((groups if fused else 0, *matrix.shape)), np.zeros(groups)
        if self.sparse:
            np.add(self.X @ matrix[:, :-1].T, matrix[:, -1], out=slopes.reshape(samples, -1))
            kernels.sample_losses(self.kind, self.y, self.width, self.center, slopes, losses, bends)
            if fused:
                kernels.sparse_gradients(*self._rows, self.group, self.share, slopes, gradients)
                means = self.means(losses)
        else:
            kernels.linear_losses(
                self.X, matrix, self.kind, self.y, self.width, self.center, self.group, self.share,
                slopes, losses, bends, gradients, means,
            )  # fmt: skip
        point = Point(self, slopes.reshape(samples, -1), bends, gradients if fused else None)
        if not fused:
            means = losses if self.alone else self.means(losses)
        return means, point

    @cached_property
    def _rows(self) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
        """The sparse X as the kernel takes it."""
        X = self.X.tocsr()
        return X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)

    def columns(self, w: Array) -> Array:
        """The model's parameters, (features + 1, scores)."""
        return w.reshape(-1, self.outputs)

    def from_columns(self, w: Array) -> Array:
        """The w of the same model, from all its parameters; its ridge is not larger."""
        return w

    def scores(self, w: Array) -> Array:
        """Every sample's scores."""
        matrix = self.columns(w)
        product: Array = np.asarray(self.X @ matrix[:-1]) + matrix[-1]
        return product

    def means(self, values: Array) -> Array:
        """Every group's (weighted) mean of one value per sample."""
        found: Array = np.bincount(self.group, weights=values * self.share).astype(np.float64)
        return found

    def metric(self) -> Array:
        """curvature·E x² + l2, at least 1e-9 of the largest entry."""
        if self.sparse:
            total = np.asarray(self.X.multiply(self.X).sum(axis=0)).ravel()
        else:
            total = np.einsum("ij,ij->j", self.X, self.X)
        mean = np.append(total / self.group.size, 1.0)
        curvature = self.curvature * mean + self.l2
        floored: Array = np.repeat(np.maximum(curvature, 1e-9 * curvature.max()), self.outputs)
        return floored


class GroupedSoftmax(Grouped):
    """Cross-entropies of softmax regression; labels are 0..classes-1.

    With a ridge the columns of two classes are the negatives of each other at the minimum. So w is one column
    then, and the model's columns are w/√2 and -w/√2: the ridge of both is that of w.
    """

    curvature = 0.5

    def __init__(
        self,
        X: Any,
        labels: NDArray[np.intp],
        group: NDArray[np.intp],
        classes: int,
        l2: float = 0.0,
        weight: Array | None = None,
    ) -> None:
        self.classes = classes
        if classes == 2:  # the second class's score is above the first's by √2·x'w
            y, kind, outputs = np.sqrt(2.0) * (2.0 * labels - 1.0), kernels.LOGISTIC, 1
        else:
            y, kind, outputs = labels.astype(np.float64), kernels.SOFTMAX, classes
        super().__init__(X, y, group, kind, outputs, l2, weight)
        self.labels = labels

    def columns(self, w: Array) -> Array:
        """The model's parameters, (features + 1, classes)."""
        matrix = super().columns(w)
        return matrix * np.array([-1.0, 1.0]) / np.sqrt(2.0) if self.classes == 2 else matrix

    def from_columns(self, w: Array) -> Array:
        """The w of the same probabilities, from all classes' parameters; its ridge is not larger."""
        matrix = w.reshape(-1, self.classes)
        return (matrix[:, 1] - matrix[:, 0]) / np.sqrt(2.0) if self.classes == 2 else w


class GroupedRegression(Grouped):
    """A loss of the residuals of linear regression, by name."""

    def __init__(
        self,
        X: Any,
        y: Array,
        group: NDArray[np.intp],
        loss: str,
        l2: float = 0.0,
        weight: Array | None = None,
        width: float = 0.0,
        center: Array | None = None,
    ) -> None:
        super().__init__(X, y, group, KINDS[loss], 1, l2, weight, width, center)

    def with_loss(self, loss: str, width: float = 0.0, center: Array | None = None) -> GroupedRegression:
        """The same samples and groups with another loss."""
        return GroupedRegression(self.X, self.y, self.group, loss, self.l2, self.weight, width, center)
