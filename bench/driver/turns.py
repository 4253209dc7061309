"""Solves in turns on a noisy machine, and problems whose gradients are timed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fdro_core import SoftmaxRegression


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
