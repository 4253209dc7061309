"""Signals that ask the process to end, while a run is under way in the main thread.

Python runs a signal's handler wherever the main thread is: in the middle of an update of the master, or in a
worker's own code, where what the handler raises would be taken for a failure of the worker. So the handler is
called at once, but what it raises is kept until the run has ended between two events and its observers have
finished; then it is raised from `solve`. A second signal is not put off.

Ctrl-C without a handler of the program's own ends the run, and `solve` returns its result. SIGTERM without
one ends the run, and then the process as SIGTERM does.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

ENDING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
]
INTERRUPTED = "interrupted"
KILLED = 128 + signal.SIGTERM

Handler = Callable[[int, Any], Any]


class Stoppable(Protocol):
    """A run, as far as signals are concerned."""

    stop_reason: str
    engine: Any


class Signals:
    """The runs under way in the main thread, and what handlers raised.

    Attributes:
        runs: runs that end between two events, the outermost first.
        raised: what a handler raised, to be raised when the outermost run has ended.
        terminated: whether SIGTERM came and the program has no handler of its own.
    """

    def __init__(self) -> None:
        self.runs: list[Stoppable] = []
        self.raised: BaseException | None = None
        self.terminated = False
        self._depth = 0
        self._handlers: dict[int, Handler] = {}  # the program's own
        self._defaults: dict[int, Any] = {}

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Note what the program's own handlers raise, from before a run's first message to its last."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        if self._depth == 0:
            self._listen()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._leave()

    def _listen(self) -> None:
        self.raised, self.terminated = None, False
        for number in ENDING:
            handler = signal.getsignal(number)
            if callable(handler) and handler is not signal.default_int_handler:
                self._handlers[number] = handler
                signal.signal(number, self._call)

    def _leave(self) -> None:
        """Put the handlers back, and end as was asked."""
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == self._call:  # else replaced meanwhile
                signal.signal(number, handler)
        self._handlers.clear()
        raised, self.raised = self.raised, None
        if self.terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        if raised is not None:
            raise raised

    @contextmanager
    def put_off(self, run: Stoppable) -> Iterator[None]:
        """Let a signal end the run between two events."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        if self.raised is not None:  # before the first step, and taken for a worker's failure
            raise self.raised
        if not self.runs:
            usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
            self._defaults = {n: each for n, each in usual.items() if signal.getsignal(n) == each}
            for number in self._defaults:
                signal.signal(number, self._end_once)
        self.runs.append(run)
        try:
            yield
        finally:
            self.runs.remove(run)
            if not self.runs:
                for number, usual_handler in self._defaults.items():
                    signal.signal(number, usual_handler)

    def leave(self) -> None:
        """End the process if that was asked for and no other run waits for this one."""
        if threading.current_thread() is not threading.main_thread() or len(self.runs) > 1:
            return
        if self.raised is not None:
            raise self.raised
        if self.terminated:
            raise SystemExit(KILLED)

    def _call(self, number: int, frame: Any) -> None:
        """Call the program's own handler; the first time in a run, keep what it raises."""
        try:
            self._handlers[number](number, frame)
        except BaseException as error:
            first, self.raised = self.raised is None, error
            if not (first and self.runs):
                raise
            self._end()

    def _end_once(self, number: int, frame: Any) -> None:
        """End the runs, and let a second signal of that kind end them at once."""
        signal.signal(number, self._defaults[number])
        self.terminated |= number == signal.SIGTERM
        self._end()

    def _end(self) -> None:
        for run in self.runs:
            run.stop_reason = run.stop_reason or INTERRUPTED
            getattr(run.engine, "hurry", _nothing)()


def _nothing() -> None:
    """Stand in for an engine's `hurry` that does not exist."""


SIGNALS = Signals()
"""Of this process: handlers are the process's own, and run in the main thread alone."""
