"""Figure 5: AspireModels-ADP changes the number of active workers when a worker becomes slow."""

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
from bench.experiments.presentation.tables import pm, summary
from bench.experiments.runs import compare, curves
from bench.experiments.runs.task import Task

COMMAND = "adaptive"
DATA = ["person-activity", "fashion-mnist"]
METHODS = {
    "AspireModels-ADP": "AspireModels-ADP",
    "AspireModels": "AspireModels, S = 1",
    "AspireModels(-)": "AspireModels(-), S = 3",
}
SLOW_FROM, SLOW_TO, END = 900.0, 1300.0, 2000.0
SLOWER = 10.0
THREE: dict[str, dict[str, Any]] = {"digits": {"digits": (3, 8, 9)}, "person-activity": {"persons": "ABC"}}
"""The loader options that leave three workers of a data set."""

DELAY = (5.0, 0.15)

Runs = dict[str, list[dict[str, Any]]]


def main(arguments: list[str]) -> int:
    """Run the experiment, print the table, write the files."""
    session = Session(options.common(COMMAND, __doc__, DATA), arguments, COMMAND)
    given, shown = session.given, []
    with session.pool() as pool:
        for data in given.data:
            base = task(given, data)
            workers = compare.workers_of(base)
            if workers != 3:
                raise SystemExit(f"{COMMAND} is about three workers; {data} has {workers}")
            tasks = [
                replace(base, method=method, seed=seed)
                for method in METHODS
                for seed in range(given.seed, given.seed + given.repeats)
            ]
            found = pool.run(f"{data}: {given.repeats} repeats", tasks, session.records)
            runs = {name: [r for r in found if r["method"] == method] for method, name in METHODS.items()}
            shown.append(table(data, runs))
            if figures.available():
                draw(given.out, data, runs)
    session.publish(shown, remarks(session))
    return 0


def task(given: Any, data: str) -> Task:
    """Return the task of three workers, the third slow for a while."""
    return options.on_the_clock(
        COMMAND,
        data,
        given.seed,
        END,
        settings={"report_interval": 1},
        l2=1e-3,
        points=60 if given.quick else 120,
        options=THREE.get(data, options.SMALLER.get(data, {})),
        delay=DELAY,
        stragglers=((2, SLOWER, SLOW_FROM, SLOW_TO),),
        held=0.0,
        parts=("train",),
    )


def switches(record: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return when S first fell below N after the delay began, and when it was N again after it ended."""
    clock, active = (np.asarray(record["curve"][name]) for name in ("clock", "active"))
    fell = np.flatnonzero((clock >= SLOW_FROM) & (active < active.max()))
    rose = np.flatnonzero((clock >= SLOW_TO) & (active == active.max()))
    return (
        float(clock[fell[0]]) - SLOW_FROM if fell.size else None,
        float(clock[rose[0]]) - SLOW_TO if rose.size else None,
    )


def between(record: dict[str, Any], name: str, start: float, end: float) -> float:
    """Return how much a quantity of the curve changed between two times."""
    first, last = curves.at([start, end], record["curve"]["clock"], record["curve"][name])
    return float(last - first)


def table(data: str, runs: Runs) -> Table:
    """Return the table: iterations before, during and after the slow time, and the loss that they reach."""
    phases = ((0.0, SLOW_FROM), (SLOW_FROM, SLOW_TO), (SLOW_TO, END))
    headings = [
        "method",
        *(f"iterations in {start:.0f}–{end:.0f} s" for start, end in phases),
        f"fall of Loss_w in {SLOW_FROM:.0f}–{SLOW_TO:.0f} s",
        "Loss_w at the end",
        tables.difference_from("ADP", "Loss_w"),
        "s until S = 1",
        "s until S = N again",
    ]
    rows = []
    ends = {name: [record["metrics"]["loss_w"] for record in records] for name, records in runs.items()}
    for name, records in runs.items():
        counts = []
        for start, end in phases:
            steps = [between(r, "iteration", max(start, r["curve"]["clock"][0]), end) for r in records]
            counts.append(pm(summary(steps), 0))
        adapts = name == METHODS["AspireModels-ADP"]
        seen: Sequence[Any] = [switches(record) for record in records] if adapts else []
        rows.append(
            [
                name,
                *counts,
                pm(summary([-between(r, "loss_w", SLOW_FROM, SLOW_TO) for r in records]), 4),
                pm(summary(ends[name]), 4),
                tables.MISSING
                if adapts
                else reporting.difference(ends[name], ends[METHODS["AspireModels-ADP"]], 4),
                *(reporting.seconds([times[k] for times in seen], 0) for k in (0, 1)),
            ]
        )
    return Table(f"{data}: the third worker is {SLOWER:g} times slower for a while", headings, rows)


def draw(folder: Path, data: str, runs: Runs) -> None:
    """Draw delays, S and the worst loss of the first seed's run."""
    adaptive = runs[METHODS["AspireModels-ADP"]][0]["curve"]
    with figures.canvas(folder, f"adaptive-{data}", columns=3, width=4.2) as (delays, active, loss):
        table_ = np.array(adaptive["delays"])
        for j in range(table_.shape[1]):
            look = figures.look(j) | {"marker": ""}
            delays.plot(adaptive["clock"], table_[:, j], **look)
        peak = int(np.argmax(table_[:, 2]))
        delays.annotate(
            "worker 3",
            (adaptive["clock"][peak], table_[peak, 2]),
            xytext=(-52, -4),
            textcoords="offset points",
            fontsize=8,
        )
        delays.annotate("workers 1 and 2", (150, 1.6 * DELAY[0]), fontsize=8)
        delays.set_ylabel("delay of a message, s")
        delays.set_title("(a) delays")
        active.step(adaptive["clock"], adaptive["active"], where="post", color="black", linewidth=1.3)
        active.set_yticks([1, 2, 3])
        active.set_ylim(0.7, 3.3)
        active.set_ylabel("S, workers waited for")
        active.set_title("(b) AspireModels-ADP's S")
        for number, (name, records) in enumerate(runs.items()):
            curve, look = records[0]["curve"], figures.look(number) | {"marker": ""}
            loss.plot(curve["iteration"], curve["loss_w"], label=name, **look)
        loss.set_xlabel("iterations of the master")
        loss.set_ylabel("worst worker's training loss")
        loss.set_title(f"(c) {data}, one run each, {END:.0f} s")
        for axes in (delays, active):
            axes.axvspan(SLOW_FROM, SLOW_TO, color="#eeeeee", zorder=0, linewidth=0)
            axes.set_xlabel("virtual seconds; grey: worker 3 is slow")
        loss.legend(frameon=False, handlelength=3.5)


def remarks(session: Session) -> str:
    """Return how the runs were made."""
    return (
        f"Three workers; delays are log-normal (median {DELAY[0]:g} s, sigma {DELAY[1]:g}); worker 3's "
        f"are {SLOWER:g} times longer for messages sent in {SLOW_FROM:.0f}–{SLOW_TO:.0f} s. ADP: S = 1 while "
        "a delay is over twice the mean, otherwise S = N. Softmax regression, l2 = 1e-3, full batches, the "
        f"driver's default steps. {session.given.repeats} repeats, mean ± deviation. "
        f"{reporting.effort(session.shown(), session.began)}"
    )
