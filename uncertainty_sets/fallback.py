"""Replace answers whose certificate is too weak by a solver's, or raise an error that shows the certificate.

A closed form marks the rows whose gap or violation breaks the promise (kernels/scan.py). Those rows, and no
others, go to a conic solver here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.answer import name_rows, padded
from uncertainty_sets.errors import FdroError, SolverFailed

if TYPE_CHECKING:
    from uncertainty_sets.answer import WorstCase
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.contract import SetContract


ROUNDING = 64 * 2.0**-52
"""A gap this small relative to the losses is rounding, even if it is large relative to their spread."""


def settle(uncertainty_set: SetContract, losses: Array, answer: WorstCase, backend: str) -> WorstCase:
    """The answer with its unproved rows replaced by a solver's, or SolverFailed."""
    if backend == "closed-form":
        raise failure(uncertainty_set, answer, answer.unproved)
    if losses.ndim == 1:
        try:
            return _by_solver(uncertainty_set, losses)
        except FdroError as error:  # a solver may also find a set of extreme numbers empty or unusable
            raise failure(uncertainty_set, answer, (0,)) from error
    failed: list[int] = []
    cause: FdroError | None = None
    for row in answer.unproved:
        try:
            _put_row(answer, row, _by_solver(uncertainty_set._row(row), losses[row]))
        except FdroError as error:
            failed.append(row)
            cause = error
    if failed:
        raise failure(uncertainty_set, answer, tuple(failed)) from cause
    answer.unproved = ()
    return answer


def _by_solver(uncertainty_set: SetContract, losses: Array) -> WorstCase:
    """A solver's answer, checked again for the promise of conic/ since the set may have changed it."""
    from uncertainty_sets.conic.oracle import USABLE

    found = uncertainty_set._by_solver(losses)
    spread = 2.0 * (0.5 * float(losses.max()) - 0.5 * float(losses.min()))
    rounding = ROUNDING * float(np.abs(losses).max())
    if not (found.gap <= max(USABLE * spread, rounding) and found.violation <= USABLE):
        raise SolverFailed(
            f"{found.backend} has a gap of {found.gap:.3g} and a violation of {found.violation:.3g}",
            answer=found,
        )
    return found


def failure(uncertainty_set: SetContract, answer: WorstCase, rows: tuple[int, ...]) -> SolverFailed:
    """The error for rows that no method could answer with a good certificate."""
    name = type(uncertainty_set).__name__
    gap, violation = (np.atleast_1d(each)[list(rows)] for each in (answer.gap, answer.violation))
    found = f"the best has a gap of {gap[0]:.3g} and a violation of {violation[0]:.3g}"
    if answer.p.ndim == 1:
        where: tuple[int, ...] = ()
        what = "these losses"
    else:
        where = rows
        what = f"{name_rows(rows)} of {len(answer.p)}"
    return SolverFailed(
        f"no answer of {name} for {what} has a certificate within the promise: {found}. It is in `.answer`; "
        f"try backend='clarabel', or parameters and losses that span fewer orders of magnitude",
        answer=answer,
        rows=where,
    )


def _put_row(answer: WorstCase, row: int, found: WorstCase) -> None:
    """Write one row's answer into a batch's.

    No multiplier changes its name: those that only the solver gives are added, NaN in the other rows.
    """
    for name in ("p", "value", "upper_bound", "gap", "violation", "iterations"):
        getattr(answer, name)[row] = getattr(found, name)
    dual: dict[str, Any] = dict(answer.dual)
    for key in dual.keys() | found.dual.keys():
        nothing = np.full_like(np.asarray(found.dual.get(key, np.nan), dtype=np.float64), np.nan)
        rows = list(dual.get(key, [nothing] * len(answer.p)))
        rows[row] = found.dual.get(key, np.full_like(rows[row], np.nan))
        dual[key] = padded(rows)
    answer.dual = dual
    if found.backend not in answer.backend:
        answer.backend = f"{answer.backend} and {found.backend}"
