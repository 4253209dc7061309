"""When a run is looked at and what is kept: at even numbers of gradients, or at even virtual times.

A look scores the model on the workers' data. `of(task, evaluator)` chooses; `perform` knows no difference.
A delay stands for communication: on the virtual clock, several local steps per message are free unless the
task charges `compute` per gradient, as `race` does. The pages with results say which holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bench.experiments.runs import stopping
from bench.experiments.runs.curves import average_over
from bench.experiments.runs.parts import Evaluator, worst_fifth
from bench.experiments.runs.task import Task
from uncertainty_sets.arrays import Array

ENDLESS = 10**9  # gradients: the clock ends these runs

Row = dict[str, Any]
"""One look: its numbers by name."""


class Looks(Protocol):
    """An observer of `solve` that looks at the model now and then, and ends the run."""

    gradients: int

    def __call__(self, run: Any, entry: dict[str, Any]) -> str | None:
        """Look, if it is time; return why the run ends, None if it goes on."""
        ...

    def outcome(self, rules: Sequence[str]) -> dict[str, Any]:
        """Return what the record shows of the looks: "metrics", "curve" and what belongs to the kind."""
        ...

    def models(self) -> dict[str, Array]:
        """Return the models that are judged, by the suffix of their metrics' names; none before a look."""
        ...


def of(task: Task, evaluator: Evaluator, *, delays: bool = False, blind: bool = False) -> Looks:
    """Return the looks that a task asks for.

    `delays` records the workers' delays on the virtual clock; `blind` looks at held-out data alone.
    """
    if task.virtual_seconds > 0:
        return ByClock(evaluator, task, delays, blind)
    return ByGradients(evaluator, task, blind)


CURVE = {
    "gradients": 0,
    "clock": 1,
    "loss_w": 3,
    "acc_w": 3,
    "acc_20": 3,
    "std": 3,
    "held_acc_w": 3,
    "held_acc_20": 3,
    "held_loss_w": 3,
    "planes": 0,
    "bits": 0,
}
"""The quantities of a curve over gradients, with their digits; a curve has those of every look."""


class ByGradients:
    """Looks at evenly spaced numbers of gradients; the stopping rule chooses the model afterwards.

    A look sees held-out data. The test and training data are for what is reported: the rule's model and the
    last fifth of the looks. To score them at every look (`task.whole`) would cost a wide network as much as
    its training.
    """

    def __init__(self, evaluator: Evaluator, task: Task, blind: bool = False) -> None:
        self.evaluator, self.blind, self.whole = evaluator, blind, task.whole
        self.gradients = task.gradients
        self.keeps_curve = task.stage == "run"
        self.judge = task.judge
        self.spacing = task.gradients / task.points
        self.next = self.spacing
        self.seen: list[Array] = []
        self.rows: list[Row] = []
        self.chosen: Array | None = None

    def __call__(self, run: Any, entry: dict[str, Any]) -> str | None:
        """Look, if it is time."""
        if entry["event"] != "report" or entry["gradients"] < self.next:
            return None
        self.next = (entry["gradients"] // self.spacing + 1) * self.spacing
        w = run.master.z.copy()
        self.seen.append(w)
        self.rows.append(
            {
                "gradients": entry["gradients"],
                "clock": entry["clock"],
                "bits": entry["bits_down"] + entry["bits_up"],
                "planes": entry["planes"],
                **(self.score(w) if self.whole else self.held(w)),
            }
        )
        return "budget" if entry["gradients"] >= self.gradients else None

    def held(self, w: Array) -> Row:
        """Score a model on every worker's held-out data."""
        loss, right = self.evaluator.of("held", w)
        return {**_accuracies("held_", right), "held_loss_w": float(loss.max())}

    def score(self, w: Array) -> Row:
        """Score a model on all of every worker's data."""
        if self.blind:
            return self.held(w)
        scores = self.evaluator(w)
        return {
            "loss_w": float(scores.train_loss.max()),
            **_accuracies("", scores.test_accuracy),
            "std": float(scores.test_accuracy.std()),
            **_accuracies("held_", scores.held_accuracy),
            "held_loss_w": float(scores.held_loss.max()),
            "scores": scores,
        }

    def outcome(self, rules: Sequence[str]) -> dict[str, Any]:
        """Return the metrics of the first rule's model; with several rules, those of each beside them."""
        if not (self.whole or self.blind):  # else the looks have all that they may see
            for place in range(len(self.rows))[stopping.tail(len(self.rows))]:
                self.rows[place] |= self.score(self.seen[place])
        found = {rule: stopping.metrics(self.rows, self.seen, self.score, rule, self.judge) for rule in rules}
        metrics, self.chosen = found[rules[0]]
        curve = {
            name: [round(row[name], digits) for row in self.rows]
            for name, digits in CURVE.items()
            if self.keeps_curve and all(name in row for row in self.rows)
        }
        outcome: dict[str, Any] = {"metrics": metrics, "rule": rules[0], "curve": curve}
        if len(rules) > 1:
            kept = ("held_acc_w", "acc_w")
            outcome["rules"] = {
                rule: {name: each[name] for name in kept} for rule, (each, _) in found.items()
            }
        return outcome

    def models(self) -> dict[str, Array]:
        """Return the rule's model and the last one."""
        return {} if self.chosen is None else {"": self.chosen, "_last": self.seen[-1]}


def _accuracies(prefix: str, right: Array) -> Row:
    """The accuracy of the worst worker and of the worst fifth."""
    return {f"{prefix}acc_w": float(right.min()), f"{prefix}acc_20": worst_fifth(right)}


LAST = ("clock", "iteration", "gradients", "bits", "planes", "acc", "acc_w", "acc_20", "test_loss", "loss_w")
"""The metrics of a run on the clock: those of its last look."""


class ByClock:
    """Looks at even virtual times; ends the run when its time is over or its accuracy is reached."""

    def __init__(self, evaluator: Evaluator, task: Task, delays: bool, blind: bool = False) -> None:
        self.evaluator, self.task, self.delays, self.blind = evaluator, task, delays, blind
        self.gradients = ENDLESS
        self.spacing = task.virtual_seconds / task.points
        self.next = 0.0
        self.rows: list[Row] = []
        self.last: Array | None = None

    def __call__(self, run: Any, entry: dict[str, Any]) -> str | None:
        """Look, if it is time."""
        if entry["event"] != "report":
            return None
        clock = entry["clock"]
        over = clock >= self.task.virtual_seconds
        if clock >= self.next or over:
            self.next = self._after(clock)
            self.last = run.master.z.copy()
            self.rows.append(self._row(run, entry, self.last))
            if self.task.until is not None and self.rows[-1]["acc"] >= self.task.until:
                return "accuracy"
        return "time" if over else None

    def _after(self, clock: float) -> float:
        """The time of the next look; early ones are a quarter of their time apart."""
        if self.task.early and clock / 4 < self.spacing:
            return clock + max(clock / 4, self.spacing / 20)
        return (clock // self.spacing + 1) * self.spacing

    def _row(self, run: Any, entry: dict[str, Any], w: Array) -> Row:
        evaluator = self.evaluator
        row = {
            "clock": entry["clock"],
            "iteration": entry["iteration"],
            "gradients": entry["gradients"],
            "bits": entry["bits_down"] + entry["bits_up"],
            "planes": entry.get("planes", 0),
            "active": entry.get("active_workers", 0),
            "objective": entry["objective"],
        }
        if not self.blind or self.task.until is not None:
            loss, right = evaluator.of("test", w)
            shares = evaluator.shares("test")
            row |= {"acc": float(right @ shares), **_accuracies("", right), "test_loss": float(loss @ shares)}
        if "train" in self.task.parts and not self.blind:
            row["loss_w"] = float(evaluator.of("train", w)[0].max())
        if "held" in self.task.parts:
            held_loss, held_right = evaluator.of("held", w)
            row |= {**_accuracies("held_", held_right), "held_loss_w": float(held_loss.max())}
        if self.delays:
            row["delays"] = run.master.roster.current_delays(entry["clock"]).round(2).tolist()
        return row

    def outcome(self, rules: Sequence[str]) -> dict[str, Any]:
        """Return the last look, and what the search for settings judges by; no rule applies.

        The search judges by `held_acc_w` (or `held_acc_20`), the worst-worker accuracy on held-out training
        data averaged over the run's time: a method that gets there sooner, or further, has more. Among equals
        `held_loss_w` decides, averaged alike.
        """
        curve = {} if self.task.stage == "tune" else columns(self.rows)
        if not self.rows:
            nothing = dict.fromkeys(("held_acc_w", "held_acc_20", "acc_w", "acc_20", "acc"), 0.0)
            return {"metrics": nothing, "curve": curve}
        metrics = {name: self.rows[-1][name] for name in LAST if name in self.rows[-1]}
        if "held" in self.task.parts:
            clock = [row["clock"] for row in self.rows]
            for name in ("held_acc_w", "held_acc_20", "held_loss_w"):
                held = [row[name] for row in self.rows]
                metrics[name] = average_over(clock, held, self.task.virtual_seconds)
        return {"metrics": metrics, "curve": curve}

    def models(self) -> dict[str, Array]:
        """Return the last model."""
        return {} if self.last is None else {"": self.last}


MOST = 250  # looks in a stored curve


def thinned(rows: list[Row]) -> list[Row]:
    """Keep about MOST looks at most, the first and the last among them, evenly spaced in log time."""
    if len(rows) <= MOST:
        return rows
    clock = np.array([row["clock"] for row in rows])
    wanted = np.geomspace(clock[0], clock[-1], MOST)
    places = np.unique(np.searchsorted(clock, wanted).clip(max=len(rows) - 1))
    return [rows[place] for place in sorted({0, *places.tolist(), len(rows) - 1})]


DIGITS = {"iteration": 0, "gradients": 0, "bits": 0, "planes": 0, "active": 0, "clock": 2, "objective": 5}
"""Digits of a curve over virtual time; 4 for other quantities."""


def columns(rows: list[Row]) -> dict[str, list[Any]]:
    """Return the looks as one list per quantity, rounded."""
    rows = thinned(rows)
    table: dict[str, list[Any]] = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        if isinstance(values[0], list):
            table[name] = values
        else:
            kept = DIGITS.get(name, 4)
            table[name] = [int(value) if kept == 0 else round(float(value), kept) for value in values]
    return table
