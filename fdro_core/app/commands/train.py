"""`fdro train` and `fdro resume`: a run from a config file, or from its checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdro_core.app.commands.guard import INTERRUPTED, guarded
from fdro_core.app.commands.output import AsJson, Output, Quiet, table
from fdro_core.app.plain import number, percent

if TYPE_CHECKING:
    from fdro_core.app.runs.folder import RunFolder

EXAMPLE = """# One digit a worker: a model that does well on its worst digit.  fdro train config.toml

[data]
source = "digits"            # or "patients.csv" with worker and label columns, or "module:function"
test_fraction = 0.25         # kept aside in every worker

[model]
kind = "softmax"             # or "least-squares", or "module:function" that makes a torch module
l2 = 1e-3

[set]
name = "kl"                  # `fdro sets` lists them, `fdro choose` finds yours
radius = 0.5

[algorithm]
name = "aspire-ease"
active_workers = 1           # the master goes on as soon as one worker has answered
iterations = 10_000

[engine]
name = "virtual"
seed = 0
delays = { law = "log-normal", median = 1.0, sigma = 0.5 }
stragglers = [{ worker = 3, factor = 20.0 }]

[output]
folder = "run"
"""


@guarded
def train(
    config: Annotated[Path | None, typer.Argument(help="The TOML file that describes the run.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The run's folder; else as the config says.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run that is in the folder.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Look the config and its data over, and train nothing.")
    ] = False,
    example: Annotated[bool, typer.Option("--example", help="Print a config to start from.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a robust model as a config file says; Ctrl-C leaves a checkpoint.

    docs/cli.md has every field. `fdro train --example > config.toml` makes a first one.
    """  # fmt: skip
    from fdro_core.errors import InvalidSetting

    if example:
        typer.echo(EXAMPLE, nl=False)
        return
    if config is None:
        raise InvalidSetting("which config? `fdro train --example > config.toml` makes a first one")
    from fdro_core.app.runs import run

    shown = Output(quiet=quiet, as_json=as_json)
    if check:
        _checked(shown, config)
        return
    folder, numbers = run.train(config, output, force=force, observers=watchers(shown))
    finish(shown, folder, numbers)


@guarded
def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    iterations: Annotated[
        int | None, typer.Option(help="Iterations in all: more than the config's to train on.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Go on though config or data are not those of the checkpoint.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Go on with an interrupted run, or train a finished one further.

    On the virtual engine the rest is bit for bit what it would have been.
    """
    from fdro_core.app.runs import run

    shown = Output(quiet=quiet, as_json=as_json)
    found, numbers = run.go_on(folder, iterations, force=force, observers=watchers(shown))
    finish(shown, found, numbers)


def watchers(output: Output) -> list[Any]:
    """A progress bar, where somebody watches."""
    if not output.words or not sys.stdout.isatty():
        return []
    from fdro_core.observers import Progress

    return [Progress(output.console)]


def _checked(output: Output, config: Path) -> None:
    from fdro_core.app.runs.config import load

    experiment = load(config)
    names = experiment.task.names
    facts = {
        "workers": names,
        "samples": experiment.task.samples,
        "set": repr(experiment.uncertainty_set),
        "algorithm": repr(experiment.algorithm),
        "engine": repr(experiment.engine),
    }
    output.data(facts)
    output.only_quiet("ok")
    output.say(
        f"{config} is fine: {len(names)} workers, {experiment.uncertainty_set!r}, {experiment.algorithm_name}"
    )


def finish(output: Output, folder: RunFolder, numbers: dict[str, Any]) -> None:
    """What came of it, and what to do next; exit 130 where it was interrupted."""
    output.data({"folder": str(folder), **numbers})
    show(output, str(folder), numbers)
    if numbers["stop_reason"] == "interrupted":
        if not output.as_json:
            typer.echo(f"interrupted; go on with: fdro resume {folder}", err=True)
        raise typer.Exit(INTERRUPTED)


def show(output: Output, folder: str, numbers: dict[str, Any]) -> None:
    """A table by worker and a few sentences."""
    worst = numbers["worst_test_accuracy"]
    caveat = "" if numbers["proved"] else f" (not proved: {numbers['caveat']})"
    output.only_quiet(
        f"{folder}: objective {numbers['objective']:.6g}{caveat}"
        + ("" if worst is None else f", worst-worker test accuracy {percent(worst)}")
    )
    for name, what in numbers["suspicious"].items():
        output.warn(f"worker {name} looks wrong: {what}")
    if not output.words:
        return
    columns = ("samples", "loss", "accuracy", "test loss", "test accuracy", "prior", "weight")
    listing = table("worker", *columns, title="\nby worker")
    for worker in numbers["workers"]:
        listing.add_row(
            worker["name"], number(worker["samples"]), number(worker["loss"], 4), percent(worker["accuracy"]),
            number(worker["test_loss"], 4), percent(worker["test_accuracy"]), percent(worker["prior"]),
            percent(worker["weight"]),
        )  # fmt: skip
    output.say(listing)
    mean = percent(numbers["mean_test_accuracy"])
    output.say(headline(numbers))
    if worst is not None:
        output.say(f"test accuracy  worst worker {percent(worst)}, mean {mean}")
    output.say(f"{numbers['iterations']:,} iterations in {numbers['seconds']:.1f} s, ", end="")
    output.say(f"{numbers['clock']:.6g} s on the engine's clock; ended by: {numbers['stop_reason']}")
    output.say(f"\nin {folder}; next: fdro report {folder}")


def headline(numbers: dict[str, Any]) -> str:
    """The objective and its bound; proved only where every worker's loss was measured at this model."""
    value, bound = (
        f"worst expected loss over the set  {numbers['objective']:.6g}",
        number(numbers["upper_bound"]),
    )
    if numbers["proved"]:
        return f"{value}, proved at most {bound}"
    return f"{value}, NOT PROVED: at most {bound} {numbers['caveat']}"
