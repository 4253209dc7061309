"""Polyhedron against an independent linprog model, its certificate, and every error."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from tests import tolerances
from tests.uncertainty_sets.plugins import Stated
from uncertainty_sets.backends import cold
from uncertainty_sets.conic.compile import compiled
from uncertainty_sets.errors import BackendUnsuitable, EmptySet, InvalidLosses, InvalidParameter
from uncertainty_sets.sets.polyhedron import Polyhedron


def reference(D, c, f):
    """The largest expected loss by scipy, or None where no distribution meets the rows."""
    answer = linprog(-np.asarray(f), D, c, np.ones((1, len(f))), [1.0], bounds=(0, None))
    return None if answer.status == 2 else -answer.fun


def recheck(D, c, f, y):
    assert (y >= 0).all()
    finite = np.isfinite(c)
    assert not y[~finite].any()
    return c[finite] @ y[finite] + (f - D.T @ y).max()


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(0, 8), st.integers(0, 2**32 - 1))
def test_optimal_feasible_certified(size, rows, seed):
    rng = np.random.default_rng(seed)
    D, f = rng.normal(size=(rows, size)), rng.normal(size=size)
    D = np.where(rng.random(D.shape) < 0.3, 0.0, np.round(D, 1))  # ties and zeros
    inside = rng.dirichlet(np.ones(size))
    c = D @ inside + rng.random(rows) * (rng.random(rows) < 0.7)  # three rows in ten are tight there
    uncertainty_set = Polyhedron(D, c)
    r = uncertainty_set.worst_case(f)
    assert r.value == pytest.approx(reference(D, c, f), abs=tolerances.value(f, tolerances.REFERENCE_LP))
    assert abs(r.gap) <= tolerances.gap(f)
    assert r.violation <= tolerances.VIOLATION
    assert r.value >= inside @ f - tolerances.gap(f)
    assert recheck(D, c, f, r.dual["y"]) == pytest.approx(r.upper_bound, abs=tolerances.CERTIFICATE)
    assert uncertainty_set.contains(inside)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_empty_where_scipy_says_so(size, rows, seed):
    rng = np.random.default_rng(seed)
    D, c = np.round(rng.normal(size=(rows, size)), 1), np.round(rng.normal(size=rows) - 0.3, 1)
    try:
        Polyhedron(D, c)
    except EmptySet:
        assert reference(D, c, np.zeros(size)) is None
    else:
        assert reference(D, c, np.zeros(size)) is not None


def test_conflicting_rows_are_named():
    D, c = [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, -1.0, -1.0]], [0.9, 0.2, 5.0, -0.6]
    with pytest.raises(EmptySet, match=r"rows 1, 3 of D p <= c together; the smallest excess over c is 0.2"):
        Polyhedron(D, c)
    with pytest.raises(EmptySet, match=r"satisfies row 1 of D p <= c; "):
        Polyhedron([[0.0, 0.0], [1.0, 1.0]], [0.0, 0.5])
    with pytest.raises(EmptySet, match="and 12 more"):
        Polyhedron(np.eye(20), np.full(20, 0.01))


def test_named_rows_conflict_and_no_fewer_do():
    rng = np.random.default_rng(0)
    D, c = rng.normal(size=(12, 4)), rng.normal(size=12) - 0.6
    with pytest.raises(EmptySet) as caught:
        Polyhedron(D, c)
    rows = [int(word) for word in str(caught.value).split("row")[1].split(" of ")[0].strip("s ").split(",")]
    assert reference(D[rows], c[rows], np.zeros(4)) is None
    for row in rows:
        fewer = [each for each in rows if each != row]
        assert reference(D[fewer], c[fewer], np.zeros(4)) is not None


def test_a_single_point_is_not_empty():
    point = np.array([0.2, 0.3, 0.5])
    r = Polyhedron(np.eye(3), point).worst_case([1.0, 2.0, 3.0])
    np.testing.assert_allclose(r.p, point, atol=1e-12)
    assert r.value == pytest.approx(2.3)


@pytest.mark.parametrize(
    ("D", "c", "message"),
    [
        ([1.0, 2.0], [1.0], r"D must have shape \(rows, N\)"),
        (np.zeros((2, 0)), [1.0, 1.0], r"N >= 1, got \(2, 0\)"),
        ([[1.0, 2.0]], [1.0, 2.0], r"one entry for each of the 1 rows of D, got shape \(2,\)"),
        ([[1.0, 2.0]], 1.0, r"got shape \(\)"),
        ([[1.0, np.nan]], [1.0], "D must be finite, got nan"),
        ([[1.0, np.inf]], [1.0], "D must be finite, got inf"),
        ([[1.0, 2.0]], [np.nan], "c must be free of NaN"),
        ([[1.0, 2.0]], [-np.inf], "must not be -inf, got it at row 0"),
        ([["a", "b"]], [1.0], "D must be real numbers"),
    ],
)
def test_bad_parameters(D, c, message):
    with pytest.raises(InvalidParameter, match=message):
        Polyhedron(D, c)


def test_bad_losses():
    uncertainty_set = Polyhedron([[1.0, 0.0]], [0.5])
    with pytest.raises(InvalidLosses, match=r"losses\[1\] = nan"):
        uncertainty_set.worst_case([1.0, np.nan])
    with pytest.raises(InvalidLosses, match="2 entries"):
        uncertainty_set.worst_case([1.0, 2.0, 3.0])
    with pytest.raises(BackendUnsuitable, match="no closed form"):
        uncertainty_set.worst_case([1.0, 2.0], backend="closed-form")


def test_infinite_right_hand_sides_are_no_constraints():
    f = np.array([3.0, 2.0, 1.0])
    r = Polyhedron(np.eye(3), [np.inf, 0.5, np.inf]).worst_case(f)
    assert (r.value, r.dual["y"].tolist()) == (3.0, [0.0, 0.0, 0.0])
    assert Polyhedron(np.eye(3), np.full(3, np.inf)).worst_case(f).value == 3.0
    assert Polyhedron(np.zeros((0, 3)), []).worst_case(f).value == 3.0


def test_sparse_rows():
    D = sparse.csr_array(np.eye(3))
    assert Polyhedron(D, [0.5, 0.5, 0.5]).worst_case([3.0, 2.0, 1.0]).value == pytest.approx(2.5)


def test_violation():
    uncertainty_set = Polyhedron([[100.0, 0.0], [0.0, 1.0]], [50.0, 0.9])
    assert uncertainty_set.violation([0.75, 0.25]) == pytest.approx(0.5)
    assert uncertainty_set.violation([0.05, 0.95]) == pytest.approx(0.05)
    assert uncertainty_set.violation([0.4, 0.6]) == 0.0


def test_inputs_are_copied_and_attributes_cannot_be_written():
    D, c = np.eye(2), np.array([0.5, 0.9])
    uncertainty_set = Polyhedron(D, c)
    D[0, 0], c[0] = 7.0, 7.0
    assert (uncertainty_set.D[0, 0], uncertainty_set.c[0]) == (1.0, 0.5)
    with pytest.raises(ValueError, match="read-only"):
        uncertainty_set.D[0, 0] = 3.0
    with pytest.raises(AttributeError):
        uncertainty_set.c = c
    assert repr(uncertainty_set) == "Polyhedron(D=<2x2 array>, c=[0.5, 0.9])"


def test_pickle_and_copy():
    uncertainty_set = Polyhedron([[1.0, 0.0, 0.0]], [0.5])
    f = [3.0, 1.0, 2.0]
    expected = uncertainty_set.worst_case(f).value
    for twin in (
        copy.copy(uncertainty_set),
        copy.deepcopy(uncertainty_set),
        pickle.loads(pickle.dumps(uncertainty_set)),
    ):
        assert twin.worst_case(f).value == expected


def test_reference_is_nearest_to_uniform():
    assert Polyhedron([[1.0, 0.0, 0.0]], [0.5]).reference().tolist() == [1 / 3] * 3
    np.testing.assert_allclose(Polyhedron([[1.0, 0.0, 0.0]], [0.2]).reference(), [0.2, 0.4, 0.4], atol=1e-8)


@pytest.mark.parametrize("backend", ["clarabel", "scs", "cvxpy"])
def test_other_backends(backend):
    D, c, f = np.eye(3), np.full(3, 0.5), np.array([3.0, 1.0, 2.0])
    r = Polyhedron(D, c).worst_case(f, backend=backend)
    assert r.value == pytest.approx(2.5, abs=1e-5)
    assert recheck(D, c, f, r.dual["y"]) == pytest.approx(r.upper_bound, abs=tolerances.CERTIFICATE)
    assert r.upper_bound >= 2.5 - tolerances.GAP


def test_a_moving_loss_is_followed():
    """From basis to basis, warm; each answer is as good as a cold one, and cold ones do not remember."""
    rng = np.random.default_rng(0)
    D = rng.normal(size=(20, 60))
    c = D @ rng.dirichlet(np.ones(60)) + 0.02
    moving, f = Polyhedron(D, c), rng.normal(size=60)
    for step in (0.01, 0.01, 0.05, 1.0, 0.01):
        f = f + step * rng.normal(size=60)
        r = moving.worst_case(f)
        assert r.value == pytest.approx(reference(D, c, f), abs=tolerances.value(f, tolerances.REFERENCE_LP))
        assert abs(r.gap) <= tolerances.gap(f)
    with cold():
        first, second = moving.worst_case(f), Polyhedron(D, c).worst_case(f)
    assert first.p.tobytes() == second.p.tobytes()


def test_a_start_from_the_last_basis_is_given_up_if_it_takes_longer():
    rng = np.random.default_rng(5)
    subject = Polyhedron.example(40, rng)
    solver = compiled(subject, 40).solver("highs")
    losses = rng.normal(size=(6, 40))
    with cold():
        expected = [subject.worst_case(f).value for f in losses]

    def check(row):
        answer = subject.worst_case(losses[row])
        assert answer.value == pytest.approx(expected[row], abs=1e-12)
        return answer.iterations

    assert check(0) == solver._cold_iterations
    first = solver._cold_iterations
    assert check(1) == solver._far_iterations
    assert solver._cold_iterations == first
    solver._far_iterations = 10**6  # as if that start had taken long
    solver._cold_iterations = -1
    assert check(2) == solver._cold_iterations
    solver._far_iterations = 0
    assert check(3) == solver._far_iterations


def test_states_the_same_set_to_cvxpy():
    rng = np.random.default_rng(0)
    D = rng.normal(size=(5, 6))
    uncertainty_set = Polyhedron(D, np.r_[D[:4].mean(axis=1) + 0.1, np.inf])

    f = rng.normal(size=6)
    stated = Stated(uncertainty_set.constraints).worst_case(f)
    assert stated.value == pytest.approx(uncertainty_set.worst_case(f).value, abs=1e-9)
