"""Small problems and sets shared by the driver's tests."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from fdro_core import AspireEase, AspireModels, LeastSquares, Result, SoftmaxRegression
from fdro_core.protocol.messages import Step
from uncertainty_sets import Box

Array = np.ndarray[Any, np.dtype[np.float64]]

FORMS = ("models", "admm")
"""`AspireModels` and `AspireEase`, as their folders call them."""


def in_form(form: str, **settings: Any) -> AspireModels | AspireEase:
    """One of the two, for all its iterations: `AspireModels` would stop at the optimum."""
    return AspireEase(**settings) if form == "admm" else AspireModels(**{"tolerance": 0.0} | settings)


def forms(**settings: Any) -> list[AspireModels | AspireEase]:
    """Both with these settings, for lists of parameters."""
    return [in_form(form, **settings) for form in FORMS]


def softmax_problems(
    workers: int, seed: int = 0, features: int = 3, classes: int = 3
) -> list[SoftmaxRegression]:
    rng = np.random.default_rng(seed)
    problems = []
    for j in range(workers):
        n = 10 + 3 * j
        X = rng.normal(size=(n, features)) + 0.5 * rng.normal(size=features)
        y = np.argmax(X @ rng.normal(size=(features, classes)), axis=1)
        problems.append(SoftmaxRegression(X, y, classes, l2=1e-2, intercept=False))
    return problems


def square_problems(workers: int, seed: int = 0, features: int = 2) -> list[LeastSquares]:
    rng = np.random.default_rng(seed)
    return [
        LeastSquares(rng.normal(size=(6, features)), rng.normal(size=6), l2=0.1, intercept=False)
        for _ in range(workers)
    ]


def middle_box(workers: int) -> Box:
    return Box(np.full(workers, 0.2 / workers), np.full(workers, min(1.0, 2.5 / workers)))


def machines(problems: list[Any], uncertainty_set: Any, config: Any) -> tuple[Any, list[Any]]:
    """A master and its workers with nothing between them."""
    workers = [config.worker(j, problem)() for j, problem in enumerate(problems)]

    def ask(messages: dict[int, Any]) -> dict[int, Any]:
        return {j: workers[j].handle(message) for j, message in messages.items()}

    return config.master(uncertainty_set, len(problems), ask, None), workers


def begin_calls(config: AspireModels) -> int:
    """How often a worker evaluates its problem before the first step: at z, and in power iterations."""
    worker: Any = config.worker(0, Quadratic([0.0]))()
    return 1 + int(worker.power_iterations)


class Quadratic:
    """½a‖w - c‖² + shift, without metric or starting point."""

    def __init__(self, centre: Any, scale: float = 1.0, shift: float = 0.0) -> None:
        self.centre = np.asarray(centre, dtype=float)
        self.scale, self.shift = scale, shift
        self.dimension = self.centre.size

    def loss_and_gradient(self, w: Array, rng: Any = None, batch_size: Any = None) -> tuple[float, Array]:
        d = w - self.centre
        return 0.5 * self.scale * float(d @ d) + self.shift, self.scale * d


class Faulty(Quadratic):
    """Goes wrong at the calls given: `bad` returns NaN, `broken` raises."""

    def __init__(self, centre: Any, bad: Any = (), broken: Any = ()) -> None:
        super().__init__(centre)
        self.bad, self.broken, self.calls = set(bad), set(broken), 0

    def loss_and_gradient(self, w: Array, rng: Any = None, batch_size: Any = None) -> tuple[float, Array]:
        self.calls += 1
        if self.calls in self.broken:
            raise OSError("disk gone")
        loss, gradient = super().loss_and_gradient(w)
        return (float("nan"), gradient) if self.calls in self.bad else (loss, gradient)


def same(one: Result, other: Result) -> None:
    """The same run, bit for bit."""
    assert np.array_equal(one.w, other.w)
    assert np.array_equal(one.losses, other.losses, equal_nan=True)
    assert np.array_equal(one.planes, other.planes)
    assert np.array_equal(one.weights, other.weights)
    assert one.stationarity == other.stationarity
    assert one.clock == other.clock
    assert len(one.history) == len(other.history)
    for a, b in zip(one.history, other.history, strict=True):
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[key], b[key]) for key in a)


class Mishap(Quadratic):
    """Comes to grief at its call number `at`, as often as `times` says: "raise", "kill" or "hang".

    It counts in files of `folder`, so that a life after the first knows of those before. A hang ends when
    the folder holds a file `release`.
    """

    def __init__(self, centre: Any, folder: Any, what: str, at: int, times: int = 1) -> None:
        super().__init__(centre)
        self.folder, self.what, self.at, self.times, self.calls = Path(folder), what, at, times, 0

    def loss_and_gradient(self, w: Array, rng: Any = None, batch_size: Any = None) -> tuple[float, Array]:
        self.calls += 1
        if self.calls == self.at:
            name = "-".join(map(str, self.centre))
            happened = len(list(self.folder.glob(f"{name}_*")))
            if happened < self.times:
                (self.folder / f"{name}_{happened}").touch()
                self._happen()
        return super().loss_and_gradient(w)

    def _happen(self) -> None:
        if self.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "raise":
            raise OSError("disk gone")
        while not (self.folder / "release").exists():
            time.sleep(0.01)


READING = threading.Lock()
"""NumPy parses the header of a file as Python, and Python 3.11 cannot do that in two threads at once."""


def load_shard(path: Any, made_in: Any) -> LeastSquares:
    """A problem from a file, with a note of the process that made it."""
    Path(made_in, f"{Path(path).stem}_{os.getpid()}").touch()
    with READING, np.load(path, allow_pickle=False) as shard:
        return LeastSquares(shard["X"], shard["y"], l2=0.1, intercept=False)


def broken_shard(path: Any) -> LeastSquares:
    raise FileNotFoundError(f"no shard at {path}")


class Parrot:
    """A worker machine that answers with what it was made with, and an exception by raising it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def handle(self, message: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def snapshot(self) -> None:
        return None

    def restore(self, state: Any) -> None:
        pass


class Slow(Parrot):
    """Takes a while over a Step."""

    def __init__(self, answer: Any, seconds: float) -> None:
        super().__init__(answer)
        self.seconds = seconds

    def handle(self, message: Any) -> Any:
        if isinstance(message, Step):
            time.sleep(self.seconds)
        return super().handle(message)


def hang_until_released(folder: Any) -> Quadratic:
    """A factory that does not come back."""
    while not (folder / "release").exists():
        time.sleep(0.01)
    return Quadratic([3.0, 1.0])


def one_life(folder: Any) -> Quadratic:
    """The first time a problem that raises after a while, then nothing."""
    if (folder / "lived").exists():
        return hang_until_released(folder)
    (folder / "lived").touch()
    return Mishap([3.0, 1.0], folder, "raise", at=300)
