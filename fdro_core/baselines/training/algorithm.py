"""A baseline as an algorithm: how masters and workers are made from a method's settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from fdro_core.baselines.training.master import TrainingMaster
from fdro_core.baselines.training.method import TrainingMethod
from fdro_core.baselines.training.worker import RoundWorker
from fdro_core.master.handshake import check_set, shake_hands
from fdro_core.protocol.algorithm import Ask
from fdro_core.protocol.engine import WorkerFactory
from fdro_core.protocol.problem import ProblemSource, build
from fdro_core.protocol.settings import check_settings
from uncertainty_sets.arrays import Array


class Training(TrainingMethod):
    """The four methods of an algorithm, for a kind of method that names its master."""

    master_kind: ClassVar[type[TrainingMaster[Any, Any]]]

    def check(self, workers: int, uncertainty_set: Any) -> None:
        """Check the settings and the set against the number of workers, before anything is made."""
        check_settings(self, workers)
        check_set(workers, uncertainty_set)

    def worker(self, index: int, source: ProblemSource) -> WorkerFactory:
        """What makes worker j on the machine where it is to run."""
        return partial(make_worker, index, source, self)

    def master(
        self, uncertainty_set: Any, workers: int, ask: Ask, start: Array | None
    ) -> TrainingMaster[Any, Any]:
        """The master at the start, after the handshake."""
        handshake = shake_hands(
            uncertainty_set,
            workers,
            ask,
            start,
            use_metrics=self.metric == "problem",
            on_failed_start=self.on_failed_start,
        )
        return self.master_kind(self, uncertainty_set, handshake)

    def restore(
        self, uncertainty_set: Any, workers: int, state: Mapping[str, Any]
    ) -> TrainingMaster[Any, Any]:
        """The master of a snapshot."""
        return self.master_kind.restored(self, uncertainty_set, workers, state)


def make_worker(index: int, source: ProblemSource, settings: TrainingMethod) -> RoundWorker:
    """Make worker j; called on the machine where it runs."""
    return RoundWorker(index, build(source, index), settings)
