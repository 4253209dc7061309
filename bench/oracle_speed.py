"""Closed forms against np.argsort at N = 10⁶, small calls, and batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench import cases
from bench.targets import Row, row
from bench.timing import interleave

ARGSORT_LIMITS = {
    cases.BOX.label: 0.5,
    cases.EQUAL.label: 0.7,
    cases.KL_.label: 0.7,
    cases.DIAGONAL.label: 0.7,
    cases.CD.label: 3.0,
    cases.LINE.label: 3.0,
}
WARM_LINE_LIMIT = 1.5
MOVED = 0.01
"""How far losses move before a warm start, over their standard deviation."""

SMALL_CALL, BATCH_ROW = 10.0, 1.0


def against_argsort(size: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Time over one np.argsort of the same losses, all interleaved; the worst and the middle set count."""
    rng = np.random.default_rng([seed, size])
    f, q = cases.losses(size, rng), cases.center(size, rng)
    moved = f + MOVED * rng.normal(size=size)
    calls: dict[tuple[str, str], Callable[[], object]] = {("", "argsort"): partial(np.argsort, f)}
    for case in cases.LINEAR:
        for level in cases.LEVELS:
            uncertainty_set = case.make(q, level, rng)
            calls[case.label, level] = partial(uncertainty_set.worst_case, f)
            if case is cases.LINE:
                before = uncertainty_set.worst_case(moved)
                calls[f"{case.label} warm", level] = partial(
                    uncertainty_set.worst_case, f, warm_start=before
                )
    say(f"against argsort at N = {size:,}")
    samples = interleave(calls, rounds, least=rounds)
    sort = samples.time(("", "argsort"))
    group = f"time over one np.argsort at N = {size:,} ({sort.median * 1e3:.0f} ms)"
    rows = []
    for label in dict.fromkeys(label for label, _ in calls if label):
        ratios = {level: samples.ratio((label, level), ("", "argsort")) for level in cases.LEVELS}
        worst = max(ratios, key=lambda level: ratios[level].median)
        limit = WARM_LINE_LIMIT if label.endswith("warm") else ARGSORT_LIMITS[label]
        others = ", ".join(f"{level} {ratios[level].median:.2f}" for level in cases.LEVELS)
        rows.append(row(group, f"{label}: worst set", ratios[worst], "×", limit, note=others))
        rows.append(row(group, f"{label}: middle set", ratios["middle"], "×", limit))
    return rows


def small_calls(rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Microseconds of one call at N = 10, everything included."""
    say("single calls at N = 10")
    rng = np.random.default_rng([seed, 10])
    f, q = cases.losses(10, rng), cases.center(10, rng)
    calls: dict[tuple[str, str], Callable[[], object]] = {
        (case.label, level): partial(case.make(q, level, rng).worst_case, f)
        for case in cases.ALL
        for level in cases.LEVELS
    }
    samples = interleave(calls, rounds, least=rounds)
    rows = []
    for case in cases.ALL:
        times = {level: samples.time((case.label, level)) for level in cases.LEVELS}
        worst = max(times, key=lambda level: times[level].median)
        found = times[worst]
        others = ", ".join(f"{level} {times[level].median * 1e6:.1f}" for level in cases.LEVELS)
        rows.append(
            Row(
                "one call at N = 10",
                case.label,
                found.median * 1e6,
                "µs",
                SMALL_CALL,
                low=found.low * 1e6,
                high=found.high * 1e6,
                note=others,
            )
        )
    return rows


def batches(count: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Microseconds a row of a (count, 10) batch."""
    say(f"batches of shape ({count:,}, 10)")
    rng = np.random.default_rng([seed, count])
    F, q = rng.normal(size=(count, 10)), cases.center(10, rng)
    calls: dict[tuple[str, str], Callable[[], object]] = {
        (case.label, level): partial(case.make(q, level, rng).worst_case, F)
        for case in cases.ALL
        for level in cases.LEVELS
    }
    samples = interleave(calls, rounds, least=rounds)
    rows = []
    for case in cases.ALL:
        times = {level: samples.time((case.label, level)) for level in cases.LEVELS}
        worst = max(times, key=lambda level: times[level].median)
        found, unit = times[worst], 1e6 / count
        others = ", ".join(f"{level} {times[level].median * unit:.2f}" for level in cases.LEVELS)
        rows.append(
            Row(
                f"a row of a ({count:,}, 10) batch",
                case.label,
                found.median * unit,
                "µs",
                BATCH_ROW,
                low=found.low * unit,
                high=found.high * unit,
                note=others,
            )
        )
    return rows
