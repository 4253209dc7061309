"""The `fdro` command with all its commands: every file in `commands` is imported and declares its own.

Commands import what they need when they run, so that `fdro --help` is fast.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Annotated

import typer

from fdro_core.cli import commands, version
from fdro_core.cli.command import COMMANDS, under_help

app = typer.Typer(
    name="fdro",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 ran and failed, 2 invalid input, 3 a package is missing, 130 interrupted.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from uncertainty_sets.kernels.native import library

        typer.echo(f"fdro {version()}")
        typer.echo(library.status())
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version, and how the kernels run."
        ),
    ] = False,
) -> None:
    """Train models for their worst workers, and compute worst cases with a proof.

    Start with `fdro demo`; then `fdro train --example > run.toml` and
    `fdro train run.toml --against fed-avg`.
    """
    del version


for file in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}."):
    importlib.import_module(file.name)
for each in sorted(COMMANDS, key=lambda found: found.place):
    if isinstance(each.run, typer.Typer):
        app.add_typer(each.run, rich_help_panel=each.panel)
    else:
        own = {"allow_extra_args": True, "ignore_unknown_options": True} if each.set_options else None
        app.command(rich_help_panel=each.panel, epilog=under_help(each.examples), context_settings=own)(
            each.run
        )
