"""Read numbers from the command line and from files: npy, JSON, CSV, or written out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fdro_core.cli.reading.tables import Table, is_number, read_text
from fdro_core.errors import InvalidData
from fdro_core.files import MAGIC, array_of
from uncertainty_sets.arrays import Array

LOSS_COLUMNS = ("loss", "losses")


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
        return _numbers(_parse(text, str(path)), str(path))
    return _squeeze(_matrix(Table(text, str(path))))


def _written_out(text: str, origin: str) -> Any:
    """The numbers in "0.1", "0.5,0.5", "1,0;0,1" or JSON; None if no entry is a number.

    If some entries are numbers, one that is not is an error.
    """
    if text.lstrip().startswith("["):
        return _without_flags(_parse(text, origin), origin)
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
    content = _parse(text, origin)
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
    values = _matrix(table)
    names = table.header if table.header and values.shape[1] > 1 else None
    return Losses(_squeeze(values), names)


def _matrix(table: Table) -> Array:
    return np.column_stack([table.numbers(name) for name in table.names()])


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


def _parse(text: str, origin: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidData(f"{origin}, line {error.lineno}: this is not JSON: {error.msg}") from error
    except RecursionError:
        raise InvalidData(f"{origin} is nested too deeply") from None
    except ValueError as error:  # a whole number of more digits than Python reads
        raise InvalidData(f"{origin} has a number that is too long: {error!s:.80}") from None


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
    if not os.path.isfile(path):
        read_text(path)  # raises the error that says what is wrong: no such file, a folder
    return path.read_bytes()


def _decode(content: bytes, origin: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidData(f"{origin} is neither npy nor text: give CSV, JSON or npy") from None


def _stdin() -> bytes:
    import sys

    return sys.stdin.buffer.read()
