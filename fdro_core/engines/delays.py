"""Delay laws and faults of the virtual engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fdro_core.errors import InvalidSetting
from fdro_core.protocol.setting_checks import check_number
from uncertainty_sets.arrays import Array

BLOCK = 4096  # delays are drawn in blocks: one at a time costs as much as a small gradient


class DelayLaw(Protocol):
    """How long a step takes, from dispatch to reply."""

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return `size` delays in seconds."""
        ...


@dataclass(frozen=True)
class Constant:
    """Every step takes `seconds`."""

    seconds: float = 1.0

    def __post_init__(self) -> None:
        check_number("Constant.seconds", self.seconds, above=0)

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return the same delay `size` times."""
        return np.full(size, self.seconds)


@dataclass(frozen=True)
class LogNormal:
    """exp(log(median) + sigma·normal), the usual law of response times."""

    median: float = 1.0
    sigma: float = 0.5

    def __post_init__(self) -> None:
        check_number("LogNormal.median", self.median, above=0)
        check_number("LogNormal.sigma", self.sigma, above=0)

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return log-normal delays."""
        return self.median * np.exp(self.sigma * rng.standard_normal(size))


@dataclass(frozen=True)
class Exponential:
    """Exponential delays, at least `shift`."""

    mean: float = 1.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        check_number("Exponential.mean", self.mean, above=0)
        check_number("Exponential.shift", self.shift, least=0)

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return exponential delays."""
        return self.shift + self.mean * rng.standard_exponential(size)


@dataclass(frozen=True)
class Trace:
    """Measured delays, drawn at random with replacement."""

    seconds: Sequence[float]

    def __post_init__(self) -> None:
        try:
            values = np.asarray(self.seconds, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.empty(0)
        if values.ndim != 1 or values.size == 0 or not np.all(np.isfinite(values) & (values > 0)):
            raise InvalidSetting(
                f"Trace.seconds must be a list of finite numbers > 0, at least one; got {self.seconds!r:.80}",
                parameter="seconds",
                value=self.seconds,
            )

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return delays of the trace."""
        return rng.choice(np.asarray(self.seconds, dtype=np.float64), size=size)


@dataclass(frozen=True)
class Straggler:
    """Worker `worker` is `factor` times slower for steps sent in [start, end)."""

    worker: int
    factor: float
    start: float = 0.0
    end: float = np.inf

    def __post_init__(self) -> None:
        check_number("Straggler.factor", self.factor, above=0)
        check_number("Straggler.start", self.start)
        check_number("Straggler.end", self.end, infinite=True)


@dataclass(frozen=True)
class Crash:
    """Worker `worker` is lost in [at, until), with the step under way. By default it never returns."""

    worker: int
    at: float
    until: float = np.inf

    def __post_init__(self) -> None:
        check_number("Crash.at", self.at, least=0)
        check_number("Crash.until", self.until, above=self.at, infinite=True)


class Delays:
    """One stream of delays, drawn in blocks.

    A checkpoint keeps two things: the generator's state before the block in use, and the place in it.
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
        """Return the next delay."""
        if self.place == BLOCK:
            self._fill()
        delay = self.block[self.place]
        self.place += 1
        return delay

    def snapshot(self) -> dict[str, Any]:
        """Return the place in the stream."""
        return {"before": self.before, "place": self.place}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a place in the stream."""
        self.rng.bit_generator.state = state["before"]
        self._fill()
        place = state["place"]
        if type(place) is not int or not 0 <= place <= BLOCK:
            raise ValueError(f"the place in a stream of delays must be in 0..{BLOCK}, got {place!r:.40}")
        self.place = place


class Draws:
    """Uniform numbers for lost and repeated messages, by the same block scheme."""

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return uniform numbers in [0, 1)."""
        return rng.random(size)
