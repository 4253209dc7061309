"""Ragged rows that do not come out at once: scaled, refused by name, or answered by a solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import tolerances
from tests.uncertainty_sets.ragged_cases import KINDS, VALUES, rows_of, structure
from uncertainty_sets import KL, Box, Ragged
from uncertainty_sets.errors import InvalidLosses, SolverFailed
from uncertainty_sets.kernels.layout import GAP, NOT_SOLVED, STATUS


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
                out[STATUS, b], out[GAP, b] = NOT_SOLVED, 0.5

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
