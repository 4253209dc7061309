"""What the defaults for mini-batches rest on: one setting changed at a time, judged on held-out data.

Runs are blind, as trials of a search are: neither test data nor the seeds of any table's results or searches
are looked at. Networks and softmax regression end after a number of gradients; `--slow` has a virtual clock
instead, with a fifth of the workers ten times slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench.display.tables import Table
from bench.experiments.commands import networks, options
from bench.experiments.commands.efficiency import SHARE, SLOWER
from bench.experiments.commands.options import Session
from bench.experiments.commands.race import COMPUTE, DELAY, POINTS, SECONDS, USUAL
from bench.experiments.presentation import reporting, tables
from bench.experiments.runs import compare, methods
from bench.experiments.runs.task import Task

COMMAND = "defaults"
FIRST_SEED = 100  # no table's, and no search's


@dataclass(frozen=True)
class Variation:
    """A method with settings that differ from its defaults.

    Attributes:
        settings: as the method's search has them; `model_step` and "+ P" steps are in units of √N.
        method: its name.
        epochs: τ in rounds of all workers; None: the default.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    method: str = "AspireModels"
    epochs: int | None = None


VARIATIONS: Mapping[str, Variation] = {
    "defaults": Variation(),
    "half the step": Variation({"model_step": 0.003}),
    "twice the step": Variation({"model_step": 0.012}),
    "nobody rests": Variation({"rest": 0.0}),
    "half the step of the weights": Variation({"weight_step": 0.05}),
    "five local steps": Variation({"local_steps": 5}),
    "tau of 3 rounds": Variation(epochs=3),
    "tau of 50 rounds": Variation(epochs=50),
    "S = N": Variation(method="AspireModels(-)"),
    "Adaptive": Variation(method="AspireModels-ADP"),
    "AFL + P": Variation({"step": 0.006}, method="AFL + P"),
    "ACE + P": Variation({"step": 0.006}, method="ACE + P"),
}


def main(arguments: list[str]) -> int:
    """Run the variations, print the table, write the files."""
    made = options.common(COMMAND, __doc__, [])
    made.set_defaults(seed=FIRST_SEED)
    made.add_argument("--rows", nargs="+", metavar="DATA,MODEL", help="rows (those of networks)")
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(VARIATIONS), help="only these")
    made.add_argument("--slow", action="store_true", help="on the clock, with slow workers")
    made.add_argument("--gradients", type=int, help="local gradients per run, all workers together")
    made.add_argument("--seconds", type=float, help="virtual seconds per run, with --slow")
    made.add_argument("--batch", type=int, default=options.BATCH, help="samples per gradient (64)")
    session = Session(made, arguments, COMMAND)
    given = session.given
    given.model = None
    rows = [row.name.replace(", ", ",") for row in (networks.QUICK if given.quick else networks.ROWS)]
    names = given.only or list(VARIATIONS)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with session.pool() as pool:
        for row in given.rows or rows:
            base = task(given, *row.split(","))
            workers = compare.workers_of(base)
            tasks = {name: varied(given, base, VARIATIONS[name], workers) for name in names}
            pool.run(row, [each for some in tasks.values() for each in some], session.records)
            found[row] = {name: pool.run(row, some, session.records) for name, some in tasks.items()}
    given.data = sorted({row.split(",")[0] for row in found})
    session.publish([table(found)], remarks(session))
    return 0


def task(given: Any, data: str, model: str) -> Task:
    """Return the task that a row's tasks are made from."""
    if not given.slow:
        known = {row.name: row.gradients for row in networks.ROWS}
        gradients = given.gradients or known.get(f"{data}, {model}")
        base = options.base(given, COMMAND, data)
        return replace(base, model=model, gradients=gradients or base.gradients)
    base = options.on_the_clock(
        COMMAND,
        data,
        given.seed,
        given.seconds or SECONDS.get(data, USUAL),
        batch=given.batch,
        model=model,
        points=POINTS,
        budget=methods.WHOLE_SIMPLEX,
        delay=DELAY,
        compute=COMPUTE,
        early=True,
    )
    N = compare.workers_of(base)
    return replace(base, stragglers=tuple((N - 1 - k, SLOWER, 0.0, None) for k in range(max(1, N // SHARE))))


def varied(given: Any, base: Task, variation: Variation, workers: int) -> list[Task]:
    """Return a variation's blind runs, one per seed."""
    settings = dict(variation.settings)
    if variation.epochs is not None:
        settings["max_staleness"] = variation.epochs * workers
    return [
        replace(base, method=variation.method, settings=settings, stage="tune", seed=given.seed + repeat)
        for repeat in range(given.repeats)
    ]


def table(found: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> Table:
    """Return the accuracies on held-out training data, in %."""
    names = list(next(iter(found.values())))
    cells = [[name, *(_accuracy(runs[name]) for runs in found.values())] for name in names]
    return Table("Worst worker on held-out training data, %", ["", *found], cells)


def _accuracy(records: list[dict[str, Any]]) -> str:
    judged = [100 * record["metrics"][f"held_{record['judge']}"] for record in records]
    return tables.pm(tables.summary(judged), 1)


def remarks(session: Session) -> str:
    """Return how the runs were made."""
    given = session.given
    ends = "virtual time, a fifth of the workers slow, mean over the time" if given.slow else "gradients"
    return (
        f"Runs end by {ends}; of workers with few samples the worst fifth. {given.repeats} seeds from "
        f"{given.seed}, mean ± deviation. {reporting.effort(session.shown(), session.began)}"
    )
