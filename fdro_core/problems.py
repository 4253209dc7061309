"""Two local problems, fast: softmax regression and least squares."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdro_core import digests
from fdro_core.errors import InvalidProblem
from uncertainty_sets.kernels.jit import summing

Array = NDArray[np.float64]


@summing
def _softmax_loss(scores: Array, labels: NDArray[np.int64]) -> float:
    """The mean cross-entropy; scores (n, C) become (softmax - one-hot) / n in place."""
    n, classes = scores.shape
    share = 1.0 / n
    total = 0.0
    for i in range(n):
        top = scores[i, 0]
        for c in range(1, classes):
            top = max(top, scores[i, c])
        mass = 0.0
        own = scores[i, labels[i]] - top
        for c in range(classes):
            scores[i, c] = np.exp(scores[i, c] - top)
            mass += scores[i, c]
        total += np.log(mass) - own
        scale = share / mass
        for c in range(classes):
            scores[i, c] *= scale
        scores[i, labels[i]] -= share
    mean: float = total * share
    return mean


@summing
def _ridge(w: Array, gradient: Array, l2: float) -> float:
    """l2/2·‖w‖², and its gradient added."""
    total = 0.0
    for i in range(w.size):
        total += w[i] * w[i]
        gradient[i] += l2 * w[i]
    return 0.5 * l2 * total


def _matrix(name: str, X: ArrayLike, intercept: bool) -> Array:
    try:
        matrix = np.array(X, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise InvalidProblem(f"{name}: X must be a matrix of numbers: {error}") from error
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InvalidProblem(f"{name}: X must be (samples, features), both at least 1, got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise InvalidProblem(f"{name}: X holds NaN or infinity; drop or fill those samples")
    if intercept:
        matrix = np.ascontiguousarray(np.column_stack([matrix, np.ones(len(matrix))]))
    return matrix


def _check_l2(name: str, l2: float) -> float:
    if not (np.isfinite(l2) and l2 >= 0):
        raise InvalidProblem(f"{name}: l2 must be a number >= 0, got {l2}")
    return float(l2)


def _draw(rng: np.random.Generator | None, batch_size: int | None, samples: int) -> NDArray[np.int64] | None:
    """Rows of a mini-batch, or None for all of them."""
    if rng is None or batch_size is None or batch_size >= samples:
        return None
    return rng.choice(samples, size=batch_size, replace=False)


class SoftmaxRegression:
    """Multinomial logistic regression: f(w) = mean_i cross-entropy(y_i, softmax(x_iᵀW)) + l2/2·‖w‖².

    w is the C-order ravel of W, (features, classes), with the bias as the last row where
    `intercept=True`; l2 covers every entry. A gradient costs two products with X, O(samples·p).

    Args:
        X: (samples, features).
        y: labels 0..classes-1.
        classes: C.
        l2: the ridge.
        intercept: append a column of ones.

    >>> problem = SoftmaxRegression([[1.0], [-1.0]], [0, 1], classes=2)
    >>> problem.loss_and_gradient(np.zeros(2))
    (0.693..., array([-0.5,  0.5]))
    """

    def __init__(
        self, X: ArrayLike, y: ArrayLike, classes: int, l2: float = 0.0, intercept: bool = False
    ) -> None:
        self.X = _matrix("SoftmaxRegression", X, intercept)
        labels = np.asarray(y)
        if labels.shape != (len(self.X),):
            raise InvalidProblem(
                f"SoftmaxRegression: y must have shape ({len(self.X)},), as X has rows, got {labels.shape}"
            )
        self.y = labels.astype(np.int64)
        if not np.array_equal(self.y, labels) or self.y.min() < 0 or self.y.max() >= classes:
            raise InvalidProblem(
                f"SoftmaxRegression: y must hold whole numbers 0..{classes - 1}, "
                f"got {labels.min()}..{labels.max()}"
            )
        self.classes = int(classes)
        self.l2 = _check_l2("SoftmaxRegression", l2)
        self.dimension = self.X.shape[1] * self.classes
        self.samples = len(self.X)

    def loss_and_gradient(
        self, w: Array, rng: np.random.Generator | None = None, batch_size: int | None = None
    ) -> tuple[float, Array]:
        """f(w) and ∇f(w), on a mini-batch where `rng` and `batch_size` are given."""
        rows = _draw(rng, batch_size, len(self.X))
        X, y = (self.X, self.y) if rows is None else (self.X[rows], self.y[rows])
        scores = X @ w.reshape(-1, self.classes)
        loss = _softmax_loss(scores, y)
        gradient: Array = (X.T @ scores).ravel()
        if self.l2:
            loss += _ridge(w, gradient, self.l2)
        return loss, gradient

    def accuracy(self, w: Array, X: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
        """The share of samples classified right: its own, or the ones given (without the ones column)."""
        samples = self.X if X is None else np.asarray(X, dtype=np.float64)
        if samples.shape[1] < self.X.shape[1]:
            samples = np.column_stack([samples, np.ones(len(samples))])
        labels = self.y if y is None else np.asarray(y)
        return float(np.mean(np.argmax(samples @ w.reshape(-1, self.classes), axis=1) == labels))

    def fingerprint(self) -> str:
        """A digest of samples, labels and l2; one pass over them."""
        return digests.short(X=self.X, y=self.y, classes=self.classes, l2=self.l2)

    def metric(self) -> Array:
        """½·E x² + l2: the softmax Hessian is at most ½ in each class."""
        return np.repeat(0.5 * np.mean(self.X**2, axis=0) + self.l2, self.classes)


class LeastSquares:
    """Linear regression: f(w) = mean_i ½(x_iᵀw - y_i)² + l2/2·‖w‖².

    w has one entry a feature, with the bias last where `intercept=True`. A gradient costs O(samples·p).

    >>> LeastSquares([[1.0], [2.0]], [1.0, 2.0]).loss_and_gradient(np.zeros(1))
    (1.25, array([-2.5]))
    """

    def __init__(self, X: ArrayLike, y: ArrayLike, l2: float = 0.0, intercept: bool = False) -> None:
        self.X = _matrix("LeastSquares", X, intercept)
        self.y = np.array(y, dtype=np.float64)
        if self.y.shape != (len(self.X),) or not np.isfinite(self.y).all():
            raise InvalidProblem(
                f"LeastSquares: y must be {len(self.X)} finite numbers, as X has rows, "
                f"got shape {self.y.shape}"
            )
        self.l2 = _check_l2("LeastSquares", l2)
        self.dimension = self.X.shape[1]
        self.samples = len(self.X)

    def loss_and_gradient(
        self, w: Array, rng: np.random.Generator | None = None, batch_size: int | None = None
    ) -> tuple[float, Array]:
        """f(w) and ∇f(w), on a mini-batch where `rng` and `batch_size` are given."""
        rows = _draw(rng, batch_size, len(self.X))
        X, y = (self.X, self.y) if rows is None else (self.X[rows], self.y[rows])
        residual = X @ w - y
        share = 1.0 / len(y)
        gradient: Array = X.T @ (residual * share)
        loss = 0.5 * share * float(residual @ residual)
        if self.l2:
            loss += _ridge(w, gradient, self.l2)
        return loss, gradient

    def fingerprint(self) -> str:
        """A digest of samples, targets and l2; one pass over them."""
        return digests.short(X=self.X, y=self.y, l2=self.l2)

    def metric(self) -> Array:
        """E x² + l2, the diagonal of the Hessian."""
        metric: Array = np.mean(self.X**2, axis=0) + self.l2
        return metric
