"""`check_set`: try the properties of every set on one, and report what was found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.check.properties import ASK_NOTHING, EVERY
from uncertainty_sets.check.subject import Subject, trial_losses
from uncertainty_sets.errors import BrokenSet, InvalidInput
from uncertainty_sets.packages import load

SHOWN = 3  # findings per property in the table; `findings` has all


@dataclass(frozen=True, repr=False)
class SetReport:
    """What `check_set` tried; prints as a table.

    Attributes:
        subject: the set, as it prints itself.
        size: N.
        findings: for each tested property, what is wrong; empty if it holds. If the oracle gives no answer at
            all, most properties are not tested.
        promises: every property in one line, including those that were not tested.
        losses: the kinds of losses that it was tried on.
        backends: those that answered.
    """

    subject: str
    size: int
    findings: dict[str, tuple[str, ...]]
    promises: dict[str, str]
    losses: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()

    @property
    def broken(self) -> list[str]:
        """The properties that do not hold."""
        return [name for name, found in self.findings.items() if found]

    def __str__(self) -> str:
        width = max(map(len, self.promises))
        lines = [f"{self.subject}, N = {self.size}"]
        for name, promise in self.promises.items():
            found = self.findings.get(name, ())
            outcome = "not tried" if name not in self.findings else "BROKEN" if found else "holds"
            lines.append(f"{name:{width}}  {outcome:9}  {promise}")
            lines += [f"{'':{width}}    {each}" for each in found[:SHOWN]]
            if len(found) > SHOWN:
                lines.append(f"{'':{width}}    … and {len(found) - SHOWN} more")
        lines.append(f"tried on {len(self.losses)} loss vectors: {', '.join(self.losses)}")
        lines.append(f"answered by {', '.join(self.backends) or 'no backend'}")
        return "\n".join(lines)

    __repr__ = __str__  # so that a notebook shows what was checked


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
