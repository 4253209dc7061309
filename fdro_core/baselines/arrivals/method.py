"""An asynchronous method: the settings that all have, and the hooks that each may override.

Every worker always has one message under way. When its update arrives, the method combines it with what it
remembers; the worker gets the newest model at once and goes on. Nobody waits for anybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fdro_core.baselines.arrivals.state import Arrival, ArrivalState
from fdro_core.baselines.rounds.method import RoundMethod
from fdro_core.contracts.settings import Number, Whole, setting
from fdro_core.contracts.tuning import PRECONDITIONED, Tunable, Variant
from fdro_core.federation import preconditioner
from fdro_core.federation import settings as shared
from fdro_core.federation.roster import RosterSettings
from uncertainty_sets.arrays import Array


def as_in_rounds(name: str) -> Any:
    """The field of a setting that means the same as in synchronous rounds."""
    item = RoundMethod.__dataclass_fields__[name]
    return field(default=item.default, metadata=item.metadata)


@dataclass(frozen=True, kw_only=True)
class ArrivalMethod:
    """The settings of `Arrivals` and what a method overrides, without what makes masters and workers."""

    iterations: int = setting(10000, Whole(), "models that the master makes")
    step: float | None = as_in_rounds("step")
    preconditioner: str = as_in_rounds("preconditioner")
    averaging: float = setting(
        0.0,
        Number(inclusive=True),
        "share of the iterations so far over which w is averaged for the result; 0: the result is the last w",
    )
    local_steps: int = setting(1, Whole(), "local steps per message", letter="E")
    batch_size: int | None = shared.batch_size()
    reported_loss: str = as_in_rounds("reported_loss")
    metric: str = shared.metric()
    deadline: float | str | None = shared.deadline()
    resends: int = shared.resends()
    max_bad_updates: int = shared.max_bad_updates()
    on_failed_start: str = shared.on_failed_start()
    report_interval: int | None = setting(
        None,
        Whole(),
        "iterations between two reports",
        why="as many as take N updates, since a report costs O(N)",
    )
    seed: int = shared.seed()

    label: ClassVar[str] = ""  # the method's name in the experiments' tables; "": it has no row there
    year: ClassVar[int] = 0  # of its publication, which orders the rows
    tunable: ClassVar[Mapping[str, Tunable]] = {}  # what the experiments search, and from where
    variants: ClassVar[tuple[Variant, ...]] = (PRECONDITIONED,)  # further rows of a method with a label

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

    @property
    def proximal_weight(self) -> float:
        """Of the proximal term in the local steps; 0: there is none."""
        return 0.0

    @property
    def preconditioned(self) -> bool:
        """Whether steps are in the metric that follows the gradients."""
        return self.preconditioner == "gradients"

    def start_step(self, curvature: float) -> float:
        """η: the setting, else a default; the curvature is max_j L_j."""
        if self.step is not None:
            return self.step
        if self.preconditioned:
            return preconditioner.STEP
        return 1.0 / curvature if curvature > 0 else 1.0

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
