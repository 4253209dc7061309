"""One run: a method on a data set with a seed, watched on the way, and what is written of it."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from bench.datasets import Federation, load
from bench.experiments.runs import backdoor, methods, models, stopping
from bench.experiments.runs.parts import Evaluator, cut
from fdro_core import LogNormal, VirtualEngine, solve
from fdro_core.errors import DriverError, WorkerWarning
from uncertainty_sets.arrays import Array

SCHEMA = 1


@dataclass(frozen=True)
class Task:
    """All that fixes a run; the same task gives the same numbers.

    Attributes:
        experiment: whose run it is.
        data: a name that `bench.datasets.load` knows.
        method: a name of `methods.registry`.
        settings: the method's own.
        stage: "tune" for a trial of the search, "run" for a result.
        seed: of the held-out part, the mini-batches and the delays.
        gradients: local gradients to take, all workers together.
        batch: samples a gradient; None: all.
        model: a name that `models.make` knows.
        l2: the model's ridge.
        points: how often the model is looked at.
        options: the loader's.
        attack: settings of `backdoor.Attack`, or None.
        uncertainty: a set other than the method's own: (name, radius), for `sets.make`.
    """

    experiment: str
    data: str
    method: str
    settings: Mapping[str, Any]
    stage: str
    seed: int
    gradients: int
    batch: int | None
    model: str = "softmax"
    l2: float = 0.0
    points: int = 40
    options: Mapping[str, Any] = field(default_factory=dict)
    attack: Mapping[str, Any] | None = None
    uncertainty: tuple[str, float] | None = None

    def key(self) -> str:
        """The same text for the same task."""
        return json.dumps(asdict(self), sort_keys=True)


@lru_cache(maxsize=4)
def _federation(name: str, options: str) -> Federation:
    return load(name, **json.loads(options))


def federation(task: Task) -> Federation:
    """The data of a task, kept between tasks of one process."""
    return _federation(task.data, json.dumps(dict(task.options), sort_keys=True))


class Watch:
    """An observer that scores the model at evenly spaced numbers of gradients, and ends the run after all."""

    def __init__(self, evaluator: Evaluator, gradients: int, points: int) -> None:
        self.evaluator = evaluator
        self.gradients = gradients
        self.spacing = gradients / points
        self.next = self.spacing
        self.models: list[Array] = []
        self.rows: list[dict[str, Any]] = []

    def __call__(self, run: Any, entry: dict[str, Any]) -> str | None:
        """Look, if it is time."""
        if entry["event"] != "report" or entry["gradients"] < self.next:
            return None
        self.next = (entry["gradients"] // self.spacing + 1) * self.spacing
        w = run.master.z.copy()
        self.models.append(w)
        self.rows.append(
            {
                "gradients": entry["gradients"],
                "clock": entry["clock"],
                "bits": entry["bits_down"] + entry["bits_up"],
                "planes": entry["planes"],
                **self.score(w),
            }
        )
        return "budget" if entry["gradients"] >= self.gradients else None

    def score(self, w: Array) -> dict[str, Any]:
        """How a model does on every worker's data."""
        scores = self.evaluator(w)
        return {
            "loss_w": float(scores.train_loss.max()),
            "acc_w": float(scores.test_accuracy.min()),
            "std": float(scores.test_accuracy.std()),
            "held_acc_w": float(scores.held_accuracy.min()),
            "held_loss_w": float(scores.held_loss.max()),
            "scores": scores,
        }


def curvatures(problems: list[Any], seed: int, batch: int | None = None) -> Array:
    """L_j of every problem at its starting point, as the driver measures it."""
    from fdro_core import AspireEase
    from fdro_core.aspire.worker import Worker
    from fdro_core.contracts.messages import Begin, Hello, Introduction, Update
    from fdro_core.federation.handshake import mean_metric

    workers = [
        Worker(j, problem, AspireEase(seed=seed, batch_size=batch)) for j, problem in enumerate(problems)
    ]
    known = [worker.handle(Hello()) for worker in workers]
    first = known[0]
    assert isinstance(first, Introduction)
    z = np.zeros(first.dimension) if first.start is None else first.start
    metrics = [reply.metric for reply in known if isinstance(reply, Introduction)]
    begin = Begin(z, mean_metric(metrics, first.dimension))
    begun = [worker.handle(begin) for worker in workers]
    return np.array([reply.curvature for reply in begun if isinstance(reply, Update)])


_MEASURED: dict[str, Array] = {}


def measured(task: Task, problems: list[Any]) -> Array:
    """`curvatures`, once a process: the runs of one data set and seed differ in how they are solved."""
    name = replace(task, method="", settings={}, stage="", gradients=0, points=0, uncertainty=None).key()
    if name not in _MEASURED:
        _MEASURED[name] = curvatures(problems, task.seed, task.batch)
    return _MEASURED[name]


CURVE = ("gradients", "clock", "loss_w", "acc_w", "std", "held_acc_w", "held_loss_w", "planes")
DIGITS = {"gradients": 0, "planes": 0, "clock": 1}


@contextmanager
def allowing_divergence() -> Iterator[None]:
    """Steps may be so long that nothing finite is left: the record shows it, nobody needs to be warned."""
    with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", WorkerWarning)
        yield


def perform(
    task: Task, data: Federation | None = None, rules: Sequence[str] = (stopping.RULE,)
) -> dict[str, Any]:
    """Run it; the record is one line of the results file.

    `data` stands in for the task's own. The metrics are those of the first rule; with several, those of
    each are beside them.
    """
    began, cpu = time.perf_counter(), time.process_time()
    data = data or federation(task)
    attack = None if task.attack is None else backdoor.prepare(data, task.attack)
    clients = list(data.clients) if attack is None else attack.clients
    parts = cut(clients, task.seed)
    honest = len(data.clients)
    model = models.make(task.model, data.clients[0].X_train.shape[1], data.classes, task.seed, task.l2)
    evaluator = Evaluator(parts[:honest], model)  # a malicious worker's accuracy is nobody's concern
    problems = [model.problem(*part.train) for part in parts]
    setup = methods.Setup(
        prior=np.full(len(parts), 1 / len(parts)) if attack is None else attack.prior,
        spread=None if attack is None else attack.spread,
        gradients=task.gradients,
        batch=task.batch,
        seed=task.seed,
        curvatures=measured(task, problems),
    )
    method = methods.registry(len(parts))[task.method]
    chosen = method.uncertainty_set(setup, task.settings)
    if task.uncertainty is not None:
        from bench.experiments.runs import sets

        chosen = sets.make(*task.uncertainty, setup.prior)
    watch = Watch(evaluator, task.gradients, task.points)
    engine = VirtualEngine(seed=task.seed, delays=LogNormal(1.0, 0.5))
    weights, objective, reason = None, None, ""
    try:
        with allowing_divergence():
            result = solve(
                problems, chosen, algorithm=method.config(setup, task.settings), engine=engine, observers=[watch]
            )
        weights, objective, reason = result.weights.round(5).tolist(), result.objective, result.stop_reason
    except DriverError as error:  # steps so long that nothing finite is left: a bad trial, not a bug
        reason = type(error).__name__
    metrics, w = stopping.metrics(watch.rows, watch.models, watch.score, rules[0])
    if attack is not None and w is not None:
        metrics["success"] = attack.success(lambda X: models.labels(model.scores(w, X)))
        metrics["success_last"] = attack.success(lambda X: models.labels(model.scores(watch.models[-1], X)))
    record = asdict(task) | {
        "schema": SCHEMA,
        "metrics": metrics,
        "rule": rules[0],
        "weights": weights,
        "objective": objective,
        "stop": reason,
        "seconds": round(time.perf_counter() - began, 2),
        "cpu": round(time.process_time() - cpu, 2),
    }
    if len(rules) > 1:
        every = {rule: stopping.metrics(watch.rows, watch.models, watch.score, rule)[0] for rule in rules}
        record["rules"] = {
            rule: {name: found[name] for name in ("held_acc_w", "acc_w")} for rule, found in every.items()
        }
    if task.stage == "run":
        record["curve"] = {
            name: [round(row[name], DIGITS.get(name, 3)) for row in watch.rows] for name in CURVE
        }
    return record
