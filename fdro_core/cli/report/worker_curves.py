"""Curves by worker: losses, test accuracies and weights over the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from fdro_core.cli.report.charts import Chart, Entry, Line, chart, line
from fdro_core.cli.report.curves import known, tested, thinned
from fdro_core.cli.report.run import WORST, Run, column

LINES = 10
"""The largest number of workers with a line of their own; the others are in a band."""


def worker_curves(run: Run, chosen: list[int] | None = None) -> list[Chart]:
    """Every chart by worker that the history has numbers for; `chosen` workers get a line."""
    chosen = choose(run) if chosen is None else chosen
    reports = thinned(run.reports)
    key, seen = tested(run)
    accuracy = key == "test_accuracy"
    charts = [
        _chart(
            run, chosen, reports, "losses", "worker-loss", "Loss by worker",
            "as reported by each worker at its own copy of the model", log=True,
        ),
        _chart(
            run, chosen, seen, key, "worker-accuracy" if accuracy else "worker-test-loss",
            "Test accuracy by worker, %" if accuracy else "Test loss by worker",
            "of the shared model on held-out samples", log=not accuracy,
            scale=100.0 if accuracy else 1.0, digits=1 if accuracy else None,
        ),
        _chart(
            run, chosen, [entry for entry in reports if "weights" in entry], "weights", "weights",
            "Weight by worker, %", "the weight of each worker's gradient", scale=100.0, digits=1, zero=True,
        ),
    ]  # fmt: skip
    return [each for each in charts if each is not None]


def choose(run: Run) -> list[int]:
    """The workers with a line: all, or those that figures name, those that are gone, the heaviest."""
    N = len(run.workers)
    if N <= LINES:
        return list(range(N))
    heaviest = np.argsort(-np.nan_to_num(column(run.workers, "weight")), kind="stable").tolist()
    named = [j for figure in WORST for j in run.worst(figure)[:2]]
    return sorted(list(dict.fromkeys([*named, *list(run.gone)[:3], *heaviest]))[: LINES - 1])


def _chart(
    run: Run,
    chosen: list[int],
    at: list[Entry],
    key: str,
    name: str,
    title: str,
    note: str,
    *,
    scale: float = 1.0,
    **options: Any,
) -> Chart | None:
    """A chart with a line per chosen worker, and a band over all workers if some have no line."""
    if not at:
        return None
    table = scale * np.array([entry[key] for entry in at], dtype=np.float64)
    lines = []
    if len(chosen) < table.shape[1]:
        lines.append(_all(at, table))
        note = f"{note}; grey: range and median of all {table.shape[1]} workers"
    for color, j in enumerate(chosen):
        values, label = table[:, j].copy(), run.names[j]
        if j in run.gone:
            label += " (gone)"
            if key == "losses":  # the master keeps the last known number; the worker reports none
                values[[entry["iteration"] > run.gone[j]["iteration"] for entry in at]] = np.nan
        lines.append(line(label, at, values, color=f"w{color}"))
    return chart(name, title, note, lines, **options)


def _all(at: list[Entry], table: Any) -> Line:
    """Median and range over the workers."""
    middle, low, high = ([known(pick, row) for row in table] for pick in (np.median, np.min, np.max))
    return line("median", at, middle, color="all", dash=2, band=(low, high))
