"""The audit: how far the world may move before the mean loss of a model reaches a threshold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.audit import inputs
from uncertainty_sets.audit.answers import Failure, GroupRow, Interval, Subpopulation, World, Worst
from uncertainty_sets.audit.bounds import Evidence, evenly
from uncertainty_sets.audit.families import Family, family_of
from uncertainty_sets.audit.groups import Groups
from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.packages import load
from uncertainty_sets.sets.cvar import CVaR

if TYPE_CHECKING:
    from uncertainty_sets.audit.report import Report

ENOUGH, ERRORS = 200, 10
"""Independent rows, and rows with a loss, below which no asymptotic number is given."""

CARRYING = 30
"""Rows that carry the worst case (1/Σp²), below which no asymptotic number is given."""


class Audit:
    """Ask of any model's losses how bad they can become, and how little it takes.

    A world is another distribution over the same rows, or over groups of them, within a set around the data.
    The model does not matter: a loss for each row it has not been trained on is enough. Every number says
    what it rests on (`Holds`): a certificate for this sample, a bound for the population at any number of
    samples, or an asymptotic interval, which is left out below 200 rows or ten errors.

    >>> import numpy as np
    >>> from uncertainty_sets import KL
    >>> from uncertainty_sets.audit import Audit
    >>> region = np.repeat(["north", "south"], [900, 100])
    >>> errors = np.r_[np.arange(900) % 20 == 0, np.arange(100) % 4 == 0]
    >>> audit = Audit(errors, groups=region)
    >>> print(audit.group_radius_to_failure(KL, 0.12))
    the mean loss reaches 0.12 at KL over the groups 0.227, as if south went from 10 % to 35 %
      [in this sample, proved]
    not below 0.0377 (confidence 95 %, given the labels)
      [population, proved]
    0.0454 to 0.547 (95 %)
      [population, asymptotic]

    Args:
        losses: one for each row, larger is worse; errors may be true and false; or a column's name.
        groups: labels, or what else `inputs.as_groups` takes: overlapping ones, columns by name.
        covariates: (rows, covariates), a table, or names of columns.
        names: of the covariates, if an array has none.
        clusters: labels of rows that depend on each other, such as the patient. Then clusters are
            independent, each counts once, and its rows share that.
        sample_weight: a weight above 0 for each row. Then nothing is proved for the population.
        bounds: the least and largest loss that are possible, known beforehand; None: unknown, and nothing is
            said of the population.
        confidence: of each statement about the population. For several statements at once divide 1 -
            confidence among them.
        data: a table whose columns the other arguments may name.
    """

    def __init__(
        self,
        losses: Any,
        *,
        groups: Any = None,
        covariates: Any = None,
        names: Any = None,
        clusters: Any = None,
        sample_weight: Any = None,
        bounds: tuple[float, float] | None = (0.0, 1.0),
        confidence: float = 0.95,
        data: Any = None,
    ) -> None:
        if not 0.5 <= confidence < 1.0:
            raise InvalidInput(f"confidence must be in [0.5, 1), got {confidence}", parameter="confidence")
        self.losses = inputs.as_losses(losses, data)
        self.n = self.losses.size
        self.bounds = inputs.as_bounds(bounds, self.losses)
        self.confidence, self.miss = float(confidence), 1.0 - float(confidence)
        weights = inputs.as_weights(sample_weight, data, self.n)
        self.cluster = None
        if clusters is not None:
            labels = inputs.column(data, clusters, "clusters") if isinstance(clusters, str) else clusters
            self.cluster = inputs.codes(labels, self.n, "clusters")[1]
        self.weight = np.full(self.n, 1.0 / self.n)
        if weights is not None:
            self.weight = weights
        elif self.cluster is not None:
            self.weight = evenly(self.cluster)
        self.mean = float(self.weight @ self.losses)
        self.two_valued = self.bounds is not None and bool(np.isin(self.losses, self.bounds).all())
        self.unproved = ""
        if self.bounds is None:
            self.unproved = "the losses have no known bounds"
        elif weights is not None:
            self.unproved = "the rows have weights"
        self.groups: Groups | None = None
        if groups is not None:
            once = self.cluster if weights is None else None
            self.groups = Groups(*inputs.as_groups(groups, data, self.n), self.losses, self.weight, once)
        self.covariates: Array | None = None
        self.names: list[str] = []
        if covariates is not None:
            self.covariates, self.names = inputs.as_covariates(covariates, data, names, self.n)
        self._low, self._width = (
            (0.0, 1.0) if self.bounds is None else (self.bounds[0], self.bounds[1] - self.bounds[0])
        )
        self._bounds_of_groups: Array | None = None
        self._evidence: Evidence | None = None
        if not self.unproved:
            scaled = (self.losses - self._low) / self._width
            self._evidence = Evidence(scaled, self.two_valued, self.cluster)

    def __repr__(self) -> str:
        groups = "" if self.groups is None else f", {len(self.groups)} groups"
        return f"Audit({self.n:,} rows, mean loss {self.mean:.4g}{groups}; call .report(threshold))"

    # -- over the rows --------------------------------------------------------------------------------------

    def mean_at_most(self) -> float | None:
        """An upper bound of the population's mean loss, proved; None if nothing is."""
        return None if self._evidence is None else self._back(self._evidence.mean_at_most(self.miss))

    def worst(self, kind: Any, size: float) -> Worst:
        """Return the largest mean loss over {p within `size` of the rows' weights}.

        Args:
            kind: a class of sets such as `KL`, `ChiSquare` or `CVaR`, its name, or a partial of
                `CressieRead`.
            size: its radius, or its tail.
        """
        family = family_of(kind)
        size = family.check(size)
        answer = family.around(self.weight, size).worst_case(self.losses)
        at_most, why = self._proved(family)
        if not why and self._evidence is not None:
            at_most = self._back(self._evidence.worst_at_most(family, size, self.miss))
        interval = None
        if self._asymptotic(answer.p):
            effect = None
            if family.kind is CVaR:
                effect = np.maximum(self.losses - answer.dual["var"], 0.0) / size
            elif "eta" in answer.dual and math.isfinite(answer.dual["eta"]):
                influence = family.influence(answer.p / self.weight)
                effect = None if influence is None else float(answer.dual["eta"]) * influence
            if effect is not None:
                half = self._quantile() * self._deviation(effect * self.weight, centre=True)
                interval = (float(answer.value) - half, float(answer.value) + half)
        return Worst(
            family.name, size, self.confidence, float(answer.value), float(answer.upper_bound), at_most,
            interval, answer.p, unproved=why,
        )  # fmt: skip

    def radius_to_failure(self, kind: Any, threshold: float) -> Failure:
        """Return the least radius at which the worst mean loss reaches a threshold: the s-value.

        Of losses that are 0 and 1 it says no more than the mean does: give groups or covariates.
        """
        family = family_of(kind)
        least = family.around(self.weight, 1.0).radius_for(self.losses, threshold)
        at_least, why = self._proved(family)
        if not why and self._evidence is not None:
            at_least = self._evidence.radius_at_least(
                family, (threshold - self._low) / self._width, self.miss
            )
        interval = None
        if 0.0 < least.radius < np.inf and self._asymptotic(least.p):
            if family.kind is CVaR:
                tail = 1.0 / (1.0 + least.radius)
                a = threshold - 1.0 / (tail * least.multiplier)
                effect = least.multiplier / tail * np.maximum(self.losses - a, 0.0)
            else:
                effect = family.influence(least.p / self.weight)
            if effect is not None:
                interval = self._root(least.radius, self._deviation(effect * self.weight, centre=True))
        tail = family.size_of(least.radius) if family.size == "tail" and least.radius < np.inf else None
        return Failure(
            family.name, float(threshold), self.confidence, float(least.radius), float(least.lower_bound),
            at_least, interval, least.p, tail=tail, unproved=why,
        )  # fmt: skip

    # -- over the groups ------------------------------------------------------------------------------------

    def worst_groups(self, kind: Any = None, size: float | None = None) -> Worst:
        """Return the largest mean loss over mixes of the groups, the rows of each as they are.

        Args:
            kind: a class of sets around the groups' shares, or its name; None: any mix, the worst group.
            size: its radius or tail.
        """
        groups = self._groups()
        if (kind is None) != (size is None):
            raise InvalidInput("a set of mixes needs a kind and a size; without both, every mix is possible")
        bounds = (
            None
            if self._evidence is None
            else self._low + self._width * groups.at_most(self._evidence, self.miss)
        )
        if kind is None or size is None:
            p = np.zeros(len(groups))
            p[int(groups.means.argmax())] = 1.0
            value = float(groups.means.max())
            at_most = None if bounds is None else float(bounds.max())
            return Worst(
                "any mix", math.inf, self.confidence, value, value, at_most, None, p, groups.shares(p),
                unproved=self.unproved,
            )  # fmt: skip
        family = family_of(kind)
        size = family.check(size)
        subject = family.around(groups.share, size)
        answer = subject.worst_case(groups.means)
        at_most = None if bounds is None else float(subject.worst_case(bounds).upper_bound)
        interval = None
        if "eta" in answer.dual and math.isfinite(answer.dual["eta"]) and self._carried(answer.p):
            effect = groups.worst_effects(family, answer.p, float(answer.dual["eta"]))
            if effect is not None:
                half = self._quantile() * self._deviation(effect)
                interval = (float(answer.value) - half, float(answer.value) + half)
        return Worst(
            family.name, size, self.confidence, float(answer.value), float(answer.upper_bound), at_most,
            interval, answer.p, groups.shares(answer.p), self.unproved,
        )  # fmt: skip

    def group_radius_to_failure(self, kind: Any, threshold: float) -> Failure:
        """Return the least radius around the groups' shares at which the mean loss reaches a threshold."""
        groups, family = self._groups(), family_of(kind)
        subject = family.around(groups.share, 1.0)
        least = subject.radius_for(groups.means, threshold)
        at_least, bounds = None, self._group_bounds()
        if bounds is not None:
            at_least = float(subject.radius_for(bounds, threshold).lower_bound)
        interval = None
        if 0.0 < least.radius < np.inf and self._carried(least.p):
            effect = groups.effects(family, least)
            if effect is not None:
                interval = self._root(least.radius, self._deviation(effect))
        tail = family.size_of(least.radius) if family.size == "tail" and least.radius < np.inf else None
        return Failure(
            family.name, float(threshold), self.confidence, float(least.radius), float(least.lower_bound),
            at_least, interval, least.p, groups.shares(least.p), tail, self.unproved,
        )  # fmt: skip

    def group_table(self, kind: Any = None, size: float | None = None) -> list[GroupRow]:
        """The groups, the worst first; with a kind and a size also how far a share can grow (`translate`)."""
        groups = self._groups()
        bounds = (
            None
            if self._evidence is None
            else self._low + self._width * groups.at_most(self._evidence, self.miss)
        )
        moves = (
            {} if kind is None or size is None else {row[0]: row[1:] for row in self.translate(kind, size)}
        )
        rows = []
        for g in np.argsort(-groups.means, kind="stable").tolist():
            name = groups.names[g]
            rows.append(
                GroupRow(
                    name,
                    int(groups.sizes[g]),
                    float(groups.share[g]),
                    float(groups.means[g]),
                    None if bounds is None else float(bounds[g]),
                    *moves.get(name, ()),
                )
            )
        return rows

    def translate(self, kind: Any, size: float) -> list[tuple[str, float, float]]:
        """For each group: how large its share can be at that size, and the radius at which it
        doubles (infinite above one half)."""
        groups, family = self._groups(), family_of(kind)
        size = family.check(size)
        rows = []
        for name, share in zip(groups.names, groups.share.tolist(), strict=True):
            two = np.array([1.0 - share, share])
            grown = float(family.around(two, size).worst_case([0.0, 1.0]).value)
            doubled = math.inf
            if share <= 0.5:
                doubled = float(family.around(two, 1.0).radius_for([0.0, 1.0], 2.0 * share).radius)
            rows.append((name, grown, doubled))
        return rows

    # -- over the covariates: descriptions, and one lower bound ---------------------------------------------

    def worst_subpopulation(self, share: float, *, model: Any = None, folds: int = 5) -> Subpopulation:
        """Return the worst mean over parts of that share of the data that the covariates tell.

        Args:
            share: in (0, 1).
            model: a regression of scikit-learn for the losses; None: gradient boosting.
            folds: for cross-fitting.
        """
        from uncertainty_sets.audit import covariates

        return covariates.worst_subpopulation(self, share, model, folds)

    def world(self, kind: Any, size: float, *, model: Any = None, depth: int = 3) -> World:
        """Describe the shift of the covariates that hurts most within a set: rules and mean shifts.

        Args:
            kind, size: the set, as in `worst`.
            model: a regression of scikit-learn for the losses; None: gradient boosting.
            depth: of the tree that puts it into words.
        """
        from uncertainty_sets.audit import covariates

        return covariates.world(self, family_of(kind), size, model, depth)

    def report(self, threshold: float, *, kind: Any = "kl", radius: float | None = None) -> Report:
        """Return all of it on one page, as text; `fdro audit --html` writes the same as a page.

        Args:
            threshold: the mean loss that counts as failure.
            kind: the set in which shifts are measured.
            radius: for the worst case and the world within it; None: those where the threshold is reached.
        """
        from uncertainty_sets.audit.report import Report

        return Report.of(self, threshold, kind, radius)

    # -- what they share ------------------------------------------------------------------------------------

    def _groups(self) -> Groups:
        if self.groups is None:
            raise InvalidInput("this audit has no groups: Audit(losses, groups=…)", parameter="groups")
        return self.groups

    def _group_bounds(self) -> Array | None:
        """Upper bounds of the groups' means that hold at once; None if nothing is proved."""
        if self._evidence is None:
            return None
        if self._bounds_of_groups is None:
            scaled = self._groups().at_most(self._evidence, self.miss)
            self._bounds_of_groups = self._low + self._width * scaled
        return self._bounds_of_groups

    def _back(self, scaled: float) -> float:
        return self._low + self._width * scaled

    def _proved(self, family: Family) -> tuple[None, str]:
        """Why nothing can be proved for the population, if so."""
        if self.unproved or family.is_known:
            return None, self.unproved
        return (
            None,
            f"the worst case over {family.name} is not a function of the losses' law that grows with it",
        )

    def _units(self) -> float:
        """How many independent rows there are, by their weights (Kish)."""
        weight = self.weight if self.cluster is None else np.bincount(self.cluster, self.weight)
        return 1.0 / float(weight @ weight)

    def _enough(self) -> bool:
        """Whether there are enough rows, and errors, for a normal approximation."""
        if self.bounds is None:
            return False
        with_loss, without = self.losses > self.bounds[0], self.losses < self.bounds[1]
        if self.cluster is not None:
            with_loss = np.bincount(self.cluster, with_loss) > 0
            without = np.bincount(self.cluster, without) > 0
        return self._units() >= ENOUGH - 1e-6 and min(int(with_loss.sum()), int(without.sum())) >= ERRORS

    def _asymptotic(self, p: Array) -> bool:
        """The same for a worst case over the rows, which some must carry."""
        return self._enough() and 1.0 / float(p @ p) >= CARRYING

    def _carried(self, p: Array) -> bool:
        """The same for a mix of groups."""
        return self._enough() and self._groups().rows_behind(p) >= CARRYING

    def _deviation(self, parts: Array, *, centre: bool = False) -> float:
        """The standard deviation of Σ parts, the rows or clusters being independent."""
        if centre:
            parts = parts - self.weight * float(parts.sum())
        if self.cluster is not None:
            parts = np.asarray(np.bincount(self.cluster, parts), dtype=np.float64)
        return math.sqrt(float(parts @ parts))

    def _quantile(self) -> float:
        return float(load("scipy.special", "an audit").ndtri(1.0 - self.miss / 2.0))

    def _root(self, radius: float, deviation: float) -> Interval:
        """An interval on the scale of √radius, on which it is nearly normal."""
        root = math.sqrt(radius)
        half = self._quantile() * deviation / (2.0 * root)
        return max(0.0, root - half) ** 2, (root + half) ** 2
