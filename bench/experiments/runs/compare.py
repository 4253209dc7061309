"""What the commands share: tune every method alike, repeat it, write tables and figures."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bench.measuring import machine
from bench.experiments.runs import methods
from bench.experiments.runs import stopping
from bench.experiments.runs import tuning
from bench.experiments.runs.execute import Pool
from bench.experiments.runs.records import Records
from bench.experiments.presentation.tables import Table
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
    """Search every method's settings, then repeat it with the best: records by method.

    `known` is where methods are looked for, by default `methods.registry`.
    """
    known = known or methods.registry(workers, known_prior=base.attack is not None)
    methods.check(names, known)
    searches = {
        name: tuning.trials(base, known[name], options.trials, options.search_seeds, options.seed)
        for name in names
    }
    flat = [task for tasks in searches.values() for task in tasks]
    pool.run(f"{base.data}: {options.trials} trials a method", flat, records)
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


def workers_of(base: Task) -> int:
    """How many workers a task has, malicious ones among them."""
    count = len(federation(base).clients)
    return count + (0 if base.attack is None else int(base.attack["count"]))


def one_class(base: Task) -> bool:
    """Whether every worker has one label alone, so that there is nothing to learn from one of them."""
    return all(np.ptp(client.y_train) == 0 for client in federation(base).clients)


def about(options: argparse.Namespace, records: Sequence[dict[str, Any]], began: float) -> str:
    """How it was done, for under the tables."""
    budgets = sorted({(r["data"], r["gradients"], r["batch"] or "all", r["model"]) for r in records}, key=str)
    budget = "; ".join(
        f"{data}: {gradients:,} gradients of {batch} samples, {model}"
        for data, gradients, batch, model in budgets
    )
    return (
        f"Every method: {options.trials} trials of settings, {options.search_seeds} seeds each, judged on "
        f"held-out training data; then {options.repeats} repeats with the best, mean ± deviation. Stopping "
        f"rule: {stopping.RULE} (the worst worker's accuracy on held-out training data). "
        f"Budget of a run ({budget}), all workers together. p-values are two-sided, of the paired t-test "
        f"and of the signed ranks over seeds. " + run_time(records, began)
    )


def run_time(records: Sequence[dict[str, Any]], began: float) -> str:
    """How much work it was, and on what machine."""
    cpu = sum(record["cpu"] for record in records)
    return (
        f"Runs behind this: {len(records)}, {cpu / 60:.1f} minutes of processor time; this start took "
        f"{(time.monotonic() - began) / 60:.1f} minutes. {machine.line(machine.describe())}."
    )


def publish(
    console: Console, folder: Path, tables: Sequence[Table], remarks: str, name: str = "tables.md"
) -> None:
    """Print the tables and write them as Markdown."""
    for table in tables:
        console.print(table.rich())
    console.print(remarks, markup=False)
    text = "\n".join([*(table.markdown() for table in tables), remarks, ""])
    (folder / name).write_text(text, encoding="utf-8")
