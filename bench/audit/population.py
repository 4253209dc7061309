"""Do statements about the population hold? Coverage of the s-value's intervals, validity of the bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.audit.laws import LAWS, draw, truth
from bench.display.tables import Table
from uncertainty_sets import KL, Burg, ChiSquare, CVaR, Hellinger
from uncertainty_sets.audit import Audit
from uncertainty_sets.audit.families import family_of

SHIFTS: dict[Any, float] = {KL: 0.1, ChiSquare: 0.2, Hellinger: 0.02, Burg: 0.05, CVaR: 0.5}
"""The size at which each threshold is placed."""

GROUPS = {"A": (0.6, 0.05), "B": (0.3, 0.1), "C": (0.1, 0.4)}
"""Share and error rate."""


def s_values(rounds: int, sizes: tuple[int, ...], seed: int, proofs: int = 300) -> Table:
    """How often the asymptotic interval holds the true least radius, and the proved bound is below it.

    Args:
        rounds: of the interval.
        sizes: numbers of samples.
        seed: of the samples.
        proofs: rounds of the bound, which costs more.
    """
    rows: list[list[str]] = []
    table = Table(
        "s-value, nominal 95 %", ["set", "law", "n", "interval holds", "bound holds", "bound / truth"], rows
    )
    rng = np.random.default_rng(seed)
    for kind, size in SHIFTS.items():
        family = family_of(kind)
        radius = size if family.size == "radius" else 1.0 / size - 1.0
        for law in LAWS:
            threshold = truth(kind, size, law)
            for n in sizes:
                held, proved, share, given = 0, 0, [], 0
                for round_ in range(rounds):
                    audit = Audit(draw(law, n, rng))
                    if round_ >= proofs:
                        audit._evidence = None
                    found = audit.radius_to_failure(kind, threshold)
                    if found.interval is not None:
                        given += 1
                        held += found.interval[0] <= radius <= found.interval[1]
                    if found.at_least is not None:
                        proved += found.at_least <= radius * (1 + 1e-6)
                        share.append(found.at_least / radius)
                covered = f"{100 * held / given:.1f} %" if given else "not given"
                rows.append(
                    [
                        family.name,
                        law,
                        f"{n:,}",
                        covered,
                        f"{100 * proved / len(share):.1f} %",
                        f"{np.median(share):.2f}",
                    ]
                )
    return table


def group_values(rounds: int, sizes: tuple[int, ...], seed: int) -> Table:
    """The same over the mix of groups, for a threshold at KL 0.2 of the true shares."""
    rows: list[list[str]] = []
    table = Table("s-value over groups", ["n", "interval holds", "bound holds"], rows)
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


def bounds(sizes: dict[int, int], seed: int) -> Table:
    """How often the proved bound is above the truth, and its excess over the asymptotic one.

    Args:
        sizes: rounds by the number of samples.
        seed: of the samples.
    """
    rows: list[list[str]] = []
    table = Table(
        "upper bound of the worst case, 95 %", ["set", "law", "n", "holds", "excess", "over asymptotic"], rows
    )
    rng = np.random.default_rng(seed)
    for kind, size in ((KL, 0.1), (ChiSquare, 0.2), (CVaR, 0.2)):
        family = family_of(kind)
        for law in list(LAWS)[:3]:
            true = truth(kind, size, law)
            for n, rounds in sizes.items():
                holds, excess, ratio = 0, [], []
                for _ in range(rounds):
                    found = Audit(draw(law, n, rng)).worst(kind, size)
                    assert found.at_most is not None
                    assert found.interval is not None
                    holds += found.at_most >= true
                    one_sided = 1.6449 * (found.interval[1] - found.value) / 1.9600
                    excess.append(found.at_most - found.value)
                    ratio.append(excess[-1] / one_sided)
                rows.append(
                    [
                        family.name,
                        law,
                        f"{n:,}",
                        f"{100 * holds / rounds:.1f} %",
                        f"{np.mean(excess):.4f}",
                        f"{np.mean(ratio):.2f}×",
                    ]
                )
    return table


def clustered(rounds: int, seed: int) -> Table:
    """Rows that come in clusters: interval and bound of a worst case with and without `clusters`."""
    rows: list[list[str]] = []
    table = Table(
        "200 clusters of 10 rows, error rates beta(1, 9)",
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
