"""Values worked out by hand, set by set, and the counter-examples to the paper's formulas."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import HAND
from uncertainty_sets import KL, Box, CDNorm, Ellipsoid, Polyhedron, Wasserstein1

THIRD = np.full(3, 1 / 3)
F = np.array([1.0, 0.5, 0.0])


def check(answer, value, p=None):
    assert answer.value == pytest.approx(value, abs=HAND)
    assert answer.upper_bound == pytest.approx(value, abs=HAND)
    if p is not None:
        np.testing.assert_allclose(answer.p, p, atol=HAND)


class TestBox:
    def test_fills_the_largest_losses_first(self):
        # 0.1 each leaves 0.7: 0.4 more on loss 3, then 0.3 on loss 2.
        check(Box([0.1] * 3, [0.5, 0.6, 0.7]).worst_case([3, 1, 2]), 2.4, [0.5, 0.1, 0.4])

    def test_ties_at_the_threshold_share_in_proportion(self):
        check(Box([0, 0, 0], [0.5, 0.4, 0.8]).worst_case([2, 1, 1]), 1.5, [0.5, 0.5 / 3, 1.0 / 3])

    def test_whole_simplex(self):
        check(Box([-1, -np.inf, 0], [2, np.inf, 1]).worst_case([1, 7, 3]), 7.0, [0, 1, 0])

    def test_a_single_point(self):
        check(Box([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]).worst_case([5, 1, 2]), 2.3, [0.2, 0.3, 0.5])


class TestKL:
    def test_two_entries(self):
        # p = (t, 1-t) about (½, ½): t log 2t + (1-t) log 2(1-t) = log 2 - H(t) = 0.1927 at t = 0.8.
        radius = 0.8 * np.log(1.6) + 0.2 * np.log(0.4)
        check(KL([0.5, 0.5], radius).worst_case([1, 0]), 0.8, [0.8, 0.2])

    def test_the_largest_loss_alone_from_minus_log_of_its_mass(self):
        check(KL([0.25, 0.75], np.log(4.0)).worst_case([1, 0]), 1.0, [1, 0])
        assert KL([0.25, 0.75], np.log(4.0) - 1e-6).worst_case([1, 0]).value < 1.0

    def test_ties_at_the_top_keep_the_ratio_of_the_centre(self):
        check(KL([0.1, 0.3, 0.6], 5.0).worst_case([2, 2, 1]), 2.0, [0.25, 0.75, 0])

    def test_zeros_of_the_centre_stay(self):
        answer = KL([0.5, 0.0, 0.5], 0.1).worst_case([0, 100, 1])
        assert answer.p[1] == 0.0
        assert answer.value < 1.0

    def test_small_radius_is_the_variance_bound(self):
        # value - mean = √(2·radius·variance) to first order, here with variance ¼.
        for radius in (1e-8, 1e-14, 1e-20):
            answer = KL([0.5, 0.5], radius).worst_case([1, 0])
            moved = answer.p[0] - 0.5
            assert answer.dual["eta"] == pytest.approx(0.25 / np.sqrt(2 * radius * 0.25), rel=1e-3)
            if radius > 1e-18:  # below, the move is less than an ulp of ½
                assert moved == pytest.approx(np.sqrt(radius / 2), rel=1e-3)

    def test_radius_zero_has_its_own_multiplier(self):
        answer = KL([0.25, 0.75], 0.0).worst_case([1, 0])
        check(answer, 0.25, [0.25, 0.75])
        assert answer.dual["eta"] == np.inf


class TestEllipsoid:
    def test_the_papers_formula_leaves_out_p_nonnegative(self):
        # Without p >= 0 the value would be 0.858 with a negative probability.
        answer = Ellipsoid([0.5, 0.4, 0.1], 1.0, 0.05).worst_case(F)
        assert answer.value == pytest.approx(0.841, abs=5e-4)
        assert answer.p.min() == 0.0

    def test_ball_inside_the_simplex(self):
        # f - mean = (½, 0, -½), of length √½; a ball of radius 0.1 adds 0.1·√½.
        expected = 0.5 + 0.1 * np.sqrt(0.5)
        for shape in (1.0, np.ones(3), np.eye(3)):
            check(Ellipsoid(THIRD, shape, 0.01).worst_case(F), expected)

    def test_shape_scales_the_axes(self):
        # Two entries: p = q + t(1, -1), t²/4 + t²/1 <= radius.
        check(Ellipsoid([0.5, 0.5], [4.0, 1.0], 0.05).worst_case([1, 0]), 0.5 + 0.2, [0.7, 0.3])

    def test_large_radius_is_the_whole_simplex(self):
        for shape in (1.0, np.eye(3) + 0.1):
            check(Ellipsoid(THIRD, shape, 10.0).worst_case(F), 1.0, [1, 0, 0])

    def test_nearest_point_of_the_largest_face(self):
        for shape in (1.0, np.eye(3)):
            check(Ellipsoid(THIRD, shape, 10.0).worst_case([1, 1, 0]), 1.0, [0.5, 0.5, 0])


class TestPolyhedron:
    def test_one_row(self):
        check(Polyhedron([[1, 0, 0]], [0.25]).worst_case(F), 0.625, [0.25, 0.75, 0])

    def test_a_budget_on_the_mean_position(self):
        check(Polyhedron([[0, 1, 2]], [0.5]).worst_case([0, 1, 3]), 0.75, [0.75, 0, 0.25])


class TestWasserstein:
    def test_moves_to_the_better_neighbour(self):
        check(Wasserstein1([0.25] * 4, 0.5).worst_case([1, 3, 2, 4]), 3.5, [0, 0.5, 0, 0.5])

    def test_half_of_a_source_moves_when_the_radius_runs_out(self):
        check(Wasserstein1([1, 0], 0.5).worst_case([0, 1]), 0.5, [0.5, 0.5])

    def test_positions_on_a_line_in_any_order(self):
        # The mass at position 5 would have to go 5 to gain 1, that at 1 only 1: all of the latter.
        check(Wasserstein1([0.5, 0.5, 0], 0.5, [5, 1, 0]).worst_case([0, 0, 1]), 0.5, [0.5, 0, 0.5])

    def test_cost_from_column_to_row(self):
        one_way = np.array([[0.0, 9.0], [1.0, 0.0]])  # from 0 to 1 costs 1, back 9
        check(Wasserstein1([1, 0], 0.5, one_way).worst_case([0, 1]), 0.5)
        check(Wasserstein1([0, 1], 0.45, one_way).worst_case([1, 0]), 0.05)

    def test_radius_zero_moves_between_duplicate_positions(self):
        check(Wasserstein1([0.5, 0, 0.5], 0, [1, 1, 2]).worst_case([0, 1, 0]), 0.5, [0, 0.5, 0.5])

    def test_radius_zero_without_duplicates_is_the_centre(self):
        answer = Wasserstein1(THIRD, 0).worst_case(F)
        check(answer, 0.5, THIRD)

    def test_large_radius_is_the_whole_simplex(self):
        check(Wasserstein1(THIRD, 2).worst_case(F), 1.0, [1, 0, 0])


class TestCDNorm:
    def test_the_papers_rule_is_not_optimal_for_unequal_spreads(self):
        check(CDNorm(THIRD, [0.30, 0.05, 0.30], 1).worst_case([1, 0.9, 0.8]), 0.93)  # the rule gives 0.9043
        check(CDNorm([0.25] * 4, [0.05, 0.2, 0.2, 0.05], 1).worst_case([1, 0.9, 0.2, 0.1]), 0.62)  # 0.5820

    def test_p_stays_nonnegative_where_the_spread_exceeds_q(self):
        # The paper's rule gives p_3 = -0.1 and 0.95.
        check(CDNorm([0.6, 0.3, 0.1], 0.2, 3).worst_case(F), 0.90, [0.8, 0.2, 0])

    def test_equal_spreads_move_half_the_budget_each_way(self):
        check(CDNorm([0.25] * 4, 0.1, 2).worst_case([4, 3, 2, 1]), 2.5 + 0.3, [0.35, 0.25, 0.25, 0.15])

    def test_spread_zero_holds_an_entry(self):
        check(
            CDNorm(THIRD, [0.0, 0.2, 0.2], 2).worst_case([9, 1, 0]),
            (9 + 1) / 3 + 0.2,
            [1 / 3, 1 / 3 + 0.2, 1 / 3 - 0.2],
        )

    def test_mass_arrives_where_the_centre_is_zero(self):
        check(CDNorm([0.5, 0.5, 0], 0.2, 2).worst_case([0, 1, 2]), 0.5 + 0.4, [0.3, 0.5, 0.2])

    def test_budget_zero_and_unbounded(self):
        check(CDNorm(THIRD, 0.2, 0).worst_case(F), 0.5, THIRD)
        check(CDNorm(THIRD, 5.0, 50).worst_case(F), 1.0, [1, 0, 0])

    def test_equal_spreads_stop_growing_at_an_even_budget(self):
        # With N = 3 the third entry has no partner: the set is the same from budget 2 on.
        values = [CDNorm(THIRD, 0.1, budget).worst_case(F).value for budget in (2, 2.5, 3, 10)]
        np.testing.assert_allclose(values, values[0], atol=1e-15)
