"""Losses, groups and covariates in all their forms, and what is said of bad ones."""

from __future__ import annotations

import numpy as np
import pytest

from uncertainty_sets import KL
from uncertainty_sets.audit import Audit, losses_of
from uncertainty_sets.errors import FdroError, InvalidInput

N = 300
RNG = np.random.default_rng(0)
LOSSES = RNG.random(N)
GROUP = RNG.choice(["a", "b"], N)


def table():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(
        {"loss": LOSSES, "group": GROUP, "age": np.arange(N), "sex": RNG.choice(["f", "m"], N)}
    )


def test_tables_by_name_and_by_column():
    frame = table()
    expected = Audit(LOSSES, groups=GROUP).worst_groups(KL, 0.1).value
    assert Audit("loss", groups="group", data=frame).worst_groups(KL, 0.1).value == expected
    assert Audit(frame["loss"], groups=frame["group"]).worst_groups(KL, 0.1).value == expected
    assert (
        Audit(frame["loss"], groups=frame["group"].astype("category")).worst_groups(KL, 0.1).value == expected
    )
    assert Audit("loss", data={"loss": LOSSES}).mean == pytest.approx(LOSSES.mean())
    audit = Audit("loss", covariates=["age", "sex"], clusters="age", data=frame)
    assert audit.names == ["age", "sex = f", "sex = m"]
    assert audit.covariates.shape == (N, 3)
    assert Audit(frame["loss"], covariates=frame[["age", "sex"]]).names == audit.names


def test_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"loss": LOSSES, "group": GROUP, "age": np.arange(N)})
    expected = Audit(LOSSES, groups=GROUP).worst_groups(KL, 0.1).value
    assert Audit("loss", groups="group", data=frame).worst_groups(KL, 0.1).value == expected
    assert Audit(frame["loss"], covariates=frame[["age"]]).names == ["age"]
    with pytest.raises(InvalidInput, match="collect"):
        Audit("loss", data=frame.lazy())


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(LOSSES, requires_grad=True)
    assert Audit(tensor).worst(KL, 0.1).value == Audit(LOSSES).worst(KL, 0.1).value
    eighths = np.arange(N) % 8 / 8.0
    short = Audit(torch.tensor(eighths, dtype=torch.bfloat16), groups=torch.tensor(np.arange(N) % 2))
    expected = Audit(eighths, groups=np.arange(N) % 2)
    assert short.worst(KL, 0.1).value == expected.worst(KL, 0.1).value
    assert short.worst_groups().value == expected.worst_groups().value


def test_errors_may_be_true_and_false_and_groups_columns_of_them():
    frame = table().assign(old=GROUP == "a", young=GROUP == "b")
    assert Audit(LOSSES > 0.5).two_valued
    assert len(Audit("loss", groups=["old", "young"], data=frame).groups) == 2
    partly = Audit("loss", groups=["old"], data=frame)
    assert partly.groups.names == ["old", "in no group"]
    assert partly.groups.disjoint


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"losses": np.r_[LOSSES, np.nan]}, "row 300 has nan"),
        ({"losses": LOSSES[:, None] * [1, 2]}, r"shape \(300, 2\)"),
        ({"losses": ["high", "low"]}, "losses must be real numbers"),
        ({"losses": 5 * LOSSES}, r"outside bounds=\(0, 1\)"),
        ({"losses": LOSSES, "bounds": (1, 0)}, "the smaller first"),
        ({"losses": "loss"}, "give the table as data="),
        ({"losses": LOSSES, "groups": GROUP[:-1]}, "a label for each of 300 rows"),
        ({"losses": LOSSES, "groups": [None, *GROUP[1:]]}, "no label in row 0"),
        ({"losses": LOSSES, "groups": [*GROUP[:-1], float("nan")]}, "no label in row 299"),
        ({"losses": LOSSES, "groups": np.full((N, 2), 3)}, "true or false"),
        ({"losses": LOSSES, "groups": np.zeros((N, 2))}, "has no rows"),
        ({"losses": LOSSES, "confidence": 95}, "confidence"),
        ({"losses": LOSSES, "sample_weight": -np.ones(N)}, "above 0"),
        ({"losses": LOSSES, "covariates": np.full(N, np.nan)}, "NaN or infinity in row 0"),
        ({"losses": LOSSES, "covariates": [f"word {k}" for k in range(N)]}, "300 different words"),
        ({"losses": LOSSES, "covariates": np.ones((N, 2)), "names": ["one"]}, "names must be 2"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_bad_input_is_told(arguments, said):
    with pytest.raises(InvalidInput, match=said):
        Audit(**arguments)


def test_a_wrong_column_is_told_with_those_there_are():
    with pytest.raises(FdroError, match=r"no column 'los'.*loss"):
        Audit("los", data=table())


def test_losses_of_models():
    linear = pytest.importorskip("sklearn.linear_model")
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.where(X[:, 0] + rng.normal(size=200) > 0, "yes", "no")
    model = linear.LogisticRegression().fit(X, y)
    assert losses_of(model, X, y).mean() == pytest.approx(1 - metrics.accuracy_score(y, model.predict(X)))
    probability = model.predict_proba(X)
    assert losses_of(model, X, y, "neg_log_loss").mean() == pytest.approx(metrics.log_loss(y, probability))
    brier = metrics.brier_score_loss(y, probability[:, 1], pos_label="yes")
    assert losses_of(model, X, y, "neg_brier_score").mean() == pytest.approx(brier)
    scorer = metrics.make_scorer(metrics.accuracy_score)
    assert (losses_of(model, X, y, scorer) == losses_of(model, X, y)).all()
    with pytest.raises(InvalidInput, match="not a mean over samples"):
        losses_of(model, X, y, "roc_auc")
    line = linear.LinearRegression().fit(X, X[:, 0] ** 2)
    squared = losses_of(line, X, X[:, 0] ** 2, "neg_mean_squared_error")
    assert squared.mean() == pytest.approx(metrics.mean_squared_error(X[:, 0] ** 2, line.predict(X)))
    assert losses_of(line, X, X[:, 0] ** 2).mean() == pytest.approx(np.mean(np.sqrt(squared)))
