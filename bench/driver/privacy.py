"""What differential privacy costs: the worst worker's held-out accuracy against ε, over ten seeds.

`python -m bench privacy` trains softmax regression for eight made-up hospitals, of 150 to 675 patients each
after a quarter is held out, with the KL ball of radius 0.3 around equal weights, as the first example of the
command line does. Without noise, and for every ε with privacy of each patient, and for one large ε with
privacy of each hospital. Samples, split, delays, batches and noise change with the seed. Noise has a seed
here, so that the table can be repeated: these runs hide nothing.

All data are one batch (q = 1). Settings were chosen on seeds 0 to 2 (docs/privacy.md says from which).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.driver.example import interval
from fdro_core import AspireEase, Privacy, SoftmaxRegression, VirtualEngine, solve
from fdro_core.problems.samples import HOSPITALS, make_hospitals
from uncertainty_sets import KL
from uncertainty_sets.arrays import Array

SEEDS = range(10, 20)
EPSILONS = (8.0, 4.0, 2.0, 1.0, 0.5)
CLIENT_EPSILON = 8.0
DELTA = 1e-5
HELD_OUT = 0.25
RADIUS = 0.3
RELEASES = 100  # per worker, that of the handshake included
ALL = 1000  # a batch that no hospital exceeds
STEP = 0.03
BOUND, LOSS_BOUND, LOSS_SHARE = 1.0, 2.0, 0.1


def split(seed: int) -> tuple[list[Any], list[tuple[Array, Any]]]:
    """The hospitals' problems, and their held-out patients."""
    X, ill, hospital = make_hospitals(seed)
    rng = np.random.default_rng([seed, 1])
    problems, tests = [], []
    for name in HOSPITALS:
        rows = rng.permutation(np.flatnonzero(hospital == name))
        out = int(HELD_OUT * rows.size)
        problems.append(SoftmaxRegression(X[rows[out:]], ill[rows[out:]], classes=2, l2=1e-3))
        tests.append((X[rows[:out]], ill[rows[:out]]))
    return problems, tests


def settings(epsilon: float | None, unit: str, seed: int) -> dict[str, Any]:
    """The algorithm's settings; without ε as many iterations as with it at most."""
    common = {"batch_size": ALL, "model_step": STEP, "seed": seed}
    if epsilon is None:
        return common | {"iterations": RELEASES * len(HOSPITALS)}
    noise = Privacy.noise_for(epsilon, RELEASES, delta=DELTA) * (1.0 if unit == "sample" else 2.0)
    privacy = Privacy(
        epsilon=epsilon,
        delta=DELTA,
        noise=noise,
        bound=BOUND,
        loss_bound=LOSS_BOUND,
        loss_share=LOSS_SHARE,
        unit=unit,
        noise_seed=seed,
    )
    return common | {"iterations": 10 * RELEASES * len(HOSPITALS), "privacy": privacy}


def measure(seed: int, epsilon: float | None, unit: str = "sample") -> dict[str, Any]:
    """Train once; held-out accuracies, and what was released."""
    problems, tests = split(seed)
    algorithm = AspireEase(**settings(epsilon, unit, seed))
    around = KL(np.full(len(problems), 1 / len(problems)), RADIUS)
    result = solve(problems, around, algorithm=algorithm, engine=VirtualEngine(seed=seed))
    found = [problem.accuracy(result.w, *held_out) for problem, held_out in zip(problems, tests, strict=True)]
    row = {
        "seed": seed,
        "epsilon": epsilon,
        "unit": unit,
        "worst": min(found),
        "mean": float(np.mean(found)),
        "stop_reason": result.stop_reason,
        "iterations": result.iterations,
    }
    if result.privacy is None:
        return row
    return row | {
        "noise": result.privacy.noise,
        "spent": float(result.privacy.spent.max()),
        "releases": result.privacy.releases.tolist(),
    }


def configurations(epsilons: list[float]) -> list[tuple[float | None, str]]:
    """What is measured for every seed."""
    return [(None, "sample"), *((epsilon, "sample") for epsilon in epsilons), (CLIENT_EPSILON, "client")]


def label(epsilon: float | None, unit: str) -> str:
    """A row's name."""
    what = "patient" if unit == "sample" else "hospital"
    return "no privacy" if epsilon is None else f"ε = {epsilon:g} for each {what}"


def table(rows: list[dict[str, Any]]) -> str:
    """Means over the seeds, and the paired differences to the run without noise, as Markdown."""
    lines = [
        "| privacy | σ | worst hospital | change, 95 % interval | mean over hospitals |",
        "|---|---|---|---|---|",
    ]
    plain = {row["seed"]: 100 * row["worst"] for row in rows if row["epsilon"] is None}
    for kind in dict.fromkeys((row["epsilon"], row["unit"]) for row in rows):
        own = [row for row in rows if (row["epsilon"], row["unit"]) == kind]
        worst, mean = (100 * float(np.mean([row[key] for row in own])) for key in ("worst", "mean"))
        noise, change = "–", "–"
        if kind[0] is not None:
            noise = f"{own[0]['noise']:.1f}"
            differences = [100 * row["worst"] - plain[row["seed"]] for row in own]
            if len(differences) > 1:
                low, high = interval(differences)
                change = f"{low:+.1f} to {high:+.1f} points"
        lines.append(f"| {label(*kind)} | {noise} | {worst:.1f} % | {change} | {mean:.1f} % |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Measure, print, and write the numbers if a file is given."""
    parser = argparse.ArgumentParser(prog="python -m bench privacy", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="the seeds to train with")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--quick", action="store_true", help="two seeds and one ε")
    parser.add_argument("--output", type=Path, help="write the numbers to this JSON file")
    given = parser.parse_args(arguments)
    seeds = given.seeds[:2] if given.quick else given.seeds
    kinds = configurations(given.epsilons[:1] if given.quick else given.epsilons)
    rows = [measure(seed, *kind) for kind in kinds for seed in seeds]
    print(table(rows))
    if given.output is not None:
        given.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0
