"""Closed forms against np.argsort at N = 10⁶, small calls, and batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.measuring import cases
from bench.measuring.targets import Row, row
from bench.measuring.timing import interleave
from uncertainty_sets import KL, Wasserstein1
from uncertainty_sets.arrays import Array

ARGSORT_LIMITS = {
    cases.BOX.label: 0.5,
    cases.EQUAL.label: 0.7,
    cases.KL_.label: 0.7,
    cases.DIAGONAL.label: 0.7,
    cases.CD.label: 1.3,
    cases.LINE.label: 1.3,
    cases.TV.label: 0.5,
    cases.L1.label: 1.2,
    cases.CHI_SQUARE.label: 0.2,
    cases.HELLINGER.label: 0.3,
    cases.BURG.label: 0.6,
    cases.CLIPPED.label: 2.0,
    cases.LINE_2.label: 5.0,
}
"""Sets without a limit here are measured, and have no target."""

WARM_LINE_LIMIT = 1.0
MOVED = 0.01
"""How far losses move before a warm start, over their standard deviation."""

SMALL_CALL, BATCH_ROW = 10.0, 1.0
RADIUS_FOR_LIMIT = 0.6
REACHES = (0.2, 0.5, 0.8)
"""Targets of radius_for, between the mean and the largest loss."""


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
                calls[f"{case.label} warm", level] = partial(uncertainty_set.worst_case, f, warm_start=before)
    say(f"against argsort at N = {size:,}")
    samples = interleave(calls, rounds, least=rounds)
    sort = samples.time(("", "argsort"))
    group = f"time over one np.argsort at N = {size:,} ({sort.median * 1e3:.0f} ms)"
    rows = []
    for label in dict.fromkeys(label for label, _ in calls if label):
        ratios = {level: samples.ratio((label, level), ("", "argsort")) for level in cases.LEVELS}
        worst = max(ratios, key=lambda level: ratios[level].median)
        limit = WARM_LINE_LIMIT if label.endswith("warm") else ARGSORT_LIMITS.get(label)
        others = ", ".join(f"{level} {ratios[level].median:.2f}" for level in cases.LEVELS)
        rows.append(row(group, f"{label}: worst set", ratios[worst], "×", limit, note=others))
        rows.append(row(group, f"{label}: middle set", ratios["middle"], "×", limit))
    return rows


def line_losses(size: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """The line on losses of other kinds, over one np.argsort of normal ones: cold, and warm by the answer."""
    rng = np.random.default_rng([seed, size])
    f, q = cases.losses(size, rng), cases.center(size, rng)
    kinds = {
        "normal": f,
        "random walk": np.cumsum(f),
        "tied": np.round(4.0 * f) / 4.0,
        "Cauchy": rng.standard_cauchy(size),
        "two-valued": (f > 1.5).astype(np.float64),
        "sorted": np.sort(f),
        "one outlier": np.where(np.arange(size) == 7, 1e6, f),
    }
    line = Wasserstein1(q, 1.0)
    calls: dict[tuple[str, str], Callable[[], object]] = {("", "argsort"): partial(np.argsort, f)}
    for kind, losses in kinds.items():
        calls[kind, "cold"] = partial(line.worst_case, losses)
        calls[kind, "warm"] = partial(line.worst_case, 1.0001 * losses, warm_start=line.worst_case(losses))
    say(f"Wasserstein1 line on other losses at N = {size:,}")
    samples = interleave(calls, rounds, least=rounds)
    group = f"Wasserstein1 line, radius 1: time over one np.argsort of normal losses at N = {size:,}"
    limits = {"cold": ARGSORT_LIMITS[cases.LINE.label], "warm": WARM_LINE_LIMIT}
    return [
        row(group, f"{kind}, {start}", samples.ratio((kind, start), ("", "argsort")), "×", limits[start])
        for kind, start in calls
        if kind
    ]


def radius_for(size: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """The least radius of KL for targets between the mean and the largest loss, over one np.argsort."""
    say(f"radius_for at N = {size:,}")
    rng = np.random.default_rng([seed, size, 11])
    f, q = cases.losses(size, rng), cases.center(size, rng)
    mean, top, ball = float(q @ f), float(f.max()), KL(q, 0.0)
    calls: dict[str, Callable[[], object]] = {"argsort": partial(np.argsort, f)}
    for reach in REACHES:
        calls[f"target {reach:.0%} of the way from the mean to the largest loss"] = partial(
            ball.radius_for, f, mean + reach * (top - mean)
        )
    samples = interleave(calls, rounds, least=rounds)
    group = f"KL.radius_for over one np.argsort at N = {size:,}"
    return [
        row(group, what, samples.ratio(what, "argsort"), "×", RADIUS_FOR_LIMIT)
        for what in calls
        if what != "argsort"
    ]


def small_calls(rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Microseconds of one call at N = 10, everything included."""
    say("single calls at N = 10")
    rng = np.random.default_rng([seed, 10])
    return _microseconds("one call at N = 10", cases.losses(10, rng), 1, SMALL_CALL, rounds, rng)


def batches(count: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Microseconds a row of a (count, 10) batch."""
    say(f"batches of shape ({count:,}, 10)")
    rng = np.random.default_rng([seed, count])
    group = f"a row of a ({count:,}, 10) batch"
    return _microseconds(group, rng.normal(size=(count, 10)), count, BATCH_ROW, rounds, rng)


def _microseconds(
    group: str, losses: Array, count: int, limit: float, rounds: int, rng: np.random.Generator
) -> list[Row]:
    """The worst of the three sets of each closed form, by the least of the rounds; medians in the note."""
    q = cases.center(losses.shape[-1], rng)
    calls: dict[tuple[str, str], Callable[[], object]] = {
        (case.label, level): partial(case.make(q, level, rng).worst_case, losses)
        for case in cases.ALL
        for level in cases.LEVELS
    }
    samples = interleave(calls, rounds, least=rounds)
    unit, rows = 1e6 / count, []
    for case in cases.ALL:
        times = {level: samples.time((case.label, level)) for level in cases.LEVELS}
        worst = max(times.values(), key=lambda found: found.least)
        levels = ", ".join(f"{level} {times[level].least * unit:.2f}" for level in cases.LEVELS)
        note = f"least of {worst.count} rounds: {levels}"
        low, high = worst.low * unit, worst.high * unit
        rows.append(Row(group, case.label, worst.least * unit, "µs", limit, low=low, high=high, note=note))
    return rows
