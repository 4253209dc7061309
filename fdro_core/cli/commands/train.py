"""`fdro train` and `fdro resume`: execute a run file, or continue from its checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdro_core import outside
from fdro_core.cli.command import INTERRUPTED, command
from fdro_core.cli.commands.compare import compare_runs
from fdro_core.cli.output import AsJson, Output, Quiet, percent, table
from fdro_core.cli.runs.summary import FIGURES, NOT_COVERED, WORKER_COLUMNS, over_samples

if TYPE_CHECKING:
    from fdro_core.cli.runs.folder import RunFolder

EXAMPLE = """# Eight hospitals, one model: train it so that it does well at its worst hospital.
# Save as run.toml, then: fdro train run.toml --against fed-avg

[data]
source = "hospitals"         # made up; or "patients.csv" with worker and label columns, or "module:function"
test_fraction = 0.5          # the share of each worker's samples that is held out
seed = 0                     # of the samples, and of which are held out

[model]
kind = "softmax"             # or "least-squares", or "module:function" that returns a torch module
l2 = 1e-3

[set]
name = "kl"                  # `fdro sets` lists them, `fdro choose` recommends one
center = "samples"           # the mix of patients as it is, and all mixes
radius = 0.3                 # within this divergence of it; `fdro choose` says why

[algorithm]
name = "aspire-models"       # ours; "aspire-ease" is the paper's, "fed-avg" a baseline
active_workers = 1           # the master updates as soon as one worker has answered
tolerance = 1e-6             # stop once no more than this share of the objective is left to gain

[engine]
name = "virtual"
seed = 0
delays = { law = "log-normal", median = 1.0, sigma = 0.5 }
stragglers = [{ worker = 3, factor = 20.0 }]

[output]
folder = "run"
"""

RULES = {
    "time": ("seconds", "raise"),
    "target loss": ("loss", "lower"),
    "stationary": ("stationary", "lower"),
}
"""The field of [stop] by the reason why a run ended, and what to do with it for the run to go on."""


@command("Training", "fdro train --example > run.toml", "fdro train run.toml --against fed-avg", place=30)
def train(
    run_file: Annotated[
        Path | None,
        typer.Argument(metavar="RUN.toml", help="The run file (TOML) that describes the run."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for the results, instead of the one in the run file."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run that is in the folder.")] = False,
    against: Annotated[
        str | None,
        typer.Option(metavar="ALGORITHM", help="Train with this algorithm too, as in fed-avg, and compare."),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a run file to start from.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a robust model as a run file describes; Ctrl-C leaves a checkpoint.

    docs/cli.md lists every field. `fdro train --example > run.toml` writes a first run file, and
    `fdro check` shows all mistakes of one.
    """
    from fdro_core.errors import InvalidSetting

    if example:
        typer.echo(EXAMPLE, nl=False)
        return
    if run_file is None:
        raise InvalidSetting("give a run file; `fdro train --example > run.toml` writes a first one")
    from fdro_core.cli.runs import execute

    shown = Output(quiet=quiet, as_json=as_json)
    if against is not None:
        against = execute.check_against(run_file, output, against, force=force)
    folder, numbers = execute.train(run_file, output, force=force, observers=progress(shown))
    if against is None:
        finish(shown, folder, numbers)
        return
    _show_first(shown, folder, numbers)
    other = folder.beside(against)
    shown.say(f"\nthe same with {against}, its other settings by default:")
    _, numbers = execute.train(
        run_file, other.path, force=force, observers=progress(shown), algorithm=against
    )
    _show_first(shown, other, numbers)
    compare_runs(shown, [folder.path, other.path])


@command("Training", "fdro resume run", "fdro resume run --iterations 20000", place=31)
def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    iterations: Annotated[
        int | None, typer.Option(help="Total number of iterations, instead of the one in the run file.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Continue even if run file or data have changed."),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Continue an interrupted run, or train a finished one further.

    On the virtual engine the result is bit for bit that of an uninterrupted run.
    """
    from fdro_core.cli.runs import execute

    shown = Output(quiet=quiet, as_json=as_json)
    found, numbers = execute.continue_run(folder, iterations, force=force, observers=progress(shown))
    finish(shown, found, numbers)


def progress(output: Output) -> list[Any]:
    """A progress bar, if the output is a terminal."""
    if not output.words or not sys.stdout.isatty():
        return []
    from fdro_core.observers import Progress

    return [Progress(output.console)]


def finish(output: Output, folder: RunFolder, numbers: dict[str, Any]) -> None:
    """Print the result and the next step; exit with 130 if the run was interrupted."""
    output.data({"folder": str(folder), **numbers})
    show(output, str(folder), numbers)
    if numbers["stop_reason"] == "interrupted":
        if not output.as_json:
            typer.echo(f"interrupted; continue with: {outside.command('fdro', 'resume', folder)}", err=True)
        raise typer.Exit(INTERRUPTED)


def _show_first(output: Output, folder: RunFolder, numbers: dict[str, Any]) -> None:
    """Print a run before another part of the command; an interruption ends the command."""
    if numbers["stop_reason"] == "interrupted":
        finish(output, folder, numbers)
    show(output, str(folder), numbers)


def show(output: Output, folder: str, numbers: dict[str, Any]) -> None:
    """Print a table by worker and the headline numbers."""
    worst = numbers["worst_test_accuracy"]
    caveat = "" if numbers["proved"] else f" (not proved: {numbers['caveat']})"
    output.only_quiet(
        f"{folder}: objective {numbers['objective']:.6g}{caveat}"
        + ("" if worst is None else f", worst-worker test accuracy {percent(worst)}")
    )
    for name, what in numbers["suspicious"].items():
        output.warn(f"worker {name} is suspicious: {what}")
    if not output.words:
        return
    listing = table("worker", *(label for label, _ in WORKER_COLUMNS.values()), title="\nby worker")
    for worker in numbers["workers"]:
        cells = [form(worker[key]) for key, (_, form) in WORKER_COLUMNS.items()]
        listing.add_row(worker["name"], *cells)
    output.say(listing)
    mean = percent(numbers["mean_test_accuracy"])
    pooled = percent(over_samples(numbers["workers"]))
    output.say(headline(numbers))
    if worst is not None:
        output.say(
            f"test accuracy  worst worker {percent(worst)}, mean over workers {mean}, all samples {pooled}"
        )
    output.say(f"{numbers['iterations']:,} iterations in {numbers['seconds']:.1f} s, ", end="")
    output.say(f"{numbers['clock']:.6g} s on the engine's clock; stopped by: {numbers['stop_reason']}")
    output.say(convergence(folder, numbers))
    if numbers["privacy"] is not None:
        output.say(f"privacy  {numbers['privacy']['in_words']}. Not covered: {NOT_COVERED}")
    output.say(f"\nwritten to {folder}; next: {outside.command('fdro', 'report', folder)}")


def convergence(folder: str, numbers: dict[str, Any]) -> str:
    """Whether the run has converged; if it has not, how to continue."""
    from fdro_core.result import CONVERGED, STOPPED, ending

    if numbers["stop_reason"] in {CONVERGED, STOPPED}:
        return ending(numbers["stop_reason"], numbers["iterations"], numbers["planned"])
    if numbers["stop_reason"] == "interrupted":  # the next line says how to continue
        return "not converged"
    if rule := _rule(folder, numbers["stop_reason"]):
        return rule
    if not numbers["algorithm"].get("tolerance"):
        return "not checked for convergence: " + (
            "tolerance is 0"
            if "tolerance" in numbers["algorithm"]
            else f"{numbers['algorithm']['name']} has no test"
        )
    line = outside.command("fdro", "resume", folder, "--iterations", 2 * numbers["planned"])
    return f"not converged; continue with: {line}"


def _rule(folder: str, stop_reason: str) -> str:
    """Which rule of the run file ended a run, and how to go on; "" if none did."""
    from fdro_core.cli.runs.comparing import fields_of
    from fdro_core.cli.runs.folder import RunFolder

    if stop_reason not in RULES:
        return ""
    (field, change), run = RULES[stop_reason], RunFolder(Path(folder))
    value = fields_of(run)[f"stop.{field}"]
    line = outside.command("fdro", "resume", folder)
    return f"stopped at stop.{field} = {value}; to go on {change} it in {run.run_file}, then: {line}"


def headline(numbers: dict[str, Any]) -> str:
    """The objective and its bound; proved only if every worker's loss was measured at this model."""
    label, form = FIGURES["objective"]
    value, bound = f"{label}  {form(numbers['objective'])}", form(numbers["upper_bound"])
    if numbers["proved"]:
        above = numbers["optimality_gap"]
        near = "" if above is None else f", and at most {above:.2g} above the optimum"
        return f"{value}, proved at most {bound}{near}"
    return f"{value}, NOT PROVED: at most {bound} {numbers['caveat']}"
