"""Linear regression with Huber's loss as a local problem."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fdro_core import digests
from fdro_core.errors import InvalidProblem
from fdro_core.problems.linear import LinearRegression
from fdro_core.problems.residuals import huber
from uncertainty_sets.arrays import Array


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
