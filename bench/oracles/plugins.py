"""Rows of sets that have only constraints, by a solver: in a batch, one by one, and the solver alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

from bench.measuring.targets import Row
from bench.measuring.timing import interleave
from uncertainty_sets import Polyhedron, UncertaintySet
from uncertainty_sets.arrays import Array
from uncertainty_sets.conic.compiled import compiled

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


def rows(count: int, size: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
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
