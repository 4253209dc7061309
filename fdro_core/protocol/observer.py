"""What an observer is, and what it may read of the run that it observes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from fdro_core.protocol.algorithm import MasterMachine
from fdro_core.protocol.engine import Engine


class RunView(Protocol):
    """A run in progress, as observers see it.

    Attributes:
        stop_reason: why the run ended, "" while it goes on.
        broken: whether the run ended in the middle of an update; then there is no state to save.
    """

    stop_reason: str
    broken: bool

    @property
    def history(self) -> list[dict[str, Any]]:
        """The reports and notices so far; of a long run not all."""
        ...

    @property
    def master(self) -> MasterMachine:
        """The master's state machine."""
        ...

    @property
    def engine(self) -> Engine:
        """The engine that runs the workers."""
        ...

    def objective(self) -> float:
        """The robust objective at z on all data, by a round of probes."""
        ...

    def stationarity(self) -> float:
        """`Result.stationarity` of the present state, by a round of probes."""
        ...

    def save(self, path: str | Path) -> None:
        """Write everything that `resume` needs."""
        ...


Observer = Callable[[RunView, dict[str, Any]], str | None]
"""Called with the run and a report or notice; a string it returns ends the run and is the stop
reason. An observer may also have ``begin()``, called once before the workers are made, and ``finish(run)``,
called once at the end. What ``begin`` raises, `solve` and `resume` raise: nothing has run yet."""
