"""Figure 12: 1,000 workers, five of them 20 times slower; asynchronous against synchronous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.display.tables import Table
from bench.experiments.commands import options
from bench.experiments.commands.options import Session
from bench.experiments.presentation import figures, reporting, tables
from bench.experiments.runs import compare, curves, methods
from bench.experiments.runs.pool import Pool
from bench.experiments.runs.task import Records

COMMAND = "scale"
DATA = ["mnist-1000"]
SLOWER = 20.0
PATIENCE = (
    50  # epochs that a worker may be late: more than the stragglers need, so that the master never waits
)
LEVELS = (0.80, 0.85)

Runs = dict[str, list[dict[str, Any]]]


def main(arguments: list[str]) -> int:
    """Run the experiment, print the table, write the files."""
    made = options.common(COMMAND, __doc__, DATA)
    made.add_argument("--seconds", type=float, help="virtual seconds of the synchronous run (4,000)")
    made.add_argument("--active", nargs="+", type=int, default=[1, 100], help="S of the asynchronous runs")
    made.add_argument("--pool", type=int, default=2, help="average images over so many pixels squared")
    made.add_argument("--papers", action="store_true", help=f"{methods.PAPERS} instead of {methods.OURS}")
    session = Session(made, arguments, COMMAND)
    given = session.given
    given.seconds = given.seconds or (1000.0 if given.quick else 4000.0)
    shown = []
    with session.pool() as pool:
        for data in given.data:
            runs = run(given, data, pool, session.records)
            shown.append(table(data, runs))
            if figures.available():
                draw(given.out, data, runs)
    session.publish(shown, remarks(session))
    return 0


def run(given: Any, data: str, pool: Pool, records: Records) -> Runs:
    """Execute the synchronous runs, then the asynchronous ones up to the same test accuracy, seed by seed."""
    name = methods.PAPERS if given.papers else methods.OURS
    base = options.on_the_clock(
        COMMAND,
        data,
        given.seed,
        given.seconds,
        method=f"{name}(-)",
        l2=1e-3,
        points=int(given.seconds),
        options={"pool": given.pool} if "pool" in options.SMALLER.get(data, {}) else {},
        held=0.0,
        parts=(),
        spread=1.0,
    )
    N = compare.workers_of(base)
    slow = tuple((j, SLOWER, 0.0, None) for j in range(max(1, N // 200)))
    base = replace(base, stragglers=slow, budget=N / 2)
    seeds = range(given.seed, given.seed + given.repeats)
    runs = {
        "synchronous": pool.run(f"{data}: synchronous", [replace(base, seed=seed) for seed in seeds], records)
    }
    for S in given.active:
        if S >= N:
            continue
        epoch = -(-N // S)
        settings = {
            "active_workers": S,
            "max_staleness": PATIENCE * epoch,
            "report_interval": max(1, epoch // 4),
        }
        tasks = [
            replace(
                base,
                method=name,
                settings=settings,
                seed=record["seed"],
                until=record["curve"]["acc"][-1],
                points=4 * int(given.seconds),
            )
            for record in runs["synchronous"]
        ]
        runs[f"asynchronous, S = {S}"] = pool.run(f"{data}: S = {S}", tasks, records)
    return runs


def times(records: Sequence[dict[str, Any]], levels: Sequence[float]) -> list[float | None]:
    """Return when each run's test accuracy first reaches its level."""
    return [
        curves.first_time(record["curve"]["clock"], record["curve"]["acc"], level)
        for record, level in zip(records, levels, strict=True)
    ]


def table(data: str, runs: Runs) -> Table:
    """Return the table: virtual seconds to fixed accuracies and to the synchronous run's last one."""
    synchronous = runs["synchronous"]
    last = [record["curve"]["acc"][-1] for record in synchronous]
    ends = times(synchronous, last)
    headings = [
        "method",
        *(f"to {level:.0%} correct" for level in LEVELS),
        f"to the final accuracy of synchronous ({np.mean(last):.1%})",
        "speed-up",
        tables.difference_from("synchronous", "s"),
        "gradients",
    ]
    rows = []
    for name, records in runs.items():
        there = times(records, last)
        rows.append(
            [
                name,
                *(reporting.seconds(times(records, [level] * len(records))) for level in LEVELS),
                reporting.seconds(there),
                reporting.ratio(ends, there),
                tables.MISSING if records is synchronous else reporting.difference(there, ends, 0),
                f"{np.mean([record['metrics']['gradients'] for record in records]):,.0f}",
            ]
        )
    return Table(f"{data}: virtual seconds to a share of correctly classified test samples", headings, rows)


def draw(folder: Path, data: str, runs: Runs) -> None:
    """Draw test accuracy and test loss against virtual time, one line per run."""
    with figures.canvas(folder, f"scale-{data}", columns=2, width=4.6) as panels:
        for axes, name, factor, label in (
            (panels[0], "acc", 100.0, "test samples right, %"),
            (panels[1], "test_loss", 1.0, "test loss"),
        ):
            for number, (method, records) in enumerate(runs.items()):
                look = figures.look(number) | {"marker": "", "linewidth": 0.9}
                for record in records:
                    curve = record["curve"]
                    known = {} if record is not records[0] else {"label": method}
                    axes.plot(curve["clock"], factor * np.asarray(curve[name]), alpha=0.7, **look, **known)
            axes.set_xscale("log")
            axes.set_xlabel("virtual seconds")
            axes.set_ylabel(label)
        panels[1].legend(frameon=False, handlelength=3.5, loc="lower left")
        panels[0].set_title(f"{data}: one line per run, {len(runs['synchronous'])} of each")


def remarks(session: Session) -> str:
    """Return how the runs were made."""
    given = session.given
    return (
        f"{methods.PAPERS if given.papers else methods.OURS}. "
        "Softmax regression with l2 = 1e-3, full local batches, CD-norm set with deviations up to the prior "
        "and Γ = N/2, the driver's default steps; nothing is tuned. Delays are log-normal (median 1 s, sigma "
        f"0.5), and 5 in 1,000 workers are {SLOWER:g} times slower. Synchronous: S = N, {given.seconds:,.0f} "
        f"virtual seconds. Asynchronous: τ = {PATIENCE}⌈N/S⌉, until the test accuracy reaches the "
        f"final one of the synchronous run. {given.repeats} repeats, mean ± deviation. "
        f"{reporting.effort(session.shown(), session.began)}"
    )
