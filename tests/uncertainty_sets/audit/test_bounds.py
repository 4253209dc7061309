"""What is proved for the population: true often enough, and never said where it cannot be proved."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.stats import binom

from bench.audit.laws import CUBIC, draw, truth, worst
from uncertainty_sets import KL, Burg, ChiSquare, CVaR, EVaR, Hellinger, TotalVariation, Wasserstein1
from uncertainty_sets.audit import Audit
from uncertainty_sets.audit.bounds import Evidence, binomial_upper, evenly
from uncertainty_sets.audit.families import family_of
from uncertainty_sets.errors import InvalidParameter

SHIFTS = {KL: 0.1, ChiSquare: 0.2, Hellinger: 0.02, Burg: 0.05, TotalVariation: 0.05, CVaR: 0.3, EVaR: 0.8}


def test_clopper_pearson_by_the_binomial_law():
    for n in (1, 10, 200):
        for k in (0, 1, n // 2, n):
            rate = float(binomial_upper(k, n, 0.05))
            assert rate == 1.0 if k == n else binom.cdf(k, n, rate) == pytest.approx(0.05)


@pytest.mark.parametrize("kind", [*SHIFTS, CUBIC])
def test_duals_of_the_bench_are_those_of_the_oracles(kind):
    size = SHIFTS.get(kind, 0.1)
    losses = draw("beta(1, 4)", 1000, np.random.default_rng(0))
    answer = family_of(kind).around(np.full(1000, 1e-3), size).worst_case(losses)
    assert worst(kind, size, losses) == pytest.approx(answer.value, abs=1e-7)


@pytest.mark.parametrize("kind", SHIFTS)
def test_influence_functions_by_finite_differences(kind):
    rng = np.random.default_rng(1)
    f, q = rng.random(40), rng.dirichlet(np.full(40, 5.0))
    family = family_of(kind)
    target = 0.5 * (q @ f + f.max())
    least = family.around(q, 0.5).radius_for(f, target)
    influence = family.influence(least.p / q)
    if influence is None:
        assert kind in (TotalVariation, CVaR)
        return
    influence = influence - q @ influence

    def radius(weights):
        return family.around(weights / weights.sum(), 0.5).radius_for(f, target).radius

    for i in range(0, 40, 7):
        step = np.zeros(40)
        step[i] = 1e-5
        slope = (radius(q + step) - radius(q - step)) / 2e-5
        assert slope == pytest.approx(-influence[i], abs=1e-6)


@pytest.mark.parametrize("law", ["beta(1, 4)", "0/1, 10 %"])
@pytest.mark.parametrize("kind", SHIFTS)
def test_the_population_is_within_the_bounds(kind, law):
    size, rng, rounds = SHIFTS[kind], np.random.default_rng(3), 60
    family = family_of(kind)
    true = truth(kind, size, law)
    radius = size if family.size == "radius" else -np.log(size) if kind is EVaR else 1 / size - 1
    failed = 0
    for _ in range(rounds):
        audit = Audit(draw(law, 300, rng), confidence=0.8)
        bound, least = audit.worst(kind, size).at_most, audit.radius_to_failure(kind, true).at_least
        failed += bound < true
        assert (bound < true - 1e-9) <= (least > radius - 1e-6), "the two are one event"
        assert least <= radius * (1 + 1e-6) or bound <= true + 1e-6
    assert failed <= binom.ppf(0.9999, rounds, 0.2)


@pytest.mark.parametrize("kind", SHIFTS)
def test_the_s_value_of_errors_has_its_level_exactly(kind):
    size, n, rate = SHIFTS[kind], 200, 0.1
    threshold = worst(kind, size, (np.arange(20) < 2).astype(float))
    radius = size if family_of(kind).size == "radius" else -np.log(size) if kind is EVaR else 1 / size - 1
    chance = binom.pmf(np.arange(n + 1), n, rate)
    held = 0.0
    for count in np.flatnonzero(chance > 1e-12):
        least = Audit(np.arange(n) < count).radius_to_failure(kind, threshold).at_least
        held += chance[count] * (least <= radius * (1 + 1e-6))
    too_few = binom.cdf(np.arange(n + 1), n, rate) < 0.05
    assert held == pytest.approx(chance[~too_few].sum(), abs=1e-9)
    assert held >= 0.95


def test_bounds_are_above_the_sample_and_grow_with_confidence():
    losses = draw("70 % zeros", 500, np.random.default_rng(0))
    for kind, size in SHIFTS.items():
        one, two = (Audit(losses, confidence=c).worst(kind, size) for c in (0.9, 0.99))
        assert one.value <= one.upper_bound + 1e-9 < one.at_most <= two.at_most + 1e-12 <= 1.0 + 1e-9, kind


def test_a_larger_law_is_larger():
    x = np.random.default_rng(0).random(100)
    values, weights = Evidence(x, False).larger_law(0.05)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[-1] == pytest.approx(np.sqrt(np.log(20) / 200))
    for t in np.linspace(0.01, 0.99, 9):
        assert weights[values > t].sum() >= (x > t).mean() - 1e-12


def test_nothing_is_proved_where_nothing_can_be():
    losses = np.random.default_rng(0).random(300)
    assert Audit(losses, sample_weight=np.ones(300)).worst(KL, 0.1).at_most is None
    unbounded = Audit(10 * losses, bounds=None).worst(KL, 0.1)
    assert unbounded.at_most is None
    assert unbounded.interval is None
    assert "no known bounds" in str(unbounded)
    with pytest.raises(InvalidParameter, match="also needs"):
        Audit(losses).worst(Wasserstein1, 0.1)
    with pytest.raises(InvalidParameter, match=r"functools\.partial\(CressieRead, power=…\)"):
        Audit(losses).worst("cressie-read", 0.1)
    assert Audit(losses).worst(partial(CUBIC.func, power=3.0), 0.1).at_most is not None


def test_asymptotic_numbers_need_two_hundred_rows_and_ten_errors():
    rng = np.random.default_rng(0)
    assert Audit(rng.random(199)).worst(KL, 0.1).interval is None
    assert Audit(rng.random(200)).worst(KL, 0.1).interval is not None
    few = np.zeros(1000)
    few[:9] = 1.0
    assert Audit(few).radius_to_failure(KL, 0.05).interval is None
    few[9] = 1.0
    assert Audit(few).radius_to_failure(KL, 0.05).interval is not None
    assert Audit(few).radius_to_failure(KL, 0.9).interval is None  # ten rows carry nearly all of it
    assert Audit(rng.random(1000)).worst(CVaR, 0.01).interval is None


def test_clusters_count_once():
    cluster = np.array([0, 0, 0, 1])
    assert evenly(cluster).tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    losses = np.array([1.0, 1.0, 1.0, 0.0])
    assert Audit(losses, clusters=["a", "a", "a", "b"]).mean == pytest.approx(0.5)
    rng = np.random.default_rng(0)
    rows = (rng.random(4000) < 0.1).astype(float)
    own = Audit(rows, clusters=np.arange(4000) // 10)
    alone = Audit(rows)
    assert own.worst(KL, 0.1).value == pytest.approx(alone.worst(KL, 0.1).value)
    copied = Audit(np.repeat(rows[:400], 10), clusters=np.repeat(np.arange(400), 10))
    once = Audit(rows[:400])
    assert copied.worst(KL, 0.1).interval == pytest.approx(once.worst(KL, 0.1).interval)
    assert copied.mean_at_most() > once.mean
    assert copied.worst("hellinger", 0.01).at_most > once.worst("hellinger", 0.01).value
