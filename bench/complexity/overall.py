"""The paper's Table IV, measured: where the time of a whole run goes, for each set on one problem.

Gradients are the problems' own time, the oracle is the set's, and the driver is the rest: messages, updates
and cutting planes, all workers in one process on a virtual clock. All in seconds of this process's
processor time: a busy machine does not change the shares.
"""

from __future__ import annotations

import importlib
import time
from typing import Any, NamedTuple

import numpy as np

from bench.complexity.variants import Variant


class Size(NamedTuple):
    """The problem: softmax regression with standard normal features."""

    workers: int
    features: int
    classes: int
    samples: int
    epochs: int
    repeats: int


FULL = Size(workers=50, features=784, classes=10, samples=200, epochs=30, repeats=3)
QUICK = Size(workers=20, features=784, classes=10, samples=200, epochs=5, repeats=1)


class Stopwatch:
    """Count the calls of one method of an object and the seconds spent in them; forward all else."""

    def __init__(self, target: Any, method: str) -> None:
        self._target, self._method = target, method
        self.seconds, self.calls = 0.0, 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if name != self._method:
            return attribute

        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return attribute(*arguments, **options)
            finally:
                self.seconds += time.process_time() - began
                self.calls += 1

        return timed


def available() -> bool:
    """Whether the driver is there."""
    return hasattr(importlib.import_module("fdro_core"), "solve")


def about(quick: bool) -> str:
    """The problem in words, for a title."""
    size = QUICK if quick else FULL
    return (
        f": softmax regression, {size.workers} workers of {size.samples} samples, "
        f"{size.features * size.classes:,} parameters, {size.epochs} epochs, S = 1"
    )


def measure(variant: Variant, quick: bool, seed: int) -> dict[str, Any]:
    """Seconds of gradients, oracle and driver in one run, the median one of a few by its whole time."""
    size = QUICK if quick else FULL
    _run(variant, size._replace(features=5, epochs=2), seed)  # compiles
    runs = sorted((_run(variant, size, seed) for _ in range(size.repeats)), key=lambda run: run["total"])
    return {"set": variant.name, **runs[len(runs) // 2]}


def _run(variant: Variant, size: Size, seed: int) -> dict[str, Any]:
    driver: Any = importlib.import_module("fdro_core")
    rng = np.random.default_rng([seed, size.workers])
    problems = [Stopwatch(each, "loss_and_gradient") for each in _problems(driver, size, rng)]
    oracle = Stopwatch(variant.make(size.workers, rng), "worst_case")
    config = driver.AspireModels(active_workers=1, iterations=size.epochs * size.workers, seed=seed)
    began = time.process_time()
    result = driver.solve(problems, oracle, algorithm=config)
    total = time.process_time() - began
    gradient = sum(each.seconds for each in problems)
    return {
        "gradient": gradient,
        "oracle": oracle.seconds,
        "driver": total - gradient - oracle.seconds,
        "total": total,
        "gradient_calls": sum(each.calls for each in problems),
        "oracle_calls": oracle.calls,
        "iterations": int(result.iterations),
        "objective": float(result.objective),
    }


def _problems(driver: Any, size: Size, rng: np.random.Generator) -> list[Any]:
    """Labels follow a model of the worker's own around a common one."""
    common = rng.normal(size=(size.features, size.classes))
    made = []
    for _ in range(size.workers):
        X = rng.normal(size=(size.samples, size.features))
        own = common + rng.normal(size=common.shape)
        y = np.argmax(
            X @ own / np.sqrt(size.features) + rng.gumbel(size=(size.samples, size.classes)), axis=1
        )
        made.append(
            driver.SoftmaxRegression(X / np.sqrt(size.features), y, size.classes, l2=1e-3, intercept=False)
        )
    return made
