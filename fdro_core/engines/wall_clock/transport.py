"""What an engine on a wall clock adds to `WallEngine`: five methods, and the kinds of things that arrive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from fdro_core.engines.wall_clock.records import WorkerRecord
from fdro_core.protocol.engine import WorkerFactory
from fdro_core.protocol.messages import Reply, Request

# -- what arrives --------------------------------------------------------------------------------------


class Answer:
    """A worker's answer to message `number`: a reply, or the exception it raised.

    `seconds` is how long the worker took, if the transport knows; otherwise the time since the message was
    posted counts.
    """

    __slots__ = ("content", "number", "seconds")

    def __init__(self, number: int, content: Reply | Exception, seconds: float | None = None) -> None:
        self.number = number
        self.content = content
        self.seconds = seconds


class WorkersLost:
    """Workers died, or could not be made again; with the exception, if there was one."""

    __slots__ = ("error", "reason", "workers")

    def __init__(self, workers: Iterable[int], reason: str, error: Exception | None = None) -> None:
        self.workers = list(workers)
        self.reason = reason
        self.error = error


class WorkersReady:
    """Workers that `_remake` was asked for have been made and take messages."""

    __slots__ = ("workers",)

    def __init__(self, workers: Iterable[int]) -> None:
        self.workers = list(workers)


Arrival = Answer | WorkersLost | WorkersReady


# -- what an engine adds -------------------------------------------------------------------------------


class Transport(ABC):
    """Makes workers, carries messages to them and returns their answers."""

    @abstractmethod
    def _open(self, factories: Sequence[WorkerFactory]) -> None:
        """Start making every worker. If a factory raises, its worker answers every message with the error."""

    @abstractmethod
    def _post(self, worker: int, number: int, message: Request) -> None:
        """Send a message; a worker handles its messages in order. `Answer(number, …)` follows later."""

    @abstractmethod
    def _collect(self, seconds: float) -> list[Arrival]:
        """Return what has arrived; if nothing has, wait at most that long."""

    @abstractmethod
    def _remake(self, records: Mapping[int, WorkerRecord], *, afresh: bool) -> None:
        """Start making workers from their records; `WorkersReady` or `WorkersLost` follows later.

        Unless `afresh`, a worker that exists may be kept and restored from its record.
        """

    @abstractmethod
    def _close(self) -> None:
        """Release the workers, without waiting for one that hangs."""

    def _flush(self) -> None:
        """Send what was posted. Called when all messages that follow from one event have been posted."""
        return

    def _pressed(self, worker: int) -> None:
        """React to a step for a worker that has not answered the one before and may hang."""
        return

    def _since(self, worker: int, posted: float) -> float:
        """Return since when (`monotonic`) the worker handles the message posted then; infinity: not yet."""
        return posted

    def _relieve(self, workers: Sequence[int]) -> bool:
        """Free workers of a silent round that only wait behind others; whether there were any."""
        return False

    def _abandon(self, workers: Sequence[int]) -> Sequence[int]:
        """Give up making these workers, which took too long; return all workers that are lost by that."""
        return workers

    def _excuse(self, worker: int) -> str:
        """Return why a worker may have given no answer, or what to do if that is not known."""
        return f"raise `patience` of {type(self).__name__} if an answer may take longer"
