"""CD-norm with any spreads on many kinds of losses and spreads, over one np.argsort of normal losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.measuring.targets import Row
from bench.measuring.timing import interleave
from bench.oracles import certificates
from uncertainty_sets import CDNorm
from uncertainty_sets.arrays import Array

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
