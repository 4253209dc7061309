"""Delay laws and faults of the virtual engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

import numpy as np

from fdro_core.errors import InvalidSetting
from fdro_core.protocol.settings import (
    REQUIRED,
    Checked,
    Number,
    WorkerNumber,
    check_setting,
    documented,
    setting,
)
from uncertainty_sets.arrays import Array

BLOCK = 4096  # delays are drawn in blocks: one at a time costs as much as a small gradient


class DelayLaw(Protocol):
    """How long a step takes, from dispatch to reply."""

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return `size` delays in seconds."""
        ...


@documented
@dataclass(frozen=True)
class Constant(Checked):
    """Every step takes `seconds`."""

    seconds: float = setting(1.0, Number(), "seconds of a step")

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return the same delay `size` times."""
        return np.full(size, self.seconds)


@documented
@dataclass(frozen=True)
class LogNormal(Checked):
    """exp(log(median) + sigma·normal), the usual law of response times."""

    median: float = setting(1.0, Number(), "seconds that half of the steps exceed")
    sigma: float = setting(0.5, Number(), "standard deviation of the logarithm")

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return log-normal delays."""
        return self.median * np.exp(self.sigma * rng.standard_normal(size))


@documented
@dataclass(frozen=True)
class Exponential(Checked):
    """Exponential delays, at least `shift`."""

    mean: float = setting(1.0, Number(), "mean seconds beyond `shift`")
    shift: float = setting(0.0, Number(inclusive=True), "the least seconds")

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


@documented
@dataclass(frozen=True)
class Straggler(Checked):
    """Worker `worker` is `factor` times slower for steps sent in [start, end)."""

    worker: int = setting(
        REQUIRED, WorkerNumber(), "the worker's number, from 0 in the order of the problems"
    )
    factor: float = setting(REQUIRED, Number(), "how many times slower")
    start: float = setting(0.0, Number(-inf), "seconds at which it begins")
    end: float = setting(inf, Number(-inf, finite=False), "seconds at which it ends")


@documented
@dataclass(frozen=True)
class Crash(Checked):
    """Worker `worker` is lost in [at, until), with the step under way. By default it never returns."""

    worker: int = setting(
        REQUIRED, WorkerNumber(), "the worker's number, from 0 in the order of the problems"
    )
    at: float = setting(REQUIRED, Number(inclusive=True), "seconds at which it is lost")
    until: float = setting(inf, Number(finite=False), "seconds at which it is back")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_setting("Crash.until", self.until, Number(self.at, finite=False))


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
