"""Newton's method on the minimax problem: the same minima as L-BFGS and a conic solver, in few passes."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
from scipy.sparse import csr_array

from fdro_core.estimators import central, newton
from fdro_core.estimators.groups import GroupedRegression, GroupedSoftmax
from uncertainty_sets import KL, Box, ChiSquare, CVaR, TotalVariation, available_sets, get_set

GROUPS, L2 = 6, 1e-2
NAMES = [name for name in available_sets() if get_set(name).example(GROUPS).has_closed_form]


@pytest.fixture
def at_once(monkeypatch):
    """Newton's method from the first step, whatever it costs."""
    monkeypatch.setattr(newton, "patience", lambda search, start: 0)


@pytest.fixture
def without(monkeypatch):
    """A way to solve by L-BFGS and multipliers alone."""

    def solve(*given):
        with monkeypatch.context() as patched:
            patched.setattr(newton, "suits", lambda groups, l2: False)
            return central.minimise(*given)

    return solve


def models(samples=400, groups=GROUPS, sparse=False, seed=0):
    """One model of each smooth kind: by name, to compare what fails."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, 4)) @ rng.normal(size=(4, 4))
    group = np.arange(samples) % groups if groups else np.arange(samples)
    slope = rng.normal(size=(max(groups, 1), 4))
    score = np.einsum("ij,ij->i", X, slope[group % max(groups, 1)])
    X = csr_array(X) if sparse else X
    y = (score + 2.0 * rng.logistic(size=samples) > 0).astype(int)
    yield "two classes", GroupedSoftmax(X, y, group, 2, L2)
    yield "three classes", GroupedSoftmax(X, y + (rng.random(samples) < 0.3), group, 3, L2)
    for loss in ("squared", "huber"):
        target = score + rng.standard_t(3, size=samples)
        yield loss, GroupedRegression(X, target / target.std(), group, loss, L2, None, 0.7)


def objective(found):
    return found.worst_case.upper_bound + 0.5 * L2 * float(found.w @ found.w)


def agree(found, other):
    """Whether two solutions are as near as both gaps say."""
    return abs(objective(found) - objective(other)) <= found.gap + other.gap + 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_groups_take_few_passes_to_the_minimum_of_l_bfgs(name, at_once, without):
    subject = get_set(name).example(GROUPS, np.random.default_rng(1))
    for kind, model in models():
        found = central.minimise(model, subject, L2, 1e-6, 2000)
        assert found.converged, kind
        assert found.gap <= 1e-6 * max(1.0, objective(found)), kind
        assert found.evaluations <= 12, kind
        assert agree(found, without(model, subject, L2, 1e-6, 2000)), kind


@pytest.mark.parametrize("make", [KL, ChiSquare, TotalVariation, Box, CVaR])
def test_samples_reach_the_minimum_of_l_bfgs(make, at_once, without):
    q = np.full(400, 1 / 400)
    subject = Box(0.2 * q, 3 * q) if make is Box else make(q, 0.4 if make is CVaR else 0.05)
    for kind, model in models(groups=0):
        found = central.minimise(model, subject, L2, 1e-6, 2000)
        assert found.converged, kind
        assert agree(found, without(model, subject, L2, 1e-6, 2000)), kind
        if make is not TotalVariation:
            assert found.evaluations <= 60, kind


def test_sparse_rows_give_the_same_model(at_once):
    subject = KL(np.full(GROUPS, 1 / GROUPS), 0.2)
    for (kind, dense), (_, sparse) in zip(models(), models(sparse=True), strict=True):
        one, other = (central.minimise(each, subject, L2, 1e-8, 500) for each in (dense, sparse))
        np.testing.assert_allclose(one.w, other.w, atol=1e-8, err_msg=kind)


def test_a_conic_solver_finds_the_same_minimum(at_once):
    """The worst group of all, and the worst tenth of samples, stated a second time in cvxpy."""
    for groups, subject in (
        (GROUPS, Box(np.zeros(GROUPS), np.ones(GROUPS))),
        (0, CVaR(np.full(120, 1 / 120), 0.1)),
    ):
        _, model = next(iter(models(120, groups)))
        found = central.minimise(model, subject, L2, 1e-8, 2000)
        w = cp.Variable(5)
        scores = cp.multiply(-model.y, np.column_stack([model.X, np.ones(120)]) @ w)
        losses = cp.logistic(scores)
        if groups:
            worst = cp.max(
                cp.hstack([cp.sum(losses[model.group == g]) * groups / 120 for g in range(groups)])
            )
        else:
            worst = cp.sum_largest(losses, 12) / 12
        problem = cp.Problem(cp.Minimize(worst + 0.5 * L2 * cp.sum_squares(w)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cvxpy's, that 1e-8 is not quite reached; 1e-6 is asked for here
            problem.solve(solver="CLARABEL")
        assert objective(found) == pytest.approx(problem.value, abs=1e-6)
        assert objective(found) - found.gap <= problem.value + 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_saddle_points(name):
    """No point of the set is better than p by more than the tolerance: by the oracle's proved bound."""
    rng = np.random.default_rng(4)
    subject = get_set(name).example(GROUPS, rng)
    saddle = newton.Saddle(subject, subject.reference())
    for rows in (2, GROUPS, 12):
        for size in (0.0, 0.1, 10.0):
            c, factor = size * rng.normal(size=GROUPS), rng.normal(size=(rows, GROUPS))
            p = saddle.solve(c, factor, 1e-9)
            towards = c - factor.T @ (factor @ p)
            assert subject.violation(p) <= 1e-9
            assert subject.worst_case(towards).upper_bound - p @ towards <= 1e-7, (rows, size)


def test_what_newton_is_not_for():
    rng = np.random.default_rng(0)
    X, y, group = rng.normal(size=(50, 3)), rng.integers(0, 2, 50), np.arange(50) % 5
    assert newton.suits(GroupedSoftmax(X, y, group, 2), 1e-3)
    assert not newton.suits(GroupedSoftmax(X, y, group, 2), 0.0)
    assert not newton.suits(GroupedRegression(X, y, group, "absolute"), 1e-3)
    assert not newton.suits(GroupedSoftmax(rng.normal(size=(50, 2500)), y, group, 2), 1e-3)
    assert not newton.suits(object(), 1e-3)


def test_newton_gives_up_and_l_bfgs_goes_on(monkeypatch, at_once):
    """No step may be shortened, and all weight may be on one sample: the proof comes still."""
    q = np.full(300, 1 / 300)
    monkeypatch.setattr(newton, "MOST_HALVINGS", 0)
    for radius in (0.05, 1.0):
        for kind, model in models(300, 0):
            found = central.minimise(model, KL(q, radius), L2, 1e-5, 3000)
            assert found.converged, (kind, radius)


def test_a_budget_ends_newton(at_once):
    subject = KL(np.full(GROUPS, 1 / GROUPS), 0.2)
    for _, model in models():
        for budget in (1, 2, 3):
            found = central.minimise(model, subject, L2, 1e-12, budget)
            assert found.evaluations == budget
            assert not found.converged
            exact = central.minimise(model, subject, L2, 1e-9, 500)
            assert found.gap >= objective(found) - objective(exact) - 1e-9


def test_the_rule_of_costs():
    """Cheap passes over few samples: L-BFGS first. Many samples of few features: Newton at once."""

    def passes(samples, features, corners):
        rng = np.random.default_rng(0)
        model = GroupedSoftmax(
            rng.normal(size=(samples, features)), np.arange(samples) % 2, np.arange(samples) % 4, 2, L2
        )
        subject = Box(np.zeros(4), np.ones(4)) if corners else KL(np.full(4, 0.25), 0.1)
        return newton.patience(central.Search(model, subject, L2, 1e-6, 10), None)

    assert passes(200, 3, corners=False) > 0
    assert passes(200, 3, corners=True) == 0
    assert passes(50_000, 20, corners=False) == 0
    assert passes(3000, 600, corners=False) > passes(3000, 300, corners=False) > 0
