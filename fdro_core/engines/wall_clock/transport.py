"""The transport of an engine on a wall clock: five methods that it must have, and six that it may have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from fdro_core.engines.wall_clock.arrivals import Arrival
from fdro_core.engines.wall_clock.records import WorkerRecord
from fdro_core.protocol.engine import WorkerFactory
from fdro_core.protocol.messages import Request


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
