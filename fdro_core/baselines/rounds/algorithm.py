"""Synchronous rounds as an algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fdro_core.baselines.rounds.master import RoundMaster
from fdro_core.baselines.rounds.method import RoundMethod
from fdro_core.baselines.training.algorithm import Training
from fdro_core.protocol.settings import documented


@documented
@dataclass(frozen=True, kw_only=True)
class Rounds(RoundMethod, Training):
    """The parent of every synchronous method: a subclass overrides `start_weights`, `draw` or `close`."""

    master_kind: ClassVar[type[RoundMaster]] = RoundMaster
