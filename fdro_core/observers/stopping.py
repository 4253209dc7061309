"""Reasons to stop early."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fdro_core.errors import InvalidSetting

if TYPE_CHECKING:
    from fdro_core.solving import Run


def _check(name: str, value: float) -> float:
    if not value > 0:
        raise InvalidSetting(f"{name} must be > 0, got {value}")
    return value


class StopWhenStationary:
    """Stop at an ε-stationary point: ‖∇G‖² <= epsilon (Definitions 1 and 2).

    Each look is a round of its own, two evaluations a worker, so it is taken every `every` reports only.
    """

    def __init__(self, epsilon: float, every: int = 20) -> None:
        self.epsilon = _check("StopWhenStationary.epsilon", epsilon)
        self.every = int(_check("StopWhenStationary.every", every))
        self._reports = 0

    def __call__(self, run: Run, entry: dict[str, Any]) -> str | None:
        """Look, if it is time."""
        if entry["event"] != "report":
            return None
        self._reports += 1
        if self._reports % self.every or run.stationarity() > self.epsilon:
            return None
        return "stationary"


class StopAfter:
    """Stop when the engine's clock has passed `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = _check("StopAfter.seconds", seconds)

    def __call__(self, run: Run, entry: dict[str, Any]) -> str | None:
        """Read the clock of the report."""
        return "time" if entry["event"] == "report" and entry["clock"] >= self.seconds else None


class StopAtLoss:
    """Stop when the robust objective is at most `target`, checked at z on all data.

    The master's own estimate is from the workers' local models; only when that is low enough is a round of
    probes spent on the true value.
    """

    def __init__(self, target: float) -> None:
        self.target = target

    def __call__(self, run: Run, entry: dict[str, Any]) -> str | None:
        """Compare, and make sure."""
        if entry["event"] != "report" or entry["objective"] > self.target:
            return None
        objective = run.master.assess(run.engine.ask(run.master.probes())).objective
        return "target loss" if objective <= self.target else None
