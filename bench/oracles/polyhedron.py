"""Polyhedron: a warm re-solve of ours against a re-solve of the compiled cvxpy problem with HiGHS."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from uncertainty_sets.sets.polyhedron import Polyhedron

SIZE, ROWS = 1_000, 200


def ratios(repetitions: int = 11, seed: int = 0) -> dict[str, dict[str, float]]:
    """Medians of cvxpy's time over ours, interleaved: losses moved by 1 % of their spread, and unrelated.

    cvxpy 1.9 hands HiGHS the last solution; we compare with that and with a re-solve without it.
    """
    import cvxpy as cp

    rng = np.random.default_rng(seed)
    D = rng.normal(size=(ROWS, SIZE))
    c = D @ rng.dirichlet(np.ones(SIZE)) + 0.02 * rng.random(ROWS) * np.abs(D).mean(axis=1)
    ours, p, f = Polyhedron(D, c), cp.Variable(SIZE, nonneg=True), cp.Parameter(SIZE)
    problem = cp.Problem(cp.Maximize(f @ p), [cp.sum(p) == 1, D @ p <= c])

    def theirs(losses: Any, warm: bool) -> None:
        f.value = losses
        problem.solve(solver=cp.HIGHS, warm_start=warm)

    start = rng.normal(size=SIZE)
    results: dict[str, dict[str, float]] = {}
    for name in ("moved by 1 %", "unrelated"):
        times: dict[str, list[float]] = {"ours": [], "cvxpy warm": [], "cvxpy cold": []}
        for _ in range(repetitions):
            step = 0.01 * np.ptp(start) * rng.uniform(-1.0, 1.0, SIZE)
            losses = start + step if name == "moved by 1 %" else rng.normal(size=SIZE)
            ours.worst_case(start)
            times["ours"].append(_seconds(ours.worst_case, losses))
            for warm in (True, False):
                theirs(start, False)
                times[f"cvxpy {'warm' if warm else 'cold'}"].append(_seconds(theirs, losses, warm))
        median = {key: statistics.median(value) for key, value in times.items()}
        results[name] = {
            "ours, ms": 1e3 * median["ours"],
            "cvxpy warm / ours": median["cvxpy warm"] / median["ours"],
            "cvxpy cold / ours": median["cvxpy cold"] / median["ours"],
        }
    return results


def _seconds(call: Callable[..., object], *arguments: object) -> float:
    begin = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begin


if __name__ == "__main__":
    for case, row in ratios().items():
        print(f"{case:14s}", "  ".join(f"{key} {value:.1f}" for key, value in row.items()))
