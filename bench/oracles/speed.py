"""Speed of the closed forms over one np.argsort, on ordinary and hard losses; of small calls and batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.measuring import cases
from bench.measuring.targets import Row, row
from bench.measuring.timing import interleave
from bench.oracles import certificates
from bench.soak import killers
from bench.soak.losses import FAMILIES
from uncertainty_sets import KL, Box, CDNorm, ChiSquare, Intersection, Wasserstein1
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


LIMIT = 10.0
SMALL_RADIUS = 1e-12


def against_ordinary(size: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """The middle set of each closed form; the slowest family of losses counts."""
    say(f"hard inputs at N = {size:,}")
    rng = np.random.default_rng([seed, size, 7])
    q = cases.center(size, rng)
    hard = {name: family(rng, (1, size))[0] for name, family in FAMILIES.items()}
    hard["against the sample"] = killers.against_sample(size)
    ordinary = hard.pop("plain")
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    for case in cases.LINEAR:
        ask = case.make(q, "middle", rng).worst_case
        calls[case.label, ""] = partial(ask, ordinary)
        calls.update({(case.label, name): partial(ask, f) for name, f in hard.items()})
    label = f"{cases.KL_.label}, radius {SMALL_RADIUS:g}, masses over many decades"
    masses = 10.0 ** -rng.uniform(0.0, 30.0, size)
    calls[label, ""] = calls[cases.KL_.label, ""]
    for name, f in hard.items():
        calls[label, name] = partial(KL(masses / masses.sum(), SMALL_RADIUS).worst_case, f)
    return _rows(calls, size, rounds)


def against_selection(size: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Losses made against the selection's sample, for the box that they are made for."""
    say(f"orders that defeat the sample at N = {size:,}")
    rng = np.random.default_rng([seed, size, 8])
    ask = Box(np.zeros(size), np.full(size, 2.0 / size)).worst_case
    order = killers.against_sample(size)
    hard = {
        "": rng.normal(size=size),
        "against the sample": order,
        "the same, negated": -order,
        "against median of three": killers.against_median_of_three(size),
        "sorted": np.arange(float(size)),
    }
    label = "Box, half the weight, equal weights"
    return _rows({(label, name): partial(ask, f) for name, f in hard.items()}, size, rounds)


def clipped_balls(rows: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """A ball and a box about centres of Dirichlet(0.02), with entries down to 1e-300, and of Dirichlet(1).

    Rows that leave the closed form are counted over `rows` centres of up to 50 entries.
    """
    rng, found = np.random.default_rng([seed, rows, 9]), []
    for kind in (KL, ChiSquare):
        say(f"{rows:,} skewed centres of {kind.__name__} and Box")
        left, calls = 0, {}
        for part in range(20):
            size = int(rng.integers(2, 51))
            f = rng.normal(size=(max(1, rows // 20), size))
            for skew in (0.02, 1.0):
                q = rng.gamma(skew, size=f.shape) + 1e-300
                q /= q.sum(axis=1, keepdims=True)
                upper = np.maximum(rng.choice([1.2, 2.0], (len(f), 1)) * q, 0.3)
                lower = rng.choice([0.0, 0.5, 0.9], (len(f), 1)) * q
                radius = 10.0 ** rng.uniform(-3.0, 0.5, len(f))
                subject = Intersection(kind(q, radius), Box(lower, upper))
                if skew < 1.0:
                    left += _not_closed(subject, f)
                if part == 0:
                    calls[kind.__name__, f"Dirichlet({skew:g})" if skew < 1.0 else ""] = partial(
                        subject.worst_case, f
                    )
        group = f"{kind.__name__} and Box at N <= 50"
        found.append(Row(group, f"of {rows:,} skewed centres, those that leave the closed form", left, "", 0))
        ratio = interleave(calls, rounds, least=rounds).ratio(*calls)
        found.append(row(group, "time with skewed centres over Dirichlet(1)", ratio, "×", 3.0))
    return found


def _not_closed(subject: Intersection, f: Array) -> int:
    """How many rows another method answered, or none did."""
    answer = subject.worst_case(f, on_failure="nan")
    if answer.backend == "closed-form" and not answer.failed:
        return 0
    alone = (subject._row(b).worst_case(each, on_failure="nan") for b, each in enumerate(f))
    return sum(each.backend != "closed-form" or bool(each.failed) for each in alone)


def _rows(calls: dict[tuple[str, str], Callable[[], object]], size: int, rounds: int) -> list[Row]:
    """One row for each set, by the slowest of its calls over the one with the name ""."""
    samples = interleave(calls, rounds, least=rounds)
    group = f"time over that of ordinary losses at N = {size:,}"
    rows = []
    for label in dict.fromkeys(label for label, _ in calls):
        ratios = {
            name: samples.ratio((label, name), (label, "")) for of, name in calls if of == label and name
        }
        worst = max(ratios, key=lambda name: ratios[name].median)
        rows.append(row(group, label, ratios[worst], "×", LIMIT, note=f"slowest: {worst}"))
    return rows


Rng = np.random.Generator

WORST_LIMIT, MEDIAN_LIMIT = 1.3, 1.0

SPREADS: dict[str, Callable[[Rng, Array], Array]] = {
    "parts of the centre": lambda rng, q: q * rng.random(q.size),
    "heavy tails": lambda rng, q: q * np.minimum(1.0, rng.pareto(1.0, q.size)),
    "wide": lambda rng, q: np.exp(3.0 * rng.normal(size=q.size)) / q.size,
    "twelve decades": lambda rng, q: 10.0 ** -rng.uniform(0.0, 12.0, q.size),
}

LOSSES: dict[str, Callable[[Rng, int], Array]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "walk": lambda rng, n: np.cumsum(rng.normal(size=n)),
    "tied": lambda rng, n: np.round(4.0 * rng.normal(size=n)) / 4.0,
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
    "two values": lambda rng, n: (rng.normal(size=n) > 1.5).astype(float),
    "sorted": lambda rng, n: np.sort(rng.normal(size=n)),
    "periodic": lambda rng, n: np.sin(np.arange(n) * 0.02 * np.pi) + 1e-3 * rng.normal(size=n),
    "one outlier": lambda rng, n: np.where(np.arange(n) == 7, 1e6, rng.normal(size=n)),
}

BUDGETS: dict[str, Callable[[int], float]] = {
    "N/4": lambda n: n / 4,
    "N/1000": lambda n: n / 1000,
    "10": lambda n: 10.0,
}


def every_kind(size: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """The worst and the median ratio of each kind of spreads, and the worst gap over what is promised."""
    rng = np.random.default_rng([seed, size, 9])
    weights = rng.random(size)
    q, usual = weights / weights.sum(), rng.normal(size=size)
    losses = {name: make(rng, size) for name, make in LOSSES.items()}
    group = f"CDNorm any spreads over one np.argsort at N = {size:,}"
    rows = []
    everything: list[float] = []
    for name, make in SPREADS.items():
        s, ratios, gaps = make(rng, q), {}, {}
        for label, budget in BUDGETS.items():
            say(f"CD-norm: spreads {name}, budget {label}")
            subject = CDNorm(q, s, budget(size))
            calls: dict[str, Callable[[], object]] = {
                kind: partial(subject.worst_case, f) for kind, f in losses.items()
            }
            samples = interleave({"argsort": partial(np.argsort, usual), **calls}, rounds, least=rounds)
            for kind, f in losses.items():
                ratios[kind, label] = samples.ratio(kind, "argsort").median
                found = certificates.gap(subject, f, subject.worst_case(f))
                gaps[kind, label] = abs(found) / certificates.allowed(f)
        everything.extend(ratios.values())
        slowest, loosest = max(ratios, key=lambda at: ratios[at]), max(gaps, key=lambda at: gaps[at])
        note = "{} losses, budget {}".format(*slowest)
        rows.append(Row(group, f"spreads {name}: slowest", ratios[slowest], "×", WORST_LIMIT, note=note))
        note = "{} losses, budget {}".format(*loosest)
        rows.append(
            Row(group, f"spreads {name}: gap over the allowed gap", gaps[loosest], "", 1.0, note=note)
        )
    rows.append(Row(group, "median of all", float(np.median(everything)), "×", MEDIAN_LIMIT))
    return rows
