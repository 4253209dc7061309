"""SCS: a first-order method for all our cones; for programs too large to factorise often."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from uncertainty_sets.backends.base import Backend, Outcome, Solution, Solver

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.conic.program import ConicProgram

OUTCOMES: dict[int, Outcome] = {
    1: "solved",
    2: "inaccurate",
    -1: "failed",  # unbounded
    -2: "infeasible",
    -3: "failed",  # indeterminate
    -4: "failed",
    -5: "failed",  # interrupted
    -6: "failed",  # unbounded, inaccurate
    -7: "infeasible",
}


class ScsSolver(Solver):
    """One program in SCS: factorised once, started from its last answer."""

    def __init__(self, program: ConicProgram) -> None:
        self._program = program
        self._solver: Any = None

    def _cones(self) -> dict[str, Any]:
        sizes = {
            kind: [size for _, size in group] for kind, group in groupby(self._program.cones, lambda c: c[0])
        }
        return {
            "z": sum(sizes.get("zero", [])),
            "l": sum(sizes.get("nonneg", [])),
            "q": sizes.get("soc", []),
            "ep": len(sizes.get("exp", [])),
        }

    def solve(self, cost: Array) -> Solution:
        """Minimise costᵀx, from the last answer."""
        import scs
        from scipy import sparse

        again = self._solver is not None
        if again:
            self._solver.update(c=cost)
        else:
            data = {"A": sparse.csc_matrix(self._program.A), "b": self._program.b, "c": cost}
            self._solver = scs.SCS(
                data, self._cones(), verbose=False, eps_abs=1e-9, eps_rel=1e-9, max_iters=50_000
            )
        answer = self._solver.solve(warm_start=again)
        info = answer["info"]
        return Solution(
            OUTCOMES.get(info["status_val"], "failed"),
            np.asarray(answer["x"], dtype=np.float64),
            np.asarray(answer["y"], dtype=np.float64),
            int(info["iter"]),
            str(info["status"]),
        )


class SCS(Backend):
    """First order; all cones; about 1e-7 of the loss spread."""

    name: ClassVar[str] = "scs"
    package: ClassVar[str] = "scs"
    install: ClassVar[str] = '"fdro[scs]"'
    cones: ClassVar[frozenset[str]] = frozenset({"zero", "nonneg", "soc", "exp"})
    preference: ClassVar[int | None] = 3

    def compile(self, program: ConicProgram) -> Solver:
        """The program in SCS."""
        return ScsSolver(program)
