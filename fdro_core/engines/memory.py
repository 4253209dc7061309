"""What the master's side keeps of every worker, so that another process can take its place.

A worker's state follows from the messages that opened the run and from its last reply: w_j is in that reply,
φ_j is the master's own. So nothing more has to be sent while all goes well, and a host that comes back empty,
or a new master with a checkpoint, starts its workers where they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fdro_core.contracts.engine import WorkerFactory, WorkerMachine
from fdro_core.contracts.messages import Reply, Request, from_fields, to_fields


class Past:
    """What is known of one worker.

    Attributes:
        opening: the questions it answered before its first step, in order.
        last: its last reply that reached the master.
        replies: how many of its steps did.
    """

    __slots__ = ("last", "opening", "replies")

    def __init__(
        self, opening: tuple[Request, ...] = (), last: Reply | None = None, replies: int = 0
    ) -> None:
        self.opening = opening
        self.last = last
        self.replies = replies


def make(factory: WorkerFactory, past: Past | None) -> WorkerMachine:
    """A worker in a new place, with the past it had."""
    worker = factory()
    if past is not None:
        recall(worker, past)
    return worker


def recall(worker: WorkerMachine, past: Past) -> None:
    """Give a worker its past: by its own `recall` where it has one, else by asking the opening again."""
    own = getattr(worker, "recall", None)
    if own is not None:
        own(past.opening, past.last, past.replies)
        return
    for message in past.opening:
        worker.handle(message)


class Memory:
    """Every worker's past, and the step that it has not answered yet.

    Arrays are those of the messages, not copies: the openings share theirs, and the last w_j is the one that
    the master holds.
    """

    def __init__(self, workers: int) -> None:
        self.pasts = [Past() for _ in range(workers)]
        self.under_way: list[Request | None] = [None] * workers

    def opened(self, worker: int, message: Request, reply: Reply) -> None:
        """A question before the first step was answered."""
        past = self.pasts[worker]
        past.opening = (*past.opening, message)
        past.last = reply

    def answered(self, worker: int, reply: Reply) -> None:
        """A step's reply reached the master; one that repeats an earlier reply is no further step."""
        past, step = self.pasts[worker], self.under_way[worker]
        ticket = getattr(reply, "ticket", None)
        past.replies += ticket is None or ticket != getattr(past.last, "ticket", None)
        past.last = reply
        if ticket is None or ticket == getattr(step, "ticket", None):
            self.under_way[worker] = None

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain values and arrays."""
        shared: dict[int, int] = {}
        messages: list[dict[str, Any]] = []

        def place(message: Request) -> int:
            if id(message) not in shared:  # one Begin serves all workers
                shared[id(message)] = len(messages)
                messages.append(to_fields(message))
            return shared[id(message)]

        pasts = [
            [
                [place(m) for m in past.opening],
                None if past.last is None else to_fields(past.last),
                past.replies,
            ]
            for past in self.pasts
        ]
        waiting = [None if step is None else to_fields(step) for step in self.under_way]
        return {"messages": messages, "pasts": pasts, "under_way": waiting}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        messages = [from_fields(fields) for fields in state["messages"]]
        for past, (opening, last, replies) in zip(self.pasts, state["pasts"], strict=True):
            past.opening = tuple(messages[place] for place in opening)
            past.last = None if last is None else from_fields(last)
            past.replies = replies
        self.under_way = [None if fields is None else from_fields(fields) for fields in state["under_way"]]
