"""The search for settings, the same for every method: as many trials, drawn and judged in the same way.

The first trial is the method's default; the others are drawn from its ranges with one seed. A trial's score
is the worst-worker accuracy on data held out of training, of the model that the stopping rule takes, averaged
over the tuning seeds. The results use other seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.experiments.runs.methods import Method
from bench.experiments.runs.task import Task
from fdro_core.contracts.tuning import Choice

FIRST_SEED = 10_000


def candidates(method: Method, trials: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return the settings to try: the default, then drawn ones.

    A choice that is to be covered (the worker of Ind_j, whose best is over all j) goes through its values in
    turn instead of being drawn; if it has more values than `trials`, there are as many trials.
    """
    rng = np.random.default_rng([seed, *(method.family or method.name).encode()])
    covered = {
        name: space.values
        for name, space in method.search.items()
        if isinstance(space, Choice) and space.cover
    }
    trials = max(trials, *map(len, covered.values()), 1)
    drawn = [{name: space.draw(rng) for name, space in method.search.items()} for _ in range(trials - 1)]
    for place, settings in enumerate(drawn, start=1):
        settings |= {name: values[place % len(values)] for name, values in covered.items()}
    return [dict(method.default), *drawn]


def trials(base: Task, method: Method, count: int, repeats: int, seed: int) -> list[Task]:
    """Return the tasks of one method's search."""
    return [
        replace(base, method=method.name, settings=settings, stage="tune", seed=FIRST_SEED + seed + repeat)
        for settings in candidates(method, count, seed)
        for repeat in range(repeats)
    ]


def best(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings with the best mean score; the earlier among equals."""
    scores: dict[str, list[float]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for record in records:
        name = repr(sorted(record["settings"].items()))
        settings[name] = dict(record["settings"])
        scores.setdefault(name, []).append(record["metrics"]["held_acc_w"])
    chosen = max(scores, key=lambda name: float(np.mean(scores[name])))
    return settings[chosen]
