"""An engine on a wall clock, without its transport: lost workers, rounds of questions, checkpoints.

An engine adds a transport to it, which is five methods: `_open`, `_post`, `_collect`, `_remake` and `_close`
(docs/add-an-engine.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, ClassVar

from fdro_core.engines.wall_clock.records import AnswerTimes, InFlight, Records, Restarts
from fdro_core.engines.wall_clock.transport import Answer, Arrival, Transport, WorkersLost, WorkersReady
from fdro_core.errors import CheckpointMismatch, Deadlock, InvalidReply
from fdro_core.protocol.engine import Away, Back, EngineTraits, Event, Lost, Silent, WorkerFactory
from fdro_core.protocol.failures import words
from fdro_core.protocol.messages import Reply, Request, copied
from fdro_core.protocol.replies import checked
from fdro_core.protocol.saved import Form, Saved, listing, real, worker_index
from fdro_core.protocol.settings import Number, Whole, check_setting

POLL = 0.25  # seconds without an event after which the loop gets a tick, so that it can see a Ctrl-C
PATIENT_ATTEMPTS = 2  # of making a worker again: a round waits for those with `patience`


class WallEngine(Transport, EngineTraits):
    """All of an engine on a wall clock except the transport.

    A worker that raises or whose host dies is reported lost at once. After `restart_after` seconds (twice as
    long after each failure in a row) it is made again from its record and reported back. The loss of the last
    worker would end the run, so the master does not hear of it while some worker may come back.

    A worker that does not answer its step for ten times the slowest recent answer may hang: the master is
    told, and acts on it if its `deadline` is "auto". Nothing else waits for ever either: rounds and the
    making of workers have `patience`.

    Args:
        patience: seconds that a round of questions waits without any further answer, and that making a worker
            again may take; ten times the slowest recent answer if that is longer.
        restarts: how often in a row a lost worker is created again before it is given up; 0: never.
        restart_after: seconds from a loss to the first attempt.
        deadline_floor: the least seconds of silence after which `deadline="auto"` acts.
    """

    wall_clock = True

    def __init__(
        self,
        *,
        patience: float = 300.0,
        restarts: int = 10,
        restart_after: float = 0.5,
        deadline_floor: float = 60.0,
    ) -> None:
        name = type(self).__name__
        self.patience = check_setting(f"{name}.patience", patience, Number(unit="seconds"))
        self.restarts = check_setting(f"{name}.restarts", restarts, Whole(0))
        self.restart_after = check_setting(
            f"{name}.restart_after", restart_after, Number(inclusive=True, unit="seconds")
        )
        self.deadline_floor = check_setting(f"{name}.deadline_floor", deadline_floor, Number(unit="seconds"))
        self._offset = 0.0
        self._began: float | None = None

    # -- the engine -----------------------------------------------------------------------------------

    @property
    def clock(self) -> float:
        """Seconds since the first step was sent, those before a checkpoint included."""
        return self._offset if self._began is None else self._offset + (monotonic() - self._began)

    def start(self, factories: Sequence[WorkerFactory]) -> None:
        """Make every worker in the place where it will live."""
        N = len(factories)
        self._offset, self._began = 0.0, monotonic()
        self.records = Records(N)
        self.answer_times = AnswerTimes(N)
        self._restarts = Restarts(N, most=self.restarts, after=self.restart_after)
        self._opening = True  # until the first step is sent
        self._events: deque[Event] = deque()
        self._in_flight: dict[int, InFlight] = {}
        self._step_number = [0] * N  # number of the step under way, 0 for none
        self._number = 0
        self._present = [True] * N
        self._loss_reported = [False] * N  # a loss is in the queue or reported, and the return is not
        self._known_alive = [True] * N  # what the master was told
        self._live = N  # how many of those are True
        self._held: Event | None = None  # the loss of the last worker, not reported yet
        self._held_at = 0.0
        self._may_hang = [False] * N  # it got a step before it had answered the last
        self._hurried = False
        self._round: Mapping[int, Request] = {}
        self._round_replies: dict[int, Reply | Exception] = {}
        self._ticked = False
        try:
            self._open(factories)
        except BaseException:  # Ctrl-C as well
            self.stop()
            raise

    def stop(self) -> None:
        """Release the workers."""
        if self._began is not None:
            self._offset, self._began = self.clock, None
            self._close()

    def hurry(self) -> None:
        """End soon: from now on a round does not wait for workers that may hang."""
        self._hurried = True

    def send(self, worker: int, message: Request) -> None:
        """Send a step to a worker; one that is away gets nothing."""
        if self._opening:
            self._opening = False
            self._began = monotonic()  # the master takes its first steps to be sent at 0
        if message.live:
            message = copied(message)
        self.records.under_way[worker] = message
        if not self._present[worker]:
            return
        if self._step_number[worker]:
            self._may_hang[worker] = True
            self._pressed(worker)
        self._step_number[worker] = self._deliver(worker, message, of_round=False)

    def _deliver(self, worker: int, message: Request, *, of_round: bool) -> int:
        self._number = number = self._number + 1
        self._in_flight[number] = InFlight(worker, message, of_round)
        self._post(worker, number, message)
        return number

    def receive(self, until: float | None) -> Event:
        """Return the next event; a tick at `until`, and from time to time if nothing happens."""
        self._flush()
        while True:
            if until is not None and not self._ticked and self._held is None and self.clock >= until:
                return self._tick()
            self._ticked = False
            while self._events:
                event = self._events.popleft()
                if self._goes_to_master(event):
                    event.time = self.clock
                    return event
            self._remake_due()
            if until is None and not (self._in_flight or self._restarts.pending):
                raise Deadlock(
                    "nothing is under way and the master still waits; every worker is idle or given up"
                )
            arrivals = self._collect(self._longest_wait(until))
            for arrival in arrivals:
                self._process(arrival)
            if not arrivals:
                self._give_up_making()
                if self._held is None:
                    self._find_silent()
                if not self._events:
                    return self._tick()

    def _longest_wait(self, until: float | None) -> float:
        """Return how many seconds to wait for arrivals before something else is due."""
        wait, next_restart = POLL, self._restarts.next_due
        if next_restart is not None:
            wait = min(wait, next_restart - monotonic())
        if until is not None and self._held is None:
            wait = min(wait, until - self.clock)
        return max(wait, 0.0)

    def _tick(self) -> Event:
        """Make a tick; for the master the clock stands still while the loss of the last worker is held."""
        self._ticked = True
        return Event(self.clock if self._held is None else self._held_at, -1, None)

    def _goes_to_master(self, event: Event) -> bool:
        """Record what the master is about to be told; False if it must not be told now."""
        j, payload = event.worker, event.payload
        if isinstance(payload, Silent):
            return self._present[j]
        if isinstance(payload, Lost):
            if not self._known_alive[j]:
                return True  # it was expected back, and is given up
            if self._live == 1 and self._restarts.pending:
                self._held, self._held_at = event, self.clock
                return False
            self._known_alive[j] = False
            self._live -= 1
        elif isinstance(payload, Back):
            held, self._held = self._held, None
            if held is not None and held.worker == j:
                self._resend_step(j)  # for the master it was only slow
                return False
            self._known_alive[j] = True
            self._live += 1
            if held is not None:
                self._events.appendleft(held)
        else:
            self.records.answered(j, payload)
        return True

    def _resend_step(self, worker: int) -> None:
        """Send the step again that a lost worker had under way."""
        step = self.records.under_way[worker]
        if step is not None:
            self._step_number[worker] = self._deliver(worker, step, of_round=False)

    def _find_silent(self) -> None:
        """Report workers whose step has been unanswered for too long."""
        now = monotonic()
        for number, sent in self._in_flight.items():  # in the order of posting
            if now - sent.posted < self.deadline_floor:
                break
            j = sent.worker
            if self._step_number[j] != number or sent.reported_silent:
                continue
            deadline, why = self.answer_times.deadline(self.deadline_floor, self.patience)
            seconds = now - self._since(j, sent.posted)
            if seconds >= deadline:
                sent.reported_silent = True
                self._events.append(Event(0.0, j, Silent(seconds, deadline, why)))

    # -- arrivals -------------------------------------------------------------------------------------

    def _process(self, arrival: Arrival) -> None:
        if isinstance(arrival, WorkersLost):
            self._lose(arrival.workers, arrival.reason, arrival.error)
        elif isinstance(arrival, WorkersReady):
            # The worker whose loss is held comes last: once another is back, that loss can be reported.
            last = -1 if self._held is None else self._held.worker
            for j in sorted(arrival.workers, key=lambda j: (j == last, j)):
                if not self._present[j]:  # else from an attempt that was given up
                    self._take_back(j)
        else:
            sent = self._in_flight.pop(arrival.number, None)
            if sent is not None:  # else from before a loss, or too late for its round
                self._process_answer(sent, arrival)

    def _process_answer(self, sent: InFlight, answer: Answer) -> None:
        j, content = sent.worker, answer.content
        self._may_hang[j] = False
        if self._step_number[j] == answer.number:
            self._step_number[j] = 0
        seconds = monotonic() - sent.posted if answer.seconds is None else answer.seconds
        if self._opening:
            self.answer_times.opened(j, seconds)
        else:
            self.answer_times.answered(j, seconds)
        if not isinstance(content, Exception):
            try:
                content = checked(j, sent.message, content)
            except InvalidReply as error:
                content = error
        if sent.of_round:
            self._round_replies[j] = content
            if self._opening and not isinstance(content, Exception):
                self.records.opened(j, sent.message, content)
        elif isinstance(content, Exception):
            self._lose([j], f"raised {words(content)}", content)
        else:
            self._restarts.failures[j] = 0
            self._events.append(Event(0.0, j, content))

    def _lose(self, workers: Sequence[int], reason: str, error: Exception | None = None) -> None:
        """Report workers as lost, and schedule making them again."""
        lost = set(workers)
        self._in_flight = {n: sent for n, sent in self._in_flight.items() if sent.worker not in lost}
        now = monotonic()
        for j in workers:
            self._present[j] = False
            self._step_number[j] = 0
            self._may_hang[j] = False
            returns = self._restarts.lost(j, now)
            self._report_loss(j, Lost(reason, error, returns=returns))
            if not returns:
                self.answer_times.forget(j)
                if j in self._round:
                    tries = self._restarts.failures[j] - 1
                    self._round_replies.setdefault(j, _given_up(j, reason, error, tries))
        if self._held is not None and not self._restarts.pending:
            self._events.appendleft(self._held)  # nobody will come back
            self._held = None

    def _report_loss(self, j: int, lost: Lost) -> None:
        """Report a loss once, and once more if the worker will not return after all."""
        if not self._loss_reported[j]:
            self._loss_reported[j] = True
            self._events.append(Event(0.0, j, lost))
        elif not lost.returns:
            if self._held is not None and self._held.worker == j:
                self._held.payload = lost
            else:
                self._events.append(Event(0.0, j, lost))

    def _give_up_making(self) -> None:
        """Lose workers that have been in the making for too long."""
        if not self._restarts.making:
            return
        limit = self.answer_times.round_limit(self.patience, hasty=False)
        late = self._restarts.late(monotonic(), limit)
        if late:
            self._lose(self._abandon(late), f"not created again within {limit:.3g} s")

    def _remake_due(self) -> None:
        due = self._restarts.due(monotonic())
        if due:
            self._remake({j: self.records.of_worker[j] for j in due}, afresh=True)

    def _take_back(self, j: int) -> None:
        """A worker was made again: report it, and ask it what the round under way asks."""
        self._present[j] = True
        self._restarts.ready(j)
        if self._loss_reported[j]:
            self._loss_reported[j] = False
            self._events.append(Event(0.0, j, Back()))
        else:
            self._resend_step(j)
        if j in self._round and j not in self._round_replies:
            self._deliver(j, self._round[j], of_round=True)

    # -- rounds ---------------------------------------------------------------------------------------

    def ask(self, messages: Mapping[int, Request]) -> dict[int, Reply | Exception]:
        """Return every worker's reply or exception; a worker answers after the step it has under way.

        A worker that is being made again is waited for: before the first step until it is given up
        (`restarts`), later for a few attempts. If no answer at all comes for `patience` seconds, the missing
        workers count as silent; for workers that may hang, and after `hurry`, the wait is shorter.
        """
        self._round, self._round_replies = {j: copied(m) if m.live else m for j, m in messages.items()}, {}
        hung = list(self._may_hang)  # before the round: that was reported
        for j, message in self._round.items():
            if self._present[j]:
                self._deliver(j, message, of_round=True)
            elif self._restarts.given_up(j):
                self._round_replies[j] = Away(f"worker {j} is away")
        try:
            silence = self._wait_for_round()
            silent = f"gave no answer, and for {silence:.3g} s nobody else did (`patience`)"
            for j in [j for j in messages if j not in self._round_replies]:
                kind = Away if hung[j] else TimeoutError
                self._round_replies[j] = kind(f"worker {j} {silent}; {self._excuse(j)}")
            return {j: self._round_replies[j] for j in messages}
        finally:
            self._round = {}
            self._in_flight = {n: sent for n, sent in self._in_flight.items() if not sent.of_round}

    def _wait_for_round(self) -> float:
        """Collect answers until all are in or nothing comes any more; return how long nothing has come."""
        last = monotonic()
        while len(self._round_replies) < len(self._round):
            before = len(self._round_replies)
            self._remake_due()
            arrivals = self._collect(POLL)
            for arrival in arrivals:
                self._process(arrival)
            if len(self._round_replies) > before or (self._opening and self._restarts.next_due is not None):
                last = monotonic()  # before the first step a worker is waited for as often as `restarts` says
            elif not arrivals:
                self._give_up_making()
                missing = [j for j in self._round if j not in self._round_replies]
                hopeless = all(
                    self._may_hang[j] or self._restarts.failures[j] > PATIENT_ATTEMPTS for j in missing
                )
                hasty = self._hurried or (hopeless and not self._opening)
                if monotonic() - last >= self.answer_times.round_limit(self.patience, hasty=hasty):
                    if hasty or not self._relieve(missing):
                        break
                    last = monotonic()
        return monotonic() - last

    # -- checkpoints ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the clock, who is away, and every worker's record, as the master knows it."""
        away = [j for j, alive in enumerate(self._known_alive) if not alive]
        return {
            "engine": "wall",
            "clock": self.clock,
            "away": away,
            "longest": self.answer_times.longest,
            "memory": self.records.snapshot(),
        }

    mark: ClassVar[str] = "memory"
    saved: ClassVar[Form] = {
        "clock": real(),
        "away": listing("", worker_index),
        "memory": Records.check_saved,
    }
    """What a snapshot holds that is checked before it is taken up."""

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check a snapshot."""
        saved.entries(cls.saved, name, value)

    def fingerprint(self) -> str:
        """Return one value for all engines on a wall clock: a checkpoint of one fits every other."""
        return "an engine on a wall clock"

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot of any engine on a wall clock, after `start` with the same workers.

        Every worker is restored from its record and gets the step it had under way; those that were away are
        back.
        """
        if state.get("engine") != "wall":
            raise CheckpointMismatch(
                f"this checkpoint is not from an engine on a wall clock; {type(self).__name__} cannot go on "
                "from it. Resume with the engine that the run was started with"
            )
        self.records.restore(state["memory"])
        self._opening = False
        N = len(self._known_alive)
        self.answer_times.longest = list(state["longest"])
        self._present = [False] * N
        self._restarts.make_all(range(N), monotonic())
        for j in state["away"]:
            self._known_alive[j], self._loss_reported[j] = False, True
        self._live = N - len(state["away"])
        self._remake(dict(enumerate(self.records.of_worker)), afresh=False)
        self._wait_until_made()
        self._offset, self._began = state["clock"], monotonic()

    def _wait_until_made(self) -> None:
        """Collect arrivals until every worker is made, or lost because it took too long."""
        making, last = self._restarts.making, monotonic()
        limit = self.answer_times.round_limit(self.patience, hasty=False)
        while making:
            before = len(making)
            for arrival in self._collect(POLL):
                self._process(arrival)
            if len(making) < before:
                last = monotonic()
            elif monotonic() - last >= limit:
                if not self._relieve(sorted(making)):
                    self._lose(self._abandon(sorted(making)), f"not created again within {limit:.3g} s")
                last = monotonic()


def _given_up(worker: int, reason: str, error: Exception | None, tries: int) -> Away:
    """The answer of a worker that is given up during a round."""
    again = f"; it was made again {tries} times in a row (`restarts`)" if tries else ""
    away = Away(f"worker {worker} is lost: {reason}{again}")
    away.__cause__ = error
    return away
