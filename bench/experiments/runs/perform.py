"""Execute one task: the only way from a task to its record, whether gradients or the clock end it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from bench.datasets import Federation
from bench.experiments.runs import backdoor, looks, methods, models, sets, stopping
from bench.experiments.runs.backdoor import Attack
from bench.experiments.runs.models import Model
from bench.experiments.runs.parts import Evaluator, cut
from bench.experiments.runs.task import SCHEMA, Task, federation
from fdro_core import LogNormal, Straggler, VirtualEngine, solve
from fdro_core.errors import DriverError, WorkerWarning
from fdro_core.master.handshake import mean_metric
from fdro_core.master.worker import FederatedWorker
from fdro_core.protocol.messages import Begin, Hello, Introduction, Update
from uncertainty_sets.arrays import Array


def perform(
    task: Task, data: Federation | None = None, rules: Sequence[str] = (stopping.RULE,)
) -> dict[str, Any]:
    """Run a task and return its record, one line of the results file.

    `data` replaces the task's own. The metrics are those of the first rule; with several rules, the record
    has those of each. A trial of a search is scored on held-out data alone: it needs no more, and test data
    cannot choose settings.
    """
    began, cpu = time.perf_counter(), time.process_time()
    data = data or federation(task)
    attack = None if task.attack is None else backdoor.prepare(data, task.attack)
    parts = cut(data.clients if attack is None else attack.clients, task.seed, task.held)
    model = models.make(task.model, data.features, data.classes, task.seed, task.l2)
    problems = [model.problem(*part.train) for part in parts]
    method = methods.registry(len(parts))[task.method]
    honest = parts[: len(data.clients)]  # the malicious workers' accuracy is not judged
    blind = task.stage == "tune" and len(rules) == 1
    watched = method.watches_delays and len(parts) <= methods.MANY  # a curve has everyone's at every look
    seen = looks.of(task, Evaluator(honest, model), delays=watched, blind=blind)
    prior = np.full(len(parts), 1 / len(parts)) if attack is None else attack.prior
    setup = methods.Setup(
        prior=prior,
        gradients=seen.gradients,
        batch=task.batch,
        seed=task.seed,
        measure=lambda: measured(task, problems),
        spread=_spread(task, prior, attack),
        budget=methods.WHOLE_SIMPLEX if task.budget is None else task.budget,
    )
    ended = _solve(task, method, setup, problems, seen)
    outcome = seen.outcome(rules)
    if attack is not None and not blind:
        outcome["metrics"] |= _success(attack, model, seen.models())
    return asdict(task) | {
        "schema": SCHEMA,
        **outcome,
        **ended,
        "seconds": round(time.perf_counter() - began, 2),
        "cpu": round(time.process_time() - cpu, 2),
    }


def uncertainty_set(task: Task, method: methods.Method, setup: methods.Setup) -> Any:
    """Return the set of a task: the one it names, else the method's."""
    if task.uncertainty is not None:
        return sets.make(*task.uncertainty, setup.prior)
    return method.uncertainty_set(setup, task.settings)


def _spread(task: Task, prior: Array, attack: Attack | None) -> Array | None:
    """Return the largest deviations from the prior that the task or the attack names; None: the default."""
    if task.spread is not None:
        return np.asarray(task.spread * prior)
    return None if attack is None else attack.spread


def _solve(
    task: Task, method: methods.Method, setup: methods.Setup, problems: Sequence[Any], seen: looks.Looks
) -> dict[str, Any]:
    """Solve and return how the run ended; a run that diverges is a bad trial, not an error.

    An exception is one: a rival with a mistake in its code must not pass for a weak one.
    """
    try:
        with allowing_divergence():
            result = solve(
                problems,
                uncertainty_set(task, method, setup),
                algorithm=method.config(setup, task.settings),
                engine=engine(task),
                observers=[seen],
            )
    except DriverError as error:  # steps so long that no finite number is left
        if error.__cause__ is not None:
            raise
        return {"weights": None, "objective": None, "stop": type(error).__name__}
    return {
        "weights": result.weights.round(5).tolist(),
        "objective": float(result.objective),
        "stop": result.stop_reason,
    }


def engine(task: Task) -> VirtualEngine:
    """Return the engine with the task's delays and stragglers."""
    slow = [Straggler(j, by, since, np.inf if to is None else to) for j, by, since, to in task.stragglers]
    return VirtualEngine(seed=task.seed, delays=LogNormal(*task.delay), stragglers=slow, compute=task.compute)


@contextmanager
def allowing_divergence() -> Iterator[None]:
    """Silence the warnings of runs that diverge: the record shows it."""
    with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", WorkerWarning)
        yield


def _success(attack: Attack, model: Model, judged: dict[str, Array]) -> dict[str, float]:
    """Return how often the attack succeeds on each model that is judged."""

    def rate(w: Array) -> float:
        return attack.success(lambda X: models.labels(model.scores(w, X)))

    return {f"success{suffix}": rate(w) for suffix, w in judged.items()}


_known: dict[str, Array] = {}


def measure(problems: Sequence[Any], seed: int, batch: int | None = None) -> Array:
    """Measure L_j of every problem at its starting point, by power iterations."""
    workers = [FederatedWorker(j, problem, seed=seed, batch_size=batch) for j, problem in enumerate(problems)]
    known = [worker.handle(Hello()) for worker in workers]
    first = known[0]
    assert isinstance(first, Introduction)
    z = np.zeros(first.dimension) if first.start is None else first.start
    metrics = [reply.metric for reply in known if isinstance(reply, Introduction)]
    begin = Begin(z, mean_metric(metrics, first.dimension))
    begun = [worker.handle(begin) for worker in workers]
    return np.array([reply.curvature for reply in begun if isinstance(reply, Update)])


def measured(task: Task, problems: Sequence[Any]) -> Array:
    """Measure once per process: the runs of one experiment, data set and seed differ in how they are solved.

    The experiment is part of the key, since `rehearse` puts other data in the place of the task's.
    """
    name = replace(
        task,
        method="",
        settings={},
        stage="",
        gradients=0,
        points=0,
        uncertainty=None,
        virtual_seconds=0.0,
        until=None,
        stragglers=(),
        budget=None,
        spread=None,
        compute=0.0,
        judge="",
        early=False,
        parts=(),
    ).key()
    if name not in _known:
        _known[name] = measure(problems, task.seed, task.batch)
    return _known[name]
