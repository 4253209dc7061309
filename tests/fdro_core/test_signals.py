"""Signals in the middle of a worker's code, and engines that are in use."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from fdro_core import AspireModels, ThreadEngine, VirtualEngine, resume, solve
from fdro_core.errors import InvalidSetting
from fdro_core.observers import Checkpoint
from fdro_core.signals import SIGNALS
from tests.fdro_core.helpers import Quadratic, middle_box, same, softmax_problems


@contextmanager
def handling(number, handler):
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        assert signal.getsignal(number) is handler  # the run has put it back
        signal.signal(number, before)


class Killed(Quadratic):
    """Sends a signal to its own process at call number `at`."""

    def __init__(self, centre, at, number=signal.SIGTERM):
        super().__init__(centre)
        self.at, self.number, self.calls = at, number, 0

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        self.calls += 1
        if self.calls == self.at:
            signal.raise_signal(self.number)
        return super().loss_and_gradient(w)


def leave(number, frame):
    sys.exit(7)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("at", [1, 2, 5, 20])
def test_a_handler_that_leaves_ends_the_process_with_its_code(number, at, tmp_path):
    """Calls 1 and 2 are of the handshake, where a worker was blamed; later a checkpoint is written."""
    path, box = tmp_path / "run.npz", middle_box(3)
    problems = [Killed([0.0], at, number), Quadratic([1.0]), Quadratic([2.0])]
    with handling(number, leave), pytest.raises(SystemExit) as left:
        solve(problems, box, algorithm=AspireModels(tolerance=0.0), observers=[Checkpoint(path)])
    assert left.value.code == 7
    assert path.exists() == (at > 2)
    assert not SIGNALS.runs
    assert SIGNALS.raised is None
    if path.exists():
        quiet = [Quadratic([0.0]), Quadratic([1.0]), Quadratic([2.0])]
        short = AspireModels(iterations=90, tolerance=0.0)
        same(resume(path, problems, box, algorithm=short, force=True), solve(quiet, box, algorithm=short))


def test_a_handler_that_does_not_leave_changes_nothing():
    seen = []
    problems = [Killed([0.0], 9), Quadratic([1.0])]
    with handling(signal.SIGTERM, lambda number, frame: seen.append(number)):
        result = solve(problems, middle_box(2), algorithm=AspireModels(iterations=60, tolerance=0.0))
    plain = solve(
        [Quadratic([0.0]), Quadratic([1.0])],
        middle_box(2),
        algorithm=AspireModels(iterations=60, tolerance=0.0),
    )
    same(result, plain)
    assert seen == [signal.SIGTERM]


def test_a_worker_that_leaves_by_itself_is_still_lost():
    class Leaves(Quadratic):
        calls = 0

        def loss_and_gradient(self, w, rng=None, batch_size=None):
            self.calls += 1
            if self.calls == 9:
                sys.exit(3)
            return super().loss_and_gradient(w)

    with handling(signal.SIGTERM, leave), pytest.warns(match="SystemExit: 3 in the worker's own code"):
        result = solve(
            [Leaves([0.0]), Quadratic([1.0])],
            middle_box(2),
            algorithm=AspireModels(iterations=60, tolerance=0.0),
        )
    assert result.iterations == 60


def test_a_handler_on_threads(tmp_path):
    path = tmp_path / "run.npz"

    def look(run, entry):
        if entry["iteration"] == 20:
            signal.raise_signal(signal.SIGTERM)

    with handling(signal.SIGTERM, leave), pytest.raises(SystemExit):
        solve(
            softmax_problems(3),
            middle_box(3),
            algorithm=AspireModels(tolerance=0.0, report_interval=1),
            engine=ThreadEngine(),
            observers=[look, Checkpoint(path)],
        )
    assert path.exists()


class Nested(Quadratic):
    """Solves a problem of its own at every call, one of which gets the signal."""

    def __init__(self, centre, at):
        super().__init__(centre)
        self.inner = [Killed([0.0], at), Quadratic([1.0])]

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        solve(self.inner, middle_box(2), algorithm=AspireModels(iterations=10, tolerance=0.0))
        return super().loss_and_gradient(w)


@pytest.mark.parametrize("at", [15, 60])
def test_nested_runs_all_end(at):
    problems = [Nested([0.0], at), Quadratic([1.0])]
    with handling(signal.SIGTERM, leave), pytest.raises(SystemExit) as left:
        solve(problems, middle_box(2), algorithm=AspireModels(tolerance=0.0))
    assert left.value.code == 7
    assert problems[0].inner[0].calls < at + 20


SCRIPT = """
import os, signal, sys
from fdro_core import LeastSquares, solve
from fdro_core.observers import Checkpoint
from uncertainty_sets import Box

class Kills:
    def __call__(self, run, entry):
        if entry["iteration"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)

problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 2.0)]
solve(problems, Box([0, 0], [1, 1]), observers=[Kills(), Checkpoint(sys.argv[1])])
print("not reached")
"""


@pytest.mark.thorough
def test_sigterm_without_a_handler_leaves_a_checkpoint_and_kills(tmp_path):
    path = tmp_path / "run.npz"
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGTERM
    assert (ended.stdout, ended.stderr) == ("", "")
    assert path.exists()


# -- one engine, two runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [VirtualEngine, ThreadEngine])
def test_an_engine_in_a_run_refuses_another(kind):
    engine, problems, refused = kind(), softmax_problems(3), []

    def second(run, entry):
        with pytest.raises(InvalidSetting, match="is the engine of another run that has not ended"):
            solve(softmax_problems(2), middle_box(2), engine=engine)
        refused.append(True)

    algorithm = AspireModels(iterations=30, tolerance=0.0, active_workers=3)
    first = solve(problems, middle_box(3), algorithm=algorithm, engine=engine, observers=[second])
    again = solve(problems, middle_box(3), algorithm=algorithm, engine=engine)
    alone = solve(problems, middle_box(3), algorithm=algorithm, engine=kind())
    assert refused
    for result in (first, again):
        np.testing.assert_allclose(result.w, alone.w, rtol=1e-9)
        assert result.iterations == 30


def test_two_threads_and_one_engine():
    """Each of them is refused, or as right as alone."""
    algorithm = AspireModels(iterations=200, tolerance=0.0)
    alone = [solve(softmax_problems(3, seed), middle_box(3), algorithm=algorithm).w for seed in range(2)]
    for _ in range(10):
        engine, found = VirtualEngine(), {}
        together = threading.Barrier(2)

        def run(seed, engine=engine, found=found, together=together):
            together.wait()
            try:
                found[seed] = solve(
                    softmax_problems(3, seed), middle_box(3), algorithm=algorithm, engine=engine
                ).w
            except InvalidSetting:
                found[seed] = None

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert any(w is not None for w in found.values())
        for seed, w in found.items():
            assert w is None or np.array_equal(w, alone[seed])


def test_an_engine_whose_run_failed_is_free_again():
    engine = VirtualEngine()
    with pytest.raises(Exception, match="no file"):
        solve([Broken(), Quadratic([1.0])], middle_box(2), engine=engine)
    assert solve([Quadratic([0.0]), Quadratic([1.0])], middle_box(2), engine=engine).proved


class Broken(Quadratic):
    def __init__(self):
        super().__init__([0.0])

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        raise OSError("no file")
