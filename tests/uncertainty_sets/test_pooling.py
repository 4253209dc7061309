"""Entropy pooling against cvxpy, with its lower bound recomputed."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import brentq

from uncertainty_sets import KL, entropy_pooling
from uncertainty_sets.errors import EmptySet, InvalidParameter, SolverFailed


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


@pytest.mark.parametrize("size", [2, 100, 1000])
def test_an_event_and_its_probability(size):
    q, event = np.full(size, 1.0 / size), np.eye(size)[0]
    for wanted in (1e-12, 0.9, 1.0 - 1e-9, 1.0):
        parts = np.array([wanted, 1.0 - wanted]), np.array([1.0 / size, 1.0 - 1.0 / size])
        least = sum(a * np.log(a / b) for a, b in zip(*parts, strict=True) if a > 0.0)
        for sign in (1.0, -1.0):
            given = {"A_eq": sign * event, "b_eq": sign * wanted}
            if wanted > 1.0 / size:
                given = given if sign > 0.0 else {"A_ub": -event, "b_ub": -wanted}
            answer = entropy_pooling(q, **given)
            assert answer.divergence == pytest.approx(least, rel=1e-9)
            assert abs(answer.gap) <= 1e-9 * answer.divergence
            assert answer.p[0] == pytest.approx(wanted, rel=1e-9)
            np.testing.assert_allclose(answer.p[1:], (1.0 - answer.p[0]) / (size - 1), atol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_one_view_is_one_equation(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.choice([2, 5, 50]))
    q, row = rng.dirichlet(np.full(n, rng.choice([0.1, 1.0]))) + 1e-12, rng.normal(size=n) ** 3
    q, unit = q / q.sum(), 10.0 ** rng.uniform(-200.0, 200.0)
    value = row.min() + rng.uniform(0.001, 0.999) * np.ptp(row)

    def mean(y):
        weight = q * np.exp(y * (row - value) - (y * (row - value)).max())
        return weight @ (row - value) / weight.sum()

    y = brentq(mean, -1e7, 1e7, xtol=1e-15, rtol=1e-15, maxiter=1000)
    x = y * (row - value)
    least = -(np.log(q @ np.exp(x - x.max())) + x.max())
    answer = entropy_pooling(q, A_eq=unit * row, b_eq=unit * value)
    assert answer.divergence == pytest.approx(least, rel=1e-7, abs=1e-12)
    assert answer.dual["eq"][0] == pytest.approx(y / unit, rel=1e-5)


def test_an_atom_of_hardly_any_mass():
    for tiny in (1e-20, 1e-300):
        all_of_it = entropy_pooling([tiny, 0.5, 0.5], A_eq=[1.0, 0.0, 0.0], b_eq=1.0)
        np.testing.assert_array_equal(all_of_it.p, [1.0, 0.0, 0.0])
        assert all_of_it.divergence == pytest.approx(-np.log(tiny), rel=1e-12)
        some = entropy_pooling([tiny, 0.5, 0.5], A_eq=np.eye(3)[:2], b_eq=[0.3, 0.7])
        least = 0.3 * np.log(0.3 / tiny) + 0.7 * np.log(1.4)
        assert some.divergence == pytest.approx(least, rel=1e-12)
        assert abs(some.gap) <= 1e-9 * least


def test_views_that_contradict_each_other():
    q, rows = np.array([0.2, 0.3, 0.5]), np.eye(3)[:2]
    for off in (0.3, 1e-3, 1e-9):
        with pytest.raises(EmptySet, match="contradict every distribution"):
            entropy_pooling(q, A_eq=rows, b_eq=[0.6, 0.4 + off])
    nearly = entropy_pooling(q, A_eq=rows, b_eq=[0.6, 0.4 + 1e-15])
    np.testing.assert_allclose(nearly.p, [0.6, 0.4, 0.0], atol=1e-12)
    with pytest.raises(EmptySet, match=r"row 1 of A_ub is between 0 and 1e-200, and its b is -1e-201"):
        entropy_pooling(q, A_ub=[[1.0, 0.0, 0.0], [0.0, 1e-200, 0.0]], b_ub=[0.5, -1e-201])


def test_a_gap_beyond_the_promise_is_an_error(monkeypatch):
    monkeypatch.setattr("uncertainty_sets.pooling.MOST_STEPS", 1)
    monkeypatch.setattr("uncertainty_sets.pooling._from_uniform", lambda _, best, steps: (best, steps))
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 20))
    with pytest.raises(SolverFailed, match="no distribution with a proof found"):
        entropy_pooling(np.full(20, 0.05), A_eq=A, b_eq=A @ rng.dirichlet(np.full(20, 0.2)))


def test_a_value_beyond_its_row_by_rounding_is_at_its_end():
    """An event that is certain has the value 1 + 2e-16, as a sum of probabilities may."""
    share = 0.30993534982139054
    answer = entropy_pooling(
        np.full(5, 0.2),
        A_eq=[[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 0, 1, 1, 1], [0, 1, 0, 0, 1]],
        b_eq=[0.0, 0.0, 1.0 + 2.0**-52, share],
        A_ub=[[-1, -1, 0, -1, 0]],
        b_ub=[-0.2679386116059711],
    )
    rest = 0.5 * (1.0 - share)
    np.testing.assert_allclose(answer.p, [0.0, 0.0, rest, rest, share], atol=1e-9)
    known = share * np.log(5.0 * share) + 2.0 * rest * np.log(5.0 * rest)
    assert answer.divergence == pytest.approx(known, abs=1e-9)


def test_masses_that_differ_by_hundreds_of_decades():
    """Two views leave one p of three entries: Newton's method from the centre went round in a circle."""
    q = np.array([1.0, 2.766887413783066e-150, 9.70675245092163e-88])
    first, row, limit = (
        0.0005214986256738396,
        np.array([0.7290190448, 0.7537433747, 0.0447823892]),
        0.7234918639,
    )
    answer = entropy_pooling(q, A_eq=[1.0, 0.0, 0.0], b_eq=first, A_ub=-row, b_ub=-limit)
    second = (limit - row[0] * first - row[2] * (1.0 - first)) / (row[1] - row[2])
    known = np.array([first, second, 1.0 - first - second])
    np.testing.assert_allclose(answer.p, known, atol=1e-9)
    assert answer.divergence == pytest.approx(known @ np.log(known / q), rel=1e-9)
    assert abs(answer.gap) <= 1e-9 * answer.divergence
