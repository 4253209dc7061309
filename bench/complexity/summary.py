"""From measured cells to the rows of the table: one row per set, numbers not yet formatted."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from bench.complexity import paper
from bench.complexity.fit import Fit, exponent
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
