"""The oracle of any set by a conic solver, with a certificate of our own.

A set's program is compiled once per size (program.py), kept on the set, and solved again by changing
only the objective (backends/). The solver's multipliers are made feasible and turned into the upper
bound here (certificate.py): what a solver claims about its own accuracy is never passed on.

To recheck an answer r that has r.dual["y"]::

    program = conic.program(uncertainty_set, len(losses))
    residual = program.A.T @ r.dual["y"]  # zero outside program.columns
    bound = program.b @ r.dual["y"] + max(losses - residual[program.columns])

and each cone's part of y must be in the dual cone: free for "zero", >= 0 for "nonneg", itself for "soc",
and for "exp" (u, v, w) with u < 0 and -u·exp(v/u - 1) <= w, or u = 0 and v, w >= 0.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from uncertainty_sets.backends import is_cold, select
from uncertainty_sets.base import WorstCase, stack
from uncertainty_sets.certificate import Certifier
from uncertainty_sets.closed_form import reject_not_finite
from uncertainty_sets.errors import EmptySet, InvalidLosses, SolverFailed
from uncertainty_sets.membership import projection_of_uniform, residual
from uncertainty_sets.program import ConicProgram, compile_program

if TYPE_CHECKING:
    from uncertainty_sets.backends import Solution, Solver
    from uncertainty_sets.base import Array, UncertaintySet

__all__ = ["ConicProgram", "is_feasible", "program", "projection_of_uniform", "residual", "worst_case"]

USABLE = 1e-4
"""An answer its solver doubts is passed on if our own gap (relative to the spread) and violation are
this small, and is a failure otherwise."""

FEASIBLE = 1e-9
"""A violation this small is left alone."""

_compiling = threading.RLock()


class Compiled:
    """A set's program for one size, with the solvers that hold it."""

    def __init__(self, program: ConicProgram) -> None:
        self.program = program
        self.certifier = Certifier(program)
        self._solvers = threading.local()  # solver objects are not for sharing between threads

    def solver(self, backend: str) -> Solver:
        """The program in that backend; kept, except inside `backends.cold()`."""
        kept = self._solvers.__dict__
        if backend in kept and not is_cold():
            solver: Solver = kept[backend]
            return solver
        solver = select(backend, self.program).compile(self.program)
        if not is_cold():
            kept[backend] = solver
        return solver


def _compiled(uncertainty_set: UncertaintySet, size: int) -> Compiled:
    kept: dict[int, Compiled] = uncertainty_set.__dict__.setdefault("_cache_conic", {})
    found = kept.get(size)
    if found is None:
        with _compiling:
            if size not in kept:
                own = uncertainty_set._conic_program(size)
                kept[size] = Compiled(own if own is not None else compile_program(uncertainty_set, size))
            found = kept[size]
    return found


def program(uncertainty_set: UncertaintySet, size: int | None = None) -> ConicProgram:
    """The conic program behind the set's oracle, for rechecking a certificate or for a solver of your own.

    Args:
        uncertainty_set: any set.
        size: N; needed only where the set leaves it to the losses.

    >>> from uncertainty_sets import Polyhedron
    >>> program(Polyhedron([[1.0, 0.0, 0.0]], [0.5])).cones
    (('zero', 1), ('nonneg', 4))
    """
    size = uncertainty_set.size if size is None else size
    if size is None:
        raise InvalidLosses(f"{type(uncertainty_set).__name__} takes its size from the losses: give size")
    return _compiled(uncertainty_set, size).program


def is_feasible(uncertainty_set: UncertaintySet, size: int) -> bool:
    """Whether a solver finds any distribution in the set; anything but a proof of emptiness counts as yes."""
    compiled = _compiled(uncertainty_set, size)
    solver = compiled.solver(select("auto", compiled.program).name)
    return solver.solve(compiled.program.cost(np.zeros(size))).outcome != "infeasible"


def worst_case(
    uncertainty_set: UncertaintySet, losses: Array, backend: str, warm_start: WorstCase | None
) -> WorstCase:
    """The oracle by a conic solver; `UncertaintySet.worst_case` comes here with checked shapes.

    A batch is a loop over its rows. `warm_start` is not needed: a solver that gains from its last
    answer (HiGHS, SCS) has kept it.
    """
    reject_not_finite(losses)
    if losses.ndim == 1:
        return _solve(uncertainty_set, losses, backend)
    return stack([_solve(uncertainty_set._row(index), row, backend) for index, row in enumerate(losses)])


def _solve(uncertainty_set: UncertaintySet, losses: Array, backend: str) -> WorstCase:
    compiled = _compiled(uncertainty_set, losses.size)
    # Solvers see losses in [-1, 1]: their tolerances are then relative to the spread, and neither a
    # constant added to the losses nor their unit changes the answer. Halves, so that nothing overflows.
    low, high = float(losses.min()), float(losses.max())
    middle, scale = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    unit = (losses - middle) / scale if scale > 0 else np.zeros_like(losses)
    chosen = select(backend, compiled.program).name if backend == "auto" else backend
    solution = compiled.solver(chosen).solve(compiled.program.cost(unit))
    _check_outcome(uncertainty_set, solution, chosen)
    p, violation = _clean(uncertainty_set, solution.x[compiled.program.columns])
    value = float(p @ unit)
    y = compiled.certifier.repair(solution.y)
    if y is None:
        y, bound = np.full(compiled.program.b.size, np.nan), np.inf
    else:
        bound = compiled.certifier.bound(unit, y, solution.x)
    if solution.outcome == "inaccurate" and not (bound - value <= USABLE and violation <= USABLE):
        raise _failure(uncertainty_set, solution, chosen)
    return WorstCase(
        p=p,
        value=middle + scale * value,
        upper_bound=middle + scale * bound if scale > 0 else max(middle, high),
        gap=scale * (bound - value) if scale > 0 else high - middle,
        violation=violation,
        dual=uncertainty_set._dual_from_conic(scale * y if scale > 0 else np.zeros_like(y)),
        backend=chosen,
        iterations=solution.iterations,
    )


def _clean(uncertainty_set: UncertaintySet, p: Array) -> tuple[Array, float]:
    """p without the solver's small negative entries and with sum one, if that leaves it as feasible."""
    clean = np.maximum(p, 0.0)
    clean /= clean.sum()
    violation = uncertainty_set.violation(clean)
    if violation > FEASIBLE:
        before = uncertainty_set.violation(p)
        if before < violation:
            return p, before
    return clean, violation


def _check_outcome(uncertainty_set: UncertaintySet, solution: Solution, backend: str) -> None:
    if solution.outcome == "infeasible":
        raise EmptySet(
            f"{uncertainty_set!r} is empty: its constraints leave no vector with p >= 0 and 1ᵀp = 1 "
            f"({backend}: {solution.status})"
        )
    if solution.outcome == "failed" or not solution.x.size or not np.isfinite(solution.x).all():
        raise _failure(uncertainty_set, solution, backend)


def _failure(uncertainty_set: UncertaintySet, solution: Solution, backend: str) -> SolverFailed:
    return SolverFailed(
        f"{backend} gave no usable answer for {uncertainty_set!r}: its status is {solution.status!r} after "
        f"{solution.iterations} iterations. Try another of available_backends(), or constraints whose "
        f"numbers are nearer to 1"
    )
