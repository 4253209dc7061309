"""The weighted selection: the threshold that every budget is spent down to."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bench.soak import killers
from uncertainty_sets import Box, CDNorm
from uncertainty_sets.kernels import selection

ROUNDING = 1e-13  # sums of weights of size 1, in different orders


def find(f, w, target):
    """`threshold` with its work space."""
    keys, weights, sample = np.empty(f.size), np.empty(f.size), np.empty((2, selection.SAMPLE))
    return selection.threshold(f, w, target, keys, weights, sample)


def find_by_digits(f, w, target):
    positive = w > 0.0
    return selection.threshold_by_digits(
        f[positive].copy(), w[positive].copy(), int(positive.sum()), target, 0.0
    )


def losses_of(kind, size, rng):
    return {
        "normal": lambda: rng.normal(size=size),
        "few values": lambda: rng.integers(0, 3, size).astype(float),
        "many decades": lambda: 10.0 ** -rng.integers(0, 300, size),
        "ulps": lambda: 1.0 + rng.integers(0, 50, size) * 2.0**-52,
        "negative decades": lambda: -np.abs(rng.normal(size=size)) * 10.0 ** rng.integers(-200, 200, size),
        "signed zeros": lambda: np.where(rng.random(size) < 0.5, -0.0, 0.0),
        "descending": lambda: -np.arange(float(size)),
    }[kind]()


KINDS = ["normal", "few values", "many decades", "ulps", "negative decades", "signed zeros", "descending"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("concentration", [0.05, 1.0])
@pytest.mark.parametrize("way", [find, find_by_digits])
def test_threshold_splits_the_weight_at_the_target(kind, concentration, way):
    rng = np.random.default_rng(1)
    for size in (1, 2, 5, 24, 25, 97, 300, 5_000):
        for part in (0.0, 0.3, 0.9, 1.0):
            f = losses_of(kind, size, rng)
            w = rng.dirichlet(np.full(size, concentration)) * (rng.random(size) < 0.8)
            if not w.any():
                continue
            t, above, at = way(f, w, part * w.sum())
            assert above == pytest.approx(w[f > t].sum(), abs=ROUNDING)
            assert at == pytest.approx(w[f == t].sum(), abs=ROUNDING)
            assert above <= part * w.sum() + ROUNDING
            assert above + at >= part * w.sum() - ROUNDING


def test_weights_below_the_rounding_of_the_sum():
    """A weight of 1e-20 does not change a sum, and yet its level is not where the budget ends."""
    q = np.array([0.5, 0.5, 1e-20])
    answer = Box(0 * q, q / 0.8).worst_case([2.0, 0.0, 1.0])
    assert answer.p == pytest.approx([0.625, 0.375, 0.0], abs=1e-15)
    assert answer.violation == 0.0
    assert answer.gap == 0.0


def test_cd_norm_with_a_centre_at_a_corner():
    q, f = [2e-16, 2.5e-10, 1 - 2.5e-10, 1e-26], [1.2, -0.1, -0.6, -0.4]
    answer = CDNorm(q, [0.28, 0.26, 0.18, 0.21], 1.0).worst_case(f)
    # Up by 0.28u at the first, down by 0.18u at the third, u + 0.28u/0.18 <= 1.
    moved = 1.0 / (1.0 / 0.28 + 1.0 / 0.18)
    assert answer.value == pytest.approx(-0.6 + 1.8 * moved, abs=1e-9)
    assert answer.backend == "closed-form"


def test_boxes_with_centres_of_very_small_entries_are_exact():
    """Against a greedy fill in rational arithmetic: no rounding at all."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        size = int(rng.integers(2, 30))
        q, f = rng.dirichlet(np.full(size, 0.05)), rng.normal(size=size)
        upper = np.minimum(q / 0.3, 1.0)
        if upper.sum() < 1.0:
            continue
        left, value = Fraction(1), Fraction(0)
        for i in np.argsort(-f):
            part = min(left, Fraction(upper[i]))
            value += part * Fraction(f[i])
            left -= part
        answer = Box(0 * q, q / 0.3).worst_case(f)
        assert answer.backend == "closed-form"
        assert abs(Fraction(answer.value) - value) <= Fraction(1e-13) * Fraction(np.ptp(f))


@pytest.mark.parametrize("size", [2_000, 10_000, 60_000])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_losses_made_to_fool_the_sample(size, sign):
    f = sign * killers.against_sample(size)
    answer = Box(np.zeros(size), np.full(size, 2.0 / size)).worst_case(f)
    top = np.sort(f)[::-1]
    assert answer.value == pytest.approx(top[: size // 2].mean(), rel=1e-12)


@pytest.mark.parametrize("sort", [selection.sort_pairs, "heap"])
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_sorted_together(sort, kind):
    rng = np.random.default_rng(2)
    for size in (1, 2, 21, 50, 97, 2_048):
        key = losses_of(kind, size, rng)
        keys, weights = key.copy(), 2.0 * key + 1.0
        if sort == "heap":
            selection.heap_pairs(keys, weights, 0, size - 1)
        else:
            sort(keys, weights, size)
        assert np.array_equal(keys, np.sort(key)[::-1])
        assert np.array_equal(weights, 2.0 * keys + 1.0)


def test_an_order_that_leads_the_pivots_astray_is_sorted():
    """Musser's sequence makes every median of three the second smallest of what is left."""
    key = killers.against_median_of_three(2_000)
    keys, weights = key.copy(), key.copy()
    selection.sort_pairs(keys, weights, key.size)
    assert np.array_equal(keys, np.sort(key)[::-1])
    assert np.array_equal(keys, weights)


@pytest.mark.parametrize("size", [100, 1_000, 5_000])
def test_an_order_in_which_every_try_lowers_the_level_is_sorted(size):
    """Ranks are taken in an order that halves the array; losses that fall in that order need all of them."""
    gap, order = 2, []
    while gap < size:
        gap *= 2
    while gap > 0:
        order.extend(range(gap // 2, size if gap > 1 else 1, gap))
        gap //= 2
    assert sorted(order) == list(range(size))
    f, w = np.empty(size), np.full(size, 1.0 / size)
    f[order] = -np.arange(float(size))
    assert not selection.threshold_of_few(f, w, 0.9995)[3]
    t, above, at = find(f, w, 0.9995)
    assert t == pytest.approx(-np.floor(0.9995 * size))
    assert above == pytest.approx(w[f > t].sum(), abs=ROUNDING)
    assert at == pytest.approx(1.0 / size, abs=ROUNDING)
