"""What `AspireEase` and `AspireModels` share at the master: who is waited for, and who may weigh."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from fdro_core.aspire.settings import Plan
from fdro_core.master.base import FederatedMaster, Outgoing
from fdro_core.master.roster import NEVER


class PlaneMaster(FederatedMaster):
    """A master with planes; a subclass adds its update of z and λ.

    Attributes:
        plan: the settings, worked out for N workers.
        steps_each: gradients per reply.
        ticks: whether time alone can change the state.
    """

    plan: Plan
    moment = "at iteration"

    def _derive(self) -> None:
        """Set the counts and flags that every step needs."""
        super()._derive()
        self.last, self.report_interval = self.plan.iterations, self.plan.report_interval
        self.steps_each = self.plan.config.local_steps
        self.ticks = self.roster.deadline is not None or self.plan.config.adaptive is not None

    @abstractmethod
    def _usable(self, reply: Any) -> bool:
        """Whether the numbers of a reply are in range."""

    @property
    def wake_at(self) -> float | None:
        """When to tick if no event comes before: the next deadline or look at the delays."""
        return self.roster.wake_at() if self.ticks or self.roster.retries else None

    def _accept(self, j: int, reply: Any) -> Outgoing:
        if not self._usable(reply):
            return self._refuse(j)
        roster = self.roster
        if not roster.alive[j]:
            if roster.staleness(j, self.iteration) > self.plan.max_staleness:
                return self._return(j)
            self._rejoin(j)
        self.gradients += self.steps_each
        roster.accept(j, reply, self.time)
        return []

    def _tick(self) -> Outgoing:
        self._adapt(tick=True)
        return super()._tick()

    def _ready(self) -> bool:
        return self.roster.ready(self.iteration)

    def _adapt(self, *, tick: bool) -> None:
        if self.plan.config.adaptive is not None and self.roster.adapt(self.time, self.iteration, tick):
            self.notice("active-workers", active_workers=self.roster.active)

    def _may_weigh(self) -> Sequence[bool] | None:
        """Who may have weight in a plane, None for all: a worker whose loss was never measured has none."""
        if self.plan.config.dead_losses == "drop" and self.roster.live < self.plan.workers:
            return self.roster.alive
        return [iteration != NEVER for iteration in self.roster.visited] if self.never else None
