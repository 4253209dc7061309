"""TotalVariation and WeightedL1: values by hand, edges, scales, and how the two and CDNorm agree."""

from __future__ import annotations

import numpy as np
import pytest

from bench.soak.asking import ask
from bench.soak.cases import Case
from bench.soak.judge import judge
from tests import tolerances
from tests.tolerances import HAND
from tests.uncertainty_sets import reference
from uncertainty_sets import CDNorm, TotalVariation, WeightedL1
from uncertainty_sets.errors import InvalidParameter

Q = np.array([0.5, 0.3, 0.2])


def check(answer, value, p):
    assert answer.value == pytest.approx(value, abs=HAND)
    assert answer.upper_bound == pytest.approx(value, abs=HAND)
    np.testing.assert_allclose(answer.p, p, atol=HAND)


def judged(name, losses, *, by_row=(), **parameters):
    """The answers, after formulas that know nothing of the kernels have recomputed every certificate."""
    case = Case(name, "by hand", parameters, frozenset(by_row), np.atleast_2d(np.asarray(losses, float)))
    case.single = case.rows == 1 and not by_row
    answers = ask(case)
    found = judge(case, answers).findings
    assert not found, (found[:3], [str(error) for error in answers.errors.values()][:3])
    assert set(answers.backends) == {"closed-form"}
    return answers


class TestTotalVariation:
    def test_mass_goes_from_the_smallest_losses_to_the_largest(self):
        check(TotalVariation(Q, 0.1).worst_case([1, 2, 4]), 2.2, [0.4, 0.3, 0.3])
        check(TotalVariation(Q, 0.6).worst_case([1, 2, 4]), 3.6, [0.0, 0.2, 0.8])

    def test_ties_share_in_proportion_to_the_centre(self):
        check(TotalVariation([0.1, 0.3, 0.6], 0.2).worst_case([2, 2, 1]), 1.6, [0.15, 0.45, 0.4])
        check(TotalVariation([0.1, 0.3, 0.6], 0.2).worst_case([1, 1, 2]), 1.8, [0.05, 0.15, 0.8])

    def test_entries_without_mass_gain_evenly(self):
        check(TotalVariation([0.5, 0.5, 0, 0], 0.2).worst_case([0, 1, 3, 3]), 1.1, [0.3, 0.5, 0.1, 0.1])

    @pytest.mark.parametrize("mass", [5e-324, 1e-320, 1e-300, 1e-200, 1e-20])
    def test_a_largest_loss_with_hardly_any_mass(self, mass):
        judged("total-variation", [0.0, 1.0, 3.0], center=np.array([0.5, 0.5, mass]), radius=0.2)

    @pytest.mark.parametrize("radius", [0.8, 1.0, 1e100])
    def test_saturated(self, radius):
        answer = TotalVariation(Q, radius).worst_case([1, 2, 4])
        check(answer, 4.0, [0, 0, 1])
        assert answer.upper_bound == 4.0

    def test_radius_0_is_the_centre_exactly(self):
        center = np.array([0.25, 0.0, 0.5, 0.25])
        answer = TotalVariation(center, 0.0).worst_case([3, -7, 4, 1])
        np.testing.assert_array_equal(answer.p, center)
        assert answer.value == answer.upper_bound == 3.0

    def test_a_single_entry(self):
        check(TotalVariation([1.0], 0.3).worst_case([7]), 7.0, [1.0])

    @pytest.mark.parametrize("size", [3, 30, 300, 5000])
    def test_certificates_with_masses_over_many_decades(self, size):
        rng = np.random.default_rng(size)
        q = 10.0 ** -rng.uniform(0.0, 300.0, (60, size))
        q /= q.sum(axis=1, keepdims=True)
        radius = 10.0 ** -rng.uniform(0.0, 25.0, 60)
        judged(
            "total-variation", rng.normal(size=q.shape), center=q, radius=radius, by_row=("center", "radius")
        )

    @pytest.mark.parametrize("size", [2, 24, 128, 129, 1025, 4097, 50_000])
    def test_the_sizes_at_which_selection_changes_its_method(self, size):
        rng = np.random.default_rng(size)
        q = rng.dirichlet(np.ones(size))
        for f in (
            rng.normal(size=size),
            rng.integers(0, 4, size).astype(float),
            np.arange(size, dtype=float),
        ):
            judged("total-variation", f, center=q, radius=0.3)


class TestWeightedL1:
    def test_by_hand(self):
        # 0.2 pays for 0.1 from loss 1 to loss 4 at 1 + 1 each; loss 4.5 at 1 + 3 would gain 3.5/4 a unit.
        center, weights = [0.4, 0.3, 0.2, 0.1], [1, 1, 1, 3]
        check(WeightedL1(center, weights, 0.2).worst_case([1, 2, 4, 4.5]), 2.55, [0.3, 0.3, 0.3, 0.1])

    def test_a_mixture_of_two_targets(self):
        # From loss 0 with a weight of 1 to loss 4 (weight 1) or 5 (weight 2): all of q to the one costs 2, to
        # the other 3, and 2.5 pays for half and half.
        check(WeightedL1([1, 0, 0], [1, 1, 2], 2.5).worst_case([0, 4, 5]), 4.5, [0, 0.5, 0.5])

    def test_the_lightest_of_tied_targets(self):
        check(WeightedL1([0.5, 0.25, 0.25], [1, 4, 1], 0.4).worst_case([0, 1, 1]), 0.7, [0.3, 0.25, 0.45])

    def test_saturated(self):
        answer = WeightedL1(Q, [1, 2, 3], 3.5).worst_case([1, 2, 4])
        check(answer, 4.0, [0, 0, 1])
        assert answer.dual["lam"] == 0.0
        assert WeightedL1(Q, [1, 2, 3], 3.5 - 1e-6).worst_case([1, 2, 4]).value < 4.0

    def test_radius_0_is_the_centre_exactly(self):
        center = np.array([0.25, 0.0, 0.5, 0.25])
        answer = WeightedL1(center, [1, 2, 3, 4], 0.0).worst_case([3, -7, 4, 1])
        np.testing.assert_array_equal(answer.p, center)
        assert answer.upper_bound == pytest.approx(3.0, rel=1e-15)

    def test_equal_losses_and_a_single_entry(self):
        check(WeightedL1(Q, [1, 2, 3], 0.5).worst_case([7, 7, 7]), 7.0, Q)
        check(WeightedL1([1.0], 2.0, 0.5).worst_case([7]), 7.0, [1.0])

    @pytest.mark.parametrize("size", [2, 5, 12, 60, 199, 201, 5000])
    @pytest.mark.parametrize("decades", [1.0, 10.0, 50.0, 140.0])
    def test_certificates_with_weights_over_many_decades(self, size, decades):
        rng = np.random.default_rng([size, int(decades)])
        q = rng.dirichlet(np.full(size, 0.3), 40)
        w = 10.0 ** rng.uniform(-decades, decades, q.shape)
        radius = (q * w).sum(axis=1) * 10.0 ** rng.uniform(-8.0, 0.0, 40)
        by_row = ("center", "weights", "radius")
        judged("weighted-l1", rng.normal(size=q.shape), center=q, weights=w, radius=radius, by_row=by_row)

    @pytest.mark.parametrize("size", [3, 30, 300])
    def test_certificates_with_masses_over_many_decades(self, size):
        rng = np.random.default_rng(size)
        q = 10.0 ** -rng.uniform(0.0, 300.0, (60, size))
        q /= q.sum(axis=1, keepdims=True)
        w = np.minimum(1.0 / q, 1e250)
        radius = 10.0 ** -rng.uniform(-2.0, 25.0, 60)
        by_row = ("center", "weights", "radius")
        judged("weighted-l1", rng.normal(size=q.shape), center=q, weights=w, radius=radius, by_row=by_row)

    def test_the_units_of_weights_and_radius_do_not_matter(self):
        rng = np.random.default_rng(0)
        q, w, f = rng.dirichlet(np.ones(20)), rng.uniform(0.5, 2.0, 20), rng.normal(size=20)
        plain = WeightedL1(q, w, 0.3).worst_case(f)
        for unit in (2.0**-900, 2.0**-300, 2.0**300, 2.0**900):
            answer = WeightedL1(q, w * unit, 0.3 * unit).worst_case(f)
            np.testing.assert_allclose(answer.p, plain.p, atol=1e-12)
            assert answer.dual["lam"] * unit == pytest.approx(plain.dual["lam"])

    @pytest.mark.parametrize(
        ("weights", "words"),
        [
            ([1.0, 0.0, 1.0], "weights must be above 0, got 0.0"),
            ([1.0, -2.0, 1.0], "weights must be above 0, got -2.0"),
            (1e-300, "multiply weights and radius by the same number"),
            (1e300, "multiply weights and radius by the same number"),
            ([1.0, np.nan, 1.0], "weights must be finite, got nan"),
            ([1.0, 1.0], r"weights must be a number or have the centre's shape \(3,\), got \(2,\)"),
        ],
    )
    def test_weights_that_are_refused(self, weights, words):
        with pytest.raises(InvalidParameter, match=words):
            WeightedL1(Q, weights, 0.1)

    def test_rows_that_do_not_fit(self):
        with pytest.raises(InvalidParameter, match="center and weights must have the same rows"):
            WeightedL1(np.tile(Q, (2, 1)), np.ones((3, 3)), 0.1)
        with pytest.raises(InvalidParameter, match="weights must be above 0"):
            WeightedL1.ragged([0.5, 0.5], [1.0, 0.0], 0.1, indptr=[0, 2])

    def test_weights_alone_by_row(self):
        weights = np.array([[1.0, 1.0, 1.0], [2.0, 1.0, 0.5]])
        batch = WeightedL1(Q, weights, 0.2).worst_case([[1.0, 2.0, 4.0]] * 2)
        for b in range(2):
            single = WeightedL1(Q, weights[b], 0.2).worst_case([1.0, 2.0, 4.0])
            np.testing.assert_array_equal(batch.p[b], single.p)

    @pytest.mark.parametrize("size", [10, 100, 3000])
    def test_a_warm_start_gives_the_same_answer_in_fewer_evaluations(self, size):
        rng = np.random.default_rng(size)
        ball = WeightedL1(rng.dirichlet(np.ones(size)), rng.uniform(0.5, 2.0, size), 0.2)
        f = rng.normal(size=size)
        cold = ball.worst_case(f)
        warm = ball.worst_case(f, warm_start=cold)
        assert warm.value == pytest.approx(cold.value, abs=tolerances.gap(f))
        assert warm.iterations <= cold.iterations


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_weights_of_one_half_are_total_variation_and_cd_norm(size):
    rng = np.random.default_rng(size)
    for _ in range(20):
        q = rng.dirichlet(np.full(size, 0.4))
        f, radius = rng.normal(size=size), float(rng.uniform(0.0, 0.7))
        value = TotalVariation(q, radius).worst_case(f).value
        assert WeightedL1(q, 0.5, radius).worst_case(f).value == pytest.approx(value, abs=tolerances.gap(f))
        assert CDNorm(q, 1.0, 2.0 * radius).worst_case(f).value == pytest.approx(value, abs=tolerances.gap(f))
        assert reference.total_variation(f, q, radius) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1.0, 1e100, 1e300])
def test_losses_of_any_scale(scale):
    rng = np.random.default_rng(1)
    f = scale * rng.normal(size=(30, 12))
    q = rng.dirichlet(np.full(12, 0.3))
    w = 10.0 ** rng.uniform(-2.0, 2.0, 12)
    judged("total-variation", f, center=q, radius=0.2)
    judged("weighted-l1", f, center=q, weights=w, radius=0.2)


@pytest.mark.parametrize("make", [TotalVariation, lambda q, r: WeightedL1(q, [1.0, 2.0, 0.5], r)])
def test_membership(make):
    ball = make(Q, 0.1)
    worst = ball.worst_case([1.0, 2.0, 4.0]).p
    assert ball.contains(Q)
    assert ball.contains(worst)
    beyond = Q + 1.01 * (worst - Q)
    assert ball.violation(beyond) == pytest.approx(0.001, rel=1e-9)


def test_a_price_below_all_doubles_shows_its_bound_when_scaled():
    rng = np.random.default_rng(2)
    q, w = rng.dirichlet(np.ones(6)), 10.0 ** rng.uniform(20.0, 30.0, 6)
    ball, f, power = WeightedL1(q, w, 1e25), 1e-300 * rng.normal(size=6), 2.0**900
    tiny, usual = ball.worst_case(f), ball.worst_case(f * power)
    assert tiny.dual["lam"] < np.finfo(float).tiny < usual.dual["lam"]
    assert abs(tiny.gap) <= 1e-9 * np.ptp(f)
    assert tiny.upper_bound * power == pytest.approx(usual.upper_bound, abs=1e-9 * power * np.ptp(f))
    lam, g = usual.dual["lam"], f * power
    bound = lam * 1e25 + q @ np.maximum(g, (g - lam * w).max() - lam * w)
    assert bound == pytest.approx(usual.upper_bound, abs=1e-9 * np.ptp(g))


@pytest.mark.parametrize("top", [1.0519091329157213e-82, -3.793099139999929e-246])
def test_t_is_not_above_losses_that_scaling_rounds(top):
    f, q = np.array([top, -9.459873165282997e228]), np.array([0.5, 0.5])
    ball = TotalVariation(q, 1.0)
    single, batch = ball.worst_case(f), ball.worst_case(np.stack([f, f]))
    assert single.dual["t"] <= top
    assert (batch.dual["t"] <= top).all()
    ragged = TotalVariation.ragged(np.concatenate([[1.0], q]), 1.0, indptr=[0, 1, 3])
    rows = ragged.worst_case(np.concatenate([[3.0], f]))
    assert rows.dual["t"][0] == 3.0
    assert rows.dual["t"][1] <= top
