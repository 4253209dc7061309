"""A short training run: ten scanners, one of them mounted sideways; robust against equal weights."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fdro_core import AspireEase, LogNormal, SoftmaxRegression, Straggler, VirtualEngine, solve
from fdro_core.observers import Progress
from uncertainty_sets import KL

WORKERS, SIDEWAYS, SLOW = 10, 9, 3
RADII = (0.0, 0.3, 1.0)  # 0 is equal weights; log(10) = 2.3 would let one worker be everything
RIDGES = (1e-3, 3e-4)
Parts = dict[str, list[SoftmaxRegression]]


def workers(seed: int = 0, ridge: float = 0.0) -> Parts:
    """scikit-learn's digits dealt to the workers, each with a part to train on, to choose on, to test on."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = digits.images / 16.0 - 0.3, digits.target  # 0.3 is about the mean pixel
    rng = np.random.default_rng(seed)
    owner, share = rng.integers(WORKERS, size=len(labels)), rng.random(len(labels))
    parts: Parts = {}
    for name, low, high, l2 in (
        ("train", 0.0, 0.5, ridge),
        ("choose", 0.5, 0.7, 0.0),
        ("test", 0.7, 1.0, 0.0),
    ):
        parts[name] = []
        for j in range(WORKERS):
            mine = (owner == j) & (low <= share) & (share < high)
            seen = np.rot90(images[mine], axes=(1, 2)) if j == SIDEWAYS else images[mine]
            problem = SoftmaxRegression(seen.reshape(len(seen), -1), labels[mine], 10, l2=l2, intercept=True)
            parts[name].append(problem)
    return parts


def losses(problems: list[SoftmaxRegression], w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Every worker's mean loss."""
    return np.array([problem.loss_and_gradient(w)[0] for problem in problems])


def accuracies(problems: list[SoftmaxRegression], w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Every worker's share of images told right."""
    return np.array(
        [np.mean((p.X @ w.reshape(-1, p.classes)).argmax(axis=1) == p.y) for p in problems], dtype=np.float64
    )


def train(problems: list[SoftmaxRegression], radius: float, observers: list[Any]) -> Any:
    """A run with default settings, one worker 20 times slower than the others."""
    return solve(
        problems,
        KL(np.full(WORKERS, 1 / WORKERS), radius),
        config=AspireEase(),
        engine=VirtualEngine(seed=0, delays=LogNormal(1.0, 0.5), stragglers=[Straggler(SLOW, 20.0)]),
        observers=observers,
    )


def main(arguments: list[str]) -> int:
    """Train, choose radius and ridge, print robust beside equal weights; there are no options."""
    del arguments
    parts = workers()
    console = Console()
    console.print(
        f"\nTen workers scan handwritten digits; worker {SIDEWAYS}'s scanner is mounted sideways and worker "
        f"{SLOW} is 20 times slower.\nOne linear model for all, trained asynchronously: the master never "
        "waits for everyone.\n"
    )
    models: dict[str, dict[tuple[float, float], Any]] = {"equal": {}, "robust": {}}
    for radius, ridge in product(RADII, RIDGES):
        console.print(f"KL ball of radius {radius} around equal weights, ridge {ridge:g}")
        model = train(workers(ridge=ridge)["train"], radius, [Progress(console)])
        models["robust" if radius else "equal"][radius, ridge] = model
    console.print(
        "\nBoth models are chosen by one rule: the lowest worst-worker loss on images kept aside for that, a "
        "fifth of each worker's. The test images below took no part in it."
    )
    pair = {}
    for name, tried in models.items():
        worst = {setting: losses(parts["choose"], model.w).max() for setting, model in tried.items()}
        radius, ridge = min(worst, key=worst.__getitem__)
        pair[name] = tried[radius, ridge]
        listed = ", ".join(f"{value:.3f} at ({r}, {l2:g})" for (r, l2), value in worst.items())
        console.print(f"{name}: (radius, ridge) = ({radius}, {ridge:g}); worst loss {listed}")
    loss = {name: losses(parts["test"], model.w) for name, model in pair.items()}
    right = {name: 100 * accuracies(parts["test"], model.w) for name, model in pair.items()}
    table = Table(title="\nby worker, on test images")
    table.add_column("worker")
    for heading in [f"{what}\n{name}" for what in ("loss", "accuracy", "weight") for name in pair]:
        table.add_column(heading, justify="right")
    for j in range(WORKERS):
        weights = [f"{100 * model.weights[j]:.0f} %" for model in pair.values()]
        note = {SIDEWAYS: ", sideways", SLOW: ", slow"}.get(j, "")
        cells = [*(f"{loss[name][j]:.3f}" for name in pair), *(f"{right[name][j]:.0f} %" for name in pair)]
        table.add_row(f"{j}{note}", *cells, *weights)
    table.add_section()
    for title, pick, least in (("worst", np.max, np.min), ("mean", np.mean, np.mean)):
        cells = [*(f"{pick(loss[n]):.3f}" for n in pair), *(f"{least(right[n]):.0f} %" for n in pair)]
        table.add_row(title, *cells, "", "")
    console.print(table)
    robust = pair["robust"]
    console.print(
        f"\nThe worst worker's test accuracy goes from {right['equal'].min():.0f} % to "
        f"{right['robust'].min():.0f} % and its test loss from {loss['equal'].max():.3f} to "
        f"{loss['robust'].max():.3f}; the mean accuracy from {right['equal'].mean():.1f} % to "
        f"{right['robust'].mean():.1f} %.\nNo weights in the ball give the robust model a mean training loss "
        f"above {robust.worst_case.upper_bound:.4f}: a dual bound proves it. {robust.iterations:,} "
        f"iterations took {robust.clock:,.0f} virtual seconds.\n"
    )
    return 0
