"""Groups as users give them: columns of pandas and polars tables, several columns, tuples; set parameters."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from fdro_core.errors import EstimatorWarning
from fdro_core.estimators.labels import index_groups, place_groups
from fdro_core.sklearn import RobustClassifier, RobustRegressor, worst_group_accuracy
from tests.fdro_core.estimators.test_groups import conflict
from uncertainty_sets import CVaR
from uncertainty_sets.errors import BackendMissing, InvalidParameter

polars = pytest.importorskip("polars")
TABLES = pytest.mark.parametrize("table", [pd.DataFrame, polars.DataFrame])


def columns(samples=300):
    X, y, site = conflict(samples)
    sex = np.where(np.random.default_rng(5).random(samples) < 0.5, "f", "m")
    return {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "site": site, "sex": sex}, X, y, site, sex


@TABLES
def test_a_column_of_a_table_is_the_groups(table):
    named, X, y, site, _ = columns()
    frame = table({name: named[name] for name in ("a", "b", "c", "site")})
    by_name = RobustClassifier(interactions="groups", pooling=1.0).fit(frame, y, groups="site")
    by_hand = RobustClassifier(interactions="groups", pooling=1.0).fit(X, y, groups=site)
    assert by_name.feature_names_in_.tolist() == ["a", "b", "c"]
    assert by_name.group_columns_ == ("site",)
    assert by_name.groups_.tolist() == ["large", "small"]
    np.testing.assert_array_equal(by_name.group_coef_, by_hand.group_coef_)
    np.testing.assert_array_equal(by_name.predict(frame), by_hand.predict(X, groups=site))
    assert by_name.score(frame, y) == by_hand.score(X, y, groups=site)
    bare = table({name: named[name] for name in "abc"})
    np.testing.assert_array_equal(by_name.predict(bare, groups=site), by_hand.predict(X, groups=site))
    assert [dict(row) for row in by_name.summary(frame, y)] == [
        dict(row) for row in by_hand.summary(X, y, site)
    ]


@TABLES
def test_several_columns_are_tuples(table):
    named, X, y, site, sex = columns()
    by_name = RobustClassifier().fit(table(named), y, groups=["site", "sex"])
    pairs = list(zip(site.tolist(), sex.tolist(), strict=True))
    by_tuples = RobustClassifier().fit(X, y, groups=pairs)
    by_table = RobustClassifier().fit(X, y, groups=table({"site": site, "sex": sex}))
    by_array = RobustClassifier().fit(X, y, groups=np.column_stack([site, sex]))
    expected = [("large", "f"), ("large", "m"), ("small", "f"), ("small", "m")]
    for model in (by_name, by_tuples, by_table, by_array):
        assert model.groups_.tolist() == expected
        np.testing.assert_array_equal(model.coef_, by_tuples.coef_)
    assert "large, f" in str(by_name.summary())
    weighted = RobustClassifier(prior=dict.fromkeys(expected, 1.0)).fit(X, y, groups=pairs)
    np.testing.assert_allclose(weighted.prior_, 0.25)


@TABLES
def test_series_are_groups(table):
    named, X, y, site, _ = columns()
    for given in (table(named)["site"], table(named)[["site"]]):
        model = RobustClassifier().fit(X, y, groups=given)
        assert model.groups_.tolist() == ["large", "small"]
        assert worst_group_accuracy(y, model.predict(X), groups=given) == worst_group_accuracy(
            y, model.predict(X), groups=site
        )


def test_a_column_goes_through_cross_validation():
    """Without metadata routing: the groups are in X."""
    named, _, y, _, _ = columns(900)
    frame = pd.DataFrame(named).drop(columns="sex")
    pooled, shared = RobustClassifier(interactions="groups", pooling=1.0), RobustClassifier()
    own, one = (cross_val_score(each, frame, y, cv=3, params={"groups": "site"}) for each in (pooled, shared))
    assert own.mean() > one.mean() + 0.03


def test_errors_of_columns():
    named, X, y, _, _ = columns(60)
    with pytest.raises(ValueError, match="X has no column 'sit' for groups; it has a, b, c"):
        RobustClassifier().fit(pd.DataFrame(named), y, groups="sit")
    with pytest.raises(ValueError, match=r"names a column, and X is a ndarray.*pandas or polars"):
        RobustClassifier().fit(X, y, groups="site")
    with pytest.raises(ValueError, match="X has no column 'Site' for groups; it has a, b, c"):
        RobustClassifier().fit(pd.DataFrame(named), y, groups=["Site"])
    with pytest.raises(ValueError, match=r"column 'sex' of X holds text.*get_dummies.*groups='sex'"):
        RobustClassifier().fit(pd.DataFrame(named), y, groups="site")
    with pytest.raises(ValueError, match=r"one class: 1$"):
        RobustClassifier().fit(X, np.ones(60, dtype=int), groups=named["site"])
    holed = pd.DataFrame(named)
    holed.loc[3, "sex"] = None
    with pytest.raises(ValueError, match="1 of them, the first for sample 3"):
        RobustClassifier().fit(holed, y, groups=["site", "sex"])


def test_an_index_in_another_order_is_warned_about_and_a_reset_one_is_not():
    _, X, y, site, _ = columns(60)
    frame = pd.DataFrame(X, index=np.arange(100, 160))
    group, label = (pd.Series(each, index=frame.index) for each in (site, y))
    for given in ((label, group[::-1]), (label[::-1], group)):
        with pytest.warns(EstimatorWarning, match=r"matched by position; give (groups|y)\.loc\[X\.index\]"):
            RobustClassifier().fit(frame, given[0], groups=given[1])
    aligned = RobustClassifier().fit(frame, label, groups=group)
    reset = RobustClassifier().fit(frame, label.reset_index(drop=True), groups=group.reset_index(drop=True))
    np.testing.assert_array_equal(aligned.coef_, reset.coef_)
    with pytest.warns(EstimatorWarning, match="groups\\.loc"):
        aligned.summary(frame, label, group[::-1])


def test_one_group_and_labels_that_training_did_not_see_are_told():
    _, X, y, site, _ = columns(60)
    with pytest.warns(EstimatorWarning, match="one group: this is ordinary training"):
        RobustClassifier().fit(X, y, groups=["a"] * 60)
    model = RobustClassifier().fit(X, np.where(y == y[0], "no", "yes"), groups=site)
    with pytest.raises(ValueError, match=r"labels that training did not: .*; it had 'no', 'yes'"):
        model.summary(X, (y == y[0]).astype(int), site)
    assert worst_group_accuracy(y, y, site) == 1.0


def test_without_narwhals_the_extra_is_named(monkeypatch):
    named, _, y, _, _ = columns(60)
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(BackendMissing, match=r"narwhals .*fdro\[sklearn\]"):
        RobustClassifier().fit(pd.DataFrame(named), y, groups="site")


def test_places_of_new_groups():
    names, index = index_groups([("b", 2), ("a", 10), ("b", 2)], 3)
    assert names.tolist() == [("a", 10), ("b", 2)]
    assert index.tolist() == [1, 0, 1]
    assert place_groups(names, [("a", 10), ("a", 2)], 2).tolist() == [0, -1]
    assert place_groups(np.array([3, 5]), [5.0, 4.0, 3.0], 3).tolist() == [1, -1, 0]


# -- parameters of the set --------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [RobustClassifier, RobustRegressor])
def test_parameters_of_a_set_are_settings(estimator):
    X, y, site = conflict(200)
    model = estimator("cvar", tail=0.2).fit(X, y, groups=site)
    assert isinstance(model.uncertainty_set_, CVaR)
    assert model.uncertainty_set_.tail == 0.2
    assert model.get_params()["tail"] == 0.2
    assert clone(model).tail == 0.2
    assert "tail=0.2" in repr(model)
    model.set_params(tail=0.7).fit(X, y, groups=site)
    assert model.uncertainty_set_.tail == 0.7
    assert estimator("cvar").set_params(tail=0.3).fit(X, y, groups=site).uncertainty_set_.tail == 0.3
    assert "not given" not in str(model.summary())
    assert "not given, so by default: tail = 0.5" in str(estimator("cvar").fit(X, y, groups=site).summary())


def test_a_grid_over_a_parameter_of_the_set():
    X, y, _ = conflict(120)
    search = GridSearchCV(RobustRegressor("cvar"), {"tail": [0.5, 1.0]}, cv=2)
    with pytest.warns(UserWarning, match="groups"):
        search.fit(X, y)
    assert search.best_params_["tail"] in {0.5, 1.0}


def test_a_name_that_is_neither_setting_nor_parameter():
    X, y, site = conflict(60)
    with pytest.raises(InvalidParameter, match=r"'tolerence' is no setting.*did you mean 'tolerance'"):
        RobustClassifier(tolerence=1e-3).fit(X, y, groups=site)
    with pytest.raises(InvalidParameter, match="kl has no parameter 'tail'"):
        RobustClassifier("kl", tail=0.3).fit(X, y, groups=site)
