"""Linear regression as a local problem: least squares, and Huber's loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fdro_core import digests
from fdro_core.errors import InvalidProblem
from fdro_core.problems.kernels import ridge
from fdro_core.problems.shared import as_matrix, batch, check_l2
from uncertainty_sets.arrays import Array, Indices

# -- losses of residuals -------------------------------------------------------------------------------


def squared(r: Array) -> tuple[Array, Array]:
    """½r²."""
    return 0.5 * r * r, r


def absolute(r: Array) -> tuple[Array, Array]:
    """|r|, with the subgradient 0 at r = 0."""
    return np.abs(r), np.sign(r)


def smoothed(r: Array, width: float, center: Array | float = 0.0) -> tuple[Array, Array]:
    """Smooth |r| from below: the maximum over -1 <= s <= 1 of s·r - width/2·(s - center)².

    The derivative is the maximiser s. The value is at most |r|, and at least |r| - width/2·(1 + |center|)².

    >>> smoothed(np.array([0.5, 3.0]), 1.0)
    (array([0.125, 2.5  ]), array([0.5, 1. ]))
    """
    s = np.clip(center + r / width, -1.0, 1.0)
    return s * r - 0.5 * width * (s - center) ** 2, s


def huber(r: Array, epsilon: float) -> tuple[Array, Array]:
    """½r² up to |r| = epsilon, and epsilon·(|r| - epsilon/2) beyond.

    >>> huber(np.array([0.5, 3.0]), 1.0)
    (array([0.125, 2.5  ]), array([0.5, 1. ]))
    """
    loss, slope = smoothed(r, epsilon)
    return epsilon * loss, epsilon * slope


# -- what linear regressions share ---------------------------------------------------------------------


class LinearRegression(ABC):
    """f(w) = mean_i loss(x_iᵀw - y_i) + l2/2·‖w‖², for a loss with second derivative at most 1."""

    def __init__(self, X: ArrayLike, y: ArrayLike, l2: float = 0.0, intercept: bool = True) -> None:
        name = type(self).__name__
        self.X = as_matrix(name, X, intercept)
        if np.iscomplexobj(y):
            raise InvalidProblem(f"{name}: y must be real numbers, got complex ones")
        self.y = np.array(y, dtype=np.float64)
        if self.y.shape != (len(self.X),) or not np.isfinite(self.y).all():
            raise InvalidProblem(
                f"{name}: y must be {len(self.X)} finite numbers, as X has rows, got shape {self.y.shape}"
            )
        self.l2 = check_l2(name, l2)
        self.dimension = self.X.shape[1]
        self.samples = len(self.X)

    @abstractmethod
    def _total(self, residual: Array) -> tuple[float, Array]:
        """The sum of the samples' losses, and its derivative in the residuals."""

    @abstractmethod
    def _each(self, residual: Array) -> tuple[Array, Array]:
        """Every sample's loss, and its derivative in its residual."""

    def loss_and_gradient(
        self, w: Array, rng: np.random.Generator | None = None, batch_size: int | None = None
    ) -> tuple[float, Array]:
        """f(w) and ∇f(w), on a mini-batch if `rng` and `batch_size` are given."""
        X, y = batch(self.X, self.y, rng, batch_size)
        total, slope = self._total(X @ w - y)
        share = 1.0 / len(y)
        gradient: Array = X.T @ (slope * share)
        loss = share * total
        if self.l2:
            loss += ridge(w, gradient, self.l2)
        return loss, gradient

    def sample_gradients(self, w: Array, rows: Indices) -> tuple[Array, Array]:
        """Every given sample's loss and its gradient, (len(rows), p), without the ridge."""
        X = self.X[rows]
        losses, slope = self._each(X @ w - self.y[rows])
        return losses, slope[:, None] * X

    def penalty(self, w: Array) -> tuple[float, Array]:
        """The ridge and its gradient, which depend on no sample."""
        return 0.5 * self.l2 * float(w @ w), self.l2 * w

    @property
    def strong_convexity(self) -> float:
        """The ridge, which covers every entry of w."""
        return self.l2

    def fingerprint(self) -> str:
        """A digest of samples, targets and l2; one pass over them."""
        return digests.short(X=self.X, y=self.y, l2=self.l2)

    def metric(self) -> Array:
        """E x² + l2, which bounds the diagonal of the Hessian."""
        metric: Array = np.mean(self.X**2, axis=0) + self.l2
        return metric


# -- least squares -------------------------------------------------------------------------------------


class LeastSquares(LinearRegression):
    """Linear regression: f(w) = mean_i ½(x_iᵀw - y_i)² + l2/2·‖w‖².

    w has one entry per feature, with the bias last if there is an intercept; l2 covers every entry. A
    gradient costs O(samples·p).

    Args:
        X: (samples, features).
        y: targets.
        l2: the ridge.
        intercept: append a column of ones to X, the default.

    >>> import numpy as np
    >>> LeastSquares([[1.0], [2.0]], [1.0, 2.0], intercept=False).loss_and_gradient(np.zeros(1))
    (1.25, array([-2.5]))
    """

    kind: ClassVar[str] = "least-squares"  # in run files

    def _total(self, residual: Array) -> tuple[float, Array]:
        return 0.5 * float(residual @ residual), residual

    def _each(self, residual: Array) -> tuple[Array, Array]:
        return squared(residual)


# -- Huber's loss --------------------------------------------------------------------------------------


class HuberRegression(LinearRegression):
    """Linear regression in which outliers count less: f(w) = mean_i h(x_iᵀw - y_i) + l2/2·‖w‖².

    h(r) is ½r² up to |r| = epsilon, and epsilon·(|r| - epsilon/2) beyond. f/epsilon is the mean absolute
    error with l2/epsilon as the ridge, up to epsilon/2: a small epsilon stands for the absolute loss. w, l2
    and the cost are those of `LeastSquares`.

    Args:
        X: (samples, features).
        y: targets.
        epsilon: the residual at which the loss becomes linear, > 0, in units of y.
        l2: the ridge.
        intercept: append a column of ones to X, the default.

    >>> problem = HuberRegression([[1.0], [2.0]], [1.0, 2.0], epsilon=1.0, intercept=False)
    >>> problem.loss_and_gradient(np.zeros(1))
    (1.0, array([-1.5]))
    """

    kind: ClassVar[str] = "huber"  # in run files

    def __init__(
        self, X: ArrayLike, y: ArrayLike, epsilon: float = 1.35, l2: float = 0.0, intercept: bool = True
    ) -> None:
        super().__init__(X, y, l2, intercept)
        if not (np.isfinite(epsilon) and epsilon > 0):
            raise InvalidProblem(f"HuberRegression: epsilon must be a number > 0, got {epsilon}")
        self.epsilon = float(epsilon)

    def _total(self, residual: Array) -> tuple[float, Array]:
        losses, slope = huber(residual, self.epsilon)
        return float(losses.sum()), slope

    def _each(self, residual: Array) -> tuple[Array, Array]:
        return huber(residual, self.epsilon)

    def fingerprint(self) -> str:
        """A digest of samples, targets, epsilon and l2; one pass over them."""
        return digests.short(X=self.X, y=self.y, epsilon=self.epsilon, l2=self.l2)
