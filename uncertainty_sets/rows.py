"""Ragged rows as their parameters describe them: which entries each row has, and what lies along them.

A set says in `layout` how the parameters of its constructor lie in ragged rows, and which kernel takes them::

    layout = Layout("kl", ("eta",), center=CENTER, radius=EACH_ROW)

`UncertaintySet.ragged` follows from that: the parameters are read and checked here, and `Ragged` (ragged.py)
answers the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.parameters import SUM_TOLERANCE, as_floats, as_scalar_rows, check_not_negative

Integers = NDArray[np.int64]
Number = TypeVar("Number", np.int64, np.float64)


@dataclass(frozen=True, eq=False)
class Structure:
    """Which entries each row has, as in a CSR matrix.

    Attributes:
        indptr: the entries of row b are indptr[b], …, indptr[b+1] - 1.
        indices: for each entry the place of its value; None if there is a value for each entry.
        columns: how many values there are; None if `indices` alone do not tell.
    """

    indptr: Integers
    indices: Integers | None
    columns: int | None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.indptr.size - 1

    @property
    def entries(self) -> int:
        """The number of entries of all rows together."""
        return int(self.indptr[-1])

    @cached_property
    def least_values(self) -> int:
        """How many values there must be at least."""
        return self.entries if self.indices is None else int(self.indices.max()) + 1

    def places(self, start: int = 0, stop: int | None = None) -> Integers:
        """The places of the values of those entries."""
        stop = self.entries if stop is None else stop
        return np.arange(start, stop) if self.indices is None else self.indices[start:stop]

    def where(self, entry: int) -> str:
        """The row of an entry and its place there, for messages."""
        row = int(np.searchsorted(self.indptr, entry, side="right")) - 1
        return f"row {row}, entry {entry - int(self.indptr[row])}"

    def starts(self) -> Integers:
        """The first entry of each row."""
        return self.indptr[:-1]

    def repeat(self, by_row: NDArray[Number]) -> NDArray[Number]:
        """A number per row, repeated for each of its entries."""
        return np.repeat(by_row, np.diff(self.indptr))


def entries_of(rows: Integers, indptr: Integers) -> Integers:
    """The entries of those rows, one row after the other."""
    lengths = np.diff(indptr)[rows]
    ends = np.cumsum(lengths)
    return np.asarray(
        np.arange(int(lengths.sum())) + np.repeat(indptr[rows] - ends + lengths, lengths), np.int64
    )


def is_sparse(value: Any) -> bool:
    """Whether a parameter is a SciPy sparse array or matrix (or looks like one, such as CuPy's)."""
    return hasattr(value, "tocsr") and hasattr(value, "format")


def structure_of(name: str, first: Any, indptr: ArrayLike | None, indices: ArrayLike | None) -> Structure:
    """The structure of the first parameter, if that is a sparse CSR matrix, or else the one that is given."""
    columns = None
    if is_sparse(first):
        if indptr is not None or indices is not None:
            raise InvalidParameter(
                f"{name} is a sparse matrix, which has indptr and indices of its own: leave them out",
                parameter="indptr",
            )
        _check_format(name, first)
        indptr, indices, columns = first.indptr, first.indices, int(first.shape[1])
    elif indptr is None:
        raise InvalidParameter(
            "ragged rows need indptr: the entries of row b are indptr[b] to indptr[b+1] - 1; or give "
            f"{name} as a SciPy CSR matrix",
            parameter="indptr",
        )
    edges = as_integers("indptr", indptr)
    _check_edges(edges)
    if indices is None:
        return Structure(edges, None, int(edges[-1]))
    places = as_integers("indices", indices)
    if places.size != edges[-1]:
        raise InvalidParameter(
            f"indices must have indptr[-1] = {edges[-1]} entries, got {places.size}",
            parameter="indices",
            value=indices,
        )
    structure = Structure(edges, places, columns)
    least, most = int(places.argmin()), int(places.argmax())
    if places[least] < 0:
        raise InvalidParameter(
            f"indices must not be negative, got {places[least]} in {structure.where(least)}",
            parameter="indices",
            value=indices,
        )
    if columns is not None and places[most] >= columns:
        raise InvalidParameter(
            f"indices must be below the {columns} columns of {name}, got {places[most]} in "
            f"{structure.where(most)}",
            parameter="indices",
            value=indices,
        )
    return structure


def _check_format(name: str, value: Any) -> None:
    if value.format != "csr" or len(value.shape) != 2:
        raise InvalidParameter(
            f"{name} must be a sparse matrix in CSR format, got {value.format} of shape {value.shape}; give "
            f"{name}.tocsr()",
            parameter=name,
            value=value,
        )


def as_integers(name: str, value: ArrayLike) -> Integers:
    """Our own int64 copy: kernels trust it, so nobody else may write to it."""
    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidParameter(
            f"{name} must be a vector of integers, got shape {array.shape} of type {array.dtype}",
            parameter=name,
            value=value,
        )
    return np.array(array, dtype=np.int64)


def _check_edges(indptr: Integers) -> None:
    def refuse(words: str) -> InvalidParameter:
        return InvalidParameter(f"indptr must {words}", parameter="indptr", value=indptr)

    if indptr.size < 2:
        raise refuse(f"have at least 2 entries, for one row; got {indptr.size}")
    if indptr[0] != 0:
        raise refuse(f"begin with 0, got {indptr[0]}")
    lengths = np.diff(indptr)
    short = int(lengths.argmin())
    if lengths[short] < 0:
        raise refuse(f"not descend, got {indptr[short]} before {indptr[short + 1]} at row {short}")
    if lengths[short] == 0:
        empty = int(np.count_nonzero(lengths == 0))
        more = f" ({empty} rows are empty)" if empty > 1 else ""
        raise refuse(
            f"give every row an entry, since an empty row has no distribution; row {short} has none{more}: "
            "leave such rows out"
        )


def as_flat(name: str, value: Any, structure: Structure, *, finite: bool = True) -> Array:
    """A number for all entries, (1,), or one for each, (entries,): our own copy, without NaN."""
    if is_sparse(value):
        _check_format(name, value)
        same = np.array_equal(value.indptr, structure.indptr)
        if not (same and structure.indices is not None and np.array_equal(value.indices, structure.indices)):
            raise InvalidParameter(
                f"{name} must have the same indptr and indices as the rows; give its numbers as a vector "
                f"with {structure.entries} entries in the order of `indices`",
                parameter=name,
                value=value,
            )
        value = value.data
    array = np.array(as_floats(name, value, InvalidParameter), order="C").reshape(np.shape(value) or (1,))
    if array.shape not in {(1,), (structure.entries,)}:
        raise InvalidParameter(
            f"{name} must be a number or a vector with one number per entry, ({structure.entries},), "
            f"got shape {np.shape(value)}",
            parameter=name,
            value=value,
        )
    bad = np.flatnonzero(~np.isfinite(array) if finite else np.isnan(array))
    if bad.size:
        need = "finite" if finite else "free of NaN"
        raise InvalidParameter(
            f"{name} must be {need}, got {array[bad[0]]} in {structure.where(int(bad[0]))}",
            parameter=name,
            value=value,
        )
    return array


def as_flat_center(name: str, value: Any, structure: Structure) -> Array:
    """A distribution per row along the entries; sums within 1e-9 of 1 are made 1."""
    center = as_flat(name, value, structure)
    if center.size != structure.entries:
        raise InvalidParameter(
            f"{name} must have one probability per entry, ({structure.entries},), got a single number",
            parameter=name,
            value=value,
        )
    least = int(center.argmin())
    if center[least] < 0.0:
        raise InvalidParameter(
            f"{name} must not be negative, got {center[least]} in {structure.where(least)}",
            parameter=name,
            value=value,
        )
    with np.errstate(over="ignore"):
        total = np.add.reduceat(center, structure.starts())
    worst = int(np.abs(total - 1.0).argmax())
    if not abs(total[worst] - 1.0) <= SUM_TOLERANCE:
        raise InvalidParameter(
            f"{name} must sum to 1 in every row, got {total[worst]:.12g} in row {worst} (off by "
            f"{total[worst] - 1.0:+.3g}); divide each row by its sum",
            parameter=name,
            value=value,
        )
    if (total != 1.0).any():
        center /= structure.repeat(total)
    return center


def as_flat_not_negative(name: str, value: Any, structure: Structure) -> Array:
    """`as_flat` of numbers >= 0."""
    array = as_flat(name, value, structure)
    check_not_negative(name, array)
    return array


def as_row_numbers(name: str, value: ArrayLike, structure: Structure) -> Array:
    """A number >= 0 for all rows, (1,), or one for each, (B,)."""
    array = as_scalar_rows(name, value, structure.rows)
    if array.size not in {1, structure.rows}:
        raise InvalidParameter(
            f"{name} must be a number or have one per row, ({structure.rows},), got shape {array.shape}",
            parameter=name,
            value=value,
        )
    return array


class Along(NamedTuple):
    """How a parameter lies in ragged rows.

    Attributes:
        what: a number for each entry or one for all, likewise for each row; numbers of the values or between
            them (None: their places); or the same for all rows, as it is.
        read: (name, what was given, structure) ↦ our own checked copy.
    """

    what: Literal["entries", "rows", "values", "all"]
    read: Callable[[str, Any, Structure], Any]

    def of_row(self, array: Any, row: int, entries: slice, places: Integers) -> Any:
        """The parameter of the set of one row."""
        if self.what == "entries":
            return array[entries] if array.size > 1 else np.full(places.size, array[0])
        if self.what == "rows":
            return float(array[row if array.size > 1 else 0])
        if self.what == "values":
            return places.astype(float) if array is None else array[np.ix_(*[places] * array.ndim)]
        return array

    def of_rows(self, array: Any, rows: Integers, entries: Integers) -> Any:
        """The parameter of some of the rows, for `ragged`."""
        if self.what == "entries":
            return array[entries] if array.size > 1 else array
        if self.what == "rows":
            return array[rows] if array.size > 1 else array[0]
        return array


CENTER = Along("entries", as_flat_center)
EACH_ENTRY = Along("entries", as_flat)
EACH_BOUND = Along("entries", partial(as_flat, finite=False))
EACH_SPREAD = Along("entries", as_flat_not_negative)
EACH_ROW = Along("rows", as_row_numbers)
SHARED = Along("all", lambda name, given, structure: given)


class Layout:
    """How the parameters of ragged rows lie, and the kernel that answers them.

    Args:
        kernel: the file in kernels/ whose `ragged` answers the rows; a set with several overrides
            `_ragged_kernel`.
        keys: the names of the multipliers, at most two; empty if a row has more.
        up_to_largest: multipliers that prove nothing above the largest loss of their row, to which the
            rounding of losses that are scaled down could lift them.
        parameters: of the constructor, each with its place; the first one may be a sparse matrix.
    """

    def __init__(
        self, kernel: str, keys: tuple[str, ...], *, up_to_largest: tuple[str, ...] = (), **parameters: Along
    ) -> None:
        self.kernel, self.keys, self.up_to_largest = kernel, keys, up_to_largest
        self.parameters = parameters
