"""Softmax regression as a local problem."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fdro_core import digests
from fdro_core.problems.kernels import SOFTMAX, cross_entropy, ridge, sample_losses
from fdro_core.problems.shared import as_labels, as_matrix, batch, check_l2
from uncertainty_sets.arrays import Array, Indices


class SoftmaxRegression:
    """Multinomial logistic regression: f(w) = mean_i cross-entropy(y_i, softmax(x_iᵀW)) + l2/2·‖w‖².

    w is the C-order ravel of W, (features, classes), with the bias as the last row if there is an intercept;
    l2 covers every entry. A gradient costs two products with X, O(samples·p).

    Args:
        X: (samples, features).
        y: labels 0..classes-1.
        classes: C.
        l2: the ridge.
        intercept: append a column of ones to X, the default.

    >>> problem = SoftmaxRegression([[1.0], [-1.0]], [0, 1], classes=2, intercept=False)
    >>> problem.loss_and_gradient(np.zeros(2))
    (0.693..., array([-0.5,  0.5]))
    """

    kind: ClassVar[str] = "softmax"  # in run files

    def __init__(
        self, X: ArrayLike, y: ArrayLike, classes: int, l2: float = 0.0, intercept: bool = True
    ) -> None:
        self.X = as_matrix("SoftmaxRegression", X, intercept)
        self.y = as_labels("SoftmaxRegression", y, len(self.X), classes)
        self.classes = int(classes)
        self.l2 = check_l2("SoftmaxRegression", l2)
        self.dimension = self.X.shape[1] * self.classes
        self.samples = len(self.X)

    def loss_and_gradient(
        self, w: Array, rng: np.random.Generator | None = None, batch_size: int | None = None
    ) -> tuple[float, Array]:
        """f(w) and ∇f(w), on a mini-batch if `rng` and `batch_size` are given."""
        X, y = batch(self.X, self.y, rng, batch_size)
        scores = X @ w.reshape(-1, self.classes)
        loss = cross_entropy(scores, y)
        gradient: Array = (X.T @ scores).ravel()
        if self.l2:
            loss += ridge(w, gradient, self.l2)
        return loss, gradient

    def sample_gradients(self, w: Array, rows: Indices) -> tuple[Array, Array]:
        """Every given sample's cross-entropy and its gradient, (len(rows), p), without the ridge."""
        X, losses = self.X[rows], np.empty(len(rows))
        scores = X @ w.reshape(-1, self.classes)
        none = np.empty(0)
        sample_losses(SOFTMAX, self.y[rows].astype(np.float64), 0.0, none, scores.reshape(-1), losses, none)
        return losses, (X[:, :, None] * scores[:, None, :]).reshape(len(rows), -1)

    def penalty(self, w: Array) -> tuple[float, Array]:
        """The ridge and its gradient, which depend on no sample."""
        return 0.5 * self.l2 * float(w @ w), self.l2 * w

    def accuracy(self, w: Array, X: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
        """Return the share of correct predictions on its own samples or on (X, y), X without the ones."""
        samples = self.X if X is None else np.asarray(X, dtype=np.float64)
        if samples.shape[1] < self.X.shape[1]:
            samples = np.column_stack([samples, np.ones(len(samples))])
        labels = self.y if y is None else np.asarray(y)
        return float(np.mean(np.argmax(samples @ w.reshape(-1, self.classes), axis=1) == labels))

    @property
    def strong_convexity(self) -> float:
        """The ridge, which covers every entry of w."""
        return self.l2

    def fingerprint(self) -> str:
        """A digest of samples, labels and l2; one pass over them."""
        return digests.short(X=self.X, y=self.y, classes=self.classes, l2=self.l2)

    def metric(self) -> Array:
        """½·E x² + l2, since the softmax Hessian is at most ½ in each class."""
        return np.repeat(0.5 * np.mean(self.X**2, axis=0) + self.l2, self.classes)
