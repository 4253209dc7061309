"""Tune every method in the same way, then repeat it with the best settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.experiments.runs import methods, search
from bench.experiments.runs.pool import Pool
from bench.experiments.runs.task import Records, Task, federation


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

    `known` has the methods by name, by default all. With `options.halving`, the worse
    half of the trials is left out after each seed. With `options.widen`, a search whose best is at the end of
    a range goes on beyond it; ends that stay open are added to `options.edges`.
    """
    known = known or methods_of(base, workers)
    methods.check(names, known)
    known = {name: known[name] for name in names}
    chosen = _searched(pool, records, options, base, known)
    chosen = _widened(pool, records, options, base, known, chosen, workers)
    runs = {
        name: [
            replace(base, method=name, settings=chosen[name], stage="run", seed=options.seed + repeat)
            for repeat in range(options.repeats)
        ]
        for name in names
    }
    pool.run(
        f"{base.data}: {options.repeats} repeats", [t for tasks in runs.values() for t in tasks], records
    )
    return {name: _records(records, tasks) for name, tasks in runs.items()}


def _records(records: Records, tasks: Sequence[Task]) -> list[dict[str, Any]]:
    return [record for task in tasks if (record := records.get(task)) is not None]


def _searched(
    pool: Pool,
    records: Records,
    options: argparse.Namespace,
    base: Task,
    known: Mapping[str, methods.Method],
) -> dict[str, dict[str, Any]]:
    """Try every method's settings, seed by seed, all methods side by side; return the best of each."""
    left = {name: search.candidates(method, options.trials, options.seed) for name, method in known.items()}
    for seeds in range(1, options.search_seeds + 1):
        tried = {
            name: [search.trial(base, known[name], settings, seeds, options.seed) for settings in trials]
            for name, trials in left.items()
        }
        tasks = [task for trials in tried.values() for trial in trials for task in trial]
        pool.run(f"{base.data}: trials, seed {seeds} of {options.search_seeds}", tasks, records)
        for name, trials in tried.items():
            scores = [search.score(_records(records, trial)) for trial in trials]
            halved = options.halving and seeds < options.search_seeds
            last = seeds == options.search_seeds
            count = 1 if last else -(-len(trials) // 2) if halved else len(trials)
            left[name] = search.better(left[name], scores, count)
    return {name: trials[0] for name, trials in left.items()}


def _widened(
    pool: Pool,
    records: Records,
    options: argparse.Namespace,
    base: Task,
    known: Mapping[str, methods.Method],
    chosen: dict[str, dict[str, Any]],
    workers: int,
) -> dict[str, dict[str, Any]]:
    """Search beyond the ends of ranges, all methods side by side; return the settings, keep open ends."""

    def trial(name: str, settings: Mapping[str, Any]) -> list[Task]:
        return search.trial(base, known[name], settings, options.search_seeds, options.seed)

    found, going = dict(chosen), {}
    open_ends: list[search.Edge] = []
    for name, settings in chosen.items():
        allowed = search.accepts(known[name], workers, base.batch)
        if options.widen:
            reached = search.score(_records(records, trial(name, settings)))
            going[name] = search.widened(known[name], settings, reached, allowed, options.outer)
        else:
            open_ends += search.edges(known[name], settings, allowed, options.outer)
    scores: dict[str, search.Score | None] = dict.fromkeys(going)
    while scores:
        asked: dict[str, dict[str, Any]] = {}
        for name, score in scores.items():
            try:
                asked[name] = going[name].send(score)  # type: ignore[arg-type]  # None starts it
            except StopIteration as end:
                found[name], left = end.value
                open_ends += left
        tasks = {name: trial(name, settings) for name, settings in asked.items()}
        pool.run(f"{base.data}: beyond a range", [task for some in tasks.values() for task in some], records)
        scores = {name: search.score(_records(records, some)) for name, some in tasks.items()}
    for edge in open_ends:
        line = f"{base.data}, {base.model}{', stragglers' * bool(base.stragglers)}: {edge}"
        pool.console.print(f"[yellow]At the end of its range: {line}[/]")
        options.edges.append(line)
    return found


def methods_of(base: Task, workers: int) -> dict[str, methods.Method]:
    """Return the methods, with the search for its batches and prior."""
    return methods.registry(
        workers,
        known_prior=base.attack is not None,
        sampled=base.batch is not None,
        network=base.model != "softmax" or base.experiment == "networks",  # whose rows share one search
    )


def workers_of(base: Task) -> int:
    """Count the workers of a task, malicious ones included."""
    count = len(federation(base).clients)
    return count + (0 if base.attack is None else int(base.attack["count"]))


def one_class(base: Task) -> bool:
    """Whether every worker has a single label, so that one worker alone cannot learn anything."""
    return all(np.ptp(client.y_train) == 0 for client in federation(base).clients)
