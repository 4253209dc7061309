"""`fdro compare`: show runs side by side, with the settings in which they differ."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdro_core.cli.command import command
from fdro_core.cli.output import AsJson, Output, Quiet, table
from fdro_core.cli.runs.summary import FIGURES, WORKER_COLUMNS

if TYPE_CHECKING:
    from fdro_core.cli.runs.comparing import Verdict

COMPARED = [key for key in FIGURES if key not in {"gap", "seconds"}]
"""The figures to compare: not those that vary between two executions of one run file."""


@command("Training", "fdro compare run-kl run-fedavg", "fdro compare runs/* --json", place=33)
def compare(
    folders: Annotated[list[Path], typer.Argument(help="The folders of two or more runs.")],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show two or more runs side by side: the settings that differ, the results, and whether they are noise.

    Runs that differ in seeds only are repetitions of one method; with three or more, differences are paired
    over the seeds.
    """
    compare_runs(Output(quiet=quiet, as_json=as_json), folders)


def compare_runs(output: Output, folders: list[Path]) -> None:
    """Print the runs in these folders side by side."""
    from fdro_core.cli.runs import comparing
    from fdro_core.cli.runs.comparing import differences, fields_of
    from fdro_core.cli.runs.folder import RESULT, RUN_FILE, RunFolder, check_different
    from fdro_core.errors import InvalidSetting

    if len(folders) < 2:
        raise InvalidSetting("give two or more runs, as in `fdro compare run-a run-b`")
    runs = [RunFolder(folder) for folder in folders]
    check_different(runs)
    for run in runs:
        run.check(RUN_FILE, RESULT)
    results = [run.result() for run in runs]
    settings = [fields_of(run) for run in runs]
    differ = differences(settings)
    names = [str(run) for run in runs]
    verdict = comparing.judge(names, settings, results)
    output.data(
        {
            "runs": names,
            "differ": differ,
            **{key: [result.get(key) for result in results] for key in COMPARED},
            **verdict.as_data(),
        }
    )
    show(output, names, differ, results)
    conclude(output, verdict)
    for folder, result in zip(folders, results, strict=True):
        if not result["proved"]:
            output.warn(f"{folder}: its objective was computed {result['caveat']}")


def conclude(output: Output, verdict: Verdict) -> None:
    """Print which run is best for its worst worker, or that none is, and the differences."""
    from fdro_core.cli.runs import comparing

    if verdict.best is None:
        output.essential(f"{comparing.TIE} for the worst worker: {', '.join(verdict.leaders)}")
    else:
        output.only_quiet(verdict.best)
        output.say(f"best for its worst worker: {verdict.best}")
    for each in verdict.differences:
        output.say(f"  {comparing.in_words(each)}")


def show(
    output: Output, names: list[str], differ: dict[str, list[Any]], results: list[dict[str, Any]]
) -> None:
    """Print settings that differ, figures, and test accuracies by worker if the workers are the same."""
    from fdro_core.cli.runs import comparing

    listing = table("", *names)
    for key, values in differ.items():
        listing.add_row(key, *(comparing.field_text(key, value) for value in values))
    if differ:
        listing.add_section()
    for key in COMPARED:
        (label, form), values = FIGURES[key], [result.get(key) for result in results]
        if any(value is not None for value in values):
            listing.add_row(label, *("–" if value is None else form(value) for value in values))
    output.say(listing)
    workers = [[worker["name"] for worker in result["workers"]] for result in results]
    if any(each != workers[0] for each in workers) or len(workers[0]) > 30:
        return
    tested = all(result["worst_test_accuracy"] is not None for result in results)
    key = "test_accuracy" if tested else "loss"
    label, form = WORKER_COLUMNS[key]
    by_worker = table("worker", *names, title=f"{label} by worker")
    for j, name in enumerate(workers[0]):
        by_worker.add_row(name, *(form(result["workers"][j][key]) for result in results))
    output.say(by_worker)
