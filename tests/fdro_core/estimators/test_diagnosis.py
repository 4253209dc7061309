"""What fits with "cv" say: the comparison, the test of coefficients by group, the ceiling, the warnings."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from bench.datasets.island import island
from bench.estimators.groups import training
from fdro_core.errors import EstimatorWarning
from fdro_core.estimators.held_out import HeldOut, Measured
from fdro_core.sklearn import RobustClassifier, RobustRegressor
from tests.fdro_core.estimators.test_groups import conflict
from uncertainty_sets import KL

REMEDY = r'coefficients of their own.*interactions="groups" and predict\(X, groups=\.\.\.\)'


def alike(seed, samples=400, groups=4):
    """Groups that differ in size and in nothing else."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, 4))
    group = rng.choice(groups, size=samples, p=np.arange(1, groups + 1) / (groups * (groups + 1) / 2))
    return X, (X[:, 0] + rng.logistic(size=samples) > 0).astype(int), group


def alarms(model, X, y, group):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model.fit(X, y, groups=group)
    return [str(each.message) for each in seen if issubclass(each.category, EstimatorWarning)]


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(10))
def test_an_island_is_found_and_the_message_names_the_remedy(seed):
    X, y, group = training(island(seed=seed), seed, fixed=False)
    model = RobustClassifier(radius="cv")
    with pytest.warns(EstimatorWarning, match=REMEDY) as seen:
        model.fit(X, y, groups=group)
    assert seen[0].filename == __file__
    assert model.comparison_.own.significant
    by_name = {row["model"]: row for row in model.comparison_.rows}
    assert list(by_name) == ["constant", "radius 0", "even weights", "chosen (this one)", "pooled"]
    assert by_name["pooled"]["there"] > by_name["chosen (this one)"]["there"] + 0.05
    assert model.ceiling_.own < model.ceiling_.limit < model.ceiling_.constant
    text = str(model.summary())
    assert "on held-out folds" in text
    assert "no shared linear model has a loss of the worst group below" in text


def test_the_default_warns_where_a_group_is_worse_off_than_with_a_constant():
    X, y, group = training(island(seed=0), 0, fixed=False)
    with pytest.warns(EstimatorWarning, match=r"in group 6 the model is worse than a constant.*interactions"):
        RobustClassifier().fit(X, y, groups=group)


def test_groups_that_are_alike_raise_no_alarm():
    assert sum(bool(alarms(RobustClassifier(radius="cv"), *alike(seed))) for seed in range(8)) == 0
    assert sum(bool(alarms(RobustClassifier(), *alike(seed))) for seed in range(8)) == 0


def test_regression_finds_reversed_effects_and_shows_errors():
    X, _, site = conflict(1500)
    rng = np.random.default_rng(3)
    effect = np.where(site == "large", 1.0, -1.0)
    y = 5.0 + X[:, 0] + effect * X[:, 1] + 0.5 * rng.normal(size=len(X))
    model = RobustRegressor(radius="cv")
    with pytest.warns(EstimatorWarning, match=REMEDY):
        model.fit(X, y, groups=site)
    pooled = RobustRegressor(interactions="groups").fit(X, y, groups=site)
    table = pooled.summary(X, y, site)
    for row in table:
        mine = site == row["group"]
        rmse = np.sqrt(np.mean((pooled.predict(X, groups=site) - y)[mine] ** 2))
        assert row["RMSE"] == pytest.approx(rmse)
        assert row["training RMSE"] == pytest.approx(rmse)
    assert ", relative " in str(table)
    rows = {row["model"]: row for row in table.models}
    assert rows["constant"]["all samples"] == pytest.approx(y.std(), rel=0.02)
    assert rows["pooled (this one)"]["there"] < 0.6 < rows["radius 0"]["there"]
    low, high = rows["pooled (this one)"]["95 % interval"]
    assert low < rows["pooled (this one)"]["there"] < high


def test_the_ceiling_is_below_what_every_shared_model_reaches_on_new_data():
    """The limit is of the population: shared models of every radius, on many fresh samples."""
    X, y, site = conflict(2000)
    X_new, y_new, site_new = conflict(60_000, seed=1)
    model = RobustClassifier(radius="cv", l2=1e-3)
    alarms(model, X, y, site)
    ceiling = model.ceiling_
    assert ceiling.weights.sum() == pytest.approx(1.0)
    assert ceiling.limit < ceiling.proof
    for radius in (0.0, 0.2, 1.0, 3.0):
        other = RobustClassifier(radius=radius)
        alarms(other, X_new, y_new, site_new)
        ridge = 0.25 * 1e-3 * (np.sum(other.coef_**2) + np.sum(other.intercept_**2))  # two opposite halves
        assert other.group_losses_.max() + ridge >= ceiling.limit
    assert other.group_losses_.max() - ceiling.limit < 0.1  # and it is no empty claim


def test_the_ceiling_needs_two_groups_of_ten():
    X, y, _ = alike(0, 60)
    group = np.where(np.arange(60) < 5, "few", "many")
    model = RobustClassifier(radius="cv")
    alarms(model, X, y, group)
    assert model.ceiling_ is None
    assert model.comparison_ is not None


def test_plain_fits_compare_nothing():
    X, y, group = alike(0)
    model = RobustClassifier(radius="cv").fit(X, y, groups=group)
    assert model.comparison_ is not None
    model.set_params(radius=0.1).fit(X, y, groups=group)
    assert model.comparison_ is None
    assert model.ceiling_ is None
    assert model.summary().models == []


class TwoSamples:
    """Stands for the samples of `HeldOut`: group 0 has three, group 1 two, tested in two folds."""

    group = np.array([0, 0, 0, 1, 1])
    y = np.array([0, 1, 0, 1, 1])


def test_shift_by_hand():
    """Means 2 and 5 under the mixes (1, 0) in fold 0 and (½, ½) in fold 1."""
    held = HeldOut(None, np.zeros((5, 1)), TwoSamples.y, TwoSamples.group, None, np.array([0.6, 0.4]), 0, 1.0)
    held.fold = np.array([0, 0, 1, 0, 1])
    values = np.array([1.0, 3.0, 2.0, 4.0, 6.0])
    mix = np.array([[1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(held.by_group(values), [2.0, 5.0])
    mean, error = held.shift(values, mix)
    assert mean == pytest.approx((1.0 + 3.0 + 0.5 * 2.0) / 3 + 0.5 * 6.0 / 2)
    assert error == pytest.approx(np.sqrt((1 / 3) ** 2 * (1 + 1) + 0.25**2 * 1))


def test_models_on_held_out_folds_never_saw_their_samples():
    """Labels of pure chance: a model with a feature per sample is right in training and not on the folds."""
    rng = np.random.default_rng(0)
    X, y, group = np.eye(60), rng.integers(0, 2, 60), rng.integers(0, 2, 60)
    model = RobustClassifier(l2=1e-4)
    model.fit(X, y, groups=group)
    assert model.score(X, y) == 1.0
    held = HeldOut(model, X, y, group, None, model.prior_, 0, 1e-3)
    found: Measured = held.measure(KL(model.prior_, 0.1), 0.0)
    assert found.score[held.tested].mean() < 0.75
    assert found.mix.sum(axis=1) == pytest.approx(1.0)
