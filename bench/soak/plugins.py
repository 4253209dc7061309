"""Sets that have only `constraints(p)`, as users write them; the judge has its own formulas for each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets import UncertaintySet


class Ball(UncertaintySet):
    """A centre and a radius; without a name, so that the registry does not see it."""

    def __init__(self, center: ArrayLike, radius: float) -> None:
        self.center = np.asarray(center, dtype=float)
        self.radius = float(radius)
        self.size = self.center.size


class TotalVariation(Ball):
    """Σ|p - q| <= 2·radius: a linear program."""

    def constraints(self, p: Any) -> list[Any]:
        """One norm."""
        import cvxpy

        return [cvxpy.norm1(p - self.center) <= 2.0 * self.radius]


class Euclidean(Ball):
    """‖p - q‖ <= radius: one second-order cone."""

    def constraints(self, p: Any) -> list[Any]:
        """One norm."""
        import cvxpy

        return [cvxpy.norm(p - self.center) <= self.radius]


class Entropic(Ball):
    """Σ p·log(p/q) <= radius: exponential cones."""

    def constraints(self, p: Any) -> list[Any]:
        """One divergence, in a unit that suits solvers."""
        import cvxpy

        n = float(self.center.size)
        return [cvxpy.sum(cvxpy.rel_entr(n * p, n * self.center)) <= n * self.radius]
