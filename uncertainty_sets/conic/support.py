"""The atom of `robust.support` and of `Penalised.support`: an oracle's value as a cvxpy expression.

cvxpy's own ways to bring variables and constraints inside an expression were tried first (cvxpy 1.9):

- `suppfunc` takes affine losses only, and its `value` rounds them to nine decimals: 0 for losses of 1e-10. It
  compiles every set anew, and solving takes twice as long (0.8 to 4.1 times; 21 sets, N = 10 and 100).
- `partial_optimize`, around it or alone, raises AttributeError beside a quadratic objective.
- `indicator` hides second-order and exponential cones from cvxpy's choice of a solver beside a quadratic
  objective, counts as no parametrised expression, and has neither `value` nor `grad`.
- Linear constraints beside a quadratic objective go to OSQP in all of them. It stopped far from the optimum:
  1.52 for 0.836 (Wasserstein, N = 100), 0.12 off (penalised total variation, N = 900).

cvxpy has no public way to add an atom. So ours is put on four of its lists, in `_atom_class` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import cvxpy

    from uncertainty_sets.oracle import Oracle

Dual = Callable[[Any, Any], tuple[Any, list[Any]]]
"""(oracle, affine losses) ↦ an affine bound and the conic constraints under which its least is the value."""


def expression(
    oracle: Oracle, losses: Any, dual: Dual, *, second_order: bool, exponential: bool
) -> cvxpy.Expression:
    """The oracle's value at convex losses, as an atom that turns into its dual problem.

    Args:
        oracle: what `value` and `grad` ask.
        losses: a convex cvxpy expression, (N,).
        dual: the problem that a solver gets.
        second_order: whether cvxpy is to choose a solver with second-order cones.
        exponential: whether the dual has exponential cones.
    """
    found: cvxpy.Expression = _atom_class(second_order, exponential)(losses, oracle, dual)
    return found


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
    known.NONPOS_ATOMS.append(SupportFunction)  # every dual has inequalities, from p >= 0
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
        """max over p of pᵀ(its argument), less a penalty: convex, and increasing since p >= 0."""

        def __init__(self, losses: Any, oracle: Oracle, dual: Dual) -> None:
            self.oracle, self.dual = oracle, dual
            super().__init__(losses)

        def get_data(self) -> list[Any]:
            """What tells two atoms with the same argument apart, and a copy needs."""
            return [self.oracle, self.dual]

        def numeric(self, values: Any) -> Any:
            losses = np.asarray(values[0], dtype=np.float64).ravel()
            return np.array(self.oracle.worst_case(losses).value)

        def shape_from_args(self) -> tuple[int, ...]:
            return ()

        def sign_from_args(self) -> tuple[bool, bool]:
            # A penalty is 0 at the centre: losses >= 0 have a value >= 0.
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
            return [sparse.csc_array(self.oracle.worst_case(losses).p[:, None])]

        def name(self) -> str:
            return f"support({self.oracle!r}, {self.args[0].name()})"

    return SupportFunction


def _canonicalise(atom: Any, args: list[Any], solver_context: Any = None) -> tuple[Any, list[Any]]:
    return atom.dual(atom.oracle, args[0])  # type: ignore[no-any-return]
