"""The curvature of every worker's problem at the start, as the driver measures it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.experiments.runs.task import Task
from fdro_core.master.handshake import mean_metric
from fdro_core.master.worker import FederatedWorker
from fdro_core.protocol.messages import Begin, Hello, Introduction, Update
from uncertainty_sets.arrays import Array

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
