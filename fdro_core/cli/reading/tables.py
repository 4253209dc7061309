"""Tables of text: CSV files with or without a header, with any common separator."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fdro_core.errors import InvalidData
from uncertainty_sets.arrays import Array
from uncertainty_sets.names import instead, nearest

SEPARATORS = ",;\t "


class Table:
    """Rows of cells, with the line of each row.

    >>> table = Table("worker,loss\\nA,0.5\\nB,0.7\\n", "losses.csv")
    >>> table.header, table.numbers("loss")
    (['worker', 'loss'], array([0.5, 0.7]))
    >>> Table("worker,loss\\nA,0.5\\nB,high\\n", "losses.csv").numbers("loss")
    Traceback (most recent call last):
    fdro_core.errors.InvalidData: losses.csv, line 3, column 'loss': 'high' is not a number
    """

    def __init__(self, text: str, origin: str) -> None:
        self.origin = origin
        text = text.removeprefix("\ufeff")  # the byte-order mark that spreadsheets write
        separator = _separator(text)
        reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
        self.rows: list[list[str]] = []
        self.lines: list[int] = []
        try:
            for row in reader:
                cells = [cell.strip() for cell in row]
                if separator == " ":
                    cells = [cell for cell in cells if cell]
                if any(cells):
                    self.rows.append(cells)
                    self.lines.append(reader.line_num)
        except csv.Error as error:
            raise InvalidData(f"{origin}, line {reader.line_num}: {error}") from error
        if not self.rows:
            raise InvalidData(f"{origin} is empty: a table with at least one row of numbers is needed")
        self.header: list[str] | None = None
        if _is_header(self.rows):
            self.header, self.rows, self.lines = self.rows[0], self.rows[1:], self.lines[1:]
            if not self.rows:
                raise InvalidData(f"{origin} has a header and no rows below it")
            twice = next((name for name in self.header if self.header.count(name) > 1), None)
            if twice is not None:
                raise InvalidData(f"{origin} has two columns {twice!r}: give each a name of its own")
        self.width = len(self.header or self.rows[0])
        for row, line in zip(self.rows, self.lines, strict=True):
            if len(row) != self.width:
                raise InvalidData(
                    f"{origin}, line {line} has {len(row)} cells, and the first line has {self.width}"
                )

    def names(self) -> list[str]:
        """The columns' names; their numbers from 0 if there is no header."""
        return self.header or [str(place) for place in range(self.width)]

    def place(self, column: str) -> int:
        """The index of a column."""
        names = self.names()
        if column not in names:
            raise InvalidData(f"{self.origin} has no column {column!r}{instead(column, names, 'It has')}")
        return names.index(column)

    def text(self, column: str) -> list[str]:
        """A column as it is written."""
        place = self.place(column)
        return [row[place] for row in self.rows]

    def is_numeric(self, column: str) -> bool:
        """Whether every cell of a column is a number."""
        return all(map(is_number, self.text(column)))

    def numbers(self, column: str) -> Array:
        """A column of numbers; the error names the first cell that is not a number."""
        cells = self.text(column)
        try:
            return np.array(cells, dtype=np.float64)
        except ValueError:
            bad = next(place for place, cell in enumerate(cells) if not is_number(cell))
            shown = f"{cells[bad]!r} is not a number" if cells[bad] else "the cell is empty"
            raise InvalidData(f"{self.origin}, line {self.lines[bad]}, column {column!r}: {shown}") from None


def read_text(path: Path) -> str:
    """Read a text file; the error says why it cannot be read."""
    with explained(path):
        return path.read_text(encoding="utf-8")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Read a file inside; the error says why it cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise InvalidData(f"there is no file {path}{_neighbour(path)}") from None
    except IsADirectoryError:
        raise InvalidData(f"{path} is a folder, and a file is needed") from None
    except OSError as error:  # no permission, a name that is too long
        raise InvalidData(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidData(
            f"{path} is not a text file (UTF-8): {error.reason} at byte {error.start}"
        ) from None


def _neighbour(path: Path) -> str:
    """Suggest a file of a similar name in the folder."""
    if not os.path.isdir(path.parent):
        return f"; there is no folder {path.parent} either"
    files = [other for other in path.parent.iterdir() if other.is_file()]
    return nearest(path.name, [other.name for other in files if path.suffix in {"", other.suffix}])


def _separator(text: str) -> str:
    """The separator in the first line that has one; a comma if none has."""
    for line in text.splitlines():
        for separator in SEPARATORS:
            if separator in line.strip():
                return separator
    return ","


def _is_header(rows: list[list[str]]) -> bool:
    """Whether the first row has names: no number at all, or a word on top of a number."""
    first = rows[0]
    if not any(map(is_number, first)):
        return True
    return len(rows) > 1 and any(
        not is_number(above) and is_number(below) for above, below in zip(first, rows[1], strict=False)
    )


def is_number(cell: str) -> bool:
    """Whether a cell is a number, NaN and infinity included."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
