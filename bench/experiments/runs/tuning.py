"""The search for settings, the same for every method: so many trials, drawn alike, judged alike.

The first trial is the method's default, the others are drawn from its ranges with one seed. A trial is judged
by the worst-worker accuracy on data held out of training, at the model that the stopping rule takes, averaged
over the tuning seeds; the seeds of the results are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.experiments.runs.methods import Choice, Method
from bench.experiments.runs.task import Task

FIRST_SEED = 10_000


def candidates(method: Method, trials: int, seed: int = 0) -> list[dict[str, Any]]:
    """The settings to try."""
    rng = np.random.default_rng([seed, *(method.family or method.name).encode()])
    workers = method.search.get("worker")
    if isinstance(workers, Choice):  # Ind_j's best is over all j: each of them is to be seen
        trials = max(trials, len(workers.values))
    drawn = [
        {name: spread.draw(rng) for name, spread in method.search.items()} for _ in range(max(0, trials - 1))
    ]
    if isinstance(workers, Choice):
        for place, settings in enumerate(drawn, start=1):
            settings["worker"] = workers.values[place % len(workers.values)]
    return [dict(method.default), *drawn]


def trials(base: Task, method: Method, count: int, repeats: int, seed: int) -> list[Task]:
    """The tasks of one method's search."""
    return [
        replace(base, method=method.name, settings=settings, stage="tune", seed=FIRST_SEED + seed + repeat)
        for settings in candidates(method, count, seed)
        for repeat in range(repeats)
    ]


def best(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings whose trials did best; the earlier among equals."""
    scores: dict[str, list[float]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for record in records:
        name = repr(sorted(record["settings"].items()))
        settings[name] = dict(record["settings"])
        scores.setdefault(name, []).append(record["metrics"]["held_acc_w"])
    chosen = max(scores, key=lambda name: float(np.mean(scores[name])))
    return settings[chosen]
