"""RobustConformal around scikit-learn's models: sets, intervals, groups, contradicting settings."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression

from fdro_core.errors import EstimatorWarning, InvalidSetting
from fdro_core.sklearn import RobustClassifier, RobustConformal, RobustRegressor
from uncertainty_sets import KL

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 2))
Y = np.where(X[:, 0] + RNG.normal(size=3000) > 0, "yes", "no")
Z = X[:, 0] + RNG.normal(size=3000)
SITE = RNG.choice(["a", "b", "c"], 3000)
TRAIN, HELD, NEW = slice(0, 1000), slice(1000, 2000), slice(2000, 3000)


def test_sets_grow_with_the_radius_and_cover():
    model = LogisticRegression().fit(X[TRAIN], Y[TRAIN])
    sizes, covered = [], []
    for radius in (0.0, 0.02, 0.1):
        sets = (
            RobustConformal(model, uncertainty_set="kl", radius=radius)
            .fit(X[HELD], Y[HELD])
            .predict_set(X[NEW])
        )
        sizes.append(sets.sum(axis=1).mean())
        covered.append(sets[np.arange(1000), np.searchsorted(model.classes_, Y[NEW])].mean())
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    assert covered[0] == pytest.approx(0.9, abs=0.04)
    assert covered == sorted(covered)


def test_coverage_under_the_worst_weights():
    model = LinearRegression().fit(X[TRAIN], Z[TRAIN])
    made = RobustConformal(model, uncertainty_set="kl", radius=0.05).fit(X[HELD], Z[HELD])
    ends = made.predict_interval(X[NEW])
    missed = ((Z[NEW] < ends[:, 0]) | (Z[NEW] > ends[:, 1])).astype(float)
    assert KL(np.full(1000, 1e-3), 0.05).worst_case(missed).value <= 0.1 + 0.04
    assert made.missed_ <= 0.1


def test_per_group_and_mixes():
    model = LogisticRegression().fit(X[TRAIN], Y[TRAIN])
    own = RobustConformal(model, per_group=True).fit(X[HELD], Y[HELD], SITE[HELD])
    alone = RobustConformal(model).fit(X[HELD][SITE[HELD] == "b"], Y[HELD][SITE[HELD] == "b"])
    assert own.thresholds_[1] == alone.threshold_
    assert own.predict_set(X[NEW], SITE[NEW]).shape == (1000, 2)
    assert own.predict_set(X[NEW], np.full(1000, "elsewhere")).all(), "nothing is known of a new group"
    every = RobustConformal(model, over_groups="any").fit(X[HELD], Y[HELD], SITE[HELD])
    some = RobustConformal(model, over_groups="kl", group_radius=0.1).fit(X[HELD], Y[HELD], SITE[HELD])
    assert some.threshold_ <= every.threshold_
    with pytest.raises(InvalidSetting, match="needs its group"):
        own.predict_set(X[NEW])


def test_too_few_scores_are_told_with_how_many_would_do():
    with pytest.warns(EstimatorWarning, match="34 are needed"):
        found = RobustConformal(uncertainty_set="kl", radius=0.1).fit(np.arange(20.0))
    assert found.threshold_ == np.inf


@pytest.mark.parametrize(
    ("settings", "groups", "said"),
    [
        ({"alpha": 1.0}, False, "alpha"),
        ({"delta": 0.0}, False, "delta"),
        ({"uncertainty_set": "kl"}, False, "give both"),
        ({"radius": 0.1}, False, "give both"),
        ({"over_groups": "kl"}, True, "group_radius"),
        ({"over_groups": "any", "group_radius": 0.1}, True, "takes no group_radius"),
        ({"over_groups": "any"}, False, "need fit"),
        ({"per_group": True}, False, "need fit"),
        ({}, True, "say what is wanted"),
        ({"per_group": True, "over_groups": "any"}, True, "not both"),
        ({"uncertainty_set": "kl", "radius": 0.1, "over_groups": "any"}, True, "need delta"),
    ],
)
def test_settings_that_cannot_be(settings, groups, said):
    with pytest.raises(ValueError, match=said):
        RobustConformal(**settings).fit(np.arange(100.0), groups=np.arange(100) % 2 if groups else None)


def test_it_is_an_estimator():
    made = RobustConformal(uncertainty_set="kl", radius=0.1, alpha=0.2)
    assert clone(made).get_params() == made.get_params()
    model = LogisticRegression().fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(InvalidSetting, match="none of the model's classes"):
        RobustConformal(model).fit(X[HELD], np.full(1000, "maybe"))
    with pytest.raises(InvalidSetting, match="give the scores"):
        RobustConformal().fit(X[HELD], Y[HELD])


def test_estimators_link_to_the_audit():
    model = RobustClassifier().fit(X[TRAIN], Y[TRAIN], groups=SITE[TRAIN])
    audit = model.audit(X[NEW], Y[NEW], SITE[NEW])
    assert audit.mean == pytest.approx(1 - model.score(X[NEW], Y[NEW]))
    assert audit.worst_groups().value == pytest.approx(
        max(1 - model.score(X[NEW][SITE[NEW] == s], Y[NEW][SITE[NEW] == s]) for s in "abc")
    )
    line = RobustRegressor().fit(X[TRAIN], Z[TRAIN], groups=SITE[TRAIN])
    assert line.audit(X[NEW], Z[NEW]).mean == pytest.approx(np.abs(line.predict(X[NEW]) - Z[NEW]).mean())
