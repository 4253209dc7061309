"""A set's oracle as one conic program, compiled once and solved for any losses.

    maximise  fᵀx[columns]   subject to   b - A x in K

x holds p at `columns` and, elsewhere, the auxiliary variables that the constraints brought along
(epigraphs, transport plans). K is a product of cones, one after the other down the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.errors import (
    BackendUnsuitable,
    EmptySet,
    InvalidInput,
    InvalidParameter,
    SolverFailed,
)

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.contract import SetContract

CONES: Mapping[str, str] = {
    "zero": "s = 0",
    "nonneg": "s >= 0",
    "soc": "s₀ >= ‖(s₁, s₂, …)‖",
    "exp": "closure of s₁·exp(s₀/s₁) <= s₂, s₁ > 0",
}
"""The cones a program may hold, in the order of its rows; every exp cone has size 3."""


@dataclass(frozen=True, eq=False)
class ConicProgram:
    """maximise fᵀx[columns] subject to b - A x in K.

    Attributes:
        A: sparse columns, (rows, variables).
        b: (rows,).
        cones: (kind, size) down the rows; the kinds are those of `CONES`, in that order.
        columns: where p sits in x, (N,).

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
    from scipy import sparse

    size = D.shape[1]
    A = sparse.vstack(
        [sparse.csc_array(np.ones((1, size))), -sparse.eye(size, format="csc"), sparse.csc_array(D)]
    )
    b = np.concatenate([[1.0], np.zeros(size), c])
    cones = (("zero", 1), ("nonneg", size + len(c)))
    return ConicProgram(sparse.csc_array(A), b, cones, np.arange(size, dtype=np.intp))


def compile_program(uncertainty_set: SetContract, size: int) -> ConicProgram:
    """The program of `uncertainty_set.constraints` in the simplex, by way of cvxpy's canonical form.

    Costs a few milliseconds and up, whatever the losses: callers keep the result.
    """
    import cvxpy as cp
    from scipy import sparse

    name = type(uncertainty_set).__name__
    p = cp.Variable(size)
    # The coefficients 1 … N mark the columns of p in the objective that comes out. cvxpy's own map,
    # var_id_to_col, misses variables with attributes, and a Parameter costs seconds at N = 10,000.
    marks = np.arange(1.0, size + 1.0)
    problem = cp.Problem(
        cp.Minimize(marks @ p), [cp.sum(p) == 1, p >= 0, *set_constraints(uncertainty_set, p)]
    )
    if problem.is_mixed_integer():
        raise InvalidParameter(
            f"the constraints of {name} have integer variables; an uncertainty set is convex"
        )
    try:
        # Clarabel's data are in standard form with every cone a set may use; nothing is solved here.
        data, _, _ = problem.get_problem_data(cp.CLARABEL)
    except cp.error.DCPError as error:
        raise InvalidParameter(
            f"the constraints of {name} are not convex by cvxpy's rules (DCP): {error}"
        ) from error
    dims = data["dims"]
    if dims.psd or dims.p3d or getattr(dims, "pnd", None):
        lacking = "semidefinite" if dims.psd else "power"
        raise BackendUnsuitable(
            f"the constraints of {name} need the {lacking} cone, and no backend here takes more than "
            f"{', '.join(CONES)}. Norms and powers can be written with second-order cones; or solve "
            f"the set's constraints with cvxpy itself"
        )
    cones = [("zero", dims.zero), ("nonneg", dims.nonneg)]
    cones += [("soc", size) for size in dims.soc] + [("exp", 3)] * dims.exp
    marked = np.flatnonzero(data["c"])
    columns = marked[np.argsort(data["c"][marked])].astype(np.intp)
    if not np.array_equal(data["c"][columns], marks):
        raise SolverFailed(f"cvxpy {cp.__version__} changed the objective of {name} in a way not known here")
    return ConicProgram(
        sparse.csc_array(data["A"]),
        np.asarray(data["b"], dtype=np.float64),
        tuple((kind, int(rows)) for kind, rows in cones if rows),
        columns,
    )


def checked(program: ConicProgram, name: str) -> ConicProgram:
    """The set's program with all numbers finite: rows that an infinite b leaves free are dropped.

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
            # A second-order cone with an infinite s₀ holds everything; any other infinity means nothing.
            if kind != "soc" or b[start] != np.inf or infinite[rows].sum() > 1:
                raise InvalidParameter(
                    f"the constraints of {name} have an infinite constant where a number is needed; only a "
                    "bound may be infinite, which is then no bound"
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
    """The program with linear rows times powers of two that bring their largest entry into [1, 2).

    Also the factors: a multiplier of the given program is the factor times the one of the equilibrated.
    Solvers' tolerances are absolute, and a row in units of 1e9 would not be held to them. Rows of other
    cones are left as they are.
    """
    largest = np.zeros(program.b.size)
    by_row = program.A.tocoo()
    np.maximum.at(largest, by_row.row, np.abs(by_row.data))
    exponents = np.where(largest > 0, 1 - np.frexp(largest)[1], 0)
    linear = np.zeros(program.b.size, dtype=bool)
    linear[program.rows("zero")] = linear[program.rows("nonneg")] = True
    factors = np.ldexp(1.0, np.where(linear, np.clip(exponents, -1000, 1000), 0))
    if (factors == 1.0).all():
        return program, factors
    from scipy import sparse

    A = sparse.csc_array(sparse.dia_array((factors[None, :], [0]), shape=(factors.size,) * 2) @ program.A)
    return ConicProgram(A, program.b * factors, program.cones, program.columns), factors


def set_constraints(uncertainty_set: SetContract, p: Any) -> list[Any]:
    """The set's own constraints at p, checked to be a list of cvxpy constraints, without infinite bounds."""
    import cvxpy as cp

    name = type(uncertainty_set).__name__
    try:
        constraints = uncertainty_set.constraints(p)
    except InvalidInput:
        raise
    except (ValueError, IndexError) as error:  # what NumPy and cvxpy raise for shapes that do not fit
        raise InvalidInput(
            f"{name}.constraints cannot be written for p with {p.size} entries: {error}"
        ) from error
    try:
        constraints = list(constraints)
    except TypeError as error:
        raise InvalidInput(
            f"{name}.constraints must return a list of cvxpy constraints, got {constraints!r}"
        ) from error
    for each in constraints:
        # A comparison of constants gives True or False, which cvxpy would take as a constraint too.
        if not isinstance(each, cp.constraints.constraint.Constraint | bool | np.bool_):
            raise InvalidInput(
                f"{name}.constraints must return a list of cvxpy constraints; one of its items is {each!r}"
            )
        for parameter in [] if isinstance(each, bool | np.bool_) else each.parameters():
            if parameter.value is None:
                raise InvalidParameter(
                    f"the constraints of {name} use the cvxpy parameter {parameter.name()!r}, which has no "
                    "value: set its `value` before the set is used"
                )
    finite = [_without_infinite_bounds(each) for each in constraints]
    return [each for each in finite if each is not None]


def _without_infinite_bounds(constraint: Any) -> Any:
    """An inequality without the entries that an infinite constant leaves free; None if none is left."""
    import cvxpy as cp
    from scipy import sparse

    if not isinstance(constraint, cp.constraints.Inequality):
        return constraint
    sides, free = [], np.zeros(constraint.shape, dtype=bool)
    for side, infinite in zip(constraint.args, (-np.inf, np.inf), strict=True):
        if side.is_constant():
            value = side.value.toarray() if sparse.issparse(side.value) else np.asarray(side.value)
            sides.append(np.broadcast_to(value, constraint.shape))
            free = free | (sides[-1] == infinite)
        else:
            sides.append(side)
    if not free.any():
        return constraint
    keep = np.flatnonzero(~free.ravel(order="F"))
    if not keep.size:
        return None
    left, right = (
        each.ravel(order="F")[keep]
        if isinstance(each, np.ndarray)
        else each
        if each.size == 1
        else cp.vec(each, order="F")[keep]
        for each in sides
    )
    return left <= right
