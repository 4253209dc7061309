"""Repair a solver's approximate multipliers into a valid upper bound.

For a `ConicProgram` (maximise fᵀx[columns] subject to b - A x in K) and any y with

    y in K*   and   (Aᵀy) = 0 in the auxiliary columns,

every feasible x has fᵀp <= bᵀy + max(f - (Aᵀy)[columns]), because p is in the simplex: a wrong y makes
the bound loose, never false. A solver's y misses both conditions by its tolerance; here it is moved until it
satisfies them, in four steps, each cheap compared with the solve:

1. each cone's part of y is lifted into the dual cone;
2. least squares takes y onto (Aᵀy) = 0;
3. that may leave the cone again by a little: the smallest sufficient multiple of an interior point y° of
   {y in K* : (Aᵀy) = 0}, found once per program, is added;
4. a column that has a row for itself, x_j >= l, needs only (Aᵀy)_j >= 0 of the others: that row takes the
   rest.

Each sum of the bound has a rounding error of at most (its number of terms)·2⁻⁵³ times the sum of their sizes;
that much is added, so that the bound stays above the maximum even if the numbers are large. What rounding
leaves in the auxiliary columns counts at the size of the solver's auxiliary variables: that one term is an
estimate, since those of the maximiser are not known. y = 0 proves max f, which replaces any larger bound.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.conic.program import ConicProgram

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array

ROUNDING = 1e-13
"""A residual of this size, relative to its terms, is rounding of their sum."""

UNIT = 2.0**-53
"""The relative error of one sum or product."""

TOO_LARGE = 1e100
"""Multipliers beyond this, of a program with entries near 1, prove nothing: their squares would overflow."""

CENTER_PRICE = 1e-6
"""A cone is pushed into its interior unless a unit of push costs more than 1/CENTER_PRICE in the bound."""

EXP_INTERIOR = (-1.0, 0.0, 1.0)
"""A point well inside the dual exponential cone."""


class _Projection:
    """residual -> the smallest step with Aᵀ step = residual; factorised when there is a residual."""

    def __init__(self, A: Any) -> None:
        self.A, self.transposed = A, A.T

    @cached_property
    def _factors(self) -> Any:
        from scipy import sparse
        from scipy.sparse.linalg import splu

        height, width = self.A.shape
        # The augmented system stays sparse, while AᵀA may be dense; the small corner block makes it
        # solvable even if columns of A depend on each other.
        return splu(
            sparse.bmat(
                [[sparse.eye(height), self.A], [self.transposed, -1e-14 * sparse.eye(width)]], format="csc"
            )
        )

    def __call__(self, residual: Array) -> Array:
        height = self.A.shape[0]
        return np.asarray(self._factors.solve(np.concatenate([np.zeros(height), residual]))[:height])


class Certifier:
    """Computes upper bounds for one program; what depends on the program alone is computed once."""

    def __init__(self, program: ConicProgram) -> None:
        self.program = program
        self.cone = DualCone(program)
        self._projections: dict[bytes, _Projection] = {}

    def _single_rows(self) -> tuple[Any, Any, Array]:
        """The nonneg rows that hold one variable: (their columns, the rows, the coefficients)."""
        by_row = self.program.A.tocsr()
        rows = self.cone.nonneg[np.diff(by_row.indptr)[self.cone.nonneg] == 1]
        first = by_row.indptr[rows]
        return by_row.indices[first], rows, by_row.data[first]

    @cached_property
    def _simplex_rows(self) -> Any:
        """The rows p_j >= 0 and 1ᵀp = 1: max(f - (Aᵀy)[columns]) covers them, with fewer terms."""
        program = self.program
        columns, rows, coefficients = self._single_rows()
        positive = rows[(coefficients < 0) & (program.b[rows] == 0.0) & np.isin(columns, program.columns)]
        sums = program.A.tocsr()[self.cone.zero]
        whole = (sums[:, program.columns] == 1.0).sum(axis=1) == program.size
        alone = np.diff(sums.indptr) == program.size
        total = self.cone.zero[whole & alone & (program.b[self.cone.zero] == 1.0)]
        return np.concatenate([positive, total])

    @cached_property
    def _transposed(self) -> Any:
        """Aᵀ, kept: scipy takes longer to transpose a small matrix than to multiply it."""
        return self.program.A.T

    @cached_property
    def _sizes(self) -> Any:
        """|Aᵀ|, for the size of the terms in Aᵀy."""
        return abs(self.program.A).T

    @cached_property
    def _column_error(self) -> Array:
        """The largest error of each entry of f - Aᵀy, over the size of its terms."""
        return np.asarray(UNIT * (np.diff(self.program.A.indptr) + 2.0))

    @cached_property
    def _size_of_b(self) -> tuple[Array, float]:
        """|b|, and the largest error of bᵀy over the size of its terms."""
        b = self.program.b
        return np.abs(b), UNIT * (np.count_nonzero(b) + 2.0)

    @cached_property
    def _every_row(self) -> Any:
        return np.ones(self.program.b.size, dtype=bool)

    @cached_property
    def _own_rows(self) -> tuple[Any, Any, Array]:
        """Auxiliary columns with a nonneg row that holds nothing else: (columns, rows, coefficients)."""
        columns, rows, coefficients = self._single_rows()
        _, first = np.unique(columns, return_index=True)
        first = first[np.isin(columns[first], self.program.auxiliary)]
        return columns[first], rows[first], coefficients[first]

    @cached_property
    def _shared_columns(self) -> Any:
        """The auxiliary columns without such a row: there (Aᵀy) = 0 involves several rows."""
        return np.setdiff1d(self.program.auxiliary, self._own_rows[0])

    @cached_property
    def _shared(self) -> Any:
        return self.program.A[:, self._shared_columns]

    @cached_property
    def _center(self) -> tuple[Array, Any]:
        """(y°, live): y° in K* with (Aᵀy°) = 0 off p, and the rows of the cones that it is strictly inside.

        If no such y° is inside a cone, that cone's multiplier is 0 in every certificate.
        """
        point, live = center(self.program, self.cone)
        return self._flattened(point, live), live

    def repair(self, y: Array) -> Array | None:
        """A multiplier near y that satisfies both conditions; None if none is found."""
        if not np.abs(y).max(initial=0.0) <= TOO_LARGE:  # or NaN
            return None
        y = self.cone.lift(y)
        y[self._simplex_rows] = 0.0
        if self.program.auxiliary.size == 0:
            return y
        # Lifted again, and a second time: if y left the cone by rounding only, that puts only rounding into
        # (Aᵀy), and the second time less than the first.
        candidate = y
        for _ in range(2):
            candidate = self.cone.lift(self._with_own_rows(self._flattened(candidate, self._every_row)))
        if self._feasible(candidate):
            return candidate
        center_point, live = self._center
        pushed = self._pushed(self._flattened(y, live), center_point)
        if pushed is not None:
            pushed[self._simplex_rows] = 0.0
        return pushed

    def _with_own_rows(self, y: Array) -> Array:
        """y with each row that holds one column alone set to cancel (Aᵀy) there, if it can."""
        columns, rows, coefficients = self._own_rows
        y = y.copy()
        y[rows] = 0.0
        y[rows] = np.maximum(-(self._transposed @ y)[columns] / coefficients, 0.0)
        return y

    def _flattened(self, y: Array, live: Any) -> Array:
        """The nearest y that is zero off the live rows and has (Aᵀy) = 0 in the shared columns."""
        y = np.where(live, y, 0.0)
        project = self._projection(live)
        residual = project.transposed @ y[live]
        if not np.abs(residual).max(initial=0.0) > 0:
            return y
        for _ in range(4):
            moved = y.copy()
            moved[live] -= project(residual)
            left = project.transposed @ moved[live]
            if not np.abs(left).max() < np.abs(residual).max():
                break
            y, residual = moved, left
        return y

    def _projection(self, live: Any) -> _Projection:
        """The projection by steps on the live rows, kept."""
        key = live.tobytes()
        if key not in self._projections:
            self._projections[key] = _Projection(self._shared[live])
        return self._projections[key]

    def _feasible(self, y: Array) -> bool:
        """Whether y is in K* and what is left of (Aᵀy) in the auxiliary columns is rounding."""
        if not (self.cone.margins(y) >= 0).all():
            return False
        columns = self.program.auxiliary
        left = np.abs(self._transposed @ y)[columns]
        # Relative to the terms of each sum, or to the losses, which are in [-1, 1]: a column whose only row
        # must have y = 0 has no other terms.
        terms = (self._sizes @ (np.abs(y) + min(1.0, float(np.abs(y).max()))))[columns]
        return bool((left <= ROUNDING * terms).all())

    def _pushed(self, y: Array, center_point: Array) -> Array | None:
        """y plus the smallest multiple of y° (to within a tenth) that is in K*."""
        unit = np.abs(y).max() or 1.0

        def at(step: float) -> Array | None:
            point = self._with_own_rows(y + step * center_point)
            return point if self._feasible(point) else None

        step = 1e-17 * unit
        found = at(0.0)
        while found is None and step < 1e6 * unit:
            step *= 10.0
            found = at(step)
        if found is None:
            return None
        low = 0.1 * step
        for _ in range(4):
            middle = float(np.sqrt(low * step))
            closer = at(middle)
            if closer is None:
                low = middle
            else:
                step, found = middle, closer
        return found

    def prove(self, losses: Array, y: Array, x: Array) -> tuple[Array, float]:
        """Multipliers near y that prove an upper bound, and the bound; (0, max f) if none is better."""
        repaired = self.repair(y) if y.size == self.program.b.size else None
        top = float(losses.max())
        if repaired is not None:
            bound = self.bound(losses, repaired, x)
            if bound <= top:
                return repaired, bound
        return np.zeros(self.program.b.size), top

    def bound(self, losses: Array, y: Array, x: Array) -> float:
        """bᵀy + max(f - (Aᵀy)[columns]), plus what rounding left in the auxiliary columns, at size |x|.

        The largest possible rounding error of these sums is added too.
        """
        program = self.program
        size_of_b, error_of_b = self._size_of_b
        size_of_y = np.abs(y)
        residual = self._transposed @ y
        error = self._column_error * (self._sizes @ size_of_y)
        left = float((np.abs(residual) + error)[program.auxiliary] @ np.abs(x[program.auxiliary]))
        top = float((losses - residual[program.columns] + error[program.columns]).max())
        return float(program.b @ y + error_of_b * float(size_of_b @ size_of_y) + top + left)


def center(program: ConicProgram, cone: DualCone) -> tuple[Array, Any]:
    """A point y° well inside {y in K* : (Aᵀy) = 0 off p} and its live rows, by a conic program.

    maximise Σ t_k - price·(bᵀy + τ)  over  y - t_k e_k in K*_k,  0 <= t <= 1,  (Aᵀy) = 0 off p,
    τ >= -(Aᵀy)[columns], where e_k is inside the cone K*_k.

    bᵀy + τ is the bound that y proves for zero losses: by that much, adding y raises any other bound.
    """
    from scipy import sparse

    from uncertainty_sets.backends import select

    height = program.A.shape[0]
    rows_of = [np.array([row]) for row in cone.nonneg] + cone.soc + list(cone.exp)
    count = len(rows_of)
    push = sparse.lil_array((height, count))  # the columns e_k
    for k, rows in enumerate(rows_of):
        if k >= count - len(cone.exp):
            push[rows, [k] * 3] = EXP_INTERIOR
        else:
            push[rows[0], k] = 1.0
    shifted = sparse.hstack([sparse.eye(height), -push.tocsr(), sparse.csr_array((height, 1))]).tocsr()
    transposed = sparse.csr_array(program.A.T)

    def wide(block: Any, left: int, total: int) -> Any:
        pads = [sparse.csr_array((block.shape[0], w)) for w in (left, total - left - block.shape[1])]
        return sparse.hstack([pads[0], block, pads[1]]).tocsr()

    total = height + count + 1
    tau = sparse.csr_array(np.ones((program.size, 1)))
    u, v, w = (shifted[cone.exp[:, i]] for i in range(3))
    # (u, v, w) is in the dual exponential cone if and only if (u - v, -u, w) is in the cone itself.
    exp_rows = sparse.vstack([u - v, -u, w]).tocsr()
    order = np.arange(3 * len(cone.exp)).reshape(3, -1).T.ravel()
    blocks = [
        (wide(transposed[program.auxiliary], 0, total), np.zeros(program.auxiliary.size)),
        (-shifted[cone.nonneg], np.zeros(cone.nonneg.size)),
        (-wide(sparse.eye(count), height, total), np.zeros(count)),
        (wide(sparse.eye(count), height, total), np.ones(count)),
        (-wide(transposed[program.columns], 0, total) - wide(tau, total - 1, total), np.zeros(program.size)),
        *((-shifted[rows], np.zeros(len(rows))) for rows in cone.soc),
        (-exp_rows[order], np.zeros(order.size)),
    ]
    A = sparse.csc_array(sparse.vstack([block for block, _ in blocks]))
    b = np.concatenate([right for _, right in blocks])
    nonneg = sum(len(right) for _, right in blocks[1:5])
    cones = [("zero", program.auxiliary.size), ("nonneg", nonneg)]
    cones += [("soc", len(rows)) for rows in cone.soc] + [("exp", 3)] * len(cone.exp)
    problem = ConicProgram(A, b, tuple(c for c in cones if c[1]), np.zeros(0, dtype=np.intp))
    cost = np.concatenate([CENTER_PRICE * program.b, -np.ones(count), [CENTER_PRICE]])
    answer = select("auto", problem).compile(problem).solve(cost)
    if answer.outcome not in {"solved", "inaccurate"} or not answer.x.size:
        return np.zeros(height), np.zeros(height, dtype=bool)
    y, t = answer.x[:height], answer.x[height : height + count]
    live = np.ones(height, dtype=bool)
    for k, rows in enumerate(rows_of):
        if t[k] < 0.5:
            live[rows] = False
    return np.where(live, y, 0.0), live


class DualCone:
    """The dual cone K* of a program, as arrays of rows.

    The zero cone's dual is free, nonneg and soc are their own, and the exponential cone's is the closure of
    {(u, v, w) : u < 0, -u·exp(v/u - 1) <= w}.
    """

    def __init__(self, program: ConicProgram) -> None:
        self.zero = program.rows("zero")
        self.nonneg = program.rows("nonneg")
        self.soc = [
            np.arange(start, start + size)
            for start, (kind, size) in zip(program.starts, program.cones, strict=True)
            if kind == "soc"
        ]
        self.exp = program.rows("exp").reshape(-1, 3)

    def margins(self, y: Array) -> Array:
        """One number per cone (per row, for nonneg), >= 0 if and only if that part of y is in K*.

        The dual exponential cone is the closure of {u < 0, -u·exp(v/u - 1) <= w}; with u = 0 it is
        v, w >= 0. Where finite, each margin is concave and positively homogeneous.
        """
        parts = [y[self.nonneg]]
        if self.soc:
            parts.append(np.array([y[rows[0]] - np.linalg.norm(y[rows[1:]]) for rows in self.soc]))
        if self.exp.size:
            u, v, w = y[self.exp].T
            edge = np.minimum(v, w)
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                inside = w + u * np.exp(v / u - 1.0)
            parts.append(np.where(u < 0, inside, np.where(u == 0, edge, -u)))
        return np.concatenate(parts)

    def lift(self, y: Array) -> Array:
        """A point of K* near y: each cone's bounding coordinate is raised as far as needed."""
        y = y.copy()
        y[self.nonneg] = np.maximum(y[self.nonneg], 0.0)
        for rows in self.soc:
            # A few ulp more than the norm, so that rounding cannot leave the point outside.
            y[rows[0]] = max(y[rows[0]], np.linalg.norm(y[rows[1:]]) * (1.0 + 4e-16 * len(rows)))
        if self.exp.size:
            y[self.exp] = _lift_exp(y[self.exp])
        return y


def _lift_exp(y: Array) -> Array:
    """Rows (u, v, w) moved into the dual exponential cone by the shortest of three ways.

    Raise w, raise v, or go to the face u = 0: for u near 0 the first may be far.
    """
    u, v, w = np.minimum(y[:, 0], 0.0), y[:, 1], y[:, 2]
    edge = np.zeros_like(u)

    def above(v: Array) -> Array:
        """The least w for (u, v), and a few ulp more, so that rounding cannot leave the point outside."""
        return np.asarray(-u * np.exp(v / u - 1.0) * (1.0 + 4e-16 * (2.0 + np.abs(v / u))))

    with np.errstate(all="ignore"):
        if ((y[:, 0] < 0.0) & (w >= above(v))).all():  # inside, as an interior-point method's mostly are
            return y
        other_v = np.maximum(v, u * (1.0 + np.log(w / -u)))
        ways = np.stack(
            [
                np.stack([u, v, np.maximum(w, above(v))], axis=1),
                np.stack([u, other_v, np.maximum(w, above(other_v))], axis=1),
                np.stack([edge, np.maximum(v, edge), np.maximum(w, edge)], axis=1),
            ]
        )
    length = np.abs(ways - y).sum(axis=2)
    length = np.where(np.isfinite(length), length, np.inf)  # nan where u = 0, or w <= 0 for the second
    return np.asarray(ways[np.argmin(length, axis=0), np.arange(len(y))])
