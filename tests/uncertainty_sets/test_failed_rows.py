"""A batch survives its failed rows: they are named with the reason, and the other rows are answered."""

from __future__ import annotations

import math
import pickle

import cvxpy as cp
import numpy as np
import pytest

from tests import tolerances
from tests.uncertainty_sets.plugins import Euclidean, TotalVariation
from uncertainty_sets import Box, Ellipsoid, Polyhedron, UncertaintySet, available_backends, by_name
from uncertainty_sets.backends.base import BACKENDS, Solution, Solver
from uncertainty_sets.backends.clarabel_ import Clarabel
from uncertainty_sets.conic.compile import compiled
from uncertainty_sets.errors import EmptySet, InvalidInput, InvalidLosses, SolverFailed

CENTER = np.array([0.4, 0.3, 0.2, 0.1])
F = np.array([[1.0, 2.0, 3.0, 5.0], [4.0, -1.0, 0.5, 2.0], [0.0, 1.0, 0.0, 7.0], [2.0, 2.5, -3.0, 1.0]])
SOLVERS = [name for name in available_backends() if name != "closed-form"]


class Caps(UncertaintySet):
    """p <= cap, with another cap for each row; each row's set keeps its solver."""

    def __init__(self, caps):
        self.parts = [Cap(each) for each in caps]
        self.rows = len(caps)

    def constraints(self, p):
        raise AssertionError("each row has its own")

    def _row(self, index):
        return self.parts[index]


class Cap(UncertaintySet):
    """p <= cap."""

    def __init__(self, cap):
        self.cap = cap

    def constraints(self, p):
        return [p <= self.cap]


class Ball(UncertaintySet):
    """The Euclidean ball around CENTER, with a radius for each row: no linear program."""

    def __init__(self, radii):
        self.parts = [Euclidean(CENTER, each) for each in radii]
        self.rows = len(radii)

    def constraints(self, p):
        return [cp.norm(p - CENTER) <= 0.1]

    def _row(self, index):
        return self.parts[index]


def is_blank(answer, row):
    """Whether every field of the row is that of a failed one."""
    fields = (answer.p, answer.value, answer.upper_bound, answer.violation, *answer.dual.values())
    return all(np.isnan(each[row]).all() for each in fields) and answer.gap[row] == np.inf


def check_others(answer, failed, alone):
    """Every row but the failed ones equals the answer to that row alone."""
    assert tuple(answer.failed) == failed
    for row in range(len(answer.p)):
        if row in failed:
            assert is_blank(answer, row)
        else:
            expected = alone(row)
            assert answer.value[row] == pytest.approx(expected.value, abs=tolerances.CONIC_GAP)
            assert abs(answer.gap[row]) <= tolerances.CONIC_GAP * np.ptp(F[row])
            assert answer.violation[row] <= tolerances.CONIC_GAP


@pytest.mark.parametrize("backend", ["auto", *SOLVERS])
def test_a_row_whose_set_is_empty(backend):
    subject = Caps([0.5, 0.6, 0.2, 1.0])
    says = r"1 of 4 rows .*\(row 2\).*Row 2: Cap\(cap=0\.2\) is empty"
    with pytest.raises(SolverFailed, match=says) as caught:
        subject.worst_case(F, backend=backend)
    error = caught.value
    assert isinstance(error.__cause__, EmptySet)
    assert error.rows == (2,)
    assert error.reasons == (str(error.__cause__),)
    answer = subject.worst_case(F, backend=backend, on_failure="nan")
    assert "Cap(cap=0.2) is empty" in answer.failed[2]
    check_others(answer, (2,), lambda row: subject.parts[row].worst_case(F[row]))
    for name in ("p", "value", "upper_bound", "gap", "violation"):
        np.testing.assert_allclose(getattr(answer, name), getattr(error.answer, name), atol=1e-6)
    again = pickle.loads(pickle.dumps(error))
    assert (again.rows, again.reasons) == (error.rows, error.reasons)
    assert pickle.loads(pickle.dumps(answer)).failed == answer.failed


def stop_clarabel(solver):
    solver._settings.max_iter = 1


def stop_scs(solver):
    program = solver._program
    data = {"A": program.A, "b": program.b, "c": np.zeros(program.A.shape[1])}
    solver.solve(data["c"])
    solver._solver = type(solver._solver)(data, solver._cones(), verbose=False, max_iters=1)


@pytest.mark.parametrize(
    ("backend", "stop"), [("clarabel", stop_clarabel), ("scs", stop_scs)], ids=["clarabel", "scs"]
)
def test_a_row_at_which_the_solver_stops_early(backend, stop):
    if backend not in SOLVERS:
        pytest.skip(f"{backend} is not installed")
    subject = Ball([0.1, 0.2, 0.05, 0.3])
    stop(compiled(subject.parts[1], 4).solver(backend))
    with pytest.raises(SolverFailed, match=rf"\(row 1\).*Row 1: .*{backend} ended with status") as caught:
        subject.worst_case(F, backend=backend)
    assert "after 1 iterations" in caught.value.reasons[0]
    answer = subject.worst_case(F, backend=backend, on_failure="nan")
    check_others(answer, (1,), lambda row: Euclidean(CENTER, [0.1, 0.2, 0.05, 0.3][row]).worst_case(F[row]))


def test_a_linear_row_at_which_the_simplex_stops_early():
    rng = np.random.default_rng(0)
    parts = [Polyhedron.example(30, rng) for _ in range(3)]

    class Several(UncertaintySet):
        rows = 3

        def constraints(self, p):
            raise AssertionError("each row has its own")

        def _row(self, index):
            return parts[index]

    losses = rng.normal(size=(3, 30))
    solver = compiled(parts[2], 30).solver("highs")
    solver._highs.setOptionValue("simplex_iteration_limit", 1)
    with pytest.raises(SolverFailed, match=r"\(row 2\).*highs ended with status 'kIterationLimit'"):
        Several().worst_case(losses, backend="highs")
    answer = Several().worst_case(losses, backend="highs", on_failure="nan")
    assert tuple(answer.failed) == (2,)
    assert is_blank(answer, 2)
    for row in range(2):
        assert answer.value[row] == pytest.approx(parts[row].worst_case(losses[row]).value, abs=1e-9)
    # Without a name, the next solver answers the row.
    assert Several().worst_case(losses).backend == "clarabel and highs"


class GivesUp(Solver):
    """Clarabel, except that it gives up if the third loss is the largest."""

    def __init__(self, inner):
        self.inner = inner

    def solve(self, cost):
        found = self.inner.solve(cost)
        if cost[:4].argmin() != 2:
            return found
        return Solution("failed", np.zeros(0), np.zeros(0), 7, "GaveUp")


@pytest.fixture
def moody():
    """A backend from elsewhere, for as long as the test runs."""

    class Moody(Clarabel):
        name = "moody"
        preference = None

        def compile(self, program):
            return GivesUp(super().compile(program))

    yield Moody.name
    BACKENDS.forget(Moody.name)


def test_a_backend_that_fails_for_some_rows_of_one_set(moody):
    subject = Euclidean(CENTER, 0.1)
    losses = np.vstack([F, [[0.0, 0.0, 9.0, 1.0], [1.0, 2.0, 4.0, 3.0]]])
    with pytest.raises(SolverFailed, match=r"2 of 6 rows .*\(rows 4, 5\)") as caught:
        subject.worst_case(losses, backend=moody)
    assert caught.value.rows == (4, 5)
    assert all("moody ended with status 'GaveUp' after 7 iterations" in each for each in caught.value.reasons)
    answer = subject.worst_case(losses, backend=moody, on_failure="nan")
    assert tuple(answer.failed.values()) == caught.value.reasons
    assert repr(answer).endswith("backend='moody', failed: rows 4, 5)")
    assert "inf" not in repr(answer)
    check_others(answer, (4, 5), lambda row: Euclidean(CENTER, 0.1).worst_case(losses[row]))
    nothing = subject.worst_case(losses[4:], backend=moody, on_failure="nan")
    assert tuple(nothing.failed) == (0, 1)
    assert nothing.p.shape == (2, 4)
    assert is_blank(nothing, 0)
    assert is_blank(nothing, 1)
    assert "failed: rows 0, 1" in repr(nothing)


def test_one_loss_vector(moody):
    answer = Euclidean(CENTER, 0.1).worst_case([0.0, 0.0, 9.0, 1.0], backend=moody, on_failure="nan")
    assert "GaveUp" in answer.failed[0]
    assert answer.p.shape == (4,)
    assert np.isnan(answer.p).all()
    assert math.isnan(answer.value)
    assert answer.gap == math.inf
    good = Euclidean(CENTER, 0.1).worst_case(F[0], backend=moody, on_failure="nan")
    assert good.failed == {}
    assert good.gap <= tolerances.CONIC_GAP


def test_a_closed_form_that_has_no_proof_for_some_rows():
    rng = np.random.default_rng(0)
    size = 12
    # A Hilbert matrix, whose condition number is beyond what the closed form can prove for every row.
    shape = 1.0 / (1.0 + np.add.outer(np.arange(size), np.arange(size))) + 1e-14 * np.eye(size)
    subject = Ellipsoid(np.full(size, 1 / size), shape, 1e6)
    losses = rng.normal(size=(40, size))
    answer = subject.worst_case(losses, backend="closed-form", on_failure="nan")
    failed = tuple(answer.failed)
    assert 0 < len(failed) < len(losses)
    assert all("the closed form has a gap of" in reason for reason in answer.failed.values())
    assert answer.unproved == ()
    with pytest.raises(SolverFailed) as caught:
        subject.worst_case(losses, backend="closed-form")
    assert caught.value.rows == failed
    for row, f in enumerate(losses):
        if row in failed:
            assert is_blank(answer, row)
        else:
            alone = subject.worst_case(f, backend="closed-form")
            assert np.array_equal(answer.p[row], alone.p)
            assert answer.upper_bound[row] == alone.upper_bound


def test_wrong_input_is_raised_whatever_the_setting():
    spoilt = F.copy()
    spoilt[2, 1] = np.nan
    for subject in (Box(np.zeros(4), np.full(4, 0.6)), TotalVariation(CENTER, 0.1)):
        with pytest.raises(InvalidLosses, match=r"losses\[2, 1\] = nan"):
            subject.worst_case(spoilt, on_failure="nan")
    with pytest.raises(EmptySet, match=r"^Cap\(cap=0\.2\) is empty"):
        Cap(0.2).worst_case(F, on_failure="nan")
    with pytest.raises(InvalidInput, match='on_failure must be "raise" or "nan", got \'skip\''):
        Box(np.zeros(4), np.full(4, 0.6)).worst_case(F, on_failure="skip")
    assert by_name.worst_case("kl", F, center=CENTER, radius=0.1, on_failure="nan").failed == {}


def test_an_interrupt_passes_through_with_the_rows_that_were_finished(monkeypatch):
    subject = Caps([0.5, 0.6, 0.7, 1.0])

    def interrupted(cost):
        raise KeyboardInterrupt

    monkeypatch.setattr(compiled(subject.parts[2], 4).solver("highs"), "solve", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        subject.worst_case(F, backend="highs", on_failure="nan")
    assert caught.value.__notes__ == ["2 of 4 rows were answered: see `.answer`"]
    value = caught.value.answer.value
    assert value[:2].tolist() == pytest.approx([0.5 * 5 + 0.5 * 3, 0.6 * 4 + 0.4 * 2])
    assert np.isnan(value[2:]).all()
