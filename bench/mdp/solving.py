"""Whole problems, to a proved accuracy: seconds, sweeps and memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from bench.mdp import dense
from bench.measuring.memory import peak_of
from bench.measuring.targets import Row
from uncertainty_sets import KL, TotalVariation
from uncertainty_sets.mdp import MDP, RobustMDP, Solution, problems
from uncertainty_sets.mdp.robust import Method, Rectangular

Say = Callable[[str], None]


def small(states: int, say: Say) -> list[Row]:
    """Inventory with 10 actions to a proved 1e-6, a set per state-action and a budget per state."""
    model, rows = dense.inventory(states, 10), []
    rectangles: tuple[Rectangular, ...] = ("sa", "s")
    for kind, radius in ((KL, 0.05), (TotalVariation, 0.1)):
        for rectangular in rectangles:
            label = f"{kind.__name__}, rectangular={rectangular!r}"
            say(f"inventory {states}×10, {label}")
            problem = RobustMDP.of(model, kind, radius=radius, rectangular=rectangular)
            problem.solve(tolerance=1e-6)  # compiles
            again = RobustMDP.of(model, kind, radius=radius, rectangular=rectangular)
            seconds, solution = timed(partial(again.solve, tolerance=1e-6))
            limit = 1.0 if solution.width <= 1e-6 else 0.0
            rows.append(
                Row(
                    f"inventory {states}×10 to a proved 1e-6",
                    label,
                    seconds,
                    "s",
                    limit,
                    note=words(solution),
                )
            )
    return rows


def large(states: int, seed: int, say: Say) -> list[Row]:
    """A random sparse problem to a proved 1e-4: 5 actions, 10 successors, KL."""
    rows = []
    methods: tuple[Method, ...] = ("policy", "value")
    for method in methods:
        say(f"{states:,} states × 5 actions × 10 successors, {method} iteration")
        model = problems.garnet(states, 5, 10, seed=seed)
        (seconds, solution), memory = peak_of(partial(timed, partial(build_and_solve, model, method)))
        group = f"{states:,} states × 5 actions × 10 successors, KL by (s,a), to a proved 1e-4"
        limit = 60.0 if solution.width <= 1e-4 else 0.0
        rows.append(Row(group, f"{method} iteration", seconds, "s", limit, note=words(solution)))
        if memory is not None:
            rows.append(Row(group, f"{method} iteration, memory above the model's", memory / 1e9, "GB", 2.0))
    return rows


def build_and_solve(model: MDP, method: Method) -> Solution:
    """Solve with a KL ball per state-action."""
    return RobustMDP.of(model, KL, radius=0.1).solve(method, tolerance=1e-4)


def timed(call: Callable[[], Solution]) -> tuple[float, Solution]:
    """Seconds by the clock: several threads work."""
    start = time.perf_counter()
    solution = call()
    return time.perf_counter() - start, solution


def words(solution: Solution) -> str:
    """Sweeps and proved width."""
    return f"{solution.sweeps} sweeps, proved within {solution.width:.1e}"
