"""Clarabel: an interior-point method for all our cones; the default if the program is not an LP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from uncertainty_sets.backends.base import Backend, Outcome, Solution, Solver

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.conic.program import ConicProgram

OUTCOMES: dict[str, Outcome] = {
    "Solved": "solved",
    "AlmostSolved": "solved",  # to the reduced tolerances below, which are Clarabel's usual ones
    "InsufficientProgress": "inaccurate",
    "MaxIterations": "inaccurate",
    "MaxTime": "inaccurate",
    "NumericalError": "failed",
    "PrimalInfeasible": "infeasible",
    "AlmostPrimalInfeasible": "infeasible",
    "DualInfeasible": "failed",
    "AlmostDualInfeasible": "failed",
    "CallbackTerminated": "failed",
    "Unsolved": "failed",
}


class ClarabelSolver(Solver):
    """One program in Clarabel, re-solved by `update(q=...)`."""

    def __init__(self, program: ConicProgram) -> None:
        import clarabel

        kinds = {
            "zero": clarabel.ZeroConeT,
            "nonneg": clarabel.NonnegativeConeT,
            "soc": clarabel.SecondOrderConeT,
            "exp": lambda _: clarabel.ExponentialConeT(),
        }
        self._program = program
        self._cones = [kinds[kind](size) for kind, size in program.cones]
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        if hasattr(settings, "max_threads"):
            settings.max_threads = 1
        # Ask for more than the default 1e-8, and take the default if that is all there is.
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
        settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = settings.reduced_tol_feas = 1e-8
        # Presolve may drop rows, and Clarabel then refuses updates.
        settings.presolve_enable = False
        self._settings = settings
        self._solver: Any = None

    def solve(self, cost: Array) -> Solution:
        """Minimise costᵀx."""
        import clarabel
        from scipy import sparse

        if self._solver is None or not hasattr(self._solver, "update"):  # from Clarabel 0.10 on
            size = cost.size
            self._solver = clarabel.DefaultSolver(
                sparse.csc_matrix((size, size)),
                cost,
                self._program.A,
                self._program.b,
                self._cones,
                self._settings,
            )
        else:
            self._solver.update(q=cost)
        answer = self._solver.solve()
        status = str(answer.status)
        return Solution(
            OUTCOMES.get(status, "failed"),
            np.asarray(answer.x, dtype=np.float64),
            np.asarray(answer.z, dtype=np.float64),
            int(answer.iterations),
            status,
        )


class Clarabel(Backend):
    """Interior points; all cones; about 1e-9 of the loss spread."""

    name: ClassVar[str] = "clarabel"
    package: ClassVar[str] = "clarabel"
    install: ClassVar[str] = '"fdro[conic]"'
    cones: ClassVar[frozenset[str]] = frozenset({"zero", "nonneg", "soc", "exp"})
    preference: ClassVar[int | None] = 2

    def compile(self, program: ConicProgram) -> Solver:
        """The program in Clarabel."""
        return ClarabelSolver(program)
