"""`fdro report`: write the report of a run as one HTML file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fdro_core.cli.command import command
from fdro_core.cli.output import AsJson, Output, Quiet

SIDE_BY_SIDE = "side-by-side.html"
"""The file of a report of several runs, in the current folder."""


@command("Training", "fdro report run", "fdro report run --output share.html --open", place=32)
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="The folder of a run, or of several to compare.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help=f"The file to write, instead of report.html in the folder; for several runs {SIDE_BY_SIDE}.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write the report of a run: one self-contained HTML file that needs no network.

    It shows curves (values appear under the pointer), losses, accuracies and weights by worker, faults and
    settings. Of two or more runs it shows curves and results side by side.
    """
    from fdro_core.cli.report import build, build_side_by_side
    from fdro_core.cli.runs.folder import REPORT, RunFolder
    from fdro_core.errors import FileNotWritten, InvalidSetting
    from fdro_core.files import naming_full_disk

    runs = [RunFolder(folder) for folder in folders]
    page = build(runs[0]) if len(runs) == 1 else build_side_by_side(runs)
    usual = runs[0] / REPORT if len(runs) == 1 else Path(SIDE_BY_SIDE)
    path = usual if output is None else output
    try:
        with naming_full_disk(path):
            path.write_text(page, encoding="utf-8")  # in place: the file may be a pipe or a device
    except FileNotWritten:
        raise
    except OSError as error:
        raise InvalidSetting(f"{path} cannot be written: {error.strerror}") from error
    shown = Output(quiet=quiet, as_json=as_json)
    shown.data({"report": str(path), "bytes": len(page.encode())})
    shown.essential(str(path))
    if show:
        open_in_browser(shown, path)


def open_in_browser(output: Output, path: Path) -> None:
    """Open a file in the browser; say so if there is none."""
    try:
        found = webbrowser.open(path.resolve().as_uri())
    except webbrowser.Error:
        found = False
    if not found:
        output.warn(f"no browser was found on this machine; open {path} in one yourself")
