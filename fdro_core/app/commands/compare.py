"""`fdro compare`: show runs side by side, with the settings in which they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fdro_core.app.commands.guard import guarded
from fdro_core.app.commands.output import AsJson, Output, Quiet, table
from fdro_core.app.runs.summary import FIGURES, WORKER_COLUMNS

COMPARED = [key for key in FIGURES if key not in {"gap", "seconds"}]
"""The figures to compare: not those that vary between two executions of one run file."""


@guarded
def compare(
    folders: Annotated[list[Path], typer.Argument(help="The folders of two or more runs.")],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show two or more runs side by side: the settings that differ, and the results."""
    from fdro_core.app.runs.differences import differences, fields_of
    from fdro_core.app.runs.folder import RESULT, RUN_FILE, RunFolder
    from fdro_core.errors import InvalidSetting

    if len(folders) < 2:
        raise InvalidSetting("give two or more runs, as in `fdro compare run-a run-b`")
    runs = [RunFolder(folder) for folder in folders]
    for run in runs:
        run.check(RUN_FILE, RESULT)
    results = [run.result() for run in runs]
    settings = [fields_of(run) for run in runs]
    differ = differences(settings)
    output = Output(quiet=quiet, as_json=as_json)
    output.data(
        {
            "runs": [str(folder) for folder in folders],
            "differ": differ,
            **{key: [result.get(key) for result in results] for key in COMPARED},
        }
    )
    best = best_of(results)
    output.only_quiet(str(folders[best]))
    show(output, [str(folder) for folder in folders], differ, results)
    output.say(f"best for its worst worker: {folders[best]}")
    for folder, result in zip(folders, results, strict=True):
        if not result["proved"]:
            output.warn(f"{folder}: its objective was computed {result['caveat']}")


def best_of(results: list[dict[str, Any]]) -> int:
    """The run with the highest worst-worker test accuracy, else the lowest worst loss."""
    for key, sign in (("worst_test_accuracy", -1.0), ("worst_test_loss", 1.0), ("worst_loss", 1.0)):
        values = [result[key] for result in results]
        if all(value is not None for value in values):
            return min(range(len(values)), key=lambda k: sign * values[k])
    return 0


def show(
    output: Output, names: list[str], differ: dict[str, list[Any]], results: list[dict[str, Any]]
) -> None:
    """Print settings that differ, figures, and test accuracies by worker if the workers are the same."""
    listing = table("", *names)
    for key, values in differ.items():
        listing.add_row(key, *("–" if value is None else str(value) for value in values))
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
