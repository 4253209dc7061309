"""`fdro check`: a run file and its data, without training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fdro_core.cli.command import command
from fdro_core.cli.output import AsJson, Output, Quiet, for_people, table

if TYPE_CHECKING:
    from fdro_core.cli.runs.columns import Preparation
    from fdro_core.cli.runs.workers import Workers

MOST = 20
"""Names in a line."""


@command("Training", "fdro check run.toml", "fdro check run.toml patients.csv", place=29)
def check(
    run_file: Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run file.")],
    data: Annotated[
        Path | None,
        typer.Argument(metavar="[DATA.csv]", help="A file with samples, instead of the one in the run file."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Check a run file and its data without training, and tell all mistakes at once.

    Shows how each column is read, what is done about gaps, and what a site would have to tell the others.
    """
    from fdro_core.cli.runs.run_file import load

    output = Output(quiet=quiet, as_json=as_json)
    setup = load(run_file, data=data)
    workers, learnt = setup.workers, setup.workers.preparation
    output.data(
        {
            "workers": workers.names,
            "samples": workers.samples,
            "test_samples": workers.test_samples,
            "classes": workers.class_counts,
            "inputs": learnt.names() if learnt and learnt.has_names() else None,
            "dropped": learnt.dropped if learnt else {},
            "leaves_each_site": learnt.leaves() if learnt else None,
            "set": repr(setup.uncertainty_set),
            "algorithm": repr(setup.algorithm),
            "engine": repr(setup.engine),
        }
    )
    output.only_quiet("ok")
    listing = table("worker", "samples", "held out")
    for name, samples, held_out in zip(workers.names, workers.samples, workers.test_samples, strict=True):
        listing.add_row(name, for_people(samples, 7), for_people(held_out, 7))
    output.say(listing)
    if workers.class_counts:
        counted = [f"{name} {count:,}" for name, count in workers.class_counts.items()]
        output.say(f"{len(counted)} classes: {_few(counted)}\n")
    for warning in _doubts(workers):
        output.warn(warning)
    if learnt is not None:
        _say_columns(output, learnt)
    output.say(
        f"{run_file} is fine: {len(workers.names)} workers, {setup.uncertainty_set!r}, {setup.algorithm_name}"
    )


def _doubts(workers: Workers) -> list[str]:
    """What is allowed, and seldom meant."""
    found = []
    for what, names in (("sites", workers.names), ("classes", list(workers.class_counts))):
        alike: dict[str, list[str]] = {}
        for name in names:
            alike.setdefault(name.casefold(), []).append(name)
        twins = [" and ".join(map(repr, same)) for same in alike.values() if len(set(same)) > 1]
        if twins:
            found.append(f"{what} that differ in capitals only: {'; '.join(twins)}. Are they the same?")
    sizes = list(zip(workers.names, workers.samples, workers.test_samples, strict=True))
    lone = [name for name, samples, held_out in sizes if samples + held_out == 1]
    if lone:
        found.append(f"sites with one sample: {_few(lone)}")
    untested = [name for name, _, held_out in sizes if held_out == 0 and name not in lone]
    if untested and workers.test_samples.any():
        found.append(f"sites with no sample held out, so without a test: {_few(untested)}")
    return found


def _few(names: list[str]) -> str:
    return ", ".join([*names[:MOST], "…"] if len(names) > MOST else names)


def _say_columns(output: Output, learnt: Preparation) -> None:
    if learnt.has_names():
        listing = table("column", "is read as", "gaps", left=2)
        for place, column in enumerate(learnt.columns):
            kind = "numbers" + ", which number the rows? Leave it out of `features`" * column.counts_rows
            if column.categories is not None:
                seen = [column.categories[each] for each in learnt.seen[place]]
                shown = ", ".join(seen[:4]) + (", …" if len(seen) > 4 else "")
                kind = f"{len(seen)} categories: {shown}"
            listing.add_row(column.name, kind, str(column.gaps or ""))
        output.say(listing)
    if learnt.dropped:
        lost = ", ".join(f"{name or 'no worker'} {rows}" for name, rows in learnt.dropped.items())
        output.say(f"left out for a gap: {sum(learnt.dropped.values())} rows ({lost})\n")
    output.say(
        "This run reads all sites' data in one place; if they stayed at the sites, each would send these "
        f"sums of its training samples: {learnt.leaves()}.\n"
    )
