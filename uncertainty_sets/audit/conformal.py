"""Thresholds of conformal prediction that keep their coverage for every distribution in a set.

Scores S_1 … S_n of held-out samples are independent draws of P; a new sample with score S comes from Q, and
is missed if S > S₍ₖ₎, the k-th smallest. docs/audit-theory.md has the proofs.

**One set, on average** (`rank`). With U uniform, S > S₍ₖ₎ implies U > U₍ₖ₎, and U₍ₖ₎ is Beta(k, n+1-k). So
a Q with likelihood ratio L misses E L(U)·G(U) at most, G the distribution function of that Beta: the worst Q
of the set is an oracle call with G as losses, and the least k whose worst case is at most α is the answer.
No smaller one does for continuous scores: the rank is exact. (Jensen's inequality gives the simpler rule
h(1 - k/(n+1)) <= α, `worst_miss` of the mean miss, whose ranks are up to some per cent larger.)

**One set, with confidence 1 - δ over the samples.** The miss under P is at most the (1-δ)-quantile of
Beta(n+1-k, k), and h of that at most α.

**Groups** (`group_threshold`). The least t with max over π of Σ π_g·(#{S > t in g} + 1)/(n_g + 1) <= α: for
every fixed mix π in the set the miss is at most α, given the labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.audit.bounds import binomial_upper
from uncertainty_sets.audit.families import Family, family_of
from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.packages import load

ROUGH, FINE = 1000, 30_000
"""Levels of the distribution function G, which is rounded up between them: that adds at most 1/levels of the
mass that Q has there, and next to nothing where G is near 0 or 1. The rank is found with few, and then
improved with many."""

MOST = 10**7
"""Samples beyond which no finite threshold is looked for."""


def worst_miss(family: Family | None, size: float, miss: Any) -> Array:
    """h: the largest probability in the set of events that have these under the centre; certified.

    >>> worst_miss(family_of("kl"), 0.1, [0.0, 0.05, 0.1]).round(4)
    array([0.    , 0.1729, 0.2569])
    """
    e = np.atleast_1d(np.asarray(miss, dtype=np.float64))
    if family is None:
        return e
    inside = (e > 0.0) & (e < 1.0)
    found = e.copy()
    if inside.any():
        centers = np.stack([1.0 - e[inside], e[inside]], axis=1)
        losses = np.tile([0.0, 1.0], (int(inside.sum()), 1))
        found[inside] = family.around(centers, size).worst_case(losses).upper_bound
    if (e == 0.0).any() and not _keeps_zero(family):
        found[e == 0.0] = 1.0 - float(family.around(np.array([1.0, 0.0]), size).worst_case([1.0, 0.0]).p[0])
        two = family.around(np.array([1.0, 0.0]), size).worst_case([0.0, 1.0])
        found[e == 0.0] = float(two.upper_bound)
    return np.minimum(found, 1.0)


def _keeps_zero(family: Family) -> bool:
    """Whether what is impossible under the centre stays so."""
    two = family.around(np.array([1.0, 0.0]), 0.5)
    return float(two.worst_case([0.0, 1.0]).upper_bound) <= 1e-12


def average_miss(n: int, k: int, family: Family | None, size: float, steps: int = FINE) -> float:
    """An upper bound of the largest probability of S > S₍ₖ₎ over all Q in the set, averaged over samples."""
    if family is None or (family.size == "radius" and size == 0.0):
        return 1.0 - k / (n + 1.0)
    special = load("scipy.special", "conformal prediction")
    ends = special.expit(np.linspace(-30.0, 30.0, steps // 4))
    levels = np.unique(np.concatenate([np.linspace(0.0, 1.0, steps + 1), ends]))
    at = special.betaincinv(float(k), n + 1.0 - k, levels)
    masses = np.diff(at)
    kept = masses > 0.0
    return float(family.around(masses[kept] / masses.sum(), size).worst_case(levels[1:][kept]).upper_bound)


def miss_at(
    n: int, k: int, family: Family | None, size: float, delta: float | None, steps: int = FINE
) -> float:
    """What the k-th smallest of n scores may miss: on average, or with confidence 1 - delta."""
    if delta is None:
        return average_miss(n, k, family, size, steps)
    beta = load("scipy.special", "conformal prediction")
    return float(worst_miss(family, size, beta.betaincinv(n + 1.0 - k, float(k), 1.0 - delta))[0])


@cache
def rank(n: int, alpha: float, family: Family | None, size: float, delta: float | None = None) -> int:
    """The least rank of a score whose threshold misses at most alpha over the set; n + 1 if none does.

    >>> rank(100, 0.1, None, 0.0), rank(100, 0.1, family_of("kl"), 0.02)
    (91, 96)
    """
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if miss_at(n, middle + 1, family, size, delta, ROUGH) <= alpha + 1e-12:
            high = middle
        else:
            low = middle + 1
    k = low + 1
    while k > 1 and miss_at(n, k - 1, family, size, delta) <= alpha + 1e-12:
        k -= 1
    return k


@cache
def least_samples(alpha: float, family: Family | None, size: float, delta: float | None = None) -> int | None:
    """The number of samples from which on there is a finite threshold; None if there is none up to 10⁷.

    >>> least_samples(0.1, None, 0.0), least_samples(0.1, family_of("kl"), 0.1)
    (9, 34)
    """

    def enough(n: int) -> bool:
        return miss_at(n, n, family, size, delta) <= alpha + 1e-12

    high = 1
    while not enough(high):
        high *= 2
        if high > MOST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class Threshold:
    """A threshold of scores.

    Attributes:
        value: infinite if there is no finite one.
        n: how many scores it was made of.
        miss: what is proved to be missed at most, over the set.
        needed: if infinite, how many scores would do; None if that is not known.
    """

    value: float
    n: int
    miss: float
    needed: int | None = None


def ball_threshold(
    scores: Array, alpha: float, family: Family | None, size: float, delta: float | None = None
) -> Threshold:
    """The least threshold over a set around the distribution of the scores."""
    n = scores.size
    k = rank(n, alpha, family, size, delta)
    if k > n:
        return Threshold(math.inf, n, 0.0, least_samples(alpha, family, size, delta))
    return Threshold(float(np.partition(scores, k - 1)[k - 1]), n, miss_at(n, k, family, size, delta))


def group_threshold(
    scores: Array,
    rows: Sequence[NDArray[np.intp]],
    alpha: float,
    kind: Any,
    size: float | None,
    *,
    inside: tuple[Family, float] | None = None,
    delta: float | None = None,
) -> Threshold:
    """The least threshold over mixes of groups, which may overlap.

    Args:
        scores: of all rows.
        rows: of each group.
        kind, size: the set of mixes around the groups' shares; a kind of None: every mix.
        inside: a set around the distribution in each group besides; needs delta.
        delta: the confidence of the guarantee is 1 - delta; None: it holds on average.
    """
    if inside is not None and delta is None:
        raise InvalidInput(
            "a set inside the groups and one over them need delta: the guarantee is proved with a confidence "
            "only",
            parameter="delta",
        )
    member = np.zeros((scores.size, len(rows)), dtype=bool)
    for g, of in enumerate(rows):
        member[of, g] = True
    if not member.any(axis=1).all():
        raise InvalidInput("a row is in no group: give those rows a group of their own", parameter="groups")
    packed = np.packbits(member, axis=1)
    _, first, cell = np.unique(
        packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True
    )
    sizes = np.bincount(cell)
    mix = np.where(member[first].T, sizes, 0.0)  # groups by cells, as they were observed
    mix /= mix.sum(axis=1, keepdims=True)
    share = member.sum(axis=0) / member.sum()
    order = np.lexsort((scores, cell))
    parts = np.split(scores[order], np.cumsum(sizes)[:-1])
    outer = None if kind is None or size is None else family_of(kind).around(share, size)

    def worst(t: float) -> float:
        over = np.array([each.size - np.searchsorted(each, t, side="right") for each in parts])
        if delta is None:
            miss = (over + 1.0) / (sizes + 1.0)
        else:
            miss = binomial_upper(over, sizes, delta / sizes.size)
            miss = miss if inside is None else worst_miss(inside[0], inside[1], miss)
        by_group = mix @ miss
        return float(by_group.max() if outer is None else outer.worst_case(by_group).upper_bound)

    values = np.unique(scores)
    low, high = 0, values.size
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if worst(float(values[middle])) <= alpha + 1e-12 else (middle + 1, high)
    if low == values.size:
        return Threshold(math.inf, scores.size, 0.0)
    return Threshold(float(values[low]), scores.size, worst(float(values[low])))
