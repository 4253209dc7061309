"""What a call costs on a noisy machine: its time, by interleaved repeats, and its peak memory (on Linux).

A sample is the smaller of what the clock and what the processor time of this process say: time that other
programs took is not ours, and threads of our own that ran side by side are not counted twice.

A ratio is the median of the ratios within each round, in which both ran within moments of each other, so a
machine that is slow for a while slows both.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Key = TypeVar("Key", bound=Hashable)

SHORTEST = 2e-3
"""Seconds that one sample takes at least; quicker calls are repeated within it."""


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles, and the least.

    For a time in seconds that is no ratio, the least is the best guess at a quiet machine: noise only adds.
    """

    median: float
    low: float
    high: float
    least: float
    count: int

    @classmethod
    def of(cls, samples: list[float]) -> Spread:
        """Return the median and quartiles of the samples; NaN if there is none."""
        if not samples:
            nothing = float("nan")
            return cls(nothing, nothing, nothing, nothing, 0)
        least, low, median, high = (float(x) for x in np.percentile(samples, [0, 25, 50, 75]))
        return cls(median, low, high, least, len(samples))


@dataclass
class Samples:
    """Seconds per call by competitor and round; NaN if a competitor skipped a round."""

    seconds: dict[Hashable, list[float]]

    def time(self, key: Hashable) -> Spread:
        """Seconds of one call."""
        return Spread.of([value for value in self.seconds[key] if np.isfinite(value)])

    def ratio(self, key: Hashable, base: Hashable) -> Spread:
        """How many times as long as `base`, from the rounds in which both ran."""
        pairs = zip(self.seconds[key], self.seconds[base], strict=True)
        return Spread.of([a / b for a, b in pairs if np.isfinite(a) and np.isfinite(b) and b > 0.0])


def one_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS has one thread, if threadpoolctl is installed, as with scikit-learn.

    Two wait for each other on a busy machine, busily: `p @ f` of 10⁵ numbers then took 100 times as long.
    """
    if find_spec("threadpoolctl") is None:
        return nullcontext()
    limits: AbstractContextManager[Any] = import_module("threadpoolctl").threadpool_limits(1, "blas")
    return limits


def repeats_for(seconds: float) -> int:
    """How many calls make one sample, given what one call takes."""
    return max(1, int(SHORTEST / max(seconds, 1e-9)))


def sample(call: Callable[[], object], repeats: int) -> float:
    """Return seconds per call, the mean over `repeats` calls; quick ones after one that warms the caches."""
    if repeats > 1:
        call()
    start, busy = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        call()
    return min(time.perf_counter() - start, time.process_time() - busy) / repeats


def once(call: Callable[[], object]) -> float:
    """About what a warm call takes."""
    seconds = sample(call, 1)
    return min(seconds, sample(call, 3)) if seconds < SHORTEST else seconds


def interleave(
    calls: Mapping[Key, Callable[[], object]],
    rounds: int,
    budget: float = float("inf"),
    least: int = 3,
    known: Mapping[Key, float] | None = None,
) -> Samples:
    """Time every call once per round, in turn.

    Args:
        calls: the competitors; each is called twice beforehand, to warm up and to see how long it takes.
        rounds: how often at most.
        budget: seconds a competitor may take in all; it then skips the later rounds.
        least: rounds that every competitor gets, however long it takes; with 1, a sample is a single call.
        known: seconds per call of each, if that is known and all is warm.
    """
    repeats, spent = {}, dict.fromkeys(calls, 0.0)
    for key, call in calls.items():
        if known is None:
            call()
        seconds_once = once(call) if known is None else known[key]
        repeats[key] = repeats_for(seconds_once) if least > 1 or known is not None else 1
    seconds: dict[Hashable, list[float]] = {key: [] for key in calls}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(rounds):
            for key, call in calls.items():
                if turn >= least and spent[key] >= budget:
                    seconds[key].append(float("nan"))
                    continue
                each = sample(call, repeats[key])
                spent[key] += each * repeats[key]
                seconds[key].append(each)
            gc.collect(0)
    finally:
        if collecting:
            gc.enable()
    return Samples(seconds)


Result = TypeVar("Result")

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_of(call: Callable[[], Result]) -> tuple[Result, int | None]:
    """Call a function; return its result and by how many bytes resident memory rose at most meanwhile.

    Includes what compiled code allocates. Freed memory is returned to the system first, so that a call
    does not reuse what an earlier one left.
    """
    gc.collect()
    with suppress(OSError, AttributeError, TypeError):
        _libc().malloc_trim(0)
    try:
        _CLEAR.write_text("5", encoding="ascii")  # the peak starts anew from what is resident now
        before = _kilobytes("VmRSS")
    except OSError:
        return call(), None
    result = call()
    return result, max(0, _kilobytes("VmHWM") - before) * 1024


def settle() -> None:
    """Exclude what is loaded by now from later garbage collections: with PyTorch each took 0.2 s per cell."""
    gc.collect()
    gc.freeze()


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("c"))


def _kilobytes(key: str) -> int:
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise OSError(f"no {key}")
