"""Least squares as a local problem."""

from __future__ import annotations

from typing import ClassVar

from fdro_core.problems.linear import LinearRegression
from fdro_core.problems.residuals import squared
from uncertainty_sets.arrays import Array


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
