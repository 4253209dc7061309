"""Runs on the virtual clock: a method under delays and stragglers, looked at by time rather than by work.

A message costs the same time whatever it asks for, so delays stand for communication: a method with several
local steps a message has them for nothing. Said where results are shown.
"""

from __future__ import annotations

from uncertainty_sets.arrays import Array

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.experiments.runs import methods

from bench.experiments.runs import models

from bench.experiments.runs import sets
from bench.experiments.runs.curves import average_over
from bench.experiments.runs.parts import HELD_OUT, Evaluator, cut
from bench.experiments.runs.task import SCHEMA, Task, allowing_divergence, curvatures, federation
from fdro_core import Adaptive, AspireEase, LogNormal, Straggler, VirtualEngine, solve
from fdro_core.contracts.algorithm import Algorithm
from fdro_core.errors import DriverError
from uncertainty_sets import CDNorm


LOADING: dict[str, dict[str, Any]] = {
    "fashion-mnist": {"pool": 2},
    "mnist-1000": {"pool": 2},
}
"""How data sets are loaded for runs on the clock: images averaged over 2 × 2 pixels cost a quarter."""

ENDLESS = 10**9  # iterations or gradients: the clock ends these runs

VARIANTS: dict[str, dict[str, Any]] = {
    "ASPIRE-EASE": {},
    "ASPIRE-CP": {"planes": "cp"},
    "ASPIRE-EASE(-)": {"active_workers": "all"},
    "ASPIRE-ADP": {"adaptive": Adaptive(few=1, rule="mean", threshold=2.0)},
}
"""The paper's variants where steps follow the driver's default rules: nothing is tuned."""


@dataclass(frozen=True)
class TimedTask(Task):
    """A task that the clock ends, not a number of gradients.

    A method of `VARIANTS` without a "penalty" in its settings takes the driver's default rules, and its
    settings are those of `AspireEase`.

    Attributes:
        virtual_seconds: how long it runs.
        until: stop before, where the pooled test accuracy reaches this.
        delay: median and sigma of the log-normal delay of a message.
        stragglers: (worker, factor, from, to); "to" None: for good.
        held: share of the training data held out.
        parts: of "train" and "held", what is looked at beside the test data.
        budget: Γ of the CD-norm set, where the settings have none; None: N.
        spread: its largest deviations as a multiple of the prior; None: as in `Setup.limits`.
    """

    virtual_seconds: float = 0.0
    until: float | None = None
    delay: tuple[float, float] = (1.0, 0.5)
    stragglers: tuple[tuple[int, float, float, float | None], ...] = ()
    held: float = HELD_OUT
    parts: tuple[str, ...] = ("train", "held")
    budget: float | None = None
    spread: float | None = None

    def engine(self) -> VirtualEngine:
        """Delays and stragglers."""
        slow = [Straggler(j, by, since, np.inf if to is None else to) for j, by, since, to in self.stragglers]
        return VirtualEngine(seed=self.seed, delays=LogNormal(*self.delay), stragglers=slow)


def begin(command: str, data: str, seed: int, seconds: float, **more: Any) -> TimedTask:
    """The task that a command's tasks on a data set are made from, full batches unless `more` says so."""
    usual = {"method": "", "settings": {}, "batch": None, "options": LOADING.get(data, {})}
    return TimedTask(
        experiment=command,
        data=data,
        stage="run",
        seed=seed,
        gradients=0,
        virtual_seconds=seconds,
        **usual | more,
    )


class PartScores(Evaluator):
    """Scores on one part of the data at a time."""

    def of(self, name: str, w: Array) -> tuple[Array, Array]:
        """Mean losses and accuracies by worker on "train", "held" or "test"."""
        return self._of(name, w)

    def shares(self, name: str) -> Array:
        """Every worker's share of the samples."""
        counts = self.stacks[name][3]
        shares: Array = counts / counts.sum()
        return shares


class ClockWatch:
    """An observer that looks at the model at even times and ends the run when its time is over."""

    def __init__(self, evaluator: PartScores, task: TimedTask) -> None:
        self.evaluator, self.task = evaluator, task
        self.spacing = task.virtual_seconds / task.points
        self.next = 0.0
        self.rows: list[dict[str, Any]] = []

    def __call__(self, run: Any, entry: dict[str, Any]) -> str | None:
        """Look, if it is time."""
        if entry["event"] != "report":
            return None
        clock = entry["clock"]
        over = clock >= self.task.virtual_seconds
        if clock >= self.next or over:
            self.next = (clock // self.spacing + 1) * self.spacing
            self.rows.append(self._row(run, entry))
            if self.task.until is not None and self.rows[-1]["acc"] >= self.task.until:
                return "accuracy"
        return "time" if over else None

    def _row(self, run: Any, entry: dict[str, Any]) -> dict[str, Any]:
        evaluator, w = self.evaluator, run.master.z
        loss, right = evaluator.of("test", w)
        shares = evaluator.shares("test")
        row = {
            "clock": entry["clock"],
            "iteration": entry["iteration"],
            "gradients": entry["gradients"],
            "planes": entry.get("planes", 0),
            "active": entry.get("active_workers", 0),
            "objective": entry["objective"],
            "acc": float(right @ shares),
            "acc_w": float(right.min()),
            "test_loss": float(loss @ shares),
        }
        if "train" in self.task.parts:
            row["loss_w"] = float(evaluator.of("train", w)[0].max())
        if "held" in self.task.parts:
            row["held_acc_w"] = float(evaluator.of("held", w)[1].min())
        if self.task.method == "ASPIRE-ADP":
            row["delays"] = run.master.roster.current_delays(entry["clock"]).round(2).tolist()
        return row


def ruled(task: TimedTask) -> bool:
    """Whether steps follow the driver's default rules."""
    return task.method in VARIANTS and "penalty" not in task.settings


def config(task: TimedTask, setup: methods.Setup) -> Algorithm:
    """The algorithm of a task."""
    if ruled(task):
        options = dict(VARIANTS[task.method]) | dict(task.settings)
        if options.get("active_workers") == "all":
            options["active_workers"] = setup.workers
        return AspireEase(iterations=ENDLESS, batch_size=task.batch, seed=task.seed, **options)
    return methods.registry(setup.workers)[task.method].config(setup, task.settings)


def uncertainty_set(task: TimedTask, setup: methods.Setup) -> Any:
    """The set of a task."""
    if task.uncertainty is not None:
        return sets.make(*task.uncertainty, setup.prior)
    budget = task.settings.get("budget", task.budget or float(setup.workers))
    spread = setup.limits() if task.spread is None else task.spread * setup.prior
    return CDNorm(setup.prior, spread, budget)


def perform(task: TimedTask) -> dict[str, Any]:
    """Run it; the record is one line of the results file."""
    began, cpu = time.perf_counter(), time.process_time()
    data = federation(task)
    parts = cut(data.clients, task.seed, task.held)
    model = models.make(task.model, data.features, data.classes, task.seed, task.l2)
    watch = ClockWatch(PartScores(parts, model), task)
    problems = [model.problem(*part.train) for part in parts]
    setup = methods.Setup(
        prior=np.full(len(parts), 1 / len(parts)),
        gradients=ENDLESS,
        batch=task.batch,
        seed=task.seed,
        curvatures=np.ones(len(parts)) if ruled(task) else curvatures(problems, task.seed, task.batch),
    )
    try:
        with allowing_divergence():
            result = solve(
                problems,
                uncertainty_set(task, setup),
                algorithm=config(task, setup),
                engine=task.engine(),
                observers=[watch],
            )
        objective, reason = float(result.objective), result.stop_reason
    except DriverError as error:  # steps so long that nothing finite is left: a bad trial, not a bug
        objective, reason = None, type(error).__name__
    return asdict(task) | {
        "schema": SCHEMA,
        "metrics": summary(task, watch.rows),
        "objective": objective,
        "stop": reason,
        "curve": {} if task.stage == "tune" else columns(watch.rows),
        "seconds": round(time.perf_counter() - began, 2),
        "cpu": round(time.process_time() - cpu, 2),
    }


DIGITS = {
    "clock": 2,
    "iteration": 0,
    "gradients": 0,
    "planes": 0,
    "active": 0,
    "objective": 5,
    "test_loss": 4,
}


MOST = 250


def thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most about MOST looks, the first and the last among them, dense early on: even in log time."""
    if len(rows) <= MOST:
        return rows
    clock = np.array([row["clock"] for row in rows])
    wanted = np.geomspace(clock[0], clock[-1], MOST)
    places = np.unique(np.searchsorted(clock, wanted).clip(max=len(rows) - 1))
    return [rows[place] for place in sorted({0, *places.tolist(), len(rows) - 1})]


def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The looks as one list a quantity, with as many digits as say something."""
    rows = thinned(rows)
    table: dict[str, list[Any]] = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        if isinstance(values[0], list):
            table[name] = values
        else:
            digits = DIGITS.get(name, 4)
            table[name] = [int(value) if digits == 0 else round(float(value), digits) for value in values]
    return table


def summary(task: TimedTask, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The last look, and what the search for settings judges by.

    That is `held_acc_w`, the worst-worker accuracy on held-out training data averaged over the run's time: a
    method that gets there sooner, or further, has more.
    """
    if not rows:
        return {"held_acc_w": 0.0, "acc_w": 0.0, "acc": 0.0}
    names = ("clock", "iteration", "gradients", "planes", "acc", "acc_w", "test_loss", "loss_w")
    found = {name: rows[-1][name] for name in names if name in rows[-1]}
    if "held" in task.parts:
        clock = [row["clock"] for row in rows]
        found["held_acc_w"] = average_over(clock, [row["held_acc_w"] for row in rows], task.virtual_seconds)
    return found
