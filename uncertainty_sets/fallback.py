"""Replace answers whose certificate is too weak by a solver's, or raise an error that shows the certificate.

A closed form marks the rows whose gap or violation breaks the promise (kernels/scan.py). Those rows, and no
others, go to a conic solver here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from uncertainty_sets.answer import name_rows, padded
from uncertainty_sets.errors import EmptySet, FdroError, SolverFailed
from uncertainty_sets.failures import blank_rows

if TYPE_CHECKING:
    from uncertainty_sets.answer import WorstCase
    from uncertainty_sets.arrays import Array


class Solvable(Protocol):
    """What can be answered by a solver: a set, or a penalised problem."""

    def _by_solver(self, losses: Array) -> WorstCase: ...

    def _row(self, index: int) -> Solvable: ...


ROUNDING = 64 * 2.0**-52
"""A gap this small relative to the losses is rounding, even if it is large relative to their spread."""


def settle(
    uncertainty_set: Solvable,
    losses: Array,
    answer: WorstCase,
    backend: str,
    another: str = "backend='clarabel'",
) -> WorstCase:
    """The answer with its unproved rows replaced by a solver's, or SolverFailed.

    `another` is what the user can ask instead, for the error.
    """
    errors: dict[int, FdroError | None] = {}
    empty: set[int] = set()
    for row in answer.unproved:
        try:
            owner = uncertainty_set if losses.ndim == 1 else uncertainty_set._row(row)
        except EmptySet as error:
            errors[row] = error
            empty.add(row)
            continue
        if backend == "closed-form":
            errors[row] = None
            continue
        try:
            # A solver may also find a set of extreme numbers empty or unusable.
            if losses.ndim == 1:
                return by_solver(owner, losses)
            _put_row(answer, row, by_solver(owner, losses[row]))
        except FdroError as error:
            errors[row] = error
    if errors:
        raise failure(uncertainty_set, answer, errors, another, empty) from errors[min(errors)]
    answer.unproved = ()
    return answer


def by_solver(uncertainty_set: Solvable, losses: Array) -> WorstCase:
    """A solver's answer, checked again for the promise of conic/ since the set may have changed it."""
    from uncertainty_sets.conic.oracle import NEGATIVE, USABLE

    found = uncertainty_set._by_solver(losses)
    spread = 2.0 * (0.5 * float(losses.max()) - 0.5 * float(losses.min()))
    rounding = ROUNDING * float(np.abs(losses).max())
    proved = -max(NEGATIVE * spread, rounding) <= found.gap <= max(USABLE * spread, rounding)
    if not (proved and found.violation <= USABLE):
        raise SolverFailed(
            f"{found.backend} has a gap of {found.gap:.3g} and a violation of {found.violation:.3g}",
            answer=found,
        )
    return found


def failure(
    asked: object,
    answer: WorstCase,
    errors: Mapping[int, FdroError | None],
    another: str,
    empty: Collection[int],
) -> SolverFailed:
    """The error for rows that no method could answer with a good certificate; `errors` are the solver's.

    `another` is what the user can ask instead; the sets of the rows in `empty` could not be made.
    """
    gap, violation = (np.atleast_1d(each) for each in (answer.gap, answer.violation))
    reasons = []
    for row, error in errors.items():
        if row in empty:
            reasons.append(str(error))
            continue
        reason = f"the closed form has a gap of {gap[row]:.3g} and a violation of {violation[row]:.3g}"
        reasons.append(reason if error is None else f"{reason}; a solver instead: {error}")
    single = answer.p.ndim == 1
    rows = () if single else tuple(errors)
    if rows:
        blank_rows(answer, rows)
    if len(empty) == len(errors):
        return SolverFailed(
            f"{type(asked).__name__} has no distribution in {name_rows(rows)} of {len(answer.p)}: "
            f"{reasons[0]}. "
            "The other rows are in `.answer`, and on_failure='nan' returns it",
            answer=answer,
            rows=rows,
            reasons=reasons,
        )
    what = "these losses" if single else f"{name_rows(rows)} of {len(answer.p)}"
    found = "The closed form's answer is" if single else "The other rows are"
    return SolverFailed(
        f"no answer of {type(asked).__name__} for {what} has a certificate within the promise: "
        f"{reasons[0]}. {found} in `.answer`; try {another}, or parameters and losses that span "
        "fewer orders of magnitude",
        answer=answer,
        rows=rows,
        reasons=reasons if rows else (),
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
