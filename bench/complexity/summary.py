"""From measured cells to the rows of the table: one row per set, numbers not yet formatted."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bench.complexity import paper
from bench.complexity.peers import CONSTANT, CVXPY, NUMPY

Cell = dict[str, Any]
Series = tuple[str, str, str]
"""Set, variant, method."""

SHOWN = (1_000, 10_000, 1_000_000)
"""The sizes whose times stand in the table."""


def series(document: dict[str, Any]) -> dict[Series, list[Cell]]:
    """The timed cells by set, variant and method, by rising N."""
    found: dict[Series, list[Cell]] = defaultdict(list)
    for cell in document["cells"]:
        if cell["seconds"] is not None:
            found[cell["set"], cell["variant"], cell["method"]].append(cell)
    return {key: sorted(cells, key=lambda cell: cell["size"]) for key, cells in found.items()}


def fitted(cells: list[Cell]) -> Fit | None:
    """The exponent of a series, if it is sure enough to be shown.

    Fitted to the least times, since noise only adds; the quartiles tell how much.
    """
    noise = [
        np.log(cell["high"] / cell["low"]) / 1.35 / np.sqrt(max(cell["rounds"], 1)) if cell["low"] else 0.0
        for cell in cells
    ]
    found = exponent([cell["size"] for cell in cells], [cell["least"] for cell in cells], noise)
    return found if found and found.sure else None


def rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for every set and variant, by its default method."""
    measured = series(document)
    table = []
    for about in document["notes"].get("variants", []):
        name, variant, method = about["set"], about["variant"], about["default"]
        cells = measured.get((name, variant, method), [])
        at = {cell["size"]: cell for cell in cells}
        fit = fitted(cells)
        claim = paper.CLAIMS.get(name)
        last = cells[-1] if cells else None
        rival, ratio = _against(
            cells, *(measured.get((name, variant, each), []) for each in (CVXPY, CONSTANT))
        )
        hand = {cell["size"]: cell["seconds"] for cell in measured.get((name, variant, NUMPY), [])}
        by_hand = [hand[size] / cell["seconds"] for size, cell in at.items() if size in hand]
        gaps = [abs(cell["gap"]) for cell in cells if cell["gap"] is not None]  # below 0 by rounding alone
        table.append(
            {
                "set": name,
                "variant": variant,
                "method": method,
                "formulation": about["formulation"],
                "paper_formulation": claim.formulation if claim else "",
                "paper_flexibility": claim.flexibility if claim else "",
                "parameters": about["parameters"],
                "paper_cost": claim.cost if claim else "",
                "our_cost": about["cost"],
                "exponent": fit.exponent if fit else None,
                "exponent_error": fit.error if fit else None,
                "exponent_from": fit.first if fit else None,
                "exponent_to": fit.last if fit else None,
                **{f"seconds_{size}": at[size]["seconds"] if size in at else None for size in SHOWN},
                "largest": last["size"] if last else None,
                "over_argsort": last["over_argsort"] if last else None,
                "numpy_over_ours_least": min(by_hand, default=None),
                "numpy_over_ours_most": max(by_hand, default=None),
                "cvxpy_over_ours": ratio,
                "cvxpy_at": rival,
                "gap": max(gaps) if gaps else None,
            }
        )
    return table


def _against(ours: list[Cell], *theirs: list[Cell]) -> tuple[int | None, float | None]:
    """The largest N at which one of the others succeeded, and the ratio of the quickest of them there."""
    at = {cell["size"]: cell["seconds"] for cell in ours}
    solved = [
        cell for cells in theirs for cell in cells if cell["outcome"] == "solved" and cell["size"] in at
    ]
    if not solved:
        return None, None
    size = max(cell["size"] for cell in solved)
    return size, min(cell["seconds"] for cell in solved if cell["size"] == size) / at[size]


def memory(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Peak bytes of a first call at the largest N that cvxpy solved with losses of either kind."""
    found = []
    measured = series(document)
    for about in document["notes"].get("variants", []):
        name, variant = about["set"], about["variant"]
        methods = {"ours": about["default"], "numpy": NUMPY, "parameter": CVXPY, "constant": CONSTANT}
        cells = {
            key: {cell["size"]: cell["memory"] for cell in measured.get((name, variant, method), [])}
            for key, method in methods.items()
        }
        common = set(cells["ours"]) & set(cells["parameter"]) & set(cells["constant"])
        if common:
            size = max(common)
            row = {"set": name, "variant": variant, "size": size}
            found.append(row | {key: cells[key].get(size) for key in methods})
    return found


def failures(document: dict[str, Any]) -> list[str]:
    """Cells that ended without an answer."""
    return [
        f"{cell['method']} for {cell['set']}{', ' + cell['variant'] if cell['variant'] else ''} "
        f"at N = {cell['size']:,} ({cell['note']})"
        for cell in document["cells"]
        if cell["outcome"] != "solved"
    ]


def exponents(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Every series with its exponent and how far it got."""
    found = []
    for (name, variant, method), cells in sorted(series(document).items()):
        fit = fitted(cells)
        last = cells[-1]
        found.append(
            {
                "set": name,
                "variant": variant,
                "method": method,
                "exponent": fit.exponent if fit else None,
                "exponent_error": fit.error if fit else None,
                "exponent_from": fit.first if fit else None,
                "largest": last["size"],
                "seconds": last["seconds"],
                "memory": last["memory"],
                "gap": last["gap"],
                "violation": last["violation"],
            }
        )
    return found


TAIL = 10_000
"""The exponent is fitted from this N on if there are enough points: below, the fixed cost of a call shows."""

ENOUGH = 3

DECADES, ERROR = 1.5, 0.1
"""An exponent over a shorter range of N, or with a larger standard error, says nothing and is not shown."""


class Fit(NamedTuple):
    """seconds ≈ c·N^exponent between `first` and `last`; `error` is one standard error."""

    exponent: float
    error: float
    first: int
    last: int
    points: int

    @property
    def sure(self) -> bool:
        """Whether the exponent may be shown."""
        return bool(np.log10(self.last / self.first) >= DECADES and self.error <= ERROR)


def exponent(sizes: ArrayLike, seconds: ArrayLike, noise: ArrayLike | None = None) -> Fit | None:
    """Least squares on logarithms, over N >= TAIL, or else over the largest sizes that span `DECADES`.

    Args:
        sizes: N.
        seconds: the median time at each.
        noise: the standard error of log(seconds) at each. The error of the exponent is the larger of what
            the noise explains and what the points' distance from a line shows: a bend counts too.

    Returns None for fewer than three points.

    >>> exponent([10_000, 100_000, 1_000_000], [0.001, 0.01, 0.1])
    Fit(exponent=1.0..., error=..., first=10000, last=1000000, points=3)
    """
    n, t = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    spread = np.zeros_like(t) if noise is None else np.asarray(noise, dtype=np.float64)
    good = np.isfinite(t) & (t > 0.0) & np.isfinite(spread)
    order = np.argsort(n[good])
    n, t, spread = n[good][order], t[good][order], spread[good][order]
    if n.size < ENOUGH:
        return None
    chosen = n >= TAIL
    if chosen.sum() < ENOUGH or n[-1] < n[chosen][0] * 10.0**DECADES:
        far = np.flatnonzero(n <= n[-1] / 10.0**DECADES)
        chosen = np.arange(n.size) >= min(far[-1] if far.size else 0, n.size - ENOUGH)
    x, y, s = np.log(n[chosen]), np.log(t[chosen]), spread[chosen]
    centred = x - x.mean()
    room = float(centred @ centred)
    slope = float(centred @ y) / room
    rest = y - y.mean() - slope * centred
    bend = float(np.sqrt(rest @ rest / (x.size - 2) / room))
    known = float(np.sqrt((centred * s) @ (centred * s))) / room
    return Fit(slope, max(bend, known), int(n[chosen][0]), int(n[chosen][-1]), int(x.size))
