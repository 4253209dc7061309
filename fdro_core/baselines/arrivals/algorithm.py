"""Asynchronous arrivals as an algorithm: how masters and workers are made from a method's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fdro_core.baselines.arrivals.master import ArrivalMaster
from fdro_core.baselines.arrivals.method import ArrivalMethod
from fdro_core.baselines.rounds.worker import RoundWorker
from fdro_core.contracts.algorithm import Ask
from fdro_core.contracts.engine import WorkerFactory
from fdro_core.contracts.problem import ProblemSource, build
from fdro_core.contracts.settings import check_settings, documented
from fdro_core.federation.handshake import check_set, shake_hands
from uncertainty_sets.arrays import Array


@documented
@dataclass(frozen=True, kw_only=True)
class Arrivals(ArrivalMethod):
    """The parent of every asynchronous method: a subclass overrides `combine`, and what that needs."""

    def check(self, workers: int, uncertainty_set: Any) -> None:
        """Check the settings and the set against the number of workers, before anything is made."""
        check_settings(self, workers)
        check_set(workers, uncertainty_set)

    def worker(self, index: int, source: ProblemSource) -> WorkerFactory:
        """What makes worker j on the machine where it is to run."""
        return partial(make_worker, index, source, self)

    def master(self, uncertainty_set: Any, workers: int, ask: Ask, start: Array | None) -> ArrivalMaster:
        """The master at the start, after the handshake."""
        handshake = shake_hands(
            uncertainty_set,
            workers,
            ask,
            start,
            use_metrics=self.metric == "problem",
            on_failed_start=self.on_failed_start,
        )
        return ArrivalMaster(self, uncertainty_set, handshake)

    def restore(self, uncertainty_set: Any, workers: int, state: Mapping[str, Any]) -> ArrivalMaster:
        """The master of a snapshot."""
        return ArrivalMaster.restored(self, uncertainty_set, workers, state)


def make_worker(index: int, source: ProblemSource, settings: ArrivalMethod) -> RoundWorker:
    """Make worker j; called on the machine where it runs. Its work is that of a round: E local steps."""
    return RoundWorker(index, build(source, index), settings)
