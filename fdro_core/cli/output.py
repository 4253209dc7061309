"""What a command prints: tables and sentences, one JSON object, or the essential line; numbers in them."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdro_core.outside import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the essential line only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]


class Output:
    """Prints what the options ask for: text, `--quiet` or `--json`.

    Attributes:
        words: whether to print tables and sentences.
        as_json: whether to print one JSON object.
    """

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        self.words = not quiet and not as_json
        self.quiet = quiet
        self.as_json = as_json
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        """The terminal; made on first use, since rich takes a while to load."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(highlight=False)
        return self._console

    def say(self, thing: Any = "", end: str = "\n") -> None:
        """Print a table or a sentence; sentences are not wrapped at the width of the terminal."""
        if self.words:
            thing = visible(thing) if isinstance(thing, str) else thing  # tables have seen to their cells
            self.console.print(thing, markup=False, end=end, soft_wrap=isinstance(thing, str))

    def essential(self, line: str) -> None:
        """Print a line with and without `--quiet`."""
        if not self.as_json:
            typer.echo(visible(line))

    def only_quiet(self, line: str) -> None:
        """Print a line with `--quiet` only, in place of everything else."""
        if self.quiet and not self.as_json:
            typer.echo(visible(line))

    def warn(self, line: str) -> None:
        """Print a caveat on stderr, in every mode."""
        typer.secho("note: ", fg="yellow", nl=False, err=True)
        typer.echo(visible(line), err=True)

    def data(self, content: Any) -> None:
        """Print the JSON object of `--json`."""
        if self.as_json:
            typer.echo(json.dumps(to_json(content), allow_nan=False))


@contextmanager
def noting(output: Output) -> Iterator[None]:
    """Print warnings as notes, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(str(each.message) for each in caught):
        output.warn(message)


def table(*columns: str, title: str | None = None, left: int = 1) -> Table:
    """Make a table without lines between rows; all but the first `left` columns are right-aligned."""
    from rich import box
    from rich.table import Table

    class Visible(Table):
        """A table whose cells are text from outside."""

        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(*(visible(c, lines=False) if isinstance(c, str) else c for c in cells), **options)

    made = Visible(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for place, name in enumerate(columns):
        made.add_column(visible(name, lines=False), justify="left" if place < left else "right")
    return made


def to_json(value: Any) -> Any:
    """Convert to what JSON can hold; NaN and infinity, which it cannot, become null.

    >>> import numpy as np
    >>> to_json({"gap": np.float64("inf"), "p": np.array([0.5, 0.5])})
    {'gap': None, 'p': [0.5, 0.5]}
    """
    import numpy as np

    if isinstance(value, dict):
        return {str(key): to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def number(value: float | None, digits: int = 6) -> str:
    """Format a number for a table; a dash if there is none."""
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}g}"


def percent(value: float | None, digits: int = 1) -> str:
    """Format a share as a percentage; a dash if there is none."""
    if value is None or math.isnan(value):
        return "–"
    return f"{round(100 * value, digits) + 0.0:.{digits}f} %"  # + 0.0: no "-0.0 %" for a weight of -1e-20


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def for_people(value: float | None, digits: int = 4, *, smallest: float = 0.0) -> str:
    """Format a number for reading, not for copying: `digits` significant digits, no "e-07".

    A number of at most `smallest` in size is rounding noise.

    >>> for_people(12345.678), for_people(0.35), for_people(3.21e-7), for_people(-4.8e-20, smallest=1e-15)
    ('12,346', '0.35', '3.21 × 10⁻⁷', '≈ 0')
    """
    if value is None or math.isnan(value):
        return "–"
    if value == 0 or math.isinf(value):
        return "0" if value == 0 else "∞" if value > 0 else "-∞"
    if abs(value) <= smallest:
        return "≈ 0"
    if not 1e-3 <= abs(value) < 1e9:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{_trimmed(mantissa)} × 10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return _trimmed(f"{value:,.{decimals}f}")


def _trimmed(text: str) -> str:
    """Without zeros at the end of the decimals."""
    return text.rstrip("0").rstrip(".") if "." in text else text
