"""Plug-ins that leave their size to the losses, as the example of docs/have-losses.md does.

None has a name, so that the registry and the suites over it do not see them.
"""

from __future__ import annotations

import cvxpy as cp
import numpy as np

from uncertainty_sets import UncertaintySet


class TotalVariation(UncertaintySet):
    """That of the page: a centre, and no word about its size."""

    def __init__(self, center, radius):
        self.center, self.radius = np.asarray(center), radius

    def constraints(self, p):
        return [cp.norm1(p - self.center) <= 2 * self.radius]


class Tail(UncertaintySet):
    """The distributions behind CVaR, over any number of entries."""

    def __init__(self, level=0.5):
        self.level = level

    def constraints(self, p):
        return [p <= 1.0 / (p.size * (1.0 - self.level))]


class Tilted(Tail):
    """Has a reference of its own, written without arguments as `UncertaintySet.reference` is."""

    def reference(self):
        weights = np.arange(1.0, self.size + 1.0)
        return weights / weights.sum()


EVERY = {
    "centre": lambda size: TotalVariation(np.full(size, 1.0 / size), 0.2),
    "any size": lambda size: Tail(),
    "own reference": lambda size: Tilted(0.6),
}
"""One of each kind by what is special about it, for `size` entries."""
