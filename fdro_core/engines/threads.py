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

from fdro_core.engines.wall_clock import (
    Answer,
    Arrival,
    WallEngine,
    WorkerRecord,
    WorkersLost,
    WorkersReady,
    make_worker,
    restore_worker,
)
from fdro_core.protocol.engine import WorkerFactory, WorkerMachine
from fdro_core.protocol.failures import as_exception, words
from fdro_core.protocol.messages import Reply, Request
from fdro_core.protocol.settings import Whole, check_setting

STOP_TIMEOUT = 2.0  # seconds that `stop` waits for threads that are in a step; they end by themselves later


class _Slot:
    """One worker and the tasks that wait for it; at most one thread works on it.

    Attributes:
        machine: the worker, None if it could not be made.
        error: what was raised instead.
        waiting: tasks after the present one.
        busy: whether a task is queued or being done.
        since: since when a thread works on it; infinity: none does.
        thread_replaced: whether another thread was started in place of the one that works on it.
        abandoned: whether another slot has replaced this one; its answers are dropped.
    """

    __slots__ = ("abandoned", "busy", "error", "machine", "since", "thread_replaced", "waiting")

    def __init__(self) -> None:
        self.machine: WorkerMachine | None = None
        self.error: Exception = RuntimeError("the worker was never made")
        self.waiting: deque[Any] = deque()
        self.busy = False
        self.since = inf
        self.thread_replaced = False
        self.abandoned = False


class _MakeWorker:
    """The task of making a worker: the first time without a record, later with it."""

    __slots__ = ("afresh", "record")

    def __init__(self, record: WorkerRecord | None, afresh: bool) -> None:
        self.record = record
        self.afresh = afresh


class ThreadEngine(WallEngine):
    """Workers on threads of this process, on a wall clock: real asynchrony without extra dependencies.

    Threads run at the same time while gradients release Python's lock (NumPy's products and PyTorch do). A
    worker that raises is lost, and is then created again. A thread cannot be ended from outside: while a
    worker hangs (the master's `deadline` notices), another thread takes over the rest. At the end of the run,
    a thread that hangs is left behind after two seconds; as a daemon it does not keep the process from
    ending.

    Args:
        threads: how many; by default as many as the machine has cores, and never more than workers.
        patience: seconds that a round of questions waits without any further answer.
        restarts: how often in a row a lost worker is created again before it is given up; 0: never.
        restart_after: seconds from a loss to the first attempt, twice as long after each failure in a row.
        deadline_floor: the least seconds of silence after which `deadline="auto"` acts.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 2.0)]
    >>> result = solve(problems, Box([0.0, 0.0], [1.0, 1.0]), engine=ThreadEngine())
    >>> round(float(result.w[0]), 3), round(result.objective, 3)
    (1.0, 0.5)
    """

    name = "thread"
    survives_hangs = True

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
        self.threads = None if threads is None else check_setting("ThreadEngine.threads", threads, Whole())

    def __repr__(self) -> str:
        return f"ThreadEngine(threads={self.threads}, clock={self.clock:.3g})"

    def _open(self, factories: Sequence[WorkerFactory]) -> None:
        self._factories = list(factories)
        self._slots = [_Slot() for _ in factories]
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._arrivals: SimpleQueue[Arrival] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        for worker in range(len(factories)):
            self._enqueue(worker, _MakeWorker(None, afresh=True))
        for _ in range(min(self.threads or os.cpu_count() or 1, len(factories))):
            self._start_thread()

    def _start_thread(self) -> None:
        arguments = (self._tasks, self._arrivals)
        name = f"fdro-worker-{len(self._threads)}"
        # A daemon: a worker that hangs must not keep the process from ending.
        thread = threading.Thread(target=self._serve, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _enqueue(self, worker: int, task: Any) -> None:
        slot = self._slots[worker]
        with self._lock:
            if slot.busy:
                slot.waiting.append(task)
                return
            slot.busy = True
        self._tasks.put((worker, slot, task))

    def _post(self, worker: int, number: int, message: Request) -> None:
        self._enqueue(worker, (number, message))

    def _pressed(self, worker: int) -> None:
        self._replace_thread(self._slots[worker])

    def _replace_thread(self, slot: _Slot) -> bool:
        """Start a thread in place of the one that works on this slot, unless that was done already."""
        with self._lock:
            if slot.since == inf or slot.thread_replaced:
                return False
            slot.thread_replaced = True
        self._start_thread()
        return True

    def _since(self, worker: int, posted: float) -> float:
        return max(posted, self._slots[worker].since)

    def _relieve(self, workers: Sequence[int]) -> bool:
        stuck = [worker for worker in workers if self._replace_thread(self._slots[worker])]
        for worker in stuck:
            self._may_hang[worker] = True
        return bool(stuck) and len(stuck) < len(workers)

    def _abandon(self, workers: Sequence[int]) -> Sequence[int]:
        for worker in workers:
            slot, self._slots[worker] = self._slots[worker], _Slot()
            slot.abandoned = True
            self._replace_thread(slot)
        return workers

    def _collect(self, seconds: float) -> list[Arrival]:
        arrivals = self._arrivals
        try:
            found = [arrivals.get(timeout=seconds) if seconds > 0 else arrivals.get_nowait()]
        except Empty:
            return []
        found.extend(arrivals.get() for _ in range(arrivals.qsize()))  # only this thread takes from it
        return found

    def _remake(self, records: Mapping[int, WorkerRecord], *, afresh: bool) -> None:
        for worker, record in records.items():
            self._enqueue(worker, _MakeWorker(record, afresh))

    def _close(self) -> None:
        for _ in self._threads:
            self._tasks.put(None)
        end = monotonic() + STOP_TIMEOUT
        for thread in self._threads:
            thread.join(timeout=max(0.0, end - monotonic()))
        self._slots = []

    # -- on the threads -------------------------------------------------------------------------------

    def _serve(self, tasks: SimpleQueue[Any], arrivals: SimpleQueue[Arrival]) -> None:
        """Do tasks until there is a None; the queues are this run's own, whatever the engine does next."""
        while (item := tasks.get()) is not None:
            worker, slot, task = item
            begin = slot.since = monotonic()
            if isinstance(task, _MakeWorker):
                arrival = self._make(worker, slot, task)
            else:
                reply = _handle(slot, task[1])
                arrival = Answer(task[0], reply, monotonic() - begin)
            if arrival is not None and not slot.abandoned:
                arrivals.put(arrival)
            with self._lock:
                slot.since = inf
                slot.busy = bool(slot.waiting)
                following = slot.waiting.popleft() if slot.waiting else None
                replaced, slot.thread_replaced = slot.thread_replaced, False
            if following is not None:
                tasks.put((worker, slot, following))
            if replaced:
                return

    def _make(self, worker: int, slot: _Slot, task: _MakeWorker) -> Arrival | None:
        record = task.record
        try:
            if task.afresh or slot.machine is None:
                slot.machine = make_worker(self._factories[worker], record)
            elif record is not None:
                restore_worker(slot.machine, record)
        except BaseException as raised:  # Ctrl-C reaches the main thread only
            error = as_exception(raised)
            slot.machine, slot.error = None, error
            return None if record is None else WorkersLost([worker], f"raised {words(error)}", error)
        return None if record is None else WorkersReady([worker])


def _handle(slot: _Slot, message: Request) -> Reply | Exception:
    if slot.machine is None:
        return slot.error
    try:
        return slot.machine.handle(message)
    except BaseException as error:  # Ctrl-C reaches the main thread only
        return as_exception(error)
