"""ASPIRE-EASE as an algorithm: its settings, and how masters and workers are made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fdro_core.aspire.master import Master
from fdro_core.aspire.models.master import ModelMaster
from fdro_core.aspire.models.messages import BeginModels
from fdro_core.aspire.models.private_master import PrivateMaster
from fdro_core.aspire.models.private_worker import PrivateWorker
from fdro_core.aspire.models.worker import ModelWorker
from fdro_core.aspire.plane_master import PlaneMaster
from fdro_core.aspire.settings import AspireSettings
from fdro_core.aspire.worker import Worker
from fdro_core.contracts.algorithm import Ask
from fdro_core.contracts.engine import WorkerFactory, WorkerMachine
from fdro_core.contracts.messages import Begin
from fdro_core.contracts.problem import ProblemSource, build
from fdro_core.contracts.settings import documented
from fdro_core.federation.handshake import check_set, shake_hands
from uncertainty_sets.arrays import Array


@documented
@dataclass(frozen=True, kw_only=True)
class AspireEase(AspireSettings):
    """ASPIRE-EASE, Algorithm 1 of the paper. None means the rule in docs/driver.md.

    >>> AspireEase(active_workers=4).resolve(workers=8).iterations
    3000
    >>> AspireEase(active_workers=9).resolve(workers=8)
    Traceback (most recent call last):
    fdro_core.errors.InvalidSetting: active_workers (S) must be in 1..8, the number of workers, got 9
    """

    def check(self, workers: int, uncertainty_set: Any) -> None:
        """Check the settings and the set against the number of workers, before anything is made."""
        self.resolve(workers)
        check_set(workers, uncertainty_set)

    def worker(self, index: int, source: ProblemSource) -> WorkerFactory:
        """Return a function that creates worker j on the machine where it runs."""
        return partial(make_worker, index, source, self)

    def master(self, uncertainty_set: Any, workers: int, ask: Ask, start: Array | None) -> PlaneMaster:
        """The master at the start, after the handshake."""
        plan = self.resolve(workers)
        begin = BeginModels if self.consensus == "models" else Begin
        handshake = shake_hands(
            uncertainty_set,
            workers,
            ask,
            start,
            use_metrics=self.metric == "problem",
            bound=self.parameter_bound,
            on_failed_start=self.on_failed_start,
            begin_with=begin,
            clip=self.clip,
        )
        return self._kind()(plan, uncertainty_set, handshake)

    def restore(self, uncertainty_set: Any, workers: int, state: Mapping[str, Any]) -> PlaneMaster:
        """The master of a snapshot."""
        return self._kind().restored(self.resolve(workers), uncertainty_set, state)

    def _kind(self) -> type[ModelMaster | Master]:
        """The class of the master."""
        if self.consensus != "models":
            return Master
        return ModelMaster if self.privacy is None else PrivateMaster


def make_worker(index: int, source: ProblemSource, settings: AspireSettings) -> WorkerMachine:
    """Make worker j; called on the machine where it runs."""
    problem = build(source, index)
    if settings.privacy is not None:
        assert settings.batch_size is not None  # checked with the settings
        return PrivateWorker(index, problem, settings.privacy, batch_size=settings.batch_size)
    if settings.consensus == "models":
        return ModelWorker(
            index,
            problem,
            seed=settings.seed,
            batch_size=settings.batch_size,
            local_steps=settings.local_steps,
            model_step=settings.model_step,
        )
    return Worker(index, problem, settings)
