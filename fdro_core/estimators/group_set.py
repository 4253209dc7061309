"""The set over groups that an estimator's settings describe, and its size by cross-validation.

radius="cv" takes the size by the worst group's score on data held out of training. The sizes tried are shares
of the radius that holds every distribution, so that one list fits every set and number of groups; 0 is
ordinary training. Every group is spread over the folds, so that each of them is in every training part and,
if it has two samples, in some test part. The scores of all folds are pooled by group before the worst is
taken: the lowest of a few small groups in one fold would be mostly chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import InvalidSetting
from uncertainty_sets import KL, UncertaintySet
from uncertainty_sets.arrays import Array
from uncertainty_sets.by_name import make_set

KL_RADIUS = 0.3
"""The estimators' radius of a KL ball.

Over the data of `python -m bench groups`, on other splits than those reported, the worst group gained the
most between 0.3 and 0.5 and never lost; beyond 0.5 it lost on Adult, whose small groups can then take over.
"""

SHARES = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FOLDS = 5


def default_set(named: Mapping[str, Any]) -> str:
    """The name of the set if none was chosen: KL, or CD-norm if one of its own parameters is given."""
    return "cd-norm" if {"budget", "spread"} & {n for n, v in named.items() if v is not None} else KL.name


def build_set(
    wanted: Any, prior: Array, named: Mapping[str, Any], others: Mapping[str, Any] | None
) -> UncertaintySet:
    """The set over groups with that prior.

    Args:
        wanted: a registry name, a class, or a set itself, with an entry for each group or open to any number.
        prior: q, the centre of sets that have one.
        named: parameters that may be None, for "not given".
        others: parameters by name.

    >>> import numpy as np
    >>> build_set("kl", np.array([0.5, 0.5]), {"radius": 0.2, "budget": None}, None)
    KL(center=[0.5, 0.5], radius=0.2)
    """
    given = {name: value for name, value in named.items() if value is not None} | dict(others or {})
    if wanted in {KL.name, KL}:
        given.setdefault("radius", KL_RADIUS)
    made = make_set(wanted, given, prior.size, center=prior, fill=True)
    if made.size != prior.size:
        raise InvalidSetting(
            f"the uncertainty set has {made.size} entries and there are {prior.size} groups; give the set by "
            "its name if only the data tell how many groups there are"
        )
    return made


@dataclass(frozen=True)
class Choice:
    """What cross-validation found.

    Attributes:
        radius: the size with the best worst group; the smallest among equals.
        radii: the sizes tried.
        scores: the groups' scores on held-out data, (radii, groups); NaN for a group of one sample.
    """

    radius: float
    radii: Array
    scores: Array

    @property
    def worst(self) -> Array:
        """The worst group's score for each radius."""
        lowest: Array = np.nanmin(self.scores, axis=1)
        return lowest


def radii(whole: UncertaintySet) -> Array:
    """The sizes to try for a set with that centre; its own radius does not matter."""
    vertices = np.eye(int(whole.size or 0))[np.asarray(whole.reference()) > 0.0]
    largest = max(whole.radius_of(vertex) for vertex in vertices)
    sizes: Array = np.array(SHARES) * largest
    return sizes


def folds(y: NDArray[Any], group: NDArray[np.intp], seed: int) -> NDArray[np.intp]:
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
            found[rows] = (np.arange(rows.size) + rng.integers(FOLDS)) % FOLDS
    return found


def choose(
    sizes: Array,
    fold: NDArray[np.intp],
    group: NDArray[np.intp],
    weight: Array,
    score: Callable[[float, NDArray[np.bool_]], Array],
) -> Choice:
    """The size whose worst group does best.

    Args:
        sizes: the radii to try, rising.
        fold: of each sample.
        group: of each sample.
        weight: of each sample.
        score: from a radius and the training samples to the scores of the others, in their order; higher is
            better.
    """
    scores = np.full((sizes.size, int(group.max()) + 1), np.nan)
    tested = fold >= 0
    total = np.bincount(group[tested], weights=weight[tested], minlength=scores.shape[1])
    for place, radius in enumerate(sizes.tolist()):
        values = np.zeros(group.size)
        for number in np.unique(fold[tested]):
            values[fold == number] = score(radius, fold != number)
        sums = np.bincount(group, weights=np.where(tested, weight * values, 0.0), minlength=total.size)
        np.divide(sums, total, out=scores[place], where=total > 0)
    best = int(np.nanmin(scores, axis=1).argmax())
    return Choice(float(sizes[best]), sizes, scores)
