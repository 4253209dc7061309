"""The driver's exceptions, one branch of the tree in `uncertainty_sets.errors`.

::

    FdroError
    ├── InvalidInput (ValueError)
    │   ├── InvalidSetting          a setting of the algorithm, the engine or an observer
    │   │   ├── InvalidConfig       a field of a run file; `.line` and `.field` say where
    │   │   ├── SeveralMistakes     of a run file and its data; `.mistakes` has them all
    │   │   ├── CheckpointDamaged   a file that is not a checkpoint, or is damaged
    │   │   └── CheckpointMismatch  a checkpoint of another run; `.differences` lists what differs
    │   ├── InvalidData             a file of losses or samples: missing, empty, a cell that is not a number
    │   └── InvalidProblem          a local problem: dimension, shapes, labels
    ├── InvalidReply (TypeError)    a worker's reply: its kind, a shape, a type, a number
    │   └── MalformedMessage        a message from another machine that cannot be read
    ├── ClusterUnreachable (ConnectionError)  a running cluster that cannot be joined
    ├── FileNotWritten (OSError)    a file that could not be replaced; the previous one is unchanged
    └── DriverError (RuntimeError)  a run that cannot continue; `.result` has the last good state
        ├── WorkerFailed            a worker failed before the first step; the cause is chained
        ├── NoWorkersLeft           every worker crashed, was dropped or fell silent
        ├── ClusterLost             the cluster that the run was on does not answer any more
        ├── Deadlock                no message is on its way and the master still waits
        └── ObserverFailed          an observer raised; the others finished

    CheckpointWarning (UserWarning) a checkpoint that is used although something could not be checked
    EstimatorWarning (UserWarning)  an estimator that seems to need groups, or whose model is nearly constant
    WorkerWarning (RuntimeWarning)  a run that continues without a worker, or with a suspicious one
    WorkerSilent (RuntimeWarning)   a worker that may hang
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uncertainty_sets.errors import FdroError, InvalidInput

if TYPE_CHECKING:
    from fdro_core.result import Result

__all__ = [
    "CheckpointDamaged",
    "CheckpointMismatch",
    "CheckpointWarning",
    "ClusterLost",
    "ClusterUnreachable",
    "Deadlock",
    "DriverError",
    "EstimatorWarning",
    "FileNotWritten",
    "InvalidConfig",
    "InvalidData",
    "InvalidProblem",
    "InvalidReply",
    "InvalidSetting",
    "MalformedMessage",
    "NoWorkersLeft",
    "ObserverFailed",
    "SeveralMistakes",
    "WorkerFailed",
    "WorkerSilent",
    "WorkerWarning",
]


class InvalidSetting(InvalidInput):
    """A setting has a value that cannot work; the message says which values can."""


class InvalidConfig(InvalidSetting):
    """A run file cannot be used. The message begins with file and line.

    Attributes:
        line: in the file, counted from 1.
        place: the names of the tables and of the field, and places in lists; empty for the file as a whole.
        field: the same in dots, as in "set.radius".
    """

    def __init__(self, message: str, *, path: str, line: int, place: Sequence[str | int] = ()) -> None:
        dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
        self.line = line
        self.place = tuple(place)
        self.field = dotted.lstrip(".")
        super().__init__(f"{path}:{line}: {f'{self.field}: ' if self.field else ''}{message}")


class SeveralMistakes(InvalidSetting):
    """A run file and its data have several mistakes; the message has a line for each.

    Attributes:
        mistakes: the errors, those of the run file in the order of its lines.
    """

    def __init__(self, mistakes: Sequence[InvalidInput], path: str) -> None:
        super().__init__("\n  ".join([f"{path}: {len(mistakes)} mistakes", *map(str, mistakes)]))
        self.mistakes = list(mistakes)


class CheckpointDamaged(InvalidSetting):
    """The file is not a checkpoint of fdro, or its content has changed."""


class CheckpointMismatch(InvalidSetting):
    """The checkpoint belongs to another run.

    Attributes:
        differences: what differs, one line each: "set.radius: 0.1 → 0.2". Empty if the state itself
            cannot be restored.
    """

    def __init__(self, message: str, differences: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.differences = list(differences)


class CheckpointWarning(UserWarning):
    """A run continues from a checkpoint that could not be checked, or is another run's (`force`)."""


class EstimatorWarning(UserWarning):
    """An estimator got no groups and seems to need some, or its model is nearly constant."""


class InvalidData(InvalidInput):
    """A file of losses or samples cannot be used; the message says which line and column."""


class InvalidProblem(InvalidInput):
    """A local problem cannot be used: wrong dimension, shapes or labels."""


class InvalidReply(FdroError, TypeError):
    """A worker's reply cannot be used: wrong kind, shape or type, or a number out of range."""


class MalformedMessage(InvalidReply):
    """A message from another machine cannot be read: a missing record, a wrong type, size or header."""


class ClusterUnreachable(FdroError, ConnectionError):
    """The cluster at that address cannot be joined: it does not answer, or rejects the token."""


class FileNotWritten(FdroError, OSError):
    """A file could not be replaced, for lack of space or permission; the previous file is unchanged.

    `errno` and `filename` are those of the system's error.
    """

    def __str__(self) -> str:
        """The message alone, which names the file."""
        return str(self.strerror)


class DriverError(FdroError, RuntimeError):
    """The run cannot continue. `result` holds the last good state."""

    result: Result | None = None


class WorkerFailed(DriverError):
    """A worker failed before the first step; what it raised is the cause.

    Attributes:
        worker: its index in `problems`.
    """

    worker: int = -1


class NoWorkersLeft(DriverError):
    """Every worker crashed, was dropped or fell silent."""


class ClusterLost(DriverError, ConnectionError):
    """The cluster that the run was on does not answer any more; the message says how to continue.

    A `Checkpoint` among the observers has written the state at that moment.
    """


class Deadlock(DriverError):
    """The master waits, and no message is on its way to it."""


class ObserverFailed(DriverError):
    """An observer raised, which ended the run; the others have finished. The cause is what it raised.

    If several raised, the message names them all, and the cause is an ExceptionGroup.
    """


class ProofWarning(RuntimeWarning):
    """The lower bound on the optimum is above the objective: the uncertainty set contradicts itself."""


class WorkerWarning(RuntimeWarning):
    """A worker was lost because of an exception, was dropped, or sends suspicious numbers."""


class WorkerSilent(RuntimeWarning):
    """A worker has been silent for longer than `deadline="auto"` allows; the message says how long and why.

    The history has a notice with the same content.
    """
