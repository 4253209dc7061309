"""What held-out folds say about a fit: beside simpler models, and beside coefficients by group.

Three questions, each with an error: does the set still do better than a constant? do the groups need
coefficients of their own? what is the least loss that any shared model can have (the ceiling)?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fdro_core.estimators.held_out import ERRORS, ROUGHLY, STEPS, HeldOut, Measured, Trainable, folds
from uncertainty_sets import KL, Box
from uncertainty_sets.arrays import Array

ALTERNATIVE = 1.0
"""The pooling of the model by group that a shared one is compared with."""

MARGIN = 0.1
"""What a model must be able to have above a constant: accuracy, or a share of the constant's error."""

LEVEL = 0.95
LEAST = 10
"""Samples that a group needs for the ceiling, which cuts it in halves."""


class Diagnosed(Trainable, Protocol):
    """What the diagnosis asks of an estimator."""

    def _constant(self, y: NDArray[Any], share: Array, tested: NDArray[Any]) -> tuple[Array, Array]:
        """Loss and score on `tested` of the best constant for y with weights `share` that sum to 1."""
        ...

    def _row(self, mean: Array, square: Array, count: Array) -> tuple[Array, Array, Array]:
        """What is shown of scores with these means and mean squares: value and ends of an interval."""
        ...

    lower_is_better: bool


@dataclass(frozen=True)
class OwnTest:
    """Held-out loss of the shared model above that of a model by group, under the training mix.

    Attributes:
        gain: Σ_g p_g mean_g(shared - by group); positive if the groups need coefficients of their own.
        error: its standard error.
    """

    gain: float
    error: float

    @property
    def significant(self) -> bool:
        """Whether the gain is above chance, by two standard errors."""
        return self.gain > ERRORS * self.error


@dataclass(frozen=True)
class Ceiling:
    """The least worst-group loss, with the ridge, that any shared model can have.

    For any mix p and every w, max_g F_g(w) >= p·F(w). So p comes from one half of the samples, the minimum
    over w for that p from the other, with a proof; and the reverse. All numbers are means of both.

    Attributes:
        weights: p, by group.
        proof: the proved minimum of p·f(w) + l2/2·‖w‖² on the samples.
        limit: a lower limit of it in the population: `proof` less 1.645 standard errors, 95 % for many
            samples.
        constant: the loss for p of the best constant.
        own, own_error: the held-out loss for p of coefficients by group, and its standard error.
    """

    weights: Array
    proof: float
    limit: float
    constant: float
    own: float
    own_error: float

    def __str__(self) -> str:
        return (
            f"no shared linear model has a loss of the worst group below {self.limit:.3f} ({LEVEL:.0%} "
            f"limit); the best constant has {self.constant:.3f} for those groups, coefficients by group "
            f"{self.own:.3f} ± {self.own_error:.3f}"
        )


def ceiling(
    of: Diagnosed,
    X: Any,
    y: NDArray[Any],
    group: NDArray[np.intp],
    weight: Array | None,
    prior: Array,
    seed: int,
) -> Ceiling | None:
    """The ceiling by halves; None if fewer than two groups have 10 samples."""
    sizes = np.bincount(group)
    large = np.flatnonzero(sizes >= LEAST)
    if large.size < 2:
        return None
    kept = np.isin(group, large)
    X, y = X[np.flatnonzero(kept)], y[kept]
    group, weight = np.searchsorted(large, group[kept]), None if weight is None else weight[kept]
    share = prior[large] / prior[large].sum() if prior[large].any() else np.full(large.size, 1.0 / large.size)
    half = folds(y, group, seed, count=2)
    found = [_one_way(of, X, y, group, weight, share, half == side) for side in (0, 1)]
    weights = np.zeros(sizes.size)
    weights[large] = 0.5 * (found[0][0] + found[1][0])
    return Ceiling(weights, *(0.5 * (a + b) for a, b in zip(found[0][1:], found[1][1:], strict=True)))


def _one_way(
    of: Diagnosed,
    X: Any,
    y: NDArray[Any],
    group: NDArray[np.intp],
    weight: Array | None,
    prior: Array,
    first: NDArray[np.bool_],
) -> tuple[Array, float, float, float, float, float]:
    def part(rows: NDArray[np.bool_]) -> tuple[Any, NDArray[Any], NDArray[np.intp], Array | None]:
        where = np.flatnonzero(rows)
        return X[where], y[where], group[where], None if weight is None else weight[where]

    a, b = part(first), part(~first)
    anything = Box(np.zeros(prior.size), np.ones(prior.size))
    p = of._task(*a, prior, 0.0).minimise(anything, 10 * ROUGHLY, STEPS).weights
    p = np.maximum(p, 0.0) / np.maximum(p, 0.0).sum()
    task = of._task(*b, prior, 0.0)
    best = task.minimise(KL(p, 0.0), ROUGHLY, STEPS)
    proof = task.unit * (float(p @ best.losses) + 0.5 * task.l2 * float(best.w @ best.w) - best.gap)

    share = p[b[2]] * (1.0 if b[3] is None else b[3])
    share = share / np.bincount(b[2], weights=b[3])[b[2]]

    def error(values: Array) -> float:
        means = np.bincount(b[2], weights=share * values) / np.where(p > 0, p, 1.0)
        return float(np.sqrt(share**2 @ (values - means[b[2]]) ** 2))

    shared, _ = of._measure(task, task.decode(best.w).scores(b[0], b[2]), b[1])
    own_task = of._task(*a, prior, ALTERNATIVE)
    model = own_task.decode(own_task.minimise(KL(p, 0.0), 10 * ROUGHLY, STEPS).w)
    own, _ = of._measure(own_task, model.scores(b[0], b[2]), b[1])
    constant, _ = of._constant(b[1], share, b[1])
    quantile = NormalDist().inv_cdf(LEVEL)
    limit = proof - quantile * error(shared)
    return p, proof, limit, float(share @ constant), float(share @ own), error(own)


@dataclass(frozen=True)
class Comparison:
    """Models on the same held-out folds, in the order of `summary()`: the last is by group.

    Attributes:
        models: by name: "constant", "radius 0", "even weights", "chosen", "pooled".
        own: the test of coefficients by group against the chosen shared model.
        collapsed: the name of a group where the chosen model is no better than a constant although ordinary
            training is better overall; None if there is none.
        rows: what `summary()` shows.
    """

    models: Mapping[str, Measured]
    own: OwnTest
    collapsed: Any
    rows: list[dict[str, Any]]


def compare(
    of: Diagnosed,
    held: HeldOut,
    names: list[Any],
    chosen: Measured,
    pooled: Measured,
    plain: Measured | None,
    fitted: str,
) -> Comparison:
    """Measure what is missing and judge.

    Args:
        of: the estimator.
        held: its samples.
        names: the groups.
        chosen: shared coefficients with the fitted set.
        pooled: coefficients by group; beside a shared fit those with the set's usual radius.
        plain: shared coefficients with radius 0, if they were measured.
        fitted: which of the models is the estimator's.
    """
    size = held.prior.size
    constant = Measured(*_constants(of, held), chosen.mix)
    models = {
        "constant": constant,
        "radius 0": plain or held.measure(KL(held.prior, 0.0), 0.0),
        "even weights": held.measure(KL(np.full(size, 1.0 / size), 0.0), 0.0),
        "chosen": chosen,
        "pooled": pooled,
    }
    test = OwnTest(*held.shift(chosen.loss - pooled.loss, chosen.mix))
    rows = [_line(of, held, names, name, model, name == fitted) for name, model in models.items()]
    return Comparison(models, test, _collapsed(of, held, names, models), rows)


def _constants(of: Diagnosed, held: HeldOut) -> tuple[Array, Array]:
    loss, score = np.zeros((2, held.y.size))
    weight = np.ones(held.y.size) if held.weight is None else held.weight
    for k in np.unique(held.fold[held.tested]):
        train, test = held.fold != k, held.fold == k
        loss[test], score[test] = of._constant(
            held.y[train], weight[train] / weight[train].sum(), held.y[test]
        )
    return loss, score


def _by_group(of: Diagnosed, held: HeldOut, model: Measured) -> tuple[Array, Array, Array]:
    mean = held.by_group(model.score)
    return of._row(mean, held.by_group(model.score**2), held.count.astype(np.float64))


def _worst(of: Diagnosed, value: Array) -> int:
    return int(np.nanargmax(value) if of.lower_is_better else np.nanargmin(value))


def _line(
    of: Diagnosed, held: HeldOut, names: list[Any], name: str, model: Measured, fitted: bool
) -> dict[str, Any]:
    value, low, high = _by_group(of, held, model)
    g = _worst(of, value)
    score = model.score[held.tested]
    weight = np.ones(score.size) if held.weight is None else held.weight[held.tested]
    mean, square = (np.array([np.average(each, weights=weight)]) for each in (score, score**2))
    all_value, all_low, all_high = of._row(mean, square, np.array([score.size]))
    return {
        "model": f"{name} (this one)" if fitted else name,
        "worst group": names[g],
        "there": float(value[g]),
        "95 % interval": (float(low[g]), float(high[g])),
        "all samples": float(all_value[0]),
        "95 % interval of all": (float(all_low[0]), float(all_high[0])),
    }


def no_better(low: float, high: float, constant: float, lower_is_better: bool = False) -> bool:
    """Whether even the good end of an interval is not much better than a constant.

    >>> no_better(0.42, 0.55, 0.5), no_better(0.42, 0.75, 0.5)
    (True, False)
    """
    return low >= (1.0 - MARGIN) * constant if lower_is_better else high <= constant + MARGIN


def above_chance(differences: Array, weight: Array, errors: float) -> bool:
    """Whether the weighted mean is above 0 by that many standard errors.

    >>> above_chance(np.array([1.0, 0.0, 1.0, 1.0]), np.ones(4), 2.0)
    True
    >>> above_chance(np.array([1.0, -1.0]), np.ones(2), 2.0)
    False
    """
    share = weight / weight.sum()
    mean = float(share @ differences)
    return mean > errors * float(np.sqrt(share**2 @ (differences - mean) ** 2))


def _collapsed(of: Diagnosed, held: HeldOut, names: list[Any], models: Mapping[str, Measured]) -> Any:
    """The chosen model's worst group if a constant is about as good there and radius 0 is better overall."""
    value, low, high = _by_group(of, held, models["chosen"])
    g = _worst(of, value)
    constant = _by_group(of, held, models["constant"])[0][g]
    if not no_better(low[g], high[g], constant, of.lower_is_better):
        return None
    weight: Array = np.where(held.tested, 1.0 if held.weight is None else held.weight, 0.0)
    loss = models["chosen"].score - models["radius 0"].score
    lost = above_chance(loss if of.lower_is_better else -loss, weight, ERRORS)
    return names[g] if lost else None


REMEDY = (
    'if the group is known at prediction, give the groups coefficients of their own: interactions="groups" '
    "and predict(X, groups=...)"
)


def remarks(comparison: Comparison, ceiling: Ceiling | None, shared: bool) -> list[str]:
    """What `summary()` says below its rows, and a warning if the model is shared."""
    test = comparison.own
    found = []
    if comparison.collapsed is not None and shared:
        found.append(
            f"in group {comparison.collapsed!r} the model is no better than a constant, and radius 0 is "
            "better over all samples"
        )
    if test.significant:
        found.append(
            "the groups need coefficients of their own: these lower the held-out loss by "
            f"{test.gain:.3f} ± {test.error:.3f}"
        )
    if found and ceiling is not None and ceiling.own < ceiling.limit:
        found.append(str(ceiling))
    return found
