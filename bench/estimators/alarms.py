"""How often RobustClassifier warns: of groups that are alike, and of the island, whose effects are reversed.

Groups that are alike ("nulls") differ in size, some also in where their features lie, and share one law of
the labels: strong, weak, or chance. Samples 300 to 3,000, groups 2 to 8, features 3 or 10, classes 2
or 3, all drawn with the seed. A warning there is a false alarm.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets.island import island
from bench.display.tables import Table, console
from bench.estimators.groups import training
from bench.experiments.presentation import reporting
from bench.measuring import machine
from fdro_core.errors import EstimatorWarning
from fdro_core.result import wilson
from fdro_core.sklearn import RobustClassifier
from uncertainty_sets.arrays import Array

RESULTS = Path(__file__).resolve().parents[1] / "results" / "experiments" / "alarms"
LAWS = ("strong effects", "features lie elsewhere", "weak effects", "labels by chance")
STRENGTH = (1.0, 1.0, 0.3, 0.0)
MODELS: Mapping[str, Mapping[str, Any]] = {'radius="cv"': {"radius": "cv"}, "RobustClassifier()": {}}

Sample = tuple[Array, NDArray[Any], NDArray[Any]]


def null(seed: int) -> Sample:
    """Features, labels and groups that are alike; the law is number `seed` of LAWS, counted around."""
    rng = np.random.default_rng([7, seed])
    law = seed % len(LAWS)
    samples, groups = int(rng.choice([300, 1000, 3000])), int(rng.choice([2, 4, 8]))
    features, classes = int(rng.choice([3, 10])), int(rng.choice([2, 2, 3]))
    group = rng.choice(groups, size=samples, p=rng.dirichlet(np.full(groups, 2.0)))
    X = rng.normal(size=(samples, features))
    effects = STRENGTH[law] * rng.normal(size=(features, classes))
    if law == 1:
        X += rng.normal(size=(groups, features))[group]
    scores = X @ effects
    if law == len(LAWS) - 1:
        scores += np.log(rng.dirichlet(np.full(classes, 3.0)))  # classes of unequal size
    return X, (scores + rng.gumbel(size=(samples, classes))).argmax(axis=1), group


def warned(settings: Mapping[str, Any], sample: Sample) -> bool:
    """Whether a fit warns about its groups."""
    X, y, group = sample
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        RobustClassifier(**settings).fit(X, y, groups=group)
    return any(issubclass(each.category, EstimatorWarning) for each in seen)


def main(arguments: list[str]) -> int:
    """Count, print the table, and write it."""
    parser = argparse.ArgumentParser(
        prog="python -m bench alarms", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--nulls", type=int, default=500, help="samples of groups that are alike (500)")
    parser.add_argument("--islands", type=int, default=10, help="seeds of the island (10)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for tables.md")
    parser.add_argument("--quick", action="store_true", help="eight nulls and one island: seconds")
    given = parser.parse_args(arguments)
    nulls, islands = (8, 1) if given.quick else (given.nulls, given.islands)
    counts: dict[str, NDArray[np.int64]] = {}
    screen = console()
    with screen.status("fits"):
        for model, settings in MODELS.items():
            found = [warned(settings, null(seed)) for seed in range(nulls)]
            counts[model] = np.bincount(np.arange(nulls)[found] % len(LAWS), minlength=len(LAWS))
        hits = {
            model: sum(warned(settings, training(island(seed=seed), seed, False)) for seed in range(islands))
            for model, settings in MODELS.items()
        }
    rows = []
    for place, law in enumerate(LAWS):
        of = len(range(place, nulls, len(LAWS)))
        rows.append([law, *(f"{counts[model][place]} of {of}" for model in MODELS)])
    shares = [float(counts[model].sum() / nulls) for model in MODELS]
    _, high = wilson(shares, np.full(len(shares), nulls))
    rows.append(
        [
            "all that are alike (upper end of a 95 % interval)",
            *(f"{s:.1%} ({h:.1%})" for s, h in zip(shares, high.tolist(), strict=True)),
        ]
    )
    rows.append(["the island", *(f"{hits[model]} of {islands}" for model in MODELS)])
    given.out.mkdir(parents=True, exist_ok=True)
    made = [Table("Fits that warn", ["groups", *MODELS], rows)]
    reporting.publish(screen, given.out, made, f"{machine.line(machine.describe())}.")
    return 0
