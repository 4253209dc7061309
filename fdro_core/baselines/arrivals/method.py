"""An asynchronous method: the settings that all have, and the hooks that each may override.

Every worker always has one message under way. When its update arrives, the method combines it with what it
remembers; the worker gets the newest model at once and goes on. Nobody waits for anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fdro_core.baselines.arrivals.state import Arrival, ArrivalState
from fdro_core.baselines.training.method import TrainingMethod
from fdro_core.master.roster import RosterSettings
from fdro_core.protocol.settings import Whole, setting
from uncertainty_sets.arrays import Array


@dataclass(frozen=True, kw_only=True)
class ArrivalMethod(TrainingMethod):
    """The settings of `Arrivals` and what a method overrides, without what makes masters and workers."""

    iterations: int = setting(10000, Whole(), "models that the master makes")
    report_interval: int | None = setting(
        None,
        Whole(),
        "iterations between two reports",
        why="as many as take N updates, since a report costs O(N)",
    )

    @property
    def arrivals(self) -> int:
        """How many updates one iteration takes."""
        return 1

    def server_scale(self, workers: int) -> float:
        """What the combined update is multiplied by before it is added to w."""
        return 1.0

    def remember(self, workers: Sequence[int], w: Array) -> dict[str, Any]:
        """The method's memory at the start, with these workers alive at w."""
        return {}

    def combine(self, state: ArrivalState, arrival: Arrival) -> Array | None:
        """Where the model moves now that an update has arrived: that update; None to wait for more."""
        return arrival.move

    def leave(self, state: ArrivalState, worker: int) -> None:
        """Worker j was lost: it may come back, then with a fresh model."""

    def reports_every(self, workers: int) -> int:
        """Iterations between two reports: the setting, else one epoch of updates."""
        return self.report_interval or -(-workers // self.arrivals)

    def roster(self, workers: int) -> RosterSettings:
        """What the roster needs of the settings."""
        return RosterSettings(
            workers=workers,
            active_workers=1,
            max_staleness=self.iterations,  # nobody is ever waited for
            deadline=self.deadline,
            resends=self.resends,
            max_bad_updates=self.max_bad_updates,
        )
