"""Our oracles against re-solving a compiled cvxpy problem; and rows of sets that have only constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Any

import cvxpy as cp
import numpy as np

from bench.complexity.report import duration
from bench.measuring import cases
from bench.measuring.models import Model, from_constraints, model
from bench.measuring.targets import Row, row
from bench.measuring.timing import Spread, interleave, once
from uncertainty_sets import Polyhedron, UncertaintySet
from uncertainty_sets.arrays import Array
from uncertainty_sets.conic.compile import compiled

CLARABEL_LIMIT, KL_LIMIT = 500.0, 1_000.0
"""For every closed form, and for KL."""

RACE_BUDGET, BUDGET = 1.0, 20.0
"""Seconds that one competitor may take in a race of more than three rounds; with the polyhedron."""

PLAN_LIMIT, DENSE_LIMIT = 10_000.0, 30.0
WARM_LIMIT, UNRELATED_LIMIT = 20.0, 1.0


def against_clarabel(size: int, rounds: int, seed: int, say: Callable[[str], None]) -> Iterator[Row]:
    """Every closed form of the registry, its middle set, over cvxpy + Clarabel; a few at a smaller N."""
    for case in cases.closed_forms():
        n = min(size, case.programs)
        say(f"cvxpy + Clarabel at N = {n:,}: {case.label}")
        limit = KL_LIMIT if case is cases.KL_ else CLARABEL_LIMIT
        # A plan has N² variables; on a line the set's own constraints need only N.
        formulate = from_constraints if case is cases.LINE else model
        group = f"cvxpy + Clarabel over ours, N = {size:,}"
        yield _race(case, n, rounds, seed, limit, group, formulate)


def small_problems(plan: int, dense: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Wasserstein-1 as the paper's transport program, and the dense ellipsoid."""
    rows = []
    for case, size, limit in ((cases.LINE, plan, PLAN_LIMIT), (cases.DENSE, dense, DENSE_LIMIT)):
        say(f"cvxpy + Clarabel at N = {size:,}: {case.label}")
        rows.append(_race(case, size, rounds, seed, limit, "cvxpy + Clarabel over ours, smaller N"))
    return rows


def _race(
    case: cases.Case,
    size: int,
    rounds: int,
    seed: int,
    limit: float,
    group: str,
    formulate: Callable[[UncertaintySet], Model] = model,
) -> Row:
    rng = np.random.default_rng([seed, size])
    q = cases.center(size, rng)
    uncertainty_set = case.make(q, "middle", rng)
    theirs = formulate(uncertainty_set)
    draws = [cases.losses(size, rng) for _ in range(4)]
    asked, given = cycle(draws), cycle(draws)
    values = [(theirs.solve(f), float(uncertainty_set.worst_case(f).value)) for f in draws[:1]]  # compiles
    calls: dict[str, Callable[[], object]] = {
        "theirs": lambda: theirs.solve(next(asked)),
        "ours": lambda: uncertainty_set.worst_case(next(given)),
    }
    known = {"theirs": float("inf"), "ours": once(calls["ours"])}  # one solve per sample
    theirs.failures = theirs.calls = 0
    samples = interleave(calls, rounds, RACE_BUDGET, least=min(3, rounds), known=known)
    ratio = samples.ratio("theirs", "ours")
    apart = max((abs(a - b) for a, b in values if np.isfinite(a)), default=float("nan"))
    note = (
        f"{_time(samples.time('theirs'))} against {_time(samples.time('ours'))}; "
        f"failed {theirs.failures} of {theirs.calls}; values differ by {apart:.0e}"
    )
    return row(group, f"{case.label}, N = {size:,}", ratio, "×", limit, at_least=True, note=note)


def polyhedron(size: int, count: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """A linear program with `count` rows: losses that move by 1 %, and losses with nothing in common.

    cvxpy hands HiGHS its last solution by default, and starts from nothing with warm_start=False.
    """
    say(f"cvxpy + HiGHS: polyhedron, N = {size:,} with {count} rows")
    rng = np.random.default_rng([seed, size, count])
    D = rng.normal(size=(count, size))
    ours = Polyhedron(D, D @ cases.center(size, rng) + 0.05)
    theirs = model(ours, "HIGHS")
    first = cases.losses(size, rng)
    group, rows = f"cvxpy + HiGHS over ours, polyhedron N = {size:,} with {count} rows", []
    for what, stream, limit in (
        ("losses moved by 1 % of their spread", _walk(first, rng), WARM_LIMIT),
        ("unrelated losses", _fresh(size, rng), UNRELATED_LIMIT),
    ):
        sequence = [next(stream) for _ in range(rounds + 2)]
        given, warm, cold = cycle(sequence), cycle(sequence), cycle(sequence)
        theirs.failures = theirs.calls = 0
        samples = interleave(
            {
                "ours": _next(ours.worst_case, given),
                "warm": _next(theirs.solve, warm),
                "cold": _next(partial(theirs.solve, warm=False), cold),
            },
            rounds,
            BUDGET,
            least=1,  # one call per sample, since a repeat with the same losses would be free
        )
        for how, words in (("cold", "cvxpy started cold"), ("warm", "cvxpy with its last solution")):
            note = f"{_time(samples.time(how))} against {_time(samples.time('ours'))}"
            note += f"; failed {theirs.failures} of {theirs.calls}"
            ratio = samples.ratio(how, "ours")
            rows.append(row(group, f"{what}, {words}", ratio, "×", limit, at_least=True, note=note))
    return rows


def _next(solve: Callable[[Array], object], losses: Iterator[Array]) -> Callable[[], object]:
    return lambda: solve(next(losses))


def _walk(first: Array, rng: np.random.Generator) -> Iterator[Array]:
    reach = 0.01 * float(np.ptp(first))
    while True:
        yield first + reach * rng.uniform(-1.0, 1.0, first.size)


def _fresh(size: int, rng: np.random.Generator) -> Iterator[Array]:
    while True:
        yield cases.losses(size, rng)


def _time(spread: Spread) -> str:
    return duration(spread.median)


LIMIT = 500.0
"""Microseconds a row at N = 10, by Clarabel or HiGHS."""


class Plugin(UncertaintySet):
    """A ball around a centre by one cvxpy constraint, as a user would write it."""

    def __init__(self, center: Array, radius: float, measure: Callable[[Any, Array], Any]) -> None:
        self.center, self.radius, self.measure = center, radius, measure
        self.size = center.size

    def constraints(self, p: cp.Variable) -> list[cp.Constraint]:
        """measure(p, center) <= radius."""
        return [self.measure(p, self.center) <= self.radius]


def plugins(size: int, seed: int) -> dict[str, tuple[UncertaintySet, str]]:
    """A set and its solver for each kind of cone."""
    rng = np.random.default_rng([seed, size])
    q = rng.dirichlet(np.full(size, 5.0))
    total_variation = Plugin(q, 0.2, lambda p, center: cp.norm1(p - center))
    euclidean = Plugin(q, 0.1, lambda p, center: cp.norm(p - center))
    entropic = Plugin(q, 0.1, lambda p, center: cp.sum(cp.rel_entr(p, center)))
    polyhedron = Polyhedron.example(size, rng)
    return {
        "polyhedron, HiGHS": (polyhedron, "highs"),
        "total variation, HiGHS": (total_variation, "highs"),
        "polyhedron, Clarabel": (polyhedron, "clarabel"),
        "Euclidean ball, Clarabel": (euclidean, "clarabel"),
        "relative entropy, Clarabel": (entropic, "clarabel"),
    }


def plugin_rows(count: int, size: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Microseconds a row of a batch of unrelated losses."""
    say(f"plug-ins: batches of shape ({count:,}, {size})")
    losses = np.random.default_rng(seed).normal(size=(count, size))
    found = []
    for label, (subject, backend) in plugins(size, seed).items():
        samples = interleave(_calls(subject, backend, losses), rounds, least=rounds)
        unit, batch = 1e6 / count, samples.time("batch")
        others = [f"{way} {samples.time(way).least * unit:.0f}" for way in ("one by one", "solver alone")]
        note = f"least of {batch.count} rounds; {', '.join(others)}"
        low, high, least = batch.low * unit, batch.high * unit, batch.least * unit
        group = f"a row of a ({count:,}, {size}) batch by a solver"
        found.append(Row(group, label, least, "µs", LIMIT, low=low, high=high, note=note))
    return found


def _calls(subject: UncertaintySet, backend: str, losses: Array) -> dict[str, Callable[[], object]]:
    """A batch, a loop of single calls, and the solver without certificate and membership."""
    program = compiled(subject, losses.shape[1])
    costs = [program.program.cost(f / np.abs(f).max()) for f in losses]
    return {
        "batch": lambda: subject.worst_case(losses, backend=backend),
        "one by one": lambda: [subject.worst_case(f, backend=backend) for f in losses],
        "solver alone": lambda: [program.solver(backend).solve(cost) for cost in costs],
    }
