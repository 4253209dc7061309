"""`check_set`: try the properties of every set on one."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.check.properties import ASK_NOTHING, EVERY
from uncertainty_sets.check.report import SetReport
from uncertainty_sets.check.subject import Subject, trial_losses
from uncertainty_sets.errors import BrokenSet, InvalidInput
from uncertainty_sets.packages import load


def check_set(uncertainty_set: UncertaintySet, size: int | None = None, *, seed: int = 0) -> SetReport:
    """Test every property that a set must have; for authors of sets: `check_set(MySet.example(5))`.

    Runs the oracle on random losses and on edge cases (ties, all equal, zeros, one entry, sizes of 1e±150,
    large shifts) and checks answer, value, bound, membership, reference, batches, warm starts, copies,
    immutability, the robust counterpart and all backends. cvxpy computes the maximum a second time from
    `constraints`. Takes seconds and needs no test framework.

    Args:
        uncertainty_set: one set with one row of parameters; small, since it is solved some hundred times.
        size: N, if the set has no size.
        seed: of the random losses.

    Returns:
        A report that prints as a table. `BrokenSet` if anything does not hold: its message lists what and the
        numbers, its `report` is the same object.

    >>> from uncertainty_sets import KL
    >>> report = check_set(KL.example(4))
    >>> report.broken
    []
    >>> print(report)
    KL(center=[0.25, 0.25, 0.25, 0.25], radius=0.1), N = 4
    form             holds      An answer is a WorstCase of finite numbers with multipliers.
    feasible         holds      p is in the set, by `violation` and by the constraints themselves.
    ...
    """
    if not isinstance(uncertainty_set, UncertaintySet):
        raise InvalidInput(
            f"check_set takes a set, as in check_set(MySet.example(5)), got {uncertainty_set!r}"
        )
    if uncertainty_set.rows is not None:
        raise InvalidInput(f"check_set takes one set, and this one has {uncertainty_set.rows} rows")
    if size is None and uncertainty_set.size is None:
        raise InvalidInput(f"{type(uncertainty_set).__name__} takes its size from the losses: give size")
    load("cvxpy", "check_set")  # its absence must not be reported as a property that the set breaks
    entries = uncertainty_set.size if size is None else size
    sized = uncertainty_set.with_size(entries)  # type: ignore[arg-type]  # one of both is there
    assert sized.size is not None
    subject = Subject(sized, trial_losses(sized.size, np.random.default_rng(seed)), seed)
    tried = tuple(subject.losses)
    findings = {"form": _findings("form", subject)}
    subject.drop_unanswered()  # reported once, not again by every property
    findings |= {
        name: _findings(name, subject)
        for name in EVERY
        if name != "form" and (subject.losses or name in ASK_NOTHING)
    }
    promises = {name: (each.__doc__ or "").splitlines()[0] for name, each in EVERY.items()}
    report = SetReport(_printed(sized), sized.size, findings, promises, tried, tuple(subject.backends))
    if report.broken:
        error = BrokenSet(
            f"{type(uncertainty_set).__name__} breaks {len(report.broken)} of {len(EVERY)} properties: "
            f"{', '.join(report.broken)}\n{report}"
        )
        error.report = report
        raise error
    return report


def _findings(name: str, subject: Subject) -> tuple[str, ...]:
    """What a property finds; an exception is a finding too, and the end of that property."""
    found: list[str] = []
    try:
        found.extend(EVERY[name](subject))
    except Exception as error:  # whatever the author's code raises is reported with the rest
        found.append(f"{type(error).__name__}: {error}")
    return tuple(found)


def _printed(uncertainty_set: UncertaintySet) -> str:
    """The set's repr, unless that is what is broken."""
    try:
        return str(repr(uncertainty_set))
    except Exception:
        return type(uncertainty_set).__name__
