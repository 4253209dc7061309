"""Bad input gets a clear error and nothing else: the argument, what it got, what it needs."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest

import uncertainty_sets
from uncertainty_sets import KL, Box, CDNorm, Ellipsoid, Polyhedron, Wasserstein1, errors, get_set, worst_case
from uncertainty_sets.errors import EmptySet, InvalidInput, InvalidLosses, InvalidParameter, UnknownName

HALF = [0.5, 0.5]
SETS = [
    Box([0, 0, 0], [1, 1, 1]),
    Ellipsoid([0.2, 0.3, 0.5], 1.0, 0.1),
    Ellipsoid([0.2, 0.3, 0.5], np.eye(3), 0.1),
    Polyhedron([[1, 0, 0]], [0.5]),
    KL([0.2, 0.3, 0.5], 0.1),
    KL([0.0, 0.5, 0.5], 0.1),
    Wasserstein1([0.2, 0.3, 0.5], 0.1),
    Wasserstein1([0.2, 0.3, 0.5], 0.1, 1 - np.eye(3)),
    CDNorm([0.2, 0.3, 0.5], 0.1, 1.0),
]


@pytest.mark.parametrize("subject", SETS, ids=repr)
@pytest.mark.parametrize(
    ("losses", "says"),
    [
        ([np.nan, 1, 2], r"losses\[0\] = nan"),
        ([1, np.inf, 2], r"losses\[1\] = inf"),
        ([1, 2, -np.inf], r"losses\[2\] = -inf"),
        ([[1, 2, 3], [1, np.nan, 2]], r"losses\[1, 1\] = nan"),
        ([1, 2], r"3 entries.*\(2,\)"),
        ([[1, 2], [3, 4]], r"3 entries"),
        (np.zeros((2, 2, 3)), r"\(N,\) or \(B, N\)"),
        (3.0, "shape"),
        ([], "at least one"),
        (["a", "b", "c"], "real numbers"),
        ([1j, 2, 3], "complex"),
        ([[1, 2, 3], [1, 2]], "one shape"),
        ([10**400, 1, 2], "real numbers"),
        (np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]), "masked"),
        (np.array(["2020-01-01"] * 3, dtype="M8[D]"), "real numbers"),
    ],
    ids=str,
)
def test_losses(subject, losses, says):
    with pytest.raises(InvalidLosses, match=says) as caught:
        subject.worst_case(losses)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: KL([0.5, 0.4], 0.1), InvalidParameter, r"center must sum to 1, got 0.9 \(off by -0.1\)"),
        (
            lambda: KL([0.5, -0.5, 1.0], 0.1),
            InvalidParameter,
            r"center must not be negative, got -0.5 at entry 1",
        ),
        (lambda: KL([np.nan, 1.0], 0.1), InvalidParameter, "center must be finite, got nan"),
        (lambda: KL([1e308, 1e308], 0.1), InvalidParameter, "center must sum to 1"),
        (lambda: KL([], 0.1), InvalidParameter, "center must have shape"),
        (lambda: KL(HALF, -1), InvalidParameter, "radius must not be negative, got -1"),
        (lambda: KL(HALF, np.inf), InvalidParameter, "radius must be finite"),
        (
            lambda: KL([HALF, HALF], [0.1, 0.2, 0.3]),
            InvalidParameter,
            r"radius must be a number or shape \(2,\)",
        ),
        (lambda: KL([0.5 + 0j, 0.5], 0.1), InvalidParameter, "complex"),
        (lambda: Ellipsoid(HALF, 1.0, -1), InvalidParameter, "radius must not be negative"),
        (lambda: Ellipsoid(HALF, [1, 1, 1], 1), InvalidParameter, r"shape must be .* got shape \(3,\)"),
        (lambda: Ellipsoid(HALF, 0.0, 1), InvalidParameter, "shape must be positive, got 0"),
        (lambda: Ellipsoid(HALF, 1e-320, 1), InvalidParameter, "shape must lie between"),
        (
            lambda: Ellipsoid(HALF, [[1, 2], [0, 1]], 1),
            InvalidParameter,
            "symmetric, got entries that differ by 2",
        ),
        (
            lambda: Ellipsoid(HALF, [[1, 2], [2, 1]], 1),
            InvalidParameter,
            "positive definite.*eigenvalue of -1",
        ),
        (lambda: Box([0.5, 0.6], [0.7, 0.7]), EmptySet, r"Σ max\(lower, 0\) must be at most 1, got 1.1"),
        (lambda: Box([0, 0], [0.3, 0.3]), EmptySet, r"Σ min\(upper, 1\) must be at least 1, got 0.6"),
        (lambda: Box([-1, 0], [-0.1, 2]), EmptySet, "upper must not be negative"),
        (lambda: Box([0.5, 0.1], [0.4, 0.9]), InvalidParameter, r"got 0.5 > 0.4 at entry 0"),
        (lambda: Box([0.5], [0.4, 0.9]), InvalidParameter, r"one shape, got \(1,\) and \(2,\)"),
        (lambda: Polyhedron([[1, 0], [0, 1]], [0.3, 0.3]), EmptySet, "rows 0, 1"),
        (lambda: Polyhedron([[1, 0]], [0.3, 0.3]), InvalidParameter, "c must have one entry"),
        (lambda: Wasserstein1(HALF, -0.1), InvalidParameter, "radius must not be negative"),
        (lambda: Wasserstein1(HALF, 0.1, [[0, -1], [1, 0]]), InvalidParameter, r"cost\[0, 1\] = -1"),
        (
            lambda: Wasserstein1(HALF, 0.1, [[0, 1], [1, 2]]),
            InvalidParameter,
            r"diagonal, got cost\[1, 1\] = 2",
        ),
        (lambda: Wasserstein1(HALF, 0.1, [1, 2, 3]), InvalidParameter, r"cost must be .* got shape \(3,\)"),
        (lambda: Wasserstein1(HALF, 0.1, [-1.7e308, 1.7e308]), InvalidParameter, "overflows"),
        (lambda: CDNorm(HALF, -1, 1), InvalidParameter, "spread must not be negative, got -1"),
        (lambda: CDNorm(HALF, [1, 1, 1], 1), InvalidParameter, r"centre's shape \(2,\), got \(3,\)"),
        (lambda: CDNorm(HALF, 1, -2), InvalidParameter, "budget must not be negative, got -2"),
        (lambda: CDNorm([HALF, HALF], np.ones((3, 2)), 1), InvalidParameter, "same rows"),
        (lambda: get_set("wasserstein1"), UnknownName, "did you mean 'wasserstein-1'"),
        (lambda: get_set("nothing-like-it"), UnknownName, "There are: .*box, .*kl"),
        (lambda: worst_case("kl", [1, 2], centre=HALF), InvalidParameter, "centre"),
        (
            lambda: KL(HALF, 0.1).worst_case([1, 2], backend="clarabell"),
            UnknownName,
            "did you mean 'clarabel'",
        ),
        (lambda: KL(HALF, 0.1).worst_case([1, 2], warm_start=3), InvalidInput, "warm_start must be"),
        (lambda: KL(HALF, 0.1).contains([0.5, 0.5, 0.0]), InvalidInput, "2 entries"),
        (lambda: KL(HALF, 0.1).violation([np.nan, 0.5]), InvalidInput, "finite"),
        (lambda: KL([HALF, HALF], 0.1).violation(HALF), InvalidInput, "differ by row"),
        (lambda: KL([HALF, HALF], 0.1).worst_case(np.ones((3, 2))), InvalidLosses, r"2 rows.*got \(3, 2\)"),
    ],
)
def test_everything_else(make, error, says):
    with pytest.raises(error, match=says) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, errors.FdroError)


@pytest.mark.parametrize(
    ("make", "parameter", "value"),
    [
        (lambda: KL([0.5, 0.4], 0.1), "center", [0.5, 0.4]),
        (lambda: KL(HALF, -1.0), "radius", -1.0),
        (lambda: KL(HALF, "wide"), "radius", "wide"),
        (lambda: Box([0.5, 0.6], [0.7, 0.7]), "lower", [0.5, 0.6]),
        (lambda: Ellipsoid(HALF, 0.0, 1), "shape", 0.0),
        (lambda: Wasserstein1(HALF, 0.1, [1, 2, 3]), "cost", [1, 2, 3]),
        (lambda: CDNorm(HALF, [1, 1, 1], 1), "spread", [1, 1, 1]),
        (lambda: Polyhedron([[1, 0]], [0.3, 0.3]), "c", [0.3, 0.3]),
        (lambda: KL(HALF, 0.1).worst_case([1.0]), "losses", [1.0]),
        (lambda: worst_case("kl", [1, 2], centre=HALF), "centre", HALF),
        (lambda: worst_case("kl", [1, 2], center=HALF), "radius", None),
        (lambda: get_set("nothing-like-it"), "name", "nothing-like-it"),
        (lambda: KL(HALF, 0.1).worst_case([1, 2], backend="clarabell"), "backend", "clarabell"),
    ],
)
def test_the_argument_is_data_on_the_error(make, parameter, value):
    with pytest.raises(InvalidInput) as caught:
        make()
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert error.parameter == parameter
        assert np.array_equal(error.value, value)
        assert str(error) == str(caught.value)


def test_one_tree_and_it_is_the_one_in_the_docstring():
    for name in errors.__all__:
        cls = getattr(errors, name)
        assert issubclass(cls, errors.FdroError)
        assert name in errors.__doc__


def test_public_names():
    folder = Path(uncertainty_sets.__file__).parent / "sets"
    own = [get_set(name) for name in uncertainty_sets.available_sets()]
    sets = {cls.__name__ for cls in own if Path(inspect.getfile(cls)).parent == folder}
    assert set(uncertainty_sets.__all__) == sets | {
        *("UncertaintySet", "WorstCase", "available_backends", "available_sets", "get_set", "worst_case"),
        *("check_set", "Ragged", "RaggedWorstCase", "Penalised", "entropy_pooling", "LeastRadius", "Nearest"),
        *("Pooled", "BestCase"),
    }
    assert all(hasattr(uncertainty_sets, name) for name in uncertainty_sets.__all__)


def test_none_is_not_a_number():
    with pytest.raises(InvalidParameter, match="radius must be real numbers, got None") as caught:
        KL([0.5, 0.5], None)
    assert (caught.value.parameter, caught.value.value) == ("radius", None)
