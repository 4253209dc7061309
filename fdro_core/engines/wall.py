"""What engines on a wall clock share: workers that go and come back, rounds of questions, checkpoints.

An engine for a transport of one's own adds five methods: `_open`, `_post`, `_collect`, `_remake` and
`_close` (docs/add-an-engine.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from math import isfinite
from time import monotonic
from typing import Any

from fdro_core.contracts.engine import Away, Back, Event, Lost, Silent, WorkerFactory
from fdro_core.contracts.failures import words
from fdro_core.contracts.messages import Reply, Request, copied
from fdro_core.contracts.replies import checked
from fdro_core.engines.letters import Answer, Arrival, Gone, Here, Letter
from fdro_core.engines.memory import Memory
from fdro_core.engines.transport import Transport
from fdro_core.engines.watch import Watch
from fdro_core.errors import CheckpointMismatch, Deadlock, InvalidReply, InvalidSetting

__all__ = ["Answer", "Arrival", "Gone", "Here", "WallEngine"]

SLICE = 0.25  # seconds without an event after which the loop gets a tick, so that it can see a Ctrl-C
LONGEST_PAUSE = 60.0  # seconds between two attempts to make a worker again
TRIES = 2  # of making a worker again that a round waits for patiently


class WallEngine(Transport):
    """The engine's side of everything but the transport.

    A worker that raises or whose host dies is lost to the master at once, made again after `restart_after`
    seconds (twice as long after each failure in a row) with the past that the master's side remembers, and
    then it is back. While nobody else is there, the loss of the last worker is kept from the master for as
    long as somebody may come back: it would end the run.

    A worker that does not answer its step for ten times the slowest answer of late may hang: the master is
    told, and acts on it where its `deadline` is "auto". Nothing else waits for ever either: rounds and the
    making of workers have `patience`.

    Args:
        patience: seconds that a round of questions waits without any further answer, and that making a worker
            again may take; ten times the slowest answer of late where that is longer.
        restarts: how often in a row a worker is made again before it is given up; 0 for never.
        restart_after: seconds from a loss to the first attempt.
        deadline_floor: the least seconds of silence that `deadline="auto"` takes for a sign of anything.
    """

    def __init__(
        self,
        *,
        patience: float = 300.0,
        restarts: int = 10,
        restart_after: float = 0.5,
        deadline_floor: float = 60.0,
    ) -> None:
        name = type(self).__name__
        for setting, seconds in (("patience", patience), ("deadline_floor", deadline_floor)):
            if not (isfinite(seconds) and seconds > 0):
                raise InvalidSetting(
                    f"{name}.{setting} must be a finite number of seconds > 0, got {seconds}"
                )
        if not (isinstance(restarts, int) and restarts >= 0):
            raise InvalidSetting(f"{name}.restarts must be a whole number >= 0, got {restarts!r}")
        if not (isfinite(restart_after) and restart_after >= 0):
            raise InvalidSetting(f"{name}.restart_after must be seconds >= 0, got {restart_after}")
        self.patience = patience
        self.restarts = restarts
        self.restart_after = restart_after
        self.deadline_floor = deadline_floor
        self._offset = 0.0
        self._began: float | None = None

    # -- the engine -----------------------------------------------------------------------------------

    @property
    def clock(self) -> float:
        """Seconds since the first step was sent, those before a checkpoint included."""
        return self._offset if self._began is None else self._offset + (monotonic() - self._began)

    def start(self, factories: Sequence[WorkerFactory]) -> None:
        """Make every worker, where it is to live."""
        N = len(factories)
        self._offset, self._began = 0.0, monotonic()
        self.memory = Memory(N)
        self.watch = Watch(N)
        self._opening = True  # until the first step is sent
        self._events: deque[Event] = deque()
        self._letters: dict[int, Letter] = {}
        self._latest = [0] * N  # number of the step under way, 0 for none
        self._number = 0
        self._present = [True] * N
        self._reported = [False] * N  # a loss is in the queue or told, and its return is not
        self._told = [True] * N  # what the master was told
        self._live = N  # how many of those are True
        self._held: Event | None = None
        self._held_at = 0.0
        self._failures = [0] * N
        self._due: list[tuple[float, int]] = []
        self._making: dict[int, float] = {}  # since when
        self._hangs = [False] * N  # it got a step before it had answered the last
        self._hurried = False
        self._asked: Mapping[int, Request] = {}
        self._round: dict[int, Reply | Exception] = {}
        self._ticked = False
        try:
            self._open(factories)
        except BaseException:  # Ctrl-C as well
            self.stop()
            raise

    def stop(self) -> None:
        """Let the workers go."""
        if self._began is not None:
            self._offset, self._began = self.clock, None
            self._close()

    def hurry(self) -> None:
        """The user wants the run to end: a round waits for slow workers only, not for those that may hang."""
        self._hurried = True

    def send(self, worker: int, message: Request) -> None:
        """Hand a step to a worker; one that is away gets nothing."""
        if self._opening:
            self._opening = False
            self._began = monotonic()  # the master takes its first steps to be sent at 0
        if message.live:
            message = copied(message)
        self.memory.under_way[worker] = message
        if not self._present[worker]:
            return
        if self._latest[worker]:
            self._hangs[worker] = True
            self._pressed(worker)
        self._latest[worker] = self._deliver(worker, message, of_round=False)

    def _deliver(self, worker: int, message: Request, *, of_round: bool) -> int:
        self._number = number = self._number + 1
        self._letters[number] = Letter(worker, message, of_round)
        self._post(worker, number, message)
        return number

    def receive(self, until: float | None) -> Event:
        """The next event; a tick at `until`, and now and then where nothing happens."""
        self._flush()
        while True:
            if until is not None and not self._ticked and self._held is None and self.clock >= until:
                return self._tick()
            self._ticked = False
            while self._events:
                event = self._events.popleft()
                if self._tell(event):
                    event.time = self.clock
                    return event
            self._remake_due()
            if until is None and not (self._letters or self._due or self._making):
                raise Deadlock(
                    "nothing is under way and the master still waits; every worker is idle or given up"
                )
            wait = SLICE
            if self._due:
                wait = min(wait, self._due[0][0] - monotonic())
            if until is not None and self._held is None:
                wait = min(wait, until - self.clock)
            arrivals = self._collect(max(wait, 0.0))
            for arrival in arrivals:
                self._sort(arrival)
            if not arrivals:
                self._give_up_making()
                if self._held is None:
                    self._find_silent()
                if not self._events:
                    return self._tick()

    def _tick(self) -> Event:
        """A tick; the clock stands still for the master while it does not know that all are away."""
        self._ticked = True
        return Event(self.clock if self._held is None else self._held_at, -1, None)

    def _tell(self, event: Event) -> bool:
        """Note what the master is about to be told; False where it is not to be told now."""
        j, payload = event.worker, event.payload
        if isinstance(payload, Silent):
            return self._present[j]
        if isinstance(payload, Lost):
            if not self._told[j]:
                return True  # it was to return, and will not
            if self._live == 1 and (self._due or self._making):
                self._held, self._held_at = event, self.clock
                return False
            self._told[j] = False
            self._live -= 1
        elif isinstance(payload, Back):
            held, self._held = self._held, None
            if held is not None and held.worker == j:
                self._repeat(j)  # for the master it was only slow
                return False
            self._told[j] = True
            self._live += 1
            if held is not None:
                self._events.appendleft(held)
        else:
            self.memory.answered(j, payload)
        return True

    def _repeat(self, worker: int) -> None:
        """Send the step again that a worker took along."""
        step = self.memory.under_way[worker]
        if step is not None:
            self._latest[worker] = self._deliver(worker, step, of_round=False)

    def _find_silent(self) -> None:
        """Tell the master of workers whose step has been unanswered for too long."""
        now = monotonic()
        for number, letter in self._letters.items():  # in the order of posting
            if now - letter.posted < self.deadline_floor:
                break
            j = letter.worker
            if self._latest[j] != number or letter.reported:
                continue
            deadline, why = self.watch.deadline(self.deadline_floor, self.patience)
            seconds = now - self._since(j, letter.posted)
            if seconds >= deadline:
                letter.reported = True
                self._events.append(Event(0.0, j, Silent(seconds, deadline, why)))

    # -- arrivals -------------------------------------------------------------------------------------

    def _sort(self, arrival: Arrival) -> None:
        if isinstance(arrival, Gone):
            self._lose(arrival.workers, arrival.reason, arrival.error)
        elif isinstance(arrival, Here):
            last = -1 if self._held is None else self._held.worker  # others first: then its loss can be told
            for j in sorted(arrival.workers, key=lambda j: (j == last, j)):
                if not self._present[j]:  # else from an attempt that was given up
                    self._welcome(j)
        else:
            letter = self._letters.pop(arrival.number, None)
            if letter is not None:  # else from before a loss, or too late for its round
                self._open_answer(letter, arrival)

    def _open_answer(self, letter: Letter, answer: Answer) -> None:
        j, content = letter.worker, answer.content
        self._hangs[j] = False
        if self._latest[j] == answer.number:
            self._latest[j] = 0
        seconds = monotonic() - letter.posted if answer.seconds is None else answer.seconds
        if self._opening:
            self.watch.opened(j, seconds)
        else:
            self.watch.answered(j, seconds)
        if not isinstance(content, Exception):
            try:
                content = checked(j, letter.message, content)
            except InvalidReply as error:
                content = error
        if letter.of_round:
            self._round[j] = content
            if self._opening and not isinstance(content, Exception):
                self.memory.opened(j, letter.message, content)
        elif isinstance(content, Exception):
            self._lose([j], f"raised {words(content)}", content)
        else:
            self._failures[j] = 0
            self._events.append(Event(0.0, j, content))

    def _lose(self, workers: Sequence[int], reason: str, error: Exception | None = None) -> None:
        """Workers are gone: tell the master, and see to it that they return."""
        gone = set(workers)
        self._letters = {n: letter for n, letter in self._letters.items() if letter.worker not in gone}
        now = monotonic()
        for j in workers:
            self._present[j] = False
            self._making.pop(j, None)
            self._latest[j] = 0
            self._hangs[j] = False
            self._failures[j] += 1
            returns = self._failures[j] <= self.restarts
            self._report_loss(j, Lost(reason, error, returns=returns))
            if returns:
                pause = min(self.restart_after * 2.0 ** (self._failures[j] - 1), LONGEST_PAUSE)
                heappush(self._due, (now + pause, j))
                continue
            self.watch.given_up(j)
            if j in self._asked:
                self._round.setdefault(j, _gone(j, reason, error))
        if self._held is not None and not (self._due or self._making):
            self._events.appendleft(self._held)  # nobody will come back
            self._held = None

    def _report_loss(self, j: int, lost: Lost) -> None:
        """Have the master told of a loss once, and once more where the worker will not return after all."""
        if not self._reported[j]:
            self._reported[j] = True
            self._events.append(Event(0.0, j, lost))
        elif not lost.returns:
            if self._held is not None and self._held.worker == j:
                self._held.payload = lost
            else:
                self._events.append(Event(0.0, j, lost))

    def _give_up_making(self) -> None:
        """Lose workers that are not there after all the time that making one may take."""
        if not self._making:
            return
        limit = self.watch.round_limit(self.patience, haste=False)
        late = [j for j, since in self._making.items() if monotonic() - since >= limit]
        if late:
            self._lose(self._abandon(late), f"not made again within {limit:.3g} s")

    def _remake_due(self) -> None:
        now, due = monotonic(), []
        while self._due and self._due[0][0] <= now:
            j = heappop(self._due)[1]
            if not self._present[j]:
                due.append(j)
        if due:
            self._making.update(dict.fromkeys(due, now))
            self._remake({j: self.memory.pasts[j] for j in due}, afresh=True)

    def _welcome(self, j: int) -> None:
        """A worker is there again."""
        self._present[j] = True
        self._making.pop(j, None)
        if self._reported[j]:
            self._reported[j] = False
            self._events.append(Event(0.0, j, Back()))
        else:
            self._repeat(j)
        if j in self._asked and j not in self._round:
            self._deliver(j, self._asked[j], of_round=True)

    # -- rounds ---------------------------------------------------------------------------------------

    def ask(self, messages: Mapping[int, Request]) -> dict[int, Reply | Exception]:
        """Every worker's reply, or the exception it raised, after the step that it has under way.

        A worker that is being made again is waited for. One that gives no answer while `patience` seconds
        pass without any counts as silent; one that may hang, or any once the user is in a hurry, sooner.
        """
        self._asked, self._round = {j: copied(m) if m.live else m for j, m in messages.items()}, {}
        hung = list(self._hangs)  # before the round: that was reported
        for j, message in self._asked.items():
            if self._present[j]:
                self._deliver(j, message, of_round=True)
            elif self._failures[j] > self.restarts:
                self._round[j] = Away(f"worker {j} is away")
        last = monotonic()
        try:
            while len(self._round) < len(messages):
                before = len(self._round)
                self._remake_due()
                arrivals = self._collect(SLICE)
                for arrival in arrivals:
                    self._sort(arrival)
                if len(self._round) > before:
                    last = monotonic()
                elif not arrivals:
                    self._give_up_making()
                    missing = [j for j in messages if j not in self._round]
                    haste = self._hurried or all(self._hangs[j] or self._failures[j] > TRIES for j in missing)
                    if monotonic() - last >= self.watch.round_limit(self.patience, haste=haste):
                        if haste or not self._relieve(missing):
                            break
                        last = monotonic()
            silent = f"gave no answer, and for {monotonic() - last:.3g} s nobody else did (`patience`)"
            for j in messages:
                kind = Away if hung[j] else TimeoutError
                self._round.setdefault(j, kind(f"worker {j} {silent}"))
            return {j: self._round[j] for j in messages}
        finally:
            self._asked = {}
            self._letters = {n: letter for n, letter in self._letters.items() if not letter.of_round}

    # -- checkpoints ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The clock, who is away, and what is remembered of every worker, as the master knows it."""
        away = [j for j, told in enumerate(self._told) if not told]
        return {
            "engine": "wall",
            "clock": self.clock,
            "away": away,
            "longest": self.watch.longest,
            "memory": self.memory.snapshot(),
        }

    def fingerprint(self) -> str:
        """Checkpoints pass from one engine on a wall clock to another, whatever their settings."""
        return "an engine on a wall clock"

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot of any engine on a wall clock, after `start` with the same workers.

        Every worker is given its past and the step it had under way; those that were away are back.
        """
        if state.get("engine") != "wall":
            raise CheckpointMismatch(
                f"this checkpoint is not from an engine on a wall clock; {type(self).__name__} cannot go on "
                "from it. Resume with the engine that the run was started with"
            )
        self.memory.restore(state["memory"])
        self._opening = False
        N = len(self._told)
        self.watch.longest = list(state.get("longest", [0.0] * N))  # those of 0.1 have none
        self._present, self._making = [False] * N, dict.fromkeys(range(N), monotonic())
        for j in state["away"]:
            self._told[j], self._reported[j] = False, True
        self._live = N - len(state["away"])
        self._remake(dict(enumerate(self.memory.pasts)), afresh=False)
        last = monotonic()
        limit = self.watch.round_limit(self.patience, haste=False)
        while self._making:
            before = len(self._making)
            for arrival in self._collect(SLICE):
                self._sort(arrival)
            if len(self._making) < before:
                last = monotonic()
            elif monotonic() - last >= limit:
                if not self._relieve(sorted(self._making)):
                    self._lose(self._abandon(sorted(self._making)), f"not made again within {limit:.3g} s")
                last = monotonic()
        self._offset, self._began = state["clock"], monotonic()


def _gone(worker: int, reason: str, error: Exception | None) -> Away:
    """The answer of a worker that is given up in the midst of a round."""
    away = Away(f"worker {worker} is gone: {reason}")
    away.__cause__ = error
    return away
