"""Entropy pooling against cvxpy, with its lower bound recomputed."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from uncertainty_sets import KL, entropy_pooling
from uncertainty_sets.errors import EmptySet, InvalidParameter


def recomputed(q, answer, A_eq, b_eq, A_ub, b_ub):
    y, z = answer.dual["eq"], answer.dual["ub"]
    assert (z >= 0.0).all()
    return b_eq @ y - b_ub @ z - np.log(q @ np.exp(A_eq.T @ y - A_ub.T @ z))


@pytest.mark.parametrize("seed", range(15))
def test_against_cvxpy_and_its_own_bound(seed):
    rng = np.random.default_rng(seed)
    n, exact, limits = int(rng.integers(8, 40)), int(rng.integers(0, 4)), int(rng.integers(0, 4))
    q, other = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(n))
    A_eq, A_ub = rng.normal(size=(exact, n)), 100.0 * rng.normal(size=(limits, n))
    mix = 0.5 * q + 0.5 * other
    b_eq, b_ub = A_eq @ mix, A_ub @ mix + rng.choice([0.0, 20.0], limits)
    answer = entropy_pooling(q, A_eq=A_eq, b_eq=b_eq, A_ub=A_ub, b_ub=b_ub)
    assert answer.violation <= 1e-10
    assert abs(answer.gap) <= 1e-11
    assert answer.lower_bound == pytest.approx(recomputed(q, answer, A_eq, b_eq, A_ub, b_ub), abs=1e-11)
    assert answer.divergence == pytest.approx(KL(q, 0.0).radius_of(answer.p), abs=1e-12)
    p = cp.Variable(n, nonneg=True)
    views = [cp.sum(p) == 1, *([A_eq @ p == b_eq] if exact else []), *([A_ub @ p <= b_ub] if limits else [])]
    problem = cp.Problem(cp.Minimize(cp.sum(cp.rel_entr(p, q))), views)
    problem.solve(solver="CLARABEL")
    assert answer.divergence == pytest.approx(problem.value, abs=1e-6)


def test_one_view_is_the_least_radius_of_kl():
    q, f = np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, 4.0])
    pooled, radius = entropy_pooling(q, A_ub=-f, b_ub=-2.5), KL(q, 0.0).radius_for(f, 2.5)
    assert pooled.divergence == pytest.approx(radius.radius, rel=1e-12)
    np.testing.assert_allclose(pooled.p, radius.p, rtol=1e-10)
    assert pooled.dual["ub"][0] == pytest.approx(radius.multiplier)


def test_views_that_hold_already_and_views_given_twice():
    q = np.array([0.5, 0.3, 0.2, 0.0])
    nothing = entropy_pooling(q)
    np.testing.assert_array_equal(nothing.p, q)
    assert (nothing.divergence, nothing.lower_bound, nothing.iterations) == (0.0, 0.0, 0)
    loose = entropy_pooling(q, A_ub=[0.0, 0.0, 1.0, 0.0], b_ub=0.9)
    assert loose.dual["ub"][0] == 0.0
    np.testing.assert_allclose(loose.p, q, atol=1e-15)
    view = np.array([1.0, 2.0, 4.0, 50.0])
    twice = entropy_pooling(q, A_eq=[view, view], b_eq=[2.5, 2.5])
    np.testing.assert_allclose(twice.p, entropy_pooling(q, A_eq=view, b_eq=2.5).p, atol=1e-10)
    assert twice.p[3] == 0.0


def test_views_that_nothing_satisfies():
    q = np.array([0.5, 0.5, 0.0])
    with pytest.raises(EmptySet, match="no distribution on the centre's support"):
        entropy_pooling(q, A_eq=[0.0, 1.0, 9.0], b_eq=2.0)
    with pytest.raises(EmptySet, match=r"same value 1 at every atom of the centre, and its b is 2"):
        entropy_pooling(q, A_eq=[1.0, 1.0, 9.0], b_eq=2.0)


def test_what_is_refused():
    with pytest.raises(InvalidParameter, match="A_eq and b_eq belong together"):
        entropy_pooling([0.5, 0.5], A_eq=[1.0, 0.0])
    with pytest.raises(InvalidParameter, match=r"A_ub must have shape \(views, 2\)"):
        entropy_pooling([0.5, 0.5], A_ub=[1.0, 0.0, 1.0], b_ub=1.0)
    with pytest.raises(InvalidParameter, match="one probability vector"):
        entropy_pooling([[0.5, 0.5]])
