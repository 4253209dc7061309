"""What the driver costs apart from gradients: with many workers, in a long run, and as p grows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bench.measuring.timing import peak_of
from fdro_core import AspireEase, AspireModels, SoftmaxRegression, solve
from uncertainty_sets import KL, Box
from uncertainty_sets.arrays import Array

FORMS: dict[str, AspireEase | AspireModels] = {
    "AspireEase": AspireEase(),
    "AspireModels, full batches": AspireModels(tolerance=0.0),
    "AspireModels, mini-batches": AspireModels(batch_size=64),
}
"""None stops by itself, so that all make the same number of iterations."""

CASES: tuple[tuple[int, str, int | None, int], ...] = (
    (99, "every epoch", None, 10_000),  # a turn is an epoch of the larger N: it has one plane update
    (99, "never", 10**9, 10_000),
    (784, "never", 10**9, 500),
)
"""Features, when planes are updated, `plane_interval`, and the iterations of a turn."""


class Bowl:
    """½‖w - t_j‖²/p with t_j a window of one vector: a gradient in two passes, and no data to hold."""

    samples = 64

    def __init__(self, base: Array, j: int) -> None:
        self.dimension = base.size // 2
        start = j % self.dimension
        self.center = base[start : start + self.dimension]

    def loss_and_gradient(
        self, w: Array, rng: np.random.Generator | None = None, batch_size: int | None = None
    ) -> tuple[float, Array]:
        """Loss and gradient; a batch is the whole."""
        away = w - self.center
        loss = 0.5 * float(away @ away) / self.dimension
        away /= self.dimension
        return loss, away


def bowls(workers: int, dimension: int) -> list[Bowl]:
    """Workers with optima of their own."""
    base = np.tile(np.random.default_rng(0).normal(size=dimension), 2)
    return [Bowl(base, j) for j in range(workers)]


def scale_models() -> None:
    """1,000 workers, p = 7,850, 50,000 iterations: driver time, memory and bits of both algorithms."""
    workers, dimension, iterations = 1000, 7850, 50_000
    uniform = KL(np.full(workers, 1 / workers), 0.1)
    print("| form | driver s, cheap gradients included | peak memory GB | planes | bits | of AspireEase's |")
    print("|---|---|---|---|---|---|")
    first = 0.0
    for name, form in FORMS.items():
        config = replace(form, iterations=iterations)
        marks: list[tuple[float, float, int]] = []

        def look(run: Any, entry: dict[str, Any], marks: list[tuple[float, float, int]] = marks) -> None:
            if entry["event"] == "report":
                marks.append((time.perf_counter(), time.process_time(), entry["iteration"]))

        result, peak = peak_of(
            lambda config=config, look=look: solve(  # type: ignore[misc]  # bound here, called here
                bowls(workers, dimension), uniform, algorithm=config, observers=[look]
            )
        )
        begin, end = marks[0], marks[-1]
        seconds = min(end[0] - begin[0], end[1] - begin[1]) * iterations / (end[2] - begin[2])
        last = result.history[-1]
        bits = last["bits_down"] + last["bits_up"]
        first = first or bits
        memory = "unknown" if peak is None else f"{peak / 1e9:.2f}"
        print(
            f"| {name} | {seconds:.1f} | {memory} | {last['planes']} | {bits:.3g} | {bits / first:.4f} |",
            flush=True,
        )


MILLION, FEW, EPOCHS = 10**6, 8, 20


def large_models() -> None:
    """p = 10⁶, 8 workers, S = 1: an iteration over a trivial gradient, and the peak over 8Np bytes."""
    print("| form | gradient, ms | iteration, plane updates included, ms | ratio | planes | peak / 8Np |")
    print("|---|---|---|---|---|---|")
    chosen = KL(np.full(FEW, 1 / FEW), 0.1)
    for name, form in FORMS.items():
        marks: list[float] = []

        def look(run: Any, entry: dict[str, Any], marks: list[float] = marks) -> None:
            if entry["event"] == "report":
                marks.append(time.process_time())

        config = replace(form, iterations=FEW * EPOCHS)
        result, peak = peak_of(
            lambda config=config, look=look: solve(  # type: ignore[misc]  # bound here, called here
                bowls(FEW, MILLION), chosen, algorithm=config, observers=[look]
            )
        )
        each = float(np.median(np.diff(marks)[2:])) / FEW * 1e3
        gradient = _gradient(bowls(FEW, MILLION), chunk=FEW) / 1e3
        memory = "unknown" if peak is None else f"{peak / (8 * FEW * MILLION):.1f}"
        cells = f"{gradient:.2f} | {each:.1f} | {each / gradient:.1f} | {len(result.planes)} | {memory}"
        print(f"| {name} | {cells} |", flush=True)


def iteration_models() -> None:
    """An iteration at N = 10,000 over one at N = 10, gradients included; takes 7 GB for p = 7,850."""
    print("| form | p | planes updated | N = 10, µs | N = 10,000, µs | ratio, median (least–most) of turns |")
    print("|---|---|---|---|---|---|")
    for name, form in FORMS.items():
        for features, updated, interval, chunk in CASES:
            config = replace(form, plane_interval=interval, max_planes=2)
            small, large = _turns(config, (10, 10_000), features, chunk)
            ratios = large / small
            cells = f"{np.median(small):.0f} | {np.median(large):.0f} | {np.median(ratios):.2f}"
            spread = f"{ratios.min():.2f}–{ratios.max():.2f}"
            print(f"| {name} | {10 * (features + 1):,} | {updated} | {cells} ({spread}) |", flush=True)


def _turns(
    config: AspireEase | AspireModels, sizes: tuple[int, ...], features: int, chunk: int, turns: int = 7
) -> list[Array]:
    """Microseconds of processor time per iteration, gradients included, for turns of `chunk` iterations."""

    def make(workers: int) -> Callable[[Any], None]:
        def run(observer: Any) -> None:
            chosen = replace(config, iterations=chunk * (turns + 2), report_interval=chunk)
            solve(
                images(workers, features=features),
                KL(np.full(workers, 1 / workers), 0.1),
                algorithm=chosen,
                observers=[observer],
            )

        return run

    done = Interleaved([make(workers) for workers in sizes], clock=time.process_time)
    return [np.array(rows[:turns])[:, 0] / chunk * 1e6 for rows in done.chunks]


CHUNK, TURNS, WORKERS = 1000, 12, 10

SIZES = (10, 7_850)
"""At p = 10 the passes over p take next to nothing: what is left is the driver's own time."""


def overhead() -> None:
    """Processor time of an iteration at S = 1 on the virtual engine: gradient, passes over p, the rest."""
    print("| form | p | iteration, µs | gradient, µs | driver, µs | of it outside the passes, µs |")
    print("|---|---|---|---|---|---|")
    for name, form in FORMS.items():
        outside = 0.0
        for p in SIZES:
            problems = bowls(WORKERS, p)
            total, gradient = _iteration(problems, form), _gradient(problems)
            outside = outside or total - gradient
            cells = f"{total:.1f} | {gradient:.1f} | {total - gradient:.1f} | {outside:.1f}"
            print(f"| {name} | {p:,} | {cells} |", flush=True)


def _iteration(problems: list[Any], form: AspireEase | AspireModels) -> float:
    """Microseconds per iteration, the median of several reports."""
    marks: list[float] = []

    def look(run: Any, entry: dict[str, Any]) -> None:
        marks.append(time.process_time())

    q = np.full(len(problems), 1 / len(problems))
    config = replace(form, iterations=CHUNK * TURNS, report_interval=CHUNK, plane_interval=10**9)
    solve(problems, Box(0.3 * q, 3 * q), algorithm=config, observers=[look])
    return float(np.median(np.diff(marks))) / CHUNK * 1e6


def _gradient(problems: list[Any], chunk: int = CHUNK) -> float:
    """Microseconds per gradient, the median of as many turns."""
    w, seconds = np.zeros(problems[0].dimension), []
    for _ in range(TURNS):
        begin = time.process_time()
        for k in range(chunk):
            problems[k % len(problems)].loss_and_gradient(w)
        seconds.append(time.process_time() - begin)
    return float(np.median(seconds)) / chunk * 1e6


class Timed(SoftmaxRegression):
    """Softmax regression that adds up the time of its gradients."""

    seconds = 0.0

    def loss_and_gradient(self, *arguments: Any) -> tuple[float, Any]:
        """The gradient, timed."""
        begin = time.perf_counter()
        answer = super().loss_and_gradient(*arguments)
        Timed.seconds += time.perf_counter() - begin
        return answer


def images(workers: int, seed: int = 0, features: int = 784) -> list[Timed]:
    """Workers with 60 samples, a bias and ten classes; with 784 features p = 7,850."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, features))
    labels = rng.integers(0, 10, size=60)
    return [Timed(np.roll(X, j, axis=1), labels, 10, l2=1e-3, intercept=True) for j in range(workers)]


class Interleaved:
    """Run several solves in turns, from one report to the next, so that noise affects all of them.

    Attributes:
        chunks: for every solve and turn, its seconds and those of them that gradients took.
    """

    def __init__(
        self, runs: list[Callable[[Any], None]], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.clock = clock
        self.locks = [threading.Semaphore(0) for _ in runs]
        self.ready = threading.Semaphore(0)
        self.chunks: list[list[tuple[float, float]]] = [[] for _ in runs]
        self.begun = [(0.0, 0.0)] * len(runs)
        threads = [threading.Thread(target=run, args=(self._observer(i),)) for i, run in enumerate(runs)]
        for thread in threads:  # one at a time up to its first report
            thread.start()
            self.ready.acquire()
        self.locks[0].release()
        for thread in threads:
            thread.join()

    def _observer(self, index: int) -> Callable[[Any, dict[str, Any]], None]:
        def pass_on(run: Any, entry: dict[str, Any]) -> None:
            now = (self.clock(), Timed.seconds)
            if self.begun[index] != (0.0, 0.0):
                before = self.begun[index]
                self.chunks[index].append((now[0] - before[0], now[1] - before[1]))
                self.locks[(index + 1) % len(self.locks)].release()
            else:
                self.ready.release()
            if run.master.iteration < run.master.last:
                self.locks[index].acquire()
            self.begun[index] = (self.clock(), Timed.seconds)

        return pass_on
