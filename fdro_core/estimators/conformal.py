"""Conformal prediction that keeps its coverage when the world shifts, around any fitted model."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import EstimatorWarning, InvalidSetting
from fdro_core.estimators.settings import BaseEstimator, check_is_fitted
from uncertainty_sets.arrays import Array
from uncertainty_sets.audit import inputs
from uncertainty_sets.audit.conformal import Threshold, ball_threshold, group_threshold
from uncertainty_sets.audit.families import Family, family_of

__all__ = ["RobustConformal"]

EVERY_MIX = "any"


@dataclass(repr=False, eq=False)
class RobustConformal(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Prediction sets and intervals that hold their coverage for every distribution in a set.

    Ordinary (split) conformal prediction covers 1 - alpha if new data come from the same distribution as the
    calibration data. Here they may come from any distribution within `radius` of it, or from any mix of the
    groups within `group_radius` of the groups' shares. No radius is a default: it says how much shift there
    may be. `radius_of` between past periods is a way to find one.

    On average over calibration data the threshold is as small as the scores allow: the rank is exact. With
    `delta` the guarantee holds with probability 1 - delta over the calibration data. Where the group of a new
    sample is known, `per_group` gives each group its own threshold, and mostly smaller sets.

    Args:
        model: a fitted classifier with `predict_proba`, or regressor; None if scores are given.
        uncertainty_set: the set around the distribution of the calibration data, a name or class such as
            "kl" or "total-variation"; None: no shift of this kind.
        radius: its radius, or tail.
        alpha: the share of new samples that may be missed.
        over_groups: the set around the groups' shares; "any": every mix; None: groups do not shift.
        group_radius: its radius, or tail.
        per_group: a threshold for each group.
        delta: see above; None: on average. A set in the groups and one over them together need it.

    Attributes:
        threshold_: of the scores 1 - probability, or |error|; infinite if no finite one is proved.
        thresholds_: of each group, with per_group.
        missed_: the share that may be missed at most, proved, over the set.
        groups_: the groups' names.
        n_: the scores.

    The threshold of 1,000 scores for a world that stays, and for worlds within KL 0.1:

    >>> import numpy as np
    >>> scores = np.random.default_rng(0).random(1000)
    >>> plain = RobustConformal(alpha=0.1).fit(scores)
    >>> robust = RobustConformal(uncertainty_set="kl", radius=0.1, alpha=0.1).fit(scores)
    >>> round(plain.threshold_, 3), round(robust.threshold_, 3)
    (0.897, 0.982)
    """

    model: Any = None
    _: KW_ONLY
    uncertainty_set: Any = None
    radius: float | None = None
    alpha: float = 0.1
    over_groups: Any = None
    group_radius: float | None = None
    per_group: bool = False
    delta: float | None = None

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> RobustConformal:
        """Calibrate on data that the model has not seen; without y, X are the scores.

        Args:
            X: samples, or a score for each, larger is worse.
            y: their labels or targets.
            groups: labels, or a boolean array (samples, groups) if groups overlap.
        """
        inner = self._checked(groups)
        scores = inputs.as_losses(X, None) if y is None else self._scores(X, y)
        self.n_ = scores.size
        if groups is None:
            self._keep(ball_threshold(scores, self.alpha, *inner, self.delta))
            return self
        names, rows = _groups(groups, scores.size)
        self.groups_ = np.array(names)
        if self.per_group:
            found = [ball_threshold(scores[of], self.alpha, *inner, self.delta) for of in rows]
            self.thresholds_ = np.array([each.value for each in found])
            worst = max(found, key=lambda each: each.value)
            self._keep(worst, f" in group {names[found.index(worst)]}")
            self.missed_ = max(each.miss for each in found)
            return self
        kind = None if self.over_groups == EVERY_MIX else self.over_groups
        within = None if inner[0] is None else (inner[0], inner[1])
        self._keep(
            group_threshold(
                scores, rows, self.alpha, kind, self.group_radius, inside=within, delta=self.delta
            )
        )
        return self

    def predict_set(self, X: Any, groups: Any = None) -> NDArray[np.bool_]:
        """Which labels are in each sample's set, (samples, classes) in the order of the model's classes."""
        probabilities = inputs.plain(self.model.predict_proba(X))
        limits = self._limits(len(probabilities), groups)
        return np.asarray(1.0 - probabilities <= limits[:, None])

    def predict_interval(self, X: Any, groups: Any = None) -> Array:
        """The ends of each sample's interval, (samples, 2)."""
        middle = inputs.plain(self.model.predict(X)).astype(np.float64)
        limits = self._limits(len(middle), groups)
        return np.stack([middle - limits, middle + limits], axis=1)

    # -- checks -------------------------------------------------------------------------------------------

    def _checked(self, groups: Any) -> tuple[Family | None, float]:
        """The set around the calibration data and its size; refuse settings that contradict each other."""
        alpha: Any = self.alpha  # users may pass any type
        if not 0.0 < float(alpha) < 1.0:
            raise InvalidSetting(f"alpha must be above 0 and below 1, got {self.alpha!r}")
        if self.delta is not None and not 0.0 < float(self.delta) < 1.0:
            raise InvalidSetting(f"delta must be above 0 and below 1, or None, got {self.delta!r}")
        if (self.uncertainty_set is None) != (self.radius is None):
            raise InvalidSetting(
                "uncertainty_set and radius belong together: give both, or neither for no shift; "
                f"got {self.uncertainty_set!r} and {self.radius!r}"
            )
        every = isinstance(self.over_groups, str) and self.over_groups == EVERY_MIX
        if every and self.group_radius is not None:
            raise InvalidSetting("over_groups='any' is every mix and takes no group_radius")
        if not every and (self.over_groups is None) != (self.group_radius is None):
            raise InvalidSetting(
                "over_groups and group_radius belong together: give both, over_groups='any', or neither; "
                f"got {self.over_groups!r} and {self.group_radius!r}"
            )
        asked = self.over_groups is not None or self.per_group
        if asked and groups is None:
            raise InvalidSetting("over_groups and per_group need fit(X, y, groups=…)")
        if groups is not None and (self.over_groups is None) != self.per_group:
            raise InvalidSetting(
                "with groups say what is wanted: over_groups for mixes of them, or per_group=True for a "
                "threshold of each, and not both"
            )
        if self.uncertainty_set is None or self.radius is None:
            return None, 0.0
        family = family_of(self.uncertainty_set)
        if not family.is_known:
            raise InvalidSetting(
                f"nothing is proved for {family.name}; take KL, chi-square or total-variation"
            )
        return family, family.check(self.radius)

    def _scores(self, X: Any, y: Any) -> Array:
        truth = inputs.plain(y)
        if self.model is None:
            raise InvalidSetting("without a model give the scores: fit(scores)")
        if not hasattr(self.model, "predict_proba"):
            return np.asarray(np.abs(truth - inputs.plain(self.model.predict(X)).astype(np.float64)))
        classes = inputs.plain(self.model.classes_)
        place = np.minimum(np.searchsorted(classes, truth), classes.size - 1)
        unknown = classes[place] != truth
        if unknown.any():
            raise InvalidSetting(f"label {truth[unknown][0]!r} is none of the model's classes")
        return np.asarray(1.0 - inputs.plain(self.model.predict_proba(X))[np.arange(truth.size), place])

    def _keep(self, found: Threshold, where: str = "") -> None:
        self.threshold_, self.missed_ = found.value, found.miss
        if found.value == np.inf:
            more = f"{found.needed} are needed" if found.needed else "more are needed, or a smaller set"
            warnings.warn(
                f"no finite threshold is proved with {found.n} scores{where}: {more}; every label is in the "
                "set, and intervals are infinite",
                EstimatorWarning,
                stacklevel=3,
            )

    def _limits(self, n: int, groups: Any) -> Array:
        check_is_fitted(self)
        if not self.per_group:
            return np.full(n, self.threshold_)
        if groups is None:
            raise InvalidSetting("with per_group every sample needs its group: predict(X, groups=…)")
        names, rows = _groups(groups, n)
        limits = np.full(n, -np.inf)
        known = self.groups_.tolist()
        for name, of in zip(names, rows, strict=True):
            own = self.thresholds_[known.index(name)] if name in known else np.inf
            limits[of] = np.maximum(limits[of], own)
        return limits


def _groups(given: Any, n: int) -> tuple[list[str], list[NDArray[np.intp]]]:
    """Names and rows of the groups; none is merged, since thresholds are looked up by name."""
    values = inputs.plain(given)
    if values.ndim == 1:
        names, code = inputs.codes(values, n, "groups")
        return names, [np.flatnonzero(code == g) for g in range(len(names))]
    names, rows, _ = inputs.as_groups(given, None, n)
    return names, rows
