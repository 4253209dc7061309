"""Least squares as a local problem."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fdro_core import digests
from fdro_core.errors import InvalidProblem
from fdro_core.problems.kernels import ridge
from fdro_core.problems.shared import as_matrix, batch, check_l2
from uncertainty_sets.arrays import Array


class LeastSquares:
    """Linear regression: f(w) = mean_i ½(x_iᵀw - y_i)² + l2/2·‖w‖².

    w has one entry per feature, with the bias last if there is an intercept; l2 covers every entry. A
    gradient costs O(samples·p).

    Args:
        X: (samples, features).
        y: targets.
        l2: the ridge.
        intercept: append a column of ones to X, the default.

    >>> LeastSquares([[1.0], [2.0]], [1.0, 2.0], intercept=False).loss_and_gradient(np.zeros(1))
    (1.25, array([-2.5]))
    """

    def __init__(self, X: ArrayLike, y: ArrayLike, l2: float = 0.0, intercept: bool = True) -> None:
        self.X = as_matrix("LeastSquares", X, intercept)
        self.y = np.array(y, dtype=np.float64)
        if self.y.shape != (len(self.X),) or not np.isfinite(self.y).all():
            raise InvalidProblem(
                f"LeastSquares: y must be {len(self.X)} finite numbers, as X has rows, "
                f"got shape {self.y.shape}"
            )
        self.l2 = check_l2("LeastSquares", l2)
        self.dimension = self.X.shape[1]
        self.samples = len(self.X)

    def loss_and_gradient(
        self, w: Array, rng: np.random.Generator | None = None, batch_size: int | None = None
    ) -> tuple[float, Array]:
        """f(w) and ∇f(w), on a mini-batch if `rng` and `batch_size` are given."""
        X, y = batch(self.X, self.y, rng, batch_size)
        residual = X @ w - y
        share = 1.0 / len(y)
        gradient: Array = X.T @ (residual * share)
        loss = 0.5 * share * float(residual @ residual)
        if self.l2:
            loss += ridge(w, gradient, self.l2)
        return loss, gradient

    @property
    def strong_convexity(self) -> float:
        """The ridge, which covers every entry of w."""
        return self.l2

    def fingerprint(self) -> str:
        """A digest of samples, targets and l2; one pass over them."""
        return digests.short(X=self.X, y=self.y, l2=self.l2)

    def metric(self) -> Array:
        """E x² + l2, the diagonal of the Hessian."""
        metric: Array = np.mean(self.X**2, axis=0) + self.l2
        return metric
