"""The measurements behind the complexity table: every set, every method that can do it, over N.

A group is one set at one N: all methods and np.argsort in turn, so that ratios come from the same moments.
A method leaves the race when its next call is expected to exceed the time limit of a cell.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.complexity.peers import NUMPY, Peer
from bench.complexity.variants import Variant
from bench.measuring.timing import Spread, interleave, once, peak_of
from uncertainty_sets import UncertaintySet, available_backends
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import BackendUnsuitable, SolverFailed

Cell = dict[str, Any]

ARGSORT = "np.argsort"

OWN = 12.0
"""How much longer than others a set's own method may take: the table is about its largest N."""


@dataclass(frozen=True)
class Settings:
    """How much to measure.

    Attributes:
        sizes: N, rising.
        limit: seconds a first call may take (set-up included) before larger N are skipped for the method.
        budget: seconds for the repeats of one cell.
        rounds: repeats at most.
        programs_to: the largest N for methods other than the set's own and NumPy, however fast they are.
        seed: for sets and losses.
    """

    sizes: tuple[int, ...]
    limit: float
    budget: float
    rounds: int
    programs_to: int = 10**9
    seed: int = 0


QUICK = Settings(
    (10, 100, 320, 1_000, 3_200, 10_000, 32_000, 100_000, 320_000, 1_000_000),
    limit=0.25,
    budget=0.05,
    rounds=5,
    programs_to=1_000,
)
FULL = Settings(
    (10, 32, 100, 320, 1_000, 3_200, 10_000, 32_000, 100_000, 320_000, 1_000_000),
    limit=2.0,
    budget=0.5,
    rounds=15,
)


def methods(variant: Variant) -> tuple[list[str], str]:
    """Return the backends that can solve a set, found by trying them at a small N, and the default one."""
    rng = np.random.default_rng(0)
    size = 6
    uncertainty_set, losses = variant.make(size, rng), rng.normal(size=size)
    able = []
    for backend in available_backends():
        try:
            uncertainty_set.worst_case(losses, backend=backend)
        except (BackendUnsuitable, NotImplementedError):
            continue
        except SolverFailed:
            pass  # it has the cones, and may do better at another size
        able.append(backend)
    return able, uncertainty_set.worst_case(losses).backend


PROGRAMS_TO = 100_000
"""The largest N at which a set with constraints alone is made and solved."""


def largest(variant: Variant) -> int:
    """Return the largest N at which the set is measured."""
    return variant.largest if variant.closed_form else min(variant.largest, PROGRAMS_TO)


def expected(cells: list[Cell], variant: Variant, method: str, size: int, limit: float) -> float:
    """Seconds that a first call at this N will take, by the last two sizes measured; 0 for a first cell."""
    earlier = [
        cell
        for cell in cells
        if (cell["set"], cell["variant"], cell["method"]) == (variant.name, variant.label, method)
        and cell["size"] < size
    ]
    earlier.sort(key=lambda cell: cell["size"])
    if not earlier:
        return 0.0
    last = earlier[-1]
    slope = 0.0
    if len(earlier) > 1:
        before = earlier[-2]
        slope = float(np.log(last["first"] / before["first"]) / np.log(last["size"] / before["size"]))
    least = 1.0 if last["first"] > limit / 3 else 0.0  # what takes milliseconds may be a fixed cost
    if last["size"] >= 100:
        least = max(least, variant.growth)
    return float(last["first"] * (size / last["size"]) ** min(max(slope, least), 5.0))


def measure(
    variant: Variant,
    size: int,
    backends: list[str],
    default: str,
    peers: list[Peer],
    cells: list[Cell],
    settings: Settings,
) -> list[Cell]:
    """Measure one group, the cells of a set at one N.

    Args:
        variant: the set.
        size: N.
        backends: our own methods that can do it.
        default: the one of them that the set takes itself.
        peers: others' methods that can do it.
        cells: what was measured before, from which it is decided who still takes part.
        settings: limits.
    """
    rng = np.random.default_rng([settings.seed, size])
    try:
        uncertainty_set = variant.make(size, rng)
    except Exception as error:  # somebody's own set; the other groups go on
        failed = {"outcome": "failed", "first": 0.0, "note": f"no set of that size: {type(error).__name__}"}
        return [_new_cell(variant, default, size, False) | failed]
    losses = rng.normal(size=size)
    spread = max(float(np.ptp(losses)), 1e-300)
    calls: dict[str, Callable[[], object]] = {ARGSORT: partial(np.argsort, losses)}
    known: dict[str, float] = {}
    found: list[Cell] = []
    best = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # solvers warn of inaccurate answers; the cell's outcome records it
        np.argsort(losses)
        known[ARGSORT] = once(calls[ARGSORT])
        for method, start in _contestants(variant, uncertainty_set, size, backends, default, peers):
            limit = settings.limit * (OWN if method == default else 1.0)
            if method not in {default, NUMPY} and size > settings.programs_to:
                continue
            if expected(cells, variant, method, size, limit) > limit:
                continue
            cell = _new_cell(variant, method, size, method not in backends)
            call = _first_call(cell, start, losses, spread, best)
            found.append(cell)
            if call is None:
                continue
            if method in backends and not np.isfinite(best):
                best = cell["value"]
            known[method] = cell["first"] if cell["first"] > settings.limit / 4 else once(call)
            calls[method] = call
        samples = interleave(calls, settings.rounds, settings.budget, least=1, known=known)
    for cell in found:
        if cell["method"] in calls:
            _fill(cell, samples.time(cell["method"]), samples.ratio(cell["method"], ARGSORT))
            cell["argsort"] = samples.time(ARGSORT).median
    return found


Start = Callable[[Array], tuple[float, float, float]]
"""(value, gap, violation) for losses; a gap of NaN if the method proves nothing."""


def _contestants(
    variant: Variant,
    uncertainty_set: UncertaintySet,
    size: int,
    backends: list[str],
    default: str,
    peers: list[Peer],
) -> list[tuple[str, Callable[[], Start]]]:
    """Every method with a function that sets it up."""

    def ours(backend: str) -> Start:
        def solve(losses: Array) -> tuple[float, float, float]:
            answer = uncertainty_set.worst_case(losses, backend=backend)
            return answer.value, answer.gap, answer.violation

        return solve

    def theirs(peer: Peer) -> Start:
        solve = peer.make(uncertainty_set, size)
        return lambda losses: (solve(losses), np.nan, np.nan)

    # The set's own method first: the others' values are compared with its.
    order = sorted(backends, key=lambda backend: backend != default)
    entries: list[tuple[str, Callable[[], Start]]] = [(each, partial(ours, each)) for each in order]
    entries += [(peer.title, partial(theirs, peer)) for peer in peers if peer.can(variant)]
    return entries


def _first_call(
    cell: Cell, start: Callable[[], Start], losses: Array, spread: float, best: float
) -> Callable[[], object] | None:
    """Set a method up and call it once, with time and memory; return None if it failed."""
    began = time.process_time()
    try:
        (solve, (value, gap, violation), seconds), memory = peak_of(lambda: _set_up(start, losses))
    except Exception as error:  # a solver, a peer or somebody's own set; the other cells go on
        cell |= {"outcome": "failed", "first": time.process_time() - began, "note": type(error).__name__}
        return None
    cell |= {"first": seconds, "memory": memory, "value": _finite(value)}
    if cell["peer"] and np.isfinite(value) and np.isfinite(best):
        gap = abs(value - best)
    cell |= {"gap": _finite(gap / spread), "violation": _finite(violation)}
    if cell["peer"] and not np.isfinite(value) and cell["method"].startswith("cvxpy"):
        cell |= {"outcome": "failed", "note": "the solver gave no optimal answer"}
    return partial(solve, losses)


def _set_up(start: Callable[[], Start], losses: Array) -> tuple[Start, tuple[float, float, float], float]:
    began, busy = time.perf_counter(), time.process_time()
    solve = start()
    answer = solve(losses)
    return solve, answer, min(time.perf_counter() - began, time.process_time() - busy)


def _new_cell(variant: Variant, method: str, size: int, peer: bool) -> Cell:
    return {
        "set": variant.name,
        "variant": variant.label,
        "method": method,
        "peer": peer,
        "size": size,
        "outcome": "solved",
        "seconds": None,
        "low": None,
        "high": None,
        "least": None,
        "rounds": 0,
        "over_argsort": None,
        "argsort": None,
        "first": None,
        "memory": None,
        "value": None,
        "gap": None,
        "violation": None,
        "note": "",
    }


def _fill(cell: Cell, seconds: Spread, ratio: Spread) -> None:
    cell |= {
        "seconds": _finite(seconds.median),
        "low": _finite(seconds.low),
        "high": _finite(seconds.high),
        "least": _finite(seconds.least),
        "rounds": seconds.count,
        "over_argsort": _finite(ratio.median),
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
