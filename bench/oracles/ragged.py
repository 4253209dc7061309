"""Ragged rows: seconds per million rows of 5 to 50 entries, on one thread and on all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.measuring.targets import Row
from bench.measuring.timing import interleave
from uncertainty_sets import KL, Box, CDNorm, Ellipsoid, Ragged, TotalVariation, Wasserstein1, WeightedL1
from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels import dispatch

SHORTEST, LONGEST = 5, 50
LIMITS = {"KL": 0.6, "Box": 0.9, "CD-norm as total variation": 2.5, "Total variation": 2.5}
"""Seconds per million rows on two cores."""


def cases(rows: int, seed: int) -> tuple[dict[str, Ragged], Array]:
    """Rows of every closed form around the same random centres, and the values; a tenth as many values."""
    rng = np.random.default_rng([seed, rows])
    lengths = rng.integers(SHORTEST, LONGEST + 1, rows)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    size = max(LONGEST, rows // 10)
    indices = rng.integers(0, size, indptr[-1])
    q = rng.random(indices.size) + 0.01
    q /= np.repeat(np.add.reduceat(q, indptr[:-1]), lengths)
    at = {"indptr": indptr, "indices": indices}
    made = {
        "Box": Box.ragged(0.5 * q, 2.0 * q, **at),
        "KL": KL.ragged(q, 0.1, **at),
        "CD-norm as total variation": CDNorm.ragged(q, 1.0, 0.2, **at),
        "Total variation": TotalVariation.ragged(q, 0.1, **at),
        "Weighted L1": WeightedL1.ragged(q, rng.uniform(0.5, 2.0, q.size), 0.2, **at),
        "CD-norm, any spreads": CDNorm.ragged(q, q * rng.random(q.size), lengths / 4.0, **at),
        "Ellipsoid, diagonal (χ²)": Ellipsoid.ragged(q, q, 0.2, **at),
        "Wasserstein-1, line": Wasserstein1.ragged(q, 0.05 * size, **at),
    }
    return made, rng.normal(size=size)


def measure(rows: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Seconds per million rows, the memory of the answer reused, as sweeps of value iteration do."""
    say(f"{rows:,} ragged rows")
    made, values = cases(rows, seed)
    calls: dict[tuple[str, bool], Callable[[], object]] = {}
    for label, ragged in made.items():
        answer = ragged.worst_case(values)
        calls[label, True] = partial(ragged.worst_case, values, out=answer)
        calls[label, False] = partial(_on_one_thread, calls[label, True])
    samples = interleave(calls, rounds, least=rounds)
    group = f"{rows:,} ragged rows of {SHORTEST} to {LONGEST} entries, scaled to a million"
    unit, found = 1e6 / rows, []
    for label in made:
        alone, all_cores = samples.time((label, False)), samples.time((label, True))
        note = f"one thread {alone.least * unit:.2f}, median of all cores {all_cores.median * unit:.2f}"
        low, high = all_cores.low * unit, all_cores.high * unit
        limit = LIMITS.get(label)
        found.append(
            Row(group, label, all_cores.least * unit, "s", limit, low=low, high=high, note=note)
        )  # fmt: skip
    return found


def _on_one_thread(call: Callable[[], object]) -> None:
    before = dispatch.PARALLEL_FROM
    dispatch.PARALLEL_FROM = 2**62
    try:
        call()
    finally:
        dispatch.PARALLEL_FROM = before
