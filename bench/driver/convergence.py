"""How many epochs a run takes to the optimum, and both forms of `consensus` side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bench.driver.problems import (
    Counted,
    Scaled,
    classification,
    reference,
    regression,
    relative_gap,
    robust_value,
    six_sets,
)
from fdro_core import (
    AspireEase,
    AspireModels,
    LogNormal,
    SoftmaxRegression,
    Straggler,
    VirtualEngine,
    solve,
)
from fdro_core.problems.samples import load_digits
from fdro_core.protocol.algorithm import Algorithm
from uncertainty_sets import KL, CDNorm
from uncertainty_sets.arrays import Array

EPOCHS = 150
"""Epochs of a run with models: three times what the slowest needs for 1e-6."""


class Trace(NamedTuple):
    """How a run came to the optimum.

    Attributes:
        epochs: until the gap stays below 1e-3, N gradients each, of the workers' steps.
        gradients: the same in evaluations of all workers, those before the first step included.
        gap: the final gap.
        planes: the most planes.
    """

    epochs: float
    gradients: float
    gap: float
    planes: int


def trace(problems: Any, chosen: Any, best: float, config: Algorithm, **engine: Any) -> Trace:
    """Run the solver and look at the gap at every report."""
    N = len(problems)
    rows: list[tuple[float, int, float, int]] = []
    start = robust_value(problems, chosen, np.zeros(problems[0].dimension))

    def look(run: Any, entry: dict[str, Any]) -> None:
        if entry["event"] == "report":
            value = robust_value(problems, chosen, run.master.z)
            calls = sum(problem.calls for problem in counted)
            rows.append((entry["gradients"] / N, calls, relative_gap(value, best, start), entry["planes"]))

    counted = [Counted(problem) for problem in problems]
    solve(counted, chosen, algorithm=config, engine=VirtualEngine(seed=1, **engine), observers=[look])
    table = np.array(rows)
    above = np.flatnonzero(table[:, 2] >= 1e-3)
    after = 0 if not above.size else above[-1] + 1
    epochs, calls = table[after, :2] if after < len(table) else (np.inf, np.inf)
    return Trace(float(epochs), float(calls), float(table[-1, 2]), int(table[:, 3].max()))


def stressed() -> list[tuple[str, Any, dict[str, Any]]]:
    """Problems in other units with a 20× straggler, and one of condition 1e4, with their engines."""
    base = classification(8, seed=22, samples=(10, 300))
    hard = {"delays": LogNormal(1.0, 0.8), "stragglers": [Straggler(3, 20.0)]}
    return [
        ("losses ×100, straggler", [Scaled(p, 100.0) for p in base], hard),
        ("losses ×0.01, straggler", [Scaled(p, 0.01) for p in base], hard),
        ("condition 1e4", classification(8, seed=23, condition=1e4), {}),
    ]


def models() -> None:
    """Both forms of `consensus`: epochs to 1e-3 of the optimum, least to most over the six sets."""
    cases: list[tuple[str, Any, dict[str, Any], int]] = [
        (f"{name}, N = {workers}", make(workers, seed=seed), {}, seed)
        for workers, seed in ((8, 21), (50, 3))
        for name, make in (("softmax", classification), ("least squares", regression))
    ]
    cases += [(name, problems, engine, 22) for name, problems, engine in stressed()]
    print(
        "| problem | AspireEase, S = 1 | AspireModels, S = 1 | S = N/2 | S = N | largest last gap "
        "| subgradient | planes + L-BFGS |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, problems, engine, seed in cases:
        columns: list[list[float]] = [[] for _ in range(6)]
        last: list[float] = []
        for chosen in six_sets(len(problems), seed=seed).values():
            _measure(problems, chosen, engine, columns, last)
        cells = " | ".join(f"{min(column):.0f}–{max(column):.0f}" for column in columns[:4])
        others = " | ".join(f"{min(column):.0f}–{max(column):.0f}" for column in columns[4:])
        print(f"| {name} | {cells} | {max(last):.0e} | {others} |", flush=True)


def _measure(
    problems: Any, chosen: Any, engine: dict[str, Any], columns: list[list[float]], last: list[float]
) -> None:
    """Add the epochs of every solver on one set to the columns."""
    N = len(problems)
    try:
        best, _ = reference(problems, chosen)
    except RuntimeError:  # no independent optimum to compare with
        return
    start = robust_value(problems, chosen, np.zeros(problems[0].dimension))
    target = best + 1e-3 * max(abs(best), start - best)
    columns[0].append(trace(problems, chosen, best, AspireEase(), **engine).epochs)
    for column, S in zip(columns[1:4], (1, N // 2, N), strict=True):
        config = AspireModels(active_workers=S, iterations=EPOCHS * N // S)
        run = trace(problems, chosen, best, config, **engine)
        column.append(run.epochs)
        last.append(abs(run.gap))
    for column, solver in zip(columns[4:], (subgradient, planes_lbfgs), strict=True):
        column.append(solver(problems, chosen, target))


def gradients() -> None:
    """8 workers, S = 1: gradients to 1e-3, start-up included, beside solvers that see all data at once."""
    print("| problem | set | models | subgradient | planes + L-BFGS | no more than the better |")
    print("|---|---|---|---|---|---|")
    config = AspireModels(iterations=EPOCHS * 8)
    rows = won = 0
    for name, make in (("softmax", classification), ("least squares", regression)):
        problems: Any = make(8, seed=21)
        for kind, chosen in six_sets(8, seed=21).items():
            best, _ = reference(problems, chosen)
            start = robust_value(problems, chosen, np.zeros(problems[0].dimension))
            target = best + 1e-3 * max(abs(best), start - best)
            ours = trace(problems, chosen, best, config).gradients
            others = [8 * solver(problems, chosen, target) for solver in (subgradient, planes_lbfgs)]
            rows, won = rows + 1, won + (ours <= min(others))
            cells = " | ".join(f"{count:.0f}" for count in (ours, *others))
            print(f"| {name} | {kind} | {cells} | {'yes' if ours <= min(others) else 'no'} |", flush=True)
    print(f"\nno more than the better of the two: {won} of {rows} rows\n")


LEVELS = (0.10, 0.05, 0.01)
SEEDS = range(6)


def one_class() -> None:
    """EASE against CP on digits, one per worker: epochs until the objective is within 10, 5 and 1 % for good.

    Means over six seeds of the delays, S = 1; planes are the most at a time, and the mean over the run.
    """
    X, y = load_digits()
    problems: Any = [SoftmaxRegression(X[y == d], y[y == d], 10, l2=1e-3) for d in range(10)]
    q = np.full(10, 0.1)
    print("| set | planes | to 10 % | to 5 % | to 1 % | most planes | mean |")
    print("|---|---|---|---|---|---|---|")
    for name, chosen in {"CD-norm": CDNorm(q, q, 10 / 3), "KL": KL(q, 0.3)}.items():
        best = solve(problems, chosen, algorithm=AspireModels(active_workers=10, iterations=2000)).objective
        for mode in ("cp", "ease"):
            config = AspireModels(planes=mode, iterations=3000, tolerance=0.0)
            runs = [_levels(problems, chosen, best, config, seed) for seed in SEEDS]
            mean = np.mean(runs, axis=0)
            cells = " | ".join([f"{value:.0f}" for value in mean[:4]] + [f"{mean[4]:.1f}"])
            print(f"| {name} | {mode} | {cells} |", flush=True)


def _levels(problems: Any, chosen: Any, best: float, config: AspireModels, seed: int) -> tuple[float, ...]:
    """Epochs to every level for good, the most planes and their mean."""
    rows: list[tuple[float, float, int]] = []

    def look(run: Any, entry: dict[str, Any]) -> None:
        if entry["event"] == "report":
            value = robust_value(problems, chosen, run.master.z)
            rows.append((entry["gradients"] / len(problems), value, entry["planes"]))

    solve(problems, chosen, algorithm=config, engine=VirtualEngine(seed=seed), observers=[look])
    epochs, values, planes = np.array(rows).T
    found = []
    for level in LEVELS:
        above = np.flatnonzero(values > (1.0 + level) * best)
        after = above[-1] + 1 if above.size else 0
        found.append(float(epochs[after]) if after < epochs.size else np.inf)
    return (*found, float(planes.max()), float(planes.mean()))


class Reached(Exception):
    """The target was met."""


class Counter:
    """All workers' losses and gradients at w; counts epochs and remembers when the target was met."""

    def __init__(self, problems: Sequence[Any], uncertainty_set: Any, target: float, limit: int) -> None:
        self.problems, self.uncertainty_set = problems, uncertainty_set
        self.target, self.limit, self.epochs, self.hit = target, limit, 0, np.inf

    def __call__(self, w: Array) -> tuple[Array, Array]:
        """(losses, gradients as rows); ends the search when the target is met or the limit is passed."""
        self.epochs += 1
        pairs = [problem.loss_and_gradient(w) for problem in self.problems]
        losses = np.array([loss for loss, _ in pairs])
        if float(self.uncertainty_set.worst_case(losses).value) <= self.target:
            self.hit = self.epochs
            raise Reached
        if self.epochs >= self.limit:
            raise Reached
        return losses, np.array([gradient for _, gradient in pairs])


def subgradient(problems: Sequence[Any], uncertainty_set: Any, target: float, limit: int = 3000) -> float:
    """Epochs of w ← w - (1/√t)·D⁻¹Σp_j∇f_j with the exact oracle's p, step lengths from the metric."""
    count = Counter(problems, uncertainty_set, target, limit)
    metric = np.mean([problem.metric() for problem in problems], axis=0)
    w = np.zeros(problems[0].dimension)
    try:
        for t in range(1, limit + 1):
            losses, gradients = count(w)
            w = w - (uncertainty_set.worst_case(losses).p @ gradients) / metric / np.sqrt(t)
    except Reached:
        pass
    return count.hit


def planes_lbfgs(problems: Sequence[Any], uncertainty_set: Any, target: float, limit: int = 3000) -> float:
    """Epochs of cutting planes: L-BFGS on the smoothed maximum over the planes, then one more plane."""
    from scipy.optimize import minimize

    count = Counter(problems, uncertainty_set, target, limit)
    planes = [np.asarray(uncertainty_set.reference())]
    w = np.zeros(problems[0].dimension)
    try:
        spread = float(np.ptp(count(w)[0])) or 1.0
        smoothing = 0.3 * spread
        while True:
            P = np.array(planes)

            def smooth(v: Array, P: Array = P, smoothing: float = smoothing) -> tuple[float, Array]:
                losses, gradients = count(v)
                values = P @ losses
                weights = np.exp((values - values.max()) / smoothing)
                value = values.max() + smoothing * np.log(weights.mean())
                return float(value), (weights / weights.sum()) @ P @ gradients

            w = minimize(smooth, w, jac=True, method="L-BFGS-B", options={"maxiter": 30}).x
            planes.append(np.asarray(uncertainty_set.worst_case(count(w)[0]).p))
            smoothing = max(0.7 * smoothing, 1e-5 * spread)
    except Reached:
        pass
    return count.hit
