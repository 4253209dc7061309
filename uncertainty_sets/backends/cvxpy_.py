"""Any solver that cvxpy finds: "cvxpy" lets cvxpy choose, "cvxpy:MOSEK" names one."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from uncertainty_sets.backends.base import Backend, Outcome, Solution, Solver
from uncertainty_sets.errors import BackendMissing, BackendUnsuitable

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.conic.program import ConicProgram

OUTCOMES: dict[str, Outcome] = {
    "optimal": "solved",
    "optimal_inaccurate": "inaccurate",
    "infeasible": "infeasible",
    "infeasible_inaccurate": "infeasible",
    "infeasible_or_unbounded": "infeasible",  # the simplex is bounded
    "user_limit": "failed",
    "unbounded": "failed",
    "unbounded_inaccurate": "failed",
    "solver_error": "failed",
}


class CvxpySolver(Solver):
    """One program as a cvxpy problem whose objective is a parameter, so that cvxpy compiles it once."""

    def __init__(self, program: ConicProgram, solver: str | None) -> None:
        import cvxpy as cp

        self._name = solver
        self._cost = cp.Parameter(program.A.shape[1])
        self._x = cp.Variable(program.A.shape[1])
        self._rows: list[Any] = []
        self._constraints: list[Any] = []
        slack = program.b - program.A @ self._x

        def add(rows: Any, constraint: Any) -> None:
            self._rows.append(rows)
            self._constraints.append(constraint)

        for kind in ("zero", "nonneg"):
            rows = program.rows(kind)
            if rows.size:
                A, b = program.A[rows], program.b[rows]
                add(rows, A @ self._x == b if kind == "zero" else A @ self._x <= b)
        for start, (kind, size) in zip(program.starts, program.cones, strict=True):
            if kind == "soc":
                rows = np.arange(start, start + size)
                add(rows, cp.SOC(slack[start], slack[start + 1 : start + size]))
        rows = program.rows("exp").reshape(-1, 3)
        if rows.size:
            add(rows, cp.ExpCone(slack[rows[:, 0]], slack[rows[:, 1]], slack[rows[:, 2]]))
        self._height = program.A.shape[0]
        self._problem = cp.Problem(cp.Minimize(self._cost @ self._x), self._constraints)

    def solve(self, cost: Array) -> Solution:
        """Minimise costᵀx with the solver that was named, or the one cvxpy chooses."""
        import cvxpy as cp

        self._cost.value = cost
        try:
            with warnings.catch_warnings():
                # cvxpy warns that a solution may be inaccurate: our outcome and certificate say it.
                warnings.simplefilter("ignore")
                self._problem.solve(solver=self._name)
        except cp.error.SolverError as error:
            return Solution("failed", np.zeros(0), np.zeros(0), 0, str(error))
        status = str(self._problem.status)
        if self._x.value is None:
            return Solution(OUTCOMES.get(status, "failed"), np.zeros(0), np.zeros(0), 0, status)
        y = np.full(self._height, np.nan)
        for rows, constraint in zip(self._rows, self._constraints, strict=True):
            value = constraint.dual_value
            if value is None:
                continue
            if isinstance(constraint, cp.SOC):
                y[rows] = np.concatenate([np.ravel(part) for part in value])
            elif isinstance(constraint, cp.ExpCone):
                y[rows] = np.stack([np.ravel(part) for part in value], axis=1)
            else:
                y[rows] = np.ravel(value)
        iterations = self._problem.solver_stats.num_iters
        count = iterations if isinstance(iterations, int) else 0  # some solvers give a list, some nothing
        return Solution(
            OUTCOMES.get(status, "failed"), np.asarray(self._x.value, dtype=np.float64), y, count, status
        )


class Cvxpy(Backend):
    """Whatever cvxpy finds; the cones are those of the solver it takes."""

    name: ClassVar[str] = "cvxpy"
    package: ClassVar[str] = "cvxpy"
    install: ClassVar[str] = '"fdro[conic]"'
    cones: ClassVar[frozenset[str]] = frozenset({"zero", "nonneg", "soc", "exp"})
    options: ClassVar[str] = "a solver's name in cvxpy"

    def __init__(self, solver: str | None = None) -> None:
        self.solver = solver

    def compile(self, program: ConicProgram) -> Solver:
        """The program in cvxpy."""
        import cvxpy as cp

        found = cp.installed_solvers()
        if self.solver is not None and self.solver not in found:
            raise BackendMissing(
                f"cvxpy finds no solver called {self.solver!r}; it finds {', '.join(found)}. "
                f"Installing the solver's own package is enough for cvxpy to find it"
            )
        if self.solver is not None:
            lacking = program.kinds - cones_of(self.solver)
            if lacking:
                raise BackendUnsuitable(
                    f"cvxpy:{self.solver} has no {', '.join(sorted(lacking))} cone, which this set needs; "
                    "backend='cvxpy' lets cvxpy choose a solver"
                )
        return CvxpySolver(program, self.solver)


def cones_of(solver: str) -> frozenset[str]:
    """The kinds of cones that cvxpy sends to a solver, as cvxpy's own interface to it declares them."""
    from cvxpy.constraints import SOC, ExpCone
    from cvxpy.reductions.solvers.defines import SOLVER_MAP_CONIC

    conic = SOLVER_MAP_CONIC.get(solver)  # a solver of quadratic programs alone is not in the map
    declared = [] if conic is None else conic.SUPPORTED_CONSTRAINTS
    kinds = {"soc": SOC, "exp": ExpCone}
    return frozenset({"zero", "nonneg", *(kind for kind, cone in kinds.items() if cone in declared)})
