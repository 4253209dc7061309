"""Choose the stopping rule and the number of seeds for the search without looking at the test data.

A fifth of every worker's training data stands in for the test data. Every trial of every method's search
runs with several seeds, and every rule of `stopping.RULES` is applied to the same runs. Then the search is
repeated for each rule: the held-out scores of one seed, or the mean of several, choose the best trial, and
the rule is judged by that trial's score on the stand-in with the remaining seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from bench.datasets import Federation
from bench.display.tables import Table
from bench.experiments.commands import options
from bench.experiments.commands.options import Session
from bench.experiments.presentation import reporting
from bench.experiments.runs import compare, methods, search, stopping
from bench.experiments.runs.parts import cut
from bench.experiments.runs.perform import perform
from bench.experiments.runs.task import Task, federation
from uncertainty_sets.arrays import Array

COMMAND = "rehearse"
DATA = ["fashion-mnist", "sc-ma", "person-activity"]
VARIANTS = ("AspireModels", "AspireModels_per")
WITHOUT = {"max{Ind}"}  # its scores are near 0 whatever the rule
SEEDS = 20_000  # the first one; no other experiment's


def main(arguments: list[str]) -> int:
    """Run the experiment, print the table, write the files."""
    parser = options.parser(COMMAND, __doc__, DATA)
    parser.set_defaults(repeats=4)
    session = Session(parser, arguments, COMMAND)
    given = session.given
    if given.repeats < 2:
        raise SystemExit("--repeats must be at least 2: some seeds search, the others judge")
    scores: dict[str, dict[str, Array]] = {}
    with session.pool(rehearse) as pool:
        for data in given.data:
            base = options.base(given, COMMAND, data)
            known = compare.methods_of(base, compare.workers_of(base))
            names = given.methods or methods.names(*VARIANTS, without=WITHOUT)
            methods.check(names, known)
            tasks = {name: trials(base, known[name], given) for name in names}
            title = f"{data}: {len(names)} methods"
            pool.run(title, [task for each in tasks.values() for task in each], session.records)
            scores[data] = {
                name: scored(pool.run(title, each, session.records), given.repeats)
                for name, each in tasks.items()
            }
    effort = reporting.run_time(session.shown(), session.began)
    session.publish([table(scores, range(1, given.repeats))], remarks(given) + effort)
    return 0


def trials(base: Task, method: methods.Method, given: Any) -> list[Task]:
    """Return every trial with every seed, a trial's seeds side by side."""
    return [
        replace(base, method=method.name, settings=settings, stage="tune", seed=SEEDS + given.seed + repeat)
        for settings in search.candidates(method, given.trials, given.seed)
        for repeat in range(given.repeats)
    ]


def rehearse(task: Task) -> dict[str, Any]:
    """Execute a task without its test data, and apply every rule."""
    return perform(task, put_away(federation(task), task.seed), tuple(stopping.RULES))


def put_away(data: Federation, seed: int) -> Federation:
    """Return the data with a fifth of every client's training data in the place of its test data."""
    parts = cut(data.clients, seed + SEEDS)
    clients = [
        replace(
            client, X_train=part.train[0], y_train=part.train[1], X_test=part.held[0], y_test=part.held[1]
        )
        for client, part in zip(data.clients, parts, strict=True)
    ]
    return replace(data, clients=tuple(clients))


def scored(records: Sequence[dict[str, Any]], repeats: int) -> Array:
    """Return held-out and stand-in accuracies of the worst worker in %: (2, rules, trials, seeds)."""
    found = [
        [[record["rules"][rule][name] for record in records] for rule in stopping.RULES]
        for name in ("held_acc_w", "acc_w")
    ]
    return 100 * np.array(found).reshape(2, len(stopping.RULES), -1, repeats)


def worth(held: Array, stand_in: Array, count: int) -> float:
    """Return the score, on the other seeds, of the trial that `count` seeds choose.

    The mean over all ways to choose `count` seeds.

    >>> held, stand_in = np.array([[9.0, 1.0], [5.0, 5.0]]), np.array([[2.0, 4.0], [6.0, 8.0]])
    >>> worth(held, stand_in, 1)  # seed 0 chooses trial 0, worth 4 with seed 1; seed 1 trial 1, worth 6
    5.0
    """
    seeds = range(held.shape[1])
    found = []
    for chosen in combinations(seeds, count):
        best = int(np.argmax(held[:, chosen].mean(axis=1)))
        found.append(stand_in[best, [seed for seed in seeds if seed not in chosen]].mean())
    return float(np.mean(found))


def table(scores: dict[str, dict[str, Array]], counts: Sequence[int]) -> Table:
    """Return the table of rules by the number of seeds that search; the mean over methods."""
    rows = []
    for place, rule in enumerate(stopping.RULES):
        cells = []
        for count in counts:
            means = [
                float(
                    np.mean(
                        [worth(held[place], stand_in[place], count) for held, stand_in in by_method.values()]
                    )
                )
                for by_method in scores.values()
            ]
            cells += [f"{np.mean(means):.2f} ({', '.join(f'{mean:.1f}' for mean in means)})"]
        rows.append([rule + (" *" if rule == stopping.RULE else ""), *cells])
    headings = ["the model is", *(f"search with {count} seed{'s' * (count > 1)}" for count in counts)]
    return Table(f"Acc_w % without test data: mean ({', '.join(scores)})", headings, rows)


def remarks(given: Any) -> str:
    """Return how the runs were made."""
    return (
        f"{given.trials} trials of every method with {given.repeats} seeds each; of every worker's training "
        "data a fifth stands in for the test data, a fifth of the rest is held out. Means over "
        "methods, and over which seeds search and which judge. *: the rule in use. "
    )
