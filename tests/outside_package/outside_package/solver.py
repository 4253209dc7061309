"""SciPy's linear programs as a backend."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.backends.base import Backend, Solution, Solver

OUTCOMES = {0: "solved", 1: "inaccurate", 2: "infeasible", 3: "failed", 4: "failed"}


class LinprogSolver(Solver):
    """One linear program, solved from scratch for every objective."""

    def __init__(self, program):
        self.equal, self.less = program.rows("zero"), program.rows("nonneg")
        by_row = program.A.tocsr()
        self.linear = {
            "A_eq": by_row[self.equal],
            "b_eq": program.b[self.equal],
            "A_ub": by_row[self.less],
            "b_ub": program.b[self.less],
            "bounds": (None, None),
        }
        self.height = program.b.size

    def solve(self, cost):
        from scipy.optimize import linprog

        found = linprog(cost, **self.linear)
        outcome = OUTCOMES[found.status]
        if found.x is None:
            return Solution(outcome, np.zeros(0), np.zeros(0), found.nit, found.message)
        y = np.zeros(self.height)
        y[self.equal] = -found.eqlin.marginals
        y[self.less] = -found.ineqlin.marginals
        return Solution(outcome, found.x, y, found.nit, found.message)


class Linprog(Backend):
    """SciPy's linear programs."""

    name = "linprog"
    package = "scipy"
    install = "scipy"
    cones = frozenset({"zero", "nonneg"})
    preference = 9

    def compile(self, program):
        return LinprogSolver(program)
