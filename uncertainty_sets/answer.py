"""What an oracle answers: a distribution with its proof, for one loss vector or a batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.layout import BOUND, DUAL, GAP, ITERATIONS, VALUE, VIOLATION
from uncertainty_sets.parameters import as_index

if TYPE_CHECKING:
    from uncertainty_sets.derivatives import Tangent


class WorstCase:
    """A worst-case distribution and its proof.

    For losses of shape (B, N) every field except `backend` has a leading axis of length B.

    Attributes:
        p: the distribution, feasible up to `violation`.
        value: pᵀf, a lower bound on the maximum.
        upper_bound: an upper bound on the maximum, from the multipliers in `dual` alone.
        gap: upper_bound - value, computed before both are rounded to the size of the losses; p is at most
            this far from optimal. Never clipped: a negative gap of rounding size stays negative.
        violation: the largest residual of p over the simplex and the set's constraints, each scaled
            by max(1, |right-hand side|), or in units of p if the set has only `constraints`.
        dual: the multipliers; the set's docstring has the keys and the bound's formula. A multiplier beyond
            the largest float is infinite.
        backend: which solver answered.
        iterations: evaluations of the dual function, or the solver's own count.
        failed: the rows without an answer and why, only with `on_failure="nan"`: such a row is NaN and its
            gap is inf. A single loss vector is row 0.
    """

    __slots__ = (
        "asked", "backend", "dual", "failed", "gap", "iterations", "p", "parts",
        "unproved", "upper_bound", "value", "violation",
    )  # fmt: skip

    p: Array
    value: Any
    upper_bound: Any
    gap: Any
    violation: Any
    dual: Mapping[str, Any]
    backend: str
    iterations: Any
    failed: Mapping[int, str]
    asked: Any  # the problem and the losses, which derivatives need; None after a copy by pickle
    parts: Mapping[str, WorstCase]  # the answers of the sets of which a composed set is made, by path
    unproved: tuple[int, ...]  # rows whose certificate breaks the promise; `worst_case` gives out none

    def __init__(
        self,
        p: Array,
        value: Any,
        upper_bound: Any,
        gap: Any,
        violation: Any,
        dual: Mapping[str, Any],
        backend: str,
        iterations: Any,
        unproved: tuple[int, ...] = (),
    ) -> None:
        self.p = p
        self.value = value
        self.upper_bound = upper_bound
        self.gap = gap
        self.violation = violation
        self.dual = dual
        self.backend = backend
        self.iterations = iterations
        self.unproved = unproved
        self.failed = {}
        self.asked = None
        self.parts = {}

    def __getstate__(self) -> dict[str, Any]:
        # The problem and its losses are not part of the answer: they may be large, or not picklable.
        names = [name for cls in type(self).__mro__ for name in getattr(cls, "__slots__", ())]
        return {name: getattr(self, name) for name in names} | {"asked": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, each in state.items():
            setattr(self, name, each)

    def jvp(self, losses: ArrayLike | None = None, **parameters: ArrayLike) -> Tangent:
        """Return how p and the value move with the losses and parameters: a directional derivative.

        Exact, in O(N), from the equations of the free entries of p (face.py), for every set with a closed
        form but those that the page on derivatives names. The losses must be as they were for the answer.

        Args:
            losses: a direction, of the losses' shape.
            **parameters: directions by name, such as ``center=`` and ``radius=``, of the parameter's shape;
                a move of a centre that changes its sum counts as that of the centre divided by its sum.

        >>> from uncertainty_sets import KL
        >>> answer = KL([0.5, 0.3, 0.2], 0.1).worst_case([1.0, 2.0, 4.0])
        >>> moved = answer.jvp([0.0, 0.0, 1.0], radius=0.01)
        >>> moved.p.round(4), round(moved.value, 4)
        (array([ 0.0073, -0.0251,  0.0177]), 0.4132)
        """
        from uncertainty_sets import derivatives

        return derivatives.jvp(self, losses, parameters)

    def vjp(
        self,
        p: ArrayLike | None = None,
        *,
        value: ArrayLike | None = None,
        wrt: str | Collection[str] | None = None,
    ) -> dict[str, Any]:
        """Return the gradient of uᵀp + v·value by the losses and by every parameter: the transpose of `jvp`.

        Args:
            p: u, of p's shape; None for 0.
            value: v, a number, or one per row; None for 0.
            wrt: the parameters that are wanted beside the losses, or one name; None for all. ``wrt=()`` is
                faster, and with `value` alone it works for every set: the pull on the losses is then v·p.

        >>> from uncertainty_sets import KL
        >>> gradient = KL([0.5, 0.3, 0.2], 0.1).worst_case([1.0, 2.0, 4.0]).vjp(value=1.0)
        >>> {name: each.round(4).tolist() for name, each in gradient.items()}
        {'losses': [0.3313, 0.2836, 0.3851], 'center': [-0.949, -0.1533, 2.6024], 'radius': 2.8122}
        """
        from uncertainty_sets import derivatives

        return derivatives.vjp(self, p, value, wrt)

    def __repr__(self) -> str:
        if self.p.ndim == 2:
            return _repr_of_rows(self)
        p = _short(self.p)
        return (
            f"WorstCase(value={self.value:.10g}, p={p}, gap={self.gap:.2g}, "
            f"violation={self.violation:.2g}, backend={self.backend!r})"
        )


@dataclass(frozen=True)
class BestCase:
    """A best-case distribution and its proof: the least pᵀf over a set.

    For losses of shape (B, N) every field except `backend` has a leading axis of length B.

    Attributes:
        p: the distribution, feasible up to `violation`.
        value: pᵀf, an upper bound on the minimum.
        lower_bound: a lower bound on the minimum, from the multipliers in `dual` alone.
        gap: value - lower_bound, before both are rounded. Never clipped.
        violation: as in `WorstCase`.
        dual: the multipliers of `worst_case(-losses)`, whose upper bound is -lower_bound.
        backend: which solver answered.
        iterations: as in `WorstCase`.
        failed: the rows without an answer and why, only with `on_failure="nan"`.
    """

    p: Array
    value: Any
    lower_bound: Any
    gap: Any
    violation: Any
    dual: Mapping[str, Any]
    backend: str
    iterations: Any
    failed: Mapping[int, str]

    def __repr__(self) -> str:
        if self.p.ndim == 2:
            return _repr_of_rows(self)
        return (
            f"BestCase(value={self.value:.10g}, p={_short(self.p)}, gap={self.gap:.2g}, "
            f"violation={self.violation:.2g}, backend={self.backend!r})"
        )

    if not TYPE_CHECKING:  # which would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            instead = ": take worst_case(-losses)" if name in {"jvp", "vjp", "upper_bound", "asked"} else ""
            raise AttributeError(f"BestCase has no attribute {name!r}{instead}")


def _short(p: Array) -> str:
    """A distribution in one line."""
    return np.array2string(p, precision=4, threshold=8, edgeitems=3, separator=", ")


def _repr_of_rows(answer: WorstCase | BestCase) -> str:
    """A batch of answers in one line."""
    rows, size = answer.p.shape
    failed = f", failed: {name_rows(tuple(answer.failed))}" if answer.failed else ""
    answered = [row for row in range(rows) if row not in answer.failed] if answer.failed else slice(None)
    gap, violation = (np.max(each[answered], initial=-np.inf) for each in (answer.gap, answer.violation))
    return (
        f"{type(answer).__name__}({rows} rows of {size}, largest gap={gap:.2g}, "
        f"largest violation={violation:.2g}, backend={answer.backend!r}{failed})"
    )


class RaggedWorstCase(WorstCase):
    """The worst-case distributions of ragged rows, and their proofs.

    As `WorstCase`, with p along the entries of all rows and every other number per row; `row(b)` is one row's
    answer.

    Attributes:
        indptr: the entries of row b are indptr[b], …, indptr[b+1] - 1.
        by_solver: rows whose closed form broke the promise, with the answer of a conic solver, whose
            multipliers have other names; in `dual` they are NaN.
    """

    __slots__ = ("by_solver", "indptr", "keys", "table")

    indptr: NDArray[np.int64]
    by_solver: dict[int, WorstCase]
    table: Array  # (COLUMNS, B): the columns of kernels/layout.py, of which the fields are parts
    keys: tuple[str, ...]

    def __init__(
        self,
        p: Array,
        table: Array,
        keys: tuple[str, ...],
        indptr: NDArray[np.int64],
        backend: str = "closed-form",
    ) -> None:
        dual = {key: table[DUAL + k] for k, key in enumerate(keys)}
        iterations = np.zeros(table.shape[1], np.int64)
        numbers = (table[VALUE], table[BOUND], table[GAP], table[VIOLATION])
        super().__init__(p, *numbers, dual, backend, iterations)
        self.indptr = indptr
        self.by_solver = {}
        self.table = table
        self.keys = keys

    def __reduce__(self) -> Any:
        # The fields are parts of `table`, which pickling them one by one would not keep.
        return _restore, (self.p, self.table, self.keys, np.array(self.indptr), self.backend, self.by_solver)

    def __repr__(self) -> str:
        return (
            f"RaggedWorstCase({self.value.size} rows, {self.p.size} entries, "
            f"largest gap={np.max(self.gap):.2g}, largest violation={np.max(self.violation):.2g}, "
            f"backend={self.backend!r})"
        )

    def row(self, index: int) -> WorstCase:
        """Return the answer of one row, as `worst_case` of its set gives it.

        >>> from uncertainty_sets import Box
        >>> Box.ragged(0.1, 0.8, indptr=[0, 2, 5]).worst_case([0.0, 1.0, 3.0, 0.0, 1.0]).row(1).p.round(12)
        array([0.8, 0.1, 0.1])
        """
        index = as_index("row", index, self.value.size)
        if index in self.by_solver:
            return self.by_solver[index]
        return WorstCase(
            self.p[self.indptr[index] : self.indptr[index + 1]],
            float(self.value[index]),
            float(self.upper_bound[index]),
            float(self.gap[index]),
            float(self.violation[index]),
            {key: float(each[index]) for key, each in self.dual.items()},
            "closed-form",
            int(self.iterations[index]),
        )

    def put(self, index: int, found: WorstCase) -> None:
        """Replace the answer of one row by a solver's."""
        self.p[self.indptr[index] : self.indptr[index + 1]] = found.p
        self.table[:, index] = np.nan
        self.table[[VALUE, BOUND, GAP, VIOLATION], index] = (
            found.value, found.upper_bound, found.gap, found.violation
        )  # fmt: skip
        self.table[ITERATIONS, index] = found.iterations
        self.by_solver[index] = found
        if found.backend not in self.backend:
            self.backend = f"{self.backend} and {found.backend}"

    def forget(self) -> None:
        """Make room for another answer in the same arrays."""
        self.by_solver = {}
        self.backend = "closed-form"

    def count_iterations(self) -> None:
        """Read `iterations` from the table, which holds floats."""
        np.copyto(self.iterations, self.table[ITERATIONS], casting="unsafe")

    def shares_memory(self, array: Array) -> bool:
        """Whether writing this answer could change that array."""
        return np.may_share_memory(array, self.table) or np.may_share_memory(array, self.p)


def _restore(
    p: Array,
    table: Array,
    keys: tuple[str, ...],
    indptr: NDArray[np.int64],
    backend: str,
    by_solver: dict[int, WorstCase],
) -> RaggedWorstCase:
    answer = RaggedWorstCase(p, table, keys, indptr, backend)
    answer.by_solver = by_solver
    answer.count_iterations()
    return answer


def stack(answers: list[WorstCase]) -> WorstCase:
    """The answers to the rows of a batch as one; multipliers that not all of them have are left out."""
    shared = [key for key in answers[0].dual if all(key in answer.dual for answer in answers)]
    backends = sorted({answer.backend for answer in answers})
    return WorstCase(
        np.array([answer.p for answer in answers]),
        np.array([answer.value for answer in answers]),
        np.array([answer.upper_bound for answer in answers]),
        np.array([answer.gap for answer in answers]),
        np.array([answer.violation for answer in answers]),
        {key: padded([answer.dual[key] for answer in answers]) for key in shared},
        " and ".join(backends),
        np.array([answer.iterations for answer in answers]),
    )


def padded(multipliers: Sequence[Any]) -> Array:
    """One row each; NaN after the end of shorter ones, since the programs of rows may differ in length."""
    arrays = [np.asarray(each, dtype=np.float64) for each in multipliers]
    shape = tuple(np.max([each.shape for each in arrays], axis=0).astype(int)) if arrays[0].ndim else ()
    if all(each.shape == shape for each in arrays):
        return np.array(arrays)
    table = np.full((len(arrays), *shape), np.nan)
    for row, each in zip(table, arrays, strict=True):
        row[: each.size] = each
    return table


def name_rows(rows: Sequence[int], most: int = 8) -> str:
    """The rows of a batch for an error's message: "rows 3, 5 and 7 more"."""
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    return f"row{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows[:most]))}{more}"
