"""What the linear regressions share: samples, mini-batches, ridge, metric."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike

from fdro_core import digests
from fdro_core.errors import InvalidProblem
from fdro_core.problems.kernels import ridge
from fdro_core.problems.shared import as_matrix, batch, check_l2
from uncertainty_sets.arrays import Array, Indices


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
