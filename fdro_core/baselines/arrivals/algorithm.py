"""Asynchronous arrivals as an algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fdro_core.baselines.arrivals.master import ArrivalMaster
from fdro_core.baselines.arrivals.method import ArrivalMethod
from fdro_core.baselines.training.algorithm import Training
from fdro_core.protocol.settings import documented


@documented
@dataclass(frozen=True, kw_only=True)
class Arrivals(ArrivalMethod, Training):
    """The parent of every asynchronous method: a subclass overrides `combine`, and what that needs."""

    master_kind: ClassVar[type[ArrivalMaster]] = ArrivalMaster
