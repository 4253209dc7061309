"""Polyhedron: linear inequalities on the probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.conic.program import ConicProgram, equilibrated, polyhedral_program
from uncertainty_sets.errors import EmptySet, InvalidParameter
from uncertainty_sets.parameters import as_array, describe, readonly

if TYPE_CHECKING:
    import cvxpy

EMPTY = 1e-10
"""Rows that no distribution meets within this, over the row's largest number, make the set empty: HiGHS's
tolerance."""

SHOWN = 8
"""How many conflicting rows an error lists."""


class Polyhedron(UncertaintySet):
    """Linear inequalities: {p : D p <= c}.

    The oracle is a linear program, solved by HiGHS. The program is built once, and HiGHS starts from its last
    basis. If the losses have changed by at most a tenth of max f - min f since the last call, that is some
    tens of times faster than a start from scratch; for unrelated losses it is mostly a little faster, and a
    set for which it needs many more iterations starts from scratch. For answers that do not depend on earlier
    calls, see `uncertainty_sets.backends.cold`. An equation is two rows. Rows may be in any units: the solver
    sees them with their largest entry near 1.

    ====  ===================================================
    dual  meaning
    ====  ===================================================
    y     multipliers of D p <= c, y >= 0, one for each row
    ====  ===================================================

    The bound is cᵀy + max(f - Dᵀy), for any y >= 0 (zero if c is infinite):

    >>> import numpy as np
    >>> D, c, f = (
    ...     np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 1.0]]),
    ...     np.array([0.5, -0.2]),
    ...     np.array([3.0, 1.0, 2.0]),
    ... )
    >>> r = Polyhedron(D, c).worst_case(f)
    >>> r.p.round(12), round(r.value, 12)
    (array([0.5 , 0.35, 0.15]), 2.15)
    >>> y = r.dual["y"]
    >>> bool(np.isclose(c @ y + (f - D.T @ y).max(), r.upper_bound)), bool((y >= 0).all())
    (True, True)

    Args:
        D: shape (rows, N), dense or scipy sparse.
        c: shape (rows,); +inf means no constraint.

    Raises:
        EmptySet: no distribution satisfies all rows; the message names rows that contradict each other.
    """

    name: ClassVar[str] = "polyhedron"
    summary: ClassVar[str] = "Linear inequalities"
    formula: ClassVar[str] = "D p <= c"
    complexity: ClassVar[str] = "a linear program"

    def __init__(self, D: ArrayLike, c: ArrayLike) -> None:
        matrix = as_array("D", D.toarray() if hasattr(D, "toarray") else D)
        right = as_array("c", c, finite=False)
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise InvalidParameter(
                f"D must have shape (rows, N) with N >= 1, got {matrix.shape}", parameter="D", value=D
            )
        if right.shape != (matrix.shape[0],):
            raise InvalidParameter(
                f"c must have one entry for each of the {matrix.shape[0]} rows of D, got shape {right.shape}",
                parameter="c",
                value=c,
            )
        if (right == -np.inf).any():
            raise InvalidParameter(
                f"c must not be -inf, got it at row {int(np.argmin(right))}; +inf means no constraint",
                parameter="c",
                value=c,
            )
        self._D, self._c = matrix, right
        self._bounded = np.flatnonzero(np.isfinite(right))
        self._scale = np.maximum(1.0, np.abs(right[self._bounded]))
        self.size = matrix.shape[1]
        self._check_not_empty()

    @property
    def D(self) -> Array:  # noqa: N802 - the letter of D p <= c
        """The rows' coefficients."""
        return readonly(self._D)

    @property
    def c(self) -> Array:
        """The rows' right-hand sides."""
        return readonly(self._c)

    @classmethod
    def example(cls, size: int, rng: np.random.Generator | None = None) -> Polyhedron:
        """Each quarter of the entries has at most half of the mass, and a random row with `rng`."""
        D = np.kron(np.eye(4), np.ones(-(-size // 4)))[:, :size]
        c = np.maximum(0.5, D.mean(axis=1))
        if rng is not None:
            row = rng.normal(size=size)
            D, c = np.vstack([D, row]), np.append(c, row.mean())
        return cls(D, c)

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """D p <= c, for the rows where c is finite."""
        rows = self._bounded
        return [self._D[rows] @ p <= self._c[rows]] if rows.size else []

    def _conic_program(self, size: int) -> ConicProgram:
        return polyhedral_program(self._D[self._bounded], self._c[self._bounded])

    def _dual_from_conic(self, y: Array) -> dict[str, Any]:
        multipliers = np.zeros(self._c.size)
        multipliers[self._bounded] = y[y.size - self._bounded.size :]
        return {"y": multipliers}

    def _residual(self, p: Array) -> float:
        rows = self._bounded
        excess = self._D[rows] @ p - self._c[rows]
        above = np.flatnonzero(excess > 0.0)
        if not above.size:
            return 0.0
        # In a row of 1e12 the last digit of p weighs 1e-4: the rounding of p and of the sum is not counted.
        rounding = np.finfo(np.float64).eps * (p.size + 2) * (np.abs(self._D[rows[above]]) @ np.abs(p))
        return float(np.max((excess[above] - rounding) / self._scale[above], initial=0.0))

    def _check_not_empty(self) -> None:
        from uncertainty_sets.conic import oracle as conic

        D, c = self._D[self._bounded], self._c[self._bounded]
        # The uniform distribution and the N certain ones decide most sets without a linear program.
        if (D.mean(axis=1) <= c).all() or (c[:, None] >= D).all(axis=0).any():
            return
        if conic.is_feasible(self, self._D.shape[1]):
            return
        largest = np.maximum(np.abs(D).max(axis=1), np.abs(c))
        units = np.where(largest > 0, largest, 1.0)
        least, weights = _least_excess(D, c, units)
        if least <= EMPTY:
            return
        rows = np.flatnonzero(weights > 1e-9 * weights.max())
        for row in list(rows) if rows.size <= 40 else []:
            fewer = rows[rows != row]
            if fewer.size and _least_excess(D[fewer], c[fewer], units[fewer])[0] > EMPTY:
                rows = fewer
        names = [str(self._bounded[row]) for row in rows[:SHOWN]]
        more = f" and {rows.size - SHOWN} more" if rows.size > SHOWN else ""
        conflict = f"row {names[0]} of" if rows.size == 1 else f"rows {', '.join(names)}{more} of"
        raise EmptySet(
            f"the set is empty: no p >= 0 with 1ᵀp = 1 satisfies {conflict} D p <= c"
            f"{' together' if rows.size > 1 else ''}; the smallest excess over c is {least:.3g} of a row's "
            "largest number",
            parameter="c",
            value=self._c,
        )

    def __repr__(self) -> str:
        return f"Polyhedron(D={describe(self._D)}, c={describe(self._c)})"


def _least_excess(D: Array, c: Array, units: Array) -> tuple[float, Array]:
    """The smallest t with D p <= c + t·units for some distribution p, and the rows' weights in its proof."""
    from scipy import sparse

    from uncertainty_sets.backends import select

    plain = polyhedral_program(D, c)
    slack = np.concatenate([np.zeros(plain.b.size - c.size), -units])
    program = ConicProgram(
        sparse.csc_array(sparse.hstack([plain.A, slack[:, None]])), plain.b, plain.cones, plain.columns
    )
    cost = np.concatenate([np.zeros(D.shape[1]), [1.0]])
    program, factors = equilibrated(program)
    answer = select("highs", program).compile(program).solve(cost)
    if answer.outcome != "solved":
        return -np.inf, np.zeros(c.size)  # the oracle itself will say what is wrong
    return float(answer.x[-1]), (answer.y * factors)[answer.y.size - c.size :] * units
