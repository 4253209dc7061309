"""Settings that every algorithm with a master has, as dataclass fields, and the rule that changes S."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.protocol.settings import (
    Number,
    OneOf,
    Seconds,
    Share,
    Whole,
    WorkerCount,
    documented,
    setting,
)


def metric() -> Any:
    """The metric in which steps are taken."""
    return setting(
        "problem",
        OneOf("problem", "none"),
        '"problem" takes steps in the mean of the problems\' metrics, "none" in D = 1 (the paper)',
        why="features of condition 1e4 stall without it",
    )


def batch_size() -> Any:
    """Samples per gradient."""
    return setting(None, Whole(), "samples per gradient; None: all", why="full batches reach the optimum")


def deadline() -> Any:
    """How long a worker may be silent."""
    return setting(
        "auto",
        Seconds(),
        'seconds of silence after which a worker is asked again; "auto" derives them from the times of '
        "earlier answers, on engines whose workers can hang (never on a virtual clock); None: wait forever",
        why="a worker that hangs must not stop the run",
    )


def resends() -> Any:
    """How often a silent worker is asked again."""
    return setting(
        1,
        Whole(0),
        "how often a silent worker is asked again before it counts as lost until it replies",
        why="one lost message should not cost a worker its place in z",
    )


def max_bad_updates() -> Any:
    """How many bad updates a worker may send."""
    return setting(
        3,
        Whole(),
        "updates out of range (NaN, infinity, beyond 1e150) after which a worker is dropped",
        why="one NaN can be an accident",
    )


def on_failed_start() -> Any:
    """What to do if a worker fails before the first step."""
    return setting(
        "raise",
        OneOf("raise", "warn"),
        'if a worker fails before the first step, "raise", or "warn" and continue without it',
        why="a worker that fails before it starts is more often a mistake than a fault",
    )


def seed() -> Any:
    """The seed of everything that is drawn."""
    return setting(
        0, Whole(0), "seed of start points, power iterations and mini-batches", why="fixes every bit"
    )


@documented
@dataclass(frozen=True)
class Adaptive:
    """ASPIRE-ADP (Section VIII): the rule that switches S between N and `few`, from the delays seen.

    S = N while delays are even (waiting for all costs little and every step sees everyone); S = s as soon as
    there is a straggler. The paper's formula prints the two cases the other way round; its text and figure
    agree with this.

    A worker j is a straggler when its delay T_j passes the threshold β₁; S goes back to N when the largest
    delay is below `hysteresis`·β₁. T_j is the time from sending a step to its reply. It does not grow while a
    reply waits at the master; it grows while no reply has come.

    >>> Adaptive(few=1).switch(np.array([1.0, 1.0, 9.0]), current=3)
    1
    >>> Adaptive(few=1).switch(np.array([1.0, 1.0, 1.2]), current=1)
    3
    """

    few: int = setting(
        1, WorkerCount(all_but=1), "number of active workers while there is a straggler", letter="s"
    )
    rule: str = setting(
        "mean",
        OneOf("mean", "median", "seconds"),
        'how β₁ is computed: "mean" or "median" is `threshold` times the mean or median of the T_j, '
        '"seconds" is `threshold` itself. The mean can never detect a straggler among 2 workers, and '
        "among 3 only one slower than 2(T₁+T₂)",
    )
    threshold: float = setting(2.0, Number(), "see `rule`", why="the paper has 2 times the mean")
    hysteresis: float = setting(
        0.9, Share(), "1 switches back at β₁ itself, and delays close to β₁ then make S alternate"
    )

    def limit(self, delays: NDArray[np.float64]) -> float:
        """β₁ for the delays given."""
        if self.rule == "mean":
            return self.threshold * float(np.mean(delays))
        if self.rule == "median":
            return self.threshold * float(np.median(delays))
        return self.threshold

    def switch(self, delays: NDArray[np.float64], current: int) -> int:
        """S for the delays of the live workers: `few`, their number, or `current` in between."""
        if delays.size == 0:
            return current
        longest, limit = float(np.max(delays)), self.limit(delays)
        if longest > limit:
            return min(self.few, delays.size)
        if longest <= self.hysteresis * limit:
            return delays.size
        return min(current, delays.size)
