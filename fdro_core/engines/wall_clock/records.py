"""What the master's side keeps of every worker, so that it can be made again in another process.

A worker's state follows from the messages that opened the run and from its last reply: w_j is in that reply,
φ_j is the master's own. So nothing more has to be sent while all goes well, and a new host, or a new master
with a checkpoint, starts its workers where they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any, ClassVar

from fdro_core.privacy.policy import admitted
from fdro_core.protocol.engine import WorkerFactory, WorkerMachine
from fdro_core.protocol.messages import Reply, Request, from_fields, to_fields
from fdro_core.protocol.saved import Form, Kept, anything, listing, plain, row, whole


class WorkerRecord:
    """What is known of one worker.

    Attributes:
        opening: the messages it answered before its first step, in order.
        last: its last reply that reached the master.
        replies: how many of its steps were answered.
    """

    __slots__ = ("last", "opening", "replies")

    def __init__(
        self, opening: tuple[Request, ...] = (), last: Reply | None = None, replies: int = 0
    ) -> None:
        self.opening = opening
        self.last = last
        self.replies = replies


class InFlight:
    """A message that was posted and not answered yet.

    Attributes:
        worker: who it was sent to.
        message: the message.
        of_round: whether it belongs to a round of questions (`ask`).
        posted: when, on the clock `monotonic`.
        reported_silent: whether the master was told that the answer is late.
    """

    __slots__ = ("message", "of_round", "posted", "reported_silent", "worker")

    def __init__(self, worker: int, message: Request, of_round: bool) -> None:
        self.worker = worker
        self.message = message
        self.of_round = of_round
        self.posted = monotonic()
        self.reported_silent = False


def make_worker(factory: WorkerFactory, record: WorkerRecord | None) -> WorkerMachine:
    """Make a worker as this machine allows (`privacy.policy`); with a record, restore it to where it was."""
    worker = admitted(factory)
    if record is not None:
        restore_worker(worker, record)
    return worker


def restore_worker(worker: WorkerMachine, record: WorkerRecord) -> None:
    """Restore a worker by its own `recall` if it has one, else by sending it the opening messages again."""
    own = getattr(worker, "recall", None)
    if own is not None:
        own(record.opening, record.last, record.replies)
        return
    for message in record.opening:
        worker.handle(message)


class Records(Kept):
    """The record of every worker, and the step that it has not answered yet.

    Arrays are those of the messages, not copies: workers share those of a `shared` opening message, and the
    last w_j is the one that the master holds.
    """

    saved: ClassVar[Form] = {
        "messages": listing(),
        "pasts": listing("N", row(listing("", plain(int)), anything, whole())),
        "under_way": listing("N"),
    }

    def __init__(self, workers: int) -> None:
        self.of_worker = [WorkerRecord() for _ in range(workers)]
        self.under_way: list[Request | None] = [None] * workers

    def opened(self, worker: int, message: Request, reply: Reply) -> None:
        """Record the answer to a message before the first step."""
        record = self.of_worker[worker]
        record.opening = (*record.opening, message)
        record.last = reply

    def answered(self, worker: int, reply: Reply) -> None:
        """Record a step's reply; one that repeats an earlier reply does not count as a further step."""
        record, step = self.of_worker[worker], self.under_way[worker]
        ticket = getattr(reply, "ticket", None)
        record.replies += ticket is None or ticket != getattr(record.last, "ticket", None)
        record.last = reply
        if ticket is None or ticket == getattr(step, "ticket", None):
            self.under_way[worker] = None

    def snapshot(self) -> dict[str, Any]:
        """Return all records as plain values and arrays."""
        index: dict[int, int] = {}
        messages: list[dict[str, Any]] = []

        def index_of(message: Request) -> int:
            if id(message) not in index:  # a message that serves all workers is saved once
                index[id(message)] = len(messages)
                messages.append(to_fields(message))
            return index[id(message)]

        records = [
            [
                [index_of(message) for message in record.opening],
                None if record.last is None else to_fields(record.last),
                record.replies,
            ]
            for record in self.of_worker
        ]
        waiting = [None if step is None else to_fields(step) for step in self.under_way]
        return {"messages": messages, "pasts": records, "under_way": waiting}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        messages = [from_fields(fields) for fields in state["messages"]]
        for record, (opening, last, replies) in zip(self.of_worker, state["pasts"], strict=True):
            record.opening = tuple(messages[place] for place in opening)
            record.last = None if last is None else from_fields(last)
            record.replies = replies
        self.under_way = [None if fields is None else from_fields(fields) for fields in state["under_way"]]
