"""One of five workers lies: the worst honest worker's accuracy without and with `AspireModels(clip=...)`.

The liar changes what its problem returns, from the handshake on; its metric is true. Sets cap its weight at
0.25 and 0.3 (CD-norm), 0.40 (KL) and 1 (the simplex). Differences are from the run in which all five are
honest and nothing is clipped, seed by seed. A last table has honest workers alone: how far from the optimum
clipping ends on the problems that the driver is measured on.

The factors shown were chosen before, on seeds 0 to 3; seeds 10 to 19 are reported.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets import load
from bench.datasets.federation import stratified
from bench.display.tables import Table, console
from bench.driver.convergence import stressed
from bench.driver.problems import classification, regression, relative_gap, robust_value, six_sets
from bench.experiments.presentation import reporting
from bench.experiments.presentation.tables import pm, summary
from bench.measuring import machine
from fdro_core import AspireModels, SoftmaxRegression, VirtualEngine, solve
from fdro_core.problems.samples import load_digits
from uncertainty_sets import KL, Box, CDNorm
from uncertainty_sets.arrays import Array

RESULTS = Path(__file__).resolve().parents[1] / "results" / "experiments" / "actors"
WORKERS, LIAR = 5, 1
CLIPS = (None, 3.0, 2.0)
FACTORS = (2.0, 3.0, 5.0, 10.0)
REPEATS, EPOCHS = 10, 150
FIRST = 10  # seed: those before were looked at when the factors were chosen
HOSPITALS = ("A", "C", "E", "G", "H")  # the shortcut of the first three misleads at the last
AWAY = 1e3  # a model that much longer than the honest one has diverged

Labels = NDArray[np.int64]
Part = tuple[Array, Labels, Array, Labels]
Lie = Callable[[float, Array, Array], tuple[float, Array]]

LIES: Mapping[str, Lie] = {
    "none": lambda f, g, r: (f, g),
    "gradient × 100": lambda f, g, r: (f, 100.0 * g),
    "gradient × -10": lambda f, g, r: (f, -10.0 * g),
    "constant random gradient": lambda f, g, r: (f, r),
    "loss 1e6": lambda f, g, r: (1e6, g),
    "loss -1e6": lambda f, g, r: (-1e6, g),
}
"""From loss, gradient and a random vector, 10 times as long as the first gradient, to what is reported."""

_even = np.full(WORKERS, 1.0 / WORKERS)
SETS: Mapping[str, Any] = {
    "CD-norm, p_j <= 0.25": CDNorm(_even, 0.25 * _even, 0.5 * WORKERS),
    "CD-norm, p_j <= 0.3": CDNorm(_even, 0.5 * _even, 0.5 * WORKERS),
    "KL, p_j <= 0.40": KL(_even, 0.1),
    "simplex": Box(np.zeros(WORKERS), np.ones(WORKERS)),
}


class Liar:
    """A problem whose loss and gradient are reported falsely."""

    def __init__(self, problem: Any, lie: Lie, seed: int) -> None:
        self.problem, self.lie = problem, lie
        self.dimension, self.metric = problem.dimension, problem.metric
        direction = np.random.default_rng(seed).normal(size=problem.dimension)
        first = problem.loss_and_gradient(np.zeros(problem.dimension))[1]
        self.random: Array = direction * (10.0 * np.linalg.norm(first) / np.linalg.norm(direction))

    def loss_and_gradient(self, w: Array, *batch: Any) -> tuple[float, Array]:
        """The problem's own, changed."""
        loss, gradient = self.problem.loss_and_gradient(w, *batch)
        return self.lie(loss, gradient, self.random)


def digits(seed: int) -> tuple[list[Part], int]:
    """Digits with labels in unequal shares: those of each label are given out by Dirichlet(1)."""
    X, y = load_digits()
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(WORKERS), size=10)
    owner = np.array([rng.choice(WORKERS, p=shares[label]) for label in y])
    parts = []
    for j in range(WORKERS):
        own, labels = X[owner == j], y[owner == j]
        train, test = stratified(labels, 0.3, rng)
        parts.append((own[train], labels[train], own[test], labels[test]))
    return parts, 10


def hospitals(seed: int) -> tuple[list[Part], int]:
    """Five of the made-up hospitals."""
    clients = {client.name: client for client in load("hospitals", seed=seed).clients}
    chosen = [clients[name] for name in HOSPITALS]
    return [(c.X_train, c.y_train, c.X_test, c.y_test) for c in chosen], 2


DATA: Mapping[str, Callable[[int], tuple[list[Part], int]]] = {"digits": digits, "hospitals": hospitals}


def measure(data: str, kind: str, lie: str, clip: float | None, seed: int, epochs: int) -> dict[str, Any]:
    """Train once: the honest workers' worst accuracy on test data, and what became of the liar."""
    parts, classes = DATA[data](seed)
    problems: list[Any] = [SoftmaxRegression(X, y, classes, l2=1e-3) for X, y, _, _ in parts]
    if lie != "none":
        problems[LIAR] = Liar(problems[LIAR], LIES[lie], seed)
    config = AspireModels(iterations=epochs * WORKERS, clip=clip)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of suspicious and clipped workers, which are counted below
        result = solve(problems, SETS[kind], algorithm=config, engine=VirtualEngine(seed=seed))
    honest = [part for j, part in enumerate(parts) if j != LIAR]
    worst = min(_accuracy(result.w, classes, X, y) for _, _, X, y in honest)
    return {
        "data": data,
        "set": kind,
        "lie": lie,
        "clip": clip,
        "seed": seed,
        "worst": worst,
        "length": float(np.linalg.norm(result.w)),
        "weight": float(result.weights[LIAR]),
        "named": LIAR in result.suspicious,
        "dropped": any(entry["event"] == "worker-dropped" for entry in result.history),
        "clipped": {str(j): count for j, count in result.clipped.items()},
    }


def _accuracy(w: Array, classes: int, X: Array, y: Labels) -> float:
    scores = np.column_stack([X, np.ones(len(X))]) @ w.reshape(-1, classes)
    return float(np.mean(np.argmax(scores, axis=1) == y))


def table(data: str, kind: str, records: Sequence[dict[str, Any]]) -> Table:
    """One line per lie: the worst honest accuracy and its difference from the honest run, by clip."""
    own = [r for r in records if r["data"] == data and r["set"] == kind]
    honest = {r["seed"]: r for r in own if r["lie"] == "none" and r["clip"] is None}
    rows = []
    for lie in LIES:
        cells, ends = [], []
        for clip in CLIPS:
            runs = [r for r in own if r["lie"] == lie and r["clip"] == clip]
            lost = float(np.mean([100 * (r["worst"] - honest[r["seed"]]["worst"]) for r in runs]))
            cells.append(f"{pm(summary([100 * r['worst'] for r in runs]), 1)} ({lost:+.1f})")
            away = sum(r["length"] > AWAY * honest[r["seed"]]["length"] for r in runs)
            gone, named = (sum(r[key] for r in runs) for key in ("dropped", "named"))
            ends.append(f"{away}, {gone}, {named}, {np.mean([r['weight'] for r in runs]):.2f}")
        rows.append([lie, *cells, ends[0], ends[-1]])
    shown = ["without clip" if clip is None else f"clip = {clip:g}" for clip in CLIPS]
    columns = [f"{each}: diverged, dropped, named, the liar's weight" for each in (shown[0], shown[-1])]
    return Table(f"{data}, {kind}: worst honest accuracy, %", ["lie", *shown, *columns], rows)


def overview(data: str, records: Sequence[dict[str, Any]]) -> Table:
    """One line per lie, one column per set: the difference from the honest run, without clip and with."""
    own = [r for r in records if r["data"] == data]
    honest = {(r["set"], r["seed"]): r["worst"] for r in own if r["lie"] == "none" and r["clip"] is None}
    rows = []
    for lie in LIES:
        cells = []
        for kind in SETS:
            lost = [
                np.mean([100 * (r["worst"] - honest[kind, r["seed"]]) for r in own
                         if (r["set"], r["lie"], r["clip"]) == (kind, lie, clip)])
                for clip in (None, CLIPS[-1])
            ]  # fmt: skip
            cells.append(f"{lost[0]:+.1f} → {lost[1]:+.1f}")
        rows.append([lie, *cells])
    title = (
        f"{data}, overview: points that the worst honest worker gains, without clip → clip = {CLIPS[-1]:g}"
    )
    return Table(title, ["lie", *SETS], rows)


def harm(epochs: int, quick: bool) -> Table:
    """Honest workers alone: the relative gap that clipping leaves, and the share of clipped replies."""
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        ("softmax", classification(8, seed=21), {}),
        ("least squares", regression(8, seed=21), {}),
    ]
    rows = []
    for name, problems, engine in cases if quick else [*cases, *stressed()]:
        gaps: dict[float, list[float]] = {factor: [] for factor in FACTORS}
        start = np.zeros(problems[0].dimension)
        for chosen in six_sets(8, seed=21).values():
            plain = _solved(problems, chosen, engine, epochs, None)
            best, begin = (robust_value(problems, chosen, w) for w in (plain, start))
            for factor, found in gaps.items():
                w = _solved(problems, chosen, engine, epochs, factor)
                found.append(relative_gap(robust_value(problems, chosen, w), best, begin))
        within = (f"{sum(g <= 1e-6 for g in found)} of 6, {max(*found, 0.0):.0e}" for found in gaps.values())
        rows.append([name, *within])
    headings = ["8 honest workers, six sets", *(f"clip = {factor:g}" for factor in FACTORS)]
    return Table(
        "Honest workers: sets within 1e-6 of the optimum without clip, and the largest gap", headings, rows
    )


def _solved(problems: Any, chosen: Any, engine: Mapping[str, Any], epochs: int, clip: float | None) -> Array:
    config = AspireModels(iterations=8 * epochs, tolerance=1e-10, clip=clip)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of clipped workers
        return solve(problems, chosen, algorithm=config, engine=VirtualEngine(seed=1, **engine)).w


def main(arguments: list[str]) -> int:
    """Measure, print the tables, and write them with the numbers."""
    parser = argparse.ArgumentParser(
        prog="python -m bench actors", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--repeats", type=int, default=REPEATS, help="seeds 10, 11, … (10)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for tables.md and runs.jsonl")
    parser.add_argument("--quick", action="store_true", help="hospitals, two seeds, few epochs: seconds")
    given = parser.parse_args(arguments)
    names = ["hospitals"] if given.quick else list(DATA)
    repeats, epochs = (2, 20) if given.quick else (given.repeats, EPOCHS)
    screen = console()
    records = []
    for name in names:
        for kind in SETS:
            with screen.status(f"{name}, {kind}: {repeats} seeds"):
                records += [
                    measure(name, kind, lie, clip, seed, epochs)
                    for seed in range(FIRST, FIRST + repeats)
                    for lie in LIES
                    for clip in CLIPS
                ]
    given.out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record) for record in records]
    (given.out / "runs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    made = [overview(name, records) for name in names]
    made += [table(name, kind, records) for name in names for kind in SETS]
    remarks = (
        f"{repeats} seeds of data and delays, {epochs} epochs of full batches at most; mean ± deviation, in "
        "brackets the mean difference from the run in which all five are honest and nothing is clipped. "
        f"{machine.line(machine.describe())}."
    )
    reporting.publish(screen, given.out, [*made, harm(epochs, given.quick)], remarks, quick=given.quick)
    return 0
