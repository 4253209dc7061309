"""The scikit-learn classifier: scikit-learn's own checks, the optimum, and the places it is used in."""

from __future__ import annotations

import importlib
import pickle
import re
import sys

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info, threadpool_limits

from fdro_core.errors import InvalidSetting
from fdro_core.sklearn import RobustClassifier, RobustRegressor, worst_group_accuracy
from tests.uncertainty_sets.plugins import TotalVariation
from uncertainty_sets import KL, available_sets, get_set, robust
from uncertainty_sets.errors import BackendMissing, InvalidInput, InvalidParameter, UnknownName

GROUPS = 5
SHIPPED = ("box", "cd-norm", "ellipsoid", "kl", "polyhedron", "wasserstein-1")
HALF = {"D": np.eye(GROUPS), "c": np.full(GROUPS, 0.5)}


def data(samples=150, features=4, classes=2, groups=GROUPS, seed=0):
    """Groups of unequal size that disagree on the direction."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, features))
    group = rng.integers(0, groups, size=samples)
    group[: groups * 2] = np.repeat(np.arange(groups), 2)
    truth = rng.normal(size=(groups, features, classes)) + 2.0 * rng.normal(size=(features, classes))
    y = np.einsum("nf,nfc->nc", X, truth[group]).argmax(axis=1)
    return X, y, group


def too_exact(estimator):
    """Checks that want models equal to 1e-7, further than the tolerance: see test_weights_are_repetitions."""
    why = "the tolerance of the objective allows a larger difference of the models"
    kinds = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{kind}_data": why for kind in kinds}


@pytest.mark.filterwarnings("ignore::fdro_core.errors.EstimatorWarning")  # the checks have no groups
@parametrize_with_checks(
    [RobustClassifier(), RobustClassifier("ellipsoid", prior="uniform")], expected_failed_checks=too_exact
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def conic_optimum(X, y, group, uncertainty_set, l2):
    """The same problem by `robust.support`, for two classes written with one vector of weights.

    Softmax over two classes with a ridge on both halves has them opposite at the optimum: v = w₁ - w₀ and
    ‖w‖² = ‖v‖²/2.
    """
    ones = np.column_stack([X, np.ones(len(X))])
    v = cp.Variable(ones.shape[1])
    sign = np.where(y == 1, 1.0, -1.0)
    losses = [
        cp.sum(cp.logistic(cp.multiply(-sign[group == g], ones[group == g] @ v))) / np.sum(group == g)
        for g in range(group.max() + 1)
    ]
    objective = robust.support(uncertainty_set, cp.hstack(losses)) + l2 / 4.0 * cp.sum_squares(v)
    return float(cp.Problem(cp.Minimize(objective)).solve(solver="CLARABEL"))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_optimum_is_the_conic_one_and_the_gap_is_true(name):
    X, y, group = data()
    parameters = HALF if name == "polyhedron" else {}
    model = RobustClassifier(name, **parameters, l2=1e-2, tolerance=1e-6).fit(X, y, groups=group)
    best = conic_optimum(X, y, group, model.uncertainty_set_, 1e-2)
    assert model.gap_ <= 1e-6
    assert model.objective_ - best <= model.gap_ + 1e-7
    assert model.objective_ >= best - 1e-7
    assert model.worst_case_.value == pytest.approx(model.worst_case_.p @ model.group_losses_)


@pytest.mark.parametrize("name", ["box", "cd-norm", "kl"])
def test_without_groups_every_sample_is_one(name):
    X, y, _ = data(60)
    model = RobustClassifier(name, l2=1e-2, tolerance=1e-5).fit(X, y)
    best = conic_optimum(X, y, np.arange(60), model.uncertainty_set_, 1e-2)
    assert model.group_losses_.shape == (60,)
    assert -1e-6 <= model.objective_ - best <= 1e-5 + 1e-6
    assert model.gap_ <= 1e-5


def test_both_solvers_agree():
    X, y, group = data(classes=3)
    ours = RobustClassifier("kl", l2=1e-2, tolerance=1e-7).fit(X, y, groups=group)
    driver = RobustClassifier("kl", l2=1e-2, solver="aspire-models", steps=2000).fit(X, y, groups=group)
    assert driver.objective_ == pytest.approx(ours.objective_, rel=1e-4)
    assert driver.objective_ - ours.objective_ <= driver.gap_ + 1e-7
    np.testing.assert_allclose(driver.predict_proba(X), ours.predict_proba(X), atol=1e-2)


def test_a_budget_of_zero_is_logistic_regression():
    X, y, group = data(classes=3)
    ours = RobustClassifier("cd-norm", budget=0.0, l2=1e-2, tolerance=1e-9).fit(X, y, groups=group)
    ones = np.column_stack([X, np.ones(len(X))])  # a bias under the ridge, as ours is
    theirs = LogisticRegression(C=1.0 / (1e-2 * len(X)), fit_intercept=False, tol=1e-8, max_iter=1000)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.fit(ones, y).predict_proba(ones), atol=1e-4)


def test_the_worst_group_does_better_than_by_the_mean():
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    rng = np.random.default_rng(0)
    rare = np.isin(y, (3, 8, 9))
    kept = np.flatnonzero(~rare | (rng.random(y.size) < 0.1))
    X, y = X[kept], y[kept]
    group = np.where(np.isin(y, (3, 8, 9)), "rare", "common")
    mean = RobustClassifier(budget=0.0).fit(X, y, groups=group)
    worst = RobustClassifier("box", lower=[0, 0], upper=[1, 1]).fit(X, y, groups=group)
    assert worst.group_losses_.max() < 0.5 * mean.group_losses_.max()
    assert worst_group_accuracy(y, worst.predict(X), groups=group) >= worst_group_accuracy(
        y, mean.predict(X), groups=group
    )


def test_sparse_and_dense_are_the_same():
    X, y, group = data()
    X[np.abs(X) < 0.5] = 0.0
    dense = RobustClassifier().fit(X, y, groups=group)
    other = RobustClassifier().fit(sparse.csr_array(X), y, groups=group)
    np.testing.assert_allclose(
        dense.decision_function(X), other.decision_function(sparse.csr_array(X)), atol=1e-6
    )


def test_probabilities_follow_the_scores():
    X, y, group = data(classes=3)
    model = RobustClassifier().fit(X, np.array(["a", "b", "c"])[y], groups=group)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(proba), model.predict_log_proba(X))
    assert (model.classes_[proba.argmax(axis=1)] == model.predict(X)).all()
    assert model.coef_.shape == (3, 4)
    assert model.decision_function(X).shape == (150, 3)
    two = RobustClassifier().fit(X, y > 0, groups=group)
    assert two.decision_function(X).shape == (150,)
    np.testing.assert_allclose(np.log(two.predict_proba(X)), two.predict_log_proba(X))


def test_scaled_features_do_not_matter():
    X, y, group = data()
    plain = RobustClassifier(l2=1e-6, tolerance=1e-3).fit(X, y, groups=group)
    scaled = RobustClassifier(l2=1e-6, tolerance=1e-3).fit(X * [1e-2, 1.0, 1e2, 1.0], y, groups=group)
    assert scaled.worst_case_.value <= plain.worst_case_.value + 1e-2


def test_in_a_pipeline_with_a_grid_and_routed_groups():
    X, y, group = data(300)
    with config_context(enable_metadata_routing=True):
        model = RobustClassifier("kl").set_fit_request(groups=True)
        scorer = make_scorer(worst_group_accuracy).set_score_request(groups=True)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), model),
            {"robustclassifier__radius": [0.0, 0.2], "robustclassifier__l2": [1e-3, 1e-2]},
            scoring=scorer,
            cv=StratifiedKFold(3),
        ).fit(X, y, groups=group)
        assert search.best_estimator_[-1].groups_.tolist() == list(range(GROUPS)), "groups must arrive"
        assert 0.0 <= search.best_score_ <= 1.0
        held_out = cross_validate(
            model, X, y, cv=GroupKFold(5), params={"groups": group}, return_estimator=True
        )
        assert all(len(fitted.groups_) == GROUPS - 1 for fitted in held_out["estimator"])
        with pytest.raises(UnsetMetadataPassedError, match="groups"):
            cross_validate(RobustClassifier(), X, y, params={"groups": group})


def test_sets_as_objects_classes_and_names():
    X, y, group = data()
    q = np.bincount(group) / group.size
    by_name = RobustClassifier("kl", radius=0.2).fit(X, y, groups=group)
    by_object = RobustClassifier(KL(q, 0.2)).fit(X, y, groups=group)
    by_dict = RobustClassifier("kl", **{"radius": 0.2}).fit(X, y, groups=group)
    for other in (by_object, by_dict):
        np.testing.assert_array_equal(by_name.coef_, other.coef_)
    plug_in = RobustClassifier(TotalVariation, radius=0.2).fit(X, y, groups=group)
    assert isinstance(plug_in.uncertainty_set_, TotalVariation)
    assert plug_in.gap_ <= 1e-4
    assert set(SHIPPED) <= set(available_sets())
    assert get_set("kl") is type(by_name.uncertainty_set_)


def test_priors():
    X, y, group = data()
    names = np.array(["e", "d", "c", "b", "a"])[group]
    shares = RobustClassifier("kl").fit(X, y, groups=names)
    np.testing.assert_allclose(shares.prior_, np.bincount(group)[::-1] / len(group))
    assert shares.groups_.tolist() == ["a", "b", "c", "d", "e"]
    uniform = RobustClassifier("kl", prior="uniform").fit(X, y, groups=names)
    np.testing.assert_allclose(uniform.prior_, 0.2)
    mapped = RobustClassifier("kl", prior={"a": 2, "b": 1, "c": 1, "d": 0, "e": 0, "z": 9}).fit(
        X, y, groups=names
    )
    np.testing.assert_allclose(mapped.prior_, [0.5, 0.25, 0.25, 0.0, 0.0])
    np.testing.assert_allclose(mapped.worst_case_.p[3:], 0.0)
    given = RobustClassifier("kl", prior=[1, 1, 1, 1, 1]).fit(X, y, groups=names)
    np.testing.assert_array_equal(given.coef_, uniform.coef_)


def test_without_ridge_it_converges_and_promises_nothing():
    X, y, group = data()
    model = RobustClassifier("kl", l2=0.0, tolerance=1e-4)
    y = np.where(np.random.default_rng(1).random(y.size) < 0.2, 1 - y, y)  # not separable
    model.fit(X, y, groups=group)
    ridge = RobustClassifier("kl", l2=1e-7, tolerance=1e-3).fit(X, y, groups=group)
    assert model.objective_ <= ridge.objective_ + 1e-3
    assert model.gap_ == np.inf


def test_too_few_steps_are_said():
    X, y, group = data()
    with pytest.warns(ConvergenceWarning, match="StandardScaler"):
        model = RobustClassifier(steps=3).fit(X, y, groups=group)
    assert model.n_iter_ == 3
    assert model.gap_ > 1e-4


def test_pickle_keeps_everything():
    X, y, group = data()
    model = RobustClassifier().fit(X, y, groups=group)
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(twin.worst_case_.p, model.worst_case_.p)


@pytest.mark.parametrize(
    ("settings", "groups", "error", "message"),
    [
        ({"uncertainty_set": "kl2"}, None, UnknownName, "did you mean 'kl'"),
        ({"uncertainty_set": 3}, None, InvalidInput, "got int"),
        ({"uncertainty_set": "kl", "budget": 1.0}, None, InvalidParameter, "kl has no parameter 'budget'"),
        ({"uncertainty_set": "polyhedron"}, None, InvalidParameter, "polyhedron needs D and c"),
        (
            {"uncertainty_set": KL([0.5, 0.5], 0.1)},
            None,
            InvalidSetting,
            "2 entries and there are 150 groups",
        ),
        ({"uncertainty_set": KL([0.5, 0.5], 0.1), "radius": 1.0}, None, InvalidParameter, "finished set"),
        ({"uncertainty_set": "kl", "center": [1.0]}, None, InvalidSetting, "1 entries"),
        ({"solver": "adam"}, None, InvalidSetting, "solver must be one of"),
        ({"l2": -1.0}, None, InvalidSetting, "l2 must be"),
        ({"l2": "0.1"}, None, InvalidSetting, "got '0.1'"),
        ({"tolerance": 0.0}, None, InvalidSetting, "tolerance must be"),
        ({"steps": 0}, None, InvalidSetting, "steps must be"),
        ({"steps": 2.5}, None, InvalidSetting, "whole number"),
        ({"prior": "even"}, None, InvalidSetting, "'even'"),
        ({"prior": [1.0, 2.0]}, None, InvalidSetting, "150 numbers"),
        ({"prior": {0: 1.0}}, None, InvalidSetting, "no entry for group 1"),
        ({}, [1, 2], ValueError, "150 samples"),
        ({}, [np.nan] * 150, ValueError, "must not hold NaN"),
        ({}, [None, "a"] * 75, ValueError, "75 of them, the first for sample 0"),
        ({}, ["a", np.nan] * 75, ValueError, "the first for sample 1"),
        ({}, [1, "a"] * 75, ValueError, "sorted"),
        ({"radius": "CV"}, None, InvalidSetting, "did you mean 'cv'"),
        ({"uncertainty_set": "cd-norm", "radius": 1}, [0, 1] * 75, InvalidParameter, "its size is budget"),
        ({"uncertainty_set": "cvar", "radius": 1}, [0, 1] * 75, InvalidParameter, "its size is tail"),
        ({"radius": "best"}, None, InvalidSetting, "'cv' or None, got 'best'"),
        ({"radius": "cv"}, None, InvalidSetting, "fit got no groups"),
        ({"radius": "cv"}, list(range(150)), InvalidSetting, "groups of at least 2 samples"),
        ({"uncertainty_set": "cd-norm", "radius": "cv"}, [0, 1] * 75, InvalidSetting, "a set with a radius"),
    ],
)
def test_errors_say_what_to_do(settings, groups, error, message):
    X, y, _ = data()
    if groups is not None and None in groups:
        groups = np.array(groups, dtype=object)
    with pytest.raises(error, match=message):
        RobustClassifier(**settings).fit(X, y, groups=groups)


def test_a_pickle_that_names_the_documented_module_loads():
    """Where the class lived before, and where users import it from."""
    X, y, group = data()
    model = RobustClassifier("kl").fit(X, y, groups=group)
    by_file = pickle.dumps(model, protocol=2)  # modules as plain text
    by_name = by_file.replace(b"fdro_core.estimators.classifier", b"fdro_core.sklearn")
    assert by_name != by_file
    twin = pickle.loads(by_name)
    assert type(twin) is RobustClassifier
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))


MODULES = [
    "fdro_core.sklearn",
    "fdro_core.estimators.classifier",
    "fdro_core.estimators.regressor",
    "fdro_core.estimators.estimator",
    "fdro_core.estimators.settings",
]


@pytest.mark.parametrize("name", MODULES)
def test_without_scikit_learn_the_extra_is_named(monkeypatch, name):
    for module in MODULES:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(BackendMissing, match=r"fdro_core\.sklearn needs .*fdro\[sklearn\]"):
        importlib.import_module(name)


def test_verbose_prints_every_pass_and_its_gap(capsys):
    rng = np.random.default_rng(0)
    X, site = rng.normal(size=(300, 2)), rng.integers(0, 2, size=300)
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
    for estimator, labels in ((RobustClassifier, y), (RobustRegressor, y + X[:, 0])):
        model = estimator(verbose=2).fit(X, labels, groups=site)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == model.n_iter_
        assert re.fullmatch(
            rf"pass {model.n_iter_}, .* s: objective .*, at most .* above the minimum", lines[-1]
        )
        estimator(verbose=1).fit(X, labels, groups=site)  # shorter than a second
        estimator().fit(X, labels, groups=site)
        assert capsys.readouterr().out == ""
        with pytest.raises(InvalidSetting, match="verbose must be 0, 1 or 2, got 3"):
            estimator(verbose=3).fit(X, labels, groups=site)


def test_a_fit_has_one_thread_of_blas_and_gives_the_others_back(monkeypatch):
    def blas():
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    X, y, group = data()
    RobustClassifier().fit(X, y, groups=group)  # which loads all libraries
    seen, solve = [], RobustClassifier._solve
    monkeypatch.setattr(
        RobustClassifier, "_solve", lambda self, *given: (seen.append(blas()), solve(self, *given))[1]
    )
    with threadpool_limits(2, "blas"):
        before = blas()
        RobustClassifier().fit(X, y, groups=group)
        assert blas() == before
    assert 2 in before
    assert seen == [[1] * len(before)]
