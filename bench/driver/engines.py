"""The engines' numbers: iterations per second of virtual, threads and Ray, and 1,000 workers on Ray.

`python -m bench engines [SECTION ...]`; without a section, all of them. Every turn measures all engines one
after the other, and ratios are taken within a turn: noise meets all alike.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.measuring.targets import run_sections
from fdro_core import (
    AspireEase,
    AspireModels,
    LeastSquares,
    ProblemFrom,
    RayEngine,
    SoftmaxRegression,
    ThreadEngine,
    VirtualEngine,
    solve,
)
from fdro_core.engines.ray_ import cluster
from fdro_core.engines.wall_clock.host import Host
from fdro_core.protocol.messages import Begin, Step
from uncertainty_sets import KL, Box

CONSOLE = Console(width=120)
WORKERS, DIMENSION, TURNS = 16, 7850, 5


def light(worker: int) -> LeastSquares:
    """A gradient that costs next to nothing, so that the engine is what is measured."""
    rng = np.random.default_rng(worker)
    return LeastSquares(
        rng.normal(size=(2, DIMENSION)) / DIMENSION**0.5, rng.normal(size=2), l2=1e-2, intercept=False
    )


def images(worker: int) -> SoftmaxRegression:
    """60 samples of 784 features and a bias, ten classes."""
    rng = np.random.default_rng(worker)
    return SoftmaxRegression(
        rng.normal(size=(60, 784)), rng.integers(0, 10, size=60), 10, l2=1e-3, intercept=True
    )


def rate(engine: Any, make: Callable[[int], Any], iterations: int) -> float:
    """Iterations per second with S = 1, the first fifth left out."""
    marks: list[tuple[float, int]] = []

    def look(run: Any, entry: dict[str, Any]) -> None:
        marks.append((time.perf_counter(), entry["iteration"]))

    q = np.full(WORKERS, 1 / WORKERS)
    sources = [ProblemFrom(make, j) for j in range(WORKERS)]
    config = AspireModels(iterations=iterations)
    solve(sources, Box(0.3 * q, 3 * q), algorithm=config, engine=engine, observers=[look])
    (begin, first), (end, last) = marks[len(marks) // 5], marks[-1]
    return (last - first) / (end - begin)


def bare(make: Callable[[int], Any], iterations: int) -> float:
    """Steps per second of a loop that waits for any reply, drops it, and sends that worker the next step.

    The same actors, workers and messages as RayEngine's, on two actors of eight workers.
    """
    ray, config = cluster.load(), AspireEase()
    hosts = [ray.remote(Host).options(num_cpus=0).remote(ray.get) for _ in range(2)]
    of = [hosts[j * 2 // WORKERS] for j in range(WORKERS)]
    packed = [ray.cloudpickle.dumps(config.worker(j, ProblemFrom(make, j))) for j in range(WORKERS)]
    ray.get([of[j].make.remote({j: (packed[j], None)}) for j in range(WORKERS)])
    begin = Begin(np.zeros(DIMENSION), np.ones(DIMENSION))
    ray.get([of[j].handle.remote([(j, begin)]) for j in range(WORKERS)])
    tickets = itertools.count(1)

    def send(j: int) -> Any:
        return of[j].handle.remote([(j, Step(next(tickets), np.zeros(DIMENSION), 1 / WORKERS, 1.0))])

    waiting = {send(j): j for j in range(WORKERS)}

    def loop(steps: int) -> None:
        for _ in range(steps):
            done, _ = ray.wait(list(waiting), num_returns=1)
            j = waiting.pop(done[0])
            waiting[send(j)] = j

    loop(iterations // 5)
    start = time.perf_counter()
    loop(iterations)
    seconds = time.perf_counter() - start
    for host in hosts:
        ray.kill(host)
    return iterations / seconds


def rates() -> None:
    """Iterations per second: 16 workers, p = 7,850, S = 1; Ray with 2 actors."""
    ours = cluster.connect(None)
    try:
        for make in (light, images):
            turns = []
            for _ in range(TURNS):
                turns.append(
                    (
                        rate(VirtualEngine(), make, 4000),
                        rate(ThreadEngine(), make, 4000),
                        rate(RayEngine(hosts=2), make, 2000),
                        bare(make, 2000),
                    )
                )
            table = Table("engine", "iterations/s", "of bare ray.wait", "of Ray", title=str(make.__doc__))
            numbers = np.array(turns)
            for column, name in enumerate(("virtual", "threads", "Ray", "bare ray.wait loop")):
                own = numbers[:, column]
                cells = [np.median(own / numbers[:, other]) for other in (3, 2)]
                table.add_row(name, f"{np.median(own):,.0f}", *(f"{cell:.2f}" for cell in cells))
            CONSOLE.print(table)
    finally:
        if ours:
            cluster.load().shutdown()


def small(worker: int) -> SoftmaxRegression:
    """Ten samples of five features around a centre of the worker's own, three classes."""
    rng = np.random.default_rng([7, worker])
    X = rng.normal(size=(10, 5)) + 0.5 * rng.normal(size=5)
    return SoftmaxRegression(
        X, np.argmax(X[:, :3] + rng.gumbel(size=(10, 3)), axis=1), 3, l2=1e-2, intercept=False
    )


def thousand() -> None:
    """1,000 workers on two actors of Ray, to the objective of the virtual engine; S = 100."""
    workers = 1000
    sources = [ProblemFrom(small, j) for j in range(workers)]
    chosen = KL(np.full(workers, 1 / workers), 0.1)
    config = AspireModels(active_workers=100, iterations=1000)
    found = {}
    for name, engine in (("virtual", VirtualEngine()), ("Ray", RayEngine(hosts=2))):
        start = time.perf_counter()
        result = solve(sources, chosen, algorithm=config, engine=engine)
        found[name] = result.objective
        CONSOLE.print(
            f"{name:<8} objective {result.objective:.9f}, ‖∇G‖² {result.stationarity:.1e}, "
            f"{result.iterations:,} iterations of {config.active_workers} replies in "
            f"{time.perf_counter() - start:.0f} s"
        )
    CONSOLE.print(f"relative difference {abs(found['Ray'] - found['virtual']) / found['virtual']:.1e}\n")


SECTIONS = {part.__name__: part for part in (rates, thousand)}


def main(arguments: list[str]) -> int:
    """Run the sections named, or all."""
    return run_sections(SECTIONS, arguments, CONSOLE)
