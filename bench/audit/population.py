"""Do statements about the population hold? Coverage of the s-value's intervals, validity of the bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import binom

from bench.audit.laws import LAWS, draw, truth, worst
from bench.display.tables import Table
from uncertainty_sets import KL, Burg, ChiSquare, CVaR, Hellinger
from uncertainty_sets.audit import Audit
from uncertainty_sets.audit.families import family_of

SHIFTS: dict[Any, float] = {KL: 0.1, ChiSquare: 0.2, Hellinger: 0.02, Burg: 0.05, CVaR: 0.5}
"""The size at which each threshold is placed."""

BOUNDED: dict[Any, float] = {KL: 0.1, ChiSquare: 0.2, CVaR: 0.2}
"""Those at which upper bounds are measured."""

ALL_BUT_ERRORS = tuple(LAWS)[:3]

ONE_SIDED = 1.6449 / 1.9600
"""Of the half width of the two-sided asymptotic interval."""

GROUPS = {"A": (0.6, 0.05), "B": (0.3, 0.1), "C": (0.1, 0.4)}
"""Share and error rate."""


RATES = {0.02: 50, 0.1: 10, 0.3: 10}
"""Error rates of 0/1 losses, and the size of a sample that has just that rate."""


def s_values(sizes: dict[int, tuple[int, int]], seed: int) -> Table:
    """How often the asymptotic interval holds the true least radius, and the proved bound is below it.

    Args:
        sizes: by the number of samples, the rounds of the interval, and of the bound, which costs more.
        seed: of the samples, each of which all sets are asked about.
    """
    rows: list[list[str]] = []
    heads = ["set", "law", "n", "rounds", "interval holds", "rounds", "bound holds", "bound / truth"]
    rng = np.random.default_rng(seed)
    places = [
        (kind, law, _radius(kind, size), truth(kind, size, law))
        for kind, size in SHIFTS.items()
        for law in LAWS
    ]
    found: dict[tuple[Any, str, int], tuple[list[bool], list[float]]] = {
        (kind, law, n): ([], []) for kind, law, _, _ in places for n in sizes
    }
    for law in LAWS:
        for n, (rounds, proofs) in sizes.items():
            for round_ in range(max(rounds, proofs)):
                audit = Audit(draw(law, n, rng))
                if round_ >= proofs:
                    audit._evidence = None
                for kind, of, radius, threshold in places:
                    if of == law:
                        answer = audit.radius_to_failure(kind, threshold)
                        held, shares = found[kind, law, n]
                        if answer.interval is not None and round_ < rounds:
                            held.append(answer.interval[0] <= radius <= answer.interval[1])
                        if answer.at_least is not None:
                            shares.append(answer.at_least / radius)
    for (kind, law, n), (held, shares) in found.items():
        below = np.array(shares) <= 1 + 1e-6
        rows.append(
            [family_of(kind).name, law, f"{n:,}", f"{len(held):,}", _percent(held) if held else "not given",
             f"{below.size:,}", _percent(below), f"{np.median(shares):.2f}"]
        )  # fmt: skip
    return Table("s-value, nominal 95 %", heads, rows)


def _radius(kind: Any, size: float) -> float:
    """What `radius_for` calls the radius."""
    return size if family_of(kind).size == "radius" else 1.0 / size - 1.0


def _percent(held: Any) -> str:
    return f"{100 * np.mean(held):.1f} %"


def zero_one(sizes: tuple[int, ...]) -> Table:
    """The s-value of 0/1 losses: both coverages, summed over the binomial law of the count of errors."""
    rows: list[list[str]] = []
    for kind, size in SHIFTS.items():
        radius = _radius(kind, size)
        for rate, least in RATES.items():
            threshold = worst(kind, size, (np.arange(least) < round(rate * least)).astype(np.float64))
            for n in sizes:
                chance = binom.pmf(np.arange(n + 1), n, rate)
                below = held = given = 0.0
                for count in np.flatnonzero(chance > 1e-12).tolist():
                    answer = Audit(np.arange(n) < count).radius_to_failure(kind, threshold)
                    assert answer.at_least is not None
                    below += chance[count] * (answer.at_least <= radius * (1 + 1e-6))
                    if answer.interval is not None:
                        given += chance[count]
                        held += chance[count] * (answer.interval[0] <= radius <= answer.interval[1])
                rows.append(
                    [family_of(kind).name, f"{100 * rate:g} %", f"{n:,}", f"{100 * below:.2f} %",
                     f"{100 * held / given:.2f} %" if given > 1e-6 else "not given"]
                )  # fmt: skip
    heads = ["set", "error rate", "n", "bound holds", "interval holds"]
    return Table("s-value of 0/1 losses, nominal 95 %, exact", heads, rows)


def group_values(rounds: int, sizes: tuple[int, ...], seed: int) -> Table:
    """The same over the mix of groups, for a threshold at KL 0.2 of the true shares."""
    rows: list[list[str]] = []
    table = Table(f"s-value over groups, {rounds:,} rounds", ["n", "interval holds", "bound holds"], rows)
    rng = np.random.default_rng(seed)
    share, rate = (np.array(each) for each in zip(*GROUPS.values(), strict=True))
    threshold = float(KL(share, 0.2).worst_case(rate).value)
    for n in sizes:
        held = proved = 0
        for _ in range(rounds):
            group = rng.choice(share.size, n, p=share)
            audit = Audit(rng.random(n) < rate[group], groups=group)
            found = audit.group_radius_to_failure(KL, threshold)
            assert found.interval is not None
            assert found.at_least is not None
            assert audit.groups is not None
            held += found.interval[0] <= 0.2 <= found.interval[1]
            given = float(KL(audit.groups.share, 1.0).radius_for(rate, threshold).radius)  # given the labels
            proved += found.at_least <= given
        rows.append([f"{n:,}", f"{100 * held / rounds:.1f} %", f"{100 * proved / rounds:.1f} %"])
    return table


def bounds(sizes: dict[int, int], seed: int, laws: tuple[str, ...] = ALL_BUT_ERRORS) -> Table:
    """How often the proved bound is above the truth, and its excess over the asymptotic one.

    Args:
        sizes: rounds by the number of samples.
        seed: of the samples, each of which all sets are asked about.
        laws: of the losses.
    """
    rows: list[list[str]] = []
    heads = ["set", "law", "n", "rounds", "upper bound holds", "left end holds", "excess", "over asymptotic"]
    rng = np.random.default_rng(seed)
    for law in laws:
        true = {kind: truth(kind, size, law) for kind, size in BOUNDED.items()}
        for n, rounds in sizes.items():
            seen: dict[Any, list[tuple[float, ...]]] = {kind: [] for kind in BOUNDED}
            for _ in range(rounds):
                audit = Audit(draw(law, n, rng))
                for kind, size in BOUNDED.items():
                    found, least = audit.worst(kind, size), audit.radius_to_failure(kind, true[kind])
                    assert found.at_most is not None
                    assert found.interval is not None
                    assert least.at_least is not None
                    excess, half = found.at_most - found.value, found.interval[1] - found.value
                    seen[kind].append(
                        (found.at_most >= true[kind], least.at_least <= _radius(kind, size) * (1 + 1e-6),
                         excess, excess / (half * ONE_SIDED))
                    )  # fmt: skip
            for kind, each in seen.items():
                above, below, excess, ratio = np.array(each, dtype=np.float64).T
                error = np.std(ratio) / np.sqrt(rounds)
                rows.append(
                    [family_of(kind).name, law, f"{n:,}", f"{rounds:,}", _percent(above), _percent(below),
                     f"{np.mean(excess):.4f}", f"{np.mean(ratio):.2f} ± {error:.2f}×"]
                )  # fmt: skip
    rows.sort(key=lambda row: [family_of(kind).name for kind in BOUNDED].index(row[0]))
    title = f"proved upper bound of the worst case and left end of the s-value, 95 %, n from {min(sizes):,}"
    return Table(title, heads, rows)


def clustered(rounds: int, seed: int) -> Table:
    """Rows that come in clusters: interval and bound of a worst case with and without `clusters`."""
    rows: list[list[str]] = []
    table = Table(
        f"200 clusters of 10 rows, error rates beta(1, 9), {rounds:,} rounds",
        ["clusters=", "interval holds", "bound holds"],
        rows,
    )
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(200), 10)
    true = float(KL([0.9, 0.1], 0.05).worst_case([0.0, 1.0]).value)
    for given in (False, True):
        held = proved = 0
        for _ in range(rounds):
            errors = rng.random(2000) < rng.beta(1, 9, 200)[cluster]
            found = Audit(errors, clusters=cluster if given else None).worst(KL, 0.05)
            assert found.interval is not None
            assert found.at_most is not None
            held += found.interval[0] <= true <= found.interval[1]
            proved += found.at_most >= true
        rows.append(
            [
                "given" if given else "left out",
                f"{100 * held / rounds:.1f} %",
                f"{100 * proved / rounds:.1f} %",
            ]
        )
    return table
