"""Batches in which some rows have no answer: the other rows are kept, and the failed ones are named.

A failed row is NaN in p, value, upper bound, violation and multipliers, and its gap is inf, so that no
comparison such as `gap <= 1e-6` accepts it. `worst_case(on_failure="raise")` raises SolverFailed with this
answer in `.answer`; `on_failure="nan"` returns it, with the reasons by row in `.failed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from uncertainty_sets.answer import WorstCase, name_rows, stack
from uncertainty_sets.errors import InvalidInput, SolverFailed

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array

OnFailure = Literal["raise", "nan"]
"""What `worst_case` does if there is no answer for some rows."""


def check_on_failure(given: Any) -> None:
    """Raise unless it is one of the two settings."""
    if given not in {"raise", "nan"}:
        raise InvalidInput(
            f'on_failure must be "raise" or "nan", got {given!r}', parameter="on_failure", value=given
        )


def batch(answers: Mapping[int, WorstCase], rows: int, size: int) -> WorstCase:
    """The answers by row as one of that many rows; rows without an answer are blank."""
    nothing = _blank(next(iter(answers.values()), None), size)
    return stack([answers.get(row, nothing) for row in range(rows)])


def blank_rows(answer: WorstCase, rows: tuple[int, ...]) -> None:
    """Replace rows of a batch's answer by failed ones, in copies: the arrays may be a plug-in's own."""

    def without(column: Any, blank: float = np.nan) -> Array:
        copy = np.array(column, dtype=np.float64)
        copy[list(rows)] = blank
        return copy

    for name in ("p", "value", "upper_bound", "violation"):
        setattr(answer, name, without(getattr(answer, name)))
    answer.gap = without(answer.gap, np.inf)
    answer.dual = {key: without(column) for key, column in answer.dual.items()}
    answer.unproved = ()


def rows_failed(answer: WorstCase, reasons: Mapping[int, str]) -> SolverFailed:
    """The error for a batch in which those rows failed; `answer` has blank rows there."""
    rows = tuple(reasons)
    return SolverFailed(
        f"{len(rows)} of {len(answer.p)} rows have no usable answer ({name_rows(rows)}); the error's "
        f"`answer` has the others, and on_failure='nan' returns it. Row {rows[0]}: {reasons[rows[0]]}",
        answer=answer,
        rows=rows,
        reasons=tuple(reasons[row] for row in rows),
    )


def in_place_of(error: SolverFailed, losses: Array) -> WorstCase:
    """What on_failure="nan" returns instead of raising that error."""
    if losses.ndim == 1:
        answer = _blank(None, losses.size)
        answer.failed = {0: str(error)}
        return answer
    if error.answer is None or not error.rows:  # raised by a set's own code, which names no rows
        raise error
    error.answer.failed = dict(zip(error.rows, error.reasons, strict=True))
    return error.answer


def _blank(like: WorstCase | None, size: int) -> WorstCase:
    """A failed row, with the multipliers and backend of an answer to another row."""
    dual = {} if like is None else like.dual
    nothing = {key: np.full_like(np.asarray(each, dtype=np.float64), np.nan) for key, each in dual.items()}
    backend = "none" if like is None else like.backend
    return WorstCase(np.full(size, np.nan), np.nan, np.nan, np.inf, np.nan, nothing, backend, 0)
