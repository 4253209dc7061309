"""What runs on the other side: several workers in one process, made and asked by name."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from fdro_core.contracts.engine import WorkerFactory, WorkerMachine
from fdro_core.contracts.failures import traceback_of, words
from fdro_core.contracts.messages import Reply, Request, copied
from fdro_core.contracts.replies import checked
from fdro_core.engines.memory import Past, make, recall

WHERE = "Where it was raised:\n"


class Shared:
    """A message that many workers get, by reference: fetched and held once for all workers of a host."""

    __slots__ = ("key", "reference")

    def __init__(self, key: str, reference: Any) -> None:
        self.key = key
        self.reference = reference


class Host:
    """Workers that share a process, and its fate. It begins empty and knows nothing of who calls it.

    Args:
        fetch: turns a reference to a shared message into the message.
    """

    def __init__(self, fetch: Callable[[Any], Request]) -> None:
        self._fetch = fetch
        self._workers: dict[int, WorkerMachine] = {}
        self._errors: dict[int, Exception] = {}
        self._held: tuple[str, Request] | None = None

    def make(
        self,
        workers: Mapping[int, tuple[bytes, Past | None]],
        afresh: bool = True,
    ) -> dict[int, Exception]:
        """Make workers from their packed factories and pasts; what was raised for those that failed."""
        owned: dict[int, Request] = {}
        failed = {}
        for j, (packed, read_only) in workers.items():
            past = None
            try:
                if read_only is not None:
                    past = Past(
                        tuple(owned.setdefault(id(m), copied(m)) for m in read_only.opening),
                        None if read_only.last is None else copied(read_only.last),
                        read_only.replies,
                    )
                if afresh or j not in self._workers:
                    self._workers.pop(j, None)
                    factory: WorkerFactory = pickle.loads(packed)
                    self._workers[j] = make(factory, past)
                elif past is not None:
                    recall(self._workers[j], past)
                self._errors.pop(j, None)
            except Exception as error:
                failed[j] = self._errors[j] = portable(error)
        return failed

    def handle(
        self, letters: Sequence[tuple[int, Request | Shared]]
    ) -> tuple[list[Reply | Exception], float]:
        """Every worker's reply or what it raised, and how many seconds they took together.

        An exception that is returned, not raised, says that the host is well.
        """
        begin = monotonic()
        replies = [self._handle(worker, message) for worker, message in letters]
        return replies, monotonic() - begin

    def _handle(self, worker: int, message: Request | Shared) -> Reply | Exception:
        if worker in self._errors:
            return self._errors[worker]
        try:
            # What comes off the wire is read-only, which compiled kernels do not take.
            mine = self._share(message) if isinstance(message, Shared) else copied(message)
            # The master looks again; here it keeps what cannot travel from spoiling the others' replies.
            return checked(worker, mine, self._workers[worker].handle(mine))
        except Exception as error:
            return portable(error)

    def _share(self, shared: Shared) -> Request:
        if self._held is None or self._held[0] != shared.key:
            self._held = (shared.key, copied(self._fetch(shared.reference)))
        return self._held[1]


def portable(error: Exception) -> Exception:
    """The exception with its traceback in a note, or its words where it cannot travel with that."""
    notes = [note for note in getattr(error, "__notes__", ()) if not str(note).startswith(WHERE)]
    try:
        error.__notes__ = notes  # an exception that is raised again and again tells its last place
        told = WHERE + traceback_of(error)
        error.add_note(told)
        there = pickle.loads(pickle.dumps(error))
        if type(there) is type(error) and told in there.__notes__:
            return error
    except Exception:
        pass  # it cannot travel, so its words do
    stand_in = RuntimeError(words(error))
    stand_in.add_note(WHERE + traceback_of(error))
    return stand_in
