"""What an engine is. The master and the workers know nothing of it.

The driver's loop is the whole contract::

    engine.start(factories)
    while ...:
        event = engine.receive(until=master.wake_at)
        for worker, message in master.handle(event):
            engine.send(worker, message)
    engine.stop()

An engine is one file: a clock, a way to run workers, and these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fdro_core.contracts.failures import words
from fdro_core.contracts.messages import Reply, Request


class WorkerMachine(Protocol):
    """One worker of some algorithm: a message in, a reply out, no clock and no I/O.

    A worker may also have ``recall(opening, last, replies)``: take up again in a new process, given the
    questions it had answered before its first step, its last reply, and how many steps it had answered.
    Without it a worker that is made again answers the opening questions again.
    """

    def handle(self, message: Request) -> Reply:
        """The reply to a message."""
        ...

    def snapshot(self) -> dict[str, Any] | None:
        """Its state as plain values and arrays, None before it has any."""
        ...

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go back to a snapshot."""
        ...


class Event:
    """Something that reached the master.

    Attributes:
        time: the engine's clock, in seconds.
        worker: who it is from; -1 for a tick.
        payload: an Update, `Lost`, `Back`, `Silent`, or None for a tick.
    """

    __slots__ = ("payload", "time", "worker")

    def __init__(self, time: float, worker: int, payload: Any) -> None:
        self.time = time
        self.worker = worker
        self.payload = payload


class Lost:
    """The worker crashed or raised; what it was doing is gone.

    Attributes:
        reason: in words.
        error: what it raised, None where it crashed or fell silent.
        returns: whether `Back` will follow, or another `Lost` if that comes to nothing: the master then waits
            for it even if nobody else is left.
    """

    __slots__ = ("error", "reason", "returns")

    def __init__(self, reason: str, error: Exception | None = None, *, returns: bool = False) -> None:
        self.reason = reason
        self.error = error
        self.returns = returns

    @classmethod
    def raised(cls, error: Exception, *, returns: bool = False) -> Lost:
        """Lost to an exception of its own."""
        return cls(f"raised {words(error)}", error, returns=returns)


class Back:
    """A lost worker is there again and waits for a message."""

    __slots__ = ()


class Away(ConnectionError):
    """The worker is known to be gone, so it was not asked."""


class Silent:
    """The worker has not answered its step for longer than the engine thinks normal; it may hang.

    Only engines whose workers can hang say so. The master heeds it where its `deadline` is "auto".

    Attributes:
        seconds: how long it has been silent.
        deadline: how long it may be.
        why: where that number comes from.
    """

    __slots__ = ("deadline", "seconds", "why")

    def __init__(self, seconds: float, deadline: float, why: str) -> None:
        self.seconds = seconds
        self.deadline = deadline
        self.why = why

    @property
    def reason(self) -> str:
        """All of it in words."""
        return f"silent for {self.seconds:.3g} s, past the deadline of {self.deadline:.3g} s: {self.why}"


WorkerFactory = Callable[[], WorkerMachine]


class Engine(Protocol):
    """Runs workers and carries messages. Times are seconds on the engine's own clock.

    A reply has passed `contracts.replies.fault` before it comes out of `receive` or `ask`; one that does not
    pass is treated as an exception that the worker raised.
    It may also have ``fingerprint()``: plain values by which a checkpoint knows that it belongs to this
    engine; without it those are its class and the arguments of its constructor.
    An engine may also have ``hurry()``, called on Ctrl-C: rounds wait for nobody who may hang from then on.
    """

    @property
    def clock(self) -> float:
        """Seconds since the run began."""
        ...

    def start(self, factories: Sequence[WorkerFactory]) -> None:
        """Make every worker, where it is to live."""
        ...

    def send(self, worker: int, message: Request) -> None:
        """Hand a message to a worker; its reply comes out of `receive` some time later."""
        ...

    def receive(self, until: float | None) -> Event:
        """The next event; a tick where none comes before the time `until`, or earlier.

        Raises `Deadlock` where `until` is None and nothing is under way.
        """
        ...

    def ask(self, messages: Mapping[int, Request]) -> dict[int, Reply | Exception]:
        """A round of its own: every worker's reply, or the exception it raised, before anything else.

        On a wall clock a worker answers after the step that it has under way.
        """
        ...

    def stop(self) -> None:
        """Let the workers go."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """The engine's state as nested dicts, lists, numbers, strings and arrays, for checkpoints."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot, after `start` with the same workers."""
        ...
