"""What the master's side keeps of every worker: its record, when it is made again, how long its answers take.

A worker's state follows from the messages that opened the run and from its last reply: w_j is in that reply,
φ_j is the master's own. So nothing more has to be sent while all goes well, and a new host, or a new master
with a checkpoint, starts its workers where they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
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


# -- workers that are made again -----------------------------------------------------------------------


LONGEST_PAUSE = 60.0  # seconds between two attempts to make a worker again


class Restarts:
    """The attempts to make lost workers again. Times are those that the caller passes in.

    Attributes:
        failures: how often in a row each worker was lost or could not be made.
        making: workers that are being made, and since when.

    >>> restarts = Restarts(1, most=1, after=0.5)
    >>> restarts.lost(0, now=10.0), restarts.due(10.0), restarts.due(10.5)
    (True, [], [0])
    >>> restarts.lost(0, now=11.0), restarts.given_up(0)
    (False, True)
    """

    def __init__(self, workers: int, *, most: int, after: float) -> None:
        self._most, self._after = most, after
        self.failures = [0] * workers
        self.making: dict[int, float] = {}
        self._lost: set[int] = set()
        self._queue: list[tuple[float, int]] = []

    def lost(self, worker: int, now: float) -> bool:
        """Schedule an attempt for a worker that was lost; False if it had too many failures in a row."""
        self.making.pop(worker, None)
        self.failures[worker] += 1
        if self.given_up(worker):
            return False
        self._lost.add(worker)
        pause = min(self._after * 2.0 ** (self.failures[worker] - 1), LONGEST_PAUSE)
        heappush(self._queue, (now + pause, worker))
        return True

    def due(self, now: float) -> list[int]:
        """Return the workers to make now; from then on they count as being made."""
        found = []
        while self._queue and self._queue[0][0] <= now:
            worker = heappop(self._queue)[1]
            if worker in self._lost:  # else an earlier attempt succeeded late
                found.append(worker)
                self.making[worker] = now
        return found

    def make_all(self, workers: range, now: float) -> None:
        """Record that all these workers are being made, as for a resumed run."""
        self.making.update(dict.fromkeys(workers, now))

    def ready(self, worker: int) -> None:
        """Record that a worker was made."""
        self.making.pop(worker, None)
        self._lost.discard(worker)

    def given_up(self, worker: int) -> bool:
        """Whether a worker failed too often in a row to be made again."""
        return self.failures[worker] > self._most

    def late(self, now: float, limit: float) -> list[int]:
        """Return the workers that have been in the making for `limit` seconds."""
        return [worker for worker, since in self.making.items() if now - since >= limit]

    @property
    def pending(self) -> bool:
        """Whether some worker may come back."""
        return bool(self._queue or self.making)

    @property
    def next_due(self) -> float | None:
        """When the next attempt is due."""
        return self._queue[0][0] if self._queue else None


# -- how long answers take -----------------------------------------------------------------------------
# Nothing here reads a clock: the engine passes in how long each answer took.


TIMES = 10.0  # a silence of that many times the slowest recent answer is a sign of a worker that hangs
FADING = 0.99  # of a slow answer, per further answer: an outage must not raise the deadline for ever
HASTY_SECONDS, HASTY_TIMES = 2.0, 3.0  # seconds, plus slowest answers, for a round that should be short


class AnswerTimes:
    """The answer times of all workers so far.

    Attributes:
        opening: how long each worker's last answer before the first step took. It includes making the problem
            or measuring its curvature, so it is used only until a step is answered.
        longest: the slowest answer of each worker since then, fading with every further one; 0 before the
            first.

    >>> times = AnswerTimes(2)
    >>> times.deadline(floor=60.0, patience=300.0)
    (300.0, '`patience`, since no answer has been seen yet')
    >>> times.answered(0, 2.0)
    >>> times.deadline(floor=60.0, patience=300.0)
    (60.0, '`deadline_floor`, since the slowest recent answer took 2 s')
    >>> times.answered(1, 9.0)
    >>> times.deadline(floor=60.0, patience=300.0)
    (90.0, '10 times the slowest recent answer, 9 s')
    """

    def __init__(self, workers: int) -> None:
        self.opening = [0.0] * workers
        self.longest = [0.0] * workers

    def opened(self, worker: int, seconds: float) -> None:
        """Record an answer before the first step."""
        self.opening[worker] = seconds

    def answered(self, worker: int, seconds: float) -> None:
        """Record a later answer."""
        faded = FADING * self.longest[worker]
        self.longest[worker] = seconds if seconds > faded else faded

    def forget(self, worker: int) -> None:
        """Drop a worker that does not return: its times say nothing about the others."""
        self.opening[worker] = self.longest[worker] = 0.0

    @property
    def slowest(self) -> float:
        """The slowest recent answer; 0 if there was none."""
        return max(late or early for late, early in zip(self.longest, self.opening, strict=True))

    def deadline(self, floor: float, patience: float) -> tuple[float, str]:
        """Return how many seconds a worker may be silent with a step, and the reason for that number."""
        slowest = self.slowest
        if slowest == 0.0:
            return max(floor, patience), "`patience`, since no answer has been seen yet"
        if TIMES * slowest <= floor:
            return floor, f"`deadline_floor`, since the slowest recent answer took {slowest:.3g} s"
        return TIMES * slowest, f"{TIMES:g} times the slowest recent answer, {slowest:.3g} s"

    def round_limit(self, patience: float, *, hasty: bool) -> float:
        """Return how many seconds a round of questions waits without any further answer."""
        if hasty:
            return HASTY_SECONDS + HASTY_TIMES * self.slowest
        return max(patience, TIMES * max(self.longest))
