"""`fdro flower new`: writes an app for Flower, ready for `flwr run`."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Annotated

import typer

from fdro_core.cli.command import group, guarded, under_help
from fdro_core.cli.output import AsJson, Output, Quiet
from fdro_core.outside import command, toml_text

TEMPLATES = Path(__file__).parent.parent / "templates" / "flower"
IN_PACKAGE = ".py"  # these files go into the package, the others beside it
LONGEST = 32  # Flower's limit for the name of an app

flower = typer.Typer(
    name="flower",
    no_args_is_help=True,
    help="Train on machines of many owners, with Flower.",
    rich_markup_mode="rich",
)
group(flower, "Training", place=34)


@flower.callback()
def main() -> None:
    """Train on machines of many owners, with Flower."""


@flower.command(epilog=under_help(("fdro flower new wards --workers 4",)))
@guarded
def new(
    folder: Annotated[Path, typer.Argument(help="The folder to write; its last part is the app's name.")],
    workers: Annotated[int, typer.Option(min=1, help="How many nodes the run waits for.")] = 2,
    publisher: Annotated[str, typer.Option(help="Who publishes the app, as Flower shows it.")] = "fdro",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write an app that `flwr run` starts, in a simulation and on nodes."""
    from fdro_core.errors import InvalidSetting

    output = Output(quiet=quiet, as_json=as_json)
    name = folder.name
    package = name.replace("-", "_")
    if not package.isidentifier() or not package.isascii() or len(name) > LONGEST:
        raise InvalidSetting(
            f"an app is named by letters, digits and hyphens, at most {LONGEST} of them, got {name!r}"
        )
    try:
        quoted = toml_text(publisher)
    except UnicodeEncodeError:
        raise InvalidSetting(f"--publisher must be text, got {publisher!r}") from None
    if folder.exists():
        raise InvalidSetting(f"{folder} exists already; name another folder")
    values = {"name": name, "package": package, "workers": str(workers), "publisher": quoted}
    for template in sorted(TEMPLATES.glob("*.txt")):
        file = template.name.removesuffix(".txt")
        place = folder / package / file if file.endswith(IN_PACKAGE) else folder / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(Template(template.read_text(encoding="utf-8")).substitute(values), encoding="utf-8")
    output.data({"folder": str(folder), "package": package, "workers": workers})
    output.only_quiet(str(folder))
    output.say(f"wrote {folder}: edit {package}/task.py, then")
    output.say(
        f'  {command("flwr", "run", folder)} local --stream --federation-config "num-supernodes={workers}"'
    )
    output.say("docs/flower.md shows the same on nodes with TLS and known keys.")
