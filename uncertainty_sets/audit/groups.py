"""Groups of rows, disjoint or overlapping: their shares, mean losses, bounds, and influence on a mix."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.audit.answers import Share
from uncertainty_sets.audit.bounds import Evidence, evenly
from uncertainty_sets.audit.families import Family
from uncertainty_sets.inverse import LeastRadius


class Groups:
    """The groups of an audit.

    A world is a distribution over the groups with the rows of each as they are. Shares are those of the
    rows; of overlapping groups they are divided by their sum, and their mix is then not the data's. Of
    clusters each counts once in every group that it has rows in.

    Args:
        names: of the groups.
        rows: the rows of each.
        disjoint: whether no row is in two.
        losses, weight: of the rows.
        cluster: the cluster of each row, if clusters count once.
    """

    def __init__(
        self,
        names: Sequence[str],
        rows: Sequence[NDArray[np.intp]],
        disjoint: bool,
        losses: Array,
        weight: Array,
        cluster: NDArray[np.intp] | None = None,
    ) -> None:
        self.names, self.rows, self.disjoint = list(names), list(rows), disjoint
        self.losses, self.weight = losses, weight
        mass = np.array([float(weight[of].sum()) for of in rows])
        self.total = float(mass.sum())
        self.share = mass / self.total
        self.inner = [
            weight[of] / mass[g] if cluster is None else evenly(cluster[of]) for g, of in enumerate(rows)
        ]
        self.means = np.array([float(inner @ losses[of]) for of, inner in zip(rows, self.inner, strict=True)])
        self.sizes = np.array([of.size for of in rows])

    def __len__(self) -> int:
        return len(self.names)

    def at_most(self, evidence: Evidence, miss: float) -> Array:
        """Upper bounds of all means (scaled to [0, 1]) that hold at once, given the labels."""
        found = []
        for of in self.rows:
            cluster = None
            if evidence.cluster is not None:
                cluster = np.unique(evidence.cluster[of], return_inverse=True)[1]
            own = Evidence(evidence.losses[of], evidence.two_valued, cluster)
            found.append(own.mean_at_most(miss / len(self)))
        return np.array(found)

    def shares(self, p: Array) -> tuple[Share, ...]:
        """Every group now and in a mix."""
        if not np.isfinite(p).all():
            return tuple(
                Share(name, float(now), float("nan"))
                for name, now in zip(self.names, self.share, strict=True)
            )
        return tuple(
            Share(name, float(now), float(then))
            for name, now, then in zip(self.names, self.share, p, strict=True)
        )

    def rows_behind(self, p: Array) -> float:
        """How many rows carry the mean of a mix: 1/Σ w² of its weights w."""
        return 1.0 / sum(
            float(share) ** 2 * float(own @ own) for share, own in zip(p, self.inner, strict=True)
        )

    def effects(self, family: Family, least: LeastRadius) -> Array | None:
        """What a row adds to the least radius, up to its sign: by the shares, and by the means."""
        return self._effects(family, least.p, 1.0, float(least.multiplier))

    def worst_effects(self, family: Family, p: Array, eta: float) -> Array | None:
        """What a row adds to the worst mean over mixes, at the multiplier eta of the radius."""
        return self._effects(family, p, eta, 1.0)

    def _effects(self, family: Family, p: Array, by_share: float, by_mean: float) -> Array | None:
        influence = family.influence(p / self.share)
        if influence is None:
            return None
        shared = by_share / self.total * (influence - float(self.share @ influence))
        if self.disjoint:
            return np.asarray(self.weight * shared[self._code] + (by_mean * p)[self._code] * self._away)
        effect = np.zeros(self.losses.size)
        for g, of in enumerate(self.rows):
            own = self.inner[g] * (self.losses[of] - self.means[g])
            effect[of] += self.weight[of] * shared[g] + by_mean * p[g] * own
        return effect

    @cached_property
    def _code(self) -> NDArray[np.intp]:
        """The group of each row; every row is in one."""
        code = np.empty(self.losses.size, np.intp)
        for g, of in enumerate(self.rows):
            code[of] = g
        return code

    @cached_property
    def _away(self) -> Array:
        """How far each loss is from its group's mean, times its weight in the group."""
        away = np.empty(self.losses.size)
        for of, inner, mean in zip(self.rows, self.inner, self.means, strict=True):
            away[of] = inner * (self.losses[of] - mean)
        return away
