"""No answer with a bad certificate leaves `worst_case`: another method answers, or an error shows it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests import tolerances
from uncertainty_sets import KL, Box, Ellipsoid, UncertaintySet
from uncertainty_sets.answer import WorstCase
from uncertainty_sets.errors import SolverFailed
from uncertainty_sets.kernels.layout import COLUMNS, NOT_SOLVED, OK, STATUS
from uncertainty_sets.kernels.scan import finish

F = np.array([[3.0, 1.0, 2.0], [0.0, 1.0, 5.0], [2.0, 2.5, 1.0]])


class SpoiltRows(Box):
    """A box whose closed form gets some rows wrong, and knows it."""

    wrong = (1,)

    def _closed_form(self, losses, warm_start):
        answer = super()._closed_form(losses, warm_start)
        if losses.ndim == 1:
            answer.gap, answer.violation, answer.unproved = 0.3, 0.2, (0,)
            return answer
        for row in self.wrong:
            answer.p[row], answer.gap[row], answer.violation[row] = 1.0, 0.3, 2.0
        answer.unproved = self.wrong
        return answer


class NoSolverEither(SpoiltRows):
    """And no solver answers for it."""

    def _by_solver(self, losses):
        raise SolverFailed("none", answer=None)


def box(kind: type[UncertaintySet]) -> UncertaintySet:
    return kind(np.full(3, 0.1), np.full(3, 0.6))


@pytest.mark.parametrize(
    ("bound", "violation", "status"),
    [
        (1.0, 0.0, OK),
        (1.0 + 0.9e-9, 0.9e-10, OK),
        (1.0 - 1e-14, 0.0, OK),
        (1.0 + 1.1e-8, 0.0, NOT_SOLVED),
        (1.0 - 1e-8, 0.0, NOT_SOLVED),
        (1.0, 1.1e-10, NOT_SOLVED),
        (np.nan, 0.0, NOT_SOLVED),
        (1.0, np.nan, NOT_SOLVED),
        (np.inf, 0.0, NOT_SOLVED),
    ],
)
def test_a_kernels_answer_is_judged_by_its_certificate(bound, violation, status):
    out = np.empty(COLUMNS)
    finish(out, 2.0, 1.0, bound, violation, 7, 1.0)
    assert out[STATUS] == status


def test_losses_far_from_zero_are_judged_by_their_rounding():
    out = np.empty(COLUMNS)
    finish(out, 1e15, 0.0, 0.5, 0.0, 1, 1.0)  # half a unit in the last place of the losses
    assert out[STATUS] == OK
    finish(out, 1e15, 0.0, 16.0, 0.0, 1, 1.0)
    assert out[STATUS] == NOT_SOLVED


def test_only_the_unproved_row_goes_to_the_solver():
    exact = box(Box).worst_case(F)
    answer = box(SpoiltRows).worst_case(F)
    assert np.array_equal(answer.p[[0, 2]], exact.p[[0, 2]])
    assert np.abs(answer.value - exact.value).max() <= tolerances.CONIC_GAP * tolerances.spread(F)
    assert answer.violation.max() <= tolerances.CONIC_GAP
    assert answer.backend.startswith("closed-form and ")
    assert "nu" in answer.dual
    assert np.isnan(answer.dual["nu"][1])
    assert np.array_equal(answer.dual["nu"][[0, 2]], exact.dual["nu"][[0, 2]])
    assert np.isnan(answer.dual["y"][[0, 2]]).all()
    assert np.isfinite(answer.dual["y"][1]).all()
    assert answer.unproved == ()


def test_a_single_unproved_answer_goes_to_the_solver():
    answer = box(SpoiltRows).worst_case(F[0])
    assert answer.backend != "closed-form"
    assert abs(answer.value - box(Box).worst_case(F[0]).value) <= tolerances.CONIC_GAP * tolerances.spread(F)


def test_closed_form_asked_for_by_name_is_never_answered_by_a_solver():
    with pytest.raises(SolverFailed, match=r"gap of 0\.3 and a violation of 0\.2") as caught:
        box(SpoiltRows).worst_case(F[0], backend="closed-form")
    assert isinstance(caught.value.answer, WorstCase)
    assert caught.value.rows == ()


def test_without_any_proof_the_error_names_the_rows_and_keeps_the_others():
    class TwoOfThree(NoSolverEither):
        wrong = (0, 2)

    with pytest.raises(SolverFailed, match=r"rows 0, 2 of 3") as caught:
        box(TwoOfThree).worst_case(F)
    assert caught.value.rows == (0, 2)
    assert np.array_equal(caught.value.answer.p[1], box(Box).worst_case(F[1]).p)
    assert "gap of 0.3 and a violation of 2; a solver instead: none" in caught.value.reasons[0]
    assert caught.value.answer.gap.tolist()[::2] == [np.inf, np.inf]
    assert np.isnan(caught.value.answer.p[[0, 2]]).all()
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.rows == (0, 2)
    assert str(again) == str(caught.value)


def test_what_a_set_makes_of_a_solvers_answer_is_judged_too():
    class Careless(SpoiltRows):
        def _by_solver(self, losses):
            found = super()._by_solver(losses)
            found.gap = 1e-3
            return found

    with pytest.raises(SolverFailed, match="within the promise") as caught:
        box(Careless).worst_case(F[0])
    assert "gap of 0.001" in str(caught.value.__cause__)


def test_a_warm_start_from_elsewhere_is_tried_again_cold():
    q = np.array([0.5, 0.3, 0.2])
    start = KL(q, 1e-12).worst_case([0.0, 1.0, 1e6])
    answer = KL(q, 0.3).worst_case([1.0, 0.0, 2.0], warm_start=start)
    assert answer.backend == "closed-form"
    assert answer.gap <= tolerances.gap([1.0, 0.0, 2.0])


def test_rows_whose_programs_differ_in_length_are_one_batch():
    """A zero in one row's centre takes rows out of its program, and multipliers out of its dual."""
    centers, losses = [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]])
    answer = KL(centers, 0.1).worst_case(losses, backend="clarabel")
    for center, f, value in zip(centers, losses, answer.value, strict=True):
        assert value == pytest.approx(KL(center, 0.1).worst_case(f).value, abs=1e-6)
    assert np.isnan(answer.dual["y"]).any()


def test_a_solver_that_calls_the_set_empty_is_a_failure_and_no_proof():
    shape = 1e-100 * np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]])
    subject = Ellipsoid([0.33, 0.63, 0.04], shape, 1e-300)
    with pytest.raises(SolverFailed) as caught:
        subject.worst_case([0.1, -1.1, -1.0])
    assert caught.value.answer is not None


def test_a_start_of_another_kind_is_ignored():
    strange = WorstCase(np.ones(1), 1.0, 1.0, 0.0, 0.0, {"nu": "x", "eta": 1j}, "other", 1)
    assert KL([0.5, 0.5], 0.1).worst_case([1.0, 2.0], warm_start=strange).backend == "closed-form"
