"""The driver's exceptions, one branch of the tree in `uncertainty_sets.errors`.

::

    FdroError
    ├── InvalidInput (ValueError)
    │   ├── InvalidSetting          a setting of the algorithm, the engine or an observer
    │   │   └── InvalidConfig       a field of a config file; `.line` and `.field` say where
    │   ├── InvalidData             a file of losses or samples: missing, empty, a cell that is no number
    │   └── InvalidProblem          a local problem: dimension, shapes, labels
    ├── ClusterUnreachable (ConnectionError)  a running cluster that cannot be joined
    └── DriverError (RuntimeError)  a run that cannot go on; `.result` keeps the last good state
        ├── NoWorkersLeft           every worker crashed, was dropped or fell silent
        └── Deadlock                nothing is under way and the master still waits

    RuntimeWarning
    └── WorkerSilent                a worker that may hang
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uncertainty_sets.errors import FdroError, InvalidInput

if TYPE_CHECKING:
    from fdro_core.result import Result

__all__ = [
    "ClusterUnreachable",
    "Deadlock",
    "DriverError",
    "InvalidConfig",
    "InvalidData",
    "InvalidProblem",
    "InvalidSetting",
    "NoWorkersLeft",
    "WorkerSilent",
]


class InvalidSetting(InvalidInput):
    """A setting has a value that cannot work; the message says which values can."""


class InvalidConfig(InvalidSetting):
    """A config file cannot be used. The message begins with file and line.

    Attributes:
        line: in the file, counted from 1.
        field: dotted, as in "set.radius"; "" for the file as a whole.
    """

    def __init__(self, message: str, *, path: str, line: int, field: str) -> None:
        super().__init__(f"{path}:{line}: {f'{field}: ' if field else ''}{message}")
        self.line = line
        self.field = field


class InvalidData(InvalidInput):
    """A file of losses or samples cannot be used; the message says which line and column."""


class InvalidProblem(InvalidInput):
    """A local problem cannot be used: wrong dimension, shapes or labels."""


class ClusterUnreachable(FdroError, ConnectionError):
    """The cluster at the address given cannot be joined: it is not there, or refuses the token."""


class DriverError(FdroError, RuntimeError):
    """The run cannot go on. `result` holds the last good state."""

    result: Result | None = None


class NoWorkersLeft(DriverError):
    """Every worker crashed, was dropped or fell silent."""


class Deadlock(DriverError):
    """The master waits and nothing is under way that could reach it."""


class WorkerSilent(RuntimeWarning):
    """A worker has been silent for longer than `deadline="auto"` allows; the message says how long and why.

    A notice in the history says the same.
    """
