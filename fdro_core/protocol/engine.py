"""What an engine must do. The master and the workers do not depend on it.

The loop of `solve` is the whole contract::

    engine.start(factories)
    while ...:
        event = engine.receive(until=master.wake_at)
        for worker, message in master.handle(event):
            engine.send(worker, message)
    engine.stop()

An engine is one file in `fdro_core/engines`: a clock, a way to run workers, these methods, and the class data
of `EngineTraits`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from fdro_core.protocol.failures import words
from fdro_core.protocol.messages import Reply, Request
from uncertainty_sets.registry import Registry


class WorkerMachine(Protocol):
    """One worker of some algorithm: a message in, a reply out, no clock and no I/O.

    It answers `Hello` by an `Introduction`, before the first step and when a run is resumed; all other
    messages are the algorithm's own.

    A worker may also have ``recall(opening, last, replies)``: continue in a new process, given the messages
    it had answered before its first step, its last reply, and how many steps it had answered. Without it a
    worker that is made again gets the opening messages again.

    And it may have ``gradients(message)``: how many gradients its answer takes, for engines that charge
    computing (`gradients_of`).
    """

    def handle(self, message: Request) -> Reply:
        """Return the reply to a message."""
        ...

    def snapshot(self) -> dict[str, Any] | None:
        """Return its state as plain values and arrays, None before it has any."""
        ...

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go back to a snapshot."""
        ...


def gradients_of(worker: Any, message: Request) -> int:
    """Return how many gradients a worker's answer takes: what it says itself, 1 if it says nothing."""
    counts = getattr(worker, "gradients", None)
    return 1 if counts is None else int(counts(message))


class Event:
    """Something that reached the master.

    Attributes:
        time: the engine's clock, in seconds.
        worker: who it is from; -1 for a tick.
        payload: a reply, `Lost`, `Back`, `Silent`, or None for a tick.
    """

    __slots__ = ("payload", "time", "worker")

    def __init__(self, time: float, worker: int, payload: Any) -> None:
        self.time = time
        self.worker = worker
        self.payload = payload


class Lost:
    """The worker crashed or raised; the step it had under way will not be answered.

    Attributes:
        reason: in words.
        error: what it raised, None if it crashed.
        returns: whether `Back` will follow, or another `Lost` if the worker cannot be made again: the master
            then waits for it even if nobody else is left.
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
    """A lost worker is back and waits for a message."""

    __slots__ = ()


class Away(ConnectionError):
    """The answer in the name of a worker that is known to be lost or to hang."""


class Silent:
    """The worker has not answered its step for longer than is normal; it may hang.

    Sent by engines that survive hangs (`EngineTraits`). The master acts on it if its `deadline` is "auto".

    Attributes:
        seconds: how long it has been silent.
        deadline: how long it may be.
        why: how that number was chosen.
    """

    __slots__ = ("deadline", "seconds", "why")

    def __init__(self, seconds: float, deadline: float, why: str) -> None:
        self.seconds = seconds
        self.deadline = deadline
        self.why = why

    @property
    def reason(self) -> str:
        """The three in words."""
        return f"silent for {self.seconds:.3g} s, past the deadline of {self.deadline:.3g} s: {self.why}"


WorkerFactory = Callable[[], WorkerMachine]


class EngineTraits:
    """What an engine class declares about itself: data that config files and the shared tests read.

    The defaults hold for an engine that simulates everything in this process. An engine derives from this
    class (`WallEngine` does) and overrides what differs.

    Attributes:
        name: the engine's name in config files and tests. Only classes that set it themselves are listed; a
            base class leaves it "". If another engine has that name, the definition is an error, unless it
            says ``class Mine(WallEngine, replace=True)``.
        wall_clock: whether times are real. Then lost workers are made again, checkpoints pass to other
            engines on a wall clock, and the constructor takes the settings of `WallEngine`.
        own_processes: whether workers live in other processes: problems must be picklable, and a process can
            be killed without harm to the master.
        survives_hangs: whether the others go on while a worker hangs, and `Silent` is sent. Without it a
            worker that never answers stops the run.
        package: the optional package that it needs; "" for none.
        extra: the name of fdro's extra with that package; "" if it is the same.
    """

    name: ClassVar[str] = ""
    wall_clock: ClassVar[bool] = False
    own_processes: ClassVar[bool] = False
    survives_hangs: ClassVar[bool] = False
    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""

    def __init_subclass__(cls, *, replace: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        ENGINES.define(cls, replace=replace)


ENGINES: Registry[EngineTraits] = Registry(
    "engine", EngineTraits, ["fdro_core.engines"], needs=["start", "send", "receive", "ask", "stop"]
)
"""Every engine with a name."""


class Engine(Protocol):
    """Runs workers and carries messages. Times are seconds on the engine's own clock.

    A reply must pass `protocol.replies.fault` before `receive` or `ask` returns it; one that does not counts
    as an exception that the worker raised. A `live` message is copied when it is sent, and a `shared` one may
    be sent to a process once (`protocol.messages.Message`).

    An engine may have two more methods. ``fingerprint()`` returns plain values by which a checkpoint
    recognises this engine; without it those are its class and the arguments of its constructor. ``hurry()``
    is called on Ctrl-C: from then on rounds do not wait for workers that may hang.
    """

    @property
    def clock(self) -> float:
        """Seconds since the run began."""
        ...

    def start(self, factories: Sequence[WorkerFactory]) -> None:
        """Make every worker in the place where it will live."""
        ...

    def send(self, worker: int, message: Request) -> None:
        """Send a message to a worker; `receive` returns its reply some time later."""
        ...

    def receive(self, until: float | None) -> Event:
        """Return the next event; a tick if none comes before the time `until`, or earlier.

        Raises `Deadlock` if `until` is None and nothing is under way.
        """
        ...

    def ask(self, messages: Mapping[int, Request]) -> dict[int, Reply | Exception]:
        """Send a round of questions; return every worker's reply, or the exception it raised.

        On a wall clock a worker answers after the step that it has under way.
        """
        ...

    def stop(self) -> None:
        """Release the workers."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return the engine's state as nested dicts, lists, numbers, strings and arrays, for checkpoints."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot, after `start` with the same workers."""
        ...
