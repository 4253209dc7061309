"""Ellipsoids whose shape differs by row of a batch: every row is the ellipsoid of its own parameters."""

from __future__ import annotations

import numpy as np
import pytest

from tests import tolerances
from tests.uncertainty_sets import reference
from uncertainty_sets import Ellipsoid
from uncertainty_sets.errors import InvalidParameter

ROWS, SIZE = 5, 4
rng = np.random.default_rng(11)
CENTERS = rng.dirichlet(np.ones(SIZE), ROWS)
DIAGONALS = rng.uniform(0.2, 2.0, (ROWS, SIZE))
FACTORS = rng.normal(size=(ROWS, SIZE, SIZE))
MATRICES = FACTORS @ FACTORS.transpose(0, 2, 1) / SIZE + 0.1 * np.eye(SIZE)
RADII = np.array([0.0, 0.01, 0.1, 1.0, 50.0])
LOSSES = rng.normal(size=(ROWS, SIZE))
SHAPES = {
    "diagonals": (DIAGONALS, DIAGONALS),
    "diagonals, the long way": (DIAGONALS[:, None], DIAGONALS),
    "chi-square": (CENTERS, CENTERS),
    "matrices": (MATRICES, MATRICES),
}


@pytest.mark.parametrize("radius", [RADII, 0.1], ids=["radii", "one radius"])
@pytest.mark.parametrize("center", [CENTERS, CENTERS[0]], ids=["centers", "one center"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_answered_like_sets_of_their_own(shape, center, radius):
    given, by_row = SHAPES[shape]
    subject = Ellipsoid(center, given, radius)
    assert subject.rows == ROWS
    batch = subject.worst_case(LOSSES)
    assert batch.backend == "closed-form"
    for b in range(ROWS):
        q = np.broadcast_to(center, (ROWS, SIZE))[b]
        parameters = {"center": q, "shape": by_row[b], "radius": float(np.broadcast_to(radius, ROWS)[b])}
        alone = Ellipsoid(**parameters)
        answer = alone.worst_case(LOSSES[b])
        np.testing.assert_array_equal(batch.p[b], answer.p)
        assert batch.value[b] == answer.value
        assert batch.upper_bound[b] == answer.upper_bound
        # The certificate is that of this row's set, recomputed; and the value is what a solver finds.
        dual = {key: multiplier[b] for key, multiplier in batch.dual.items()}
        assert reference.bound("ellipsoid", LOSSES[b], parameters, dual) == pytest.approx(
            batch.upper_bound[b], abs=tolerances.gap(LOSSES[b])
        )
        assert alone.violation(batch.p[b]) <= tolerances.VIOLATION
        assert reference.ellipsoid(LOSSES[b], **parameters) == pytest.approx(batch.value[b], abs=1e-5)


@pytest.mark.parametrize("shape", ["diagonals", "matrices"])
def test_a_solver_answers_each_row_with_its_own_shape(shape):
    subject = Ellipsoid(CENTERS, SHAPES[shape][0], RADII)
    solved, own = subject.worst_case(LOSSES, backend="clarabel"), subject.worst_case(LOSSES)
    assert solved.backend == "clarabel"
    np.testing.assert_allclose(solved.value, own.value, atol=1e-5)


@pytest.mark.parametrize("shape", ["diagonals", "matrices"])
def test_large_batches_on_threads(shape):
    draw = np.random.default_rng(12)
    repeats = 3_000
    subject = Ellipsoid(
        np.tile(CENTERS, (repeats, 1)), np.concatenate([SHAPES[shape][0]] * repeats), np.tile(RADII, repeats)
    )
    losses = draw.normal(size=(ROWS * repeats, SIZE))
    batch = subject.worst_case(losses)
    for b in (0, 1, 7_499, 14_999):
        alone = Ellipsoid(CENTERS[b % ROWS], SHAPES[shape][0][b % ROWS], RADII[b % ROWS])
        np.testing.assert_array_equal(batch.p[b], alone.worst_case(losses[b]).p)


def test_one_loss_vector_for_all_rows_and_warm_starts():
    subject = Ellipsoid(CENTERS, MATRICES, RADII)
    first = subject.worst_case(LOSSES[0])
    again = subject.worst_case(LOSSES[0], warm_start=first)
    assert first.p.shape == (ROWS, SIZE)
    np.testing.assert_allclose(first.value, again.value, atol=tolerances.gap(LOSSES[0]))


def test_one_row_is_a_batch_of_one():
    answer = Ellipsoid(CENTERS[0], DIAGONALS[:1], 0.1).worst_case(LOSSES[:1])
    np.testing.assert_array_equal(
        answer.p[0], Ellipsoid(CENTERS[0], DIAGONALS[0], 0.1).worst_case(LOSSES[0]).p
    )
    assert answer.value.shape == (1,)
    solved = Ellipsoid(CENTERS[0], DIAGONALS[:1], 0.1).worst_case(LOSSES[:1], backend="clarabel")
    np.testing.assert_allclose(solved.value, answer.value, atol=1e-5)


def test_as_many_rows_as_entries():
    """(N, N) is a matrix for all rows; N diagonals need another axis, which the error says."""
    square = CENTERS[:SIZE]
    by_row = Ellipsoid(square, square[:, None], 0.1).worst_case(LOSSES[:SIZE])
    for b in range(SIZE):
        np.testing.assert_array_equal(
            by_row.p[b], Ellipsoid(square[b], square[b], 0.1).worst_case(LOSSES[b]).p
        )
    common = Ellipsoid(square, MATRICES[0], 0.1).worst_case(LOSSES[:SIZE])
    np.testing.assert_array_equal(common.p[1], Ellipsoid(square[1], MATRICES[0], 0.1).worst_case(LOSSES[1]).p)
    with pytest.raises(InvalidParameter, match=r"give shape\[:, None\], of shape \(4, 1, 4\)"):
        Ellipsoid(square, square, 0.1)


@pytest.mark.parametrize(
    ("center", "shape", "radius", "says"),
    [
        (CENTERS, DIAGONALS[:3], 0.1, "shape must have 5 rows, as center or radius has, got 3"),
        (CENTERS[0], DIAGONALS[:3], RADII, "shape must have 5 rows"),
        (CENTERS, MATRICES[:2], 0.1, "shape must have 5 rows"),
        (CENTERS, -DIAGONALS, 0.1, "shape must be positive"),
        (CENTERS, 1e-200 * DIAGONALS, 0.1, "between 1e-100 and 1e100"),
        (CENTERS, FACTORS, 0.1, "shape must be symmetric, got entries that differ by .* in row 0"),
        (CENTERS, np.r_[MATRICES[:4], -MATRICES[:1]], 0.1, "positive definite, .* in row 4"),
        (CENTERS, np.ones((ROWS, SIZE + 1)), 0.1, r"or one per row, \(B, 4\) or \(B, 4, 4\), got .*\(5, 5\)"),
        (CENTERS, np.ones((0, SIZE)), 0.1, r"got shape \(0, 4\)"),
        (CENTERS, np.ones((ROWS, 2, SIZE)), 0.1, r"got shape \(5, 2, 4\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(center, shape, radius, says):
    with pytest.raises(InvalidParameter, match=says) as caught:
        Ellipsoid(center, shape, radius)
    assert caught.value.parameter == "shape"
