"""Ragged rows: many small sets, each over its own entries of one shared vector of values.

`KL.ragged`, `Box.ragged` and the others check the rows once (rows.py) and return a `Ragged`; its `worst_case`
then costs no more than the rows themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets import verdict
from uncertainty_sets.answer import RaggedWorstCase, name_rows
from uncertainty_sets.arrays import Array
from uncertainty_sets.derivatives import OnFace
from uncertainty_sets.errors import FdroError, InvalidInput, InvalidLosses, SolverFailed
from uncertainty_sets.face import RaggedRows
from uncertainty_sets.kernels.dispatch import PIECE, run_pieces, unit
from uncertainty_sets.kernels.layout import (
    BOUND,
    COLUMNS,
    DUAL,
    GAP,
    NOT_FINITE,
    OK,
    STATUS,
    VALUE,
    VIOLATION,
)
from uncertainty_sets.parameters import as_floats, as_index, as_number
from uncertainty_sets.rows import Along, Integers, Structure, entries_of, structure_of

if TYPE_CHECKING:
    from uncertainty_sets.base import UncertaintySet

COLD = np.full((2, 1), np.nan)
NO_INTEGERS, NO_FLOATS = np.empty(0, np.int64), np.empty(0)

Losses = tuple[Array, Integers, Array, float]
"""What the losses are made of, as kernels take it: values, indices, offsets, scale."""


class Ragged:
    """Rows of different lengths: row b is a set over the entries indptr[b], …, indptr[b+1] - 1.

    Made by the `ragged` method of a set with a closed form, which takes the parameters of its constructor
    along the entries of all rows; everything is checked and copied there, once.

    >>> import numpy as np
    >>> from uncertainty_sets import KL
    >>> indptr, indices = [0, 2, 5], [3, 0, 1, 2, 3]
    >>> rows = KL.ragged([0.5, 0.5, 0.2, 0.3, 0.5], radius=[0.1, 0.2], indptr=indptr, indices=indices)
    >>> rows
    Ragged(KL, 2 rows, 5 entries)
    >>> answer = rows.worst_case([1.0, 2.0, 0.0, 4.0])
    >>> answer.value.round(4)
    array([3.1594, 3.4208])
    >>> answer.p.round(4)
    array([0.7198, 0.2802, 0.1298, 0.0799, 0.7903])
    """

    def __init__(
        self,
        kind: type[UncertaintySet],
        structure: Structure,
        given: Mapping[str, Any],
        kernel: str | Callable[..., None],
        arguments: tuple[Any, ...],
    ) -> None:
        """Keep rows that are checked already; users call `ragged` of a set.

        Args:
            kind: the class of the rows.
            structure: the entries of each row.
            given: the parameters of its constructor, as its `layout` says that they lie.
            kernel: the file in kernels/ whose `ragged` answers them, or a function called like that one.
            arguments: what the kernel takes between `after` and `warm`.
        """
        layout = kind.layout
        assert layout is not None
        self._kind = kind
        self._keys = layout.keys
        self._structure = structure
        self._given = dict(given)
        self._kernel_or_file = kernel
        self._arguments = arguments
        self._up_to_largest = [DUAL + self._keys.index(key) for key in layout.up_to_largest]
        pieces = np.arange(0, structure.entries, PIECE)
        edges = np.searchsorted(structure.indptr, pieces).tolist()
        self._edges: list[int] = sorted({*edges, structure.rows})

    def __repr__(self) -> str:
        return f"Ragged({self._kind.__name__}, {len(self)} rows, {self._structure.entries} entries)"

    def __len__(self) -> int:
        """The number of rows."""
        return self._structure.rows

    @property
    def indptr(self) -> Integers:
        """Where each row begins; one more entry than there are rows."""
        return _readonly(self._structure.indptr)

    @property
    def indices(self) -> Integers | None:
        """The place in the values of each entry; None if there is a value for each entry."""
        return None if self._structure.indices is None else _readonly(self._structure.indices)

    def row(self, index: int) -> Any:
        """Return the set of one row, to compare with or to look at; its losses are those of its entries.

        >>> from uncertainty_sets import KL
        >>> KL.ragged([0.5, 0.5, 0.2, 0.3, 0.5], radius=[0.1, 0.2], indptr=[0, 2, 5]).row(1)
        KL(center=[0.2, 0.3, 0.5], radius=0.2)
        """
        index = as_index("row", index, len(self))
        start, stop = self._entries(index)
        places, entries = self._structure.places(start, stop), slice(start, stop)
        along, given = self._along(), self._given
        make = cast("Callable[..., UncertaintySet]", self._kind)
        return make(**{name: along[name].of_row(given[name], index, entries, places) for name in given})

    def take(self, rows: Sequence[int] | Integers) -> Ragged:
        """Return some of the rows, in that order; their places in the values stay the same.

        O(entries of these rows), to check and copy them.

        >>> from uncertainty_sets import Box
        >>> rows = Box.ragged(0.1, 0.8, indptr=[0, 2, 4], indices=[0, 2, 1, 2])
        >>> rows.take([1]).worst_case([0.0, 1.0, 5.0]).p.round(12)
        array([0.2, 0.8])
        """
        chosen = _chosen(rows, len(self))
        entries = entries_of(chosen, self._structure.indptr)
        indptr = np.append(0, np.cumsum(np.diff(self._structure.indptr)[chosen]))
        along, given = self._along(), self._given
        parts = {name: along[name].of_rows(given[name], chosen, entries) for name in given}
        return self._kind.ragged(**parts, indptr=indptr, indices=self._structure.places()[entries])

    def worst_case(
        self,
        values: ArrayLike,
        *,
        offsets: ArrayLike | None = None,
        scale: float = 1.0,
        warm_start: RaggedWorstCase | None = None,
        out: RaggedWorstCase | None = None,
    ) -> RaggedWorstCase:
        """Return for every row the distribution with the largest expected loss, with its certificate.

        The loss of entry k is offsets[k] + scale·values[indices[k]], and the promise is that of `worst_case`
        of a single set: rows that break it are computed again by a conic solver. O(entries) per step of the
        set's own search; 25 million entries in a million rows take about half a second on two cores.

        For the smallest expected value negate: ``-rows.worst_case(v, scale=-1.0).value``. A number per row
        needs no offsets, since p sums to 1: add it to `value`.

        >>> import numpy as np
        >>> from uncertainty_sets import Box
        >>> rows = Box.ragged(0.1, 0.8, indptr=[0, 2, 4], indices=[0, 2, 1, 2])
        >>> v, rewards = np.array([0.0, 1.0, 5.0]), np.array([1.0, 0.0, 0.0, 2.0])
        >>> low = rows.worst_case(v, offsets=-rewards, scale=-0.9)
        >>> (-low.value).round(6)
        array([1.7 , 2.02])

        Args:
            values: finite numbers, shared by all rows; one per entry if there are no indices.
            offsets: a number per entry, added to its loss.
            scale: a factor of the values.
            warm_start: an earlier answer of these or similar rows; its multipliers start the searches.
            out: an earlier answer of these rows: its arrays are overwritten and it is returned, which saves
                the time to obtain new memory. It may be the warm start too.
        """
        # 1. What the kernel reads and writes.
        v, more = self._check_values(values), self._check_offsets(offsets)
        factor = _check_scale(scale)
        warm = self._start(warm_start)
        answer = self._receiver(out)
        if out is not None:  # values may be the earlier answer's own
            v, more = (each.copy() if answer.shares_memory(each) else each for each in (v, more))
        kernel, structure, edges = self._kernel(), self._structure, self._edges
        indices = NO_INTEGERS if structure.indices is None else structure.indices
        losses = (v, indices, more, factor)

        # 2. Run, on several threads if there are many entries; pieces hold about the same number of entries.
        def run(first: int, after: int) -> None:
            span = (structure.indptr, edges[first], edges[after])
            kernel(*losses, 1.0, *span, *self._arguments, warm, answer.p, answer.table)

        run_pieces(run, len(edges) - 1, structure.entries)
        # 3. Rows that did not come out: again, scaled; then by a solver.
        failed = np.flatnonzero(answer.table[STATUS] != OK)
        if failed.size:
            self._redo(failed, losses, answer)
        answer.count_iterations()
        answer.asked = (self, losses)
        return answer

    def _sensitivity(self, losses: Losses, answer: RaggedWorstCase) -> OnFace | None:
        """How an answer moves (derivatives.py); None if the set has no face of rows."""
        owner, indptr = self.row(0), self._structure.indptr
        rows, along = RaggedRows(indptr), self._along()
        given = {
            name: np.broadcast_to(each, self._structure.entries) if along[name].what == "entries" else each
            for name, each in self._given.items()
            if isinstance(each, np.ndarray)
        }
        f = self._all_losses(losses)
        face = owner._face(rows, f, answer.p, owner._eta(rows, f, given, answer.dual), given)
        return (
            None
            if face is None
            else OnFace(face, {name: np.shape(self._given[name]) for name in face.effects})
        )

    def _all_losses(self, losses: Losses) -> Array:
        """The losses of all entries."""
        values, indices, offsets, scale = losses
        f = scale * (values[indices] if indices.size else values)
        found: Array = offsets + f if offsets.size else f
        return found

    def _along(self) -> Mapping[str, Along]:
        layout = self._kind.layout  # asked for each time: a pickle of the rows need not hold it
        assert layout is not None
        return layout.parameters

    def _kernel(self) -> Callable[..., None]:
        found = self._kernel_or_file
        if isinstance(found, str):
            found = cast("Callable[..., None]", import_module(f"uncertainty_sets.kernels.{found}").ragged)
        return found

    def _entries(self, row: int) -> tuple[int, int]:
        """The first entry of a row and the one after its last."""
        row = as_index("row", row, len(self))
        return int(self._structure.indptr[row]), int(self._structure.indptr[row + 1])

    def _receiver(self, out: RaggedWorstCase | None) -> RaggedWorstCase:
        """Arrays for the answer: new ones, or those of an earlier one."""
        if out is None:
            return RaggedWorstCase(
                np.empty(self._structure.entries), np.empty((COLUMNS, len(self))), self._keys, self.indptr
            )
        fits = isinstance(out, RaggedWorstCase) and out.keys == self._keys
        if not fits or out.p.size != self._structure.entries or out.value.size != len(self):
            raise InvalidInput(
                f"out must be an earlier answer of these rows ({self}), got {out!r}",
                parameter="out",
                value=out,
            )
        out.forget()
        return out

    def _start(self, previous: RaggedWorstCase | None) -> Array:
        """The multipliers to start from, (2, 1 or B); NaN (start cold) if they are those of other rows."""
        if previous is None:
            return COLD
        if not isinstance(previous, RaggedWorstCase):
            raise InvalidInput(
                f"warm_start must be an earlier answer of ragged rows, got {type(previous).__name__}",
                parameter="warm_start",
                value=previous,
            )
        fits = previous.keys == self._keys and previous.value.size == len(self)
        return previous.table[DUAL:] if fits else COLD

    def _check_values(self, values: ArrayLike) -> Array:
        v = _as_vector("values", values)
        need, exact = self._structure.least_values, self._structure.columns
        if v.size < need or (exact is not None and v.size != exact):
            words = f"at least {need} entries, since that is the largest index" if exact is None else ""
            raise InvalidLosses(
                f"values must have {words or f'{exact} entries'}, got {v.size}",
                parameter="values",
                value=values,
            )
        return v

    def _check_offsets(self, offsets: ArrayLike | None) -> Array:
        if offsets is None:
            return NO_FLOATS
        array = _as_vector("offsets", offsets)
        if array.size != self._structure.entries:
            raise InvalidLosses(
                f"offsets must have one number per entry, {self._structure.entries}, got {array.size}",
                parameter="offsets",
                value=offsets,
            )
        return array

    def _losses(self, row: int, losses: Losses) -> Array:
        """The losses of one row, as the kernel forms them."""
        values, _, offsets, scale = losses
        start, stop = self._entries(row)
        with np.errstate(over="ignore", invalid="ignore"):
            f = scale * values[self._structure.places(start, stop)]
            found: Array = offsets[start:stop] + f if offsets.size else f
        return found

    def _redo(self, failed: Integers, losses: Losses, answer: RaggedWorstCase) -> None:
        """Answer the failed rows again, cold and scaled by a power of two, and then by a conic solver."""
        kernel, indptr, table = self._kernel(), self._structure.indptr, answer.table
        unproved: dict[int, FdroError] = {}
        for b in map(int, failed):
            f = self._losses(b, losses)
            if table[STATUS, b] == NOT_FINITE:
                self._reject(b, f, losses)
            power = unit(f)
            kernel(*losses, power, indptr, b, b + 1, *self._arguments, COLD, answer.p, table)
            with np.errstate(over="ignore"):
                table[[VALUE, BOUND, GAP], b] /= power
                table[DUAL : DUAL + len(self._keys), b] /= power
            table[self._up_to_largest, b] = np.minimum(table[self._up_to_largest, b], f.max())
            if table[STATUS, b] != OK:
                try:
                    answer.put(b, verdict.by_solver(self.row(b), f))
                except FdroError as error:
                    unproved[b] = error
                    table[[VALUE, BOUND, VIOLATION], b], table[GAP, b] = np.nan, np.inf
                    answer.p[slice(*self._entries(b))] = np.nan
        if unproved:
            raise SolverFailed(
                f"no answer of {self._kind.__name__} for {name_rows(list(unproved))} of {len(self)} has a "
                "certificate within the promise. The others are in `.answer`; try parameters and losses that "
                "span fewer orders of magnitude",
                answer=answer,
                rows=tuple(unproved),
                reasons=[str(error) for error in unproved.values()],
            ) from next(iter(unproved.values()))

    def _reject(self, row: int, f: Array, losses: Losses) -> None:
        """Raise with the place and value of the first loss of a row that is not finite."""
        values, _, offsets, _ = losses
        start, stop = self._entries(row)
        k = int(np.flatnonzero(~np.isfinite(f))[0])
        place = int(self._structure.places(start, stop)[k])
        found = f"values[{place}] = {values[place]}"
        if offsets.size:
            found += f" and offsets[{start + k}] = {offsets[start + k]}"
        raise InvalidLosses(
            f"losses must be finite, got {f[k]} at entry {k} of row {row}, from {found}",
            parameter="values",
            value=values,
        )


def made_of(
    kind: type[UncertaintySet],
    parameters: tuple[Any, ...],
    named: Mapping[str, Any],
    indptr: ArrayLike | None,
    indices: ArrayLike | None,
) -> Ragged:
    """Answer `UncertaintySet.ragged`, for a set with a `layout`."""
    assert kind.layout is not None
    along = kind.layout.parameters
    given = dict(zip(along, parameters, strict=False)) | dict(named)
    if len(parameters) + len(named) != len(along) or given.keys() != along.keys():  # defaults, or an error
        try:
            bound = inspect.signature(kind).bind(*parameters, **named)
        except TypeError as error:
            raise TypeError(f"{kind.__name__}.ragged() {error}") from None
        bound.apply_defaults()
        given = bound.arguments
    first = next(iter(along))
    structure = structure_of(first, given[first], indptr, indices)
    read = {name: each.read(name, given[name], structure) for name, each in along.items()}
    return Ragged(kind, structure, read, *kind._ragged_kernel(structure, read))


def _chosen(rows: Any, count: int) -> Integers:
    """The numbers of some of the rows, from whole numbers, True and False for each row, or a slice."""
    if isinstance(rows, slice):
        return np.arange(count)[rows]
    try:
        array = np.asarray(rows)
    except ValueError:
        array = np.empty((0, 0))
    masks = array.dtype == np.bool_ and array.shape == (count,)
    if array.ndim != 1 or not (masks or array.dtype.kind in "iu" or array.size == 0):
        raise InvalidInput(
            f"rows must be a list of row numbers, or True or False for each of the {count} rows, got "
            f"{rows!r:.80}",
            parameter="rows",
            value=rows,
        )
    found = np.flatnonzero(array) if masks else array.astype(np.int64)
    bad = found[(found < -count) | (found >= count)]
    if bad.size:
        raise InvalidInput(f"there is no row {bad[0]}: there are {count}", parameter="rows", value=rows)
    if found.size == 0:
        raise InvalidInput("rows must name at least one row, got none", parameter="rows", value=rows)
    return found % count


def _readonly(array: Integers) -> Integers:
    view = array.view()
    view.flags.writeable = False
    return view


def _check_scale(scale: float) -> float:
    return as_number("scale", scale, "a finite number", lambda number: True, InvalidLosses)


def _as_vector(name: str, value: ArrayLike) -> Array:
    """A vector as kernels take it: float64, contiguous, writable; copied only if it is not that already."""
    if type(value) is np.ndarray and value.dtype == np.float64 and value.ndim == 1 and value.flags.carray:
        return value
    array = np.require(as_floats(name, value, InvalidLosses), requirements=["C", "W", "A"])
    if array.ndim != 1:
        raise InvalidLosses(f"{name} must be a vector, got shape {array.shape}", parameter=name, value=value)
    return array
