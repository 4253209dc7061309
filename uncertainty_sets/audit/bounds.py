"""Finite-sample bounds: what holds for the population with a given confidence, at every number of samples.

| losses, set | bound of the worst case |
|---|---|
| 0 and 1 | the oracle at the Clopper-Pearson bound of the rate, with which the worst case grows |
| bounded; KL, EVaR, χ², CVaR | the dual at multipliers fixed beforehand, its means bounded by betting |
| bounded; others of the law alone | the oracle on a law that is stochastically larger (DKW-Massart) |

docs/audit-theory.md has the proofs. Rows that depend on each other come in clusters, which are independent:
then a cluster's mean is one sample of the betting bound, and one row of each cluster goes into the others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.audit.families import Family
from uncertainty_sets.kernels import betting
from uncertainty_sets.packages import load

ORDER = 20240917
"""The seed of the order in which samples are looked at; it must not come from the data."""

PILOT_SHARE, PILOT_MOST, LEAST_FOR_PILOT = 10, 2000, 400
"""Of the samples, those that choose the multipliers and are not counted; above 200,000 a hundredth."""


def binomial_upper(count: Any, n: Any, miss: float) -> Any:
    """Clopper and Pearson's upper bound: the rate is above it with a probability of at most `miss`.

    >>> round(float(binomial_upper(0, 100, 0.05)), 4)  # the rule of three
    0.0295
    """
    beta = load("scipy.special", "an audit")
    k, total = np.asarray(count, dtype=np.float64), np.asarray(n, dtype=np.float64)
    inner = beta.betaincinv(np.minimum(k, total - 1.0) + 1.0, np.maximum(total - k, 1.0), 1.0 - miss)
    return np.where(k >= total, 1.0, inner)


def evenly(cluster: NDArray[np.intp]) -> Array:
    """Weights with which every cluster counts once and its rows share that."""
    _, code, sizes = np.unique(cluster, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (sizes.size * sizes[code]))


def mean_upper(x: Array, miss: float) -> float:
    """An upper bound of the mean of samples in [0, 1], in an order that says nothing.

    Clopper-Pearson if all are 0 or 1, which is known beforehand; else by betting.
    """
    return betting.upper(np.ascontiguousarray(x), math.log(1.0 / miss))


class Evidence:
    """Losses, scaled to [0, 1], as independent units.

    Args:
        losses: scaled.
        two_valued: whether they can only be 0 or 1.
        cluster: the cluster of each row, numbered from 0; None: rows are independent.
    """

    def __init__(self, losses: Array, two_valued: bool, cluster: NDArray[np.intp] | None = None) -> None:
        self.losses, self.two_valued, self.cluster = losses, two_valued, cluster
        self.sizes = None if cluster is None else np.bincount(cluster)
        self.units = losses.size if self.sizes is None else self.sizes.size
        self._order = np.random.default_rng(ORDER).permutation(self.units)
        self._duals: dict[tuple[Family, float], tuple[Array, Array]] = {}

    def _unit_means(self, x: Array) -> Array:
        """The mean of x in each unit, in the random order."""
        if self.cluster is None or self.sizes is None:
            return np.asarray(x[self._order])
        return np.asarray((np.bincount(self.cluster, x) / self.sizes)[self._order])

    def mean_at_most(self, miss: float) -> float:
        """An upper bound of the mean."""
        if self.two_valued and self.cluster is None:
            return float(binomial_upper(self.losses.sum(), self.units, miss))
        return mean_upper(self._unit_means(self.losses), miss)

    def one_row_each(self) -> Array:
        """A row of every unit, at random."""
        if self.cluster is None:
            return self.losses
        rows = np.random.default_rng(ORDER).permutation(self.losses.size)
        return np.asarray(self.losses[rows[np.unique(self.cluster[rows], return_index=True)[1]]])

    def larger_law(self, miss: float) -> tuple[Array, Array]:
        """Values and weights of a law that is stochastically larger than that of the losses.

        Of other than 0/1 losses, the mass √(log(1/miss)/2n) moves from the smallest to 1 (Massart's constant
        holds for miss <= ½).
        """
        if self.two_valued:
            rate = self.mean_at_most(miss)
            return np.array([0.0, 1.0]), np.array([1.0 - rate, rate])
        x = np.sort(self.one_row_each())
        shift = min(1.0, math.sqrt(math.log(1.0 / min(miss, 0.5)) / (2.0 * x.size)))
        below = np.clip(np.arange(1, x.size + 1) / x.size - shift, 0.0, None)
        weights = np.append(np.diff(below, prepend=0.0), shift)
        kept = weights > 0.0
        return np.append(x, 1.0)[kept], weights[kept] / weights.sum()

    def _dual(self, family: Family, miss: float) -> tuple[Array, Array]:
        """Multipliers and the bounds of the means of their terms, all of which hold at once."""
        key = (family, miss)
        if key not in self._duals:
            first = 0
            if self.units < LEAST_FOR_PILOT:
                multipliers = family.usual_multipliers()
            else:
                first = min(self.units // PILOT_SHARE, max(PILOT_MOST, self.units // 100))
                pilot = self._order[:first]
                rows = pilot if self.cluster is None else np.flatnonzero(np.isin(self.cluster, pilot))
                # The grid must become finer as the bounds of the means become sharper.
                points = max(int(8.0 * math.log10(self.units)) - 8, int(2.3 * self.units**0.25))
                multipliers = family.multipliers(self.losses[rows], points)
            share, means = miss / multipliers.size, []
            for a in multipliers.tolist():
                least, most = family.transformed(np.array([0.0, 1.0]), a)
                x = (self._unit_means(family.transformed(self.losses, a)) - least) / (most - least)
                means.append(least + (most - least) * mean_upper(np.clip(x[first:], 0.0, 1.0), share))
            self._duals[key] = (multipliers, np.array(means))
        return self._duals[key]

    def worst_at_most(self, family: Family, size: float, miss: float) -> float:
        """An upper bound of the population's worst case; one event for all sizes."""
        if family.has_dual and not self.two_valued:
            each = family.dual(size, *self._dual(family, miss))
            return float(min(1.0, each.min()))
        values, weights = self.larger_law(miss)
        return float(family.around(weights, size).worst_case(values).upper_bound)

    def radius_at_least(self, family: Family, threshold: float, miss: float) -> float:
        """A lower bound of the least radius at which the population's worst case reaches a threshold.

        The radius is what `radius_for` calls so; this inverts the bound that holds at all sizes at once.
        """
        if threshold > 1.0:
            return math.inf
        if not family.has_dual or self.two_valued:
            values, weights = self.larger_law(miss)
            start = family.around(weights, 1.0)
            return float(start.radius_for(values, threshold).lower_bound)

        def reaches(radius: float) -> bool:
            return self.worst_at_most(family, family.size_of(radius), miss) >= threshold

        if reaches(0.0):
            return 0.0
        low, high = 0.0, 1e-6
        while not reaches(high):
            low, high = high, 4.0 * high
            if high > 1e6:
                return low
        while high - low > 1e-9 * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if reaches(middle) else (middle, high)
        return low
