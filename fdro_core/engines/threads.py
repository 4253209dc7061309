"""One machine, a wall clock: workers on threads of this process."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from fdro_core.contracts.engine import WorkerFactory, WorkerMachine
from fdro_core.contracts.failures import as_exception, words
from fdro_core.contracts.messages import Reply, Request
from fdro_core.engines.memory import Past, make, recall
from fdro_core.engines.wall import Answer, Arrival, Gone, Here, WallEngine
from fdro_core.errors import InvalidSetting

FAREWELL = 2.0  # seconds that `stop` waits for threads in the midst of a step; they end by themselves later


class _Desk:
    """One worker and the tasks that wait for it; at most one thread is at it."""

    __slots__ = ("busy", "error", "hangs", "left", "machine", "since", "waiting")

    def __init__(self) -> None:
        self.machine: WorkerMachine | None = None
        self.error: Exception = RuntimeError("the worker was never made")
        self.waiting: deque[Any] = deque()
        self.busy = False
        self.since = inf  # since when a thread is at it
        self.hangs = False  # that thread has been replaced
        self.left = False  # another desk has taken the place of this one


class ThreadEngine(WallEngine):
    """Workers on threads of this process, on a wall clock: real asynchrony without extra dependencies.

    Threads run at the same time where gradients leave Python's lock (NumPy's products and PyTorch do). A
    worker that raises is lost, made again and back. A thread cannot be ended from outside: while a worker
    hangs (the master's `deadline` notices), another thread takes over the rest. At the end of the run, a
    thread that hangs is left behind after two seconds; as a daemon it does not keep the process from ending.

    Args:
        threads: how many; as many as the machine has cores by default, never more than workers.
        patience: seconds that a round of questions waits without any further answer.
        restarts: how often in a row a worker is made again before it is given up; 0 for never.
        restart_after: seconds from a loss to the first attempt, twice as long after each failure in a row.
        deadline_floor: the least seconds of silence that `deadline="auto"` takes for a sign of anything.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [0.0]), LeastSquares([[1.0]], [2.0])]
    >>> result = solve(problems, Box([0.0, 0.0], [1.0, 1.0]), engine=ThreadEngine())
    >>> round(float(result.w[0]), 3), round(result.objective, 3)
    (1.0, 0.5)
    """

    def __init__(
        self,
        threads: int | None = None,
        *,
        patience: float = 300.0,
        restarts: int = 10,
        restart_after: float = 0.5,
        deadline_floor: float = 60.0,
    ) -> None:
        super().__init__(
            patience=patience, restarts=restarts, restart_after=restart_after, deadline_floor=deadline_floor
        )
        if threads is not None and not (isinstance(threads, int) and threads >= 1):
            raise InvalidSetting(f"ThreadEngine.threads must be a whole number >= 1, got {threads!r}")
        self.threads = threads

    def __repr__(self) -> str:
        return f"ThreadEngine(threads={self.threads}, clock={self.clock:.3g})"

    def _open(self, factories: Sequence[WorkerFactory]) -> None:
        self._factories = list(factories)
        self._desks = [_Desk() for _ in factories]
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._arrivals: SimpleQueue[Arrival] = SimpleQueue()
        self._crew: list[threading.Thread] = []
        for worker in range(len(factories)):
            self._put(worker, _Make(None, afresh=True))
        for _ in range(min(self.threads or os.cpu_count() or 1, len(factories))):
            self._hire()

    def _hire(self) -> None:
        arguments = (self._tasks, self._arrivals)
        name = f"fdro-worker-{len(self._crew)}"
        # A daemon: a worker that hangs must not keep the process from ending.
        thread = threading.Thread(target=self._serve, args=arguments, name=name, daemon=True)
        self._crew.append(thread)
        thread.start()

    def _put(self, worker: int, task: Any) -> None:
        desk = self._desks[worker]
        with self._lock:
            if desk.busy:
                desk.waiting.append(task)
                return
            desk.busy = True
        self._tasks.put((worker, desk, task))

    def _post(self, worker: int, number: int, message: Request) -> None:
        self._put(worker, (number, message))

    def _pressed(self, worker: int) -> None:
        self._replace_thread(self._desks[worker])

    def _replace_thread(self, desk: _Desk) -> bool:
        """Hire a thread in the place of the one at this desk, if there is one and it was not done yet."""
        with self._lock:
            if desk.since == inf or desk.hangs:
                return False
            desk.hangs = True
        self._hire()
        return True

    def _since(self, worker: int, posted: float) -> float:
        return max(posted, self._desks[worker].since)

    def _relieve(self, workers: Sequence[int]) -> bool:
        stuck = [worker for worker in workers if self._replace_thread(self._desks[worker])]
        for worker in stuck:
            self._hangs[worker] = True
        return bool(stuck) and len(stuck) < len(workers)

    def _abandon(self, workers: Sequence[int]) -> Sequence[int]:
        for worker in workers:
            desk, self._desks[worker] = self._desks[worker], _Desk()
            desk.left = True
            self._replace_thread(desk)
        return workers

    def _collect(self, seconds: float) -> list[Arrival]:
        arrivals = self._arrivals
        try:
            found = [arrivals.get(timeout=seconds) if seconds > 0 else arrivals.get_nowait()]
        except Empty:
            return []
        found.extend(arrivals.get() for _ in range(arrivals.qsize()))  # nobody else takes from it
        return found

    def _remake(self, pasts: Mapping[int, Past], *, afresh: bool) -> None:
        for worker, past in pasts.items():
            self._put(worker, _Make(past, afresh))

    def _close(self) -> None:
        for _ in self._crew:
            self._tasks.put(None)
        end = monotonic() + FAREWELL
        for thread in self._crew:
            thread.join(timeout=max(0.0, end - monotonic()))
        self._desks = []

    # -- on the threads -------------------------------------------------------------------------------

    def _serve(self, tasks: SimpleQueue[Any], arrivals: SimpleQueue[Arrival]) -> None:
        """Take tasks until told to go; the queues are this run's own, whatever the engine does next."""
        while (item := tasks.get()) is not None:
            worker, desk, task = item
            begin = desk.since = monotonic()
            if isinstance(task, _Make):
                arrival = self._make(worker, desk, task)
            else:
                reply = _handle(desk, task[1])
                arrival = Answer(task[0], reply, monotonic() - begin)
            if arrival is not None and not desk.left:
                arrivals.put(arrival)
            with self._lock:
                desk.since = inf
                desk.busy = bool(desk.waiting)
                following = desk.waiting.popleft() if desk.waiting else None
                hung, desk.hangs = desk.hangs, False
            if following is not None:
                tasks.put((worker, desk, following))
            if hung:
                return  # another thread was hired in this one's place

    def _make(self, worker: int, desk: _Desk, task: _Make) -> Arrival | None:
        past = task.past
        try:
            if task.afresh or desk.machine is None:
                desk.machine = make(self._factories[worker], past)
            elif past is not None:
                recall(desk.machine, past)
        except BaseException as raised:  # Ctrl-C reaches the main thread only
            error = as_exception(raised)
            desk.machine, desk.error = None, error
            return None if past is None else Gone([worker], f"raised {words(error)}", error)
        return None if past is None else Here([worker])


class _Make:
    """The task to make a worker: the first time without a past, later with it."""

    __slots__ = ("afresh", "past")

    def __init__(self, past: Past | None, afresh: bool) -> None:
        self.past = past
        self.afresh = afresh


def _handle(desk: _Desk, message: Request) -> Reply | Exception:
    if desk.machine is None:
        return desk.error
    try:
        return desk.machine.handle(message)
    except BaseException as error:  # Ctrl-C reaches the main thread only
        return as_exception(error)
