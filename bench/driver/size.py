"""`AspireModels` with many workers: a long run, and an iteration at N = 10 and at N = 10,000."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bench.driver.turns import Interleaved, images
from bench.measuring.memory import peak_of
from fdro_core import AspireEase, AspireModels, solve
from uncertainty_sets import KL
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
