"""The exceptions of fdro, one tree.

::

    FdroError
    ├── InvalidInput (ValueError)         what was given cannot be used; `.parameter`, `.value`
    │   ├── InvalidLosses                 NaN, infinite, wrong length or shape
    │   ├── InvalidParameter              a set's parameter: sign, shape, sum, symmetry
    │   ├── EmptySet                      the parameters leave no distribution at all
    │   └── UnknownName (LookupError)     no set or backend has that name, or its package cannot be loaded
    ├── NameTaken (TypeError)             two classes want one name
    ├── BrokenSet (RuntimeError)          a set's own code breaks what every set promises
    └── BackendError (RuntimeError)       a solver cannot do, or did not do, what was asked
        ├── BackendMissing (ImportError)  a package that this needs is not installed
        ├── BackendUnsuitable (ValueError)  it lacks a cone that the set needs
        └── SolverFailed                  it gave no answer with a good certificate; `.answer`, `.rows`,
                                          `.reasons`

Every message names the argument, what it got and what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uncertainty_sets.answer import WorstCase
    from uncertainty_sets.check.check import SetReport

__all__ = [
    "BackendError",
    "BackendMissing",
    "BackendUnsuitable",
    "BrokenSet",
    "EmptySet",
    "FdroError",
    "InvalidInput",
    "InvalidLosses",
    "InvalidParameter",
    "NameTaken",
    "SolverFailed",
    "UnknownName",
]


class FdroError(Exception):
    """Base class of the exceptions of fdro."""


class InvalidInput(FdroError, ValueError):
    """The input cannot be used.

    Attributes:
        parameter: the name of the argument at fault; None if no single one is.
        value: what it got.
    """

    def __init__(self, message: str = "", *, parameter: str | None = None, value: Any = None) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.value = value


class InvalidLosses(InvalidInput):
    """The losses hold NaN or infinity, or have the wrong length or shape."""


class InvalidParameter(InvalidInput):
    """A parameter of a set has the wrong sign, shape, sum or symmetry, is missing, or does not exist."""


class EmptySet(InvalidInput):
    """The parameters leave no probability vector in the set."""


class UnknownName(InvalidInput, LookupError):
    """No set or backend has that name, or its package cannot be loaded: then the error has a cause."""


class NameTaken(FdroError, TypeError):
    """Another set, backend, algorithm or engine has that name already (`uncertainty_sets.registry`)."""


class BrokenSet(FdroError, RuntimeError):
    """A set's own code is wrong: its answer is false, or it lacks a property that every set must have.

    Attributes:
        report: all that `check_set` found; None for a single answer that was refused.
    """

    report: SetReport | None = None


class BackendError(FdroError, RuntimeError):
    """A solver cannot do, or did not do, what was asked."""


class BackendMissing(BackendError, ImportError):
    """A package that a backend or a function needs is not installed; the message says what to install."""


class BackendUnsuitable(BackendError, ValueError):
    """The backend lacks a cone that the set needs; the message says which backends have it."""


class SolverFailed(BackendError):
    """The solver, or the closed form, ran and gave no answer that its own certificate supports.

    Attributes:
        answer: for a single loss vector the rejected answer, with the certificate that shows what is wrong;
            None if there is none. For a batch the answers to all rows, with NaN and a gap of inf in the
            failed ones.
        rows: which rows of a batch failed; empty for a single loss vector.
        reasons: why each of these rows failed, in the same order.
    """

    def __init__(
        self,
        message: str,
        *,
        answer: WorstCase | None = None,
        rows: Sequence[int] = (),
        reasons: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.answer = answer
        self.rows = tuple(rows)
        self.reasons = tuple(reasons)
