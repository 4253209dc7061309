"""Where a command's words and numbers go: tables for people, JSON for programs, or almost nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdro_core.app.plain import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the essential line only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]


class Output:
    """What was asked for: words, `--quiet` or `--json`.

    Attributes:
        words: whether tables and sentences are wanted.
        as_json: whether one JSON object is.
    """

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        self.words = not quiet and not as_json
        self.quiet = quiet
        self.as_json = as_json
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        """The terminal; made when first used, since rich takes a while to load."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(highlight=False)
        return self._console

    def say(self, thing: Any = "", end: str = "\n") -> None:
        """A table or a sentence, for people; sentences are not broken where the terminal ends."""
        if self.words:
            self.console.print(thing, markup=False, end=end, soft_wrap=isinstance(thing, str))

    def essential(self, line: str) -> None:
        """The one line that `--quiet` leaves."""
        if not self.as_json:
            typer.echo(line)

    def only_quiet(self, line: str) -> None:
        """A line that stands for everything else in quiet mode."""
        if self.quiet and not self.as_json:
            typer.echo(line)

    def warn(self, line: str) -> None:
        """Something to know about the answer; on stderr, in every mode."""
        typer.secho("note: ", fg="yellow", nl=False, err=True)
        typer.echo(line, err=True)

    def data(self, content: Any) -> None:
        """The JSON object of `--json`."""
        if self.as_json:
            typer.echo(json.dumps(plain(content), allow_nan=False))


def table(*columns: str, title: str | None = None, left: int = 1) -> Table:
    """A table without lines between rows; all but the first `left` columns are numbers, to the right."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for place, name in enumerate(columns):
        made.add_column(name, justify="left" if place < left else "right")
    return made
