"""`solve`: the loop that joins a master, an engine and observers.

The loop knows no algorithm: an `Algorithm` makes the master and the workers, `AspireEase` or a baseline.
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

from fdro_core.aspire.algorithm import AspireEase
from fdro_core.contracts.algorithm import Algorithm, MasterMachine
from fdro_core.contracts.engine import Engine
from fdro_core.contracts.oracle import sized
from fdro_core.contracts.problem import ProblemSource, check_sources
from fdro_core.engines.virtual import VirtualEngine
from fdro_core.errors import (
    CheckpointMismatch,
    DriverError,
    InvalidSetting,
    ObserverFailed,
    WorkerSilent,
    WorkerWarning,
)
from fdro_core.federation import checkpoint as snapshot
from fdro_core.federation.handshake import greet
from fdro_core.federation.identity import RollCall, identify
from fdro_core.federation.identity import check as check_identity
from fdro_core.federation.state_checks import check as check_state
from fdro_core.observers.failures import Failure, leaving, observer_failed
from fdro_core.result import Result
from uncertainty_sets.backends import cold
from uncertainty_sets.errors import FdroError

Observer = Callable[["Run", dict[str, Any]], str | None]
"""Called with the run and a report or notice; a string it returns ends the run and is the stop reason."""


class Run:
    """A run under way: what observers may look at.

    Attributes:
        master: the master's state machine.
        engine: the engine.
        belongs_to: what it is a run of (`identity.py`), which checkpoints keep.
        history: the reports and notices so far.
        stop_reason: why it ended, "" before.
        failures: what observers raised.
        broken: whether it ended in the midst of an update: then there is no state to save.
    """

    def __init__(
        self,
        master: MasterMachine,
        engine: Engine,
        observers: Sequence[Observer],
        belongs_to: dict[str, Any],
    ) -> None:
        self.master = master
        self.engine = engine
        self.belongs_to = belongs_to
        self.observers = list(observers)
        self.history: list[dict[str, Any]] = []
        self.stop_reason = ""
        self.failures: list[Failure] = []
        self.broken = False
        self._warned: set[tuple[int, bool]] = set()

    def stationarity(self) -> float:
        """‖∇G‖² of Definition 1 now, by a round of probes: two evaluations a worker."""
        return self.master.assess(self.engine.ask(self.master.probes())).stationarity

    def save(self, path: str | Path) -> None:
        """Write all that `resume` needs."""
        reports = [entry for entry in self.history if "losses" in entry]
        state = {
            "belongs_to": self.belongs_to,
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
        """Put a report or notice in the history and tell the observers; one that raises ends the run."""
        self.history.append(entry)
        self._warn(entry)
        for place, observer in enumerate(self.observers):
            try:
                reason = observer(self, entry)
                if reason is not None and not isinstance(reason, str):
                    raise TypeError(f"an observer returns None or a reason to stop (str), got {reason!r:.80}")
            except BaseException as error:  # raised again when everyone has finished
                self._failed(place, error, in_finish=False)
                reason = ObserverFailed.__name__
            if reason and not self.stop_reason:
                self.stop_reason = reason

    def _warn(self, entry: dict[str, Any]) -> None:
        """Warn of a worker that failed, with its traceback, or whose numbers look wrong; once each."""
        if entry["event"] == "worker-silent":
            warnings.warn(_silence(entry), WorkerSilent, stacklevel=4)
        doubt = entry["event"] == "suspicious"
        if not (doubt or "traceback" in entry or entry["event"] == "worker-dropped"):
            return
        worker = entry["worker"]
        if (worker, doubt) in self._warned:
            return
        self._warned.add((worker, doubt))
        said = f"worker {worker}, iteration {entry['iteration']}: {entry['event']}: {entry['reason']}"
        warnings.warn(f"{said}\n{entry.get('traceback', '')}".rstrip(), WorkerWarning, stacklevel=4)

    def finish(self) -> None:
        """Let every observer finish, whatever the others raise."""
        for place, observer in enumerate(self.observers):
            try:
                getattr(observer, "finish", _nothing)(self)
            except BaseException as error:  # raised again when everyone has finished
                self._failed(place, error, in_finish=True)

    def _failed(self, place: int, error: BaseException, *, in_finish: bool) -> None:
        self.failures.append(Failure(place, self.observers[place], in_finish, self.master.iteration, error))

    def result(self) -> Result:
        """The state as a Result, by a round of probes."""
        master = self.master
        assessment = master.assess(self.engine.ask(master.probes()))
        for notice in master.take_notices():  # the observers are done
            self.history.append(notice)
            self._warn(notice)
        return Result(
            w=master.z.copy(),
            losses=assessment.losses,
            known_at=assessment.known_at,
            worst_case=assessment.worst_case,
            objective=assessment.objective,
            weights=assessment.weights,
            planes=assessment.planes,
            stationarity=assessment.stationarity,
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
    algorithm: Algorithm | None = None,
    engine: Engine | None = None,
    observers: Sequence[Observer] = (),
    start: ArrayLike | None = None,
    config: Algorithm | None = None,
) -> Result:
    """Minimise max over p in P of Σ_j p_jf_j(w), worker by worker, asynchronously.

    Args:
        problems: one a worker: a `Problem`, or a callable that makes one where the worker lives.
        uncertainty_set: P, with one entry a worker or open to any number.
        algorithm: the algorithm and its settings; `AspireEase()` by default, a baseline for comparison.
        engine: what runs the workers; `VirtualEngine()` by default.
        observers: called with the run and every report; see `fdro_core.observers`.
        start: z⁰; by default the first problem's `initial_point`, or zeros.
        config: the deprecated name of `algorithm`.

    Costs one gradient and O(p + |A|) an update, and an oracle call every k iterations.

    >>> from fdro_core import LeastSquares
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [0.0]), LeastSquares([[1.0]], [2.0])]
    >>> result = solve(problems, Box([0.0, 0.0], [1.0, 1.0]))
    >>> round(float(result.w[0]), 3), round(result.objective, 3)
    (1.0, 0.5)
    """
    algorithm = _chosen(algorithm, config)
    runner = VirtualEngine() if engine is None else engine
    sources = check_sources(problems)
    algorithm.check(len(sources), uncertainty_set)
    uncertainty_set = sized(uncertainty_set, len(sources))
    point = None if start is None else np.array(start, dtype=np.float64).ravel()
    runner.start([algorithm.worker(j, source) for j, source in enumerate(sources)])
    try:
        ask = RollCall(runner.ask, len(sources))
        master = algorithm.master(uncertainty_set, len(sources), ask, point)
        belongs_to = identify(algorithm, uncertainty_set, runner, ask.problems)
        run = Run(master, runner, observers, belongs_to)
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
    algorithm: Algorithm | None = None,
    engine: Engine | None = None,
    observers: Sequence[Observer] = (),
    force: bool = False,
    config: Algorithm | None = None,
) -> Result:
    """Go on from a checkpoint, bit for bit as if the run had never stopped.

    Give the same problems, set, settings and engine arguments as the first time; `iterations` and
    `report_interval` may differ. A checkpoint of another run is refused with `CheckpointMismatch`, which
    lists what differs; with `force` that is a `CheckpointWarning`, and the run goes on if the state fits.
    """
    algorithm = _chosen(algorithm, config)
    runner = VirtualEngine() if engine is None else engine
    sources = check_sources(problems)
    algorithm.check(len(sources), uncertainty_set)
    uncertainty_set = sized(uncertainty_set, len(sources))
    state = snapshot.read(path)
    runner.start([algorithm.worker(j, source) for j, source in enumerate(sources)])
    try:
        ask = RollCall(runner.ask, len(sources))
        greet(ask, len(sources), algorithm, state)  # a worker's answer to this leaves its state as it is
        belongs_to = identify(algorithm, uncertainty_set, runner, ask.problems)
        if state["format"] != snapshot.FIRST_FORMAT:
            check_identity(path, state.get("belongs_to"), belongs_to, force=force)
        with _taking_up(path):
            check_state(path, state, len(sources), ask.dimensions, force=force)
            master = algorithm.restore(uncertainty_set, len(sources), state["master"])
            runner.restore(state["engine"])
            run = Run(master, runner, observers, belongs_to)
            run.remember(state)
        return _loop(run)
    finally:
        runner.stop()


def _chosen(algorithm: Algorithm | None, config: Algorithm | None) -> Algorithm:
    """The algorithm, which `config` was the name of before 0.2."""
    if config is None:
        return AspireEase() if algorithm is None else algorithm
    if algorithm is not None:
        raise InvalidSetting("algorithm and config are two names of one argument; give algorithm alone")
    warnings.warn("config= is now algorithm=; the old name goes in 0.3", DeprecationWarning, stacklevel=3)
    return config


@contextmanager
def _taking_up(path: str | Path) -> Iterator[None]:
    """What an algorithm or engine raises that finds something else than its own state, in words."""
    try:
        yield
    except FdroError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise CheckpointMismatch(
            f"{path} does not hold the state of this algorithm on this engine ({what}): give the same "
            "algorithm and engine as the first time"
        ) from error


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
        except DriverError as error:
            run.stop_reason = run.stop_reason or type(error).__name__
            for notice in master.take_notices():
                run.tell(notice)
            run.finish()
            if (leave := leaving(run.failures)) is not None:
                raise leave from error
            for failure in run.failures:
                error.add_note(str(failure))
            _attach_result(run, error)
            raise
        except Exception as error:  # the oracle's, say: the state may be in the midst of an update
            run.broken = True
            run.stop_reason = type(error).__name__
            run.finish()
            for failure in run.failures:
                error.add_note(str(failure))
            raise
        run.finish()
        if (leave := leaving(run.failures)) is not None:
            raise leave
        if run.failures:
            failed = observer_failed(run.failures)
            _attach_result(run, failed)
            raise failed
        return run.result()


def _attach_result(run: Run, error: DriverError) -> None:
    """The state at the end, to an error; where it cannot be judged the error says that too."""
    try:
        error.result = run.result()
    except Exception as another:
        error.add_note(f"there is no `.result`, since judging the state raised {another!r}")


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
