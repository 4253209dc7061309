"""What an engine on a wall clock asks of its transport: five methods, and five more that it may have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from fdro_core.contracts.engine import WorkerFactory
from fdro_core.contracts.messages import Request
from fdro_core.engines.letters import Arrival
from fdro_core.engines.memory import Past


class Transport(ABC):
    """Makes workers, carries messages to them and brings back what they say."""

    @abstractmethod
    def _open(self, factories: Sequence[WorkerFactory]) -> None:
        """Begin to make every worker. One whose factory raises answers every message with that exception."""

    @abstractmethod
    def _post(self, worker: int, number: int, message: Request) -> None:
        """Hand a message over; a worker takes its messages in order. `Answer(number, …)` comes later."""

    @abstractmethod
    def _collect(self, seconds: float) -> list[Arrival]:
        """What has arrived; waits that long where nothing has."""

    @abstractmethod
    def _remake(self, pasts: Mapping[int, Past], *, afresh: bool) -> None:
        """Begin to make workers with their pasts; `Here` or `Gone` comes later.

        Where not `afresh`, a worker that is there may stay and be given its past.
        """

    @abstractmethod
    def _close(self) -> None:
        """Let the workers go."""

    def _flush(self) -> None:
        """All messages that follow from one event were posted: a transport may send them together."""
        return

    def _pressed(self, worker: int) -> None:
        """A step is sent to a worker that has not answered the one before: it may hang."""
        return

    def _since(self, worker: int, posted: float) -> float:
        """Since when (`monotonic`) the worker is at the message posted then; infinity: it is not yet."""
        return posted

    def _relieve(self, workers: Sequence[int]) -> bool:
        """A round hears nothing from these: whether some only waited for others, and can go on now."""
        return False

    def _abandon(self, workers: Sequence[int]) -> Sequence[int]:
        """These are not made again in time: give the attempt up; all workers that are lost by that."""
        return workers
