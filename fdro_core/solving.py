"""`solve` and `resume`: from problems, a set, an algorithm and an engine to a `Result`.

The module is not called `solve`: a module and a function of one name in one package hide each other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fdro_core.aspire.models.algorithm import AspireModels
from fdro_core.engines.virtual import VirtualEngine
from fdro_core.errors import CheckpointMismatch, InvalidProblem, InvalidSetting
from fdro_core.loop import Run, execute
from fdro_core.master import checkpoint
from fdro_core.master.handshake import greet
from fdro_core.master.identity import RollCall, identify
from fdro_core.master.identity import check as check_identity
from fdro_core.protocol.algorithm import Algorithm, sized
from fdro_core.protocol.engine import Engine, WorkerFactory
from fdro_core.protocol.observer import Observer
from fdro_core.protocol.problem import ProblemSource, check_sources
from fdro_core.protocol.settings import check_object
from fdro_core.result import Result
from fdro_core.signals import SIGNALS
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import FdroError

_BUSY: set[int] = set()  # the ids of engines with a run under way, which keep their ids that long
_LOCK = threading.Lock()


def solve(
    problems: Sequence[ProblemSource],
    uncertainty_set: Any,
    *,
    algorithm: Algorithm | None = None,
    engine: Engine | None = None,
    observers: Sequence[Observer] = (),
    start: ArrayLike | None = None,
) -> Result:
    """Minimise max over p in P of Σ_j p_jf_j(w), worker by worker, asynchronously.

    Args:
        problems: one per worker: a `Problem`, or a callable that makes one where the worker runs.
        uncertainty_set: P, with one entry per worker or open to any number.
        algorithm: the algorithm and its settings; `AspireModels()` by default, a baseline for comparison.
        engine: what runs the workers; `VirtualEngine()` by default.
        observers: called with the run and every report; see `fdro_core.observers`.
        start: z⁰; by default the first problem's `initial_point`, or zeros.

    Costs one gradient and O(p + |A|) per update, and an oracle call every k iterations.

    >>> from fdro_core import LeastSquares
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 2.0)]
    >>> result = solve(problems, Box([0.0, 0.0], [1.0, 1.0]))
    >>> round(float(result.w[0]), 3), round(result.objective, 3)
    (1.0, 0.5)
    """
    algorithm = AspireModels() if algorithm is None else algorithm
    runner = _runner(engine)
    observers = _observers(observers)
    sources, uncertainty_set = _checked(problems, uncertainty_set, algorithm)
    point = None if start is None else _as_point(start)
    _begin(observers)
    with _running(runner, [algorithm.worker(j, source) for j, source in enumerate(sources)]):
        ask = RollCall(runner.ask, len(sources))
        master = algorithm.master(uncertainty_set, len(sources), ask, point)
        belongs_to = identify(algorithm, uncertainty_set, runner, ask.problems)
        run = Run(master, runner, observers, belongs_to)
        for worker, message in master.start():
            runner.send(worker, message)
        return execute(run)


def resume(
    path: str | Path,
    problems: Sequence[ProblemSource],
    uncertainty_set: Any,
    *,
    algorithm: Algorithm | None = None,
    engine: Engine | None = None,
    observers: Sequence[Observer] = (),
    force: bool = False,
) -> Result:
    """Continue from a checkpoint, bit for bit as if the run had never stopped.

    Give the same problems, set, settings and engine arguments as the first time; `iterations`, `tolerance`
    and `report_interval` may differ. A checkpoint of another run is refused with `CheckpointMismatch`, which
    lists what differs; with `force` that is a `CheckpointWarning`, and the run continues if the state fits.
    """
    algorithm = AspireModels() if algorithm is None else algorithm
    runner = _runner(engine)
    observers = _observers(observers)
    sources, uncertainty_set = _checked(problems, uncertainty_set, algorithm)
    state = checkpoint.read(path)
    _begin(observers)
    with _running(runner, [algorithm.worker(j, source) for j, source in enumerate(sources)]):
        ask = RollCall(runner.ask, len(sources))
        greet(ask, len(sources), algorithm, state)  # answering does not change a worker's state
        belongs_to = identify(algorithm, uncertainty_set, runner, ask.problems)
        check_identity(path, state.get("belongs_to"), belongs_to, force=force)
        with _restoring(path):
            checkpoint.look_over(
                path, state, len(sources), ask.dimensions, algorithm=algorithm, engine=runner, force=force
            )
            master = algorithm.restore(uncertainty_set, len(sources), state["master"])
            runner.restore(state["engine"])
            run = Run(master, runner, observers, belongs_to)
            run.restore_history(state)
        return execute(run)


@contextmanager
def _running(engine: Engine, factories: Sequence[WorkerFactory]) -> Iterator[None]:
    """Start an engine that no other run uses, and stop it at the end; signals are heard in between."""
    with _LOCK:
        if id(engine) in _BUSY:
            raise InvalidSetting(
                f"{engine!r:.80} is the engine of another run that has not ended: make an engine for each "
                "run, or use it again after that run",
                parameter="engine",
                value=engine,
            )
        _BUSY.add(id(engine))
    try:
        with SIGNALS.heard():
            engine.start(factories)
            try:
                yield
            finally:
                engine.stop()
    finally:
        with _LOCK:
            _BUSY.discard(id(engine))


def _observers(given: Any) -> list[Observer]:
    """The observers as a list; one by itself, or what cannot be called, is refused."""
    found = list(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else None
    if found is None or not all(callable(each) for each in found):
        message = "observers must be a list of callables, for example observers=[Progress()]"
        raise InvalidSetting(f"{message}, got {given!r:.80}", parameter="observers", value=given)
    return found


def _begin(observers: Sequence[Observer]) -> None:
    """Call `begin` of every observer that has one, before the workers cost anything."""
    for observer in observers:
        begin = getattr(observer, "begin", None)
        if begin is not None:
            begin()


def _checked(
    problems: Sequence[ProblemSource], uncertainty_set: Any, algorithm: Algorithm
) -> tuple[list[ProblemSource], Any]:
    """The problems as a list and the set at its size, both checked against the algorithm."""
    check_object("algorithm", algorithm, ("check", "worker", "master"), "AspireModels(iterations=500)")
    sources = check_sources(problems)
    algorithm.check(len(sources), uncertainty_set)
    return sources, sized(uncertainty_set, len(sources))


def _as_point(start: ArrayLike) -> Array:
    """Copy z⁰ to a flat vector; its length is checked when the workers have reported theirs."""
    try:
        point = np.asarray(start)
    except (TypeError, ValueError, RuntimeError) as error:  # lists of unequal lengths, a tensor with gradient
        raise InvalidProblem(f"start must be numbers, one per parameter: {error}") from error
    if point.dtype.kind not in "fiu":
        raise InvalidProblem(f"start must be numbers, one per parameter, got {start!r:.80}")
    return np.array(point, dtype=np.float64).ravel()


def _runner(engine: Engine | None) -> Engine:
    """The engine, a virtual one by default."""
    if engine is None:
        return VirtualEngine()
    check_object("engine", engine, ("start", "send", "receive", "stop"), "ThreadEngine()")
    return engine


@contextmanager
def _restoring(path: str | Path) -> Iterator[None]:
    """Turn what an algorithm or engine raises on a state that is not its own into `CheckpointMismatch`."""
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
