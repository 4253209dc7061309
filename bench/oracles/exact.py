"""Gaps and violations of every closed form at N from 1 to 10⁶, rechecked outside the code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bench.measuring import cases
from bench.measuring.targets import Row
from bench.oracles import certificates

SIZES = (1, 2, 3, 10, 10**3, 10**5, 10**6)
VIOLATION = 1e-10


def measure(sizes: Sequence[int], seed: int, say: Callable[[str], None]) -> list[Row]:
    """The worst gap (over what was promised) and the worst violation of each closed form."""
    rows = []
    for case in cases.ALL:
        say(f"exactness: {case.label}")
        worst_gap, worst_violation, at_gap, at_violation = -np.inf, -np.inf, "", ""
        relative = -np.inf
        for size in (n for n in sizes if n <= case.largest):
            for draw in range(20 if size <= 10 else 3 if size <= 10**3 else 1):
                rng = np.random.default_rng([seed, size, draw])
                q, f = cases.center(size, rng), cases.losses(size, rng)
                for level in cases.LEVELS:
                    uncertainty_set = case.make(q, level, rng)
                    answer = uncertainty_set.worst_case(f)
                    found = abs(certificates.gap(uncertainty_set, f, answer))
                    violation = uncertainty_set.violation(answer.p)
                    place = f"N={size:,}, {level}"
                    if found / certificates.allowed(f) > worst_gap:
                        worst_gap, at_gap = found / certificates.allowed(f), place
                        relative = found / max(float(np.ptp(f)), 1e-300) if size > 1 else 0.0
                    if violation > worst_violation:
                        worst_violation, at_violation = violation, place
        largest = max(n for n in sizes if n <= case.largest)
        group = f"exactness, N = {min(sizes)} … 10⁶"
        rows.append(
            Row(
                group,
                f"{case.label}: gap over the allowed gap",
                worst_gap,
                "",
                1.0,
                note=f"{relative:.1e} of the spread at {at_gap}; N up to {largest:,}",
            )
        )
        rows.append(
            Row(group, f"{case.label}: violation", worst_violation, "", VIOLATION, note=f"at {at_violation}")
        )
    return rows
