"""What users get wrong beside the sets themselves: an error of the library that names argument and need."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from uncertainty_sets import KL, Box, Burg, ChiSquare, CressieRead, CVaR, Penalised, WeightedL1
from uncertainty_sets.errors import InvalidInput, InvalidLosses, InvalidParameter
from uncertainty_sets.mdp import MDP, RobustMDP

TRANSITIONS, REWARDS = [[[0.5, 0.5]], [[0.0, 1.0]]], [[1.0], [0.0]]
ROWS = KL.ragged([0.5, 0.5, 0.2, 0.3, 0.5], radius=[0.1, 0.2], indptr=[0, 2, 5])
VALUES = np.arange(5.0)


def problem(**options):
    return RobustMDP(TRANSITIONS, REWARDS, 0.9, KL, radius=0.1, **options)


CALLS = {
    "scale": [lambda x=x: ROWS.worst_case(VALUES, scale=x) for x in (None, "a", [1, 2], np.nan, True)],
    "rows": [lambda x=x: ROWS.take(x) for x in ([3], [-3], [0.5], "a", None, [[0]], [True], [])],
    "row": [
        *(lambda x=x: ROWS.row(x) for x in (0.5, "a", None, 2, True)),
        *(lambda x=x: ROWS.worst_case(VALUES).row(x) for x in (0.5, "a", None, 2)),
    ],
    "step": [lambda x=x: KL([0.5, 0.5], 0.1).prox([1.0, 0.0], step=x) for x in ("a", None, [1.0], 0, np.inf)],
    "tol": [lambda x=x: KL([0.5, 0.5], 0.1).contains([0.5, 0.5], tol=x) for x in ("a", None, -1.0)],
    "discount": [lambda x=x: MDP(TRANSITIONS, REWARDS, x) for x in ("a", None, [0.5], True, np.nan, 1.0)],
    "rewards": [
        lambda x=x, form=form: RobustMDP(TRANSITIONS, [[x], [-x]], 0.99, KL, radius=0.1, rectangular=form)
        for x in (1e308, 1e299)
        for form in ("sa", "s")
    ],
    "tolerance": [lambda x=x: problem().solve(tolerance=x) for x in ("a", None, True, [1e-6], 0.0)],
    "max_sweeps": [lambda x=x: problem().solve(max_sweeps=x) for x in ("a", 1.5, True, 0)],
    "ambiguity": [
        lambda x=x: RobustMDP(TRANSITIONS, REWARDS, 0.9, lambda p: x)
        for x in (None, "kl", KL, KL([0.2, 0.3, 0.5], 0.1), KL([[0.5, 0.5]] * 2, 0.1))
    ],
    "radius": [
        lambda: CressieRead([0.5, 0.5], 1.1e300, -3.0),
        lambda: CressieRead([0.5, 0.5], [1, 2e300], 3),
    ],
    "on_failure": [
        lambda x=x: KL([0.5, 0.5], 0.1).worst_case([1.0, 2.0], on_failure=x) for x in ([1], {}, None, "a")
    ],
    "backend": [
        lambda x=x: KL([0.5, 0.5], 0.1).worst_case([1.0, 2.0], backend=x) for x in ([1], {}, None, "a", True)
    ],
    "tail": [lambda: CVaR([0.5, 0.5], 5e-324), lambda: CVaR([0.5, 0.5], [0.5, 1e-305])],
}


@pytest.mark.parametrize("name", CALLS)
def test_the_error_names_the_argument(name):
    for call in CALLS[name]:
        with pytest.raises(InvalidInput) as caught:
            call()
        assert caught.value.parameter == name
        assert name in str(caught.value) or "there is no row" in str(caught.value)


def test_numbers_of_numpy_are_numbers():
    assert ROWS.row(np.int64(-1)).radius == 0.2
    assert len(ROWS.take(np.array([True, False]))) == len(ROWS.take([np.int64(1)])) == 1
    assert ROWS.worst_case(VALUES, scale=np.float32(0.5)).value.shape == (2,)
    assert problem().solve(tolerance=np.array(1e-3)).width <= 1e-3


@pytest.mark.parametrize("kind", [KL, Burg, ChiSquare, Box, WeightedL1])
def test_a_missing_argument_is_reported_for_the_class_that_was_called(kind):
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.__init__\(\) missing 1 required"):
        kind([0.5, 0.5]) if kind is not WeightedL1 else kind([0.5, 0.5], 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_centre_of_less_precision_is_normalised(dtype):
    rng = np.random.default_rng(9)
    for size in (2, 7, 300, 5000):
        q = rng.dirichlet(np.ones(size)).astype(dtype)
        q /= q.sum(dtype=dtype)
        if abs(q.sum(dtype=np.float64) - 1.0) > 100 * np.finfo(dtype).eps:
            continue  # a normalisation that went wrong
        center = KL(q, 0.1).center
        assert abs(center.sum() - 1.0) < 1e-14
        np.testing.assert_allclose(center, q.astype(float), rtol=200 * np.finfo(dtype).eps)
    with pytest.raises(InvalidParameter, match="must sum to 1"):
        KL(np.array([0.5, 0.5001], dtype=np.float32), 0.1)
    with pytest.raises(InvalidParameter, match="must sum to 1"):
        KL(np.array([0.5, 0.5000001]), 0.1)


def test_series_with_different_indices():
    pandas = pytest.importorskip("pandas")
    q, f = pandas.Series([0.2, 0.8], index=["a", "b"]), pandas.Series([3.0, 1.0], index=["b", "a"])
    for subject in (KL(q, 0.1), Box(0.5 * q, 2.0 * q), Penalised("kl", q, 0.5), copy.copy(KL(q, 0.1))):
        with pytest.raises(InvalidLosses, match=r"different indices, \['b', 'a'\] and \['a', 'b'\]"):
            subject.worst_case(f)
        with pytest.raises(InvalidLosses, match="different indices"):
            subject.worst_case(pandas.DataFrame([f, f]))
        same = subject.worst_case(f.reindex(q.index))
        assert same.value == subject.worst_case(f.reindex(q.index).to_numpy()).value
    again = pickle.loads(pickle.dumps(KL(q, 0.1)))
    with pytest.raises(InvalidLosses):
        again.worst_case(f)
    with pytest.raises(InvalidParameter, match="different indices"):
        Box(0.5 * q, 2.0 * q[::-1])
