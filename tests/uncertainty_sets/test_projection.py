"""The nearest point of a set, against cvxpy and by its own optimality condition."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from tests.uncertainty_sets.plugins import TotalVariation
from uncertainty_sets import (
    KL,
    Box,
    CDNorm,
    ChiSquare,
    Ellipsoid,
    Polyhedron,
    Wasserstein1,
    available_sets,
    get_set,
)
from uncertainty_sets import TotalVariation as TotalVariationBall
from uncertainty_sets.errors import EmptySet, InvalidInput
from uncertainty_sets.projection import Projection

RNG = np.random.default_rng(0)


def excess(subject, p, target):
    """The largest (x - p)ᵀ(target - p) over the set: not positive at the nearest point."""
    return subject.worst_case(target - p).value - p @ (target - p)


@pytest.mark.parametrize("name", available_sets())
@pytest.mark.parametrize("size", [1, 3, 20])
def test_nothing_in_the_set_is_nearer(name, size):
    subject = get_set(name).example(size, RNG)
    projection = Projection(subject, subject.reference(), most=500)
    for scale in (1e-3, 0.1, 10.0):
        target = subject.reference() + scale * RNG.normal(size=size)
        p = projection.nearest(target, 1e-7)
        assert subject.violation(p) < 1e-8
        assert excess(subject, p, target) <= 2e-7 * max(1.0, scale)


@pytest.mark.parametrize("seed", range(30))
def test_closed_forms_against_optimality(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.choice([2, 5, 40, 300]))
    q = rng.dirichlet(np.ones(size))
    spread = rng.choice([0.0, 1.0], size, p=[0.2, 0.8]) * rng.random(size) * rng.choice([0.1, 1.0])
    for subject in (
        CDNorm(q, spread, float(rng.choice([0.0, 0.5, 2.0, size]))),
        Box(0.5 * q, np.minimum(1.0, 3.0 * q)),
        Box(np.full(size, -1.0), np.full(size, np.inf)),
    ):
        nearest = subject._projection()
        for target in (q + rng.normal(size=size), q.copy(), np.full(size, 7.0), 1e6 * rng.normal(size=size)):
            p = nearest(target)
            # p is a difference of numbers of the target's size, each rounded to its last place.
            assert subject.violation(p) < 1e-9 + 4.0 * np.spacing(np.abs(target).max())
            assert excess(subject, p, target) <= 1e-9 * max(1.0, np.ptp(target) ** 2)


def test_the_value_is_cvxpys():
    q, spread, target = RNG.dirichlet(np.ones(12)), RNG.random(12) * 0.1, RNG.random(12)
    subject = CDNorm(q, spread, 3.0)
    x = cp.Variable(12)
    simplex = [cp.sum(x) == 1, x >= 0]
    cp.Problem(cp.Minimize(cp.sum_squares(x - target)), [*subject.constraints(x), *simplex]).solve(
        solver="CLARABEL"
    )
    np.testing.assert_allclose(subject._projection()(target), x.value, atol=1e-6)


BALLS = [TotalVariationBall, ChiSquare]


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("seed", range(40))
def test_balls_have_a_proof_by_their_oracle(ball, seed):
    rng = np.random.default_rng(seed)
    size = int(rng.choice([1, 2, 5, 40, 300]))
    q = rng.dirichlet(np.full(size, rng.choice([0.2, 5.0])))
    if size > 2:
        q[rng.integers(size)] = 0.0
        q /= q.sum()
    for radius in (0.0, 1e-9, 1e-3, 0.2, 0.9, 1.0, 5.0):
        subject = ball(q, radius)
        for step in (1e-6, 0.1, 1.0, 1e3):
            x = q + step * rng.normal(size=size)
            x = np.round(x, 1) if seed % 4 == 0 else x
            found = subject.project(x)
            assert found.backend == "closed-form"
            assert found.violation <= 1e-10
            assert abs(found.gap) <= 1e-12 * max(1.0, np.abs(x).max() ** 2)
            assert found.p.min() >= 0.0


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("radius", [0.05, 0.3, 0.95])
def test_balls_against_cvxpy(ball, radius):
    rng = np.random.default_rng(int(100 * radius))
    q, target = rng.dirichlet(np.ones(15)), rng.normal(size=15)
    x = cp.Variable(15)
    limits = [cp.sum(x) == 1, x >= 0, *ball(q, radius).constraints(x)]
    cp.Problem(cp.Minimize(cp.sum_squares(x - target)), limits).solve(solver="CLARABEL")
    found = ball(q, radius).project(target)
    np.testing.assert_allclose(found.p, x.value, atol=1e-5)
    assert found.lower_bound <= np.linalg.norm(x.value - target) + 1e-7


def test_total_variation_by_hand():
    # Above the radius of 0.1 the largest gains all of it, from the smallest.
    ball = TotalVariationBall([0.5, 0.3, 0.2], 0.1)
    np.testing.assert_allclose(ball.project([0.0, 0.3, 0.9]).p, [0.4, 0.3, 0.3], atol=1e-15)
    np.testing.assert_allclose(ball.project([0.48, 0.3, 0.22]).p, [0.48, 0.3, 0.22], atol=1e-15)
    np.testing.assert_array_equal(ball.scaled(0.0).project([5.0, 0.0, 0.0]).p, [0.5, 0.3, 0.2])
    # A far point: the digits of its entries near the thresholds are kept.
    far = ball.project([1e9, 1e9 - 1.0, -1e9])
    np.testing.assert_allclose(far.p, [0.6, 0.3, 0.1], atol=1e-15)


def test_which_sets_have_a_closed_form():
    class Same(Box):
        """The same set."""

    assert Same([0.0, 0.0], [1.0, 1.0])._projection() is not None
    assert Wasserstein1([0.5, 0.5], 0.1)._projection() is None
    assert KL([0.5, 0.5], 0.1)._projection() is not None
    assert Ellipsoid([0.5, 0.5], np.eye(2), 0.1)._projection() is None
    assert CDNorm([[0.5, 0.5]], 0.1, 1.0)._projection() is None
    for ball in BALLS:
        assert ball([0.5, 0.5], 0.1)._projection() is not None
        assert ball([[0.5, 0.5]], 0.1)._projection() is None


def test_points_are_kept_from_call_to_call():
    calls = []

    class Counted(TotalVariation):
        def worst_case(self, losses, **options):
            calls.append(1)
            return super().worst_case(losses, **options)

    subject = Counted(np.full(8, 1 / 8), 0.3)
    projection = Projection(subject, subject.center)
    target = RNG.random(8)
    projection.nearest(target, 1e-8)
    first = len(calls)
    projection.nearest(target + 1e-9, 1e-8)
    assert len(calls) - first <= 2 < first


def test_a_single_point():
    only = Polyhedron([[1.0, 0.0], [-1.0, 0.0]], [0.3, -0.3])
    np.testing.assert_allclose(
        Projection(only, only.reference()).nearest(np.array([5.0, 0.0]), 1e-9), [0.3, 0.7]
    )


@pytest.mark.parametrize("kind", [KL, ChiSquare])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.9])
def test_points_very_far_away_and_nearly_tied(kind, share):
    """Newton's steps once went to 1e270 here: targets of 1e7, two entries tied to 1e-3 of their size."""
    rng = np.random.default_rng(5)
    q = np.array([0.3, 0.002, 0.6, 0.003, 0.06, 0.035])
    vertex = np.eye(6)[1]
    for trial in range(200):
        towards = rng.random(6)
        towards[rng.permutation(6)[:2]] = towards.max() + np.array([0.0, 1e-3]) * rng.random()
        ball = kind(q, share * kind(q, 1.0).radius_of(vertex))
        target = q + towards * 10.0 ** rng.uniform(0, 7)
        p = ball.project(target).p
        assert ball.violation(p) <= 1e-9, trial
        far = target - p
        best = ball.worst_case(far - far.mean())
        assert best.upper_bound - p @ (far - far.mean()) <= 1e-6 * np.abs(target).max(), trial


FAR_SETS = [
    Box([0.1, 0.1, 0.1], [0.6, 0.6, 0.6]),
    CDNorm([0.5, 0.3, 0.2], 0.2, 1.0),
    KL([0.5, 0.3, 0.2], 0.1),
    ChiSquare([0.5, 0.3, 0.2], 0.1),
    TotalVariationBall([0.5, 0.3, 0.2], 0.1),
    Ellipsoid([0.5, 0.3, 0.2], [1.0, 0.5, 2.0], 0.01),
    Polyhedron([[1.0, 0.0, 0.0]], [0.4]),
    Wasserstein1([0.5, 0.3, 0.2], radius=0.1),
    get_set("hellinger")([0.5, 0.3, 0.2], 0.05),
    get_set("weighted-l1")([0.5, 0.3, 0.2], [1.0, 2.0, 1.0], 0.1),
]


@pytest.mark.parametrize("subject", FAR_SETS, ids=lambda each: type(each).__name__)
def test_the_nearest_of_a_far_point_is_the_worst_case(subject):
    direction = np.array([0.3, -0.7, 1.1])
    worst = subject.worst_case(direction).p
    for exponent in (6, 9, 12, 15, 100, 200, 299):
        found = subject.project(10.0**exponent * direction)
        assert found.p.sum() == pytest.approx(1.0, abs=1e-12)
        assert found.violation <= 1e-12
        np.testing.assert_allclose(found.p, worst, atol=2.0 * 10.0**-exponent + 1e-13)
        assert abs(found.gap) <= 1e-14 * 10.0**exponent
        assert found.lower_bound == pytest.approx(found.distance, rel=1e-12)
        assert np.isfinite(found.distance)
    with pytest.raises(InvalidInput, match=r"entries up to 1e\+300, got one of 1\.1e\+308"):
        subject.project(1e308 * direction)


def test_ties_of_a_far_point_share_alike():
    tied = np.array([1.0, 1.0, 0.0])
    for subject in (Box([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]), TotalVariationBall([0.4, 0.4, 0.2], 0.5)):
        for size in (1e3, 1e9, 1e14):
            np.testing.assert_allclose(subject.project(size * tied).p, [0.5, 0.5, 0.0], atol=1e-12)


def test_a_common_constant_changes_nothing():
    ball, x = Ellipsoid([0.5, 0.3, 0.2], [1.0, 0.5, 2.0], 0.01), np.array([4.0, -1.0, 0.5])
    plain, shifted = ball.project(x), ball.project(x + 2.0**50)
    np.testing.assert_allclose(shifted.p, plain.p, atol=1e-12)
    assert shifted.gap == pytest.approx(plain.gap, abs=1e-12)


def test_a_solver_that_finds_no_distribution_is_no_proof(monkeypatch):
    def empty(subject, point):
        raise EmptySet("infeasible, says the solver")

    monkeypatch.setattr("uncertainty_sets.projection.projection_of", empty)
    found = Polyhedron([[1.0, 0.0, 0.0]], [0.4]).project([0.5, 0.9, -1.0])
    np.testing.assert_allclose(found.p, [0.3, 0.7, 0.0], atol=1e-12)
    assert found.backend == "oracle"


@pytest.mark.parametrize("exponent", [20, 60, 120])
def test_rounding_of_a_solver_moves_no_mass_over_large_distances(exponent):
    rng = np.random.default_rng(exponent)
    for n in (3, 10):
        q = np.full(n, 1.0 / n)
        ball = Wasserstein1(q, 1.0, cost=10.0**exponent * rng.integers(1, 9, n))
        np.testing.assert_array_equal(ball.project(np.full(n, 2.5e155)).p, ball.center)
