"""A short training run: ten workers with one digit each, robust against equal weights."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table

from fdro_core import AspireEase, LogNormal, SoftmaxRegression, Straggler, VirtualEngine, solve
from fdro_core.observers import Progress
from uncertainty_sets import KL


def main(arguments: list[str]) -> int:
    """Train two models and print both by worker; there are no options."""
    del arguments
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = digits.data / 16.0, digits.target
    rng = np.random.default_rng(0)
    train = rng.random(len(labels)) < 0.7
    problems = [
        SoftmaxRegression(
            images[train & (labels == d)], labels[train & (labels == d)], 10, l2=1e-3, intercept=True
        )
        for d in range(10)
    ]
    console = Console()
    console.print("\nTen workers, one handwritten digit each; worker 3 is 20 times slower than the others.")
    console.print("One linear model for all, trained asynchronously: the master never waits for everyone.\n")
    prior = np.full(10, 0.1)
    models = {}
    for name, radius in (("equal", 0.0), ("robust", 0.5)):
        console.print(f"{name}: KL ball of radius {radius} around equal weights")
        models[name] = solve(
            problems,
            KL(prior, radius),
            config=AspireEase(active_workers=1, iterations=30_000),
            engine=VirtualEngine(seed=0, delays=LogNormal(1.0, 0.5), stragglers=[Straggler(3, 20.0)]),
            observers=[Progress(console)],
        )
    table = Table(title="\nloss by worker; new: on images not trained on")
    table.add_column("worker")
    columns = ("loss", "new loss", "weight")
    for heading in [f"{what}\n{name}" for what in columns for name in models]:
        table.add_column(heading, justify="right")
    fresh = [
        SoftmaxRegression(
            images[~train & (labels == d)], labels[~train & (labels == d)], 10, l2=1e-3, intercept=True
        )
        for d in range(10)
    ]
    new = {
        name: np.array([problem.loss_and_gradient(result.w)[0] for problem in fresh])
        for name, result in models.items()
    }
    for d in range(10):
        losses = [f"{result.losses[d]:.3f}" for result in models.values()]
        weights = [f"{100 * result.weights[d]:.0f} %" for result in models.values()]
        again = [f"{new[name][d]:.3f}" for name in models]
        table.add_row(f"digit {d}", *losses, *again, *weights)
    table.add_section()
    worst = [f"{result.losses.max():.3f}" for result in models.values()]
    again = [f"{new[name].max():.3f}" for name in models]
    table.add_row("worst", *worst, *again, "", "")
    console.print(table)
    robust, equal = models["robust"], models["equal"]
    console.print(
        f"\nThe worst worker's loss falls from {equal.losses.max():.3f} to {robust.losses.max():.3f}, on new "
        f"images from {new['equal'].max():.3f} to {new['robust'].max():.3f}. "
        f"The worst mean loss in the ball is {robust.objective:.4f}, proved by a dual bound "
        f"of {robust.worst_case.upper_bound:.4f}; {robust.iterations} iterations took "
        f"{robust.clock:.0f} virtual seconds.\n"
    )
    return 0
