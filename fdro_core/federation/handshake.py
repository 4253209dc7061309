"""From a config to the state machines: the two rounds before the first step."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from fdro_core.aspire import step_sizes as schedules
from fdro_core.aspire.master import Master
from fdro_core.aspire.settings import AspireEase
from fdro_core.aspire.worker import Worker
from fdro_core.contracts.algorithm import Ask
from fdro_core.contracts.failures import traceback_of, words
from fdro_core.contracts.messages import Begin, Hello, Introduction, Update
from fdro_core.contracts.problem import ProblemSource, build
from fdro_core.contracts.replies import LARGEST
from fdro_core.errors import (
    InvalidProblem,
    InvalidReply,
    InvalidSetting,
    NoWorkersLeft,
    WorkerFailed,
    WorkerWarning,
)
from fdro_core.federation.meeting import Meeting
from fdro_core.federation.outliers import unequal
from fdro_core.words import one_or_more
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidInput

Kind = TypeVar("Kind", Introduction, Update)


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
    return Master(config.resolve(workers), oracle, meet(oracle, workers, ask, start, config))


def meet(oracle: Any, workers: int, ask: Ask, start: Array | None, config: AspireEase) -> Meeting:
    """Ask what the problems are like, then have every worker begin at z⁰ and measure its curvature.

    Where a worker fails, the run ends here, or goes on without it if `on_failed_start` says so.
    """
    failures: dict[int, Exception] = {}
    known = _sorted(ask({j: Hello() for j in range(workers)}), Introduction, failures)
    _end_on(failures, workers, config.on_failed_start)
    dimension = _one_dimension({j: r.dimension for j, r in known.items()}, start)
    first = next(iter(known.values()))
    z = start if start is not None else first.start if first.start is not None else np.zeros(dimension)
    if z.shape != (dimension,) or not (np.abs(z) <= LARGEST).all():
        raise InvalidProblem(
            f"the point to start from must be {dimension} finite numbers, got shape {z.shape}"
        )
    D, odd = np.ones(dimension), []
    if config.metric == "problem":
        metrics = {j: _check_metric(j, r) for j, r in known.items()}
        D = schedules.metric(list(metrics.values()), dimension)
        odd = unequal("metric", {j: 1.0 if m is None else float(m.max()) for j, m in metrics.items()})
    bound = config.parameter_bound
    begin = Begin(np.clip(z, -bound, bound), D)
    begun = _sorted(ask(dict.fromkeys(known, begin)), Update, failures)
    _end_on(failures, workers, config.on_failed_start)
    odd += unequal("curvature", {j: update.curvature for j, update in begun.items()})
    reference = np.asarray(oracle.reference(), dtype=np.float64)
    if reference.shape != (workers,):
        raise InvalidSetting(
            f"the set's reference() has shape {reference.shape} and there are {workers} problems: "
            "one entry a worker"
        )
    return Meeting(
        z=begin.z,
        metric=D,
        reference=reference,
        first=[begun.get(j) for j in range(workers)],
        failures=failures,
        samples=[known[j].samples if j in known else None for j in range(workers)],
        suspicious=dict(reversed(odd)),
        sent=len(known) * (begin.numbers + 1),
        received=sum(reply.numbers for replies in (known, begun) for reply in replies.values()),
    )


def _sorted(replies: Mapping[int, Any], kind: type[Kind], failures: dict[int, Exception]) -> dict[int, Kind]:
    """The replies of the kind asked for; what else came is put with the failures.

    A problem that is wrong by itself is an error of the caller, not a fault of a worker, and raised at once.
    """
    good: dict[int, Kind] = {}
    for j, reply in replies.items():
        if isinstance(reply, InvalidInput):
            raise reply
        if isinstance(reply, kind):
            good[j] = reply
        elif isinstance(reply, Exception):
            failures[j] = reply
        else:
            failures[j] = InvalidReply(f"worker {j} replied a {type(reply).__name__}")
    return good


def greet(ask: Ask, workers: int, algorithm: Any, state: Mapping[str, Any]) -> None:
    """Have every worker introduce itself before a run is gone on with.

    One that fails ends it or is warned of, as `on_failed_start` says; those that the run had dropped may.
    """
    failures: dict[int, Exception] = {}
    _sorted(ask({j: Hello() for j in range(workers)}), Introduction, failures)
    try:
        dropped = set(state["master"]["roster"]["dropped"])
    except (LookupError, TypeError):  # said when the state is looked over
        dropped = set()
    failed = {j: error for j, error in failures.items() if j not in dropped}
    _end_on(failed, workers, getattr(algorithm, "on_failed_start", "raise"))
    for j, error in failed.items():
        said = f"worker {j} failed when the run was resumed: {words(error)}\n{traceback_of(error)}"
        warnings.warn(said.rstrip(), WorkerWarning, stacklevel=4)


def _end_on(failures: Mapping[int, Exception], workers: int, setting: str) -> None:
    """No worker is left, or one has failed and nobody said that the run may do without."""
    if not failures or (setting == "warn" and len(failures) < workers):
        return
    j, error = next(iter(failures.items()))
    if len(failures) == workers:
        raise NoWorkersLeft(
            f"every worker failed before the first step; worker {j}: {words(error)}"
        ) from error
    others = f"; so did {one_or_more([str(k) for k in failures if k != j])}" if len(failures) > 1 else ""
    failed = WorkerFailed(
        f"worker {j} failed before the first step: {words(error)}{others}. The traceback is above. "
        'Mend it, or go on without: on_failed_start="warn" among the settings'
    )
    failed.worker = j
    raise failed from error


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
    wrong = ~((metric >= 0) & (metric <= LARGEST))
    if metric.shape != (reply.dimension,) or wrong.any():
        found = f"{metric[wrong][0]} among them" if wrong.any() else f"shape {metric.shape}"
        raise InvalidProblem(
            f"problems[{index}].metric() must be {reply.dimension} numbers in 0..{LARGEST:g}, got {found}"
        )
    return metric
