"""Inputs that once gave a wrong answer, an error or a search without end, each with its class.

Every answer is judged by the soak's formulas, which know nothing of the code under test: p in the set,
value and bound recomputed, gap and violation within the promise.
"""

from __future__ import annotations

import numpy as np
import pytest

from bench.soak import killers
from bench.soak.asking import Answers, ask
from bench.soak.cases import Case
from bench.soak.judge import judge
from uncertainty_sets import KL, Box, Ellipsoid

PASSES = 60
"""Passes over the data that a search may take on any input; ordinary ones take 2 to 12."""


def judged(name, losses, *, by_row=(), **parameters) -> Answers:
    """The answers, after the judge has looked at them."""
    case = Case(
        name, "by hand", parameters, frozenset(by_row), np.atleast_2d(np.asarray(losses, dtype=float))
    )
    case.single = case.rows == 1 and not by_row
    answers = ask(case)
    found = judge(case, answers).findings
    assert not found, (found[:3], [str(error) for error in answers.errors.values()][:3])
    return answers


def test_box_with_a_weight_below_rounding_of_the_others():
    q = np.array([0.5, 0.5, 1e-20])
    answers = judged("box", [2.0, 0.0, 1.0], lower=0.0 * q, upper=q / 0.8)
    assert answers.value[0] == pytest.approx(1.25)


@pytest.mark.parametrize("size", [3, 10, 24, 25, 97])
def test_boxes_around_centres_with_tiny_weights(size):
    rng = np.random.default_rng(0)
    q = rng.gamma(0.05, size=(800, size)) + 1e-300
    q /= q.sum(axis=1, keepdims=True)
    judged("box", rng.normal(size=q.shape), lower=0.0 * q, upper=q / 0.8, by_row=("lower", "upper"))


def test_cd_norm_with_a_centre_near_a_corner():
    judged(
        "cd-norm",
        [1.2, -0.1, -0.6, -0.4],
        center=np.array([2e-16, 2.5e-10, 1 - 2.5e-10, 1e-26]),
        spread=np.array([0.28, 0.26, 0.18, 0.21]),
        budget=1.0,
    )


@pytest.mark.parametrize("size", [3, 10, 25, 300])
def test_cd_norm_with_spreads_over_many_decades_and_a_centre_at_a_corner(size):
    rng = np.random.default_rng(1)
    q = 10.0 ** -rng.uniform(10.0, 300.0, (200, size))
    q[np.arange(200), rng.integers(size, size=200)] = 1.0
    q /= q.sum(axis=1, keepdims=True)
    judged(
        "cd-norm",
        rng.normal(size=q.shape),
        center=q,
        spread=10.0 ** -rng.uniform(0.0, 30.0, q.shape),
        budget=rng.choice([0.5, 1.0, 2.5], 200),
        by_row=("center", "spread", "budget"),
    )


def test_a_line_with_tiny_distances_and_huge_losses():
    rng = np.random.default_rng(2)
    q = rng.dirichlet(np.ones(8), 200)
    judged(
        "wasserstein-1",
        rng.normal(size=q.shape) * 1e145,
        center=q,
        radius=rng.choice([1e-161, 1e-160, 3e-160], 200),
        cost=rng.integers(0, 9, 8) * 1e-160,
        by_row=("center", "radius"),
    )


def test_box_with_upper_bounds_above_one():
    """The documented bound holds with min(upper, 1): tail risk of a centre gives such bounds."""
    q = np.array([0.7, 0.2, 0.1])
    judged("box", [1.0, 2.0, 3.0], lower=0.0 * q, upper=q / 0.05)


def ladder(size, base):
    return base ** -np.minimum(np.arange(size, dtype=float), 300.0 / np.log10(base))


HARD = {
    "ladder of 2": lambda n: ladder(n, 2.0),
    "ladder of 10": lambda n: ladder(n, 10.0),
    "ladder towards the top": lambda n: 1.0 - ladder(n, 2.0),
    "negative ladder": lambda n: -ladder(n, 10.0),
    "clustered at the top": lambda n: np.where(
        np.arange(n) % 2, 1.0 - 1.1e-16 * (np.arange(n) % 7), -np.arange(n) / n
    ),
    "power tail": lambda n: (np.arange(1.0, n + 1.0) / n) ** -2.0,
    "steep power tail": lambda n: (np.arange(1.0, n + 1.0) / n) ** -20.0,
}
hard_losses = pytest.mark.parametrize("losses", HARD)


@hard_losses
@pytest.mark.parametrize("size", [10, 300, 100_000])
@pytest.mark.parametrize("radius", [1e-6, 0.5, 1e3, 1e13])
def test_diagonal_ellipsoid_settles_hard_losses_by_itself(losses, size, radius):
    f = HARD[losses](size)
    q = np.full(size, 1.0 / size)
    answer = Ellipsoid(q, q, radius).worst_case(f)
    assert answer.backend == "closed-form"
    assert answer.iterations <= PASSES
    judged("ellipsoid", f, center=q, shape=q, radius=radius)


@pytest.mark.parametrize("size", [3, 10, 97])
def test_diagonal_ellipsoid_with_shapes_of_very_different_size(size):
    rng = np.random.default_rng(3)
    for decades in (8.0, 17.0, 40.0):
        q = rng.dirichlet(np.ones(size), 100)
        answers = judged(
            "ellipsoid",
            rng.normal(size=q.shape),
            center=q,
            shape=10.0 ** -(decades * rng.random(size)),
            radius=10.0 ** rng.uniform(-6.0, 6.0, 100),
            by_row=("center", "radius"),
        )
        assert set(answers.backends) == {"closed-form"}


def test_chi_square_ball_whose_centre_has_tiny_entries():
    q = np.array([0.5, 0.5 - 1e-17, 1e-17])
    for radius in (0.01, 0.5, 1.0, 1e6, 1e16, 1e17, 1e18):
        judged("ellipsoid", [0.0, 1.0, 2.0], center=q / q.sum(), shape=q, radius=radius)


@hard_losses
@pytest.mark.parametrize("size", [10, 300, 100_000])
@pytest.mark.parametrize("radius", [1e-12, 1e-3, 0.5, 2.0, 7.0])
def test_kl_settles_hard_losses_in_few_passes(losses, size, radius):
    f = HARD[losses](size)
    q = np.full(size, 1.0 / size)
    answer = KL(q, radius).worst_case(f)
    assert answer.backend == "closed-form"
    assert answer.iterations <= PASSES
    judged("kl", f, center=q, radius=radius)


@pytest.mark.parametrize("distance", [1e-17, 1e-160, 1e-172, 1e-300])
def test_kl_where_losses_are_nearly_at_the_top(distance):
    """The answer tilts within the face of all losses that are as good as the top."""
    for radius in (0.01, 0.2, 1.0, 2.0, 2.6):
        judged("kl", [0.0, -1.0, -distance], center=np.array([0.07, 0.13, 0.8]), radius=radius)


@pytest.mark.parametrize("radius", [1e-12, 1e-3, 1.0])
def test_kl_over_many_decades_takes_few_passes(radius):
    rng = np.random.default_rng(4)
    f = 10.0 ** rng.uniform(-140.0, 140.0, (300, 50)) * rng.choice([-1.0, 1.0], (300, 50))
    answer = KL(np.full(50, 0.02), radius).worst_case(f)
    assert answer.iterations.max() <= PASSES
    judged("kl", f, center=np.full(50, 0.02), radius=radius)


@pytest.mark.parametrize("size", [97, 1000, 5000, 40_000])
@pytest.mark.parametrize(
    "order", [killers.against_sample, killers.against_median_of_three, killers.organ_pipe]
)
def test_orders_made_against_the_selection(order, size):
    q = np.full(size, 1.0 / size)
    for f in (order(size), -order(size)):
        for tail in (0.999, 0.5, 0.01):
            judged("box", f, lower=0.0 * q, upper=q / tail)


def test_a_row_that_is_hard_changes_neither_the_others_nor_the_multipliers_names():
    rng = np.random.default_rng(5)
    size = 40
    f = rng.normal(size=(50, size))
    f[7] = ladder(size, 10.0)
    f[11] = 1.0 - ladder(size, 2.0)
    q = np.full(size, 1.0 / size)
    for subject, keys in ((Ellipsoid(q, q, 0.5), {"nu", "tau"}), (KL(q, 2.0), {"eta"})):
        batch = subject.worst_case(f)
        assert set(batch.dual) == keys
        np.testing.assert_array_equal(batch.p[3], subject.worst_case(f[3]).p)
        np.testing.assert_array_equal(batch.p[7], subject.worst_case(f[7]).p)


@pytest.mark.parametrize("scale", [1e300, 1e-300, 1e307])
def test_multipliers_are_finite_near_the_ends_of_the_range(scale):
    f = np.array([1.0, -0.5, 0.25, 0.0]) * scale
    q = np.array([0.1, 0.2, 0.3, 0.4])
    judged("box", f, lower=0.5 * q, upper=2.0 * q)
    judged("cd-norm", f, center=q, spread=q, budget=1.0)
    judged("kl", f, center=q, radius=0.3)
    judged("ellipsoid", f, center=q, shape=q, radius=0.3)
    judged("wasserstein-1", f, center=q, radius=0.3)


@pytest.mark.parametrize("condition", [1e8, 1e10, 1e12])
def test_dense_ellipsoids_of_bad_condition_say_how_far_p_is(condition):
    rng = np.random.default_rng(6)
    root, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    shape = (root * np.geomspace(1.0, 1.0 / condition, 6)) @ root.T
    q = rng.dirichlet(np.ones(6))
    for radius in (0.01, 1.0):
        judged("ellipsoid dense", rng.normal(size=6), center=q, shape=0.5 * (shape + shape.T), radius=radius)


def test_an_empty_box_is_refused_and_a_full_one_is_not():
    """Bounds that leave one distribution are no reason for an error."""
    q = np.array([0.2, 0.3, 0.5])
    judged("box", [1.0, 2.0, 3.0], lower=q, upper=q)
    assert Box(q, q).worst_case([1.0, 2.0, 3.0]).value == pytest.approx(2.3)


def test_losses_whose_sum_overflows_are_finite():
    """Ten losses of 4e307: a test for infinities that sums them up would find one."""
    q = np.eye(10)[6]
    f = np.linspace(-1.0, 1.0, 10) * 1.7e308
    answer = KL(q, 1e-6).worst_case(f)
    assert answer.backend == "closed-form"
    assert answer.value == f[6]


@pytest.mark.parametrize("scale", [2.0**-960, 1.0, 2.0**920])
def test_dense_ellipsoid_whose_squares_overflow_by_the_solver(scale):
    """The answer of the conic way moves with the unit of the losses, and so does its certificate."""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5))
    subject = Ellipsoid(rng.dirichlet(np.ones(5)), root @ root.T + 1e-3 * np.eye(5), 0.01)
    f = rng.normal(size=5)
    plain, scaled = subject._by_solver(f), subject._by_solver(f * scale)
    assert scaled.value == pytest.approx(plain.value * scale, rel=1e-6)
    assert 0.0 <= scaled.gap / scale <= 1e-6
    assert np.isfinite(scaled.dual["mu"]).all()
