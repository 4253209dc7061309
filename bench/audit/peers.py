"""RobustConformal beside MAPIE and crepes on classification data: coverage as it is, and when groups shift.

The model is scikit-learn's logistic regression on the training part. Half of the test part calibrates, half
is covered; the halves are drawn anew for each repetition. Three questions: the coverage of the data as they
are, that if the worst-covered group is four times as frequent, and that of the worst group alone, each
averaged over repetitions. MAPIE and crepes are optional: rows are left out if they are not installed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets import load
from bench.display.tables import Table
from fdro_core.sklearn import RobustConformal

DATA = ("hospitals", "digits", "person-activity", "heart-disease")
ALPHA = 0.1

Sets = NDArray[np.bool_]
Method = Callable[[Any, Any, Any, Any, Any, Any], Sets]


def mapie(model: Any, X: Any, y: Any, groups: Any, new: Any, new_groups: Any) -> Sets:
    """MAPIE's split conformal sets, the score 1 - probability."""
    from mapie.classification import SplitConformalClassifier

    del groups, new_groups
    made = SplitConformalClassifier(model, confidence_level=1 - ALPHA, conformity_score="lac", prefit=True)
    return np.asarray(made.conformalize(X, y).predict_set(new)[1][:, :, 0])


def crepes(model: Any, X: Any, y: Any, groups: Any, new: Any, new_groups: Any) -> Sets:
    """Split conformal sets of crepes."""
    from crepes import WrapClassifier

    del groups, new_groups
    made = WrapClassifier(model)
    made.calibrate(X, y)
    return np.asarray(made.predict_set(new, confidence=1 - ALPHA, smoothing=False, labels=False) > 0)


def crepes_by_group(model: Any, X: Any, y: Any, groups: Any, new: Any, new_groups: Any) -> Sets:
    """Mondrian sets of crepes: the group of a new sample is known."""
    from crepes import WrapClassifier

    now = {"groups": groups}  # crepes asks for the categories of whatever it is given
    made = WrapClassifier(model)
    made.calibrate(X, y, mc=lambda _: now["groups"])
    now["groups"] = new_groups
    return np.asarray(made.predict_set(new, confidence=1 - ALPHA, smoothing=False, labels=False) > 0)


def ours(grouped: bool, **settings: Any) -> Method:
    """RobustConformal with these settings."""

    def sets(model: Any, X: Any, y: Any, groups: Any, new: Any, new_groups: Any) -> Sets:
        made = RobustConformal(model, alpha=ALPHA, **settings)
        made.fit(X, y, groups if grouped else None)
        return np.asarray(made.predict_set(new, new_groups if settings.get("per_group") else None))

    return sets


METHODS: dict[str, tuple[str, Method]] = {
    "MAPIE, split": ("mapie", mapie),
    "crepes, split": ("crepes", crepes),
    "ours, no shift": ("", ours(False)),
    "ours, KL 0.1": ("", ours(False, uncertainty_set="kl", radius=0.1)),
    "ours, mixes within KL 0.3": ("", ours(True, over_groups="kl", group_radius=0.3)),
    "ours, every mix": ("", ours(True, over_groups="any")),
    "crepes, Mondrian (group known)": ("crepes", crepes_by_group),
    "ours, per group (group known)": ("", ours(True, per_group=True)),
}


def table(rounds: int, data: tuple[str, ...]) -> Table:
    """The table."""
    from sklearn.linear_model import LogisticRegression

    rows: list[list[str]] = []
    for name in data:
        federation = load(name)
        clients = federation.clients
        groups = np.repeat([each.name for each in clients], [len(each.y_test) for each in clients])
        X, y = np.concatenate([c.X_test for c in clients]), np.concatenate([c.y_test for c in clients])
        if len(clients) == federation.classes and name == "digits":
            groups = np.array([f"digit {label}" for label in y])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LogisticRegression(max_iter=500).fit(
                np.concatenate([c.X_train for c in clients]), np.concatenate([c.y_train for c in clients])
            )
        names = np.unique(groups)
        for method, (package, make) in METHODS.items():
            if package and find_spec(package) is None:
                continue
            by_group, all_covered, sizes = [], [], []
            for k in range(rounds):
                side = np.random.default_rng([7, k]).permutation(y.size) % 2 == 0
                with warnings.catch_warnings():  # an infinite threshold is seen in the size
                    warnings.simplefilter("ignore")
                    sets = make(model, X[side], y[side], groups[side], X[~side], groups[~side])
                hit = sets[np.arange(len(sets)), np.searchsorted(model.classes_, y[~side])]
                by_group.append([hit[groups[~side] == each].mean() for each in names])
                all_covered.append(hit.mean())
                sizes.append(sets.sum(axis=1).mean())
            mean = np.nanmean(by_group, axis=0)
            worst = int(np.nanargmin(mean))
            weight = np.where(groups == names[worst], 4.0, 1.0)
            share = np.array([weight[groups == each].sum() for each in names]) / weight.sum()
            rows.append(
                [name, method, f"{100 * np.mean(all_covered):.1f} %", f"{100 * share @ mean:.1f} %",
                 f"{100 * mean[worst]:.1f} % ({names[worst]})", f"{np.mean(sizes):.2f}"]
            )  # fmt: skip
    heads = ["data", "method", "covered", "worst group ×4", "worst group", "labels in a set"]
    used = "".join(f", {each} {version(each)}" for each in ("mapie", "crepes") if find_spec(each))
    return Table(f"90 % wanted: coverage and size of the sets{used}", heads, rows)
