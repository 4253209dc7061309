"""Ragged rows answer as the sets of their rows do, and are checked once, where they are made."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from tests import tolerances
from tests.uncertainty_sets.ragged_cases import (
    KINDS,
    VALUES,
    along,
    dyadic,
    losses,
    rows_of,
    structure,
)
from uncertainty_sets import (
    KL,
    Box,
    CDNorm,
    CVaRMixture,
    Ellipsoid,
    RaggedWorstCase,
    Spectral,
    TotalVariation,
    Wasserstein1,
    WeightedL1,
    WorstCase,
    get_set,
)
from uncertainty_sets.errors import (
    InvalidInput,
)


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
        assert tuple(answer.dual) == rows._keys
        assert set(answer.dual) in (set(), set(expected.dual))  # no room for more than two


@pytest.mark.parametrize("longest", [1, 3, 50, 300])
@pytest.mark.parametrize(
    "name", ["box", "kl", "cd-norm", "equal", "ellipsoid", "line", "matrix", "tv", "l1", "ranks", "mix"]
)
def test_the_same_numbers_as_the_set_of_each_row(name, longest):
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
        "tv": lambda: TotalVariation.ragged(q, radius, **at),
        "l1": lambda: WeightedL1.ragged(q, spread, radius, **at),
        "ranks": lambda: Spectral.ragged(q, np.sqrt, **at),
        "mix": lambda: CVaRMixture.ragged(q, [1.0, 0.25, 0.0625], [0.25, 0.25, 0.5], **at),
        "line": lambda: Wasserstein1.ragged(q, radius, x, **at),
        "matrix": lambda: Wasserstein1.ragged(q, radius, np.abs(np.subtract.outer(x, x)), **at),
    }[name]()
    v = rng.normal(size=size)
    answer = rows.worst_case(v)
    for b in range(40):
        single = rows.row(b).worst_case(v[indices[indptr[b] : indptr[b + 1]]])
        row = answer.row(b)
        if name == "line":  # its sums are in any order, which the compiler chooses anew for every caller
            assert row.value == pytest.approx(single.value, rel=1e-14)
            np.testing.assert_allclose(row.p, single.p, rtol=0.0, atol=1e-14)
            assert row.upper_bound == pytest.approx(single.upper_bound, rel=1e-14)
            continue
        assert (row.value, row.upper_bound, row.gap) == (single.value, single.upper_bound, single.gap)
        assert row.iterations == single.iterations
        assert row.dual == ({} if name in {"ranks", "mix"} else single.dual)
        np.testing.assert_array_equal(row.p, single.p)


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_run_in_pieces_and_agree_with_few(kind):
    rng = np.random.default_rng(7)
    indptr, indices = structure(rng, 60)
    rows = rows_of(kind, rng, indptr, indices)
    copies = 400  # more entries than one thread takes
    longer = np.concatenate([[0], np.cumsum(np.tile(np.diff(indptr), copies))])
    name = kind.partition(" ")[0]

    def repeated(key, given):
        if along(name)[key] in {"values", "all"}:
            return given
        return np.tile(given, copies) if given.size > 1 else given[0]

    many = get_set(name).ragged(
        **{key: repeated(key, given) for key, given in rows._given.items()},
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


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_one_entry(kind):
    indptr, indices = np.arange(4), np.array([2, 1, 2])
    answer = rows_of(kind, np.random.default_rng(1), indptr, indices).worst_case([1.0, -2.0, 5.0])
    np.testing.assert_array_equal(answer.value, [5.0, -2.0, 5.0])
    np.testing.assert_array_equal(answer.p, np.ones(3))


def test_an_index_may_repeat_in_a_row():
    at: dict[str, Any] = {"indptr": [0, 3], "indices": [1, 1, 0]}
    v, f = np.array([1.0, 2.0]), np.array([2.0, 2.0, 1.0])
    q = np.array([0.25, 0.25, 0.5])
    answer = CDNorm.ragged(q, 0.125, 2.0, **at).worst_case(v)
    assert answer.value[0] == CDNorm(q, 0.125, 2.0).worst_case(f).value
    moved = Wasserstein1.ragged(q, 0.25, np.array([[0.0, 1.0], [1.0, 0.0]]), **at).worst_case(v)
    assert moved.value[0] == pytest.approx(0.75 * 2.0 + 0.25)


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
    for each in (rows, answer):
        with pytest.raises(InvalidInput, match="there is no row 2: there are 2"):
            each.row(2)


def test_rows_of_a_rank_share_one_distortion():
    """`take`, `row` and pickling keep a function; what it returns is checked."""
    rng = np.random.default_rng(14)
    indptr, indices = structure(rng, 20)
    q, v = dyadic(rng, np.diff(indptr)), rng.normal(size=VALUES)
    rows = Spectral.ragged(q, np.sqrt, indptr=indptr, indices=indices)
    whole = rows.worst_case(v)
    np.testing.assert_array_equal(rows.take([7, 3]).worst_case(v).value, whole.value[[7, 3]])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(rows)).worst_case(v).p, whole.p)
    assert rows.row(3).distortion is np.sqrt
    levels = CVaRMixture.ragged(q, [1.0, 0.25], [0.5, 0.5], indptr=indptr, indices=indices)
    same = Spectral.ragged(q, [(0, 0), (0.25, 0.625), (1, 1)], indptr=indptr, indices=indices)
    np.testing.assert_allclose(levels.worst_case(v).value, same.worst_case(v).value, rtol=1e-12)
    np.testing.assert_array_equal(levels.take([2]).row(0).tails, [1.0, 0.25])

    def short(u):
        return np.sqrt(u) if u.size > 300 else np.sqrt(u[:1])  # wrong, but not on the grid of the check

    with pytest.raises(InvalidInput, match="distortion must return a finite number for each entry"):
        Spectral.ragged(q, short, indptr=indptr, indices=indices).worst_case(v)
