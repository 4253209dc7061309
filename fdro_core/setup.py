"""From a config to the state machines: the two rounds before the first step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core import schedules
from fdro_core.algorithm import Ask
from fdro_core.config import AspireEase
from fdro_core.errors import InvalidProblem, InvalidSetting, NoWorkersLeft
from fdro_core.master import Master
from fdro_core.messages import Begin, Hello, Introduction, Update
from fdro_core.problem import ProblemSource, build
from fdro_core.worker import Worker
from uncertainty_sets.errors import InvalidInput

Array = NDArray[np.float64]


def check(config: AspireEase, workers: int, uncertainty_set: Any) -> None:
    """The settings and the set against the number of workers."""
    config.resolve(workers)
    check_set(workers, uncertainty_set)


def check_set(workers: int, uncertainty_set: Any) -> None:
    """The set against the number of workers."""
    for method in ("worst_case", "reference"):
        if not callable(getattr(uncertainty_set, method, None)):
            raise InvalidSetting(
                f"uncertainty_set is a {type(uncertainty_set).__name__} without `{method}`; give one of "
                "uncertainty_sets, or a subclass of UncertaintySet"
            )
    size = getattr(uncertainty_set, "size", None)
    if size is not None and size != workers:
        raise InvalidSetting(
            f"the uncertainty set has {size} entries and there are {workers} problems: one entry a worker"
        )


def make_worker(index: int, source: ProblemSource, config: AspireEase) -> Worker:
    """Worker j; runs where the worker lives."""
    return Worker(index, build(source, index), config)


def make_master(config: AspireEase, oracle: Any, workers: int, ask: Ask, start: Array | None) -> Master:
    """The master of ASPIRE-EASE after the two rounds."""
    met = meet(oracle, workers, ask, start, config.metric, config.parameter_bound)
    master = Master(config.resolve(workers), oracle, met.reference, met.z, met.metric, met.first)
    master.notices.extend(met.notices)
    master.sent += met.sent
    master.received += met.received
    return master


@dataclass(frozen=True)
class Meeting:
    """What the two rounds told.

    Attributes:
        z: where to start.
        metric: D.
        reference: q, a distribution in the set.
        first: every worker's loss and curvature at z, None for one that failed.
        samples: every worker's number of samples, None where its problem does not say.
        notices: workers that raised.
        sent, received: numbers on the wire.
    """

    z: Array
    metric: Array
    reference: Array
    first: list[Update | None]
    samples: list[int | None]
    notices: list[dict[str, Any]]
    sent: int
    received: int


def meet(oracle: Any, workers: int, ask: Ask, start: Array | None, metric: str, bound: float) -> Meeting:
    """Ask what the problems are like, then have every worker begin at z⁰ and measure its curvature."""
    replies = ask({j: Hello() for j in range(workers)})
    known: dict[int, Introduction] = {j: r for j, r in replies.items() if isinstance(r, Introduction)}
    failures = {j: r for j, r in replies.items() if isinstance(r, Exception)}
    _raise_if_invalid(failures)
    if not known:
        raise NoWorkersLeft(f"no worker could be made; the first says: {next(iter(failures.values()))}")
    dimension = _one_dimension({j: r.dimension for j, r in known.items()}, start)
    first = next(iter(known.values()))
    z = start if start is not None else first.start if first.start is not None else np.zeros(dimension)
    if z.shape != (dimension,) or not np.isfinite(z).all():
        raise InvalidProblem(
            f"the point to start from must be {dimension} finite numbers, got shape {z.shape}"
        )
    D = np.ones(dimension)
    if metric == "problem":
        D = schedules.metric([_check_metric(j, r) for j, r in known.items()], dimension)
    begin = Begin(np.clip(z, -bound, bound), D)
    begun = ask(dict.fromkeys(known, begin))
    _raise_if_invalid({j: r for j, r in begun.items() if isinstance(r, Exception)})
    reference = np.asarray(oracle.reference(), dtype=np.float64)
    if reference.shape != (workers,):
        raise InvalidSetting(
            f"the set's reference() has shape {reference.shape} and there are {workers} problems: "
            "one entry a worker"
        )
    updates = [begun.get(j) for j in range(workers)]
    usable = [update if isinstance(update, Update) else None for update in updates]
    received = sum(r.numbers for r in known.values()) + sum(u.numbers for u in usable if u is not None)
    return Meeting(
        z=begin.z,
        metric=D,
        reference=reference,
        first=usable,
        samples=[known[j].samples if j in known else None for j in range(workers)],
        notices=[
            {"event": "worker-raised", "worker": j, "reason": str(update)}
            for j, update in enumerate(updates)
            if isinstance(update, Exception)
        ],
        sent=len(known) * (begin.numbers + 1),
        received=received,
    )


def _raise_if_invalid(failures: Mapping[int, Any]) -> None:
    """A problem that is wrong by itself is an error of the caller, not a fault of a worker."""
    for failure in failures.values():
        if isinstance(failure, InvalidInput):
            raise failure


def _one_dimension(dimensions: dict[int, int], start: Array | None) -> int:
    first, dimension = next(iter(dimensions.items()))
    for index, other in dimensions.items():
        if other != dimension:
            raise InvalidProblem(
                f"all problems must have one dimension: problems[{first}] has {dimension}, "
                f"problems[{index}] has {other}"
            )
    if start is not None and start.size != dimension:
        raise InvalidProblem(f"start must have {dimension} entries, as the problems have, got {start.size}")
    return dimension


def _check_metric(index: int, reply: Introduction) -> Array | None:
    if reply.metric is None:
        return None
    metric = np.asarray(reply.metric, dtype=np.float64)
    if metric.shape != (reply.dimension,) or not np.all(np.isfinite(metric) & (metric >= 0)):
        raise InvalidProblem(
            f"problems[{index}].metric() must be {reply.dimension} numbers >= 0, got shape {metric.shape}"
        )
    return metric
