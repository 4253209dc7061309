"""Losses on held-out folds, and the choices that radius="cv" and pooling="cv" make by them.

Every group is spread over the folds, so that each of them is in every training part and, if it has two
samples, in some test part. What the folds find is pooled by group before the worst is taken: the lowest of a
few small groups in one fold would be mostly chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import InvalidSetting
from fdro_core.estimators.pooling import Coefficients, Task
from uncertainty_sets.arrays import Array

FOLDS = 5
SCALES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
"""The pooling that pooling="cv" tries."""

ERRORS = 2.0
"""Standard errors by which a difference must be above 0 to count: 2.3 % of chance, one-sided."""

ROUGHLY = 1e-3
"""Tolerance of the models in cross-validation, whose scores are no more exact."""

STEPS = 400
"""Passes over the data for one of them."""


class Trainable(Protocol):
    """What an estimator says about its models."""

    def _task(
        self,
        X: Any,
        y: NDArray[Any],
        group: NDArray[np.intp],
        weight: Array | None,
        prior: Array,
        pooling: float,
    ) -> Task: ...

    def _measure(self, task: Task, scores: Array, y: NDArray[Any]) -> tuple[Array, Array]:
        """Each sample's loss and score (right or not, or the squared error), in the user's units."""
        ...


@dataclass(frozen=True)
class Measured:
    """One kind of model on samples that its training did not see.

    Attributes:
        loss, score: of each sample; 0 for those that were always in training.
        mix: the groups' weights in training, (folds, groups).
    """

    loss: Array
    score: Array
    mix: Array


def folds(y: NDArray[Any], group: NDArray[np.intp], seed: int, count: int = FOLDS) -> NDArray[np.intp]:
    """A fold for each sample: a group is dealt out label by label; -1, always in training, if it is alone.

    >>> folds(np.array([0, 0, 1, 1, 0]), np.array([0, 0, 0, 0, 1]), seed=0)[-1]
    np.int64(-1)
    """
    rng = np.random.default_rng(seed)
    found = np.full(group.size, -1, dtype=np.intp)
    for g in range(int(group.max()) + 1):
        rows = rng.permutation(np.flatnonzero(group == g))
        rows = rows[np.argsort(y[rows], kind="stable")]
        if rows.size > 1:
            found[rows] = (np.arange(rows.size) + rng.integers(count)) % count
    return found


class HeldOut:
    """Trains models on all folds but one and measures them there; the samples of one fit.

    A model starts from the last one on the same fold.
    """

    def __init__(
        self,
        of: Trainable,
        X: Any,
        y: NDArray[Any],
        group: NDArray[np.intp],
        weight: Array | None,
        prior: Array,
        seed: int,
        tolerance: float,
    ) -> None:
        self.of, self.X, self.y, self.group, self.weight = of, X, y, group, weight
        self.prior = prior
        self.tolerance = max(tolerance, ROUGHLY)
        self.fold = folds(y, group, seed)
        self.tested = self.fold >= 0
        if not self.tested.any():
            raise InvalidSetting("cross-validation needs groups of at least 2 samples, and each has one")
        self.groups = int(group.max()) + 1
        counts = np.where(self.tested, 1.0 if weight is None else weight, 0.0)
        total = np.bincount(group, weights=counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            self._share = np.where(self.tested, counts / total[group], 0.0)
        self.count = np.bincount(group[self.tested], minlength=self.groups)
        self._tasks: dict[tuple[int, float], Task] = {}
        self._starts: dict[int, Coefficients] = {}

    def measure(self, oracle: Any, pooling: float) -> Measured:
        """Five models for that set and pooling."""
        loss, score = np.zeros((2, self.y.size))
        mix = np.zeros((FOLDS, self.groups))
        for k in np.unique(self.fold[self.tested]).tolist():
            train, test = np.flatnonzero(self.fold != k), np.flatnonzero(self.fold == k)
            task = self._task(k, pooling, train)
            found = task.minimise(oracle, self.tolerance, STEPS, self._starts.get(k))
            self._starts[k] = model = task.decode(found.w)
            scores = model.scores(self.X[test], self.group[test])
            loss[test], score[test] = self.of._measure(task, scores, self.y[test])
            mix[k] = np.maximum(found.weights, 0.0) / np.maximum(found.weights, 0.0).sum()
        return Measured(loss, score, mix)

    def _task(self, k: int, pooling: float, train: NDArray[np.intp]) -> Task:
        for key in [key for key in self._tasks if key[1] != pooling]:
            del self._tasks[key]  # one pooling at a time: its columns take room
        if (k, pooling) not in self._tasks:
            weight = None if self.weight is None else self.weight[train]
            self._tasks[k, pooling] = self.of._task(
                self.X[train], self.y[train], self.group[train], weight, self.prior, pooling
            )
        return self._tasks[k, pooling]

    def by_group(self, values: Array) -> Array:
        """The groups' means; NaN for a group of one sample."""
        sums = np.bincount(self.group, weights=self._share * values)
        return np.where(self.count > 0, sums, np.nan)

    def shift(self, values: Array, mix: Array) -> tuple[float, float]:
        """Σ_g p_g mean_g(values) for the training mix p of each sample's fold, and its standard error."""
        p = np.where(self.tested, mix[self.fold, self.group], 0.0) * self._share
        left = values - np.nan_to_num(self.by_group(values))[self.group]
        return float(p @ values), float(np.sqrt(p**2 @ left**2))


@dataclass(frozen=True)
class Choice:
    """What cross-validation found about radii.

    Attributes:
        radius: the size with the best worst group; the smallest among equals.
        radii: the sizes tried.
        scores: the groups' scores on held-out data, (radii, groups), higher is better; NaN for a group of
            one sample.
    """

    radius: float
    radii: Array
    scores: Array

    @property
    def worst(self) -> Array:
        """The worst group's score for each radius."""
        lowest: Array = np.nanmin(self.scores, axis=1)
        return lowest


def choose_radius(radii: Array, scores: Array) -> Choice:
    """The radius whose worst group does best, from the groups' scores, (radii, groups).

    >>> choose_radius(np.array([0.0, 0.5]), np.array([[0.9, 0.4], [0.8, 0.7]])).radius
    0.5
    """
    best = int(np.nanmin(scores, axis=1).argmax())
    return Choice(float(radii[best]), radii, scores)


@dataclass(frozen=True)
class PoolingChoice:
    """What cross-validation found about pooling.

    Attributes:
        pooling: the one with the lowest robust loss; 0 unless that gains more than chance, by two errors.
        poolings: those tried.
        losses: the groups' losses on held-out data, (poolings, groups); NaN for a group of one sample.
        robust: the worst expected loss for each.
    """

    pooling: float
    poolings: Array
    losses: Array
    robust: Array


def choose_pooling(held: HeldOut, oracle: Any) -> tuple[PoolingChoice, Measured]:
    """The pooling by held-out robust loss, far less noisy than the worst accuracy, and its measurement."""
    found = [held.measure(oracle, s) for s in SCALES]
    means = np.array([held.by_group(each.loss) for each in found])
    known = np.isfinite(means[0])  # a group of one sample is taken to be as the others are
    filled = np.where(known, means, (means[:, known] @ held.prior[known] / held.prior[known].sum())[:, None])
    robust = np.array([float(oracle.worst_case(row).value) for row in filled])
    best = int(np.argmin(robust))
    gain, error = held.shift(found[0].loss - found[best].loss, found[0].mix)
    chosen = best if gain > ERRORS * error else 0
    return PoolingChoice(SCALES[chosen], np.array(SCALES), means, robust), found[chosen]
