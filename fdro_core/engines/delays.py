"""Delay laws and faults of the virtual engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fdro_core.errors import InvalidSetting
from uncertainty_sets.arrays import Array

BLOCK = 4096  # delays are drawn in blocks: one at a time costs as much as a small gradient


class DelayLaw(Protocol):
    """How long a step takes, from dispatch to reply."""

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """`size` delays in seconds."""
        ...


def _positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise InvalidSetting(f"{name} must be a finite number > 0, got {value}")


@dataclass(frozen=True)
class Constant:
    """Every step takes `seconds`."""

    seconds: float = 1.0

    def __post_init__(self) -> None:
        _positive("Constant.seconds", self.seconds)

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """The same delay `size` times."""
        return np.full(size, self.seconds)


@dataclass(frozen=True)
class LogNormal:
    """exp(log(median) + sigma·normal), the usual law of response times."""

    median: float = 1.0
    sigma: float = 0.5

    def __post_init__(self) -> None:
        _positive("LogNormal.median", self.median)
        _positive("LogNormal.sigma", self.sigma)

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Log-normal delays."""
        return self.median * np.exp(self.sigma * rng.standard_normal(size))


@dataclass(frozen=True)
class Exponential:
    """Exponential delays, `shift` at least."""

    mean: float = 1.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        _positive("Exponential.mean", self.mean)
        if not (np.isfinite(self.shift) and self.shift >= 0):
            raise InvalidSetting(f"Exponential.shift must be a finite number >= 0, got {self.shift}")

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Exponential delays."""
        return self.shift + self.mean * rng.standard_exponential(size)


@dataclass(frozen=True)
class Trace:
    """Measured delays, drawn at random with replacement."""

    seconds: Sequence[float]

    def __post_init__(self) -> None:
        values = np.asarray(self.seconds, dtype=np.float64)
        if values.ndim != 1 or values.size == 0 or not np.all(np.isfinite(values) & (values > 0)):
            raise InvalidSetting("Trace.seconds must be a list of finite numbers > 0, at least one")

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Delays of the trace."""
        return rng.choice(np.asarray(self.seconds, dtype=np.float64), size=size)


@dataclass(frozen=True)
class Straggler:
    """Worker `worker` is `factor` times slower for steps sent in [start, end)."""

    worker: int
    factor: float
    start: float = 0.0
    end: float = np.inf

    def __post_init__(self) -> None:
        _positive("Straggler.factor", self.factor)


@dataclass(frozen=True)
class Crash:
    """Worker `worker` is gone in [at, until); what it was doing is lost. It never returns by default."""

    worker: int
    at: float
    until: float = np.inf

    def __post_init__(self) -> None:
        if not 0 <= self.at < self.until:
            raise InvalidSetting(f"Crash needs 0 <= at < until, got at={self.at}, until={self.until}")


class Delays:
    """One stream of delays, drawn in blocks, that a checkpoint can name by two things.

    Those are the generator's state before the block in use, and the place in it.
    """

    def __init__(self, law: DelayLaw, rng: np.random.Generator) -> None:
        self.law = law
        self.rng = rng
        self._fill()

    def _fill(self) -> None:
        self.before: Mapping[str, Any] = self.rng.bit_generator.state
        self.block: list[float] = self.law.draw(self.rng, BLOCK).tolist()
        self.place = 0

    def next(self) -> float:
        """The next delay."""
        if self.place == BLOCK:
            self._fill()
        delay = self.block[self.place]
        self.place += 1
        return delay

    def snapshot(self) -> dict[str, Any]:
        """The place in the stream."""
        return {"before": self.before, "place": self.place}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a place in the stream."""
        self.rng.bit_generator.state = state["before"]
        self._fill()
        self.place = int(state["place"])


class Draws:
    """Uniform numbers for lost and repeated messages, by the same block scheme."""

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Uniform numbers in [0, 1)."""
        return rng.random(size)
