"""`solve`: the loop that joins a master, an engine and observers.

The loop knows no algorithm: a config makes the master and the workers (`AspireEase` does in `algorithm.py`),
so a baseline is another config.
"""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fdro_core import snapshot
from fdro_core.algorithm import Algorithm, MasterMachine
from fdro_core.config import AspireEase
from fdro_core.engines.base import Engine
from fdro_core.engines.virtual import VirtualEngine
from fdro_core.errors import DriverError, WorkerSilent
from fdro_core.problem import ProblemSource, check_sources
from fdro_core.result import Result
from uncertainty_sets.backends import cold

Observer = Callable[["Run", dict[str, Any]], str | None]
"""Called with the run and a report or notice; a string it returns ends the run and is the stop reason."""


class Run:
    """A run under way: what observers may look at.

    Attributes:
        master: the master's state machine.
        engine: the engine.
        history: the reports and notices so far.
        stop_reason: why it ended, "" before.
    """

    def __init__(self, master: MasterMachine, engine: Engine, observers: Sequence[Observer]) -> None:
        self.master = master
        self.engine = engine
        self.observers = list(observers)
        self.history: list[dict[str, Any]] = []
        self.stop_reason = ""

    def stationarity(self) -> float:
        """‖∇G‖² of Definition 1 now, by a round of probes: two evaluations a worker."""
        return self.master.judge(self.engine.ask(self.master.probes())).stationarity

    def save(self, path: str | Path) -> None:
        """Write all that `resume` needs."""
        reports = [entry for entry in self.history if "losses" in entry]
        state = {
            "master": self.master.snapshot(),
            "engine": self.engine.snapshot(),
            "history": [{**entry, "losses": None} if "losses" in entry else entry for entry in self.history],
            "losses": np.array([entry["losses"] for entry in reports]),  # one array, not one a report
        }
        snapshot.write(path, state)

    def remember(self, state: dict[str, Any]) -> None:
        """Take the history out of a checkpoint."""
        self.history = state["history"]
        reports = [entry for entry in self.history if "losses" in entry]
        for entry, losses in zip(reports, state["losses"], strict=True):
            entry["losses"] = losses

    def tell(self, entry: dict[str, Any]) -> None:
        """Put a report or notice in the history and show it to the observers."""
        self.history.append(entry)
        if entry["event"] == "worker-silent":
            warnings.warn(_silence(entry), WorkerSilent, stacklevel=4)
        for observer in self.observers:
            reason = observer(self, entry)
            if reason and not self.stop_reason:
                self.stop_reason = reason

    def result(self) -> Result:
        """The state as a Result, by a round of probes."""
        master = self.master
        verdict = master.judge(self.engine.ask(master.probes()))
        return Result(
            w=master.z.copy(),
            losses=verdict.losses,
            worst_case=verdict.worst_case,
            objective=verdict.objective,
            weights=verdict.weights,
            planes=verdict.planes,
            stationarity=verdict.stationarity,
            history=self.history,
            clock=self.engine.clock,
            iterations=master.iteration,
            gradients=master.gradients,
            stop_reason=self.stop_reason,
        )


def solve(
    problems: Sequence[ProblemSource],
    uncertainty_set: Any,
    *,
    config: Algorithm | None = None,
    engine: Engine | None = None,
    observers: Sequence[Observer] = (),
    start: ArrayLike | None = None,
) -> Result:
    """Minimise max over p in P of Σ_j p_jf_j(w), worker by worker, asynchronously.

    Args:
        problems: one a worker: a `Problem`, or a callable that makes one where the worker lives.
        uncertainty_set: P, with one entry a worker.
        config: the algorithm and its settings; `AspireEase()` by default.
        engine: what runs the workers; `VirtualEngine()` by default.
        observers: called with the run and every report; see `fdro_core.observers`.
        start: z⁰; by default the first problem's `initial_point`, or zeros.

    Costs one gradient and O(p + |A|) an update, and an oracle call every k iterations.

    >>> from fdro_core import LeastSquares
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [0.0]), LeastSquares([[1.0]], [2.0])]
    >>> result = solve(problems, Box([0.0, 0.0], [1.0, 1.0]))
    >>> round(float(result.w[0]), 3), round(result.objective, 3)
    (1.0, 0.5)
    """
    algorithm = AspireEase() if config is None else config
    runner = VirtualEngine() if engine is None else engine
    sources = check_sources(problems)
    algorithm.check(len(sources), uncertainty_set)
    point = None if start is None else np.array(start, dtype=np.float64).ravel()
    runner.start([algorithm.worker(j, source) for j, source in enumerate(sources)])
    try:
        master = algorithm.master(uncertainty_set, len(sources), runner.ask, point)
        run = Run(master, runner, observers)
        outgoing = master.start()
        for worker, message in outgoing:
            runner.send(worker, message)
        return _loop(run)
    finally:
        runner.stop()


def resume(
    path: str | Path,
    problems: Sequence[ProblemSource],
    uncertainty_set: Any,
    *,
    config: Algorithm | None = None,
    engine: Engine | None = None,
    observers: Sequence[Observer] = (),
) -> Result:
    """Go on from a checkpoint, bit for bit as if the run had never stopped.

    Give the same problems, set, settings and engine arguments as the first time; `iterations` may differ.
    """
    algorithm = AspireEase() if config is None else config
    runner = VirtualEngine() if engine is None else engine
    sources = check_sources(problems)
    algorithm.check(len(sources), uncertainty_set)
    state = snapshot.read(path)
    runner.start([algorithm.worker(j, source) for j, source in enumerate(sources)])
    try:
        master = algorithm.restore(uncertainty_set, len(sources), state["master"])
        runner.restore(state["engine"])
        run = Run(master, runner, observers)
        run.remember(state)
        return _loop(run)
    finally:
        runner.stop()


def _loop(run: Run) -> Result:
    """Events in, steps out, reports on the way, until something ends it."""
    master, engine = run.master, run.engine
    receive, handle, send = engine.receive, master.handle, engine.send
    # cold(): an oracle that remembers earlier calls could not be resumed bit for bit.
    with _interrupts(run), cold():
        try:
            while not run.stop_reason:
                if master.iteration >= master.last:
                    run.stop_reason = "iterations"
                    break
                for worker, message in handle(receive(master.wake_at)):
                    send(worker, message)
                if master.notices:
                    for notice in master.take_notices():
                        run.tell(notice)
                if master.iteration >= master.next_report:
                    run.tell(master.report())
            for observer in run.observers:
                getattr(observer, "finish", _nothing)(run)
            return run.result()
        except DriverError as error:
            run.stop_reason = run.stop_reason or type(error).__name__
            for notice in master.take_notices():
                run.tell(notice)
            for observer in run.observers:
                getattr(observer, "finish", _nothing)(run)
            error.result = run.result()
            raise


def _nothing(*_: Any) -> None:
    """An observer without a `finish`, an engine without a `hurry`."""


def _silence(entry: dict[str, Any]) -> str:
    """The warning for a worker that may hang."""
    return (
        f"worker {entry['worker']} has been {entry['reason']}. It is asked again; if it stays silent it "
        "counts as dead until it speaks (`deadline` of the algorithm: seconds, or None to wait for ever)"
    )


@contextmanager
def _interrupts(run: Run) -> Iterator[None]:
    """Ctrl-C ends the run between two events; a second one ends it at once.

    An exception in the midst of an update would leave sums and states apart, so the signal only sets the
    stop reason.
    """
    usual = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not usual:
        yield
        return

    def handler(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run.stop_reason = run.stop_reason or "interrupted"
        getattr(run.engine, "hurry", _nothing)()

    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
