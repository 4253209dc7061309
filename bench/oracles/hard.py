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
from uncertainty_sets import KL, Box

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
