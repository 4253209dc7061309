"""The oracle of any set by a conic solver, with a certificate that does not trust the solver.

A set's program is compiled once per size (compile.py), kept on the set, and solved again by changing only the
objective (backends/). certificate.py makes the solver's multipliers feasible and computes the upper bound
from them: what a solver reports about its own accuracy is never passed on.

To recheck an answer r that has r.dual["y"]::

    program = conic.program(uncertainty_set, len(losses))
    residual = program.A.T @ r.dual["y"]  # zero outside program.columns
    bound = program.b @ r.dual["y"] + max(losses - residual[program.columns])

and each cone's part of y must be in the dual cone: free for "zero", >= 0 for "nonneg", itself for "soc",
and for "exp" (u, v, w) with u < 0 and -u·exp(v/u - 1) <= w, or u = 0 and v, w >= 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from uncertainty_sets import verdict
from uncertainty_sets.answer import WorstCase
from uncertainty_sets.conic.compile import Compiled, compiled
from uncertainty_sets.conic.membership import (
    STEPS,
    empty,
    interior,
    is_proved_empty,
    projection_of_uniform,
    residual,
)
from uncertainty_sets.conic.program import ConicProgram
from uncertainty_sets.errors import FdroError, InvalidInput, InvalidLosses, SolverFailed
from uncertainty_sets.kernels.dispatch import reject_not_finite
from uncertainty_sets.verdict import NEGATIVE, USABLE

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.backends import Solution
    from uncertainty_sets.base import UncertaintySet

__all__ = ["ConicProgram", "is_feasible", "program", "projection_of_uniform", "residual", "worst_case"]

FEASIBLE = 1e-9
"""A violation this small, or a gap as little below zero, is left alone."""

OUTSIDE = 10.0
"""Of two answers the better has the smaller gap, or violation times this: a p in the set proves more."""

HALVINGS = 4
"""Of the way between two STEPS."""

CLOSE = 1e-8
"""Beyond this violation it is tried whether a p inside the set does as well."""


def program(uncertainty_set: UncertaintySet, size: int | None = None) -> ConicProgram:
    """The conic program behind the set's oracle, to recheck a certificate or to use another solver.

    Args:
        uncertainty_set: any set.
        size: N; needed only if the set takes its size from the losses.

    >>> from uncertainty_sets import Polyhedron
    >>> program(Polyhedron([[1.0, 0.0, 0.0]], [0.5])).cones
    (('zero', 1), ('nonneg', 4))
    """
    size = uncertainty_set.size if size is None else size
    if size is None:
        raise InvalidLosses(f"{type(uncertainty_set).__name__} takes its size from the losses: give size")
    return compiled(uncertainty_set, size).given


def is_feasible(uncertainty_set: UncertaintySet, size: int) -> bool:
    """Whether the set has a distribution; only a checked proof of emptiness counts as no."""
    own = compiled(uncertainty_set, size)
    solver = own.solver(own.order[0])
    return solver.solve(own.program.cost(np.zeros(size))).outcome == "solved" or not is_proved_empty(
        uncertainty_set, size
    )


def worst_case(
    uncertainty_set: UncertaintySet, losses: Array, backend: str, warm_start: WorstCase | None
) -> WorstCase:
    """The oracle by a conic solver; `UncertaintySet.worst_case` comes here with checked shapes.

    The promise: the gap is finite and at most 1e-4 of the spread of the losses, negative by at most 1e-7 of
    it, and the violation is at most 1e-4, whatever the solver reported. Most answers are at 1e-9. A p outside
    the set is moved inside, at the cost of a larger gap; if that is not enough, "auto" asks the other solvers
    that have the cones. If none has a usable answer, `SolverFailed` is raised, with the best one as its
    `answer`. Multipliers beyond the largest float are inf.

    A batch is a loop over its rows; those that fail are named together, after all have been tried. A row
    whose own parameters cannot be used, as one with an empty set, is a failed row. An interrupt passes
    through, and its `answer` has the rows that were finished.
    `warm_start` is not used: a solver that profits from its last answer (HiGHS, SCS) has kept it.
    """
    reject_not_finite(losses)
    if losses.ndim == 1:
        return _solve(uncertainty_set, losses, backend)
    return _solve_rows(uncertainty_set, losses, backend)


def _solve_rows(uncertainty_set: UncertaintySet, losses: Array, backend: str) -> WorstCase:
    answers: dict[int, WorstCase] = {}
    errors: dict[int, FdroError] = {}
    try:
        for index, row in enumerate(losses):
            try:
                answers[index] = _solve(uncertainty_set._row(index), row, backend)
            except SolverFailed as error:
                errors[index] = error
            except InvalidInput as error:
                if uncertainty_set.rows is None:  # no row's fault: all have the same set
                    raise
                errors[index] = error
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"{len(answers)} of {len(losses)} rows were answered: see `.answer`")
        interrupt.answer = verdict.batch(answers, *losses.shape)  # type: ignore[attr-defined]
        raise
    found = verdict.batch(answers, *losses.shape)
    if errors:
        reasons = {row: str(error) for row, error in errors.items()}
        raise verdict.rows_failed(found, reasons) from errors[min(errors)]
    return found


class _Candidate(NamedTuple):
    """An answer for losses in [-1, 1], with its certificate."""

    p: Array
    y: Array
    value: float
    bound: float
    violation: float
    backend: str
    iterations: int

    @property
    def gap(self) -> float:
        """Over the spread, which is 2."""
        return 0.5 * (self.bound - self.value)

    @property
    def is_usable(self) -> bool:
        return -NEGATIVE <= self.gap <= USABLE and self.violation <= USABLE

    @property
    def shortfall(self) -> float:
        """How far from usable, to find the best of several."""
        worst = max(self.gap, -self.gap, OUTSIDE * self.violation)
        return np.inf if np.isnan(worst) else worst

    @property
    def rank(self) -> tuple[bool, float]:
        """The usable before the others, then by shortfall."""
        return not self.is_usable, self.shortfall


def _solve(uncertainty_set: UncertaintySet, losses: Array, backend: str) -> WorstCase:
    own = compiled(uncertainty_set, losses.size)
    # Solvers get losses in [-1, 1]: their tolerances are then relative to the spread, and neither a constant
    # added to the losses nor their unit changes the answer. Taken in halves, so that nothing overflows.
    low, high = float(losses.min()), float(losses.max())
    middle, scale = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    unit = (losses - middle) / scale if scale > 0 else np.zeros_like(losses)

    def in_units_of_losses(found: _Candidate) -> WorstCase:
        with np.errstate(over="ignore"):  # a multiplier may be beyond the largest float, and is then inf
            y = scale * (found.y * own.factors)
        return WorstCase(
            p=found.p,
            value=middle + scale * found.value,
            upper_bound=middle + scale * found.bound if scale > 0 else max(middle, high),
            gap=scale * (found.bound - found.value) if scale > 0 else high - middle,
            violation=found.violation,
            dual=uncertainty_set._dual_from_conic(y),
            backend=found.backend,
            iterations=found.iterations,
        )

    best: _Candidate | None = None
    reports = []
    for name in own.order if backend == "auto" else [backend]:
        solution = own.solver(name).solve(own.program.cost(unit))
        if solution.outcome == "infeasible":
            _refuse_if_empty(uncertainty_set, losses.size)
            reports.append(f"{name} says {solution.status!r}, which could not be proved")
            continue
        found = _certified(uncertainty_set, own, unit, solution, name)
        if found is not None and found.is_usable:
            return in_units_of_losses(found)
        reports.append(_report(name, solution, found))
        if found is not None and (best is None or found.shortfall < best.shortfall):
            best = found
    if best is None or best.violation > FEASIBLE:
        _refuse_if_empty(uncertainty_set, losses.size)
    raise SolverFailed(
        f"no usable answer for {uncertainty_set!r}: {'; '.join(reports)}. Try another of "
        f"available_backends(), or constraints whose numbers are nearer to 1",
        answer=None if best is None else in_units_of_losses(best),
    )


def _refuse_if_empty(uncertainty_set: UncertaintySet, size: int) -> None:
    """EmptySet if that is proved by checked multipliers: no solver's word counts."""
    if is_proved_empty(uncertainty_set, size):
        raise empty(uncertainty_set)


def _report(name: str, solution: Solution, found: _Candidate | None) -> str:
    """Describe what is wrong with a solver's answer, for an error."""
    ended = f"{name} ended with status {solution.status!r} after {solution.iterations} iterations"
    if found is None:
        return f"{ended} and without a distribution"
    return f"{ended}, with a gap of {found.gap:.2g} of the spread and a violation of {found.violation:.2g}"


def _certified(
    uncertainty_set: UncertaintySet, own: Compiled, unit: Array, solution: Solution, name: str
) -> _Candidate | None:
    """The solver's answer with a certificate; None if it has no distribution at all."""
    if not solution.x.size or not np.isfinite(solution.x).all():
        return None
    cleaned = _clean(uncertainty_set, solution.x[own.program.columns])
    if cleaned is None:
        return None
    p, violation = cleaned
    y, bound = own.certifier.prove(unit, solution.y, solution.x)
    found = _Candidate(p, y, float(p @ unit), bound, violation, name, solution.iterations)
    if found.violation <= CLOSE and found.gap >= -FEASIBLE:
        return found
    return _moved_inside(uncertainty_set, found, unit)


def _clean(uncertainty_set: UncertaintySet, p: Array) -> tuple[Array, float] | None:
    """p without the solver's small negative entries and with sum 1: an answer is a distribution."""
    clean = np.maximum(p, 0.0)
    total = float(clean.sum())
    if not 0.0 < total < np.inf:
        return None
    clean /= total
    return clean, uncertainty_set.violation(clean)


def _moved_inside(uncertainty_set: UncertaintySet, found: _Candidate, unit: Array) -> _Candidate:
    """Move p towards the inside of the set, by the smallest of STEPS that makes it feasible.

    If that costs much of the gap, by a smaller one that does too.
    """
    inside = interior(uncertainty_set, found.p.size)
    if inside is None:
        return found

    def at(step: float) -> _Candidate:
        p = (1.0 - step) * found.p + step * inside
        return found._replace(p=p, value=float(p @ unit), violation=uncertainty_set.violation(p))

    best, below, after = found, 0.0, np.inf
    for step in STEPS:
        moved = at(step)
        if moved.rank < best.rank:
            best = moved
        if moved.violation <= FEASIBLE and moved.gap >= 0.0:
            after = step
            break
        below = step
    for _ in range(HALVINGS if best.gap > CLOSE and 0.0 < below < after < np.inf else 0):
        middle = float(np.sqrt(below * after))
        moved = at(middle)
        if moved.violation <= FEASIBLE and moved.gap >= 0.0:
            best, after = min(best, moved, key=lambda each: each.rank), middle
        else:
            below = middle
    return best
