"""Microseconds per row of batches: on one thread and on all cores, with new memory and with the caller's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import numpy as np

from bench.measuring import cases
from bench.measuring.targets import Row, row
from bench.measuring.timing import interleave
from uncertainty_sets import UncertaintySet
from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels import dispatch

SIZES = (10, 100, 500)
LIMITS = {
    (100, cases.TV.label): 3.0,
    (100, cases.CHI_SQUARE.label): 1.0,
    (100, cases.HELLINGER.label): 3.0,
    (100, cases.BURG.label): 3.0,
    (100, cases.L1.label): 7.0,
}
"""Microseconds per row on one thread, by size and closed form, with kernels compiled ahead of time."""

SPEEDUP = 1.7
"""What two cores should give if the second one is free; on a busy machine samples are processor time of both
threads together, and the ratio shows only what the threads cost."""

ONE, ALL, REUSED = "one thread", "all cores", "all cores, out="


def measure(entries: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Every closed form, its middle set, on batches of that many entries."""
    rows: list[Row] = []
    for size in SIZES:
        rng = np.random.default_rng([seed, size])
        q = cases.center(size, rng)
        for case in cases.ALL:
            # A matrix per set: time grows with N² and more, so fewer rows.
            cost = size if case in cases.LINEAR else size * size // 10
            losses = rng.normal(size=(max(10, entries // cost), size))
            group = f"a row of a ({len(losses):,}, {size}) batch"
            say(f"{case.label}: {group}")
            rows.extend(_one_case(group, case.label, case.make(q, "middle", rng), losses, rounds))
    return rows


def _one_case(
    group: str, label: str, uncertainty_set: UncertaintySet, losses: Array, rounds: int
) -> list[Row]:
    """Times by way of calling, by the least of the rounds; how much faster all cores are; what out= saves."""
    calls: dict[str, Callable[[], object]] = {
        ONE: partial(_on_one_thread, uncertainty_set, losses),
        ALL: partial(uncertainty_set.worst_case, losses),
        REUSED: partial(uncertainty_set.worst_case, losses, out=np.empty_like(losses)),
    }
    samples = interleave(calls, rounds, least=rounds)
    unit, rows = 1e6 / len(losses), []
    for way in calls:
        found = samples.time(way)
        low, high = found.low * unit, found.high * unit
        limit = LIMITS.get((losses.shape[1], label)) if way == ONE else None
        rows.append(Row(group, f"{label}: {way}", found.least * unit, "µs", limit, low=low, high=high))
    if losses.size >= dispatch.PARALLEL_FROM:  # smaller batches run on one thread either way
        faster = samples.ratio(ONE, ALL)
        rows.append(row(group, f"{label}: all cores against one", faster, "×", SPEEDUP, at_least=True))
    rows.append(row(group, f"{label}: time with out= against without", samples.ratio(REUSED, ALL), "×"))
    return rows


def _on_one_thread(uncertainty_set: UncertaintySet, losses: Array) -> None:
    with patch.object(dispatch, "cores", return_value=1):
        uncertainty_set.worst_case(losses)
