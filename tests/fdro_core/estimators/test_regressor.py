"""The scikit-learn regressor: scikit-learn's own checks, the optimum for every loss, units, grids."""

from __future__ import annotations

import pickle

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fdro_core.errors import InvalidProblem, InvalidSetting
from fdro_core.estimators.regressor import LOSSES
from fdro_core.problems import HuberRegression
from fdro_core.problems.linear import huber, smoothed
from fdro_core.sklearn import RobustClassifier, RobustRegressor
from tests.fdro_core.estimators.test_classifier import too_exact
from uncertainty_sets import robust

GROUPS = 4
EPSILON = 1.5
every_loss = pytest.mark.parametrize("loss", LOSSES)


def data(samples=80, features=3, seed=0):
    """Groups of unequal size that disagree on the slope, with heavy tails and targets far from 0."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, features))
    group = rng.choice(GROUPS, size=samples, p=[0.5, 0.25, 0.15, 0.1])
    group[:GROUPS] = np.arange(GROUPS)
    slopes = rng.normal(size=features) + 0.8 * rng.normal(size=(GROUPS, features))
    return X, 30.0 + np.sum(X * slopes[group], axis=1) + rng.standard_t(3, size=samples), group


@pytest.mark.filterwarnings("ignore::fdro_core.errors.EstimatorWarning")  # the checks have no groups
@parametrize_with_checks(
    [RobustRegressor(), RobustRegressor("ellipsoid", loss="absolute", prior="uniform")],
    expected_failed_checks=too_exact,
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def conic_optimum(X, y, group, model):
    """The same problem by `robust.support`."""
    v, b = cp.Variable(X.shape[1]), cp.Variable()
    residual = X @ v + b - y
    each = {
        "squared": 0.5 * cp.square(residual),
        "absolute": cp.abs(residual),
        "huber": 0.5 * cp.huber(residual, EPSILON),
    }[model.loss]
    losses = cp.hstack([cp.sum(each[group == g]) / np.sum(group == g) for g in range(group.max() + 1)])
    ridge = model.l2 / 2.0 * (cp.sum_squares(v) + cp.square(b - model.offset_))
    objective = robust.support(model.uncertainty_set_, losses) + ridge
    return float(cp.Problem(cp.Minimize(objective)).solve(solver="CLARABEL"))


def by_hand(model, X, y, group):
    """The groups' losses from the predictions alone."""
    r = np.abs(model.predict(X) - y)
    each = {
        "squared": r**2 / 2,
        "absolute": r,
        "huber": np.where(r <= EPSILON, r**2 / 2, EPSILON * (r - EPSILON / 2)),
    }[model.loss]
    return np.array([each[group == g].mean() for g in range(group.max() + 1)])


@every_loss
@pytest.mark.parametrize("name", ["box", "cd-norm", "kl"])
@pytest.mark.parametrize("grouped", [True, False], ids=["groups", "samples"])
def test_the_optimum_is_the_conic_one_and_the_gap_is_true(loss, name, grouped):
    X, y, group = data(80 if grouped else 40)
    group = group if grouped else np.arange(40)
    model = RobustRegressor(name, loss=loss, epsilon=EPSILON, l2=1e-2, tolerance=1e-6)
    model.fit(X, y, groups=group if grouped else None)
    best = conic_optimum(X, y, group, model)
    unit = np.std(y) if loss == "absolute" else np.var(y)
    assert 0.0 <= model.gap_ <= 1e-6 * max(unit, model.objective_) * (1 + 1e-9)
    assert -1e-6 <= model.objective_ - best <= model.gap_ + 1e-6
    np.testing.assert_allclose(model.group_losses_, by_hand(model, X, y, group), rtol=1e-9, atol=1e-12)
    assert model.worst_case_.p @ model.group_losses_ == pytest.approx(model.worst_case_.value)


@every_loss
def test_the_weights_belong_to_the_saddle_point(loss):
    """No other model is better under those weights, which are in the set."""
    X, y, group = data()
    model = RobustRegressor("box", loss=loss, epsilon=EPSILON, l2=1e-2, tolerance=1e-6)
    model.fit(X, y, groups=group)
    assert model.uncertainty_set_.contains(model.weights_, tol=1e-7)
    fixed = RobustRegressor(
        budget=0.0, loss=loss, epsilon=EPSILON, l2=1e-2, tolerance=1e-6, prior=model.weights_
    ).fit(X, y, groups=group)
    moved = 1e-2 / 2.0 * ((fixed.intercept_ - fixed.offset_) ** 2 - (fixed.intercept_ - model.offset_) ** 2)
    assert fixed.objective_ - moved == pytest.approx(model.objective_, rel=1e-4)


def test_the_classifier_has_the_weights_too():
    X, y, group = data()
    model = RobustClassifier("box").fit(X, y > 30.0, groups=group)
    assert model.uncertainty_set_.contains(model.weights_, tol=1e-7)
    assert model.objective_ - model.weights_ @ model.group_losses_ >= 0.0


def test_a_budget_of_zero_is_ridge_regression():
    X, y, group = data()
    ours = RobustRegressor(budget=0.0, l2=1e-2, tolerance=1e-10).fit(X, y, groups=group)
    ones = np.column_stack([X, np.ones(len(X))])
    theirs = Ridge(alpha=1e-2 * len(X), fit_intercept=False).fit(ones, y - y.mean())
    np.testing.assert_allclose(ours.predict(X), theirs.predict(ones) + y.mean(), atol=1e-4)


@every_loss
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_of_the_targets_do_not_matter(loss, factor):
    X, y, group = data()
    plain = RobustRegressor("kl", loss=loss, epsilon=EPSILON, tolerance=1e-7).fit(X, y, groups=group)
    l2 = 1e-3 / factor if loss == "absolute" else 1e-3
    other = RobustRegressor("kl", loss=loss, epsilon=EPSILON * factor, tolerance=1e-7, l2=l2)
    other.fit(X, factor * (y - 1000.0), groups=group)
    np.testing.assert_allclose(other.predict(X) / factor + 1000.0, plain.predict(X), atol=2e-2)
    unit = factor if loss == "absolute" else factor**2
    assert other.objective_ / unit == pytest.approx(plain.objective_, rel=1e-5)
    assert other.gap_ / unit <= 1e-5


@pytest.mark.parametrize(
    ("loss", "slope", "lost", "even"),
    [("squared", 0.6, 1.28, 0.5), ("absolute", 1.0, 2.0, 1.0), ("huber", 0.625, 1.3125, 0.5)],
)
def test_the_worst_group_does_better_than_by_the_mean(loss, slope, lost, even):
    """A group of 80 with y = x and one of 20 with y = -x, at x = ±1: worked out by hand."""
    x, group = np.tile([-1.0, 1.0], 50), np.repeat([0, 1], [80, 20])
    X, y = x[:, None], np.where(group == 0, x, -x)
    settings = {"loss": loss, "epsilon": EPSILON, "l2": 1e-6, "tolerance": 1e-6}
    mean = RobustRegressor(budget=0.0, **settings).fit(X, y, groups=group)
    assert mean.coef_ == pytest.approx([slope], abs=1e-2)
    assert mean.group_losses_[1] == pytest.approx(lost, abs=2e-2)
    free = {"lower": [0.0, 0.0], "upper": [1.0, 1.0]}
    worst = RobustRegressor("box", **free, **settings).fit(X, y, groups=group)
    assert worst.coef_ == pytest.approx([0.0], abs=1e-4)
    assert worst.group_losses_ == pytest.approx([even, even], abs=1e-4)
    assert worst.weights_ == pytest.approx([0.5, 0.5], abs=1e-2)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_both_solvers_agree(loss):
    X, y, group = data()
    settings = {"loss": loss, "epsilon": EPSILON, "l2": 1e-2}
    ours = RobustRegressor("kl", tolerance=1e-7, **settings).fit(X, y, groups=group)
    driver = RobustRegressor("kl", solver="aspire-models", steps=1000, **settings).fit(X, y, groups=group)
    assert driver.objective_ == pytest.approx(ours.objective_, rel=1e-3)
    assert driver.objective_ - ours.objective_ <= driver.gap_ + 1e-6
    np.testing.assert_allclose(driver.predict(X), ours.predict(X), atol=0.1)


@every_loss
def test_sparse_dense_and_pickled_are_the_same(loss):
    X, y, group = data()
    X[np.abs(X) < 0.5] = 0.0
    dense = RobustRegressor(loss=loss, tolerance=1e-7).fit(X, y, groups=group)
    other = RobustRegressor(loss=loss, tolerance=1e-7).fit(sparse.csr_array(X), y, groups=group)
    assert other.objective_ == pytest.approx(dense.objective_, rel=1e-5)
    np.testing.assert_allclose(other.predict(sparse.csr_array(X)), other.predict(X))
    twin = pickle.loads(pickle.dumps(dense))
    np.testing.assert_array_equal(twin.predict(X), dense.predict(X))


@every_loss
def test_constant_targets(loss):
    X, _, group = data()
    model = RobustRegressor(loss=loss).fit(X, np.full(80, 0.1), groups=group)
    np.testing.assert_allclose(model.predict(X), 0.1, atol=1e-12)


def test_in_a_pipeline_with_a_grid_and_routed_groups():
    X, y, group = data(120)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            make_pipeline(StandardScaler(), RobustRegressor("kl").set_fit_request(groups=True)),
            {"robustregressor__radius": [0.0, 0.2], "robustregressor__loss": list(LOSSES)},
            cv=3,
        ).fit(X, y, groups=group)
    assert search.best_estimator_[-1].groups_.tolist() == list(range(GROUPS)), "groups must arrive"
    assert 0.0 < search.best_score_ <= 1.0


@every_loss
def test_without_ridge_it_converges_and_promises_nothing(loss):
    X, y, group = data()
    model = RobustRegressor("kl", loss=loss, l2=0.0).fit(X, y, groups=group)
    ridge = RobustRegressor("kl", loss=loss, l2=1e-6, tolerance=1e-5).fit(X, y, groups=group)
    assert model.objective_ <= ridge.objective_ * (1 + 1e-3)
    assert model.gap_ == np.inf


@every_loss
@pytest.mark.parametrize("steps", [1, 5])
def test_too_few_steps_are_reported(loss, steps):
    X, y, group = data()
    with pytest.warns(ConvergenceWarning, match="RobustRegressor stopped"):
        model = RobustRegressor(loss=loss, steps=steps).fit(X, y, groups=group)
    assert model.n_iter_ == steps
    full = RobustRegressor(loss=loss, tolerance=1e-6).fit(X, y, groups=group)
    assert model.objective_ - full.objective_ <= model.gap_


def test_smoothing_is_below_by_its_bound():
    r = np.linspace(-3.0, 3.0, 121)
    for center in (-1.0, -0.3, 0.0, 1.0):
        value, slope = smoothed(r, 0.5, center)
        below = np.abs(r) - value
        assert below.min() >= -1e-15
        assert below.max() <= 0.25 * (1 + abs(center)) ** 2 + 1e-15
        assert np.abs(slope).max() <= 1.0
    inside = np.abs(r) <= 0.5
    np.testing.assert_allclose(huber(r, 0.5)[0], np.where(inside, r**2 / 2, 0.5 * (np.abs(r) - 0.25)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "cubic"}, "loss must be one of 'squared', 'absolute', 'huber', got 'cubic'"),
        ({"epsilon": 0.0}, "epsilon must be a number > 0"),
        ({"epsilon": "1"}, "got '1'"),
        ({"loss": "absolute", "solver": "aspire-models"}, "use solver='central', or loss='huber'"),
        ({"l2": -1.0}, "l2 must be"),
    ],
)
def test_errors_say_what_to_do(settings, message):
    X, y, group = data()
    with pytest.raises(InvalidSetting, match=message):
        RobustRegressor(**settings).fit(X, y, groups=group)


def test_targets_too_large_to_square():
    X, y, group = data()
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="divide y by a constant"):
        RobustRegressor().fit(X, y * 1e200, groups=group)


def test_the_problem_refuses_a_wrong_epsilon():
    with pytest.raises(InvalidProblem, match="epsilon must be a number > 0, got 0"):
        HuberRegression([[1.0]], [1.0], epsilon=0.0)
    one, two = (HuberRegression([[1.0]], [1.0], epsilon=e).fingerprint() for e in (1.0, 2.0))
    assert one != two
