"""The bound that an answer's multipliers prove, row by row, for closed forms and solvers alike.

Three things go beyond the formulas of `bounds`: rows that a conic solver answered have its multipliers
(uncertainty_sets/conic/oracle.py says how to recheck them); a multiplier in the unit of the losses may be too
large for a double; and a multiplier is known only to the last digit of a double.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.soak import bounds as formulas
from bench.soak import intersections, penalties
from bench.soak.cases import Case
from uncertainty_sets.arrays import Array
from uncertainty_sets.conic.oracle import program
from uncertainty_sets.conic.program import ConicProgram

Long = NDArray[np.longdouble]

KEYS: dict[str, tuple[str, ...]] = {
    "box": ("nu",),
    "cd-norm": ("nu", "pi"),
    "kl": ("eta",),
    "ellipsoid": ("nu", "tau"),
    "ellipsoid dense": ("nu", "mu"),
    "wasserstein-1": ("lam",),
    "wasserstein-1 matrix": ("lam",),
    "polyhedron": ("y",),
    "total-variation": ("t",),
    "weighted-l1": ("lam",),
    "chi-square": ("margin",),
    "hellinger": ("margin",),
    "burg": ("margin",),
    "cressie-read": ("margin",),
    "evar": ("eta",),
    "cvar": ("var",),
    "cvar-mixture": ("var",),
    "spectral": ("order",),
}
"""The multipliers of each set's docstring. Other sets have those of a solver."""

KEYS |= intersections.KEYS | penalties.KEYS
FORMULAS = formulas.BOUNDS | intersections.BOUNDS | penalties.BOUNDS

ANY_SIGN = {"nu", "t", "var"}
"""Those that may be negative; all others are at least 0."""

SHARED = {"matrix", "order", "D", "c", "distortion"}
"""Parameters that all rows of a batch have in common."""

ROUNDING = 1e-12
"""By how much, relative to the terms, a solver's multipliers may miss their conditions."""

TOO_LARGE, TOO_SMALL = (1023.0, 8184.0), (-8184.0, -1022.0)
"""log2 of multipliers that are ∞ as a double, and that are 0 or have few digits."""


def _rows(given: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {key: value if key in SHARED or len(value) == 1 else value[rows] for key, value in given.items()}


def _evaluate(name: str, given: dict[str, Any], h: Long, anchor: Long, dual: dict[str, Any]) -> Long:
    """The set's formula; NaN if a multiplier is missing or has the wrong sign."""
    columns = {key: _column(dual[key]) for key in KEYS[name]}
    if "y" in columns:  # rows that a solver answered have those of its program, which are more
        columns["y"] = columns["y"][:, : given["c"].size]
    with np.errstate(invalid="ignore", over="ignore"):
        bound = FORMULAS[name](given, h, anchor, columns)
    for key, value in columns.items():
        good = ~np.isnan(value) if key in ANY_SIGN else value >= 0.0
        bound = np.where(good.all(axis=1), bound, np.nan)
    return np.asarray(bound)


def bounds(case: Case, given: dict[str, Any], h: Long, anchor: Long, dual: dict[str, Array]) -> Long:
    """The bound minus the anchor for each row; NaN if the answer has no multipliers that prove one."""
    keys = KEYS.get(case.name, ())
    if keys and all(key in dual for key in keys):
        bound = _evaluate(case.name, given, h, anchor, dual)
        for key in {"eta", "lam", "pi", "tau", "margin"} & set(keys):
            wide = np.flatnonzero(np.isposinf(dual[key]))
            if wide.size:
                part = {each: dual[each][wide] for each in keys}
                least = _beyond_doubles(
                    case.name, _rows(given, wide), h[wide], anchor[wide], part, key, TOO_LARGE
                )
                bound[wide] = np.fmin(bound[wide], least)
    else:
        bound = np.full(len(h), np.nan, dtype=np.longdouble)
    if "y" in dual and ("y" not in keys or "eta" in keys):
        shared = None if case.by_row else program(case.subject(), case.size)
        reach = None if shared is None else farthest(shared)
        for b in np.flatnonzero(np.isnan(bound) & ~np.isnan(dual["y"][:, 0])):
            conic = shared or program(case.subject(int(b)), case.size)
            if dual["y"].shape[1] < conic.b.size:
                continue
            # A solver has all losses, those that no mass can reach too.
            bound[b] = _by_program(conic, case.losses[b] - anchor[b], dual["y"][b], reach)
    return bound


def _beyond_doubles(
    name: str,
    given: dict[str, Any],
    h: Long,
    anchor: Long,
    dual: dict[str, Any],
    key: str,
    exponents: tuple[float, float],
) -> Long:
    """The least bound over multipliers outside the range of doubles, by a grid of exponents made finer.

    For losses near 1e308 the best multiplier may be beyond 1.8e308, which is ∞ as a double; for losses near
    1e-300 it may be far below 1e-308, which is 0.
    """
    low, high = (np.full(len(h), exponent, np.longdouble) for exponent in exponents)
    best = np.full(len(h), np.inf, np.longdouble)
    for _ in range(8):
        grid = np.linspace(low, high, 65)
        found = np.array(
            [_evaluate(name, given, h, anchor, {**dual, key: np.exp2(at)}) for at in grid], np.longdouble
        )
        found = np.where(np.isnan(found), np.inf, found)
        first, rows = found.argmin(axis=0), np.arange(len(h))
        best = np.fmin(best, found[first, rows])
        low, high = grid[np.maximum(first - 1, 0), rows], grid[np.minimum(first + 1, 64), rows]
    return best


def worth_of_last_digits(
    case: Case, given: dict[str, Any], h: Long, anchor: Long, dual: dict[str, Array], bound: Long
) -> Long:
    """By how much the bound can change while the multipliers stay the same doubles.

    The bound is convex in the multipliers, so within half a unit in their last places it is at least
    2·bound - (its largest value at the corners): with more digits no less than that could be proved. A
    multiplier of 0 has one side only; there the bound at the corner could be proved.
    """
    keys = KEYS.get(case.name, ())
    scalars = [key for key in keys if key in dual and dual[key].ndim == 1]
    worth = np.zeros(len(h), dtype=np.longdouble)
    if not keys or not all(key in dual for key in keys):
        return worth
    for signs in product((-0.5, 0.5), repeat=len(scalars)):
        moved: dict[str, Any] = dict(dual)
        for key, sign in zip(scalars, signs, strict=True):
            with np.errstate(invalid="ignore"):
                step = sign * np.spacing(np.abs(dual[key])).astype(np.longdouble)
            value = dual[key].astype(np.longdouble) + np.where(np.isfinite(step), step, 0.0)
            moved[key] = value if key in ANY_SIGN else np.maximum(value, 0.0)
        with np.errstate(invalid="ignore"):
            worth = np.fmax(worth, np.abs(_evaluate(case.name, given, h, anchor, moved) - bound))
    for key in [each for each in scalars if each not in ANY_SIGN]:
        few = np.flatnonzero((dual[key] >= 0.0) & (dual[key] < np.finfo(float).tiny))
        if few.size:
            here = _rows(given, few), h[few], anchor[few]
            leasts = [
                _beyond_doubles(case.name, *here, part, key, TOO_SMALL)
                for part in _nu_within(dual, keys, few)
            ]
            least, most = np.min(leasts, axis=0), np.max(leasts, axis=0)
            with np.errstate(invalid="ignore"):
                worth[few] = np.fmax(worth[few], bound[few] - least + (most - least))
    return worth


def _nu_within(dual: dict[str, Array], keys: tuple[str, ...], rows: Any) -> list[dict[str, Any]]:
    """Those rows' multipliers, with ν as it is and half a unit in its last place to either side."""
    part: dict[str, Any] = {each: dual[each][rows] for each in keys}
    if "nu" not in keys:
        return [part]
    half = 0.5 * np.spacing(np.abs(part["nu"])).astype(np.longdouble)
    return [{**part, "nu": part["nu"] + sign * half} for sign in (-1.0, 0.0, 1.0)]


def farthest(conic: ConicProgram) -> Long:
    """How far from 0 each variable can be, from one row after another; ∞ where rows do not say."""
    matrix, b = conic.A.tocsr(), conic.b.astype(np.longdouble)
    low = np.full(matrix.shape[1], -np.inf, np.longdouble)
    high = -low
    low[conic.columns], high[conic.columns] = 0.0, 1.0
    rows = [(matrix.indices[i:j], matrix.data[i:j].astype(np.longdouble))
            for i, j in zip(matrix.indptr, matrix.indptr[1:], strict=False)]  # fmt: skip

    def ends(row: int) -> tuple[Any, Any]:
        """The least and the largest b - a·x."""
        at, a = rows[row]
        one, two = a * low[at], a * high[at]
        return b[row] - np.maximum(one, two).sum(), b[row] - np.minimum(one, two).sum()

    def narrow(row: int, least: Any, most: Any) -> None:
        """Use that b - a·x is between the two."""
        at, a = rows[row]
        for k, (j, value) in enumerate(zip(at, a, strict=True)):
            others = np.arange(at.size) != k
            one, two = a[others] * low[at[others]], a[others] * high[at[others]]
            limits = (
                (b[row] - most - np.maximum(one, two).sum()) / value,
                (b[row] - least - np.minimum(one, two).sum()) / value,
            )
            below, above = min(limits), max(limits)
            low[j] = below if below > low[j] else low[j]
            high[j] = above if above < high[j] else high[j]

    with np.errstate(invalid="ignore"):
        for _ in range(4):
            start = 0
            for kind, size in conic.cones:
                span = range(start, start + size)
                start += size
                for row in span:
                    if kind in {"zero", "nonneg"}:
                        narrow(row, 0.0, 0.0 if kind == "zero" else np.inf)
                    elif kind == "soc":
                        most = ends(span[0])[1]
                        narrow(row, 0.0 if row == span[0] else -most, np.inf if row == span[0] else most)
                    elif row == span[0]:  # x <= z/e for y·exp(x/y) <= z
                        narrow(row, -np.inf, ends(span[2])[1] / np.e)
                    else:
                        narrow(row, 0.0, np.inf)
    return np.maximum(np.abs(low), np.abs(high))


def _by_program(conic: ConicProgram, h: Long, y: Array, reach: Long | None = None) -> np.longdouble:
    """bᵀy + max(h - (Aᵀy)[columns]) if y is in the dual cone and Aᵀy = 0 elsewhere, otherwise ∞.

    What is left of Aᵀy at a variable counts with the largest size that the variable can have: beside others
    of 1, multipliers of 1e-27 have few digits.
    """
    y = y[: conic.b.size]
    if not np.isfinite(y).all():
        return np.longdouble(np.inf)
    if reach is None:
        reach = farthest(conic)
    wide = y.astype(np.longdouble)
    matrix = conic.A.tocoo()
    column = np.zeros(matrix.shape[1], dtype=np.longdouble)
    np.add.at(column, matrix.col, matrix.data.astype(np.longdouble) * wide[matrix.row])
    terms = np.zeros_like(column)
    np.add.at(terms, matrix.col, np.abs(matrix.data * wide[matrix.row]))
    others = np.setdiff1d(np.arange(column.size), conic.columns)
    scale = float(np.abs(y).max(initial=0.0)) or 1.0
    left = np.where(np.abs(column) > ROUNDING * terms, np.abs(column), 0.0)[others]
    with np.errstate(invalid="ignore"):
        counts = np.where(left > 0.0, left * reach[others], 0.0).sum()
    start, inside = 0, bool(np.isfinite(counts))
    for kind, size in conic.cones:
        part = wide[start : start + size]
        start += size
        if kind == "nonneg":
            inside &= bool((part >= -ROUNDING * scale).all())
        elif kind == "soc":
            inside &= bool(part[0] >= np.sqrt((part[1:] ** 2).sum()) - ROUNDING * scale)
        elif kind == "exp":
            inside &= _in_dual_exponential(part.reshape(-1, 3), ROUNDING * scale)
    if not inside:
        return np.longdouble(np.inf)
    bound = (conic.b.astype(np.longdouble) * wide).sum() + (h - column[conic.columns]).max()
    return np.longdouble(bound + counts)


def _in_dual_exponential(points: Long, slack: float) -> bool:
    """(u, v, w) with u < 0 and -u·exp(v/u - 1) <= w, or u = 0 and v, w >= 0; a row for each."""
    u, v, w = points.T
    with np.errstate(all="ignore"):
        needed = np.where(
            u < 0.0, -u * np.exp(v / np.where(u < 0.0, u, -1.0) - 1.0), np.where(v >= 0.0, 0.0, np.inf)
        )
    return bool((u <= 0.0).all() and (needed <= w + slack).all())


def _column(value: Any) -> Long:
    array = np.asarray(value, dtype=np.longdouble)
    return array[:, None] if array.ndim == 1 else array
