"""Groups of samples: as `fit(groups=...)` and the metrics take them, and linear models over all of them."""

from __future__ import annotations

import math
import sys
import warnings
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import EstimatorWarning
from fdro_core.estimators.curvature import Point
from fdro_core.problems import kernels
from uncertainty_sets.arrays import Array


def index_groups(groups: Any, samples: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The groups, sorted, and each sample's place among them.

    >>> index_groups(["b", "a", "b"], 3)
    (array(['a', 'b'], dtype='<U1'), array([1, 0, 1]))
    """
    if groups is None:
        return np.arange(samples), np.arange(samples)
    # A list of texts with a NaN would become the text "nan": entries are looked at as they are.
    labels = np.asarray(groups, dtype=None if hasattr(groups, "dtype") else object)
    if labels.shape != (samples,):
        raise ValueError(f"groups must have one entry for each of the {samples} samples, got {labels.shape}")
    missing = _missing(labels)
    if missing.any():
        raise ValueError(
            f"groups must not hold NaN or None, got {int(missing.sum())} of them, the first for sample "
            f"{int(missing.argmax())}; give samples without a group one of their own, such as 'unknown'"
        )
    try:
        names, index = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"groups must be of one type that can be sorted: {error}") from error
    return np.array(names.tolist()) if names.dtype == object else names, index


def _missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Which entries are NaN, None, or pandas' NA and NaT."""
    if labels.dtype != object:
        equal: NDArray[np.bool_] = np.equal(labels, labels)  # false for NaN and NaT alone
        return ~equal
    kinds = {"NAType", "NaTType", "NoneType"}  # by name: pandas may not be installed
    return np.array(
        [type(each).__name__ in kinds or (isinstance(each, float) and math.isnan(each)) for each in labels],
        dtype=bool,
    )


def warn_if_forgotten(default_set: bool, level: int) -> None:
    """Warn that `fit` got no groups, if it looks as if it should have some.

    Args:
        default_set: whether the user chose no uncertainty set; one who trains for the worst samples on
            purpose names a set.
        level: how far up the stack the caller of `fit` is.
    """
    searched = _in_cross_validation()
    if not (default_set or searched):
        return
    how = (
        "scikit-learn passes groups on only with sklearn.set_config(enable_metadata_routing=True) and "
        "set_fit_request(groups=True) on this estimator"
        if searched
        else "give fit(X, y, groups=...), in a pipeline as robustclassifier__groups=... or by metadata "
        "routing; name an uncertainty_set to train for the worst samples on purpose"
    )
    warnings.warn(
        f"fit got no groups, so every sample is a group of its own; {how}",
        EstimatorWarning,
        stacklevel=level + 1,
    )


def _in_cross_validation() -> bool:
    """Whether a search or a cross-validation of scikit-learn is calling.

    Without metadata routing these give `groups` to the splitter alone, and nothing in the call of `fit`
    tells: only the stack does.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "sklearn.model_selection._validation":
            return True
        frame = frame.f_back
    return False


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
    gradients, or X sparse, or a group for each sample, once more for a gradient.

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
        fused = not (self.sparse or self.alone) and groups * self.dimension <= FUSED
        gradients = np.zeros((groups if fused else 0, *matrix.shape))
        if self.sparse:
            np.add(self.X @ matrix[:, :-1].T, matrix[:, -1], out=slopes.reshape(samples, -1))
            kernels.sample_losses(self.kind, self.y, self.width, self.center, slopes, losses, bends)
        else:
            kernels.linear_losses(
                self.X, matrix, self.kind, self.y, self.width, self.center, self.group, self.share,
                slopes, losses, bends, gradients,
            )  # fmt: skip
        point = Point(self, slopes.reshape(samples, -1), bends, gradients if fused else None)
        return (losses if self.alone else self.means(losses)), point

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
