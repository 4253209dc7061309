"""What a set's own closed form answers, checked before it leaves `worst_case`.

The kernels of sets/ measure value and violation from the p that they return and say so
(`_certifies_itself`). The code of a plug-in may claim anything. So its claims are measured again: one pass
over p and the losses, and the set's own test of membership. What cannot be seen this way is a bound that is
too low for the maximum and not for p: `check_set` finds that, by solving the problem once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.base import WorstCase
from uncertainty_sets.closed_form import reject_not_finite
from uncertainty_sets.errors import BrokenSet

if TYPE_CHECKING:
    from uncertainty_sets.base import Array, UncertaintySet

PROMISE = 1e-9
"""The widest gap of a closed form, relative to max(f) - min(f)."""

FEASIBLE = 1e-9
"""The largest violation, as `contains` has it: constraints are evaluated by cvxpy here, not by a kernel."""

ROUNDING = float(np.finfo(np.float64).eps)

NUMBERS = ("value", "upper_bound", "gap", "violation", "iterations")


def closed_form(
    uncertainty_set: UncertaintySet, losses: Array, warm_start: WorstCase | None
) -> WorstCase | None:
    """The answer of the set's `_closed_form`, with the rows marked that a solver has to answer."""
    reject_not_finite(losses)
    answer = uncertainty_set._closed_form(losses, warm_start)
    if answer is not None:
        rows = unproved_rows(uncertainty_set, losses, answer)
        answer.unproved = rows
    return answer


def unproved_rows(uncertainty_set: UncertaintySet, losses: Array, answer: Any) -> tuple[int, ...]:
    """The rows whose certificate is weaker than the promise; BrokenSet if it is not even true.

    Args:
        uncertainty_set: whose `_closed_form` answered.
        losses: (N,), one row, or (B, N).
        answer: what it returned; its numbers become floats, or arrays for a batch.
    """
    _check_form(uncertainty_set, losses, answer)
    F, P = np.atleast_2d(losses), np.atleast_2d(answer.p)
    value, bound, gap, claimed = (np.atleast_1d(getattr(answer, name)) for name in NUMBERS[:4])
    measured = measure_violation(uncertainty_set, P, losses.ndim)
    _refuse(
        uncertainty_set, answer, measured > claimed + FEASIBLE,
        "its violation is said to be {:.6g}, and p is off the set by {:.6g}", claimed, measured,
    )  # fmt: skip
    expected, spread, rounding = expected_loss(F, P)
    room = PROMISE * spread + rounding + measured * np.abs(F).max(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):  # bounds may be infinite, and losses near 1e308
        _refuse(
            uncertainty_set, answer, ~(np.abs(value - expected) <= room),
            "its value is {:.10g}, and pᵀf is {:.10g}", value, expected,
        )  # fmt: skip
        difference = bound - value
        _refuse(
            uncertainty_set, answer, ~(difference >= -room),
            "its upper_bound, {:.10g}, is below its value, {:.10g}", bound, value,
        )  # fmt: skip
        _refuse(
            uncertainty_set, answer, ~((np.abs(gap - difference) <= room) | (gap == difference)),
            "its gap is {:.6g}, and upper_bound - value is {:.6g}", gap, difference,
        )  # fmt: skip
    proved = (gap <= np.maximum(PROMISE * spread, rounding)) & (measured <= FEASIBLE)
    return tuple(int(row) for row in np.flatnonzero(~proved))


def measure_violation(uncertainty_set: UncertaintySet, P: Array, axes: int) -> Array:
    """Every row's violation, by the set of that row."""
    if axes == 1:
        return np.array([uncertainty_set.violation(P[0])])
    return np.array([uncertainty_set._row(row).violation(p) for row, p in enumerate(P)])


def expected_loss(F: Array, P: Array) -> tuple[Array, Array, Array]:
    """Every row's pᵀf, max(f) - min(f), and how far rounding may take two ways to sum up pᵀf apart."""
    size = np.abs(F).max(axis=1)
    exponent = np.frexp(size)[1]
    unit = np.ldexp(F, -exponent[:, None])  # in [-1, 1], so that nothing overflows
    expected = np.einsum("bn,bn->b", P, unit)
    spread = unit.max(axis=1) - unit.min(axis=1)
    rounding = (F.shape[1] + 8) * ROUNDING * size
    with np.errstate(over="ignore"):
        return np.ldexp(expected, exponent), np.ldexp(spread, exponent), rounding


def _check_form(uncertainty_set: UncertaintySet, losses: Array, answer: Any) -> None:
    """The kinds and shapes; numbers become floats or float arrays, which others may then rely on."""
    if not isinstance(answer, WorstCase):
        raise _wrong(uncertainty_set, f"it must return a WorstCase or None, got {type(answer).__name__}")
    p = answer.p
    if not isinstance(p, np.ndarray) or p.dtype != np.float64 or p.shape != losses.shape:
        kind = f"{p.dtype} of shape {p.shape}" if isinstance(p, np.ndarray) else type(p).__name__
        raise _wrong(uncertainty_set, f"p must be float64 of shape {losses.shape}, got {kind}")
    if not np.isfinite(p).all():
        raise _wrong(uncertainty_set, f"p must be finite, got {p[~np.isfinite(p)][0]}")
    if not p.flags.writeable:
        answer.p = p.copy()  # a solver's rows may have to be written into it
    for name in NUMBERS:
        numbers = _numbers(uncertainty_set, name, getattr(answer, name), losses.shape[:-1])
        setattr(answer, name, float(numbers) if losses.ndim == 1 else numbers)
    if not isinstance(answer.dual, Mapping) or not answer.dual:
        raise _wrong(
            uncertainty_set,
            f"dual must hold the multipliers that upper_bound is computed from, got {answer.dual!r}",
        )
    dual = {
        key: _numbers(uncertainty_set, f"dual[{key!r}]", multiplier, losses.shape[:-1])
        for key, multiplier in answer.dual.items()
    }
    if losses.ndim == 2:
        answer.dual = dual


def _numbers(uncertainty_set: UncertaintySet, name: str, given: Any, leading: tuple[int, ...]) -> Array:
    """Numbers without NaN, with those axes first (only those, unless they are multipliers)."""
    try:
        numbers = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise _wrong(uncertainty_set, f"{name} must be numbers, got {given!r}") from None
    shape = numbers.shape[: len(leading)] if name.startswith("dual") else numbers.shape
    if shape != leading:
        needed = f"shape {leading}" if leading else "a number"
        raise _wrong(uncertainty_set, f"{name} must be {needed}, got shape {numbers.shape}")
    if np.isnan(numbers).any():
        raise _wrong(uncertainty_set, f"{name} is NaN")
    return numbers


def _refuse(
    uncertainty_set: UncertaintySet, answer: WorstCase, bad: Any, words: str, *numbers: Array
) -> None:
    """Raise with the numbers of the first bad row, if there is one."""
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        where = f"in row {row}, " if answer.p.ndim == 2 else ""
        raise _wrong(uncertainty_set, where + words.format(*(each[row] for each in numbers)))


def _wrong(uncertainty_set: UncertaintySet, what: str) -> BrokenSet:
    return BrokenSet(
        f"{type(uncertainty_set).__name__}._closed_form answered wrongly: {what}. "
        "uncertainty_sets.check_set(…) tries all that it does; until it is mended, backend='clarabel' goes "
        "without the closed form"
    )
