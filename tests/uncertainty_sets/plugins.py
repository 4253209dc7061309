"""Sets that give only `constraints(p)`, one for each kind of conic program: what users will write.

None has a name, so that the registry and the suites over it do not see them.
"""

from __future__ import annotations

import cvxpy as cp
import numpy as np

from uncertainty_sets.base import UncertaintySet


class Ball(UncertaintySet):
    """A centre, a radius, and whatever a subclass makes of them."""

    def __init__(self, center, radius):
        self.center, self.radius = np.asarray(center, dtype=float), float(radius)
        self.size = self.center.size

    def __repr__(self):
        return f"{type(self).__name__}(N={self.size}, radius={self.radius:g})"


class TotalVariation(Ball):
    """LP; epigraph variables with no row of their own."""

    def constraints(self, p):
        return [cp.norm1(p - self.center) <= 2 * self.radius]


class Euclidean(Ball):
    """One large second-order cone."""

    def constraints(self, p):
        return [cp.norm(p - self.center) <= self.radius]


class Entropic(Ball):
    """N exponential cones."""

    def constraints(self, p):
        n = self.size
        return [cp.sum(cp.rel_entr(n * p, n * self.center)) <= n * self.radius]


class Transport(Ball):
    """LP; N² auxiliary variables of the user's own, each >= 0."""

    def constraints(self, p):
        n = self.size
        plan = cp.Variable((n, n), nonneg=True)
        cost = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
        return [
            cp.sum(plan, axis=1) == p,
            cp.sum(plan, axis=0) == self.center,
            cp.sum(cp.multiply(cost, plan)) <= self.radius,
        ]


class Line(Ball):
    """LP; a running sum, whose last entry is in one row alone and forces its multiplier to zero."""

    def constraints(self, p):
        return [cp.norm1(cp.cumsum(p - self.center)[:-1]) <= self.radius]


class Powers(Ball):
    """Many small second-order cones, and a constraint that is usually not active."""

    def constraints(self, p):
        return [cp.pnorm(p - self.center, 3) <= self.radius, cp.sum(cp.power(p, 1.5)) <= 0.999]


class Mixed(Ball):
    """Every cone at once, with an auxiliary variable that has no bound above."""

    def constraints(self, p):
        n, loose = self.size, cp.Variable()
        return [
            cp.norm(p - self.center) <= loose,
            cp.norm(p - self.center) <= self.radius,
            cp.sum(cp.rel_entr(n * p, n * self.center)) <= n * self.radius,
            p[0] <= 0.9,
        ]


class Stated(UncertaintySet):
    """The constraints that a function of p returns; it takes its size from the losses."""

    def __init__(self, make):
        self.make = make

    def constraints(self, p):
        return self.make(p)

    def __repr__(self):
        return "Stated()"


ALL = (TotalVariation, Euclidean, Entropic, Transport, Line, Powers, Mixed)
