"""A run and its loop: events go to the master, its messages to the engine, its reports to the observers.

The loop knows no algorithm and no engine, only their contracts.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fdro_core.errors import DriverError, ObserverFailed, ProofWarning, WorkerSilent, WorkerWarning
from fdro_core.history import History
from fdro_core.master import checkpoint
from fdro_core.protocol.algorithm import Assessment, MasterMachine
from fdro_core.protocol.engine import Engine
from fdro_core.protocol.failures import words
from fdro_core.protocol.observer import Observer
from fdro_core.result import CONVERGED, Result
from fdro_core.signals import SIGNALS
from uncertainty_sets.backends import cold


class Run:
    """A run in progress; observers see it as a `protocol.observer.RunView`.

    Attributes:
        master: the master's state machine.
        engine: the engine.
        belongs_to: what this is a run of (`master/identity.py`); checkpoints keep it.
        stop_reason: why the run ended, "" while it goes on.
        failures: what observers raised.
        broken: whether the run ended in the middle of an update; then there is no state to save.
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
        self._history = History()
        self.stop_reason = ""
        self.failures: list[Failure] = []
        self.broken = False
        self._warned: set[tuple[int, str]] = set()
        self._last: Assessment | None = None  # the one on which the run ended

    def objective(self) -> float:
        """The robust objective at z on all data, by a round of probes: two evaluations per worker."""
        return self._probe().objective

    def stationarity(self) -> float:
        """`Result.stationarity` now, by a round of probes: at most two evaluations per worker."""
        return self._probe().stationarity

    def _probe(self) -> Assessment:
        return self.master.assess(self.engine.ask(self.master.probes()))

    def conclude(self, reason: str) -> str:
        """The reason to end where the master says so; a master that can is asked once more, "" is to go on.

        Its answer rests on a round of probes, which are those of the result if the run ends.
        """
        judge = getattr(self.master, "conclude", None)
        if judge is None or reason != CONVERGED:
            return reason
        self._last = self._probe()
        found: str = judge(self._last)
        if not found:
            self._last = None
        return found

    def _final(self) -> Assessment:
        """The assessment of the model at the end, or of the start if the master finds that one better."""
        master, end = self.master, self._last or self._probe()
        above = getattr(master, "above_start", None)
        if above is None or not above(end):
            return end
        master.at_start = True  # type: ignore[attr-defined]  # a master that can tell has it
        start = self._probe()
        if np.isfinite(start.losses).all() and start.objective < end.objective:
            what = f"the objective was {start.objective:.6g} at the start and {end.objective:.6g} at the end"
            self._note_late("back-at-start", reason=f"{what}: the result is the model of the start")
            return start
        master.at_start = False  # type: ignore[attr-defined]
        return end

    def _note_late(self, event: str, **facts: Any) -> None:
        """Add a notice after the observers have finished: to the history alone."""
        master = self.master
        at = {"iteration": master.iteration, "clock": self.engine.clock}
        self._history.add({"event": event, **at, **facts})

    def save(self, path: str | Path) -> None:
        """Write everything that `resume` needs."""
        state = {
            "belongs_to": self.belongs_to,
            "master": self.master.snapshot(),
            "engine": self.engine.snapshot(),
            "history": self._history.snapshot(),
        }
        checkpoint.write(path, state)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The reports and notices so far; of a long run not all (`fdro_core.history`)."""
        return self._history.entries

    def restore_history(self, state: dict[str, Any]) -> None:
        """Set the history to that of a checkpoint."""
        self._history = History.restored(state["history"])

    def record(self, entry: dict[str, Any]) -> None:
        """Append a report or notice to the history and call every observer; one that raises ends the run."""
        self._history.add(entry)
        self._warn(entry)
        for place, observer in enumerate(self.observers):
            try:
                reason = observer(self, entry)
                if reason is not None and not isinstance(reason, str):
                    raise TypeError(f"an observer returns None or a reason to stop (str), got {reason!r:.80}")
            except BaseException as error:  # raised again after every observer has finished
                self._add_failure(place, error, in_finish=False)
                reason = ObserverFailed.__name__
            if reason and not self.stop_reason:
                self.stop_reason = reason

    def record_notices(self) -> None:
        """Record the notices that the master has collected."""
        for notice in self.master.take_notices():
            self.record(notice)

    def _warn(self, entry: dict[str, Any]) -> None:
        """Warn once per worker that failed (with its traceback), and once if its numbers look wrong."""
        if entry["event"] == "worker-silent":
            warnings.warn(_silence(entry), WorkerSilent, stacklevel=4)
        if entry["event"] == "contradiction" and (-1, entry["event"]) not in self._warned:
            self._warned.add((-1, entry["event"]))
            warnings.warn(entry["reason"], ProofWarning, stacklevel=4)
        numbers = entry["event"] if entry["event"] in {"suspicious", "clipped"} else ""
        if not (numbers or "traceback" in entry or entry["event"] == "worker-dropped"):
            return
        worker = entry["worker"]
        if (worker, numbers) in self._warned:
            return
        self._warned.add((worker, numbers))
        message = f"worker {worker}, iteration {entry['iteration']}: {entry['event']}: {entry['reason']}"
        warnings.warn(f"{message}\n{entry.get('traceback', '')}".rstrip(), WorkerWarning, stacklevel=4)

    def finish(self) -> None:
        """Call `finish` of every observer that has one, whatever the others raise."""
        for place, observer in enumerate(self.observers):
            try:
                getattr(observer, "finish", _nothing)(self)
            except BaseException as error:  # raised again after every observer has finished
                self._add_failure(place, error, in_finish=True)

    def _add_failure(self, place: int, error: BaseException, *, in_finish: bool) -> None:
        self.failures.append(Failure(place, self.observers[place], in_finish, self.master.iteration, error))

    def result(self) -> Result:
        """The state as a Result, by a round of probes."""
        master = self.master
        assessment = self._final()
        for notice in master.take_notices():  # the observers have finished: history and warning only
            self._history.add(notice)
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
            planned=master.last,
            lower_bound=assessment.lower_bound,
            model=assessment.model,
            privacy=assessment.privacy,
        )


def execute(run: Run) -> Result:
    """Drive a run to its end; errors carry the last good state and what observers raised."""
    # cold(): an oracle that remembers earlier calls could not be resumed bit for bit.
    with SIGNALS.put_off(run), cold():
        try:
            _loop(run)
        except DriverError as error:
            run.stop_reason = run.stop_reason or type(error).__name__
            run.record_notices()
            run.finish()
            if (leaving := find_exit(run.failures)) is not None:
                raise leaving from error
            _add_notes(run, error)
            _attach_result(run, error)
            raise
        except Exception as error:  # of the oracle, for example: the state may be in the middle of an update
            run.broken = True
            run.stop_reason = type(error).__name__
            run.finish()
            _add_notes(run, error)
            raise
        run.finish()
        _raise_failures(run)
        SIGNALS.leave()
        return run.result()


def _loop(run: Run) -> None:
    """Pass events to the master and its messages to the engine, until there is a reason to stop."""
    master = run.master
    receive, handle, send = run.engine.receive, master.handle, run.engine.send
    while not run.stop_reason:
        if finished := run.conclude(getattr(master, "finished", "")):
            run.stop_reason = run.stop_reason or finished
            return
        if master.iteration >= master.last:
            run.stop_reason = "iterations"
            return
        for worker, message in handle(receive(master.wake_at)):
            send(worker, message)
        if master.notices:
            run.record_notices()
        if master.iteration >= master.next_report:
            run.record(master.report())


def _raise_failures(run: Run) -> None:
    """Raise what observers raised: an exit as it is, everything else as one `ObserverFailed`."""
    if (leaving := find_exit(run.failures)) is not None:
        raise leaving
    if run.failures:
        failed = observer_failed(run.failures)
        _attach_result(run, failed)
        raise failed


def _add_notes(run: Run, error: Exception) -> None:
    for failure in run.failures:
        error.add_note(str(failure))


def _attach_result(run: Run, error: DriverError) -> None:
    """Set the error's `result` to the state at the end, or note why that could not be evaluated."""
    try:
        error.result = run.result()
    except Exception as another:
        error.add_note(f"there is no `.result`, since evaluating the state raised {another!r}")


def _nothing(*_: Any) -> None:
    """Stand in for an observer's `finish` that does not exist."""


def _silence(entry: dict[str, Any]) -> str:
    """The warning for a worker that may hang."""
    return (
        f"worker {entry['worker']} has been {entry['reason']}. It is asked again; if it stays silent it "
        "counts as dead until it answers (`deadline` of the algorithm: seconds, or None to wait forever)"
    )


# -- what observers raised -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """What one observer raised.

    Attributes:
        place: the observer's index in the list that was given.
        observer: the observer.
        in_finish: whether its `finish` raised.
        iteration: the master's iteration.
        error: the exception.
    """

    place: int
    observer: Any
    in_finish: bool
    iteration: int
    error: BaseException

    def __str__(self) -> str:
        """The observer, the place and the exception in one line."""
        where = ", in its finish," if self.in_finish else ""
        who = f"observers[{self.place}] ({_name(self.observer)}){where}"
        return f"{who} raised {words(self.error)} (iteration {self.iteration})"


def find_exit(failures: Sequence[Failure]) -> BaseException | None:
    """The first KeyboardInterrupt or SystemExit among the failures, which is raised unchanged; None if none.

    The other failures become its notes.
    """
    for failure in failures:
        if not isinstance(failure.error, Exception):
            for other in failures:
                if other is not failure:
                    failure.error.add_note(str(other))
            return failure.error
    return None


def observer_failed(failures: Sequence[Failure]) -> ObserverFailed:
    """One error for all failures, with what they raised as its cause."""
    error = ObserverFailed(f"{'; '.join(map(str, failures))}. The run was ended; `.result` keeps its state")
    errors = [failure.error for failure in failures if isinstance(failure.error, Exception)]
    error.__cause__ = errors[0] if len(errors) == 1 else ExceptionGroup("observers that raised", errors)
    return error


def _name(observer: Any) -> str:
    """A function's name; an object's repr, or its class if the repr is the default one."""
    name = getattr(observer, "__qualname__", None)
    if isinstance(name, str):
        return name.rpartition("<locals>.")[2]
    return type(observer).__name__ if "object at 0x" in repr(observer) else repr(observer)
