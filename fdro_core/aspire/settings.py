"""The settings that both algorithms with cutting planes have, and the counts that follow from N and S."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from fdro_core.errors import InvalidSetting
from fdro_core.master import settings as shared
from fdro_core.master.base import FederatedMaster
from fdro_core.master.handshake import check_set, shake_hands
from fdro_core.master.roster import RosterSettings
from fdro_core.master.settings import Adaptive
from fdro_core.protocol.algorithm import AlgorithmTraits, Ask
from fdro_core.protocol.settings import (
    Instance,
    OneOf,
    Whole,
    WorkerCount,
    check_settings,
    setting,
)
from uncertainty_sets.arrays import Array


@dataclass(frozen=True, kw_only=True)
class AspireSettings(AlgorithmTraits):
    """What `AspireEase` and `AspireModels` share: asynchrony, planes, local steps and faults."""

    active_workers: int = setting(
        1,
        WorkerCount(),
        "updates that the master waits for",
        letter="S",
        why="fully asynchronous, as in the paper's experiments",
    )
    iterations: int | None = setting(
        None,
        Whole(),
        "master iterations",
        letter="T",
        why="1,500·⌈N/S⌉: within 1e-3 of the optimum on every shipped problem",
    )
    max_staleness: int | None = setting(
        None,
        Whole(),
        "the most iterations between two updates of one worker",
        letter="τ",
        why="10·⌈N/S⌉: the worker that answers most rarely limits progress; more steps of others are wasted",
    )
    planes: str = setting(
        "ease",
        OneOf("ease", "cp"),
        '"ease" drops planes whose λ stays zero, "cp" keeps all (ASPIRE-CP)',
        letter="EASE / CP",
        why="fewer planes at the same objective",
    )
    plane_interval: int | None = setting(
        None,
        Whole(),
        "iterations between plane updates",
        letter="k",
        why="⌈N/S⌉: one oracle call per epoch, so its O(N) is shared",
    )
    plane_horizon: int | None = setting(
        None,
        Whole(0),
        "no plane update after this iteration; None: never stop",
        letter="T₁",
        why="if updates stop early, planes that are still wrong stay",
    )
    max_planes: int = setting(
        20,
        Whole(),
        'limit for "ease" only; beyond it, the two planes with the smallest λ are merged',
        letter="M",
        why="more did not converge faster; merged planes stay in P",
    )
    metric: str = shared.metric()
    local_steps: int = setting(
        1,
        Whole(),
        "local steps between two messages, E (ASPIRE-EASE_per)",
        letter="per",
        why="one local step per message",
    )
    batch_size: int | None = shared.batch_size()
    adaptive: Adaptive | None = setting(
        None, Instance(Adaptive), "the rule that changes S; None: S stays", letter="ADP", why="S stays as set"
    )
    deadline: float | str | None = shared.deadline()
    resends: int = shared.resends()
    dead_losses: str = setting(
        "freeze",
        OneOf("freeze", "drop"),
        '"freeze" keeps a lost worker\'s last loss in the oracle, "drop" gives it no weight',
        why="a silent worker's loss is still the best guess",
    )
    max_bad_updates: int = shared.max_bad_updates()
    on_failed_start: str = shared.on_failed_start()
    report_interval: int | None = setting(
        None,
        Whole(),
        "iterations between two reports to history and observers",
        why="⌈N/S⌉ iterations: one report per epoch",
    )
    seed: int = shared.seed()

    def check(self, workers: int, uncertainty_set: Any) -> None:
        """Check the settings and the set against the number of workers, before anything is made."""
        self.resolve(workers)
        check_set(workers, uncertainty_set)

    def master(self, uncertainty_set: Any, workers: int, ask: Ask, start: Array | None) -> FederatedMaster:
        """The master at the start, after the handshake."""
        plan = self.resolve(workers)
        handshake = shake_hands(
            uncertainty_set,
            workers,
            ask,
            start,
            use_metrics=self.metric == "problem",
            on_failed_start=self.on_failed_start,
            **self._opening(),
        )
        master: FederatedMaster = self.master_kind(plan, uncertainty_set, handshake)
        return master

    @abstractmethod
    def _opening(self) -> dict[str, Any]:
        """What the handshake needs besides: the message that workers begin with, and bounds."""

    def restore(self, uncertainty_set: Any, workers: int, state: Mapping[str, Any]) -> Any:
        """The master of a snapshot."""
        return self.master_kind.restored(self.resolve(workers), uncertainty_set, state)

    @property
    @abstractmethod
    def master_kind(self) -> Any:
        """The class of the master."""

    def resolve(self, workers: int) -> Plan:
        """Check the settings for N workers and work out the counts."""
        check_settings(self, workers)
        self._check_pairs(workers)
        if self.adaptive is not None:
            check_settings(self.adaptive, workers, "Adaptive")
        rounds = ceil(workers / self.active_workers)
        staleness = self._patience(workers) * rounds if self.max_staleness is None else self.max_staleness
        if staleness * self.active_workers < workers:
            raise InvalidSetting(
                f"max_staleness (τ) = {staleness} is too small for active_workers (S) = "
                f"{self.active_workers}: {workers} workers need τ >= ⌈N/S⌉ = {rounds}",
                parameter="max_staleness",
                value=self.max_staleness,
            )
        return Plan(
            config=self,
            workers=workers,
            iterations=1500 * rounds if self.iterations is None else self.iterations,
            max_staleness=staleness,
            plane_interval=rounds if self.plane_interval is None else self.plane_interval,
            plane_horizon=self.plane_horizon,
            report_interval=rounds if self.report_interval is None else self.report_interval,
        )

    def _patience(self, workers: int) -> int:
        """Epochs that the default rule waits for a slow worker."""
        return 10

    def _check_pairs(self, workers: int) -> None:
        """Raise `InvalidSetting` for settings that do not go together."""
        if self.planes == "ease" and self.max_planes < 2:
            raise InvalidSetting(
                f"max_planes (M) must be at least 2 for planes='ease', got {self.max_planes}",
                parameter="max_planes",
                value=self.max_planes,
            )


@dataclass(frozen=True)
class Plan:
    """Settings whose counts are worked out for N workers; `config` is an `AspireEase` or `AspireModels`."""

    config: Any
    workers: int
    iterations: int
    max_staleness: int
    plane_interval: int
    plane_horizon: int | None
    report_interval: int

    def updates_planes(self, iteration: int) -> bool:
        """Whether iteration t (counted from 1) ends with a plane update: t mod k = 0 and t <= T₁."""
        if iteration % self.plane_interval:
            return False
        return self.plane_horizon is None or iteration <= self.plane_horizon

    def roster(self) -> RosterSettings:
        """What the roster needs of the settings."""
        config = self.config
        return RosterSettings(
            workers=self.workers,
            active_workers=self.workers if config.adaptive else config.active_workers,
            max_staleness=self.max_staleness,
            deadline=config.deadline,
            resends=config.resends,
            max_bad_updates=config.max_bad_updates,
            adaptive=config.adaptive,
            drops=config.dead_losses == "drop",
        )
