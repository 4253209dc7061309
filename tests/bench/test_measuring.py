"""The measuring itself, on made numbers: medians, ratios, exponents, rows. Nothing here looks at a clock."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.complexity import summary
from bench.measuring import timing
from bench.measuring.targets import Row, number, table


def test_spread_is_the_median_with_quartiles():
    spread = timing.Spread.of([4.0, 1.0, 2.0, 3.0, 100.0])
    assert (spread.median, spread.low, spread.high, spread.least, spread.count) == (3.0, 2.0, 4.0, 1.0, 5)
    assert np.isnan(timing.Spread.of([]).median)


def test_a_ratio_comes_from_the_rounds_that_both_ran():
    nan = float("nan")
    # Both slow down tenfold in the second round; in the third only one ran.
    samples = timing.Samples({"a": [2.0, 20.0, 999.0], "b": [1.0, 10.0, nan]})
    assert samples.ratio("a", "b").median == 2.0
    assert samples.ratio("a", "b").count == 2


def test_everyone_runs_once_a_round_and_in_turn():
    order = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    samples = timing.interleave(calls, rounds=3, least=1, known={"a": 1.0, "b": 1.0})
    assert order == ["a", "b"] * 3
    assert [len(each) for each in samples.seconds.values()] == [3, 3]


def test_who_has_spent_its_budget_sits_out_after_the_least_rounds():
    calls = {"a": lambda: None, "b": lambda: None}
    samples = timing.interleave(calls, rounds=5, budget=0.0, least=2, known={"a": 1.0, "b": 1.0})
    assert np.isfinite(samples.seconds["a"]).tolist() == [True, True, False, False, False]


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.5])
def test_the_exponent_of_an_exact_power_law(power):
    sizes = np.array([10**4, 10**5, 10**6])
    found = summary.exponent(sizes, 1e-9 * sizes**power)
    assert found.exponent == pytest.approx(power)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert (found.first, found.last, found.points) == (10**4, 10**6, 3)


def test_a_fixed_cost_at_small_sizes_does_not_enter():
    sizes = np.array([10, 100, 1_000, 10**4, 10**5, 10**6])
    seconds = np.where(sizes < 10**4, 1.0, 1e-3 * sizes)
    assert summary.exponent(sizes, seconds).exponent == pytest.approx(1.0)


def test_without_large_sizes_the_last_four_count():
    sizes = np.array([10, 30, 100, 300, 1_000])
    found = summary.exponent(sizes, np.array([5.0, 9.0, 1e2, 9e2, 1e4]) * 1.0)
    assert (found.first, found.last, found.points) == (30, 1_000, 4)


def test_large_sizes_that_are_near_each_other_are_not_enough():
    sizes = np.array([100, 1_000, 10_000, 32_000, 100_000])
    found = summary.exponent(sizes, 1e-9 * sizes)
    assert (found.first, found.last, found.points) == (1_000, 100_000, 4)


@pytest.mark.parametrize(
    ("first", "last", "error", "sure"),
    [
        (100, 3_200, 0.1, True),
        (100, 3_000, 0.01, False),
        (10, 1_000, 0.11, False),
        (10**4, 10**6, 0.05, True),
    ],
)
def test_an_exponent_is_sure_over_a_decade_and_a_half_with_a_small_error(first, last, error, sure):
    assert summary.Fit(1.0, error, first, last, 4).sure is sure


def test_too_few_points_give_no_exponent():
    assert summary.exponent([10, 100], [1.0, 10.0]) is None
    assert summary.exponent([10, 100, 1_000], [1.0, np.nan, 10.0]) is None


def test_the_error_covers_the_truth_about_as_often_as_it_should():
    rng = np.random.default_rng(0)
    sizes = np.geomspace(1e4, 1e6, 5)
    inside = 0
    for _ in range(400):
        found = summary.exponent(sizes, sizes**1.2 * np.exp(0.1 * rng.normal(size=5)), np.full(5, 0.1))
        inside += abs(found.exponent - 1.2) <= 2 * found.error
    assert inside / 400 > 0.93


def test_a_bend_counts_as_uncertainty_too():
    sizes = np.geomspace(1e4, 1e6, 5)
    assert summary.exponent(sizes, sizes * np.log(sizes) ** 4, np.zeros(5)).error > 0.01


def test_rows_say_whether_a_target_is_met():
    assert Row("g", "w", 0.4, "×", 0.5).met is True
    assert Row("g", "w", 0.6, "×", 0.5).met is False
    assert Row("g", "w", 600.0, "×", 500.0, at_least=True).met is True
    assert Row("g", "w", 600.0, "×").met is None
    assert Row("g", "w", float("nan"), "×", 500.0, at_least=True).met is False


def test_rows_are_json_without_nan():
    record = json.loads(json.dumps(Row("g", "w", 0.4, "×", 0.5).record(), allow_nan=False))
    assert record["value"] == 0.4
    assert record["low"] is None
    assert record["met"] is True
    assert table([Row("g", "w", 0.4, "×", 0.5)], "t").row_count == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.1234, "0.123"), (12345.0, "12,300"), (1e-12, "1.0e-12"), (float("inf"), "n/a")],
)
def test_numbers_as_people_read_them(value, text):
    assert number(value) == text
