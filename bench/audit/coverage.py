"""Conformal thresholds: worst coverage by integrals, ranks that would be too small, groups, a control."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import beta

from bench.audit.laws import CUBIC, worst
from bench.display.tables import Table
from uncertainty_sets import KL, Burg, ChiSquare, CVaR, EVaR, Hellinger, TotalVariation
from uncertainty_sets.arrays import Array
from uncertainty_sets.audit.conformal import group_threshold, least_samples, rank, worst_miss
from uncertainty_sets.audit.families import Family, family_of

SETS: tuple[tuple[Any, float], ...] = (
    (KL, 0.02), (KL, 0.1), (ChiSquare, 0.1), (ChiSquare, 0.3), (Hellinger, 0.01), (Burg, 0.05), (CUBIC, 0.1),
    (TotalVariation, 0.03), (EVaR, 0.9), (CVaR, 0.5),
)  # fmt: skip
ALPHA = 0.1
POINTS = 200_000
NEAR = 2e-6
"""Of a coverage: the integrals' own error."""


def covered(kind: Any, size: float, n: int, k: int) -> float:
    """The worst coverage over the set of the k-th smallest of n scores, averaged over scores; no oracle."""
    u = (np.arange(POINTS) + 0.5) / POINTS
    return 1.0 - worst(kind, size, np.asarray(beta.cdf(u, k, n + 1 - k)))


def simple_rank(n: int, family: Family, size: float) -> int:
    """The rank by Jensen's inequality: the least k with h(1 - k/(n+1)) <= alpha."""
    miss = worst_miss(family, size, 1.0 - np.arange(1, n + 1) / (n + 1.0))
    enough = np.flatnonzero(miss <= ALPHA + 1e-12)
    return int(enough[0]) + 1 if enough.size else n + 1


def exact(sizes: tuple[int, ...]) -> Table:
    """The worst coverage at the rank, and at the next smaller one."""
    rows: list[list[str]] = []
    title = "conformal, 90 % wanted under the worst distribution of the set"
    heads = ["set", "n", "rank", "by Jensen", "worst coverage", "next smaller rank", "finite from"]
    for kind, size in SETS:
        family = family_of(kind)
        for n in sizes:
            k = rank(n, ALPHA, family, size)
            simple = simple_rank(n, family, size)
            at, below = (covered(kind, size, n, each) if each <= n else 1.0 for each in (k, k - 1))
            shown = [f"{100 * at:.3f} %" if k <= n else "–", f"{100 * below:.3f} %"]
            if at < 1 - ALPHA - NEAR or below >= 1 - ALPHA + NEAR:
                shown[0] += " (!)"
            needed = least_samples(ALPHA, family, size)
            rows.append(
                [f"{family.name} {size:g}", f"{n:,}", f"{k if k <= n else '∞'}",
                 f"{simple if simple <= n else '∞'}", *shown, f"{needed:,}"]
            )  # fmt: skip
    return Table(title, heads, rows)


def groups(rounds: int, seed: int) -> Table:
    """Four groups of 30 scores: the miss under fixed mixes of the set, with and without the "+1"."""
    rng = np.random.default_rng(seed)
    share, n = np.full(4, 0.25), 30
    shift = np.array([0.0, 0.1, 0.2, 0.5])  # scores are uniform on [shift, 1 + shift]
    at = 1.0 - ALPHA + shift
    truth = 1.0 - np.clip(np.quantile(at, [0.5])[0] - shift, 0, 1)
    mixes = {
        "worst of KL 0.2": (KL, 0.2, KL(share, 0.2).worst_case(truth).p),
        "equal, in KL 0.2": (KL, 0.2, share),
        "the worst group": (None, None, np.eye(4)[3]),
    }
    rows: list[list[str]] = []
    for name, (kind, size, mix) in mixes.items():
        for plus in (True, False):
            missed = []
            for _ in range(rounds):
                scores = rng.random((4, n)) + shift[:, None]
                if plus:
                    of = [np.arange(n) + g * n for g in range(4)]
                    t = group_threshold(scores.ravel(), of, ALPHA, kind, size).value
                else:
                    t = _without(scores, share, kind, size)
                missed.append(float(mix @ (1.0 - np.clip(t - shift, 0.0, 1.0))))
            error = np.std(missed) / np.sqrt(rounds)
            rows.append([name, "yes" if plus else "no", f"{100 * np.mean(missed):.2f} ± {100 * error:.2f} %"])
    title = f"groups: missed, 10 % allowed, 4 × 30 scores, {rounds:,} rounds"
    return Table(title, ["mix", "+1", "missed"], rows)


def _without(scores: Array, share: Array, kind: Any, size: float | None) -> float:
    """The control: the least t at which the worst mix of observed misses is at most alpha, without the +1."""
    values = np.sort(scores.ravel())
    low, high = 0, values.size - 1
    while low < high:
        middle = (low + high) // 2
        miss = (scores > values[middle]).mean(axis=1)
        worst_mix = miss.max() if kind is None else KL(share, size or 0.0).worst_case(miss).value
        low, high = (low, middle) if worst_mix <= ALPHA + 1e-12 else (middle + 1, high)
    return float(values[low])


def control(sizes: tuple[int, ...]) -> Table:
    """One set, with k/n in place of k/(n+1) in the simple rule.

    A rank below the exact one must fail, as that is the least possible. For total variation and CVaR, whose
    h is linear, it is below wherever n(1 - alpha + radius) or n(1 - alpha·tail) is a whole number; elsewhere
    the slack of the simple rule may make up for the "+1".
    """
    rows: list[list[str]] = []
    for kind, size in ((TotalVariation, 0.03), (CVaR, 0.5), (KL, 0.02), (ChiSquare, 0.1)):
        family = family_of(kind)
        for n in sizes:
            miss = worst_miss(family, size, 1.0 - np.arange(1, n + 1) / n)
            k, least = int(np.flatnonzero(miss <= ALPHA + 1e-12)[0]) + 1, rank(n, ALPHA, family, size)
            rows.append(
                [f"{family.name} {size:g}", f"{n:,}", f"{least}", f"{k}", "yes" if k < least else "no",
                 f"{100 * covered(kind, size, n, k):.3f} %"]
            )  # fmt: skip
    heads = ["set", "n", "exact rank", "rank without", "must fail", "worst coverage"]
    return Table('one set, the control without the "+1"', heads, rows)
