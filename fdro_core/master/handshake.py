"""The handshake before the first step: ask what the problems are like, then have every worker begin at z⁰."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fdro_core.errors import (
    InvalidProblem,
    InvalidReply,
    InvalidSetting,
    NoWorkersLeft,
    WorkerFailed,
    WorkerWarning,
)
from fdro_core.master.outliers import others_median, unequal
from fdro_core.protocol.algorithm import Ask, Oracle
from fdro_core.protocol.failures import traceback_of, words
from fdro_core.protocol.messages import Begin, Hello, Introduction, Reply
from fdro_core.protocol.replies import LARGEST
from fdro_core.protocol.settings import check_object
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.registry import join_names

METRIC_FLOOR = 1e-12  # of the largest entry
OUTSIDE = 1e-7  # a reference that violates the set by more is not in it; conic answers reach 1e-8

Kind = TypeVar("Kind", bound=Reply)


@dataclass(frozen=True)
class Handshake:
    """What a master learns of its workers before the first step.

    Attributes:
        z: where to start.
        metric: D.
        reference: q, a distribution in the set.
        first: every worker's reply to `Begin`: loss and curvature at z; None for one that failed.
        failures: what those raised, or the error for what they sent instead.
        samples: every worker's number of samples, None if its problem does not say.
        suspicious: whose metric or curvature is far beyond the others', and what it is.
        sent, received: numbers on the wire.
    """

    z: Array
    metric: Array
    reference: Array
    first: list[Any]
    failures: Mapping[int, Exception]
    samples: list[int | None]
    suspicious: Mapping[int, str]
    sent: int
    received: int

    def measured(self) -> tuple[Array, Array, Array]:
        """f_j, ‖∇f_j‖² and L_j at z; for a worker that failed the mean loss of the others, 0 and 0."""
        reports = [
            (np.nan, 0.0, 0.0) if update is None else (update.loss, update.gradient_sq, update.curvature)
            for update in self.first
        ]
        losses, gradient_sq, curvature = np.array(reports).T.copy()
        known = np.isfinite(losses)
        losses[~known] = losses[known].mean()
        return losses, gradient_sq, curvature


def check_set(workers: int, uncertainty_set: Any) -> None:
    """Check that the set has what an algorithm uses, and one entry for each worker."""
    check_object("uncertainty_set", uncertainty_set, ("worst_case", "reference"), "KL(center, radius)")
    size = getattr(uncertainty_set, "size", None)
    if size is not None and size != workers:
        raise InvalidSetting(
            f"the uncertainty set has {size} entries and there are {workers} problems: give one entry per "
            "worker"
        )


def shake_hands(
    oracle: Oracle,
    workers: int,
    ask: Ask,
    start: Array | None,
    *,
    use_metrics: bool = True,
    bound: float = np.inf,
    on_failed_start: str = "raise",
    begin_with: type[Begin] = Begin,
    clip: float | None = None,
) -> Handshake:
    """Ask what the problems are like, then have every worker begin at z⁰ and measure its curvature.

    Args:
        oracle: the uncertainty set.
        workers: N.
        ask: the engine's `ask`.
        start: z⁰; None: the first problem's `initial_point`, or zeros.
        use_metrics: whether D is the mean of the problems' metrics, rather than 1.
        bound: α₁, to which z⁰ is clipped.
        on_failed_start: "raise" if a worker fails, or "warn" and go on without it.
        begin_with: the class of the second question; its replies have `loss`, `gradient_sq` and `curvature`.
        clip: how much larger than the median of the others' a worker's metric may be; None: no bound.
    """
    failures: dict[int, Exception] = {}
    known = _sorted(ask({j: Hello() for j in range(workers)}), Introduction, failures)
    _end_on(failures, workers, on_failed_start)
    z = _starting_point(known, start)
    metric, odd = _common_metric(known, z.size, clip) if use_metrics else (np.ones(z.size), [])
    begin = begin_with(np.clip(z, -bound, bound), metric)
    kind: Any = begin.answer
    begun: dict[int, Any] = _sorted(ask(dict.fromkeys(known, begin)), kind, failures)
    _end_on(failures, workers, on_failed_start)
    odd += unequal("curvature", {j: update.curvature for j, update in begun.items()})
    return Handshake(
        z=begin.z,
        metric=metric,
        reference=_reference(oracle, workers),
        first=[begun.get(j) for j in range(workers)],
        failures=failures,
        samples=[known[j].samples if j in known else None for j in range(workers)],
        suspicious=dict(reversed(odd)),
        sent=len(known) * (begin.numbers + 1),
        received=sum(reply.numbers for replies in (known, begun) for reply in replies.values()),
    )


def _starting_point(known: Mapping[int, Introduction], start: Array | None) -> Array:
    """z⁰: the point given, else the one that a problem proposes, else zeros."""
    dimension = _one_dimension({j: reply.dimension for j, reply in known.items()}, start)
    proposed = next(iter(known.values())).start
    z = start if start is not None else proposed if proposed is not None else np.zeros(dimension)
    if z.shape != (dimension,) or not (np.abs(z) <= LARGEST).all():
        raise InvalidProblem(
            f"the point to start from must be {dimension} finite numbers, got shape {z.shape}"
        )
    return z


def _common_metric(
    known: Mapping[int, Introduction], dimension: int, clip: float | None
) -> tuple[Array, list[tuple[int, str]]]:
    """The mean of the problems' metrics, and whose is far beyond the others'.

    With `clip`, a metric whose largest entry is above that many times the median of the others' is scaled
    down to it.
    """
    metrics = {j: _check_metric(j, reply) for j, reply in known.items()}
    largest = {j: 1.0 if metric is None else float(metric.max()) for j, metric in metrics.items()}
    offered = list(metrics.values())
    if clip is not None and len(largest) > 2:
        sizes = np.array(list(largest.values()))
        longest = clip * others_median(sizes)
        part = np.divide(longest, sizes, out=np.ones_like(sizes), where=(sizes > longest) & (longest > 0))
        offered = [None if metric is None else a * metric for a, metric in zip(part, offered, strict=True)]
    return mean_metric(offered, dimension), unequal("metric", largest)


def mean_metric(metrics: list[Array | None], dimension: int) -> Array:
    """The mean of the metrics offered, floored; a worker that offers none counts as 1.

    >>> mean_metric([np.array([1.0, 3.0]), None], 2)
    array([1., 2.])
    """
    total = np.zeros(dimension)
    for part in metrics:
        total += 1.0 if part is None else part
    mean: Array = total / len(metrics)
    return np.maximum(mean, METRIC_FLOOR * mean.max()) if mean.max() > 0 else np.ones(dimension)


def _reference(oracle: Oracle, workers: int) -> Array:
    """The set's reference, with one entry for each worker."""
    reference = np.asarray(oracle.reference(), dtype=np.float64)
    if reference.shape != (workers,):
        raise InvalidSetting(
            f"the set's reference() has shape {reference.shape} and there are {workers} problems: "
            "it must have one entry per worker"
        )
    measure = getattr(oracle, "violation", None)
    off = float(measure(reference)) if callable(measure) else 0.0
    if not off <= OUTSIDE:
        raise InvalidSetting(
            f"the set's reference() is {reference!s:.80}, which is not in the set: its violation is "
            f"{off:.3g}. Every run starts there, so it must be a distribution in the set"
        )
    return reference


def _sorted(replies: Mapping[int, Any], kind: type[Kind], failures: dict[int, Exception]) -> dict[int, Kind]:
    """The replies of the kind asked for; everything else is added to the failures.

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
    """Have every worker introduce itself before a run is resumed.

    One that fails ends the run or is warned of, as `on_failed_start` says, unless the run had dropped it.
    """
    failures: dict[int, Exception] = {}
    _sorted(ask({j: Hello() for j in range(workers)}), Introduction, failures)
    try:
        dropped = set(state["master"]["roster"]["dropped"])
    except (LookupError, TypeError):  # reported when the state is checked
        dropped = set()
    failed = {j: error for j, error in failures.items() if j not in dropped}
    _end_on(failed, workers, getattr(algorithm, "on_failed_start", "raise"))
    for j, error in failed.items():
        warning = f"worker {j} failed when the run was resumed: {words(error)}\n{traceback_of(error)}"
        warnings.warn(warning.rstrip(), WorkerWarning, stacklevel=4)


def _end_on(failures: Mapping[int, Exception], workers: int, setting: str) -> None:
    """Raise if no worker is left, or if one has failed and the setting is not "warn"."""
    if not failures or (setting == "warn" and len(failures) < workers):
        return
    j, error = next(iter(failures.items()))
    if len(failures) == workers:
        raise NoWorkersLeft(
            f"every worker failed before the first step; worker {j}: {words(error)}"
        ) from error
    others = f"; so did {join_names([str(k) for k in failures if k != j])}" if len(failures) > 1 else ""
    failed = WorkerFailed(
        f"worker {j} failed before the first step: {words(error)}{others}. The traceback is above. "
        'Fix it, or go on without this worker: set on_failed_start="warn"'
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
