"""Settings that every algorithm with a master has, as dataclass fields."""

from __future__ import annotations

from typing import Any

from fdro_core.protocol.settings import OneOf, Seconds, Whole, setting


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
