"""Tables for the terminal and for Markdown, and pages whose tables a command writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table as RichTable


@dataclass(frozen=True)
class Table:
    """A title, headings and rows of text."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table as Markdown under its title in bold."""
        return f"**{self.title}**\n\n{grid(self.headings, self.rows)}\n"

    def rich(self) -> RichTable:
        """Return the table for the terminal."""
        made = RichTable(title=self.title, title_justify="left")
        for place, heading in enumerate(self.headings):
            made.add_column(heading, justify="left" if place == 0 else "right")
        for row in self.rows:
            made.add_row(*row)
        return made


def console() -> Console:
    """Return the console that commands print to: as wide as the terminal, 140 columns if there is none."""
    return Console(width=None if os.isatty(1) else 140)


def grid(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Return headings and rows as a table of Markdown.

    >>> print(grid(["a", "b"], [["1", "x|y"]]))
    | a | b |
    |---|---|
    | 1 | x\|y |
    """
    return "\n".join([_line(headings), "|" + "---|" * len(headings), *(_line(row) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").strip() for cell in cells) + " |"


def replaced(text: str, begin: str, end: str, content: str) -> str:
    r"""Return a page with other content between two marks, each on a line of its own.

    >>> replaced("<a>old<b>", "<a>", "<b>", "new")
    '<a>\nnew\n<b>'
    """
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"the page has no lines {begin} and {end} to write between")
    return f"{before}{begin}\n{content}\n{end}{after}"
