"""The robust counterpart: a set's support function as a cvxpy expression.

    support(P, e)  =  max over p in P of pᵀe,   e a vector of convex expressions

By strong duality of the set's conic program (conic/program.py) it is the smallest bᵀy with y in the dual cone
and Aᵀy = e in the columns of p, 0 in the others: a conic problem in y that becomes part of the user's
problem. So "minimise the worst-case loss" becomes one convex problem for any solver, for every set.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.conic import oracle as conic
from uncertainty_sets.conic import support as atom
from uncertainty_sets.conic.program import equilibrated, in_natural_units, without_idle_rows
from uncertainty_sets.errors import InvalidInput, SolverFailed
from uncertainty_sets.oracle import Oracle
from uncertainty_sets.packages import load
from uncertainty_sets.parameters import as_floats
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
        linear: let cvxpy see a set of linear constraints, or a penalty of total variation, as linear: for
            HiGHS or OSQP by name, and if the problem has integer variables that are not in the expression.

    Raises:
        EmptySet: no distribution is in the set.

    `problem.solve()` takes a solver with the set's cones, or Clarabel for a set of linear constraints: cvxpy
    would give those with a quadratic objective to OSQP, which often stops short of an answer. The
    expression adds one variable per row of the set's conic program. If the set has no interior
    relative to its constraints (a radius of 1e-12), the dual optimum may be far away and solvers lose
    digits; a set known to be one point is exact. They may also stop short, and cvxpy says so, at a penalty of
    KL whose weight is a million times the losses.

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
    _check_set(uncertainty_set, expression)
    losses = _as_vector(cp, expression)
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
        return uncertainty_set.support(losses, linear=linear)
    uncertainty_set = uncertainty_set.with_size(losses.size)
    with suppress(SolverFailed):  # the problem's own solver may still have an answer
        uncertainty_set.worst_case(np.zeros(losses.size))  # EmptySet: the dual problem would be unbounded
    point = uncertainty_set._singleton()
    if point is not None:
        return point @ losses
    kinds = conic.program(uncertainty_set, losses.size).kinds
    linear = linear or any(
        each.attributes["integer"] or each.attributes["boolean"] for each in losses.variables()
    )
    return atom.expression(
        uncertainty_set,
        losses,
        _dual,
        second_order="soc" in kinds or not linear,
        exponential="exp" in kinds,
    )


def _check_set(given: Any, expression: Any) -> None:
    """Refuse what is no set, and say what to write."""
    if isinstance(given, Oracle):
        return
    if isinstance(expression, Oracle):
        name = type(expression).__name__
        raise InvalidInput(f"support takes the set first: write support({name}(…), losses)")
    if isinstance(given, type) and issubclass(given, Oracle):
        name = given.__name__
        raise InvalidInput(f"support takes a set, and {name} is a class: write support({name}(…), losses)")
    raise InvalidInput(
        f"support takes an uncertainty set or a Penalised, got {type(given).__name__}: "
        "write support(KL(center, radius), losses)"
    )


def _as_vector(cp: Any, given: Any) -> cvxpy.Expression:
    """The losses as one expression of shape (N,)."""
    if isinstance(given, list | tuple):
        try:
            given = cp.hstack(list(given))
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"the losses must be cvxpy expressions or numbers: {error}") from error
    losses = (
        given if isinstance(given, cp.Expression) else cp.Constant(as_floats("losses", given, InvalidInput))
    )
    if losses.is_complex():
        raise InvalidInput("the losses must be real, got a complex expression")
    if losses.ndim == 0:
        losses = cp.reshape(losses, (1,), order="F")
    if losses.ndim == 2 and 1 in losses.shape:
        losses = cp.vec(losses, order="F")
    if losses.ndim != 1:
        raise InvalidInput(f"the losses must be a vector, got an expression of shape {losses.shape}")
    return losses


def _dual(uncertainty_set: UncertaintySet, losses: Any) -> tuple[Any, list[Any]]:
    """bᵀy and the constraints that make it the dual of the set's program."""
    import cvxpy as cp
    from scipy import sparse

    given = without_idle_rows(conic.program(uncertainty_set, losses.size))
    program, _ = equilibrated(in_natural_units(given))  # as the oracle's: solvers' tolerances are absolute
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
