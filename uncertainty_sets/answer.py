"""What an oracle answers: a distribution with its proof, for one loss vector or a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uncertainty_sets.arrays import Array


class WorstCase:
    """A worst-case distribution and its proof.

    For losses of shape (B, N) every field except `backend` has a leading axis of length B.

    Attributes:
        p: the distribution, feasible up to `violation`.
        value: pᵀf, a lower bound on the maximum.
        upper_bound: an upper bound on the maximum, from the multipliers in `dual` alone.
        gap: upper_bound - value, computed before both are rounded to the size of the losses; p is at most
            this far from optimal. Never clipped: a negative gap of rounding size stays negative.
        violation: the largest residual of p over the simplex and the set's constraints, each scaled
            by max(1, |right-hand side|).
        dual: the multipliers; the set's docstring has the keys and the bound's formula. A multiplier beyond
            the largest float is infinite.
        backend: which solver answered.
        iterations: evaluations of the dual function, or the solver's own count.
        failed: the rows without an answer and why, only with `on_failure="nan"`: such a row is NaN and its
            gap is inf. A single loss vector is row 0.
    """

    __slots__ = (
        "backend", "dual", "failed", "gap", "iterations", "p",
        "unproved", "upper_bound", "value", "violation",
    )  # fmt: skip

    p: Array
    value: Any
    upper_bound: Any
    gap: Any
    violation: Any
    dual: Mapping[str, Any]
    backend: str
    iterations: Any
    failed: Mapping[int, str]
    unproved: tuple[int, ...]  # rows whose certificate breaks the promise; `worst_case` gives out none

    def __init__(
        self,
        p: Array,
        value: Any,
        upper_bound: Any,
        gap: Any,
        violation: Any,
        dual: Mapping[str, Any],
        backend: str,
        iterations: Any,
        unproved: tuple[int, ...] = (),
    ) -> None:
        self.p = p
        self.value = value
        self.upper_bound = upper_bound
        self.gap = gap
        self.violation = violation
        self.dual = dual
        self.backend = backend
        self.iterations = iterations
        self.unproved = unproved
        self.failed = {}

    def __repr__(self) -> str:
        if self.p.ndim == 2:
            rows, size = self.p.shape
            failed = f", failed: {name_rows(tuple(self.failed))}" if self.failed else ""
            answered = [row for row in range(rows) if row not in self.failed] if self.failed else slice(None)
            gap, violation = (np.max(each[answered], initial=-np.inf) for each in (self.gap, self.violation))
            return (
                f"WorstCase({rows} rows of {size}, largest gap={gap:.2g}, "
                f"largest violation={violation:.2g}, backend={self.backend!r}{failed})"
            )
        p = np.array2string(self.p, precision=4, threshold=8, edgeitems=3, separator=", ")
        return (
            f"WorstCase(value={self.value:.10g}, p={p}, gap={self.gap:.2g}, "
            f"violation={self.violation:.2g}, backend={self.backend!r})"
        )


def stack(answers: list[WorstCase]) -> WorstCase:
    """The answers to the rows of a batch as one; multipliers that not all of them have are left out."""
    shared = [key for key in answers[0].dual if all(key in answer.dual for answer in answers)]
    backends = sorted({answer.backend for answer in answers})
    return WorstCase(
        np.array([answer.p for answer in answers]),
        np.array([answer.value for answer in answers]),
        np.array([answer.upper_bound for answer in answers]),
        np.array([answer.gap for answer in answers]),
        np.array([answer.violation for answer in answers]),
        {key: padded([answer.dual[key] for answer in answers]) for key in shared},
        " and ".join(backends),
        np.array([answer.iterations for answer in answers]),
    )


def padded(multipliers: Sequence[Any]) -> Array:
    """One row each; NaN after the end of shorter ones, since the programs of rows may differ in length."""
    arrays = [np.asarray(each, dtype=np.float64) for each in multipliers]
    shape = tuple(np.max([each.shape for each in arrays], axis=0).astype(int)) if arrays[0].ndim else ()
    if all(each.shape == shape for each in arrays):
        return np.array(arrays)
    table = np.full((len(arrays), *shape), np.nan)
    for row, each in zip(table, arrays, strict=True):
        row[: each.size] = each
    return table


def name_rows(rows: Sequence[int], most: int = 8) -> str:
    """The rows of a batch for an error's message: "rows 3, 5 and 7 more"."""
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    return f"row{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows[:most]))}{more}"
