"""The columns of a table as features: gaps, categories and dates, and what is learnt from training samples.

A column is numbers, or categories if the run file says so. What a model needs beside them (means to fill gaps
with, the categories that occur, mean and scale) is learnt from the training samples of all workers, and then
applied to all samples: a held-out sample of a category that no training sample has is 0 in all its columns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.cli.reading import Table, is_number
from fdro_core.errors import InvalidData
from fdro_core.problems.samples import mean_and_scale
from uncertainty_sets.arrays import Array
from uncertainty_sets.registry import join_names

GAPS = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-"})
"""What people write for a value that is missing, in small letters."""

MOST_CATEGORIES = 100
REFUSE, DROP, MEAN = "refuse", "drop", "mean"
NO_CATEGORY = "(missing)"

_DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}.*)?$")
_COMMA = re.compile(r"[-+]?\d+,\d+$")


@dataclass(frozen=True)
class Column:
    """A column as it was read.

    Attributes:
        name: in the table.
        gaps: how many cells are missing.
        categories: the different words, sorted; None if it is numbers.
        counts_rows: whether it is numbers that look like the rows' own, such as 0, 1, 2, …
    """

    name: str
    gaps: int = 0
    categories: list[str] | None = None
    counts_rows: bool = False


@dataclass(frozen=True)
class Features:
    """Samples' features before anything was learnt: numbers, or the places of categories; NaN in gaps."""

    matrix: Array
    columns: list[Column]

    def complete(self) -> NDArray[np.bool_]:
        """Which rows have no gap."""
        return np.asarray(np.isfinite(self.matrix).all(axis=1))


@dataclass(frozen=True)
class Preparation:
    """What was learnt from training samples, and turns features into the model's inputs.

    Attributes:
        columns: of the table.
        fill: for every column the number that a gap gets; NaN if it has none.
        seen: for every column of categories the places of those that training samples have.
        mean, scale: of the inputs; 0 and 1 for categories, and where features are not standardised.
        standardised: whether mean and scale were learnt.
        dropped: how many rows were left out for a gap, by worker.
    """

    columns: list[Column]
    fill: Array
    seen: dict[int, list[int]]
    mean: Array
    scale: Array
    standardised: bool
    dropped: dict[str, int] = field(default_factory=dict)

    @classmethod
    def learn(
        cls,
        columns: list[Column],
        training: Sequence[Array],
        to_fill: Collection[int],
        standardise: bool,
        dropped: dict[str, int],
    ) -> Preparation:
        """Learn from the training samples of all workers; `to_fill` are the columns with gaps."""
        together = np.concatenate(training)
        fill, seen = np.full(len(columns), np.nan), {}
        for place, column in enumerate(columns):
            known = together[np.isfinite(together[:, place]), place]
            if column.categories is not None:
                seen[place] = sorted({int(each) for each in known})
            elif place in to_fill:
                if not len(known):
                    raise InvalidData(
                        f"column {column.name!r} has no number in any training sample: leave it out"
                    )
                fill[place] = known.mean()
        plain = cls(columns, fill, seen, np.zeros(0), np.ones(0), standardise, dropped)
        inputs = plain.inputs(together)
        mean, scale = np.zeros(inputs.shape[1]), np.ones(inputs.shape[1])
        if standardise:
            mean, scale = mean_and_scale([inputs])
            words = plain.is_category()
            mean[words], scale[words] = 0.0, 1.0
        return cls(columns, fill, seen, mean, scale, standardise, dropped)

    def apply(self, matrix: Array) -> Array:
        """The model's inputs, standardised."""
        return (self.inputs(matrix) - self.mean) / self.scale

    def inputs(self, matrix: Array) -> Array:
        """Gaps filled, and a column of 0 and 1 for every category."""
        parts = []
        for place, values in enumerate(matrix.T):
            if place in self.seen:
                parts.append((values[:, None] == np.array(self.seen[place])).astype(np.float64))
            else:
                parts.append(np.where(np.isnan(values), self.fill[place], values)[:, None])
        return np.concatenate(parts, axis=1)

    def is_category(self) -> NDArray[np.bool_]:
        """Which inputs stand for a category."""
        return np.repeat(
            [place in self.seen for place in range(len(self.columns))],
            [len(self.seen.get(place, [0])) for place in range(len(self.columns))],
        )

    def names(self) -> list[str]:
        """The inputs' names, such as "age" and "ward=north"."""
        found = []
        for place, column in enumerate(self.columns):
            if column.categories is None:
                found.append(column.name)
            else:
                found += [f"{column.name}={column.categories[each]}" for each in self.seen[place]]
        return found

    def has_names(self) -> bool:
        """Whether the columns are those of a table."""
        return any(column.name for column in self.columns)

    def model(self) -> dict[str, NDArray[Any]]:
        """The arrays that are needed to use the model."""
        arrays: dict[str, NDArray[Any]] = {"mean": self.mean, "scale": self.scale}
        if self.has_names():
            arrays["inputs"] = np.array(self.names())
        if np.isfinite(self.fill).any():
            arrays["fill"] = np.repeat(
                self.fill, [len(self.seen.get(place, [0])) for place in range(len(self.columns))]
            )
        return arrays

    def leaves(self) -> str:
        """What each site would have to tell the master so that this could be learnt, in words."""
        filled = np.isfinite(self.fill).any()
        numbers = sum(column.categories is None for column in self.columns)
        told = []
        if numbers and (self.standardised or filled):
            sums = "sum and sum of squares" if self.standardised else "sum"
            told.append(f"number of values, {sums} of {numbers} column{'s' * (numbers > 1)}")
        words = [column.name for column in self.columns if column.categories is not None]
        if words:
            told.append(f"which categories occur in {join_names(words)}")
        return "; ".join(told) or "nothing"


def read_features(
    table: Table, chosen: list[str], categorical: list[str], missing: str
) -> tuple[Features, list[InvalidData]]:
    """The chosen columns of a table, and the first mistake of each that cannot be used."""
    read, columns, mistakes = [], [], []
    words = [name for name in chosen if name not in categorical and _is_words(table, name)]
    for name in chosen:
        if name in categorical:
            values, column, mistake = _categories(table, name, missing)
        else:
            values, column, mistake = _numbers(table, name, missing, words)
        read.append(values)
        columns.append(column)
        if mistake:
            mistakes.append(InvalidData(mistake))
    return Features(np.column_stack(read), columns), mistakes


def is_gap(cell: str) -> bool:
    """Whether a cell stands for a value that is missing.

    >>> is_gap(""), is_gap("N/A"), is_gap("0")
    (True, True, False)
    """
    return cell.lower() in GAPS


def _is_words(table: Table, name: str) -> bool:
    """Whether the first cell that is no gap is a word, and not a date."""
    first = next((cell for cell in table.text(name) if not is_gap(cell)), "0")
    return not is_number(first) and not _DATE.match(first) and not _COMMA.match(first)


def _numbers(table: Table, name: str, missing: str, words: list[str]) -> tuple[Array, Column, str]:
    cells = table.text(name)
    if unclear := table.unclear(name):
        return np.zeros(len(cells)), Column(name), unclear
    try:
        values = np.array(cells, dtype=np.float64)
    except ValueError:
        bad = next((row for row, cell in enumerate(cells) if not is_number(cell) and not is_gap(cell)), None)
        if bad is not None:
            hint = _hint(cells[bad], name, words)
            return (
                np.zeros(len(cells)),
                Column(name),
                f"{table.cell(bad, name)}: {cells[bad]!r} is {hint}",
            )
        values = np.array(["nan" if is_gap(cell) else cell for cell in cells], dtype=np.float64)
    gaps = int(np.isnan(values).sum())
    column = Column(name, gaps, counts_rows=len(cells) > 2 and bool((np.diff(values) == 1).all()))
    if np.isinf(values).any():
        place = table.cell(int(np.argmax(np.isinf(values))), name)
        return values, column, f"{place}: infinity is not a number to learn from; correct or drop that row"
    if gaps and missing == REFUSE:
        return values, column, _gap(table, name, int(np.argmax(np.isnan(values))), gaps)
    return values, column, ""


def _categories(table: Table, name: str, missing: str) -> tuple[Array, Column, str]:
    cells = table.text(name)
    gap = np.array([is_gap(cell) for cell in cells])
    found, places = np.unique(
        [NO_CATEGORY if empty else cell for cell, empty in zip(cells, gap, strict=True)], return_inverse=True
    )
    values = places.astype(np.float64)
    column = Column(name, int(gap.sum()), [str(each) for each in found])
    if gap.any() and missing == REFUSE:
        return values, column, _gap(table, name, int(np.argmax(gap)), int(gap.sum()))
    if missing == DROP:
        values[gap] = np.nan
    if len(found) > MOST_CATEGORIES:
        date = "; they look like dates" if _DATE.match(str(found[-1])) else ""
        return values, column, (
            f"{table.origin}, column {name!r} has {len(found)} different words, and at most "
            f"{MOST_CATEGORIES} can be categories{date}: leave it out of `features`, or join rare ones"
        )  # fmt: skip
    return values, column, ""


def _gap(table: Table, name: str, row: int, gaps: int) -> str:
    cell = table.text(name)[row]
    what = f"{cell!r} is no number" if cell else "the cell is empty"
    more = f" ({gaps} in this column)" if gaps > 1 else ""
    return (
        f'{table.cell(row, name)}: {what}{more}. In [data], missing = "mean" fills gaps with the mean of the '
        'training samples, missing = "drop" leaves their rows out'
    )


def _hint(cell: str, name: str, words: list[str]) -> str:
    """What a cell that is no number is, and what to do."""
    if _DATE.match(cell):
        return (
            "a date. Put numbers in its place, such as days since a day that matters, month or weekday; or "
            "list the columns to use in `features`"
        )
    if _COMMA.match(cell):
        return f"not a number: write {cell.replace(',', '.')}, with a point"
    if name in words:
        listed = ", ".join(f'"{each}"' for each in words)
        return f"not a number. For words, write categorical = [{listed}] in [data], or leave the column out"
    return "not a number. Correct it; or an empty cell, with `missing`, stands for what is not known"
