"""Synchronous rounds as an algorithm: how masters and workers are made from a method's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fdro_core.baselines.rounds.master import RoundMaster
from fdro_core.baselines.rounds.method import RoundMethod
from fdro_core.baselines.rounds.worker import RoundWorker
from fdro_core.contracts.algorithm import Ask
from fdro_core.contracts.engine import WorkerFactory
from fdro_core.contracts.problem import ProblemSource, build
from fdro_core.contracts.settings import check_settings, documented
from fdro_core.federation.handshake import check_set, shake_hands
from uncertainty_sets.arrays import Array


@documented
@dataclass(frozen=True, kw_only=True)
class Rounds(RoundMethod):
    """The parent of every synchronous method: a subclass overrides `start_weights`, `draw` or `close`."""

    def check(self, workers: int, uncertainty_set: Any) -> None:
        """Check the settings and the set against the number of workers, before anything is made."""
        check_settings(self, workers)
        check_set(workers, uncertainty_set)

    def worker(self, index: int, source: ProblemSource) -> WorkerFactory:
        """What makes worker j on the machine where it is to run."""
        return partial(make_worker, index, source, self)

    def master(self, uncertainty_set: Any, workers: int, ask: Ask, start: Array | None) -> RoundMaster:
        """The master at the start, after the handshake."""
        handshake = shake_hands(
            uncertainty_set,
            workers,
            ask,
            start,
            use_metrics=self.metric == "problem",
            on_failed_start=self.on_failed_start,
        )
        return RoundMaster(self, uncertainty_set, handshake)

    def restore(self, uncertainty_set: Any, workers: int, state: Mapping[str, Any]) -> RoundMaster:
        """The master of a snapshot."""
        return RoundMaster.restored(self, uncertainty_set, workers, state)


def make_worker(index: int, source: ProblemSource, settings: RoundMethod) -> RoundWorker:
    """Make worker j; called on the machine where it runs."""
    return RoundWorker(index, build(source, index), settings)
