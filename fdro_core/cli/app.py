"""The `fdro` command: registers the commands of `fdro_core.cli.commands`.

Commands import what they need when they run, so that `fdro --help` is fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from fdro_core.cli.commands.choose import choose
from fdro_core.cli.commands.compare import compare
from fdro_core.cli.commands.demo import demo
from fdro_core.cli.commands.flower import flower
from fdro_core.cli.commands.mdp import mdp
from fdro_core.cli.commands.oracle import oracle
from fdro_core.cli.commands.report import report
from fdro_core.cli.commands.sets import sets
from fdro_core.cli.commands.train import resume, train

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
        from fdro_core.cli.version import version
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


def _add(panel: str, command: Callable[..., Any], *examples: str, extra: bool = False) -> None:
    """Register a command, with examples under its help."""
    settings = {"allow_extra_args": True, "ignore_unknown_options": True} if extra else None
    epilog = "\n\n".join(["[bold]Examples[/bold]", *(f"  {line}" for line in examples)])
    app.command(rich_help_panel=panel, epilog=epilog, context_settings=settings)(command)


_add("Start here", demo, "fdro demo", "fdro demo --seed 7 --picture digits.png")
_add(
    "Sets and worst cases",
    oracle,
    "fdro oracle --set kl --losses 0.9,1.4,0.3,2 --radius 0.1",
    "fdro oracle --set cd-norm --losses losses.csv --center @q.npy --spread 0.1 --budget 2 --format csv",
    "python simulate.py | fdro oracle --set wasserstein-1 --losses - --radius 0.5 --json",
    extra=True,
)
_add("Sets and worst cases", sets, "fdro sets", "fdro sets cd-norm")
_add("Sets and worst cases", choose, "fdro choose", "fdro choose --scenario latency --scenario prior")
_add(
    "Sets and worst cases",
    mdp,
    "fdro mdp --example river-swim",
    "fdro mdp problem.csv --set kl --radius 0.1 --discount 0.9 --policy-out policy.csv",
    "fdro mdp problem.csv --set total-variation --radius 0.2 --rectangular s --picture price.png",
    extra=True,
)

_add("Training", train, "fdro train --example > run.toml", "fdro train run.toml --against fed-avg")
_add("Training", resume, "fdro resume run", "fdro resume run --iterations 20000")
_add("Training", report, "fdro report run", "fdro report run --output share.html --open")
_add("Training", compare, "fdro compare run-kl run-fedavg", "fdro compare runs/* --json")
app.add_typer(flower, rich_help_panel="Training")

if __name__ == "__main__":
    app()
