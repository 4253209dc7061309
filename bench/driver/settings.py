"""Whether `AspireEase` converges with the paper's Settings and every metric, on random convex problems."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.driver.problems import Scaled, relative_gap, robust_value, six_sets
from fdro_core import (
    AspireEase,
    AspireModels,
    LeastSquares,
    LogNormal,
    SoftmaxRegression,
    VirtualEngine,
    solve,
)

PROBLEMS = 200
SETTINGS: dict[str, dict[str, Any]] = {
    "Setting 1": {},
    "Settings 1 and 2": {"regularisation": "setting-2"},
}
METRICS = ("problem", "none")
CLOSE = 1e-2  # of the fall since the start


def problem(seed: int) -> tuple[list[Any], Any, str]:
    """Random workers, one of the six sets, and in words what they are."""
    rng = np.random.default_rng([seed, 32])
    N, features, condition = int(rng.integers(2, 9)), int(rng.integers(2, 6)), float(rng.choice([1, 5, 20]))
    factor, softmax = float(10.0 ** rng.integers(-2, 3)), rng.random() < 0.5
    scales, common = np.geomspace(1.0, 1.0 / condition, features), rng.normal(size=features)
    made: list[Any] = []
    for _ in range(N):
        X = (
            rng.normal(size=(int(rng.integers(15, 100)), features)) + 0.5 * rng.normal(size=features)
        ) * scales
        score = X / scales @ (common + 0.7 * rng.normal(size=features)) + 0.5 * rng.normal(size=len(X))
        if softmax:
            made.append(SoftmaxRegression(X, (score > 0).astype(int), 2, l2=1e-2))
        else:
            made.append(LeastSquares(X, score, l2=1e-2))
    sets = six_sets(N, seed=seed)
    kind = list(sets)[seed % len(sets)]
    words = f"{'softmax' if softmax else 'least squares'}, N = {N}, features 1 to 1/{condition:g}"
    return [Scaled(each, factor) for each in made], sets[kind], f"{words}, losses × {factor:g}, {kind}"


def gaps(seed: int) -> tuple[dict[tuple[str, str], float], str]:
    """The gap of every combination to the proved lower bound, as a share of the fall since the start."""
    problems, chosen, words = problem(seed)
    N = len(problems)
    S = (1, max(1, N // 2), N)[seed // 6 % 3]
    exact = solve(problems, chosen, algorithm=AspireModels(active_workers=N, tolerance=1e-10))
    start = robust_value(problems, chosen, np.zeros(problems[0].dimension))
    found = {}
    for (name, settings), metric in product(SETTINGS.items(), METRICS):
        algorithm = AspireEase(active_workers=S, metric=metric, **settings)
        engine = VirtualEngine(seed=seed, delays=LogNormal())
        result = solve(problems, chosen, algorithm=algorithm, engine=engine)
        found[name, metric] = relative_gap(result.objective, exact.lower_bound, start)
    return found, f"{words}, S = {S}, optimum proved to {exact.gap / start:.0e} of the start"


def settings() -> None:
    """Settings 1 and 2 × metric, the paper's algorithm on random convex problems at its usual horizon."""
    rows: dict[tuple[str, str], list[float]] = {}
    for seed in range(PROBLEMS):
        found, words = gaps(seed)
        for key, gap in found.items():
            rows.setdefault(key, []).append(gap)
            if not gap <= CLOSE:
                print(f"problem {seed}, {', '.join(key)}: {gap:.1e} ({words})", flush=True)
    table = Table("settings", "metric", "diverged", f"within {CLOSE:g}", "median gap", "largest gap")
    for (name, metric), values in rows.items():
        every = np.array(values)
        bad, close = np.count_nonzero(~(every < 1.0)), np.count_nonzero(every <= CLOSE)
        numbers = [
            str(bad),
            f"{close} of {len(values)}",
            f"{np.median(every):.1e}",
            f"{every.max():.1e}",
        ]
        table.add_row(name, metric, *numbers)
    Console(width=110).print(table)
