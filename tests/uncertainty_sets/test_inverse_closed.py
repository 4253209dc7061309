"""The closed least radii of total variation and χ²: against cvxpy, the oracle's way, and NumPy's bounds."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from tests import tolerances
from uncertainty_sets import KL, Burg, ChiSquare, Hellinger, TotalVariation
from uncertainty_sets.inverse import _by_oracle

F, Q = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2])
BALLS = [TotalVariation, ChiSquare]


def largest(ball, f, q):
    return f.max() if ball is TotalVariation else f[q > 0.0].max()


def distance(ball, p, q):
    inside = q > 0.0
    if ball is TotalVariation:
        return 0.5 * np.abs(p - q).sum()
    return (((p - q)[inside] / q[inside]) * (p - q)[inside]).sum()


def bound(ball, f, q, target, found):
    """The lower bound by the multiplier, with losses from the largest one; χ² takes τ from p."""
    top = largest(ball, f, q)
    g, aim = f - top, target - top
    if ball is TotalVariation:
        t = -1.0 / found.multiplier
        return (aim - q @ np.maximum(g, t)) / -t
    k = np.flatnonzero((f == top) & (q > 0.0))[0]
    tau = -2.0 / found.multiplier * (found.p[k] / q[k])
    return (aim - tau) ** 2 / (q[q > 0.0] @ np.maximum(g[q > 0.0] - tau, 0.0) ** 2) - 1.0


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("seed", range(60))
def test_certificates_that_numpy_repeats(ball, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.choice([3, 10, 60, 3000]))
    q = rng.dirichlet(np.full(n, rng.choice([0.3, 5.0])))
    q[rng.integers(n)] = 0.0
    q /= q.sum()
    f = np.round(rng.normal(size=n), 1) if seed % 3 == 0 else rng.normal(size=n) * rng.choice([1e-3, 1e3])
    top, mean = largest(ball, f, q), q @ f
    for share in (1e-9, 1e-4, 0.3, 0.9, 0.999999):
        target = mean + share * (top - mean)
        found = ball(q, 0.1).radius_for(f, target)
        rounding = 100.0 * found.multiplier * np.spacing(np.abs(f).max())
        slack = max(1e-9 * found.radius, rounding, 1e-15)
        assert found.backend == "closed-form"
        assert abs(found.gap) <= slack
        assert found.p.min() >= 0.0
        assert found.p.sum() == pytest.approx(1.0, abs=1e-12)
        assert found.p @ f >= target - tolerances.gap(f)
        assert distance(ball, found.p, q) == pytest.approx(found.radius, abs=slack + 1e-13)
        recomputed = bound(ball, f, q, target, found)
        assert recomputed == pytest.approx(found.lower_bound, abs=1e-6 * found.radius + slack + 1e-12)
        assert recomputed <= found.radius + slack + 1e-12


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("seed", range(8))
def test_a_solver_finds_the_same(ball, seed):
    rng = np.random.default_rng(seed)
    q, f = rng.dirichlet(np.ones(12)), rng.normal(size=12)
    target = q @ f + rng.choice([0.02, 0.4, 0.9]) * (f.max() - q @ f)
    p = cp.Variable(12, nonneg=True)
    far = cp.norm1(p - q) / 2 if ball is TotalVariation else cp.sum_squares((p - q) / np.sqrt(q))
    problem = cp.Problem(cp.Minimize(far), [cp.sum(p) == 1, f @ p >= target])
    problem.solve(solver="CLARABEL")
    assert ball(q, 0.0).radius_for(f, target).radius == pytest.approx(problem.value, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("ball", BALLS)
def test_the_oracle_finds_the_same(ball):
    rng = np.random.default_rng(5)
    for _ in range(20):
        q, f = rng.dirichlet(np.ones(8)), rng.normal(size=8)
        target = q @ f + rng.choice([1e-3, 0.3, 0.95]) * (f.max() - q @ f)
        closed, called = ball(q, 0.1).radius_for(f, target), _by_oracle(ball(q, 0.1), f, target)
        assert called.backend == "oracle"
        assert called.iterations <= 12
        assert called.radius == pytest.approx(closed.radius, rel=1e-8)
        assert called.lower_bound <= closed.radius * (1.0 + 1e-9)
        assert called.multiplier == pytest.approx(closed.multiplier, rel=1e-5)


def test_edges_of_total_variation():
    ball, f = TotalVariation([0.5, 0.5, 0.0], 0.3), [0.0, 2.0, 9.0]  # mass may go to the largest loss
    below, some, top, beyond = (ball.radius_for(f, target) for target in (1.0, 1.9, 9.0, 9.5))
    assert (below.radius, below.lower_bound, below.multiplier) == (0.0, 0.0, 0.0)
    np.testing.assert_array_equal(below.p, [0.5, 0.5, 0.0])
    assert some.radius == pytest.approx(0.1, rel=1e-14)  # a tenth of the mass from 0 to 9
    np.testing.assert_allclose(some.p, [0.4, 0.5, 0.1])
    assert top.radius == top.lower_bound == 1.0
    np.testing.assert_array_equal(top.p, [0.0, 0.0, 1.0])
    assert beyond.radius == beyond.lower_bound == np.inf
    assert np.isnan(beyond.p).all()


def test_edges_of_chi_square():
    ball, f = ChiSquare([0.5, 0.5, 0.0], 0.3), [0.0, 2.0, 9.0]  # the largest loss has no mass
    below, some, top, beyond = (ball.radius_for(f, target) for target in (1.0, 1.2, 2.0, 2.5))
    assert (below.radius, below.lower_bound, below.multiplier) == (0.0, 0.0, 0.0)
    assert some.radius == pytest.approx(0.04)  # (0.2)²/variance 1
    np.testing.assert_allclose(some.p, [0.4, 0.6, 0.0])
    assert top.radius == top.lower_bound == pytest.approx(1.0)
    np.testing.assert_array_equal(top.p, [0.0, 1.0, 0.0])
    assert beyond.radius == beyond.lower_bound == np.inf


@pytest.mark.parametrize("ball", BALLS)
def test_equal_losses_and_a_single_one(ball):
    assert ball(Q, 0.1).radius_for([3.0, 3.0, 3.0], 3.0).radius == 0.0
    assert ball(Q, 0.1).radius_for([3.0, 3.0, 3.0], 3.1).radius == np.inf
    assert ball([1.0], 0.1).radius_for([3.0], 2.0).radius == 0.0
    ties = ball([0.2, 0.3, 0.25, 0.25], 0.1).radius_for([1.0, 1.0, 2.0, 2.0], 1.7)
    np.testing.assert_allclose(ties.p, [0.12, 0.18, 0.35, 0.35])


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e200])
def test_any_scale_of_the_losses(ball, scale):
    plain, scaled = ball(Q, 0.1).radius_for(F, 2.5), ball(Q, 0.1).radius_for(F * scale, 2.5 * scale)
    assert scaled.backend == "closed-form"
    assert scaled.radius == pytest.approx(plain.radius, rel=1e-9)
    assert scaled.lower_bound == pytest.approx(plain.radius, rel=1e-9)
    assert scaled.multiplier == pytest.approx(plain.multiplier / scale, rel=1e-9)
    assert scaled.value == pytest.approx(2.5 * scale)


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("seed", range(100))
def test_centres_with_entries_that_hardly_exist(ball, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    q = np.full(n, 10.0) ** -rng.uniform(0.0, 200.0, n)
    q /= q.sum()
    f = rng.normal(size=n)
    mean, top = q @ f, f.max()
    for share in (1e-9, 0.3, 0.999, 1.0):
        target = mean + share * (top - mean) if share < 1.0 else top
        found = ball(q, 0.1).radius_for(f, target)
        assert found.backend == "closed-form"
        assert found.p.sum() == pytest.approx(1.0, abs=1e-12)
        assert found.p @ f >= target - 1e-12
        slack = 1e-9 * found.radius + (0.0 if share == 1.0 else 1e-13 * found.multiplier)
        assert abs(found.gap) <= slack
        assert distance(ball, found.p, q) == pytest.approx(found.radius, abs=slack + 1e-13)


@pytest.mark.parametrize("ball", BALLS)
def test_a_million_losses(ball):
    rng = np.random.default_rng(0)
    q, f = rng.dirichlet(np.ones(10**6)), rng.normal(size=10**6)
    found = ball(q, 0.1).radius_for(f, 1.5)
    assert found.p @ f == pytest.approx(1.5, abs=1e-9)
    assert abs(found.gap) <= 1e-9 * found.radius
    assert ball(q, found.radius).worst_case(f).value == pytest.approx(1.5, abs=1e-9)


@pytest.mark.parametrize("ball", [KL, TotalVariation, ChiSquare, Burg, Hellinger])
def test_a_bound_is_never_above_the_radius(ball):
    """Where rounding decides: a loss dwarfs the others, targets next to the mean or to the largest loss."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        f = np.r_[rng.lognormal(3.0, 2.0, 8), rng.choice([1e3, 1.3e13])]
        q = np.r_[rng.dirichlet(np.ones(8)), rng.choice([1e-39, 1e-3])]
        q /= q.sum()
        mean, top = q @ f, f.max()
        for target in (mean + 0.1, mean * (1.0 + 1e-12), top - 1e-10 * top, top * (1.0 - 1e-15)):
            found = ball(q, 0.1).radius_for(f, target)
            assert found.gap >= 0.0
            assert found.lower_bound <= found.radius
