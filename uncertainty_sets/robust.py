"""The robust counterpart: a set's support function as a cvxpy expression.

    support(P, e)  =  max over p in P of pᵀe,   e a vector of convex expressions

By strong duality of the set's conic program (conic/program.py) it is the smallest bᵀy with y in the dual cone
and Aᵀy = e in the columns of p, 0 in the others: a conic problem in y that becomes part of the user's
problem. So "minimise the worst-case loss" becomes one convex problem for any solver, for every set.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.conic import oracle as conic
from uncertainty_sets.conic.program import equilibrated, without_idle_rows
from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.packages import load
from uncertainty_sets.penalised import Penalised

if TYPE_CHECKING:
    import cvxpy

    from uncertainty_sets.base import UncertaintySet

__all__ = ["support"]


def support(
    uncertainty_set: UncertaintySet | Penalised, expression: Any, *, linear: bool = False
) -> cvxpy.Expression:
    """The largest expected loss over the set, max of pᵀexpression, as one convex cvxpy expression.

    Allowed wherever cvxpy takes a convex scalar: in sums, in an objective to minimise, on the left of `<=`.
    Its `value` is computed by the set's oracle. Convex losses are exact, since p >= 0.

    Args:
        uncertainty_set: any set, plug-ins included, or a `Penalised`.
        expression: a vector of N convex (or affine) expressions, or a list of N scalar ones.
        linear: let cvxpy see a set of linear constraints as linear, for HiGHS or OSQP by name, and if the
            problem has integer variables that are not in the expression.

    `problem.solve()` takes a solver with the set's cones, or Clarabel for a set of linear constraints: cvxpy
    would give those with a quadratic objective to OSQP, which often stops short of an answer. The
    expression adds one variable per row of the set's conic program. If the set has no interior
    relative to its constraints (a radius of 1e-12), the dual optimum may be far away and solvers lose
    digits; a set known to be one point is exact.

    >>> import cvxpy as cp, numpy as np
    >>> from uncertainty_sets import Polyhedron
    >>> half = Polyhedron(np.eye(3), [0.5, 0.5, 0.5])
    >>> x = cp.Variable()
    >>> worst = support(half, cp.hstack([cp.square(x - 1), cp.square(x), cp.square(x + 2)]))
    >>> problem = cp.Problem(cp.Minimize(worst))
    >>> round(float(problem.solve()), 4), round(float(x.value), 4)
    (2.25, -0.5)
    """
    cp = load("cvxpy", "robust.support")
    if isinstance(expression, list | tuple):
        expression = cp.hstack(list(expression))
    losses = cp.Expression.cast_to_const(expression)
    if losses.ndim == 0:
        losses = cp.reshape(losses, (1,), order="F")
    if losses.ndim == 2 and 1 in losses.shape:
        losses = cp.vec(losses, order="F")
    if losses.ndim != 1:
        raise InvalidInput(f"the losses must be a vector, got an expression of shape {losses.shape}")
    size, rows = uncertainty_set.size, uncertainty_set.rows
    if rows is not None:
        raise InvalidInput(f"support takes one set, and this one's parameters have {rows} rows")
    if size is not None and losses.size != size:
        raise InvalidInput(
            f"the losses must have {size} entries, one per entry of the set, got {losses.size}"
        )
    if not losses.is_convex():
        raise InvalidInput(
            f"the losses must be convex by cvxpy's rules, got {losses.curvature.lower()} ones: "
            f"a maximum over p >= 0 of other losses is not a convex expression"
        )
    if isinstance(uncertainty_set, Penalised):
        return uncertainty_set.support(losses)
    uncertainty_set = uncertainty_set.with_size(losses.size)
    point = uncertainty_set._singleton()
    if point is not None:
        return point @ losses
    kinds = conic.program(uncertainty_set, losses.size).kinds
    linear = linear or any(
        each.attributes["integer"] or each.attributes["boolean"] for each in losses.variables()
    )
    return _atom_class("soc" in kinds or not linear, "exp" in kinds)(losses, uncertainty_set)


@cache
def _atom_class(second_order: bool, exponential: bool) -> Any:
    """The cvxpy atom that brings these cones, as far as cvxpy's choice of a solver goes.

    cvxpy chooses a solver before it has seen what an atom turns into: it looks the atom's class up in its
    lists of those that bring a kind of cone. So there is a class per choice of cones, put on the lists.
    """
    from cvxpy import atoms as known
    from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS

    class SupportFunction(_support_function()):  # type: ignore[misc]
        """The atom with this choice of cones."""

    CANON_METHODS[SupportFunction] = _canonicalise
    known.NONPOS_ATOMS.append(SupportFunction)  # every set has p >= 0
    if second_order:
        known.SOC_ATOMS.append(SupportFunction)
    if exponential:
        known.EXP_ATOMS.append(SupportFunction)
    return SupportFunction


@cache
def _support_function() -> Any:
    """The atom itself; made at first use, so that importing this module does not import cvxpy."""
    from cvxpy.atoms.atom import Atom
    from scipy import sparse

    class SupportFunction(Atom):  # type: ignore[misc]
        """max over p in a set of pᵀ(its argument): convex, and increasing since p >= 0."""

        def __init__(self, losses: Any, uncertainty_set: UncertaintySet) -> None:
            self.uncertainty_set = uncertainty_set
            super().__init__(losses)

        def get_data(self) -> list[Any]:
            """What tells two atoms with the same argument apart, and a copy needs."""
            return [self.uncertainty_set]

        def numeric(self, values: Any) -> Any:
            losses = np.asarray(values[0], dtype=np.float64).ravel()
            return np.array(self.uncertainty_set.worst_case(losses).value)

        def shape_from_args(self) -> tuple[int, ...]:
            return ()

        def sign_from_args(self) -> tuple[bool, bool]:
            return self.args[0].is_nonneg(), self.args[0].is_nonpos()

        def is_atom_convex(self) -> bool:
            return True

        def is_atom_concave(self) -> bool:
            return False

        def is_incr(self, idx: int) -> bool:
            return True

        def is_decr(self, idx: int) -> bool:
            return False

        def _grad(self, values: Any) -> list[Any]:
            losses = np.asarray(values[0], dtype=np.float64).ravel()
            return [sparse.csc_array(self.uncertainty_set.worst_case(losses).p[:, None])]

        def name(self) -> str:
            return f"support({self.uncertainty_set!r}, {self.args[0].name()})"

    return SupportFunction


def _canonicalise(atom: Any, args: list[Any], solver_context: Any = None) -> tuple[Any, list[Any]]:
    """bᵀy and the constraints that make it the dual of the set's program."""
    import cvxpy as cp
    from scipy import sparse

    losses = args[0]
    program, _ = equilibrated(without_idle_rows(conic.program(atom.uncertainty_set, losses.size)))
    y = cp.Variable(program.b.size)
    transposed = sparse.csr_array(program.A.T)
    constraints = [transposed[program.columns] @ y == losses]
    if program.auxiliary.size:
        constraints.append(transposed[program.auxiliary] @ y == 0)
    nonneg = program.rows("nonneg")
    if nonneg.size:
        constraints.append(y[nonneg] >= 0)
    for start, (kind, size) in zip(program.starts, program.cones, strict=True):
        if kind == "soc":
            constraints.append(cp.SOC(y[start], y[start + 1 : start + size]))
    exp = program.rows("exp").reshape(-1, 3)
    if exp.size:
        u, v, w = (y[exp[:, k]] for k in range(3))
        constraints.append(cp.ExpCone(u - v, -u, w))
    return program.b @ y, constraints
