"""What a plug-in's closed form may claim: the truth, or less than it could prove, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tests import tolerances
from tests.uncertainty_sets.broken import HIGH, ONES, Tail, always, claims
from uncertainty_sets import (
    KL,
    Box,
    CDNorm,
    Ellipsoid,
    Polyhedron,
    UncertaintySet,
    Wasserstein1,
    WorstCase,
)
from uncertainty_sets.errors import BrokenSet, FdroError, InvalidLosses, SolverFailed

F = np.array([1.0, 4.0, 2.0, -1.0, 0.5])
BEST = 0.4 * 4.0 + 0.4 * 2.0 + 0.2 * 1.0
BATCH = np.array([F, F[::-1], 3.0 * F])
either = pytest.mark.parametrize("losses", [F, BATCH], ids=["one", "batch"])


@either
def test_the_sound_one_is_passed_on(losses):
    answer = Tail(5).worst_case(losses)
    assert answer.backend == "closed-form"
    np.testing.assert_allclose(np.atleast_1d(answer.value)[0], BEST)
    assert Tail(5).worst_case(losses, backend="clarabel").value == pytest.approx(answer.value, abs=1e-7)


LIES = {
    "value + 100": (HIGH, r"value is 102\.6, and pᵀf is 2\.6"),
    "value + 1e-6": (claims(value=lambda v, a, f: v + 1e-6), r"value is 2\.600001, and pᵀf is 2\.6"),
    "all, + 100": (
        claims(value=lambda v, a, f: v + 100, upper_bound=lambda v, a, f: v + 100),
        r"value is 102\.6, and pᵀf is 2\.6",
    ),
    "p of ones": (ONES, r"violation is reported as .*, and p is off the set by 4"),
    "p off the limit": (
        claims(p=lambda p, a, f: np.eye(5)[np.argsort(-f)[..., 0]]),
        r"p is off the set by 0\.6",
    ),
    "p negative": (
        claims(p=lambda p, a, f: p + np.array([0.1, 0.0, 0.0, -0.1, 0.0])),
        r"p is off the set by 0\.1",
    ),
    "p of NaN": (claims(p=lambda p, a, f: p * np.nan), "p must be finite, got nan"),
    "p too short": (
        claims(p=lambda p, a, f: p[..., :-1]),
        r"p must be float64 of shape .*, got float64",
    ),
    "p of single precision": (claims(p=lambda p, a, f: p.astype(np.float32)), "got float32 of shape"),
    "p whole numbers": (claims(p=lambda p, a, f: p.astype(int)), "got int64 of shape"),
    "p a list": (claims(p=lambda p, a, f: p.tolist()), "got list"),
    "p transposed": (claims(p=lambda p, a, f: p[..., None]), "p must be float64 of shape"),
    "value of NaN": (claims(value=lambda v, a, f: v * np.nan), "value is NaN"),
    "value a word": (claims(value=always("large")), "value must be numbers, got 'large'"),
    "value too many": (claims(value=always(np.zeros((2, 2)))), r"value must be .*, got shape \(2, 2\)"),
    "bound of NaN": (claims(upper_bound=lambda v, a, f: v * np.nan), "upper_bound is NaN"),
    "bound below value": (
        claims(upper_bound=lambda v, a, f: v - 1.0, gap=lambda v, a, f: v - 1.0),
        r"upper_bound, 1\.6, is below its value, 2\.6",
    ),
    "bound of -inf": (
        claims(upper_bound=lambda v, a, f: v - np.inf),
        "upper_bound, -inf, is below",
    ),
    "gap not the difference": (
        claims(upper_bound=lambda v, a, f: v + 1.0),
        r"gap is .*, and upper_bound - value is 1",
    ),
    "gap of NaN": (claims(gap=lambda v, a, f: v * np.nan), "gap is NaN"),
    "violation of NaN": (claims(violation=lambda v, a, f: v * np.nan), "violation is NaN"),
    "dual missing": (claims(dual=always(None)), "dual must hold the multipliers .*, got None"),
    "dual empty": (claims(dual=always({})), r"dual must hold the multipliers .*, got \{\}"),
    "dual of NaN": (claims(dual=lambda d, a, f: {"nu": d["nu"] * np.nan}), r"dual\['nu'\] is NaN"),
    "dual a word": (claims(dual=always({"nu": "low"})), r"dual\['nu'\] must be numbers, got 'low'"),
}


@pytest.mark.parametrize(("broken", "message"), LIES.values(), ids=LIES)
@either
def test_a_lie_is_an_error_of_its_author(broken, message, losses):
    with pytest.raises(BrokenSet, match=message) as caught:
        broken(5).worst_case(losses)
    assert "Claiming._closed_form answered wrongly" in str(caught.value)
    assert isinstance(caught.value, FdroError)
    with pytest.raises(BrokenSet, match=message):
        broken(5).worst_case(losses, backend="closed-form")


@pytest.mark.parametrize(("broken", "message"), LIES.values(), ids=LIES)
def test_a_backend_by_name_goes_without_the_closed_form(broken, message):
    assert broken(5).worst_case(F, backend="highs").value == pytest.approx(BEST, abs=1e-9)


@pytest.mark.parametrize("answer", [{}, 2.6, (), [1.0], "p"])
def test_what_is_not_an_answer(answer):
    class Odd(Tail):
        def _closed_form(self, losses, warm_start):
            return answer

    with pytest.raises(BrokenSet, match=f"must return a WorstCase or None, got {type(answer).__name__}"):
        Odd(5).worst_case(F)


def test_the_row_of_a_batch_is_named():
    def spoil(value, answer, losses):
        return value + np.array([0.0, 0.0, 5.0]) if losses.ndim == 2 else value

    with pytest.raises(BrokenSet, match=r"in row 2, its value is 12\.8, and pᵀf is 7\.8"):
        claims(value=spoil)(5).worst_case(BATCH)


@either
@pytest.mark.parametrize("loose", [1e-6, 1.0, np.inf])
def test_a_weak_but_true_certificate_goes_to_the_solver(losses, loose):
    weak = claims(upper_bound=lambda v, a, f: v + loose, gap=lambda v, a, f: v + loose)(5)
    answer = weak.worst_case(losses)
    assert "highs" in answer.backend
    assert np.max(answer.gap) <= 1e-7
    np.testing.assert_allclose(np.atleast_1d(answer.value)[0], BEST)
    with pytest.raises(SolverFailed, match="has a certificate within the promise"):
        weak.worst_case(losses, backend="closed-form")


def test_only_the_weak_row_goes_to_the_solver():
    def last(value, answer, losses):
        return value + np.array([0.0, 0.0, 1.0]) if losses.ndim == 2 else value

    answer = claims(upper_bound=last, gap=last)(5).worst_case(BATCH)
    assert answer.backend == "closed-form and highs"
    np.testing.assert_allclose(answer.value, [BEST, BEST, 3.0 * BEST])
    np.testing.assert_allclose(answer.p[:2], Tail(5).worst_case(BATCH).p[:2])
    assert np.isnan(answer.dual["nu"][2])
    assert not np.isnan(answer.dual["nu"][:2]).any()


def test_a_p_outside_that_says_so_goes_to_the_solver_too():
    honest = claims(p=lambda p, a, f: np.ones_like(p), violation=always(4.0))(5)
    answer = honest.worst_case(F)
    assert answer.backend == "highs"
    assert answer.violation <= tolerances.VIOLATION


@either
def test_what_the_closed_form_gives_up_itself_claims_nothing(losses):
    def nothing(field, answer, losses):
        return np.nan * field

    last = (len(losses) - 1,) if losses.ndim == 2 else (0,)
    fields = ("p", "value", "upper_bound", "gap", "violation")
    given_up = claims(**dict.fromkeys(fields, nothing), unproved=always(tuple(range(last[0] + 1))))(5)
    np.testing.assert_allclose(given_up.worst_case(losses).value, Tail(5).worst_case(losses).value)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-20, 1e20, 1e150, 1e300, 1e307])
@pytest.mark.parametrize("shift", [0.0, 1e6])
@either
def test_the_truth_is_believed_at_every_scale(scale, shift, losses):
    moved = scale * losses + (scale * shift if scale * shift < 1e307 else 0.0)
    assert Tail(5).worst_case(moved).backend == "closed-form"
    with pytest.raises(BrokenSet, match="value is"):
        claims(value=lambda v, a, f: v * 1.001 + scale)(5).worst_case(moved)


@pytest.mark.parametrize("seed", range(20))
def test_the_truth_is_believed_whatever_the_losses(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.choice([1, 2, 7, 100, 3000]))
    for f in (
        rng.normal(size=size),
        rng.integers(0, 3, size).astype(float),
        np.zeros(size),
        np.full(size, 0.1),
    ):
        sound = Tail.example(size)
        assert sound.worst_case(f).backend == "closed-form"
        assert sound.worst_case(np.array([f, -f])).backend == "closed-form"


def test_losses_that_are_not_finite_are_no_fault_of_the_set():
    for bad in (np.nan, np.inf):
        with pytest.raises(InvalidLosses, match=r"losses must be finite, got losses\[1\]"):
            Tail(5).worst_case([1.0, bad, 2.0, 3.0, 4.0])


def test_read_only_answers_and_plain_numbers_are_fine():
    def frozen(p, answer, losses):
        p.flags.writeable = False
        return p

    listed = {
        name: (lambda v, a, f: v.tolist() if f.ndim == 2 else v) for name in ("value", "upper_bound", "gap")
    }
    answer = claims(p=frozen, **listed)(5).worst_case(BATCH)
    assert answer.backend == "closed-form"
    assert answer.value.shape == (3,)


def test_whose_closed_form_it_is_decides():
    class Plain(Box):
        """Box's kernel, which is certified."""

    class Own(Box):
        """Its own."""

        def _closed_form(self, losses, warm_start):
            answer = super()._closed_form(losses, warm_start)
            answer.value += 100.0
            return answer

    class Heir(Own):
        """Inherits one that does not."""

    class Mixin:
        """A closed form from outside the tree of sets."""

        def _closed_form(self, losses, warm_start):
            return WorstCase(np.ones(3), 6.0, 6.0, 0.0, 0.0, {"nu": 0.0}, "closed-form", 1)

    class Mixed(Mixin, Box):
        """A set with that."""

    lower, upper = np.zeros(3), np.full(3, 0.5)
    assert Plain(lower, upper).worst_case([1.0, 2.0, 3.0]).value == 2.5
    for cls in (Own, Heir, Mixed):
        with pytest.raises(BrokenSet, match=f"{cls.__name__}._closed_form answered wrongly"):
            cls(lower, upper).worst_case([1.0, 2.0, 3.0])


def test_what_is_checked():
    for cls in (Box, CDNorm, Ellipsoid, KL, Polyhedron, Wasserstein1):
        assert cls._certified, cls
    assert not Tail._certified
    assert UncertaintySet._certified, "it has no closed form to check"


def test_certified_is_said_where_the_closed_form_is():
    class Own(Box, certified=True):
        def _closed_form(self, losses, warm_start, out=None):
            return super()._closed_form(losses, warm_start, out)

    p = np.empty(3)
    answer = Own(np.zeros(3), np.full(3, 0.5)).worst_case([1.0, 2.0, 3.0], out=p)
    assert answer.p is p
    assert answer.value == 2.5
    with pytest.raises(BrokenSet, match="Plain has none of its own: leave it out"):

        class Plain(Box, certified=True):
            """No closed form."""


def test_rows_of_their_own_parameters():
    class Rows(KL):
        """A copy of KL's kernel, measured: each row against the set of that row."""

        def _closed_form(self, losses, warm_start):
            return super()._closed_form(losses, warm_start)

    q = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    answer = Rows(q, [0.1, 0.01]).worst_case([1.0, 2.0, 4.0])
    np.testing.assert_array_equal(answer.p, KL(q, [0.1, 0.01]).worst_case([1.0, 2.0, 4.0]).p)


@either
def test_the_violation_is_the_one_that_was_measured(losses):
    doubtful = claims(violation=lambda v, a, f: v + 0.5)
    assert np.max(doubtful(5).worst_case(losses).violation) <= tolerances.VIOLATION


def test_the_losses_are_the_callers_own():
    """A closed form that writes into them is checked against what was asked."""

    class Scribbler(Tail):
        def _closed_form(self, losses, warm_start):
            losses[...] = 0.0
            return super()._closed_form(losses, warm_start)

    f = F.copy()
    with pytest.raises(BrokenSet, match="and pᵀf is"):
        Scribbler(5).worst_case(f)
    assert np.array_equal(f, F)


def test_unproved_rows_are_rows():
    class Elsewhere(Tail):
        def _closed_form(self, losses, warm_start):
            answer = super()._closed_form(losses, warm_start)
            answer.unproved = (5,)
            return answer

    with pytest.raises(BrokenSet, match="unproved must name"):
        Elsewhere(5).worst_case(F)
