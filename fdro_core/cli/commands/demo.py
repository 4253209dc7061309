"""`fdro demo`: one digit per worker, FedAvg and the robust model compared on held-out images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdro_core.cli.command import command
from fdro_core.cli.commands.train import progress
from fdro_core.cli.output import AsJson, Output, Quiet, percent, table

if TYPE_CHECKING:
    from fdro_core.cli.runs.workers import Workers
    from fdro_core.result import Result
    from uncertainty_sets.arrays import Array

RADIUS, HELD_OUT, SLOW = 0.3, 0.3, 3
RIDGE = 3e-3
"""Of 1e-3, 3e-3 and 1e-2 the best for FedAvg's worst worker (seeds 0 to 2), so that FedAvg is not at a
disadvantage."""

ROUNDS, ITERATIONS = 1_200, 12_000
"""At most 12,000 gradients each; three times as many gave the same worst accuracy (seeds 0 to 2)."""

GREY, BLUE = "#8a8a8a", "#1f5fa8"

NAMES = {"fedavg": "FedAvg", "robust": "robust"}


@command("Start here", "fdro demo", "fdro demo --seed 7 --picture digits.png", place=10)
def demo(
    picture: Annotated[Path, typer.Option(help="Where to save the picture.")] = Path("fdro-demo.png"),
    pixels: Annotated[int, typer.Option(min=1, max=8, help="Pixels per side: 1, 2, 4 or 8.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the held-out images and of all delays.")] = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare robust training with FedAvg on handwritten digits, one digit per worker.

    Prints the accuracy of every worker on held-out images and draws a picture. Takes up to half a minute.
    """
    output = Output(quiet=quiet, as_json=as_json)
    workers = digit_workers(pixels, seed)
    output.say(
        f"Ten workers, one handwritten digit each, {pixels}×{pixels} pixels; worker {SLOW} is 20 times "
        "slower than the others.\nOne linear model for all. 30 % of each worker's images are held out."
    )
    if pixels == 8:
        output.say("With all 64 pixels a linear model does well on every digit, so expect no gain.")
    results = {}
    for key, what in (
        (
            "fedavg",
            "FedAvg: minimises the mean loss over all images; every round waits for the slowest worker",
        ),
        (
            "robust",
            "robust: minimises the mean loss of the worst mix of workers within a KL divergence of "
            f"{RADIUS} of their shares; no worker waits for another",
        ),
    ):
        output.say(f"\n{what}")
        results[key] = train(workers, key, seed, progress(output))
    accuracies = {key: workers.test(result.w)[1] for key, result in results.items()}
    drawn = draw(output, picture, workers.names, accuracies)
    output.data(facts(workers, results, accuracies, drawn))
    show(output, workers, results, accuracies)
    before, after = (percent(accuracies[key].min()) for key in NAMES)
    output.only_quiet(f"worst-worker test accuracy: FedAvg {before}, robust {after}")
    if drawn is not None:
        output.say(f"\npicture: {drawn}")
    output.say("next: fdro train --example > run.toml; fdro train run.toml --against fed-avg")


def digit_workers(pixels: int, seed: int) -> Workers:
    """scikit-learn's digits at that resolution (neighbouring pixels averaged), one digit per worker."""
    from fdro_core.cli.runs.data import Samples, digits, split_by_worker
    from fdro_core.cli.runs.workers import of_one_kind
    from fdro_core.errors import InvalidSetting
    from fdro_core.problems import SoftmaxRegression

    if 8 % pixels:
        raise InvalidSetting(f"--pixels must be 1, 2, 4 or 8, so that pixels can be averaged, got {pixels}")
    whole, block = digits(), 8 // pixels
    images = whole.X.reshape(-1, pixels, block, pixels, block).mean(axis=(2, 4)).reshape(-1, pixels**2)
    reduced = Samples(images, whole.y, whole.worker)
    data = split_by_worker(reduced, HELD_OUT, seed, standardise=True)
    return of_one_kind(SoftmaxRegression, data, l2=RIDGE)


def train(workers: Workers, key: str, seed: int, observers: list[Any]) -> Result:
    """One of the two models, on the same engine."""
    from fdro_core import AspireModels, LogNormal, Straggler, VirtualEngine, solve
    from fdro_core.baselines import FedAvg
    from uncertainty_sets import KL

    algorithm: Any = {
        "fedavg": FedAvg(iterations=ROUNDS, local_steps=1, seed=seed),
        "robust": AspireModels(iterations=ITERATIONS, seed=seed),
    }[key]
    return solve(
        workers.problems,
        KL(workers.samples / workers.samples.sum(), RADIUS),
        algorithm=algorithm,
        engine=VirtualEngine(seed, LogNormal(1.0, 0.5), [Straggler(SLOW, 20.0)]),
        observers=observers,
    )


def facts(
    workers: Workers, results: dict[str, Result], accuracies: dict[str, Any], picture: Path | None
) -> dict[str, Any]:
    """Everything shown, for `--json`."""
    return {
        "workers": workers.names,
        "picture": None if picture is None else str(picture),
        **{
            key: {
                "worst_test_accuracy": accuracies[key].min(),
                "mean_test_accuracy": accuracies[key].mean(),
                "test_accuracies": accuracies[key],
                "losses": result.losses,
                "weights": result.weights,
                "objective": result.objective,
                "upper_bound": result.worst_case.upper_bound,
                "proved": result.proved,
                "clock": result.clock,
            }
            for key, result in results.items()
        },
    }


def show(output: Output, workers: Workers, results: dict[str, Result], accuracies: dict[str, Any]) -> None:
    """Print accuracies by worker, worst and mean, and the bound."""
    listing = table(
        "digit", "FedAvg", "robust", "weight FedAvg", "weight robust", title="\naccuracy on held-out images"
    )
    for j, name in enumerate(workers.names):
        weights = [percent(results[key].weights[j], 0) for key in NAMES]
        listing.add_row(name, *(percent(accuracies[key][j]) for key in NAMES), *weights)
    listing.add_section()
    listing.add_row("worst", *(percent(accuracies[key].min()) for key in NAMES), "", "")
    listing.add_row("mean", *(percent(accuracies[key].mean()) for key in NAMES), "", "")
    output.say(listing)
    fedavg, robust = (results[key] for key in NAMES)
    output.say(
        f"The worst worker's accuracy goes from {percent(accuracies['fedavg'].min())} to "
        f"{percent(accuracies['robust'].min())}, the mean from {percent(accuracies['fedavg'].mean())} to "
        f"{percent(accuracies['robust'].mean())}.\n"
        f"No mix in the set gives the robust model a mean training loss above "
        f"{robust.worst_case.upper_bound:.4f}, {robust.caveat() or 'proved by a dual bound'}; "
        f"FedAvg's worst mix has {fedavg.objective:.4f}.\n"
        f"On the engine's clock FedAvg took {fedavg.clock:,.0f} s and the robust run {robust.clock:,.0f} s."
    )


def draw(output: Output, path: Path, names: list[str], accuracies: dict[str, Any]) -> Path | None:
    """Save the picture, or print what it needs."""
    from fdro_core.files import naming_full_disk

    try:
        from matplotlib.figure import Figure
    except ImportError:
        output.warn('no picture without matplotlib: pip install "fdro[plot]"')
        return None
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    dots(figure.add_subplot(), names, [accuracies[key] for key in NAMES], list(NAMES.values()))
    with naming_full_disk(path):
        figure.savefig(path, dpi=150)
    return path


def dots(axes: Any, workers: list[str], accuracies: list[Array], methods: list[str]) -> None:
    """Two dots per worker, before and after, joined by a line; the worst before at the top."""
    import numpy as np

    before, after = (100 * values for values in accuracies)
    order = np.argsort(before)[::-1]
    places = np.arange(len(order))
    axes.hlines(places, before[order], after[order], color="#c4c4c4", linewidth=2, zorder=1)
    axes.scatter(before[order], places, s=46, facecolor="white", edgecolor=GREY, linewidth=1.8, zorder=2)
    axes.scatter(after[order], places, s=46, color=BLUE, zorder=3)
    top = int(order[-1])
    left, right = sorted([(before[top], methods[0], GREY), (after[top], methods[1], BLUE)])
    for (x, name, colour), shift, side in ((left, -9, "right"), (right, 9, "left")):
        place = (x, places[-1])
        axes.annotate(
            f"{name} {x:.0f} %",
            place,
            (shift, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            color=colour,
        )
    low = float(min(before.min(), after.min()))
    axes.axvline(before.min(), color=GREY, linewidth=0.8, linestyle=":")
    axes.axvline(after.min(), color=BLUE, linewidth=0.8, linestyle=":")
    axes.set_xlim(max(-2.0, low - 18.0), 103.0)
    axes.set_yticks(places, [f"digit {workers[j]}" for j in order])
    axes.set_xlabel("accuracy on held-out images, % (dotted: the worst worker)")
    axes.set_title(
        f"Worst worker: {before.min():.0f} % with {methods[0]}, {after.min():.0f} % {methods[1]}",
        loc="left",
        fontsize=11,
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
