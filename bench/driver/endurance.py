"""Long runs and awkward ones: a checkpoint after every report, two runs on one engine, signals."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from bench.driver.problems import regression
from fdro_core import AspireModels, ThreadEngine, VirtualEngine, solve
from fdro_core.errors import InvalidSetting
from fdro_core.observers import Checkpoint
from uncertainty_sets import KL

ROUNDS = 20_000
TRIALS = 200
EXIT = 7


def checkpoints() -> None:
    """Checkpoint(every=1) over 20,000 rounds of four workers: milliseconds per report, by tenths."""
    problems, times = regression(4, seed=1), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.npz"
        written = Checkpoint(path, every=1)

        def timed(run: Any, entry: dict[str, Any]) -> None:
            begin = time.process_time(), time.perf_counter()
            written(run, entry)
            times.append((time.process_time() - begin[0], time.perf_counter() - begin[1]))

        algorithm = AspireModels(
            active_workers=4, iterations=ROUNDS, tolerance=0.0, report_interval=1, plane_interval=50
        )
        result = solve(problems, KL(np.full(4, 0.25), 0.1), algorithm=algorithm, observers=[timed])
        size = path.stat().st_size
    tenths = np.array_split(1e3 * np.array(times), 10)
    for name, column in (("of the processor", 0), ("on the clock", 1)):
        print(f"{name}: " + ", ".join(f"{np.median(part[:, column]):.2f}" for part in tenths), "ms")
    kept = len(result.history)
    print(f"{len(times):,} reports, {kept:,} in the history; the file has {size / 1e6:.2f} MB\n")


class _Signals:
    """A problem that sends its own process SIGTERM at one of its calls, if that is not 0."""

    def __init__(self, problem: Any, at: int) -> None:
        self.problem, self.at, self.calls, self.dimension = problem, at, 0, problem.dimension

    def loss_and_gradient(self, *arguments: Any) -> Any:
        """The problem's own."""
        self.calls += 1
        if self.calls == self.at:
            signal.raise_signal(signal.SIGTERM)
        return self.problem.loss_and_gradient(*arguments)


class _Nested(_Signals):
    """A problem that solves another one at each of its calls, which gets the signal."""

    def __init__(self, problem: Any, inner: list[Any], at: int, engine: Any) -> None:
        super().__init__(problem, 0)
        self.inner, self.engine = [_Signals(inner[0], at), *inner[1:]], engine
        self.refused = 0

    def loss_and_gradient(self, *arguments: Any) -> Any:
        """The problem's own, after another solve."""
        short = AspireModels(iterations=6, tolerance=0.0)
        try:
            solve(self.inner, KL([0.5, 0.5], 0.1), algorithm=short, engine=self.engine)
        except InvalidSetting:
            self.refused += 1
        return super().loss_and_gradient(*arguments)


def trials() -> None:
    """200 trials of two runs on one engine, runs in runs, and SIGTERM with a handler: refused or right."""
    found = Counter[str]()

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(EXIT)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number in range(TRIALS):
                kind = (_together, _inside, _signalled)[number % 3]
                found[f"{kind.__name__.strip('_')}: {kind(np.random.default_rng([35, number]))}"] += 1
    finally:
        signal.signal(signal.SIGTERM, before)
    for what, count in sorted(found.items()):
        print(f"{count:4d}  {what}")
    print()


def _problem(rng: np.random.Generator) -> tuple[list[Any], Any, AspireModels, Any]:
    """Two workers or more, a set, S = N so that threads are as exact as the virtual engine, and an engine."""
    N = int(rng.integers(2, 6))
    algorithm = AspireModels(
        active_workers=N, iterations=int(rng.integers(30, 120)), tolerance=0.0, report_interval=1
    )
    kind = VirtualEngine if rng.random() < 0.6 else ThreadEngine
    return list(regression(N, seed=int(rng.integers(1000)))), KL(np.full(N, 1 / N), 0.1), algorithm, kind


def _right(result: Any, problems: Any, chosen: Any, algorithm: Any) -> bool:
    return bool(np.array_equal(result.w, solve(problems, chosen, algorithm=algorithm).w))


def _together(rng: np.random.Generator) -> str:
    """Two threads start a run each on one engine."""
    runs = [_problem(rng) for _ in range(2)]
    engine, start, ends = runs[0][3](), threading.Barrier(2), ["", ""]

    def run(k: int) -> None:
        problems, chosen, algorithm, _ = runs[k]
        start.wait()
        try:
            result = solve(problems, chosen, algorithm=algorithm, engine=engine)
        except InvalidSetting:
            ends[k] = "refused"
        except Exception as error:  # what the trial is about
            ends[k] = f"raised {type(error).__name__}"
        else:
            ends[k] = "right" if _right(result, problems, chosen, algorithm) else "WRONG"

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60.0)
    problems, chosen, algorithm, _ = runs[0]
    again = solve(problems, chosen, algorithm=algorithm, engine=engine)
    after = "right" if _right(again, problems, chosen, algorithm) else "WRONG"
    return f"{' and '.join(sorted(end or 'HANGS' for end in ends))}, then {after}"


def _inside(rng: np.random.Generator) -> str:
    """A worker solves another problem on the same engine or on its own."""
    problems, chosen, algorithm, kind = _problem(rng)
    plain = [_Signals(problems[0], 0), *problems[1:]]  # which has no metric either
    engine, same = kind(), rng.random() < 0.5
    nested = _Nested(problems[0], list(regression(2, seed=7)), 0, engine if same else None)
    problems[0] = nested
    result = solve(problems, chosen, algorithm=algorithm, engine=engine)
    right = "right" if _right(result, plain, chosen, algorithm) else "WRONG"
    refused = nested.refused == nested.calls if same else nested.refused == 0
    return f"outer {right}, inner {'as it should be' if refused else 'WRONG'}"


def _signalled(rng: np.random.Generator) -> str:
    """SIGTERM somewhere in a worker's code, in a run in a run for half of the trials; a handler leaves."""
    problems, chosen, algorithm, _ = _problem(rng)
    at = int(rng.integers(1, 60))
    if rng.random() < 0.5:
        problems[0] = _Signals(problems[0], at)
    else:
        problems[0] = _Nested(problems[0], list(regression(2, seed=7)), at, None)
    try:
        solve(problems, chosen, algorithm=algorithm)
    except SystemExit as left:
        return "left with the handler's code" if left.code == EXIT else "WRONG code"
    except Exception as error:  # what the trial is about
        return f"WRONG: {type(error).__name__}"
    sent = getattr(problems[0], "inner", problems)[0]
    return "WRONG: went on" if sent.calls >= at else "no signal was due"
