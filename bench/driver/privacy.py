"""What differential privacy costs: the worst worker's held-out accuracy against ε, over ten seeds.

`python -m bench privacy` trains softmax regression with the KL ball of radius 0.3 around equal weights: for
eight made-up hospitals (14 parameters, 150 to 675 samples each after a quarter is held out), and for digits
at five workers (650 parameters, about 270 samples each). First with the mean loss and without noise, then for
the worst workers without noise, with privacy of each sample for every ε, and with privacy of each worker for
one large ε. Samples or split, delays and noise change with the seed. The noise has a seed, so that the table
can be repeated: these runs hide nothing.

All data are one batch (q = 1), and there are 200 releases. How the settings were chosen, on seeds 0 to 2: 50
(hospitals only), 100 and 200 releases, steps 0.02 and 0.05, bounds 0.5 and 1 on gradients, and 0.1 and 0.3 as
the loss's share; the best for small ε on both tasks was taken.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.driver.example import interval
from bench.experiments.presentation import reporting
from fdro_core import AspireModels, Privacy, SoftmaxRegression, VirtualEngine, solve
from fdro_core.problems.samples import HOSPITALS, load_digits, make_hospitals
from uncertainty_sets import KL
from uncertainty_sets.arrays import Array

Groups = tuple[Array, Any, list[Any]]
"""Samples, labels, and the rows of every worker."""

SEEDS = range(10, 20)
EPSILONS = (8.0, 4.0, 2.0, 1.0, 0.5)
CLIENT_EPSILON = 8.0
DELTA = 1e-5
HELD_OUT = 0.25
RADIUS = 0.3
NO_RADIUS = 1e-9  # the mean loss
RELEASES = 200  # per worker, that of the handshake included
ALL = 1000  # a batch that no worker has more samples than
STEP = 0.05
BOUND, LOSS_BOUND, LOSS_SHARE = 1.0, 2.0, 0.3


def hospitals(seed: int) -> Groups:
    """Eight hospitals, whose shortcut differs."""
    X, ill, hospital = make_hospitals(seed)
    return X, ill, [np.flatnonzero(hospital == name) for name in HOSPITALS]


def digits(seed: int) -> Groups:
    """Five workers with two digits each for 8 of 10 samples, and any digit for the rest."""
    X, y = load_digits()
    rng = np.random.default_rng([seed, 2])
    worker = np.where(rng.random(y.size) < 0.8, y // 2, rng.integers(0, 5, size=y.size))
    return X, y, [np.flatnonzero(worker == j) for j in range(5)]


TASKS: dict[str, Callable[[int], Groups]] = {"hospitals": hospitals, "digits": digits}


def split(task: str, seed: int) -> tuple[list[Any], list[tuple[Array, Any]]]:
    """The workers' problems, and their held-out samples."""
    X, y, groups = TASKS[task](seed)
    rng = np.random.default_rng([seed, 1])
    problems, tests = [], []
    for group in groups:
        rows = rng.permutation(group)
        out = int(HELD_OUT * rows.size)
        problems.append(SoftmaxRegression(X[rows[out:]], y[rows[out:]], int(y.max()) + 1, l2=1e-3))
        tests.append((X[rows[:out]], y[rows[:out]]))
    return problems, tests


@dataclass(frozen=True)
class Kind:
    """What is trained: with ε or without noise, for the worst workers or for the mean."""

    epsilon: float | None = None
    unit: str = "sample"
    robust: bool = True

    def __str__(self) -> str:
        if self.epsilon is None:
            return "none" if self.robust else "none, and not robust"
        return f"ε = {self.epsilon:g} for each {'sample' if self.unit == 'sample' else 'worker'}"

    def settings(self, seed: int, workers: int) -> dict[str, Any]:
        """The algorithm's settings; with ε the budget ends the run."""
        common = {"batch_size": ALL, "model_step": STEP, "seed": seed}
        if self.epsilon is None:
            return common | {"iterations": RELEASES * workers}
        noise = Privacy.noise_for(self.epsilon, RELEASES, delta=DELTA)
        privacy = Privacy(
            epsilon=self.epsilon,
            delta=DELTA,
            noise=noise if self.unit == "sample" else 2.0 * noise,
            bound=BOUND,
            loss_bound=LOSS_BOUND,
            loss_share=LOSS_SHARE,
            unit=self.unit,
            noise_seed=seed,
        )
        return common | {"iterations": 10 * RELEASES * workers, "privacy": privacy}


def measure(task: str, seed: int, kind: Kind) -> dict[str, Any]:
    """Train once; held-out accuracies, and what was released."""
    problems, tests = split(task, seed)
    N = len(problems)
    around = KL(np.full(N, 1 / N), RADIUS if kind.robust else NO_RADIUS)
    algorithm = AspireModels(**kind.settings(seed, N))
    result = solve(problems, around, algorithm=algorithm, engine=VirtualEngine(seed=seed))
    found = [problem.accuracy(result.w, *held_out) for problem, held_out in zip(problems, tests, strict=True)]
    row = {"task": task, "seed": seed, **asdict(kind), "worst": min(found), "mean": float(np.mean(found))}
    row |= {"stop_reason": result.stop_reason, "iterations": result.iterations}
    if result.privacy is None:
        return row
    return row | {
        "noise": result.privacy.noise,
        "spent": float(result.privacy.spent.max()),
        "releases": result.privacy.releases.tolist(),
    }


def kinds(epsilons: list[float]) -> list[Kind]:
    """What is measured for every seed."""
    private = [Kind(epsilon) for epsilon in epsilons]
    return [Kind(robust=False), Kind(), *private, Kind(CLIENT_EPSILON, "client")]


def table(rows: list[dict[str, Any]]) -> str:
    """Means over the seeds of one task, and the paired differences to the run without noise, as Markdown."""
    lines = [
        "| privacy | σ | worst worker | change, 95 % interval | mean over workers |",
        "|---|---|---|---|---|",
    ]
    by_kind: dict[Kind, list[dict[str, Any]]] = {}
    for row in rows:
        by_kind.setdefault(Kind(row["epsilon"], row["unit"], row["robust"]), []).append(row)
    plain = {row["seed"]: 100 * row["worst"] for row in by_kind[Kind()]}
    for kind, own in by_kind.items():
        worst, mean = (100 * float(np.mean([row[key] for row in own])) for key in ("worst", "mean"))
        noise = "–" if kind.epsilon is None else f"{own[0]['noise']:.1f}"
        change, differences = "–", [100 * row["worst"] - plain[row["seed"]] for row in own]
        if kind != Kind() and len(differences) > 1:
            low, high = interval(differences)
            change = f"{low:+.1f} to {high:+.1f} points"
        lines.append(f"| {kind} | {noise} | {worst:.1f} % | {change} | {mean:.1f} % |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Measure, print, and write the numbers if a file is given."""
    parser = argparse.ArgumentParser(prog="python -m bench privacy", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="the seeds to train with")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--quick", action="store_true", help="two seeds and one ε, hospitals only")
    parser.add_argument("--output", type=Path, help="write the numbers to this JSON file")
    given = parser.parse_args(arguments)
    if given.quick:
        given.seeds, given.epsilons, given.tasks = given.seeds[:2], given.epsilons[:1], ["hospitals"]
    rows = []
    for task in given.tasks:
        own = [measure(task, seed, kind) for kind in kinds(given.epsilons) for seed in given.seeds]
        print(f"{task}, seeds {', '.join(map(str, given.seeds))}; held-out accuracy\n\n{table(own)}\n")
        rows += own
    if given.quick:
        print(reporting.QUICK)
    if given.output is not None:
        lines = ",\n".join(json.dumps(row) for row in rows)
        given.output.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return 0
