"""Programs that always have an answer: how far a set's constraints can be met, and where.

Each cone of a program is widened by a slack. What a solver reports of an empty program is a matter of its
tolerances; a widened program has an optimum, with multipliers that prove it.

| question | answer |
|---|---|
| `least_miss` | by how much every distribution misses the constraints: a proof that the set is empty |
| `inside` | a distribution that meets all inequalities with room |
| `miss` | by how much one distribution misses them, if auxiliary variables are at their best |
| `distance` | how far one distribution is from the set, in total variation |
| `nearest` | the distribution in the set that is nearest to a point |
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from uncertainty_sets.backends import in_order, select
from uncertainty_sets.conic.program import ConicProgram, equilibrated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uncertainty_sets.arrays import Array
    from uncertainty_sets.backends import Solution
    from uncertainty_sets.conic.certificate import Certifier

MOST = 0.9
"""How much of the least room is kept when the other rooms are made larger."""

IN_EXP = (-1.0, 1.0, 1.0)
"""A direction into the exponential cone."""


def least_miss(certifier: Certifier) -> float:
    """A proved lower bound on the least slack with which the program has a point; > 0: it has none.

    The multipliers of the slack problem are repaired and checked as every other certificate: they bound the
    maximum of 0ᵀp, which is 0 if there is any p.
    """
    program = certifier.program
    A, rows = program.A, _Rows()
    zero, nonneg = program.rows("zero"), program.rows("nonneg")
    width = A.shape[1] + 1
    rows.add("nonneg", _beside(A[zero], -1.0), program.b[zero])
    rows.add("nonneg", _beside(-A[zero], -1.0), -program.b[zero])
    rows.add("nonneg", _beside(A[nonneg], -1.0), program.b[nonneg])
    rows.add("nonneg", _unit_row(width, width - 1, -1.0), np.zeros(1))
    cones = _curved(program)
    for group in cones:
        into = np.zeros(group.at.size)
        for place, entry in enumerate(IN_EXP if group.kind == "exp" else (1.0,)):
            into[group.starts + place] = entry
        rows.add(group.kind, _beside(A[group.at], -into), program.b[group.at], group.sizes)
    cost = np.zeros(width)
    cost[-1] = 1.0
    found = _solved(rows.program(), cost)
    if found is None:
        return 0.0
    y, plus = np.zeros(program.b.size), zero.size
    y[zero] = found.y[:plus] - found.y[plus : 2 * plus]
    y[nonneg] = found.y[2 * plus : 2 * plus + nonneg.size]
    start = 2 * plus + nonneg.size + 1
    for group in cones:
        y[group.at] = found.y[start : start + group.at.size]
        start += group.at.size
    _, bound = certifier.prove(np.zeros(program.size), y, found.x[:-1])
    return -bound


def inside(program: ConicProgram) -> Array | None:
    """A distribution with room in every inequality and cone, each of its own; None if there is none.

    With t_k the room in cone k: the largest m <= t_k <= 1, and then, for most of that still, the largest
    mean of t_k, since the cone with the least room should not decide how much the others have. A row p_j >= 0
    has 1/N at most, and little weight: these rows are many, and a uniform p says nothing of the others.
    """
    from scipy import sparse

    A, rows = program.A, _Rows()
    zero, nonneg, cones = program.rows("zero"), program.rows("nonneg"), _curved(program)
    by_row, size = A.tocsr(), program.size
    alone = (np.diff(by_row.indptr)[nonneg] == 1) & (program.b[nonneg] == 0.0)
    share = np.where(alone, 1.0 / size, 1.0)
    curved = sum(group.sizes.size for group in cones)
    total, width = nonneg.size + curved, A.shape[1]

    def wide(block: Any, t: Any, m: float = 0.0) -> Any:
        column = sparse.csr_array(np.full((block.shape[0], 1), m))
        return sparse.hstack([block, t, column]).tocsr()

    def room(columns: Any, values: Array) -> Any:
        """The columns of t: one entry a row."""
        height = values.size
        return sparse.csr_array((values, (np.arange(height), columns)), shape=(height, total))

    none = sparse.csr_array((total, width))
    each, ones = sparse.eye(total), np.ones(total)
    rows.add("zero", wide(A[zero], sparse.csr_array((zero.size, total))), program.b[zero])
    rows.add("nonneg", wide(A[nonneg], room(np.arange(nonneg.size), share)), program.b[nonneg])
    rows.add("nonneg", wide(none, each), ones)
    rows.add("nonneg", wide(none, -each, 1.0), np.zeros(total))
    before = nonneg.size
    for group in cones:
        towards = np.zeros(group.at.size)
        towards[group.starts + (2 if group.kind == "exp" else 0)] = 1.0
        columns = before + np.repeat(np.arange(group.sizes.size), group.sizes)
        before += group.sizes.size
        rows.add(group.kind, wide(A[group.at], room(columns, towards)), program.b[group.at], group.sizes)
    weight = np.append(np.where(alone, 0.0, 1.0), np.ones(curved))
    weight = weight / max(weight.sum(), 1.0) + 0.01 / total
    least, found = _unit_row(width + total + 1, width + total, -1.0), None
    for cost, kept in ((np.zeros(total), 0.0), (weight, MOST)):
        most = 0.0 if found is None else float(found.x[-1])
        stage = rows.copy()
        stage.add("nonneg", least, np.full(1, -kept * most))
        prices = np.concatenate([np.zeros(width), -cost, [0.0 if kept else -1.0]])
        better = _solved(stage.program(), prices, central=True)
        found = better or found
        if found is None or not found.x[width : width + total].min() > 1e-12:
            return None
    assert found is not None
    p = np.maximum(found.x[program.columns], 0.0)
    return np.asarray(p / p.sum())


def miss(program: ConicProgram, p: Array) -> float:
    """The smallest that auxiliary variables can make the largest residual of a row or cone at p."""
    A, b, free = program.A, program.b - program.A[:, program.columns] @ p, program.auxiliary
    x = np.zeros(A.shape[1])
    x[program.columns] = p
    by_row, rows, zeros = A[:, free].tocsr(), _Rows(), np.zeros(0, dtype=np.intp)
    touched = np.diff(by_row.indptr) > 0
    zero, nonneg = (each[touched[each]] for each in (program.rows("zero"), program.rows("nonneg")))
    # Two slacks after the auxiliary variables. The one of inequalities may be negative, so that auxiliary
    # variables of a point inside the set stay away from its edge, where a solver's tolerance would show.
    # Equalities have no inside.
    slack, worst, width = free.size, free.size + 1, free.size + 2
    rows.add("nonneg", _beside(_beside(by_row[zero], 0.0), -1.0), b[zero])
    rows.add("nonneg", _beside(_beside(-by_row[zero], 0.0), -1.0), -b[zero])
    rows.add("nonneg", _beside(_beside(by_row[nonneg], -1.0), 0.0), b[nonneg])
    limits = [_unit_row(width, slack, -1.0), _unit_row(width, worst, -1.0)]
    limits.append(_unit_row(width, slack, 1.0) + _unit_row(width, worst, -1.0))
    for limit, right in zip(limits, (1.0, 0.0, 0.0), strict=True):
        rows.add("nonneg", limit, np.full(1, right))
    for cones in _curved(program):
        group = cones.of(np.logical_or.reduceat(touched[cones.at], cones.starts))
        into = np.zeros(group.at.size)
        into[group.starts + (2 if group.kind == "exp" else 0)] = -1.0
        rows.add(group.kind, _beside(_beside(by_row[group.at], into), 0.0), b[group.at], group.sizes)
    cost = np.zeros(width)
    cost[slack], cost[worst] = 1e-3, 1.0
    found = _solved(rows.program(zeros), cost)
    if found is None:
        return np.inf
    x[free] = found.x[: free.size]
    return residual_of(program, x)


def residual_of(program: ConicProgram, x: Array) -> float:
    """By how much b - A x is outside the cones, at most, beyond what rounding of the sums explains."""
    s = program.b - program.A @ x
    rounding = 4 * np.finfo(np.float64).eps * (abs(program.A) @ np.abs(x) + np.abs(program.b))
    worst = float((np.abs(s) - rounding)[program.rows("zero")].max(initial=0.0))
    worst = max(worst, float((-s - rounding)[program.rows("nonneg")].max(initial=0.0)))
    for group in _curved(program):
        here = s[group.at]
        if group.kind == "exp":
            missed = outside_exp(*here.reshape(-1, 3).T)
        else:
            heads = here[group.starts]
            here[group.starts] = 0.0
            missed = np.sqrt(np.add.reduceat(here * here, group.starts)) - heads
            missed -= np.maximum.reduceat(rounding[group.at], group.starts)
        worst = max(worst, float(missed.max()))
    return np.inf if np.isnan(worst) else worst


def outside_exp(x: Array, y: Array, z: Array) -> Array:
    """By how much z is below y·exp(x/y), or how far the point is from the cone's face y = 0, x <= 0 <= z.

    The lesser of the two: next to that face a solver's x of 1e-13 at y = 0 would make the first infinite.
    """
    with np.errstate(all="ignore"):
        below = np.where(y > 0.0, np.maximum(y * np.exp(x / y) - z, 0.0), np.inf)
    aside = np.maximum.reduce([x, np.abs(y), -z, np.zeros_like(x)])
    return np.asarray(np.minimum(below, aside))


def nearest(program: ConicProgram, point: Array) -> Array | None:
    """The distribution of the set nearest to the point in the Euclidean norm; None without an answer."""
    from scipy import sparse

    width = program.A.shape[1] + 1
    rows, picked = _given(program, 1), _entries(program, width)
    rows.add("soc", sparse.vstack([_unit_row(width, width - 1, -1.0), -picked]), np.append(0.0, -point))
    cost = np.zeros(width)
    cost[-1] = 1.0
    found = _solved(rows.program(), cost)
    if found is None:
        return None
    p = np.maximum(found.x[program.columns], 0.0)
    total = float(p.sum())
    return p / total if total > 0.0 else None


def distance(program: ConicProgram, p: Array) -> float:
    """The total variation between p and the nearest distribution of the set; 0 without an answer."""
    from scipy import sparse

    size, width = program.size, program.A.shape[1]
    rows = _given(program, size)
    apart = sparse.hstack([sparse.csr_array((size, width)), sparse.eye(size)]).tocsr()
    picked = _entries(program, width + size)
    rows.add("nonneg", picked - apart, p)
    rows.add("nonneg", -picked - apart, -p)
    found = _solved(rows.program(), np.concatenate([np.zeros(width), np.full(size, 0.5)]))
    return 0.0 if found is None else 0.5 * float(np.abs(found.x[program.columns] - p).sum())


def _given(program: ConicProgram, more: int) -> _Rows:
    """The program's own rows, with so many more columns."""
    from scipy import sparse

    rows = _Rows()
    linear = [_Cones(kind, program.rows(kind), np.zeros(0, dtype=np.intp)) for kind in ("zero", "nonneg")]
    for kind, at, sizes in [*linear, *_curved(program)]:
        wide = sparse.hstack([program.A[at], sparse.csr_array((at.size, more))]).tocsr()
        rows.add(kind, wide, program.b[at], sizes)
    return rows


def _entries(program: ConicProgram, width: int) -> Any:
    """The rows that pick p out of so many variables."""
    from scipy import sparse

    where = (np.arange(program.size), program.columns)
    return sparse.csr_array((np.ones(program.size), where), shape=(program.size, width))


class _Rows:
    """Blocks of rows by kind, in the order in which a program has the kinds."""

    def __init__(self) -> None:
        self.parts: dict[str, list[tuple[Any, Array, Any]]]
        self.parts = {"zero": [], "nonneg": [], "soc": [], "exp": []}

    def add(self, kind: str, A: Any, b: Array, sizes: Any = None) -> None:
        """Add rows; of one cone, unless the sizes of several are given."""
        if b.size:
            self.parts[kind].append((A, b, (b.size,) if sizes is None else sizes))

    def copy(self) -> _Rows:
        """The same blocks, to add others."""
        twin = _Rows()
        twin.parts = {kind: list(parts) for kind, parts in self.parts.items()}
        return twin

    def program(self, columns: NDArray[np.intp] | None = None) -> ConicProgram:
        from scipy import sparse

        blocks = [block for parts in self.parts.values() for block in parts]
        A = sparse.csc_array(sparse.vstack([A for A, _, _ in blocks]))
        b = np.concatenate([right for _, right, _ in blocks])
        cones: list[tuple[str, int]] = []
        for kind, parts in self.parts.items():
            if kind in {"zero", "nonneg"}:
                cones += [(kind, sum(right.size for _, right, _ in parts))] * bool(parts)
            else:
                cones += [(kind, int(size)) for _, _, sizes in parts for size in sizes]
        return ConicProgram(A, b, tuple(cones), np.zeros(0, dtype=np.intp) if columns is None else columns)


class _Cones(NamedTuple):
    """Cones of one kind that follow each other: all their rows, and how many each has."""

    kind: str
    at: NDArray[np.intp]
    sizes: NDArray[np.intp]

    @property
    def starts(self) -> NDArray[np.intp]:
        """Where in `at` each cone begins."""
        return np.cumsum(self.sizes) - self.sizes

    def of(self, chosen: NDArray[np.bool_]) -> _Cones:
        """The chosen ones alone."""
        return _Cones(self.kind, self.at[np.repeat(chosen, self.sizes)], self.sizes[chosen])


def _curved(program: ConicProgram) -> list[_Cones]:
    """The cones that are not linear, by kind: a thousand are as quick to handle as one."""
    found = []
    for kind, group in groupby(zip(program.starts, program.cones, strict=True), lambda each: each[1][0]):
        if kind not in {"zero", "nonneg"}:
            cones = list(group)
            sizes = np.array([size for _, (_, size) in cones], dtype=np.intp)
            found.append(_Cones(kind, cones[0][0] + np.arange(sizes.sum()), sizes))
    return found


def _beside(block: Any, column: float | Array) -> Any:
    """The block with one more column."""
    from scipy import sparse

    more = np.broadcast_to(column, block.shape[0])[:, None]
    return sparse.hstack([block, sparse.csr_array(more)]).tocsr()


def _unit_row(width: int, at: int, value: float) -> Any:
    from scipy import sparse

    return sparse.csr_array(([value], ([0], [at])), shape=(1, width))


LARGE = 10_000
"""Rows from which one solver alone is tried: after it a first-order method would take ten minutes."""


def _solved(program: ConicProgram, cost: Array, central: bool = False) -> Solution | None:
    """The first answer of a solver that trusts it, else the first at all.

    `central`: of several optima one in their middle, which the simplex method does not give.
    """
    program, factors = equilibrated(program)
    doubtful, backends = None, [select(name, program) for name in in_order(program)]
    if central:
        backends.sort(key=lambda backend: -len(backend.cones))
    if program.A.shape[0] > LARGE:
        del backends[1:]
    for backend in backends:
        found = backend.compile(program).solve(cost)
        if found.outcome in {"solved", "inaccurate"} and found.x.size and np.isfinite(found.x).all():
            found = found._replace(y=found.y * factors)
            if found.outcome == "solved":
                return found
            doubtful = doubtful or found
    return doubtful
