"""The table that a fitted estimator shows of its groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any


class GroupTable(Sequence[Mapping[str, Any]]):
    """One row per group, the worst first; prints as text, and as a table in a notebook.

    A row is a mapping from column to value: ``table[0]["group"]``. `pandas.DataFrame(table)` takes it.
    """

    def __init__(self, title: str, rows: Sequence[Mapping[str, Any]], shown: int = 20) -> None:
        self.title, self._rows, self._shown = title, list(rows), shown

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._rows)

    def __getitem__(self, place: Any) -> Any:
        return self._rows[place]

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        head = list(self._rows[0])
        return head, [[_text(row[name]) for name in head] for row in self._rows[: self._shown]]

    def _left_out(self) -> str:
        more = len(self._rows) - self._shown
        return f"{more} more groups" if more > 0 else ""

    def __str__(self) -> str:
        head, cells = self._cells()
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in [head, *cells]
        ]
        return "\n".join(filter(None, [self.title, *lines, self._left_out()]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, cells = self._cells()
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
        )
        names = "".join(f"<th>{escape(name)}</th>" for name in head)
        return (
            f"<p>{escape(self.title)}</p><table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>"
            f"{self._left_out()}"
        )


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " to ".join(f"{each:.3f}" for each in value)
    return f"{value:.3f}" if isinstance(value, float) else str(value)
