"""What a transport brings to an engine on a wall clock, and what the engine notes of what it sent."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

from fdro_core.contracts.messages import Reply, Request


class Answer:
    """What a worker said to message `number`: a reply, or the exception it raised.

    `seconds` is how long it took, where the transport knows; else the time since the message was posted.
    """

    __slots__ = ("content", "number", "seconds")

    def __init__(self, number: int, content: Reply | Exception, seconds: float | None = None) -> None:
        self.number = number
        self.content = content
        self.seconds = seconds


class Gone:
    """Workers are lost, or could not be made again; with the exception where there was one."""

    __slots__ = ("error", "reason", "workers")

    def __init__(self, workers: Iterable[int], reason: str, error: Exception | None = None) -> None:
        self.workers = list(workers)
        self.reason = reason
        self.error = error


class Here:
    """Workers that were asked for by `_remake` are there."""

    __slots__ = ("workers",)

    def __init__(self, workers: Iterable[int]) -> None:
        self.workers = list(workers)


Arrival = Answer | Gone | Here


class Letter:
    """A message that was handed over and not answered yet."""

    __slots__ = ("message", "of_round", "posted", "reported", "worker")

    def __init__(self, worker: int, message: Request, of_round: bool) -> None:
        self.worker = worker
        self.message = message
        self.of_round = of_round
        self.posted = monotonic()
        self.reported = False  # as silent
