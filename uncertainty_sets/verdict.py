"""The verdict on an answer: is its certificate within the promise, and what happens if it is not.

1. The promise, in numbers. Compiled kernels judge their own rows by the same ones (kernels/layout.py).
2. What a closed form claims that was not declared `certified`: value, bound, gap and violation are measured
   again, one pass over p and the losses and the set's own test of membership. That does not reveal a bound
   that is below the maximum but not below the value of p: `check_set` finds it, by solving the problem a
   second time.
3. Answers, or rows of a batch, whose certificate is too weak: a conic solver answers these and no others, or
   an error shows the certificate.
4. Rows without any answer. Such a row is NaN in p, value, upper bound, violation and multipliers, and its gap
   is inf, so that no comparison such as `gap <= 1e-6` accepts it. `worst_case(on_failure="raise")` raises
   SolverFailed with this answer in `.answer`; `on_failure="nan"` returns it, with the reasons by row in
   `.failed`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from uncertainty_sets.answer import WorstCase, name_rows, padded, stack
from uncertainty_sets.errors import BrokenSet, EmptySet, FdroError, InvalidInput, SolverFailed
from uncertainty_sets.kernels.dispatch import reject_not_finite
from uncertainty_sets.kernels.layout import FEASIBLE, PROMISE

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.base import UncertaintySet
    from uncertainty_sets.oracle import Oracle

USABLE = 1e-4
"""The promise of a conic answer: a gap of at most this much of the spread, and a violation of at most this.
Most answers are at 1e-9; one that breaks the promise is raised, never returned."""

NEGATIVE = 1e-7
"""How far below zero a solver's gap may be, over the spread: p is outside the set by its violation, and the
value may exceed the bound by that much times the multipliers."""

MEASURED = 1e-9
"""The largest violation of a closed form that is measured by `violation`, the same as in `contains`: cvxpy
evaluates the constraints there, not a kernel."""

EPS = 2.0**-52

ROUNDING = 64 * EPS
"""Of the losses: a solver's gap this small is rounding, even if it is large relative to their spread."""

NUMBERS = ("value", "upper_bound", "gap", "violation", "iterations")

OnFailure = Literal["raise", "nan"]
"""What `worst_case` does if there is no answer for some rows."""


def keeps_promise(gap: Any, violation: Any, spread: Any, rounding: Any, *, feasible: float = FEASIBLE) -> Any:
    """Whether a closed form's certificate is good enough, for one answer or by row.

    Args:
        gap: bound - value; below 0 by rounding at most.
        violation: of p.
        spread: max(f) - min(f), the unit of the gap.
        rounding: what a gap may be however small the spread is.
        feasible: the largest violation.
    """
    return (np.abs(gap) <= np.maximum(PROMISE * spread, rounding)) & (violation <= feasible)


# -- what a closed form claims -------------------------------------------------------------------------------


def measured_closed_form(
    uncertainty_set: UncertaintySet, losses: Array, warm_start: WorstCase | None
) -> WorstCase | None:
    """The answer of the set's `_closed_form`, with the rows marked that a solver has to answer."""
    reject_not_finite(losses)
    answer = uncertainty_set._closed_form(losses.copy(), warm_start)  # its code may write into them
    if answer is not None:
        rows = unproved_rows(uncertainty_set, losses, answer)  # first: it may not be a WorstCase
        answer.unproved = rows
    return answer


def unproved_rows(uncertainty_set: UncertaintySet, losses: Array, answer: Any) -> tuple[int, ...]:
    """The rows whose certificate is weaker than the promise; BrokenSet if a certificate is false.

    A row that the closed form itself gives up (`unproved`) claims nothing and is not checked.

    Args:
        uncertainty_set: whose `_closed_form` answered.
        losses: (N,), one row, or (B, N).
        answer: what it returned; its numbers become floats, or arrays for a batch.
    """
    if not isinstance(answer, WorstCase):
        raise _wrong(uncertainty_set, f"it must return a WorstCase or None, got {type(answer).__name__}")
    claims = np.ones(len(np.atleast_2d(losses)), dtype=bool)
    if not set(answer.unproved) <= set(range(claims.size)):
        raise _wrong(
            uncertainty_set, f"unproved must name rows in 0..{claims.size - 1}, got {answer.unproved}"
        )
    claims[list(answer.unproved)] = False
    _check_form(uncertainty_set, losses, answer, claims)
    F, P = np.atleast_2d(losses)[claims], np.atleast_2d(answer.p)[claims]
    value, bound, gap, reported = (np.atleast_1d(getattr(answer, name))[claims] for name in NUMBERS[:4])
    rows, batch = np.flatnonzero(claims), losses.ndim == 2

    def refuse(bad: Any, words: str, *numbers: Array) -> None:
        """Raise with the numbers of the first bad row, if there is one."""
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            where = f"in row {rows[first]}, " if batch else ""
            raise _wrong(uncertainty_set, where + words.format(*(each[first] for each in numbers)))

    owners = [uncertainty_set._row(int(row)) if batch else uncertainty_set for row in rows]
    measured = np.array([owner.violation(p) for owner, p in zip(owners, P, strict=True)])
    refuse(
        measured > reported + MEASURED,
        "its violation is reported as {:.6g}, and p is off the set by {:.6g}", reported, measured,
    )  # fmt: skip
    expected, spread, rounding = expected_loss(F, P)
    room = PROMISE * spread + rounding + measured * np.abs(F).max(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):  # bounds may be infinite, and losses near 1e308
        difference = bound - value
        wrong_gap = ~((np.abs(gap - difference) <= room) | (gap == difference))
        refuse(
            ~(np.abs(value - expected) <= room),
            "its value is {:.10g}, and pᵀf is {:.10g}", value, expected,
        )  # fmt: skip
        refuse(~(difference >= -room), "its upper_bound, {:.10g}, is below its value, {:.10g}", bound, value)
        refuse(wrong_gap, "its gap is {:.6g}, and upper_bound - value is {:.6g}", gap, difference)
    above = np.maximum(gap, 0.0)  # that it is not far below 0 is checked
    claims[rows] = keeps_promise(above, measured, spread, rounding, feasible=MEASURED)
    if batch:
        answer.violation[rows] = measured
    elif rows.size:
        answer.violation = float(measured[0])
    return tuple(int(row) for row in np.flatnonzero(~claims))


def expected_loss(F: Array, P: Array) -> tuple[Array, Array, Array]:
    """Every row's pᵀf, max(f) - min(f), and by how much rounding may make two sums for pᵀf differ."""
    size = np.abs(F).max(axis=1)
    exponent = np.frexp(size)[1]
    unit = np.ldexp(F, -exponent[:, None])  # in [-1, 1], so that nothing overflows
    expected = np.einsum("bn,bn->b", P, unit)
    spread = unit.max(axis=1) - unit.min(axis=1)
    rounding = (F.shape[1] + 8) * EPS * size
    with np.errstate(over="ignore"):
        return np.ldexp(expected, exponent), np.ldexp(spread, exponent), rounding


def _check_form(uncertainty_set: UncertaintySet, losses: Array, answer: WorstCase, claims: Any) -> None:
    """Check types and shapes; numbers become floats or float arrays, which later code relies on."""
    p: Any = answer.p
    if not isinstance(p, np.ndarray) or p.dtype != np.float64 or p.shape != losses.shape:
        kind = f"{p.dtype} of shape {p.shape}" if isinstance(p, np.ndarray) else type(p).__name__
        raise _wrong(uncertainty_set, f"p must be float64 of shape {losses.shape}, got {kind}")
    claimed = np.atleast_2d(p)[claims]
    if not np.isfinite(claimed).all():
        raise _wrong(uncertainty_set, f"p must be finite, got {claimed[~np.isfinite(claimed)][0]}")
    if not p.flags.writeable:
        answer.p = p.copy()  # a solver's rows may have to be written into it
    leading = losses.shape[:-1]
    for name in NUMBERS:
        numbers = _numbers(uncertainty_set, name, getattr(answer, name), leading, claims)
        setattr(answer, name, float(numbers) if losses.ndim == 1 else numbers)
    answer.iterations = np.asarray(answer.iterations).astype(np.int64)[()]
    if not isinstance(answer.dual, Mapping) or not answer.dual:
        raise _wrong(
            uncertainty_set,
            f"dual must hold the multipliers that upper_bound is computed from, got {answer.dual!r}",
        )
    dual = {
        key: _numbers(uncertainty_set, f"dual[{key!r}]", multiplier, leading, claims)
        for key, multiplier in answer.dual.items()
    }
    if losses.ndim == 2:
        answer.dual = dual


def _numbers(
    uncertainty_set: UncertaintySet, name: str, given: Any, leading: tuple[int, ...], claims: Any
) -> Array:
    """Check that claimed rows have no NaN and the shape is `leading` (multipliers: begins with it)."""
    try:
        numbers = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise _wrong(uncertainty_set, f"{name} must be numbers, got {given!r}") from None
    shape = numbers.shape[: len(leading)] if name.startswith("dual") else numbers.shape
    if shape != leading:
        needed = f"shape {leading}" if leading else "a number"
        raise _wrong(uncertainty_set, f"{name} must be {needed}, got shape {numbers.shape}")
    if np.isnan(numbers[claims] if leading else numbers).any() and claims.any():
        raise _wrong(uncertainty_set, f"{name} is NaN")
    return numbers


def _wrong(uncertainty_set: UncertaintySet, what: str) -> BrokenSet:
    return BrokenSet(
        f"{type(uncertainty_set).__name__}._closed_form answered wrongly: {what}. "
        "uncertainty_sets.check_set(…) tests all of the set; until it is fixed, backend='clarabel' does "
        "without the closed form"
    )


# -- answers that break the promise --------------------------------------------------------------------------


def settle(
    uncertainty_set: Oracle,
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
        raise _failure(uncertainty_set, answer, errors, another, empty) from errors[min(errors)]
    answer.unproved = ()
    return answer


def by_solver(uncertainty_set: Oracle, losses: Array) -> WorstCase:
    """A solver's answer, checked again for its promise, since the set may have changed it."""
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


def _failure(
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
        _blank_rows(answer, rows)
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


# -- rows without an answer ----------------------------------------------------------------------------------


def check_on_failure(given: Any) -> None:
    """Raise unless it is one of the two settings."""
    if given not in ("raise", "nan"):
        raise InvalidInput(
            f'on_failure must be "raise" or "nan", got {given!r}', parameter="on_failure", value=given
        )


def batch(answers: Mapping[int, WorstCase], rows: int, size: int) -> WorstCase:
    """The answers by row as one of that many rows; rows without an answer are blank."""
    nothing = _blank(next(iter(answers.values()), None), size)
    return stack([answers.get(row, nothing) for row in range(rows)])


def _blank_rows(answer: WorstCase, rows: tuple[int, ...]) -> None:
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
