"""radius="cv": the size of the set by the worst group's score on data held out of training.

The sizes tried are shares of the radius that holds every distribution, so that one list fits every set and
number of groups; 0 is ordinary training. Every group is spread over the folds, so that each of them is in
every training part and, if it has two samples, in some test part. The scores of all folds are pooled by group
before the worst is taken: the lowest of a few small groups in one fold would be mostly chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets import UncertaintySet
from uncertainty_sets.arrays import Array

SHARES = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FOLDS = 5


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
