"""Ragged rows answer as the sets of their rows do, and are checked once, where they are made."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from tests import tolerances
from tests.uncertainty_sets import cases
from uncertainty_sets import (
    KL,
    Box,
    CDNorm,
    Ellipsoid,
    Polyhedron,
    Ragged,
    RaggedWorstCase,
    Wasserstein1,
    WorstCase,
    available_sets,
    get_set,
)
from uncertainty_sets.errors import (
    BackendUnsuitable,
    EmptySet,
    InvalidInput,
    InvalidLosses,
    InvalidParameter,
    SolverFailed,
)
from uncertainty_sets.kernels.layout import NOT_SOLVED, STATUS

VALUES = 40
BY_ROW = ("radius", "budget")


def structure(rng: np.random.Generator, rows: int, longest: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 1 to `longest` entries, and a support for each without repetition, in any order."""
    lengths = rng.integers(1, longest + 1, rows)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([rng.permutation(max(VALUES, longest))[:n] for n in lengths])
    return indptr, indices


def of_rows(name: str, rng: np.random.Generator, indptr: np.ndarray, indices: np.ndarray) -> Ragged:
    """Rows with edge cases of all parameters, each row with its own."""
    drawn: list[dict[str, Any]] = []
    for n in np.diff(indptr):
        given = cases.PARAMETERS[name](int(n), rng)
        while np.ndim(given.get("shape")) == 2:
            given = cases.PARAMETERS[name](int(n), rng)
        given.pop("cost", None)
        if "shape" in given:
            given["shape"] = np.broadcast_to(given["shape"], n)
        drawn.append(given)
    flat = {
        key: np.array([each[key] for each in drawn])
        if key in BY_ROW
        else np.concatenate([each[key] for each in drawn])
        for key in drawn[0]
    }
    return get_set(name).ragged(**flat, indptr=indptr, indices=indices)


def rows_of(kind: str, rng: np.random.Generator, indptr: np.ndarray, indices: np.ndarray) -> Ragged:
    """Rows of that kind; for Wasserstein-1 with that cost."""
    name, _, cost = kind.partition(" ")
    if name != "wasserstein-1":
        return of_rows(name, rng, indptr, indices)
    q = np.concatenate([cases.center(rng, int(n)) for n in np.diff(indptr)])
    radius = rng.choice([0.0, 1e-3, 0.1, 0.5, 2.0, 50.0], indptr.size - 1)
    size = int(indices.max()) + 1
    matrix = rng.random((size, size)) * (rng.random((size, size)) < 0.9) * (1.0 - np.eye(size))
    between: Any = {
        "places": None,
        "positions": rng.normal(size=size),
        "tied": rng.integers(0, 4, size) / 2.0,
        "matrix": matrix,
    }[cost]
    return Wasserstein1.ragged(q, radius, between, indptr=indptr, indices=indices)


KINDS = [
    "box",
    "kl",
    "cd-norm",
    "ellipsoid",
    "wasserstein-1 places",
    "wasserstein-1 positions",
    "wasserstein-1 tied",
    "wasserstein-1 matrix",
]


def losses(kind: int, rng: np.random.Generator, size: int) -> np.ndarray:
    """Normal, tied, heavy-tailed or equal values."""
    return [
        rng.normal(size=size),
        rng.integers(-2, 3, size).astype(float),
        np.exp(3.0 * rng.normal(size=size)),
        np.full(size, 1.5),
    ][kind % 4]


def test_the_kinds_are_those_of_the_registry():
    able = {name for name in available_sets() if get_set(name).has_ragged}
    assert {kind.partition(" ")[0] for kind in KINDS} == able


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_each_row_is_answered_as_its_own_set_answers(kind, seed):
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    indptr, indices = structure(rng, 60)
    rows = rows_of(kind, rng, indptr, indices)
    v = losses(seed, rng, VALUES)
    answer = rows.worst_case(v)
    assert isinstance(answer, RaggedWorstCase)
    for b in range(len(rows)):
        part = slice(indptr[b], indptr[b + 1])
        f, own = v[indices[part]], rows.row(b)
        expected = own.worst_case(f)
        allowed = tolerances.SAME_VALUE * np.ptp(f) + 1e-13 * np.abs(f).max()
        assert answer.value[b] == pytest.approx(expected.value, rel=1e-12, abs=allowed)
        assert answer.upper_bound[b] == pytest.approx(expected.upper_bound, rel=1e-12, abs=allowed)
        assert answer.value[b] == pytest.approx(answer.p[part] @ f, rel=1e-12, abs=1e-12)
        assert own.violation(answer.p[part]) <= tolerances.VIOLATION
        assert answer.violation[b] <= tolerances.VIOLATION
        assert answer.gap[b] <= tolerances.GAP * np.ptp(f) + 1e-14 * np.abs(f).max()
        assert set(answer.dual) == set(expected.dual)


def dyadic(rng: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
    """Centres whose sums are exact in any order: nothing is divided, here or in a set of one row."""
    parts = [rng.multinomial(1024, np.full(n, 1.0 / n)) / 1024.0 for n in lengths]
    return np.concatenate(parts)


@pytest.mark.parametrize("longest", [1, 3, 50, 300])
@pytest.mark.parametrize("name", ["box", "kl", "cd-norm", "equal", "ellipsoid", "line", "matrix"])
def test_the_same_numbers_to_the_last_bit(name, longest):
    rng = np.random.default_rng(longest)
    indptr, indices = structure(rng, 40, longest)
    q, n = dyadic(rng, np.diff(indptr)), indices.size
    size = int(indices.max()) + 1
    radius = rng.random(40)
    spread = rng.integers(1, 9, n) / 8.0
    x = rng.normal(size=size)
    at = {"indptr": indptr, "indices": indices}
    rows = {
        "box": lambda: Box.ragged(q / 2.0, np.minimum(q * 2.0 + 0.125, 1.0), **at),
        "kl": lambda: KL.ragged(q, radius, **at),
        "cd-norm": lambda: CDNorm.ragged(q, spread, 3.0 * radius, **at),
        "equal": lambda: CDNorm.ragged(q, 1.0, radius, **at),
        "ellipsoid": lambda: Ellipsoid.ragged(q, q + 0.125, radius, **at),
        "line": lambda: Wasserstein1.ragged(q, radius, x, **at),
        "matrix": lambda: Wasserstein1.ragged(q, radius, np.abs(np.subtract.outer(x, x)), **at),
    }[name]()
    v = rng.normal(size=size)
    answer = rows.worst_case(v)
    for b in range(40):
        single = rows.row(b).worst_case(v[indices[indptr[b] : indptr[b + 1]]])
        row = answer.row(b)
        assert (row.value, row.upper_bound, row.gap) == (single.value, single.upper_bound, single.gap)
        assert (row.dual, row.iterations) == (single.dual, single.iterations)
        np.testing.assert_array_equal(row.p, single.p)


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_run_in_pieces_and_agree_with_few(kind):
    rng = np.random.default_rng(7)
    indptr, indices = structure(rng, 60)
    rows = rows_of(kind, rng, indptr, indices)
    copies = 400  # more entries than one thread takes
    longer = np.concatenate([[0], np.cumsum(np.tile(np.diff(indptr), copies))])
    parameters = {**rows._by_entry, **rows._by_row}
    many = get_set(kind.partition(" ")[0]).ragged(
        **{key: np.tile(each, copies) for key, each in parameters.items()},
        **rows._by_value,
        indptr=longer,
        indices=np.tile(indices, copies),
    )
    v = rng.normal(size=VALUES)
    few = rows.worst_case(v)
    found = many.worst_case(v)
    np.testing.assert_allclose(found.value, np.tile(few.value, copies), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.p, np.tile(few.p, copies), rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_and_scale_are_part_of_the_losses(kind):
    rng = np.random.default_rng(3)
    indptr, indices = structure(rng, 30)
    rows = rows_of(kind, rng, indptr, indices)
    v, offsets = rng.normal(size=VALUES), rng.normal(size=indices.size)
    answer = rows.worst_case(v, offsets=offsets, scale=0.9)
    gathered = offsets + 0.9 * v[indices]
    for b in range(30):
        part = slice(indptr[b], indptr[b + 1])
        assert answer.value[b] == pytest.approx(rows.row(b).worst_case(gathered[part]).value, abs=1e-9)
    scaled = rows.worst_case(v, scale=-2.0)
    np.testing.assert_allclose(scaled.value, rows.worst_case(-2.0 * v).value, rtol=1e-12, atol=1e-12)


def test_without_indices_there_is_a_value_for_each_entry():
    rng = np.random.default_rng(4)
    indptr, indices = structure(rng, 20)
    q, v = dyadic(rng, np.diff(indptr)), rng.normal(size=VALUES)
    shared = KL.ragged(q, 0.1, indptr=indptr, indices=indices).worst_case(v)
    own = KL.ragged(q, 0.1, indptr=indptr)
    assert own.indices is None
    np.testing.assert_array_equal(own.worst_case(v[indices]).p, shared.p)
    line = Wasserstein1.ragged(q, 0.5, indptr=indptr).worst_case(v[indices])
    for b in range(20):
        part = slice(indptr[b], indptr[b + 1])
        single = Wasserstein1(q[part], 0.5).worst_case(v[indices][part])  # on the integer line too
        assert line.value[b] == pytest.approx(single.value, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_changes_nothing_but_the_time(kind):
    rng = np.random.default_rng(5)
    indptr, indices = structure(rng, 50)
    rows = rows_of(kind, rng, indptr, indices)
    v = rng.normal(size=VALUES)
    before = rows.worst_case(v + 1e-3 * rng.normal(size=VALUES))
    cold, warm = rows.worst_case(v), rows.worst_case(v, warm_start=before)
    np.testing.assert_allclose(warm.value, cold.value, rtol=0, atol=tolerances.SAME_VALUE * np.ptp(v))
    assert warm.gap.max() <= tolerances.GAP * np.ptp(v)


def test_a_warm_start_saves_evaluations():
    rng = np.random.default_rng(5)
    indptr, indices = structure(rng, 200, 300)
    q, v = dyadic(rng, np.diff(indptr)), rng.normal(size=300)
    rows = KL.ragged(q, 0.1, indptr=indptr, indices=indices)
    cold = rows.worst_case(v)
    assert rows.worst_case(v, warm_start=cold).iterations.sum() < cold.iterations.sum()


def test_a_warm_start_of_other_rows_is_ignored_and_of_another_type_refused():
    rows = KL.ragged([0.5, 0.5, 0.2, 0.8], 0.1, indptr=[0, 2, 4])
    others = KL.ragged([0.5, 0.5], 0.1, indptr=[0, 2]).worst_case([1.0, 2.0])
    boxes = Box.ragged(0.0, 1.0, indptr=[0, 2, 4]).worst_case([1.0, 2.0, 3.0, 4.0])
    v = [1.0, 2.0, 0.0, 4.0]
    for before in (others, boxes):
        np.testing.assert_array_equal(rows.worst_case(v, warm_start=before).p, rows.worst_case(v).p)
    with pytest.raises(
        InvalidInput, match="warm_start must be an earlier answer of ragged rows, got WorstCase"
    ):
        rows.worst_case(v, warm_start=KL([0.5, 0.5], 0.1).worst_case([1.0, 2.0]))


def test_an_answer_can_be_overwritten_and_start_its_own_successor():
    rng = np.random.default_rng(6)
    indptr, indices = structure(rng, 50)
    rows = rows_of("kl", rng, indptr, indices)
    v, w = rng.normal(size=VALUES), rng.normal(size=VALUES)
    answer = rows.worst_case(v)
    memory = answer.p, answer.value, answer.dual["eta"]
    again = rows.worst_case(w, warm_start=answer, out=answer)
    assert again is answer
    assert all(a is b for a, b in zip(memory, (again.p, again.value, again.dual["eta"]), strict=True))
    fresh = rows.worst_case(w)
    np.testing.assert_allclose(again.value, fresh.value, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(rows.worst_case(w, out=answer).iterations, fresh.iterations)


def test_values_may_be_those_of_the_answer_that_is_overwritten():
    rng = np.random.default_rng(8)
    indptr, indices = structure(rng, VALUES)
    rows = rows_of("kl", rng, indptr, indices)
    answer = rows.worst_case(rng.normal(size=VALUES))
    expected = rows.worst_case(answer.value.copy(), offsets=answer.p.copy())
    rows.worst_case(answer.value, offsets=answer.p, out=answer)
    np.testing.assert_array_equal(answer.value, expected.value)
    np.testing.assert_array_equal(answer.p, expected.p)


@pytest.mark.parametrize("out", [Box.ragged(0.0, 1.0, indptr=[0, 2]).worst_case([1.0, 2.0]), "text"])
def test_only_an_answer_of_the_same_rows_can_be_overwritten(out):
    rows = KL.ragged([0.5, 0.5], 0.1, indptr=[0, 2])
    with pytest.raises(InvalidInput, match="out must be an earlier answer of these rows"):
        rows.worst_case([1.0, 2.0], out=out)


def test_rows_of_one_entry():
    v = np.array([1.0, -2.0, 5.0])
    at: dict[str, Any] = {"indptr": [0, 1, 2, 3], "indices": [2, 1, 2]}
    one = np.ones(3)
    for rows in (
        Box.ragged(0.0, 1.0, **at),
        KL.ragged(one, 0.1, **at),
        CDNorm.ragged(one, 0.5, 1.0, **at),
        Ellipsoid.ragged(one, 1.0, 0.1, **at),
        Wasserstein1.ragged(one, 0.1, **at),
        Wasserstein1.ragged(one, 0.1, np.ones((3, 3)) - np.eye(3), **at),
    ):
        answer = rows.worst_case(v)
        np.testing.assert_array_equal(answer.value, [5.0, -2.0, 5.0])
        np.testing.assert_array_equal(answer.p, one)


def test_an_index_may_repeat_in_a_row():
    at: dict[str, Any] = {"indptr": [0, 3], "indices": [1, 1, 0]}
    v, f = np.array([1.0, 2.0]), np.array([2.0, 2.0, 1.0])
    q = np.array([0.25, 0.25, 0.5])
    answer = CDNorm.ragged(q, 0.125, 2.0, **at).worst_case(v)
    assert answer.value[0] == CDNorm(q, 0.125, 2.0).worst_case(f).value
    moved = Wasserstein1.ragged(q, 0.25, np.array([[0.0, 1.0], [1.0, 0.0]]), **at).worst_case(v)
    assert moved.value[0] == pytest.approx(0.75 * 2.0 + 0.25)


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


@pytest.mark.parametrize("factor", [1e-200, 1e200, 1e-300])
@pytest.mark.parametrize("kind", KINDS)
def test_extreme_losses_are_scaled_and_answered_again(kind, factor):
    rng = np.random.default_rng(11)
    indptr, indices = structure(rng, 30)
    rows = rows_of(kind, rng, indptr, indices)
    v = rng.normal(size=VALUES)
    extreme, usual = rows.worst_case(v * factor), rows.worst_case(v)
    np.testing.assert_allclose(extreme.value / factor, usual.value, rtol=0, atol=1e-9)
    assert extreme.backend == "closed-form"


def test_zeros_in_a_centre_do_not_set_the_scale():
    q, v = np.array([0.5, 0.5, 0.0, 0.25, 0.0, 0.75]), np.array([1.0, 1.0 + 1e-9, 1e200])
    rows = KL.ragged(q, 0.1, indptr=[0, 3, 6], indices=[0, 1, 2, 0, 2, 1])
    answer = rows.worst_case(v)
    for b, part in enumerate((slice(0, 3), slice(3, 6))):
        single = KL(q[part], 0.1).worst_case(v[rows.indices[part]])
        np.testing.assert_allclose(answer.p[part], single.p, rtol=0, atol=1e-12)
        assert answer.value[b] == single.value


@pytest.mark.parametrize("name", ["box", "kl"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_named_if_a_row_uses_them(name, bad):
    at: dict[str, Any] = {"indptr": [0, 2, 5], "indices": [3, 0, 1, 2, 3]}
    q = [1.0, 0.0, 0.2, 0.0, 0.8]
    rows = KL.ragged(q, 0.1, **at) if name == "kl" else Box.ragged(0.0, 1.0, **at)
    v = np.array([1.0, 2.0, bad, 4.0, np.nan])
    with pytest.raises(InvalidLosses, match=rf"got {bad} at entry 1 of row 1, from values\[2\] = {bad}$"):
        rows.worst_case(v)
    v[2] = 0.0
    assert np.isfinite(rows.worst_case(v).value).all()  # the last value belongs to no row
    offsets = np.array([0.0, 0.0, bad, 0.0, 0.0])
    with pytest.raises(
        InvalidLosses, match=rf"entry 0 of row 1, from values\[1\] = 2.0 and offsets\[2\] = {bad}"
    ):
        rows.worst_case(v, offsets=offsets)


def spoil(monkeypatch, *wrong: int) -> None:
    """Let the kernel give some rows a certificate that breaks the promise."""
    real = Ragged._kernel

    def spoilt(rows: Ragged):
        kernel = real(rows)

        def run(*arguments):
            kernel(*arguments)
            first, after, out = arguments[6], arguments[7], arguments[-1]
            for b in set(wrong) & set(range(first, after)):
                out[STATUS, b], out[2, b] = NOT_SOLVED, 0.5

        return run

    monkeypatch.setattr(Ragged, "_kernel", spoilt)


def test_a_row_without_a_proof_is_answered_by_a_solver(monkeypatch):
    rng = np.random.default_rng(12)
    indptr, indices = structure(rng, 10)
    rows, v = rows_of("box", rng, indptr, indices), rng.normal(size=VALUES)
    usual = rows.worst_case(v)
    spoil(monkeypatch, 4, 7)
    answer = rows.worst_case(v)
    np.testing.assert_allclose(answer.value, usual.value, rtol=0, atol=tolerances.CONIC_GAP * np.ptp(v))
    assert answer.backend.startswith("closed-form and ")
    assert set(answer.by_solver) == {4, 7}
    assert answer.row(4) is answer.by_solver[4]
    assert np.isnan(answer.dual["nu"][[4, 7]]).all()
    assert np.isfinite(np.delete(answer.dual["nu"], [4, 7])).all()
    monkeypatch.undo()
    np.testing.assert_allclose(rows.worst_case(v, warm_start=answer, out=answer).value, usual.value)
    assert (answer.backend, answer.by_solver) == ("closed-form", {})


def test_if_no_solver_helps_the_rows_are_named_and_the_others_kept(monkeypatch):
    rows = Box.ragged(0.0, 0.75, indptr=[0, 2, 4, 6])
    v = np.arange(6.0)
    spoil(monkeypatch, 1)

    def none(self, losses):
        raise SolverFailed("none")

    monkeypatch.setattr(Box, "_by_solver", none)
    with pytest.raises(SolverFailed, match=r"no answer of Box for row 1 of 3 has a certificate") as caught:
        rows.worst_case(v)
    assert caught.value.rows == (1,)
    assert caught.value.answer is not None
    np.testing.assert_allclose(caught.value.answer.value[[0, 2]], [0.75, 4.75])


def test_rows_and_answers_can_be_pickled():
    rng = np.random.default_rng(13)
    indptr, indices = structure(rng, 20)
    rows, v = rows_of("kl", rng, indptr, indices), rng.normal(size=VALUES)
    answer = rows.worst_case(v)
    rows, copy = pickle.loads(pickle.dumps((rows, answer)))
    np.testing.assert_array_equal(copy.p, answer.p)
    np.testing.assert_array_equal(copy.iterations, answer.iterations)
    assert rows.worst_case(v, out=copy) is copy
    np.testing.assert_array_equal(copy.value, answer.value)


def test_what_they_look_like():
    rows = KL.ragged([0.5, 0.5, 0.2, 0.8], [0.1, 0.2], indptr=[0, 2, 4])
    assert repr(rows) == "Ragged(KL, 2 rows, 4 entries)"
    assert len(rows) == 2
    answer = rows.worst_case([1.0, 2.0, 0.0, 4.0])
    assert repr(answer).startswith("RaggedWorstCase(2 rows, 4 entries, largest gap=")
    assert isinstance(answer.row(-1), WorstCase)
    assert rows.row(-1).radius == 0.2
    with pytest.raises(IndexError):
        answer.row(2)
    with pytest.raises(InvalidInput, match="there is no row 2: there are 2"):
        rows.row(2)


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
    with pytest.raises(InvalidParameter, match="shape must be positive, got 0.0"):
        Ellipsoid.ragged(q, [1.0, 1.0, 0.0, 1.0], 0.1, **at)
    with pytest.raises(InvalidParameter, match="spread must not be negative, got -1.0"):
        CDNorm.ragged(q, -1.0, 0.1, **at)


def test_values_offsets_and_scale_are_checked():
    rows = KL.ragged(**KL_HALVES, indices=[0, 1, 1, 2])
    with pytest.raises(InvalidLosses, match="values must have at least 3 entries"):
        rows.worst_case([1.0, 2.0])
    with pytest.raises(InvalidLosses, match=r"values must be a vector, got shape \(1, 3\)"):
        rows.worst_case([[1.0, 2.0, 3.0]])
    with pytest.raises(InvalidLosses, match="offsets must have one number per entry, 4, got 3"):
        rows.worst_case([1.0, 2.0, 3.0], offsets=[1.0, 2.0, 3.0])
    with pytest.raises(InvalidLosses, match="scale must be finite, got nan"):
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
    able = "Box, CDNorm, Ellipsoid, KL, Wasserstein1"
    with pytest.raises(
        BackendUnsuitable, match=rf"Polyhedron has no closed form .* \({'.*'}{able}.*\); make a"
    ):
        Polyhedron.ragged(np.eye(2), [1.0, 1.0], indptr=[0, 2])


def test_a_subclass_with_other_constraints_does_not_inherit_the_rows():
    class Halved(KL):
        def constraints(self, p):
            return [*super().constraints(p), p <= 0.5]

    assert KL.has_ragged
    assert not Halved.has_ragged
    with pytest.raises(BackendUnsuitable, match="Halved has no closed form"):
        Halved.ragged(**KL_HALVES)
