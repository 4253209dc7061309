"""A conic program: what a set's oracle solves, for any losses.

    maximise  fᵀx[columns]   subject to   b - A x in K

x holds p at `columns` and elsewhere the auxiliary variables of the constraints (epigraphs, transport plans).
K is a product of cones, one after the other down the rows. compile.py makes programs from `constraints`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.errors import EmptySet, InvalidParameter
from uncertainty_sets.packages import load

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array

CONES: Mapping[str, str] = {
    "zero": "s = 0",
    "nonneg": "s >= 0",
    "soc": "s₀ >= ‖(s₁, s₂, …)‖",
    "exp": "closure of s₁·exp(s₀/s₁) <= s₂, s₁ > 0",
}
"""The cones a program may hold, in the order of its rows; every exp cone has size 3."""


USUAL = 13
"""Exponential cones are scaled beyond 2 to this power: N·p instead of p, up to N = 8,192, helps solvers."""

SWEEPS = 40
"""Rounds of the search for units of auxiliary variables; each settles one more link of a chain of them."""

ORDINARY = 4
"""Units within a factor of 2 to this power are left alone: no solver loses digits by them."""


@dataclass(frozen=True, eq=False)
class ConicProgram:
    """maximise fᵀx[columns] subject to b - A x in K.

    Attributes:
        A: sparse columns, (rows, variables).
        b: (rows,).
        cones: (kind, size) down the rows; the kinds are those of `CONES`, in that order.
        columns: the places of p in x, (N,).

    Any y in the dual cone K* with (Aᵀy) = 0 outside `columns` bounds the maximum by
    bᵀy + max(f - (Aᵀy)[columns]), since p is in the simplex.
    """

    A: Any
    b: Array
    cones: tuple[tuple[str, int], ...]
    columns: NDArray[np.intp]

    @property
    def size(self) -> int:
        """N, the number of entries of p."""
        return int(self.columns.size)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The cones that a solver needs."""
        return frozenset(kind for kind, _ in self.cones)

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """The first row of each cone."""
        return np.cumsum([0] + [size for _, size in self.cones])[:-1].astype(np.intp)

    @cached_property
    def auxiliary(self) -> NDArray[np.intp]:
        """The columns of x that do not hold p."""
        return np.setdiff1d(np.arange(self.A.shape[1]), self.columns).astype(np.intp)

    def rows(self, kind: str) -> NDArray[np.intp]:
        """The rows of all cones of that kind."""
        spans = [
            np.arange(start, start + size)
            for start, (each, size) in zip(self.starts, self.cones, strict=True)
            if each == kind
        ]
        return np.concatenate(spans).astype(np.intp) if spans else np.zeros(0, dtype=np.intp)

    def cost(self, losses: Array) -> Array:
        """The objective of the minimisation that solvers run: -f at `columns`, 0 elsewhere."""
        c = np.zeros(self.A.shape[1])
        c[self.columns] = -losses
        return c


def polyhedral_program(D: Array, c: Array) -> ConicProgram:
    """The program of {p : D p <= c} in the simplex, written down without cvxpy."""
    sparse = load("scipy.sparse", "the conic program of a Polyhedron")
    size = D.shape[1]
    A = sparse.vstack(
        [sparse.csc_array(np.ones((1, size))), -sparse.eye(size, format="csc"), sparse.csc_array(D)]
    )
    b = np.concatenate([[1.0], np.zeros(size), c])
    cones = (("zero", 1), ("nonneg", size + len(c)))
    return ConicProgram(sparse.csc_array(A), b, cones, np.arange(size, dtype=np.intp))


def checked(program: ConicProgram, name: str) -> ConicProgram:
    """The program with all numbers finite: rows that an infinite b leaves free are dropped.

    Raises:
        InvalidParameter: NaN, or an infinite number that is not a missing bound.
        EmptySet: an inequality with -inf on its right.
    """
    A, b = program.A, program.b
    if not np.isfinite(A.data).all():
        bad = A.data[~np.isfinite(A.data)][0]
        raise InvalidParameter(f"the constraints of {name} have a coefficient of {bad}; all must be finite")
    if np.isnan(b).any():
        raise InvalidParameter(f"the constraints of {name} have a constant that is NaN; all must be numbers")
    infinite = np.isinf(b)
    if not infinite.any():
        return program
    keep, cones = np.ones(b.size, dtype=bool), []
    for start, (kind, size) in zip(program.starts, program.cones, strict=True):
        rows = slice(start, start + size)
        if kind == "nonneg":
            if (b[rows] == -np.inf).any():
                raise EmptySet(f"{name} is empty: one of its constraints has -inf on the right of <=")
            keep[rows] = ~infinite[rows]
        elif infinite[rows].any():
            # A second-order cone with an infinite s₀ holds everything; any other infinity is an error.
            if kind != "soc" or b[start] != np.inf or infinite[rows].sum() > 1:
                raise InvalidParameter(
                    f"the constraints of {name} have an infinite constant where a number is needed; only a "
                    "bound may be infinite, and is then left out"
                )
            keep[rows] = False
        cones.append((kind, int(keep[rows].sum())))
    return ConicProgram(A[keep], b[keep], tuple(each for each in cones if each[1]), program.columns)


def without_idle_rows(program: ConicProgram) -> ConicProgram:
    """The program without inequalities in p alone that no distribution can break.

    Their multipliers are 0; in a dual problem a price of 1e12 would cost a solver all its digits.
    """
    by_row = program.A.tocsr()
    on_p, rows = by_row[:, program.columns], program.rows("nonneg")
    alone = np.diff(on_p.indptr)[rows] == np.diff(by_row.indptr)[rows]
    most = np.array([on_p.data[on_p.indptr[row] : on_p.indptr[row + 1]].max(initial=0.0) for row in rows])
    idle = rows[alone & (program.b[rows] > 0.0) & (most <= program.b[rows])]
    if not idle.size:
        return program
    keep = np.setdiff1d(np.arange(program.b.size), idle)
    cones = tuple((kind, size - idle.size if kind == "nonneg" else size) for kind, size in program.cones)
    kept = tuple(cone for cone in cones if cone[1])
    return ConicProgram(program.A[keep], program.b[keep], kept, program.columns)


def equilibrated(program: ConicProgram) -> tuple[ConicProgram, Array]:
    """The program with rows times powers of two that bring the largest entry of each into [1, 2).

    The rows of a cone of another kind share one factor. Also returns the factors: a multiplier of the given
    program is its factor times that of the equilibrated one. Solvers' tolerances are absolute: too tight for
    a row in units of 1e9, and no limit at all for one in units of 1e-9.
    """
    factors = np.ldexp(1.0, _row_exponents(program))
    if (factors == 1.0).all():
        return program, factors
    return ConicProgram(_scaled(program.A, factors), program.b * factors, *_rest(program)), factors


def in_natural_units(program: ConicProgram) -> ConicProgram:
    """The program with its auxiliary variables in units in which they are about as large as p.

    z = 1e-8·p and z <= 4e-9 have entries of size 1 in every row and column of z; what is wrong is that z is
    1e-8. The units are those that bring all entries of A and b nearest to 1, in the least squares of their
    logarithms, with p in its own unit (Curtis and Reid). From there every variable goes to the least change
    that one of its rows asks for: beside 1e14·(p - q) <= z, Σz <= 1 says that z is as it should be. Powers of
    two; ordinary units are left alone.
    """
    A = program.A.tocoo()
    kept = (A.data != 0.0) & np.isfinite(A.data)
    group, row, column = _groups(program), A.row[kept], A.col[kept]
    size, known = np.log2(np.abs(A.data[kept])), program.b != 0.0
    right, right_size = group[known], np.log2(np.abs(program.b[known]))
    count = np.bincount(group[row], minlength=group.size) + np.bincount(right, minlength=group.size)
    fixed = np.bincount(right, right_size, minlength=group.size)
    own = np.zeros(A.shape[1])
    free, entries = np.zeros(own.size, dtype=bool), np.bincount(column, minlength=own.size)
    free[program.auxiliary] = True
    for least in (False, True):
        for _ in range(SWEEPS):
            total = fixed + np.bincount(group[row], size + own[column], minlength=group.size)
            asked = (total / np.maximum(count, 1))[group[row]] - size
            if least:
                low, high = np.full(own.size, np.inf), np.full(own.size, -np.inf)
                np.minimum.at(low, column, asked)
                np.maximum.at(high, column, asked)
                found = np.clip(0.0, low, high)
            else:
                found = np.bincount(column, asked, minlength=own.size) / np.maximum(entries, 1)
            before, own = own, np.where(free & (entries > 0), found, 0.0)
            if np.abs(own - before).max(initial=0.0) < 0.1:
                break
    if not np.abs(own).max(initial=0.0) > ORDINARY:
        return program
    units = np.ldexp(1.0, np.clip(np.rint(own), -500, 500).astype(int))
    return ConicProgram(_scaled(program.A.T, units).T.tocsc(), program.b, *_rest(program))


def _row_exponents(program: ConicProgram) -> NDArray[np.int64]:
    """The power of two for each row; a row without entries is measured by its b."""
    by_row, group = program.A.tocoo(), _groups(program)
    largest, constant = np.zeros(group.size), np.zeros(group.size)
    np.maximum.at(largest, group[by_row.row], np.abs(by_row.data))
    np.maximum.at(constant, group, np.abs(program.b))
    largest = np.where(largest > 0, largest, constant)
    exponents = np.where(largest > 0, 1 - np.frexp(largest)[1], 0)
    exponential = program.rows("exp")
    usual = np.abs(exponents[exponential]) <= USUAL
    exponents[exponential[usual]] = 0
    return np.asarray(np.clip(exponents, -1000, 1000)[group])


def _groups(program: ConicProgram) -> NDArray[np.intp]:
    """For each row the first one of its cone, or itself if it is linear: those rows are scaled together."""
    group = np.arange(program.b.size)
    for start, (kind, size) in zip(program.starts, program.cones, strict=True):
        if kind not in {"zero", "nonneg"}:
            group[start : start + size] = start
    return group


def _scaled(A: Any, factors: Array) -> Any:
    """Its rows times the factors."""
    from scipy import sparse

    return sparse.csc_array(sparse.dia_array((factors[None, :], [0]), shape=(factors.size,) * 2) @ A)


def _rest(program: ConicProgram) -> tuple[tuple[tuple[str, int], ...], NDArray[np.intp]]:
    return program.cones, program.columns
