"""Tune every method in the same way, then repeat it with the best settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.experiments.runs import methods, tuning
from bench.experiments.runs.pool import Pool
from bench.experiments.runs.records import Records
from bench.experiments.runs.task import Task, federation


def tuned_runs(
    pool: Pool,
    records: Records,
    options: argparse.Namespace,
    base: Task,
    names: Sequence[str],
    workers: int,
    known: Mapping[str, methods.Method] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Search every method's settings, then repeat it with the best; return the records by method.

    `known` has the methods by name, by default those of the task's edition.
    """
    known = known or methods_of(base, workers)
    methods.check(names, known)
    searches = {
        name: tuning.trials(base, known[name], options.trials, options.search_seeds, options.seed)
        for name in names
    }
    flat = [task for tasks in searches.values() for task in tasks]
    pool.run(f"{base.data}: {options.trials} trials per method", flat, records)
    runs = {}
    for name, tasks in searches.items():
        chosen = tuning.best([record for task in tasks if (record := records.get(task)) is not None])
        runs[name] = [
            replace(base, method=name, settings=chosen, stage="run", seed=options.seed + repeat)
            for repeat in range(options.repeats)
        ]
    pool.run(
        f"{base.data}: {options.repeats} repeats", [t for tasks in runs.values() for t in tasks], records
    )
    return {name: [record for t in tasks if (record := records.get(t))] for name, tasks in runs.items()}


def methods_of(base: Task, workers: int) -> dict[str, methods.Method]:
    """Return the methods of a task's edition, with the search for its batches and prior."""
    return methods.registry(
        workers,
        known_prior=base.attack is not None,
        edition=base.edition,
        sampled=base.batch is not None,
    )


def workers_of(base: Task) -> int:
    """Count the workers of a task, malicious ones included."""
    count = len(federation(base).clients)
    return count + (0 if base.attack is None else int(base.attack["count"]))


def one_class(base: Task) -> bool:
    """Whether every worker has a single label, so that one worker alone cannot learn anything."""
    return all(np.ptp(client.y_train) == 0 for client in federation(base).clients)
