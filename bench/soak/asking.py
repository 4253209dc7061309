"""Call the library's public functions for a case, and turn the answers into plain arrays."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.soak.cases import Case
from uncertainty_sets import UncertaintySet, WorstCase
from uncertainty_sets.arrays import Array


@dataclass
class Answers:
    """The answers to the rows of a case; `errors` has the rows without one."""

    rows: NDArray[np.int64]
    p: Array
    value: Array
    upper_bound: Array
    gap: Array
    violation: Array
    dual: dict[str, Array]
    backends: list[str]
    errors: dict[int, Exception]


def ask(case: Case) -> Answers:
    """Call the oracle for the whole batch, or row by row if the case says so or the batch raised."""
    if not case.single:
        with suppress(Exception):  # called again row by row below, which records each row's error
            return _apart([_call(case.subject(), case.losses, case.warm)], range(case.rows), {})
    answers, rows, errors = [], [], {}
    for row in range(case.rows):
        warm = None if case.warm is None else {key: value[row] for key, value in case.warm.items()}
        try:
            answers.append(_call(case.subject(row), case.losses[row], warm))
            rows.append(row)
        except Exception as error:
            errors[row] = error
    return _apart(answers, rows, errors)


def _call(subject: UncertaintySet, f: Array, warm: dict[str, Any] | None) -> WorstCase:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning counts as a failure, as in the tests
        start = None if warm is None else WorstCase(f, 0.0, 0.0, 0.0, 0.0, warm, "closed-form", 0)
        return subject.worst_case(f, warm_start=start)


def _apart(answers: list[WorstCase], rows: Any, errors: dict[int, Exception]) -> Answers:
    """One structure of arrays from answers to batches or to single vectors; a missing multiplier is NaN."""
    count = len(rows)
    keys = sorted({key for answer in answers for key in answer.dual})
    dual: dict[str, Array] = {}
    for key in keys:
        parts = [answer.dual.get(key) for answer in answers]
        if len(parts) == 1 and answers[0].p.ndim == 2:
            dual[key] = np.asarray(parts[0], dtype=float)
            continue
        if max(np.ndim(part) for part in parts if part is not None) == 0:
            dual[key] = np.array([np.nan if part is None else part for part in parts], dtype=float)
            continue
        # The programs of a batch may differ in length (a centre with zeros): short ones are padded with NaN.
        dual[key] = np.full((count, max(np.size(part) for part in parts if part is not None)), np.nan)
        for b, part in enumerate(parts):
            if part is not None:
                dual[key][b, : np.size(part)] = part
    backends = [answer.backend for answer in answers]
    if len(answers) == 1:
        backends = backends * count

    def column(name: str) -> Array:
        return np.array([getattr(answer, name) for answer in answers], dtype=float).reshape(count)

    p = np.concatenate([np.atleast_2d(answer.p) for answer in answers]) if answers else np.empty((0, 0))
    return Answers(
        np.array(rows, dtype=np.int64),
        p,
        column("value"),
        column("upper_bound"),
        column("gap"),
        column("violation"),
        dual,
        backends,
        errors,
    )
