"""Recheck the answers of a plug-in's closed form before `worst_case` returns them.

The kernels of sets/ measure value and violation from the p that they return, which `_certifies_itself`
declares. A plug-in's code may claim anything, so its claims are measured again: one pass over p and the
losses, and the set's own test of membership. That does not reveal a bound that is below the maximum but not
below the value of p: `check_set` finds it, by solving the problem a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.errors import BrokenSet
from uncertainty_sets.kernels.dispatch import reject_not_finite

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.contract import SetContract

PROMISE = 1e-9
"""The widest gap of a closed form, relative to max(f) - min(f)."""

FEASIBLE = 1e-9
"""The largest violation, the same as in `contains`: cvxpy evaluates the constraints here, not a kernel."""

ROUNDING = float(np.finfo(np.float64).eps)

NUMBERS = ("value", "upper_bound", "gap", "violation", "iterations")


def closed_form(
    uncertainty_set: SetContract, losses: Array, warm_start: WorstCase | None
) -> WorstCase | None:
    """The answer of the set's `_closed_form`, with the rows marked that a solver has to answer."""
    reject_not_finite(losses)
    answer = uncertainty_set._closed_form(losses.copy(), warm_start)  # its code may write into them
    if answer is not None:
        rows = unproved_rows(uncertainty_set, losses, answer)  # first: it may not be a WorstCase
        answer.unproved = rows
    return answer


def unproved_rows(uncertainty_set: SetContract, losses: Array, answer: Any) -> tuple[int, ...]:
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
        measured > reported + FEASIBLE,
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
    claims[rows] = (gap <= np.maximum(PROMISE * spread, rounding)) & (measured <= FEASIBLE)
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
    rounding = (F.shape[1] + 8) * ROUNDING * size
    with np.errstate(over="ignore"):
        return np.ldexp(expected, exponent), np.ldexp(spread, exponent), rounding


def _check_form(uncertainty_set: SetContract, losses: Array, answer: WorstCase, claims: Any) -> None:
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
    uncertainty_set: SetContract, name: str, given: Any, leading: tuple[int, ...], claims: Any
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


def _wrong(uncertainty_set: SetContract, what: str) -> BrokenSet:
    return BrokenSet(
        f"{type(uncertainty_set).__name__}._closed_form answered wrongly: {what}. "
        "uncertainty_sets.check_set(…) tests all of the set; until it is fixed, backend='clarabel' does "
        "without the closed form"
    )
