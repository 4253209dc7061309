"""The tables of `summary()`: groups, and models that were compared on held-out folds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

Rows = Sequence[Mapping[str, Any]]


class GroupTable(Sequence[Mapping[str, Any]]):
    """One row per group, the worst first; prints as text, and as a table in a notebook.

    A row is a mapping from column to value: ``table[0]["group"]``. `pandas.DataFrame(table)` takes it.

    Attributes:
        title: what the model is.
        models: rows about models that were compared on held-out folds; none without "cv".
        remarks: sentences about that comparison.
    """

    def __init__(
        self, title: str, rows: Rows, models: Rows = (), remarks: Sequence[str] = (), shown: int = 20
    ) -> None:
        self.title, self._rows, self._shown = title, list(rows), shown
        self.models, self.remarks = list(models), list(remarks)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._rows)

    def __getitem__(self, place: Any) -> Any:
        return self._rows[place]

    def _left_out(self) -> str:
        more = len(self._rows) - self._shown
        return f"{more} more groups" if more > 0 else ""

    def __str__(self) -> str:
        lines = [self.title, *_lines(self._rows[: self._shown]), self._left_out()]
        if self.models:
            lines += ["on held-out folds", *_lines(self.models)]
        return "\n".join(filter(None, [*lines, *self.remarks]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [f"<p>{escape(self.title)}</p>", _html(self._rows[: self._shown]), self._left_out()]
        if self.models:
            parts += ["<p>on held-out folds</p>", _html(self.models)]
        return "".join([*parts, *(f"<p>{escape(remark)}</p>" for remark in self.remarks)])


def _cells(rows: Rows) -> list[list[str]]:
    head = list(rows[0])
    return [head, *([_text(row[name]) for name in head] for row in rows)]


def _lines(rows: Rows) -> list[str]:
    cells = _cells(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _html(rows: Rows) -> str:
    head, *body = _cells(rows)
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>"


def _text(value: Any) -> str:
    if isinstance(value, tuple) and all(isinstance(each, float) for each in value):
        return " to ".join(f"{each:.3f}" for each in value)
    if isinstance(value, tuple):  # a group of several columns
        return ", ".join(map(str, value))
    return f"{value:.3f}" if isinstance(value, float) else str(value)
