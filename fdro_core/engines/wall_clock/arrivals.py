"""What a transport returns to an engine on a wall clock: answers, and workers that were lost or are ready."""

from __future__ import annotations

from collections.abc import Iterable

from fdro_core.protocol.messages import Reply


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
