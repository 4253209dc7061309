"""worst_case(losses, out=...): the caller's array holds p, and the answer is the same as without it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.uncertainty_sets.plugins import TotalVariation
from tests.uncertainty_sets.test_ellipsoid_hard import dense_shape
from tests.uncertainty_sets.test_promise import SpoiltRows
from uncertainty_sets import KL, Box, CDNorm, Ellipsoid, Polyhedron, Wasserstein1
from uncertainty_sets.errors import InvalidInput, SolverFailed

SIZE = 6
Q = np.arange(1.0, SIZE + 1.0) / 21.0
SETS = {
    "box": Box(0.5 * Q, 2.0 * Q),
    "kl": KL(Q, 0.1),
    "kl with zeros": KL([0.0, 0.5, 0.2, 0.0, 0.2, 0.1], 0.1),
    "cd-norm": CDNorm(Q, 0.5 * Q, 2.0),
    "cd-norm equal": CDNorm(Q, 0.1, 2.0),
    "line": Wasserstein1(Q, 0.5),
    "line out of order": Wasserstein1(Q, 0.5, [3.0, 1.0, 2.0, 0.0, 5.0, 4.0]),
    "matrix": Wasserstein1(Q, 0.2, 1.0 - np.eye(SIZE)),
    "diagonal": Ellipsoid(Q, Q, 0.3),
    "dense": Ellipsoid(Q, np.eye(SIZE) + 0.1, 0.05),
    "polyhedron": Polyhedron(np.eye(SIZE)[:1], [0.4]),
    "plug-in": TotalVariation(Q, 0.2),
}
FIELDS = ("p", "value", "upper_bound", "gap", "violation", "iterations")


def same(one, other):
    """Equal to the last bit; a solver starts from its last answer, so its own are equal up to tolerances."""
    if one.backend != "closed-form":
        np.testing.assert_allclose(one.value, other.value, atol=1e-7)
        return
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.dual.keys() == other.dual.keys()
    for key in one.dual:
        np.testing.assert_array_equal(one.dual[key], other.dual[key])


@pytest.mark.parametrize("shape", [(SIZE,), (1, SIZE), (7, SIZE)], ids=str)
@pytest.mark.parametrize("name", SETS)
def test_the_answer_is_in_the_array(name, shape):
    losses = np.random.default_rng(3).normal(size=shape)
    out = np.full(shape, np.nan)
    answer = SETS[name].worst_case(losses, out=out)
    assert answer.p is out
    np.testing.assert_allclose((out * losses).sum(axis=-1), answer.value)
    same(answer, SETS[name].worst_case(losses))


def test_batches_on_threads():
    losses = np.random.default_rng(4).normal(size=(20_000, SIZE))
    out = np.full(losses.shape, np.nan)
    answer = SETS["kl"].worst_case(losses, out=out)
    assert answer.p is out
    same(answer, SETS["kl"].worst_case(losses))


@pytest.mark.parametrize("name", SETS)
def test_the_last_answers_array_serves_the_next_call(name):
    """With its warm start at the same time: multipliers are read, the old p is not."""
    rng = np.random.default_rng(5)
    losses = rng.normal(size=(3, SIZE))
    first = SETS[name].worst_case(losses)
    other = SETS[name].worst_case(losses)
    losses = losses + 0.01 * rng.normal(size=losses.shape)
    warm = SETS[name].worst_case(losses, warm_start=other)
    memory = first.p
    again = SETS[name].worst_case(losses, warm_start=first, out=memory)
    assert again.p is memory
    same(again, warm)


def test_parameters_by_row_and_one_loss_vector():
    subject = KL([Q, Q[::-1]], [0.1, 0.2])
    out = np.empty((2, SIZE))
    losses = np.arange(SIZE)
    same(subject.worst_case(losses, out=out), subject.worst_case(losses))
    with pytest.raises(InvalidInput, match=r"shape of p, \(2, 6\), got \(6,\)"):
        subject.worst_case(losses, out=np.empty(SIZE))


def test_rows_of_a_larger_array():
    memory, losses = np.zeros((3, SIZE)), np.random.default_rng(6).normal(size=SIZE)
    answer = SETS["box"].worst_case(losses, out=memory[1])
    np.testing.assert_array_equal(memory[1], answer.p)
    assert not memory[[0, 2]].any()


def test_a_plug_ins_closed_form_and_a_solvers_rows():
    losses = np.random.default_rng(7).normal(size=(3, SIZE))
    subject = SpoiltRows(0.5 * Q, 2.0 * Q)
    for f in (losses, losses[0]):
        out = np.empty(f.shape)
        answer = subject.worst_case(f, out=out)
        assert answer.p is out
        np.testing.assert_allclose(out, SETS["box"].worst_case(f).p, atol=1e-6)


def test_a_dense_ellipsoid_that_a_solver_has_to_answer():
    rng = np.random.default_rng(0)
    subject = Ellipsoid(np.full(12, 1 / 12), dense_shape(rng, "hilbert", 12, 14), 1e6)
    losses = rng.normal(size=(40, 12))
    expected = subject.worst_case(losses)
    assert "clarabel" in expected.backend
    out = np.empty(losses.shape)
    answer = subject.worst_case(losses, out=out)
    assert answer.p is out
    with pytest.raises(SolverFailed) as failed:
        subject.worst_case(losses, backend="closed-form")
    others = np.setdiff1d(np.arange(40), failed.value.rows)
    np.testing.assert_array_equal(out[others], expected.p[others])
    np.testing.assert_allclose(out, expected.p, atol=1e-6)  # a solver depends on what it solved before


def test_scaled_rows_are_written_too():
    losses = np.array([[1e300, 0.0, 2e300, 5e299, 0.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    out = np.full(losses.shape, np.nan)
    same(SETS["kl"].worst_case(losses, out=out), SETS["kl"].worst_case(losses))


LOSSES = np.arange(12.0).reshape(2, SIZE)


def _readonly():
    array = np.empty((2, SIZE))
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("name", ["kl", "polyhedron"])
@pytest.mark.parametrize(
    ("out", "says"),
    [
        ([[0.0] * SIZE] * 2, r"NumPy array, got list; np\.empty\(losses\.shape\)"),
        (np.empty((2, SIZE), dtype=np.float32), "float64, got float32"),
        (np.empty((2, SIZE), dtype=">f8"), "float64, got >f8"),
        (np.empty(SIZE), r"shape of p, \(2, 6\), got \(6,\)"),
        (np.empty((SIZE, 2)).T, "C-contiguous, aligned and writable, got one that is not"),
        (_readonly(), "got one that is read-only"),
        (LOSSES, "not overlap the losses"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arrays_that_do_not_fit_are_refused(name, out, says):
    with pytest.raises(InvalidInput, match=f"out must .*{says}") as caught:
        SETS[name].worst_case(LOSSES, out=out)
    assert caught.value.parameter == "out"
    assert caught.value.value is out


def test_losses_that_are_converted_may_not_overlap_either():
    """A kernel would not notice, but the caller's losses would be gone."""
    memory = np.arange(24.0)
    every_other = memory.reshape(2, 12)[:, ::2]  # kernels get a copy of these
    with pytest.raises(InvalidInput, match="overlap"):
        SETS["kl"].worst_case(every_other, out=memory[:12].reshape(2, SIZE))
    np.testing.assert_array_equal(memory, np.arange(24.0))
