"""Conformal thresholds: exact ranks by integrals without oracles, groups by simulation, a failing control."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from bench.audit import coverage
from uncertainty_sets import KL, TotalVariation
from uncertainty_sets.audit.bounds import binomial_upper
from uncertainty_sets.audit.conformal import (
    ball_threshold,
    group_threshold,
    least_samples,
    miss_at,
    rank,
    worst_miss,
)
from uncertainty_sets.audit.families import family_of
from uncertainty_sets.errors import InvalidInput

ALPHA = coverage.ALPHA


def test_without_a_set_it_is_split_conformal():
    for n in (5, 9, 10, 99, 100, 1000):
        assert rank(n, ALPHA, None, 0.0) == min(n + 1, int(np.ceil((n + 1) * (1 - ALPHA) - 1e-9)))
        assert rank(n, ALPHA, family_of(KL), 0.0) == rank(n, ALPHA, None, 0.0)


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [60, 200, 1000])
def test_the_worst_coverage_is_enough_and_that_of_the_next_smaller_rank_is_not(n):
    for kind, size in coverage.SETS:
        k = rank(n, ALPHA, family_of(kind), size)
        assert k <= n
        assert coverage.covered(kind, size, n, k) >= 1 - ALPHA - coverage.NEAR, kind
        assert coverage.covered(kind, size, n, k - 1) < 1 - ALPHA + coverage.NEAR, kind


def test_a_finite_threshold_needs_that_many_scores():
    for kind, size in coverage.SETS:
        family = family_of(kind)
        least = least_samples(ALPHA, family, size)
        assert rank(least, ALPHA, family, size) == least
        assert rank(least - 1, ALPHA, family, size) == least
    scores = np.random.default_rng(0).random(20)
    found = ball_threshold(scores, ALPHA, family_of(KL), 0.1)
    assert found.value == np.inf
    assert found.needed == least_samples(ALPHA, family_of(KL), 0.1)
    assert least_samples(ALPHA, family_of(TotalVariation), 0.1) is None


def test_ties_only_help():
    """Scores of few values: the miss of a Q in the ball is no larger than that of continuous scores."""
    rng = np.random.default_rng(0)
    law = np.array([0.5, 0.3, 0.12, 0.08])
    worlds = [KL(law, 0.05).worst_case((np.arange(4) > s).astype(float)).p for s in range(3)]
    k = rank(150, ALPHA, family_of(KL), 0.05)
    missed = []
    for _ in range(4000):
        t = np.sort(rng.choice(4, 150, p=law))[k - 1]
        missed.append([p[t + 1 :].sum() for p in worlds])
    assert np.max(np.mean(missed, axis=0)) <= ALPHA


def test_with_confidence_the_miss_is_that_of_few_samples():
    n, delta, family = 200, 0.1, family_of(KL)
    k = rank(n, ALPHA, family, 0.05, delta)
    rng = np.random.default_rng(0)
    under_p = 1 - beta.rvs(k, n + 1 - k, size=4000, random_state=rng)  # of the k-th of n uniform scores
    assert np.mean(worst_miss(family, 0.05, under_p) > ALPHA) <= delta + 3 * np.sqrt(
        delta * (1 - delta) / 4000
    )
    before = 1 - beta.rvs(k - 1, n + 2 - k, size=4000, random_state=rng)
    assert np.mean(worst_miss(family, 0.05, before) > ALPHA) > delta
    assert miss_at(n, k, family, 0.05, delta) <= ALPHA


def test_groups_keep_their_promise_and_the_control_does_not():
    missed = {(row[0], row[1]): row[2].split(" ± ") for row in coverage.groups(700, 1).rows}
    for (mix, plus), (mean, error) in missed.items():
        excess = float(mean) - 10.0 - 3 * float(error.removesuffix(" %"))
        if plus == "yes":
            assert excess <= 0.0, mix
    assert float(missed["the worst group", "no"][0]) > 11.0


def test_one_group_is_no_group_and_every_mix_is_the_worst():
    rng = np.random.default_rng(0)
    scores, rows = rng.random(500), [np.arange(500)]
    one = group_threshold(scores, rows, ALPHA, "kl", 0.3)
    assert one.value == np.sort(scores)[rank(500, ALPHA, None, 0.0) - 1]
    shifted = np.r_[scores[:250], scores[250:] + 1.0]
    halves = [np.arange(250), np.arange(250, 500)]
    every = group_threshold(shifted, halves, ALPHA, None, None)
    assert every.value == np.sort(shifted[250:])[rank(250, ALPHA, None, 0.0) - 1]
    mixes = [group_threshold(shifted, halves, ALPHA, "kl", r).value for r in (0.0, 0.1, 0.3)]
    assert mixes == sorted(mixes)
    assert mixes[-1] <= every.value


def test_overlapping_groups_are_cells():
    rng = np.random.default_rng(0)
    scores = rng.random(600)
    rows = [np.arange(400), np.arange(200, 600)]
    cells = [np.arange(200), np.arange(200, 400), np.arange(400, 600)]
    found = group_threshold(scores, rows, ALPHA, None, None).value

    def worst(t):
        miss = np.array([((scores[of] > t).sum() + 1) / (of.size + 1) for of in cells])
        return max(miss[:2].mean(), miss[1:].mean())

    below = scores[scores < found].max()
    assert worst(found) <= ALPHA < worst(below)


def test_a_set_in_the_groups_needs_delta():
    scores = np.random.default_rng(0).random(400)
    rows = [np.arange(200), np.arange(200, 400)]
    inside = (family_of(KL), 0.02)
    with pytest.raises(InvalidInput, match="need delta"):
        group_threshold(scores, rows, ALPHA, "kl", 0.1, inside=inside)
    with pytest.raises(InvalidInput, match="in no group"):
        group_threshold(scores, rows[:1], ALPHA, "kl", 0.1)
    found = group_threshold(scores, rows, 0.3, None, None, inside=inside, delta=0.1)
    over = (scores[:200] > found.value).sum(), (scores[200:] > found.value).sum()
    bounds = worst_miss(*inside, binomial_upper(np.array(over), 200, 0.05))
    assert found.miss == pytest.approx(bounds.max())
    assert found.miss <= 0.3
