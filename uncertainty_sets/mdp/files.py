"""Read and write problems as CSV, and write policies and values.

A problem has a line per state, action and next state, with the columns idstatefrom, idaction, idstateto,
probability and reward::

    idstatefrom, idaction, idstateto, probability, reward
    0, 0, 0, 0.9, 1.0
    0, 0, 1, 0.1, 0.0
    1, 0, 1, 1.0, 0.0
"""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.mdp.model import MDP
from uncertainty_sets.parameters import SUM_TOLERANCE, as_floats

IDS = ("idstatefrom", "idaction", "idstateto")
COLUMNS = (*IDS, "probability", "reward")
OUTCOME = "idoutcome"
"""The column of problems with several possible transitions for each action, which are not read."""

LARGEST_ID = 2**53
"""Ids are read as floats, which hold all whole numbers below this one."""

LINES_AT_ONCE = 100_000


def read_csv(path: str | Path, discount: float) -> MDP:
    """Read a problem from a CSV file in UTF-8.

    The header has the columns `COLUMNS` in any order; others are ignored. States are numbered from 0 and each
    needs a line; actions have any numbers that are not negative. Lines with the same state, action and next
    state are added up. Lines with probability 0 count as successors, to which some sets can move mass. Five
    million lines take some seconds.

    >>> import pathlib, tempfile
    >>> lines = [
    ...     "idstatefrom,idaction,idstateto,probability,reward",
    ...     "0,0,0,0.25,1",
    ...     "0,0,1,0.75,0",
    ...     "1,0,1,1,0",
    ... ]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "problem.csv")
    ...     _ = path.write_text("\\n".join(lines))
    ...     read_csv(path, discount=0.9)
    MDP(2 states, 2 state-actions, 3 successors, discount=0.9)

    Raises:
        InvalidParameter: with the line, if a column is missing or something is not a number; with the state,
            if the probabilities of an action do not sum to 1.
    """
    try:
        table = _read_table(path)
    except (UnicodeDecodeError, csv.Error) as error:
        raise _refuse(path, f"is not a text in UTF-8 ({error}); unpack compressed files first") from error
    state, action, following = (table[:, k].astype(np.int64) for k in range(3))
    try:
        return MDP.from_table(state, action, following, table[:, 3], table[:, 4], discount)
    except InvalidParameter as error:
        if error.parameter == "discount":
            raise
        raise InvalidParameter(f"{path}: {error}", parameter=error.parameter, value=error.value) from error


def write_csv(model: MDP, path: str | Path) -> None:
    """Write a problem to a CSV file, which `read_csv` reads back without any change.

    The file appears as a whole: if writing fails, a file that was there before is left as it is.
    """
    row = np.repeat(np.arange(model.rows), np.diff(model.indptr))
    state = model.repeat_by_state(np.arange(model.states))
    reward = model.row_rewards[row]
    if model.entry_rewards is not None:
        reward = reward + model.entry_rewards
    _write(path, COLUMNS, (state[row], model.actions[row], model.indices, model.probabilities, reward))


def write_policy(path: str | Path, model: MDP, policy: ArrayLike) -> None:
    """Write a policy to a CSV file with the columns idstatefrom, idaction and probability.

    Only actions with a positive probability have a line.

    Args:
        path: the file; it appears as a whole or not at all.
        model: the problem, whose rows the policy belongs to.
        policy: the probability of each state-action, (rows,), or (states, actions) if all states have equally
            many actions; those of a state sum to 1.
    """
    array = as_floats("policy", policy, InvalidParameter)
    table = (model.states, model.actions_each)
    if array.shape not in {(model.rows,), table}:
        raise InvalidParameter(
            f"policy must have a probability for each of the {model.rows} state-actions, ({model.rows},)"
            f"{f' or {table}' if model.actions_each else ''}; got shape {array.shape}",
            parameter="policy",
            value=policy,
        )
    array = array.ravel()
    total = np.add.reduceat(array, model.state_rows[:-1])
    bad = np.flatnonzero(
        ~((np.minimum.reduceat(array, model.state_rows[:-1]) >= 0.0) & (np.abs(total - 1.0) <= SUM_TOLERANCE))
    )
    if bad.size:
        each = array[model.state_rows[bad[0]] : model.state_rows[bad[0] + 1]]
        raise InvalidParameter(
            "the probabilities of a state's actions must not be negative and must sum to 1; got "
            f"{each} for state {bad[0]}",
            parameter="policy",
            value=policy,
        )
    state = model.repeat_by_state(np.arange(model.states))
    taken = array > 0.0
    _write(
        path, ("idstatefrom", "idaction", "probability"), (state[taken], model.actions[taken], array[taken])
    )


def write_values(path: str | Path, value: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> None:
    """Write the value of each state and its bounds to a CSV file: idstate, value, lower, upper.

    Args:
        path: the file; it appears as a whole or not at all.
        value: (states,).
        lower: (states,); at most the true value.
        upper: (states,); at least the true value.
    """
    given = {"value": value, "lower": lower, "upper": upper}
    columns = [as_floats(name, each, InvalidParameter) for name, each in given.items()]
    if len({each.shape for each in columns}) > 1 or columns[0].ndim != 1:
        shapes = ", ".join(f"{name} {each.shape}" for name, each in zip(given, columns, strict=True))
        raise InvalidParameter(
            f"value, lower and upper must be vectors with a number per state, got {shapes}"
        )
    _write(path, ("idstate", *given), (np.arange(columns[0].size), *columns))


class _Columns(NamedTuple):
    """Places of the columns in a line: those of `COLUMNS`, and that of the outcome if there is one."""

    needed: tuple[int, ...]
    outcome: int | None

    @property
    def read(self) -> tuple[int, ...]:
        return self.needed if self.outcome is None else (*self.needed, self.outcome)


def _refuse(path: str | Path, words: str) -> InvalidParameter:
    return InvalidParameter(f"{path} {words}", parameter="path", value=path)


def _open(path: str | Path) -> TextIO:
    return open(path, newline="", encoding="utf-8-sig")


def _read_table(path: str | Path) -> Array:
    """The numbers of the columns `COLUMNS`, all of which can be used."""
    columns = _find_columns(path)
    table = _load(path, columns)
    if not len(table):
        raise _refuse(path, "has a header and no line below it")
    if not _is_valid(table):
        raise _find_fault(path, columns)
    if columns.outcome is not None and np.ptp(table[:, -1]):
        raise _refuse(
            path,
            f"has several outcomes for an action (column {OUTCOME}); keep the lines of one outcome, or merge "
            "them into one transition, and drop the column",
        )
    return table


def _find_columns(path: str | Path) -> _Columns:
    """The places of the columns by the file's header."""
    with _open(path) as file:
        names = [name.strip().lower() for name in next(csv.reader(file), [])]
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise _refuse(
            path,
            f"has no column {', '.join(missing)}: line 1 must be a header with {', '.join(COLUMNS)}; it is "
            f"{','.join(names)[:200] or 'empty'}",
        )
    twice = [name for name in (*COLUMNS, OUTCOME) if names.count(name) > 1]
    if twice:
        raise _refuse(path, f"has the column {twice[0]} twice in its header")
    return _Columns(
        tuple(names.index(name) for name in COLUMNS), names.index(OUTCOME) if OUTCOME in names else None
    )


def _load(path: str | Path, columns: _Columns) -> Array:
    """The numbers of all lines below the header, (lines, columns)."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*input contained no data", category=UserWarning)
            return np.loadtxt(
                os.fspath(path),
                delimiter=",",
                quotechar='"',
                comments=None,
                skiprows=1,
                usecols=columns.read,
                encoding="utf-8-sig",
                ndmin=2,
            )
    except UnicodeDecodeError:  # is a ValueError too
        raise
    except ValueError as error:
        raise _find_fault(path, columns) from error


def _is_valid(table: Array) -> bool:
    """Whether all numbers are finite and all ids are whole numbers from 0."""
    ids = table[:, :3]
    return bool(
        np.isfinite(table).all()
        and (ids >= 0).all()
        and (ids < LARGEST_ID).all()
        and (ids % 1.0 == 0.0).all()
    )


def _find_fault(path: str | Path, columns: _Columns) -> InvalidParameter:
    """The error for the first line with a fault; only for files that cannot be used, since it is slow."""
    names = (*COLUMNS, OUTCOME)[: len(columns.read)]
    with _open(path) as file:
        lines = csv.reader(file)
        next(lines)
        for fields in lines:
            fault = _fault_of(fields, names, columns.read) if fields else None
            if fault:
                return _refuse(path, f"line {lines.line_num}: {fault}")
    return _refuse(path, "is not a table of numbers separated by commas")


def _fault_of(fields: list[str], names: Iterable[str], places: Iterable[int]) -> str | None:
    """What is wrong with a line; None if nothing is."""
    for name, place in zip(names, places, strict=True):
        if place >= len(fields):
            return f"{name} is missing: {','.join(fields)[:100]!r} has {len(fields)} fields"
        try:
            number = float(fields[place])
        except ValueError:
            return f"{name} must be a number, got {fields[place]!r}"
        if not np.isfinite(number):
            return f"{name} must be finite, got {fields[place]!r}"
        if name in IDS and not (0 <= number < LARGEST_ID and number % 1.0 == 0.0):
            return f"{name} must be a whole number from 0 to 2**53 - 1, got {fields[place]!r}"
    return None


def _write(path: str | Path, header: Iterable[str], columns: tuple[Any, ...]) -> None:
    """Write columns of numbers; floats with as many digits as it takes to read the same number."""
    with _replacing(Path(path)) as file:
        file.write(",".join(header) + "\n")
        for start in range(0, columns[0].size, LINES_AT_ONCE):
            texts = [map(repr, each[start : start + LINES_AT_ONCE].tolist()) for each in columns]
            file.writelines(",".join(line) + "\n" for line in zip(*texts, strict=True))


@contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    """Open a new file that takes the place of `path` if the block succeeds."""
    if path.exists() and not path.is_file():  # such as /dev/stdout, which must not be replaced by a file
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    target = Path(os.path.realpath(path))  # a link stays one
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
