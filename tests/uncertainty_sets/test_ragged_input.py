"""What ragged rows take, and how they refuse the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from tests.uncertainty_sets.ragged_cases import VALUES, dyadic, structure
from uncertainty_sets import KL, Box, CDNorm, Ellipsoid, Polyhedron, Wasserstein1
from uncertainty_sets.errors import BackendUnsuitable, EmptySet, InvalidLosses, InvalidParameter


def test_scipy_matrices_are_taken_as_they_are():
    rng = np.random.default_rng(9)
    P = rng.random((6, 5)) * (rng.random((6, 5)) < 0.6)
    P[:, 0] += 0.1
    P /= P.sum(axis=1, keepdims=True)
    v = rng.normal(size=5)
    for sparse in (csr_array(P), csr_matrix(P)):
        assert sparse.indices.dtype == np.int32
        rows = KL.ragged(sparse, radius=0.1)
        answer = rows.worst_case(v)
        for b in range(6):
            support = P[b] > 0.0
            expected = KL(P[b][support], 0.1).worst_case(v[support])
            assert answer.value[b] == pytest.approx(expected.value, abs=1e-12)
        bounds = Box.ragged(0.5 * sparse, 2.0 * sparse).worst_case(v)
        np.testing.assert_allclose(
            bounds.value,
            Box.ragged(0.5 * sparse.data, 2.0 * sparse.data, indptr=sparse.indptr, indices=sparse.indices)
            .worst_case(v)
            .value,
        )
        with pytest.raises(InvalidLosses, match="values must have 5 entries, got 6"):
            rows.worst_case(np.ones(6))
    with pytest.raises(
        InvalidParameter, match=r"center must be a sparse matrix in CSR format, got csc .*tocsr"
    ):
        KL.ragged(csr_array(P).tocsc(), radius=0.1)
    with pytest.raises(InvalidParameter, match="leave them out"):
        KL.ragged(csr_array(P), radius=0.1, indptr=[0, 1])
    with pytest.raises(InvalidParameter, match="upper must have the same indptr and indices as the rows"):
        Box.ragged(0.5 * csr_array(P), csr_array(np.ones((6, 5))))


def test_inputs_may_be_read_only_and_are_not_kept():
    rng = np.random.default_rng(10)
    indptr, indices = structure(rng, 20)
    q, v = dyadic(rng, np.diff(indptr)), rng.normal(size=VALUES)
    offsets = rng.normal(size=q.size)
    expected = KL.ragged(q, 0.1, indptr=indptr, indices=indices).worst_case(v, offsets=offsets)
    for each in (indptr, indices, q, v, offsets):
        each.flags.writeable = False
    rows = KL.ragged(q, 0.1, indptr=indptr, indices=indices.astype(np.int32))
    np.testing.assert_array_equal(rows.worst_case(v, offsets=offsets).p, expected.p)
    own = indices.copy()
    rows = KL.ragged(q, 0.1, indptr=indptr, indices=own)
    own[:] = 10**9  # would read outside the values if it were kept
    np.testing.assert_array_equal(rows.worst_case(v, offsets=offsets).p, expected.p)
    with pytest.raises(ValueError, match="read-only"):
        rows.indptr[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        rows.indices[0] = 1


KL_HALVES: dict[str, Any] = {"center": [0.5, 0.5, 0.5, 0.5], "radius": 0.1, "indptr": [0, 2, 4]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"indptr": None}, r"ragged rows need indptr: .* or give center as a SciPy CSR matrix"),
        ({"indptr": [0]}, "indptr must have at least 2 entries, for one row; got 1"),
        ({"indptr": [1, 2, 4]}, "indptr must begin with 0, got 1"),
        ({"indptr": [0, 3, 2, 4]}, "indptr must not descend, got 3 before 2 at row 1"),
        ({"indptr": [0, 2, 2, 4]}, r"row 1 has none: leave such rows out"),
        ({"indptr": [0, 0, 2, 2, 4]}, r"row 0 has none \(2 rows are empty\)"),
        ({"indptr": [0.0, 2.0, 4.0]}, "indptr must be a vector of integers, got .* float64"),
        ({"indptr": [[0, 2, 4]]}, r"indptr must be a vector of integers, got shape \(1, 3\)"),
        ({"indices": [0, 1, 2]}, r"indices must have indptr\[-1\] = 4 entries, got 3"),
        ({"indices": [0, 1, -2, 0]}, "indices must not be negative, got -2 in row 1, entry 0"),
        ({"center": [0.5, 0.5, 0.5]}, r"center must be .* one number per entry, \(4,\), got shape \(3,\)"),
        ({"center": 0.5}, "center must have one probability per entry"),
        ({"center": [0.5, 0.5, 1.5, -0.5]}, "center must not be negative, got -0.5 in row 1, entry 1"),
        ({"center": [0.5, 0.5, np.nan, 0.5]}, "center must be finite, got nan in row 1, entry 0"),
        ({"center": [0.5, 0.5, 0.5, 0.6]}, r"center must sum to 1 in every row, got 1.1 in row 1"),
        ({"radius": [0.1, 0.2, 0.3]}, r"radius must be .*\(2,\), got shape \(3,\)"),
        ({"radius": -0.1}, "radius must not be negative, got -0.1"),
    ],
)
def test_parameters_are_checked_where_rows_are_made(changed, message):
    with pytest.raises(InvalidParameter, match=message):
        KL.ragged(**(KL_HALVES | changed))


def test_one_row_takes_one_number():
    with pytest.raises(InvalidParameter, match=r"radius must be a number or have one per row, \(1,\)"):
        KL.ragged([0.5, 0.5], [0.1, 0.2], indptr=[0, 2])


@pytest.mark.parametrize(
    ("lower", "upper", "error", "message"),
    [
        ([0.0, 0.9, 0.0, 0.0], 0.6, InvalidParameter, r"got 0.9 > 0.6 in row 0, entry 1"),
        ([-2.0, -2.0, -2.0, -2.0], [1.0, 1.0, -1.0, 1.0], EmptySet, "got -1.0 in row 1, entry 0"),
        ([0.0, 0.0, 0.6, 0.6], 1.0, EmptySet, r"row 1 is empty: Σ max\(lower, 0\) .* got 1.2"),
        (0.0, [0.5, 0.5, 0.4, 0.5], EmptySet, r"row 1 is empty: Σ min\(upper, 1\) .* got 0.9"),
        (np.nan, 1.0, InvalidParameter, "lower must be free of NaN, got nan in row 0, entry 0"),
    ],
)
def test_bounds_of_ragged_boxes_are_checked(lower, upper, error, message):
    with pytest.raises(error, match=message):
        Box.ragged(lower, upper, indptr=[0, 2, 4])


def test_costs_shapes_and_spreads_are_checked():
    q, at = [0.5, 0.5, 0.5, 0.5], {"indptr": [0, 2, 4], "indices": [0, 1, 1, 2]}
    with pytest.raises(InvalidParameter, match=r"for 3 or more values; got shape \(2,\)"):
        Wasserstein1.ragged(q, 0.1, [0.0, 1.0], **at)
    with pytest.raises(InvalidParameter, match=r"got shape \(3, 4\)"):
        Wasserstein1.ragged(q, 0.1, np.zeros((3, 4)), **at)
    with pytest.raises(InvalidParameter, match="cost must be 0 on the diagonal"):
        Wasserstein1.ragged(q, 0.1, np.ones((3, 3)), **at)
    with pytest.raises(InvalidParameter, match="outermost positions of row 1 overflows"):
        Wasserstein1.ragged(q, 0.1, [0.0, 1e308, -1e308], **at)
    with pytest.raises(
        InvalidParameter, match="a matrix would be factorised for every row: make an Ellipsoid"
    ):
        Ellipsoid.ragged(q, np.eye(3), 0.1, **at)
    with pytest.raises(InvalidParameter, match=r"shape must be positive, got 0\.0"):
        Ellipsoid.ragged(q, [1.0, 1.0, 0.0, 1.0], 0.1, **at)
    with pytest.raises(InvalidParameter, match=r"spread must not be negative, got -1\.0"):
        CDNorm.ragged(q, -1.0, 0.1, **at)


def test_values_offsets_and_scale_are_checked():
    rows = KL.ragged(**KL_HALVES, indices=[0, 1, 1, 2])
    with pytest.raises(InvalidLosses, match="values must have at least 3 entries"):
        rows.worst_case([1.0, 2.0])
    with pytest.raises(InvalidLosses, match=r"values must be a vector, got shape \(1, 3\)"):
        rows.worst_case([[1.0, 2.0, 3.0]])
    with pytest.raises(InvalidLosses, match="offsets must have one number per entry, 4, got 3"):
        rows.worst_case([1.0, 2.0, 3.0], offsets=[1.0, 2.0, 3.0])
    with pytest.raises(InvalidLosses, match="scale must be a finite number, got nan"):
        rows.worst_case([1.0, 2.0, 3.0], scale=np.nan)
    with pytest.raises(InvalidLosses, match="values must have 4 entries, got 3"):
        KL.ragged(**KL_HALVES).worst_case([1.0, 2.0, 3.0])


def test_distances_too_small_for_a_multiplier_count_as_none():
    q, at = [0.25, 0.5, 0.25], {"indptr": [0, 3]}
    rows = Wasserstein1.ragged(q, 0.0, [0.0, 1e-300, 1.0], **at)
    assert rows.worst_case([1.0, 2.0, 3.0]).value[0] == pytest.approx(0.75 * 2.0 + 0.25 * 3.0)
    cost = np.array([[0.0, 1e-300, 1.0], [1e-300, 0.0, 1.0], [1.0, 1.0, 0.0]])
    rows = Wasserstein1.ragged(q, 0.0, cost, **at)
    assert rows.worst_case([1.0, 2.0, 3.0]).value[0] == pytest.approx(0.75 * 2.0 + 0.25 * 3.0)


def test_sets_without_a_closed_form_say_what_to_use_instead():
    with pytest.raises(BackendUnsuitable, match="Polyhedron has no closed form for ragged rows") as caught:
        Polyhedron.ragged(np.eye(2), [1.0, 1.0], indptr=[0, 2])
    for able in (Box, CDNorm, Ellipsoid, KL, Wasserstein1):
        assert f"{able.__name__}" in str(caught.value)
    assert "make a Polyhedron for each row and call its worst_case" in str(caught.value)
