"""What a network costs: a gradient by PyTorch and by `DenseNetwork`, and the parts of whole runs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bench.experiments.runs import models
from bench.measuring.timing import interleave
from fdro_core import AspireModels, DenseNetwork, LogNormal, VirtualEngine, solve
from fdro_core.baselines import AFL
from fdro_core.protocol.problem import Problem
from uncertainty_sets import CDNorm
from uncertainty_sets.arrays import Array

FEATURES, CLASSES, SAMPLES, WORKERS, BATCH = 200, 10, 1000, 10, 64
WIDTHS = (64, 500)
GRADIENTS, ROUNDS, LOOKS = 3000, 15, 30


class Clocked:
    """A problem that adds up the processor time of its gradients."""

    seconds = 0.0

    def __init__(self, problem: Any) -> None:
        self.problem = problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)

    def loss_and_gradient(self, *arguments: Any) -> tuple[float, Array]:
        """The problem's own, timed."""
        begin = time.process_time()
        answer: tuple[float, Array] = self.problem.loss_and_gradient(*arguments)
        Clocked.seconds += time.process_time() - begin
        return answer


def networks() -> None:
    """A gradient of 64 samples with dropout, interleaved; then runs of 3,000 gradients, by processor time."""
    try:
        import torch
    except ModuleNotFoundError:
        kinds = ["softmax", "dense"]
        print('without PyTorch: pip install -e ".[dev,torch]"\n')
    else:
        torch.set_num_threads(1)
        kinds = ["softmax", "dense", "mlp"]
    _gradients(kinds)
    _runs()


def _problems(name: str) -> tuple[models.Model, list[Problem]]:
    rng = np.random.default_rng(0)
    model = models.make(name, FEATURES, CLASSES, seed=0)
    problems = []
    for _ in range(WORKERS):
        X = rng.normal(size=(SAMPLES, FEATURES)) + 0.3 * rng.normal(size=FEATURES)
        problems.append(model.problem(X, rng.integers(0, CLASSES, size=SAMPLES)))
    return model, problems


def _start(problem: Any) -> Array:
    if not hasattr(problem, "initial_point"):
        return np.zeros(problem.dimension)
    point: Array = problem.initial_point(np.random.default_rng(0))
    return point


def _gradients(kinds: list[str]) -> None:
    calls = {}
    for kind in kinds:
        for width in WIDTHS if kind != "softmax" else (0,):
            problem = _problems(f"{kind}-{width}" if width else kind)[1][0]
            calls[kind, width] = _asking(problem)
    samples = interleave(calls, ROUNDS)
    print("| width | model | gradient, µs | times softmax | of torch's time |")
    print("|---|---|---|---|---|")
    for kind, width in calls:
        against = "-"
        if kind == "dense" and ("mlp", width) in calls:
            against = f"{samples.ratio((kind, width), ('mlp', width)).median:.2f}"
        ratio = samples.ratio((kind, width), ("softmax", 0)).median
        each = samples.time((kind, width)).median * 1e6
        print(f"| {width or '-'} | {kind} | {each:,.0f} | {ratio:.1f} | {against} |")
    print()


def _asking(problem: Any) -> Any:
    w, seeds = _start(problem), iter(range(10**9))
    return lambda: problem.loss_and_gradient(w, np.random.default_rng([0, next(seeds)]), BATCH)


def _runs() -> None:
    print("| model | method | run, s | gradients, s | driver, s | looks, s |")
    print("|---|---|---|---|---|---|")
    q = np.full(WORKERS, 1 / WORKERS)
    simplex = CDNorm(q, np.full(WORKERS, 1 - q[0]), 2.0)
    for width in WIDTHS:
        model, problems = _problems(f"dense-{width}")
        every = np.concatenate([each.X for each in problems if isinstance(each, DenseNetwork)])
        for algorithm in (
            AFL(iterations=GRADIENTS // WORKERS, batch_size=BATCH, step=0.05, reported_loss="batch"),
            AspireModels(iterations=GRADIENTS, batch_size=BATCH),
        ):
            total, gradients, looks = _run(problems, simplex, algorithm, model, every)
            cells = [f"{part:.1f}" for part in (total, gradients, total - gradients - looks, looks)]
            print(f"| dense-{width} | {type(algorithm).__name__} | {' | '.join(cells)} |", flush=True)


def _run(
    problems: list[Problem], chosen: Any, algorithm: Any, model: models.Model, every: Array
) -> tuple[float, float, float]:
    """Processor time of a run: all of it, of gradients, of looks at the model on all data."""
    spent = [0.0]
    due = [GRADIENTS / LOOKS]

    def look(run: Any, entry: dict[str, Any]) -> None:
        if entry["event"] == "report" and entry["gradients"] >= due[0]:
            due[0] += GRADIENTS / LOOKS
            begin = time.process_time()
            model.scores(run.master.z, every)
            spent[0] += time.process_time() - begin

    Clocked.seconds = 0.0
    begin = time.process_time()
    engine = VirtualEngine(delays=LogNormal(1.0, 0.5))
    clocked: Any = [Clocked(problem) for problem in problems]
    solve(clocked, chosen, algorithm=algorithm, engine=engine, observers=[look])
    return time.process_time() - begin, Clocked.seconds, spent[0]
