"""The one reader of numbers and tables: on the command line, in CSV, JSON, npy and npz files."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import InvalidData
from fdro_core.files import MAGIC, array_of, arrays_of
from uncertainty_sets.arrays import Array
from uncertainty_sets.registry import instead, nearest

SEPARATORS = ",;\t "
LOSS_COLUMNS = ("loss", "losses")
_COMMA = re.compile(r"^([-+]?\d+),(\d+)$")
_POINT = re.compile(r"[-+]?\d*\.\d+$")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?$")


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
        self._written: list[list[str]] = []  # the rows before decimal commas became points
        try:
            for row in reader:
                cells = [cell.strip() for cell in row]
                if separator == " ":
                    cells = [cell for cell in cells if cell]
                written = cells
                if separator == ";":  # as spreadsheets write where the comma is the decimal point
                    cells = [_COMMA.sub(r"\1.\2", cell) for cell in cells]
                if any(cells):
                    self.rows.append(cells)
                    self._written.append(written)
                    self.lines.append(reader.line_num)
        except csv.Error as error:
            raise InvalidData(f"{origin}, line {reader.line_num}: {error}") from error
        if not self.rows:
            raise InvalidData(f"{origin} is empty: a table with at least one row of numbers is needed")
        self.header: list[str] | None = None
        if _is_header(self.rows):
            self.header, self.rows, self.lines = self.rows[0], self.rows[1:], self.lines[1:]
            del self._written[0]
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

        self._has_commas = separator == ";" and any(
            _COMMA.match(cell) for row in self._written for cell in row
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

    def numbers(self, column: str, hint: str = "") -> Array:
        """A column of numbers; the error names the first cell that is not one, and ends with the hint."""
        cells = self.text(column)
        if unclear := self.unclear(column):
            raise InvalidData(unclear)
        try:
            return np.array(cells, dtype=np.float64)
        except ValueError:
            bad = next(place for place, cell in enumerate(cells) if not is_number(cell))
            shown = f"{cells[bad]!r} is not a number" if cells[bad] else "the cell is empty"
            raise InvalidData(f"{self.cell(bad, column)}: {shown}{hint}") from None

    def unclear(self, column: str) -> str:
        """What is wrong with the first number whose point may stand between thousands; "" if none may.

        Only where commas are decimal: `1.200` is 1200 to who wrote `1,5` in another cell.

        >>> Table("worker;loss\\nA;0,5\\nB;1.200\\n", "losses.csv").unclear("loss")
        "losses.csv, line 3, column 'loss': '1.200' could be 1200 or 1.2: remove points between thousands \
(1200), or write 1,2"
        """
        if not self._has_commas:
            return ""
        place = self.place(column)
        cells = [row[place] for row in self._written]
        mixed = any(map(_COMMA.match, cells))
        for row, cell in enumerate(cells):
            whole = cell.replace(".", "")
            if _THOUSANDS.match(cell):
                what = f"has points between thousands: write {whole}"
                if "," not in cell and cell.count(".") == 1:
                    comma = f"{float(cell):g}".replace(".", ",")
                    what = (
                        f"could be {whole} or {float(cell):g}: remove points between thousands ({whole}), or "
                        f"write {comma}"
                    )
            elif mixed and _POINT.match(cell):
                comma = cell.replace(".", ",")
                what = f"has a decimal point, and other cells of the column a comma: write {comma}"
            else:
                continue
            return f"{self.cell(row, column)}: {cell!r} {what}"
        return ""

    def first_gap(self, column: str, is_gap: Callable[[str], bool]) -> InvalidData | None:
        """The error for the first cell of a column that stands for a missing value; None if there is none."""
        for row, cell in enumerate(self.text(column)):
            if is_gap(cell):
                shown = f"{cell!r} is no value" if cell else "the cell is empty"
                return InvalidData(
                    f'{self.cell(row, column)}: {shown}; fill it, or leave the row out: missing = "drop"'
                )
        return None

    def finite(self, column: str, hint: str = "") -> Array:
        """A column of finite numbers; the error is as in `numbers`."""
        found = self.numbers(column, hint)
        if not np.isfinite(found).all():
            place = self.cell(int(np.argmin(np.isfinite(found))), column)
            raise InvalidData(f"{place}: NaN or infinity; drop or fill that row")
        return found

    def labels(self, column: str, rows: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """A column, or those rows of it, as numbers if all are numbers, else as text."""
        cells = self.text(column)
        if rows is not None:
            cells = [cell for cell, wanted in zip(cells, rows, strict=True) if wanted]
        return np.array(cells, dtype=np.float64 if all(map(is_number, cells)) else None)

    def matrix(self) -> Array:
        """All columns as numbers, (rows, columns)."""
        return np.column_stack([self.numbers(name) for name in self.names()])

    def cell(self, row: int, column: str) -> str:
        """Where a cell is, for messages."""
        return f"{self.origin}, line {self.lines[row]}, column {column!r}"


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
            f"{path} is not a text file (UTF-8): {error.reason} at byte {error.start}. Save it as UTF-8, in "
            "a spreadsheet as CSV UTF-8"
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


@dataclass(frozen=True)
class Losses:
    """Losses, (N,) or a batch (B, N), and the entries' names if the source has them."""

    values: Array
    names: list[str] | None = None


def read_losses(source: str, column: str | None = None, stdin: Callable[[], bytes] | None = None) -> Losses:
    """Read losses from a file, from "-" (standard input), or written out as in "0.9,1.4,2".

    - npy: a vector, or a matrix whose rows are a batch.
    - JSON: a list, a list of lists, {"losses": […]}, or {"name": loss, …}.
    - CSV: one row or one column of numbers; with a header, the column `loss` (or the one asked for), the
      entries named by the first column of words; otherwise every row is one of a batch.

    >>> read_losses("0.9,1.4,2").values
    array([0.9, 1.4, 2. ])
    """
    if source == "-":
        content, origin = (stdin or _stdin)(), "standard input"
        if not content.strip():
            raise InvalidData("standard input is empty: send losses, as in `echo 0.9,1.4,2 | fdro oracle …`")
    else:
        if not source.strip():
            raise InvalidData("--losses is empty: give a file, - for standard input, or numbers")
        path = Path(source)
        if not os.path.exists(path):
            written = _written_out(source, "--losses")
            if written is not None:
                return Losses(_numbers(written, "--losses"))
            if "," in source:
                raise InvalidData(f"--losses must be numbers, a file or - for standard input, got {source!r}")
        content, origin = _bytes(path), str(path)
    if content.startswith(MAGIC):
        return Losses(_npy(content, origin))
    text = _decode(content, origin)
    if text.lstrip().startswith(("[", "{")):
        return _from_json(text, origin, column)
    return _from_table(Table(text, origin), column)


def read_table(source: str, stdin: Callable[[], bytes] | None = None) -> Table:
    """Read a table of CSV or of JSON lines, an object for each row, from a file or "-" (standard input)."""
    content = (stdin or _stdin)() if source == "-" else _bytes(Path(source))
    origin = "standard input" if source == "-" else source
    text = _decode(content, origin)
    return _from_json_lines(text, origin) if text.lstrip().startswith("{") else Table(text, origin)


def _from_json_lines(text: str, origin: str) -> Table:
    found = [(k, line) for k, line in enumerate(text.splitlines(), start=1) if line.strip()]
    rows = [(k, read_json(line, origin, k)) for k, line in found]
    wrong = next((k for k, row in rows if not isinstance(row, dict)), None)
    if wrong is not None:
        raise InvalidData(f'{origin}, line {wrong}: each line must be one JSON object, as in {{"loss": 0.5}}')
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    written = io.StringIO()
    writer = csv.DictWriter(written, names, lineterminator="\n")
    writer.writeheader()
    for _, row in rows:  # true and false as CSV has them; null is an empty cell
        writer.writerow({name: int(each) if isinstance(each, bool) else each for name, each in row.items()})
    table = Table(written.getvalue(), origin)
    if len(table.rows) == len(rows):  # a row of nulls only is left out
        table.lines = [k for k, _ in rows]
    return table


def read_value(text: str, folder: Path | None = None, origin: str = "the value") -> Any:
    """Read a parameter's value: "@file", a number, "0.5,0.3,0.2", rows "1,0;0,1", JSON, or a word.

    >>> read_value("0.1"), read_value("0.5,0.5"), read_value("uniform")
    (0.1, [0.5, 0.5], 'uniform')
    >>> read_value("1,0;0,1")
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if text.startswith("@"):
        return read_array((folder or Path()) / text[1:])
    found = _written_out(text, origin)
    return text if found is None else found


def read_array(path: Path) -> Array:
    """Read an array from npy, JSON or CSV; a single row or column is a vector."""
    content = _bytes(path)
    if content.startswith(MAGIC):
        return _npy(content, str(path))
    text = _decode(content, str(path))
    if text.lstrip().startswith("["):
        return _numbers(read_json(text, str(path)), str(path))
    return _squeeze(Table(text, str(path)).matrix())


def _written_out(text: str, origin: str) -> Any:
    """The numbers in "0.1", "0.5,0.5", "1,0;0,1" or JSON; None if no entry is a number.

    If some entries are numbers, one that is not is an error.
    """
    if text.lstrip().startswith("["):
        return _without_flags(read_json(text, origin), origin)
    rows = [row.split(",") for row in text.split(";")]
    cells = [cell.strip() for row in rows for cell in row]
    wrong = [place for place, cell in enumerate(cells) if not is_number(cell)]
    if len(wrong) == len(cells):
        return None
    if wrong:
        first = cells[wrong[0]]
        found = f"{first!r}, not a number" if first else "empty"
        raise InvalidData(f"{origin}: entry {wrong[0] + 1} of {len(cells)} is {found}")
    numbers = [[float(cell) for cell in row] for row in rows]
    if len(numbers) > 1:
        return numbers
    return numbers[0] if "," in text else numbers[0][0]


def _from_json(text: str, origin: str, column: str | None) -> Losses:
    content = read_json(text, origin)
    if isinstance(content, dict):
        key = next((name for name in (column, *LOSS_COLUMNS) if name in content), None)
        if key is not None:
            return Losses(_numbers(content[key], f"{origin}, {key!r}"))
        values = _numbers(list(content.values()), origin)
        if values.ndim != 1:
            raise InvalidData(f'{origin}: an object needs "losses": […], or a number for each name')
        return Losses(values, [str(name) for name in content])
    return Losses(_numbers(content, origin))


def _from_table(table: Table, column: str | None) -> Losses:
    wanted = column or next((name for name in LOSS_COLUMNS if name in (table.header or [])), None)
    if wanted is not None:
        labels = next((name for name in table.names() if name != wanted and not table.is_numeric(name)), None)
        if labels is None and table.header and table.header[0] != wanted and table.width == 2:
            labels = table.header[0]  # worker,loss with the workers numbered
        return Losses(table.numbers(wanted), None if labels is None else table.text(labels))
    values = table.matrix()
    names = table.header if table.header and values.shape[1] > 1 else None
    return Losses(_squeeze(values), names)


def _squeeze(matrix: Array) -> Array:
    return matrix.ravel() if 1 in matrix.shape else matrix


def _numbers(content: Any, origin: str) -> Array:
    try:
        array = np.array(_without_flags(content, origin), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidData(
            f"{origin}: a list of numbers, or of lists of one length, is needed: {error}"
        ) from error
    if array.size == 0:
        raise InvalidData(f"{origin} has no numbers in it")
    return np.atleast_1d(array)


def _without_flags(content: Any, origin: str) -> Any:
    if isinstance(content, list) and _has_flags(content):
        raise InvalidData(f"{origin} has true or false among its numbers: write 1 and 0 if that is meant")
    return content


def _has_flags(content: list[Any]) -> bool:
    return any(isinstance(each, bool) or (isinstance(each, list) and _has_flags(each)) for each in content)


def read_json(text: str, origin: str, line: int | None = None) -> Any:
    """What a JSON text holds.

    Args:
        text: the whole of it, or one line of a file of such lines.
        origin: the file, for messages.
        line: the number of that line; the error names it.
    """
    place = origin if line is None else f"{origin}, line {line}"
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{place}, line {error.lineno}" if line is None else place
        raise InvalidData(f"{where}: this is not JSON: {error.msg}") from None
    except RecursionError:
        raise InvalidData(f"{place} is nested too deeply") from None
    except ValueError as error:  # a whole number of more digits than Python reads
        raise InvalidData(f"{place} has a number that is too long: {error!s:.80}") from None


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file by their names."""
    _check_file(path)
    try:
        with path.open("rb") as file:
            return arrays_of(file)
    except (ValueError, OSError) as error:
        raise InvalidData(f"{path} is not an npz file of plain arrays: {error}") from error


def _npy(content: bytes, origin: str) -> Array:
    try:
        array = array_of(content, origin)
    except ValueError as error:
        raise InvalidData(
            f"{origin} is a damaged npy file, or has no plain numbers in it: {error}"
        ) from error
    if array.dtype.kind not in "iuf":
        raise InvalidData(f"{origin} holds {array.dtype}, and real numbers are needed")
    return _numbers(array, origin)


def _bytes(path: Path) -> bytes:
    _check_file(path)
    return path.read_bytes()


def _check_file(path: Path) -> None:
    if not os.path.isfile(path):
        read_text(path)  # raises the error that says what is wrong: no such file, a folder


def _decode(content: bytes, origin: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidData(f"{origin} is neither npy nor text: give CSV, JSON or npy") from None


def _stdin() -> bytes:
    import sys

    return sys.stdin.buffer.read()
