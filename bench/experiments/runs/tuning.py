"""The search for settings, the same for every method: as many trials, drawn and judged in the same way.

The first trial is the method's default; the others are drawn from its ranges with one seed. A trial's score
is the worst-worker accuracy on data held out of training (or what else the task is judged by), of the model
that the stopping rule takes, averaged over the tuning seeds. With halving, all trials are run with the first
seed, and after each seed the better half goes on to the next: twelve trials and three seeds are 12 + 6 + 3
runs, for the price of seven trials without. The results use other seeds. If the best value of a setting is at
the end of its range, the search goes on beyond it (`edges`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.experiments.runs.methods import Method
from bench.experiments.runs.task import Task
from fdro_core.protocol.tuning import Choice

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


def trial(base: Task, method: Method, settings: Mapping[str, Any], repeats: int, seed: int) -> list[Task]:
    """Return the tasks of one trial, a seed each."""
    return [
        replace(base, method=method.name, settings=settings, stage="tune", seed=FIRST_SEED + seed + repeat)
        for repeat in range(repeats)
    ]


def score(records: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean score of one trial's records."""
    return float(np.mean([record["metrics"][f"held_{record.get('judge', 'acc_w')}"] for record in records]))


def better(trials: Sequence[dict[str, Any]], scores: Sequence[float], count: int) -> list[dict[str, Any]]:
    """Return so many trials with the best scores, in the order given; the earlier among equals.

    >>> better([{"step": 0.1}, {"step": 0.5}, {"step": 2.0}], [0.6, 0.7, 0.7], 2)
    [{'step': 0.5}, {'step': 2.0}]
    """
    order = sorted(range(len(trials)), key=lambda place: -scores[place])
    return [trials[place] for place in sorted(order[:count])]
