"""The estimators' groups and weights: defaults, the size by cross-validation, warnings, summary."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fdro_core.errors import EstimatorWarning, InvalidSetting
from fdro_core.estimators.group_set import SHARES
from fdro_core.estimators.held_out import FOLDS, choose_radius, folds
from fdro_core.sklearn import RobustClassifier, RobustRegressor, worst_group_accuracy
from uncertainty_sets import KL, CDNorm, CVaR

conflicting = pytest.mark.filterwarnings(
    "ignore:.*coefficients of their own:fdro_core.errors.EstimatorWarning"
)
"""For fits with "cv" on groups that conflict, which warn: tests/fdro_core/estimators/test_diagnosis.py."""


def conflict(samples=1200, seed=0):
    """Two groups of 80 and 20 percent for which the second feature has opposite effects."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, 3))
    site = np.where(rng.random(samples) < 0.2, "small", "large")
    effect = np.where(site == "large", 1.5, -1.5)
    y = (1.5 * X[:, 0] + effect * X[:, 1] + rng.logistic(size=samples) > 0).astype(int)
    return X, y, site


# -- defaults ---------------------------------------------------------------------------------------------


def test_the_default_set_is_a_kl_ball_unless_parameters_of_the_cd_norm_are_given():
    X, y, site = conflict()
    for estimator in (RobustClassifier, RobustRegressor):
        chosen = estimator().fit(X, y, groups=site).uncertainty_set_
        assert isinstance(chosen, KL)
        assert chosen.radius == 0.3
        assert estimator("kl").fit(X, y, groups=site).uncertainty_set_.radius == 0.3
        assert isinstance(estimator(budget=0.5).fit(X, y, groups=site).uncertainty_set_, CDNorm)
        assert isinstance(estimator(spread=[0.1, 0.1]).fit(X, y, groups=site).uncertainty_set_, CDNorm)
        assert estimator(radius=0.1).fit(X, y, groups=site).uncertainty_set_.radius == 0.1


def test_the_default_gains_where_groups_conflict():
    """On new data, by more than four standard errors of the difference over ten seeds."""
    gains = []
    for seed in range(10):
        (X, y, site), (X_new, y_new, site_new) = conflict(seed=seed), conflict(seed=1000 + seed)
        ours = RobustClassifier().fit(X, y, groups=site)
        plain = LogisticRegression().fit(X, y)
        gains.append(
            worst_group_accuracy(y_new, ours.predict(X_new), groups=site_new)
            - worst_group_accuracy(y_new, plain.predict(X_new), groups=site_new)
        )
    assert np.mean(gains) > 4 * np.std(gains, ddof=1) / np.sqrt(len(gains))


# -- weights ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("estimator", [RobustClassifier, RobustRegressor])
def test_weights_are_repetitions(estimator, grouped):
    """A sample of weight 2 stands twice, one of weight 0 not at all, within groups and for the prior."""
    X, y, site = conflict(80)
    y = y if estimator is RobustClassifier else X @ [1.0, 2.0, -1.0] + y
    count = np.random.default_rng(1).integers(0, 4, size=y.size)
    count[0] = 0
    model = estimator("kl", radius=0.1, tolerance=1e-11, l2=1e-2)
    given = {"groups": site} if grouped else {}
    weighted = model.fit(X, y, sample_weight=count, **given)
    objective, coef = weighted.objective_, weighted.coef_.copy()
    again = np.repeat(np.arange(y.size), count)
    given = {"groups": site[again]} if grouped else {}
    repeated = model.fit(X[again], y[again], **given)
    assert repeated.objective_ == pytest.approx(objective, abs=1e-9)
    np.testing.assert_allclose(repeated.coef_, coef, atol=1e-4)


def test_weights_change_the_prior_and_the_groups_mean():
    X, y, site = conflict()
    weight = np.where(site == "small", 3.0, 1.0)
    model = RobustClassifier().fit(X, y, groups=site, sample_weight=weight)
    share = weight[site == "small"].sum() / weight.sum()
    np.testing.assert_allclose(model.prior_, [1 - share, share])
    within = RobustClassifier(prior="uniform").fit(X, y, groups=site, sample_weight=weight)
    without = RobustClassifier(prior="uniform").fit(X, y, groups=site)
    np.testing.assert_allclose(within.coef_, without.coef_, atol=1e-6)  # one weight per group cancels


def test_a_group_of_weight_zero_is_not_there():
    X, y, site = conflict()
    model = RobustClassifier().fit(X, y, groups=site, sample_weight=(site == "large").astype(float))
    assert model.groups_.tolist() == ["large"]
    alone = RobustClassifier().fit(X[site == "large"], y[site == "large"], groups=site[site == "large"])
    np.testing.assert_array_equal(model.coef_, alone.coef_)


def test_class_weights_are_sample_weights():
    X, y, site = conflict()
    rare = (y == 0) | (np.random.default_rng(0).random(y.size) < 0.2)
    X, y, site = X[rare], y[rare], site[rare]
    by_class = RobustClassifier(class_weight={0: 1.0, 1: 3.0}).fit(X, y, groups=site)
    by_sample = RobustClassifier().fit(X, y, groups=site, sample_weight=np.where(y == 1, 3.0, 1.0))
    np.testing.assert_array_equal(by_class.coef_, by_sample.coef_)
    balanced = RobustClassifier(class_weight="balanced").fit(X, y, groups=site)
    counts = np.bincount(y)
    by_hand = RobustClassifier().fit(X, y, groups=site, sample_weight=(y.size / (2 * counts))[y])
    np.testing.assert_array_equal(balanced.coef_, by_hand.coef_)
    plain = RobustClassifier().fit(X, y, groups=site)
    assert balanced.predict(X).mean() > plain.predict(X).mean()


@pytest.mark.parametrize(
    ("weight", "message"),
    [([-1.0] * 40, "Negative values"), ([0.0] * 40, "at least one non-zero"), ([1.0] * 39, "shape")],
)
def test_wrong_weights(weight, message):
    X, y, site = conflict(40)
    with pytest.raises(ValueError, match=message):
        RobustClassifier().fit(X, y, groups=site, sample_weight=weight)


def test_the_driver_takes_no_weights():
    X, y, site = conflict(40)
    with pytest.raises(InvalidSetting, match="takes no weights of samples or classes"):
        RobustClassifier(solver="aspire-models", class_weight="balanced").fit(X, y, groups=site)


# -- radius="cv" ------------------------------------------------------------------------------------------


@conflicting
def test_cross_validation_takes_a_large_set_where_groups_conflict_and_none_where_it_does_not_help():
    X, y, site = conflict(3000)
    model = RobustClassifier(radius="cv").fit(X, y, groups=site)
    found = model.cross_validation_
    assert found.radius > 0.2
    assert model.uncertainty_set_.radius == found.radius
    assert found.worst[found.radii == found.radius] == found.worst.max()
    assert found.worst.max() > found.worst[0] + 0.05  # radii[0] = 0: ordinary training
    assert found.radii[-1] == pytest.approx(-np.log(model.prior_.min()))  # holds every distribution
    # A group with the other group's rule and wrong labels: more weight for it only costs.
    rng = np.random.default_rng(0)
    easy = (X[:, 0] > 0).astype(int)
    noisy = np.where((site == "small") & (rng.random(y.size) < 0.4), 1 - easy, easy)
    chosen = RobustClassifier(radius="cv").fit(X, noisy, groups=site).cross_validation_
    assert chosen.worst.max() <= chosen.worst[0] + 0.03


@conflicting
@pytest.mark.thorough
def test_a_chosen_radius_is_that_of_a_plain_fit_and_repeats():
    X, y, site = conflict(400)
    first = RobustClassifier(radius="cv").fit(X, y, groups=site)
    again = RobustClassifier(radius="cv").fit(X, y, groups=site)
    np.testing.assert_array_equal(first.cross_validation_.scores, again.cross_validation_.scores)
    plain = RobustClassifier(radius=first.cross_validation_.radius).fit(X, y, groups=site)
    np.testing.assert_array_equal(first.coef_, plain.coef_)
    rows = sparse.csr_array(X)
    assert RobustClassifier(radius="cv").fit(rows, y, groups=site).cross_validation_.radius == (
        first.cross_validation_.radius
    )


@conflicting
@pytest.mark.parametrize("name", ["kl", "chi-square", "total-variation", "wasserstein-1", "hellinger"])
def test_cross_validation_of_every_kind_of_radius(name):
    X, y, site = conflict(300)
    model = RobustClassifier(name, radius="cv").fit(X, y, groups=site)
    everything = model.cross_validation_.radii[-1]
    whole = type(model.uncertainty_set_)(model.prior_, everything)
    assert whole.contains([1.0, 0.0])
    assert whole.contains([0.0, 1.0])


@conflicting
def test_cross_validation_of_a_regressor_lowers_the_worst_loss():
    X, _, site = conflict(1500)
    rng = np.random.default_rng(3)
    y = X[:, 0] + np.where(site == "large", 1.0, -1.0) * X[:, 1] + 0.3 * rng.normal(size=len(X))
    model = RobustRegressor(radius="cv", loss="huber").fit(X, y, groups=site)
    plain = RobustRegressor(radius=0.0, loss="huber").fit(X, y, groups=site)
    assert model.cross_validation_.radius > 0
    assert model.group_losses_.max() < 0.8 * plain.group_losses_.max()


def test_folds_spread_every_group_and_keep_single_samples():
    rng = np.random.default_rng(0)
    group = np.append(rng.choice(4, size=400, p=[0.7, 0.2, 0.08, 0.02]), 4)
    y = rng.integers(0, 2, size=group.size)
    fold = folds(y, group, seed=1)
    assert fold[-1] == -1
    for g in range(4):
        counts = np.bincount(fold[group == g], minlength=FOLDS)
        assert np.ptp(counts) <= 1, "a group is dealt out evenly"
        ones = np.bincount(fold[(group == g) & (y == 1)], minlength=FOLDS)
        assert np.ptp(ones) <= 1, "and so is each of its labels"


def test_choose_radius_by_hand():
    """Three radii; two groups with held-out scores by radius: (1, .5), (.75, .75), (.5, 1); one is alone."""
    scores = np.array([[1.0, 0.5, np.nan], [0.75, 0.75, np.nan], [0.5, 1.0, np.nan]])
    found = choose_radius(np.array([0.0, 0.5, 1.0]), scores)
    assert found.radius == 0.5
    assert found.worst.tolist() == [0.5, 0.75, 0.5]


# -- groups that are missing ------------------------------------------------------------------------------


def test_missing_groups_are_the_same_error_for_lists_arrays_and_series():
    X, y, site = conflict(40)
    holed: list[object] = site.tolist()
    holed[3] = np.nan
    for groups in (
        holed,
        np.array(holed, dtype=object),
        pd.Series(holed),
        pd.Series(holed, dtype="category"),
        pd.Series(holed, dtype="string"),
        [None if isinstance(each, float) else each for each in holed],
        pd.Series([np.nan if number == 3 else 1.0 for number in range(40)]),
        [np.nan if number == 3 else 1.0 for number in range(40)],
    ):
        with pytest.raises(ValueError, match=r"NaN or None, got 1 of them, the first for sample 3"):
            RobustClassifier().fit(X, y, groups=groups)


def test_groups_of_every_container_give_the_same_model():
    X, y, site = conflict(200)
    first = RobustClassifier().fit(X, y, groups=site)
    for groups in (site.tolist(), pd.Series(site), pd.Series(site, dtype="category"), site.astype(object)):
        other = RobustClassifier().fit(X, y, groups=groups)
        assert other.groups_.tolist() == ["large", "small"]
        np.testing.assert_array_equal(first.coef_, other.coef_)


def test_a_default_fit_without_groups_is_warned_about_and_a_named_set_is_not():
    X, _, _ = conflict(60)
    y = X[:, 0] > 0
    with pytest.warns(EstimatorWarning, match=r"got no groups.*groups=\.\.\..*on purpose") as seen:
        RobustClassifier().fit(X, y)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RobustClassifier("kl", radius=0.01).fit(X, y)


def test_a_search_without_routing_is_warned_about():
    X, y, site = conflict(120)
    model = make_pipeline(StandardScaler(), RobustClassifier("kl"))
    search = GridSearchCV(model, {"robustclassifier__radius": [0.0, 0.01]}, cv=GroupKFold(2))
    with pytest.warns(EstimatorWarning, match=r"enable_metadata_routing.*set_fit_request\(groups=True\)"):
        search.fit(X, y, groups=site)
    with pytest.warns(EstimatorWarning, match="enable_metadata_routing"):
        cross_validate(RobustRegressor("kl", radius=0.05), X, y, cv=3)


def test_a_model_that_learns_nothing_is_warned_about():
    """The worst tenth of samples of which a quarter have wrong labels: the constant model is the optimum."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = (X[:, 0] > 0) ^ (rng.random(600) < 0.25)
    with pytest.warns(
        EstimatorWarning, match=r"nearly the same for all samples.*wrong labels.*7[0-9].[0-9]% with"
    ):
        RobustClassifier(CVaR, tail=0.1).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RobustClassifier(CVaR, tail=0.9).fit(X, y)
        RobustClassifier(CVaR, tail=0.1).fit(X, rng.integers(0, 2, size=600))


# -- summary ----------------------------------------------------------------------------------------------


@conflicting
def test_the_summary_says_what_the_attributes_say():
    X, y, site = conflict(2000)
    model = RobustClassifier(radius="cv").fit(X[:1200], y[:1200], groups=site[:1200])
    table = model.summary(X[1200:], y[1200:], site[1200:])
    assert [row["accuracy"] for row in table] == sorted(row["accuracy"] for row in table)
    trained = model.summary()
    assert [row["group"] for row in trained] == sorted(model.groups_, key=lambda g: -loss_of(model, g))
    assert trained[0]["group"] == model.worst_group_
    with pytest.raises(ValueError, match="needs the groups of the new samples"):
        model.summary(X, y)
    for row in table:
        g = model.groups_.tolist().index(row["group"])
        mine = site[1200:] == row["group"]
        accuracy = (model.predict(X[1200:]) == y[1200:])[mine].mean()
        assert row["accuracy"] == pytest.approx(accuracy)
        assert row["new samples"] == mine.sum()
        low, high = row["95 % interval"]
        assert low < accuracy < high
        assert row["samples"] == (site[:1200] == row["group"]).sum()
        assert row["weight"] == model.weights_[g]
        assert row["training accuracy"] == pytest.approx(
            (model.predict(X[:1200]) == y[:1200])[site[:1200] == row["group"]].mean()
        )
        place = model.cross_validation_.radii.tolist().index(model.cross_validation_.radius)
        assert row["cross-validated accuracy"] == model.cross_validation_.scores[place, g]
    assert pd.DataFrame(table).shape == (2, 10)
    text = str(table)
    assert "KL of radius" in text
    assert len(table.models) == 5
    assert all(str(row["model"]) in text for row in table.models)
    assert "<th>cross-validated accuracy</th>" in table._repr_html_()


def loss_of(model, group):
    return model.group_losses_[model.groups_.tolist().index(group)]


def test_the_summary_of_a_regressor_and_of_many_groups():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y, group = X[:, 0] + rng.normal(size=120), np.repeat(np.arange(30), 4)
    model = RobustRegressor().fit(X, y, groups=group)
    table = model.summary(X[:8], y[:8], group[:8])
    assert len(table) == 30
    assert str(table).endswith("10 more groups")
    seen = next(row for row in table if row["group"] == 0)
    assert seen["mean loss"] == pytest.approx(np.mean(0.5 * (model.predict(X[:4]) - y[:4]) ** 2))
    assert np.isnan(next(row for row in table if row["group"] == 29)["mean loss"])
    with pytest.raises(ValueError, match="group 77 was not in training; leave its samples out"):
        model.summary(X[:1], y[:1], [77])


def test_shares_rise_from_ordinary_training_to_the_whole_simplex():
    assert SHARES[0] == 0.0
    assert SHARES[-1] == 1.0
    assert list(SHARES) == sorted(SHARES)
