"""Rules that stop a run early."""

from __future__ import annotations

from math import inf
from typing import Any

from fdro_core.protocol.observer import RunView
from fdro_core.protocol.settings import Number, Whole, check_setting


class StopWhenStationary:
    """Stop when `Result.stationarity` would be at most epsilon (for `AspireEase`: Definitions 1 and 2).

    Every check is a round of probes, up to two evaluations per worker, so only one report in `every` has it.
    """

    def __init__(self, epsilon: float, every: int = 20) -> None:
        self.epsilon = check_setting("StopWhenStationary.epsilon", epsilon, Number(finite=False))
        self.every = check_setting("StopWhenStationary.every", every, Whole())
        self._reports = 0

    def __call__(self, run: RunView, entry: dict[str, Any]) -> str | None:
        """Measure the stationarity at every `every`-th report."""
        if entry["event"] != "report":
            return None
        self._reports += 1
        if self._reports % self.every or run.stationarity() > self.epsilon:
            return None
        return "stationary"


class StopAfter:
    """Stop when the engine's clock has passed `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = check_setting("StopAfter.seconds", seconds, Number(finite=False))

    def __call__(self, run: RunView, entry: dict[str, Any]) -> str | None:
        """Compare the clock of a report."""
        return "time" if entry["event"] == "report" and entry["clock"] >= self.seconds else None


class StopAtLoss:
    """Stop when the robust objective is at most `target`, measured at z on all data.

    The objective in a report comes from the workers' local models; only if that is low enough, an extra round
    of messages measures the value at z.
    """

    def __init__(self, target: float) -> None:
        self.target = check_setting("StopAtLoss.target", target, Number(-inf, finite=False))

    def __call__(self, run: RunView, entry: dict[str, Any]) -> str | None:
        """Compare the reported objective, and measure it at z before stopping."""
        if entry["event"] != "report" or entry["objective"] > self.target:
            return None
        return "target loss" if run.objective() <= self.target else None
