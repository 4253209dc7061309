"""Coefficients by group: the optimum, prediction, what scikit-learn routes, and starts from the last fit."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fdro_core.errors import EstimatorWarning, InvalidSetting
from fdro_core.estimators.held_out import SCALES
from fdro_core.sklearn import RobustClassifier, RobustRegressor, worst_group_accuracy
from tests.fdro_core.estimators.test_classifier import data, too_exact
from tests.fdro_core.estimators.test_groups import conflict
from tests.fdro_core.estimators.test_regressor import data as targets
from uncertainty_sets import robust

BOTH = pytest.mark.parametrize("estimator", [RobustClassifier, RobustRegressor])


def pooled_optimum(X, group, uncertainty_set, l2, s, loss, halves):
    """The same problem by `robust.support`, with w and every v_g as variables of their own.

    `halves` = 2 for the two columns of a softmax over two classes, as in `test_classifier.conic_optimum`.
    """
    ones = np.column_stack([X, np.ones(len(X))])
    groups = range(int(group.max()) + 1)
    w, own = cp.Variable(ones.shape[1]), [cp.Variable(ones.shape[1]) for _ in groups]
    means = [cp.sum(loss(ones[group == g] @ (w + own[g]), group == g)) / np.sum(group == g) for g in groups]
    ridge = cp.sum_squares(w) + sum(cp.sum_squares(v) for v in own) / s**2
    objective = robust.support(uncertainty_set, cp.hstack(means)) + l2 / (2.0 * halves) * ridge
    return float(cp.Problem(cp.Minimize(objective)).solve(solver="CLARABEL"))


@pytest.mark.parametrize("name", ["kl", "box"])
@pytest.mark.parametrize("s", [0.3, 2.0])
def test_the_classifiers_optimum_is_the_conic_one(name, s):
    X, y, group = data(120, 3, groups=3)
    model = RobustClassifier(name, interactions="groups", pooling=s, l2=1e-2, tolerance=1e-6)
    model.fit(X, y, groups=group)
    sign = np.where(y == 1, 1.0, -1.0)
    best = pooled_optimum(
        X,
        group,
        model.uncertainty_set_,
        1e-2,
        s,
        lambda score, of: cp.logistic(cp.multiply(-sign[of], score)),
        2,
    )
    assert model.gap_ <= 1e-6
    assert -1e-7 <= model.objective_ - best <= model.gap_ + 1e-7


@pytest.mark.parametrize("loss", ["squared", "absolute", "huber"])
def test_the_regressors_optimum_is_the_conic_one(loss):
    X, y, group = targets()
    model = RobustRegressor(interactions="groups", pooling=0.5, loss=loss, l2=1e-2, tolerance=1e-5)
    model.fit(X, y, groups=group)
    each = {
        "squared": lambda r: 0.5 * cp.square(r),
        "absolute": cp.abs,
        "huber": lambda r: 0.5 * cp.huber(r, model.epsilon),
    }[loss]
    centered = y - model.offset_
    best = pooled_optimum(
        X, group, model.uncertainty_set_, 1e-2, 0.5, lambda score, of: each(score - centered[of]), 1
    )
    unit = max(1.0, y.var(), best)
    assert model.gap_ <= 1e-5 * unit
    assert -1e-6 * unit <= model.objective_ - best <= model.gap_ + 1e-6 * unit


@BOTH
def test_pooling_zero_is_the_shared_model(estimator):
    X, y, site = conflict(300)
    shared = estimator().fit(X, y, groups=site)
    pooled = estimator(interactions="groups", pooling=0.0).fit(X, y, groups=site)
    np.testing.assert_array_equal(shared.coef_, pooled.coef_)
    np.testing.assert_array_equal(shared.predict(X), pooled.predict(X, groups=site))


@BOTH
def test_sparse_and_dense_are_the_same(estimator):
    X, y, site = conflict(300)
    X[np.abs(X) < 0.5] = 0.0
    for settings in ({"pooling": 0.7}, {}):
        model = estimator(interactions="groups", **settings)
        dense = model.fit(X, y, groups=site).predict(X, groups=site)
        kept, chosen = model.group_coef_.copy(), model.pooling_
        rows = sparse.csr_array(X)
        again = model.fit(rows, y, groups=site).predict(rows, groups=site)
        np.testing.assert_allclose(kept, model.group_coef_, atol=1e-6)
        np.testing.assert_allclose(dense, again, atol=1e-6)
        assert chosen == model.pooling_


def test_groups_get_their_coefficients_and_others_the_shared_ones():
    X, y, group = data(200, classes=3)
    names = np.array(list("abcde"))[group]
    model = RobustClassifier(interactions="groups", pooling=1.0).fit(X, y, groups=names)
    assert model.group_coef_.shape == (5, 3, 4)
    for g, name in enumerate("abcde"):
        mine = model.decision_function(X[:9], groups=[name] * 9)
        np.testing.assert_allclose(mine, X[:9] @ model.group_coef_[g].T + model.group_intercept_[g])
    shared = X[:9] @ model.coef_.T + model.intercept_
    with pytest.warns(EstimatorWarning, match=r"^not in training: 'new'; samples of these groups get the sh"):
        np.testing.assert_allclose(model.decision_function(X[:9], groups=["new"] * 9), shared)
    with pytest.warns(EstimatorWarning, match="got no groups, so all samples get the shared ones"):
        np.testing.assert_allclose(model.decision_function(X[:9]), shared)
    with pytest.warns(EstimatorWarning, match="'new'"):
        mixed = model.predict_proba(X[:9], groups=["a", "new", *names[2:9]])
        np.testing.assert_allclose(mixed[1], model.predict_proba(X[1:2], groups=["new"])[0])


def test_where_groups_conflict_own_coefficients_are_chosen_and_the_worst_group_gains():
    (X, y, site), (X_new, y_new, site_new) = conflict(2000), conflict(2000, seed=1)
    pooled = RobustClassifier(interactions="groups").fit(X, y, groups=site)
    shared = RobustClassifier().fit(X, y, groups=site)
    assert pooled.pooling_ > 0.0
    assert pooled.pooling_cross_validation_.poolings.tolist() == list(SCALES)
    found = worst_group_accuracy(y_new, pooled.predict(X_new, groups=site_new), groups=site_new)
    assert found > worst_group_accuracy(y_new, shared.predict(X_new), groups=site_new) + 0.1


def test_where_groups_are_alike_one_model_is_chosen():
    chosen = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, group = rng.normal(size=(400, 5)), rng.integers(0, 5, 400)
        y = X[:, 0] + rng.logistic(size=400) > 0
        chosen.append(RobustClassifier(interactions="groups").fit(X, y, groups=group).pooling_)
    assert max(chosen) <= 0.1


def test_both_solvers_agree():
    X, y, group = data(150, 3, groups=3)
    settings = {"interactions": "groups", "pooling": 0.5, "l2": 1e-2}
    ours = RobustClassifier(tolerance=1e-7, **settings).fit(X, y, groups=group)
    driver = RobustClassifier(solver="aspire-models", steps=2000, **settings).fit(X, y, groups=group)
    assert driver.objective_ == pytest.approx(ours.objective_, rel=1e-3)


def test_radius_and_pooling_by_cross_validation():
    X, y, site = conflict(500)
    model = RobustClassifier(radius="cv", interactions="groups").fit(X, y, groups=site)
    assert model.pooling_ > 0
    assert model.cross_validation_.radius == model.uncertainty_set_.radius
    assert model.gap_ <= 1e-4


def test_groups_are_routed_through_a_pipeline():
    X, y, site = conflict(400)
    with config_context(enable_metadata_routing=True):
        model = RobustClassifier(interactions="groups", pooling=1.0).set_fit_request(groups=True)
        pipe = make_pipeline(StandardScaler(), model).fit(X, y, groups=site)
        found = pipe.predict(X, groups=site)
        proba = pipe.predict_proba(X, groups=site)
        np.testing.assert_array_equal(pipe.classes_[proba.argmax(axis=1)], found)
        assert pipe.score(X, y, groups=site) == pytest.approx((found == y).mean())
        held = cross_validate(make_pipeline(StandardScaler(), model), X, y, cv=3, params={"groups": site})
    assert held["test_score"].mean() > 0.75
    scaled = StandardScaler().fit_transform(X)
    np.testing.assert_array_equal(found, pipe[-1].predict(scaled, groups=site))


@BOTH
def test_a_warm_start_is_shorter_and_ends_at_the_same_objective(estimator):
    X, y, site = conflict(600)
    for settings in ({}, {"interactions": "groups", "pooling": 0.5}):
        model = estimator(warm_start=True, l2=1e-2, tolerance=1e-5, **settings).fit(X, y, groups=site)
        cold, passes = model.objective_, model.n_iter_
        model.fit(X, y, groups=site)
        assert model.objective_ == pytest.approx(cold, abs=2e-5)
        assert model.n_iter_ < passes
        model.fit(X[:, :2], y, groups=site)  # another shape starts anew
        assert model.coef_.shape[-1] == 2
        model.set_params(warm_start=False).fit(X, y, groups=site)
        assert model.n_iter_ == passes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interactions": "site"}, "interactions must be 'groups' or None, got 'site'"),
        ({"interactions": "groups", "pooling": -1.0}, "pooling must be"),
        ({"interactions": "groups", "pooling": "best"}, "'cv', got 'best'"),
        ({"interactions": "groups", "pooling": True}, "pooling must be"),
    ],
)
def test_errors_say_what_to_do(settings, message):
    X, y, site = conflict(60)
    with pytest.raises(InvalidSetting, match=message):
        RobustClassifier(**settings).fit(X, y, groups=site)


def test_interactions_need_groups():
    X, y, _ = conflict(60)
    with pytest.raises(InvalidSetting, match="coefficients of its own, and fit got no groups"):
        RobustClassifier(interactions="groups").fit(X, y)


def by_keyword(estimator):
    return too_exact(estimator) | {
        "check_no_attributes_set_in_init": "a parameter of the set is an attribute, from **parameters"
    }


@pytest.mark.filterwarnings("ignore::fdro_core.errors.EstimatorWarning")  # the checks have no groups
@parametrize_with_checks(
    [RobustClassifier("cvar", tail=0.8), RobustRegressor("cvar", tail=0.8, warm_start=True)],
    expected_failed_checks=by_keyword,
)
@pytest.mark.thorough
def test_scikit_learns_own_checks_with_parameters_of_a_set(estimator, check):
    check(estimator)


def test_no_warning_for_groups_that_a_shared_model_does_not_need():
    X, y, site = conflict(60)
    model = RobustClassifier().fit(X, y, groups=site)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model.predict(X), model.predict(X, groups=site))


@pytest.mark.filterwarnings("error::fdro_core.errors.EstimatorWarning")
def test_an_audit_is_of_the_model_by_group():
    X, y, site = conflict(400)
    pooled = RobustClassifier(interactions="groups", pooling=1.0).fit(X, y, groups=site)
    right = (pooled.predict(X, groups=site) == y).mean()
    assert pooled.audit(X, y, groups=site).losses.mean() == pytest.approx(1.0 - right)
    regressor = RobustRegressor(interactions="groups", pooling=1.0).fit(X, y, groups=site)
    missed = np.abs(regressor.predict(X, groups=site) - y)
    np.testing.assert_allclose(regressor.audit(X, y, groups=site).losses, missed)
