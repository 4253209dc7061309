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


class InUnits(Ball):
    """One of the sets above with its constraint in another unit, or by way of a variable in a third one."""

    def __init__(self, center: ArrayLike, radius: float, scale: float, link: float) -> None:
        super().__init__(center, radius)
        self.scale, self.link = float(scale), float(link)

    def _moved(self, p: Any) -> tuple[Any, float, list[Any]]:
        """(p - q in its unit, that unit, what defines it)."""
        import cvxpy

        if not self.link:
            return self.scale * (p - self.center), self.scale, []
        z = cvxpy.Variable(self.size)
        unit = self.scale * self.link
        return self.scale * z, unit, [z == self.link * (p - self.center)]


class TotalVariationInUnits(InUnits):
    """Σ|p - q| <= 2·radius."""

    def constraints(self, p: Any) -> list[Any]:
        """Rows of any size."""
        import cvxpy

        moved, unit, link = self._moved(p)
        return [*link, cvxpy.norm1(moved) <= 2.0 * self.radius * unit]


class EuclideanInUnits(InUnits):
    """‖p - q‖ <= radius."""

    def constraints(self, p: Any) -> list[Any]:
        """A cone of any size."""
        import cvxpy

        moved, unit, link = self._moved(p)
        return [*link, cvxpy.norm(moved) <= self.radius * unit]


class EntropicInUnits(InUnits):
    """Σ p·log(p/q) <= radius."""

    def constraints(self, p: Any) -> list[Any]:
        """Terms of any size, summed or each a variable."""
        import cvxpy

        terms = cvxpy.rel_entr(p, self.center)
        if not self.link:
            return [self.scale * cvxpy.sum(terms) <= self.scale * self.radius]
        t = cvxpy.Variable(self.size)
        unit = self.scale * self.link
        return [self.link * terms <= t, self.scale * cvxpy.sum(t) <= unit * self.radius]
