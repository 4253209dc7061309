"""Several workers in one process at the other end of a connection, addressed by their numbers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from fdro_core.engines.wall_clock.records import WorkerRecord, make_worker, restore_worker
from fdro_core.privacy.gate import hushed, passed
from fdro_core.protocol.engine import WorkerFactory, WorkerMachine
from fdro_core.protocol.failures import as_exception, traceback_of, words
from fdro_core.protocol.messages import Reply, Request, copied
from fdro_core.protocol.replies import checked

RAISED_AT = "Where it was raised:\n"


class SharedMessage:
    """A reference to a message for many workers: fetched once per host, and kept for all its workers.

    `key` tells one such message from the next.
    """

    __slots__ = ("key", "reference")

    def __init__(self, key: str, reference: Any) -> None:
        self.key = key
        self.reference = reference


class Host:
    """Workers that share a process. It starts empty and does not depend on the engine that calls it.

    Args:
        fetch: turns the reference of a `SharedMessage` into the message.
    """

    def __init__(self, fetch: Callable[[Any], Request]) -> None:
        self._fetch = fetch
        self._workers: dict[int, WorkerMachine] = {}
        self._errors: dict[int, Exception] = {}
        self._fetched: tuple[str, Request] | None = None

    def make(
        self, workers: Mapping[int, tuple[bytes, WorkerRecord | None, bool]], afresh: bool = True
    ) -> dict[int, Exception]:
        """Make workers from their pickled factories and records; return the exceptions of those that failed.

        The third part says whether the worker is private: what its pickle raises stays here.

        Unless `afresh`, a worker that exists is kept and restored from its record.
        """
        copies: dict[int, Request] = {}  # by id: workers share the arrays of one opening message
        failed = {}
        for j, (packed, read_only, private) in workers.items():
            record = None
            try:
                if read_only is not None:
                    record = WorkerRecord(
                        tuple(copies.setdefault(id(m), copied(m)) for m in read_only.opening),
                        copied(read_only.last),
                        read_only.replies,
                    )
                if afresh or j not in self._workers:
                    self._workers.pop(j, None)
                    factory = _unpacked(j, packed, private=private)
                    self._workers[j] = make_worker(factory, record)
                elif record is not None:
                    restore_worker(self._workers[j], record)
                self._errors.pop(j, None)
            except (Exception, SystemExit) as error:
                failed[j] = self._errors[j] = portable(as_exception(error))
        return failed

    def handle(
        self, messages: Sequence[tuple[int, Request | SharedMessage]]
    ) -> tuple[list[Reply | Exception], float]:
        """Return the reply or exception for each (worker, message), and how many seconds they took together.

        Exceptions are returned, not raised: a call that raises means that the host itself has failed.
        """
        begin = monotonic()
        replies = [self._handle(worker, message) for worker, message in messages]
        return replies, monotonic() - begin

    def _handle(self, worker: int, message: Request | SharedMessage) -> Reply | Exception:
        if worker in self._errors:
            return self._errors[worker]
        try:
            # Arrays off the wire are read-only, which compiled kernels do not accept.
            mine = self._shared(message) if isinstance(message, SharedMessage) else copied(message)
            # The engine checks again; here it keeps a reply that cannot be pickled from failing the others.
            return checked(worker, mine, self._workers[worker].handle(mine))
        except (Exception, SystemExit) as error:
            return portable(as_exception(error))

    def _shared(self, message: SharedMessage) -> Request:
        if self._fetched is None or self._fetched[0] != message.key:
            self._fetched = (message.key, copied(self._fetch(message.reference)))
        return self._fetched[1]


def _unpacked(worker: int, packed: bytes, *, private: bool) -> WorkerFactory:
    factory: WorkerFactory
    if private:
        factory = passed(worker, lambda: hushed(worker, lambda: pickle.loads(packed)))
    else:
        factory = pickle.loads(packed)
    return factory


def portable(error: Exception) -> Exception:
    """Return the exception with its traceback in a note; if it cannot be pickled, a RuntimeError instead."""
    notes = [note for note in getattr(error, "__notes__", ()) if not str(note).startswith(RAISED_AT)]
    try:
        error.__notes__ = notes  # an exception that is raised repeatedly keeps its last place only
        place = RAISED_AT + traceback_of(error)
        error.add_note(place)
        again = pickle.loads(pickle.dumps(error))
        if type(again) is type(error) and place in again.__notes__:
            return error
    except Exception:
        pass  # it cannot be pickled, so its text is sent
    stand_in = RuntimeError(words(error))
    stand_in.add_note(RAISED_AT + traceback_of(error))
    return stand_in
