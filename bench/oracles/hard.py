"""Inputs made to be slow: time over that of ordinary losses, for each closed form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.measuring import cases
from bench.measuring.targets import Row, row
from bench.measuring.timing import interleave
from bench.soak import killers
from bench.soak.losses import FAMILIES
from uncertainty_sets import KL, Box, ChiSquare, Intersection
from uncertainty_sets.arrays import Array

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
