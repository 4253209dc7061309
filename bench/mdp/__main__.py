"""Measure robust Markov decision processes against their targets: rows, sweeps, whole problems."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import cycle

import numpy as np

from bench.measuring import targets
from bench.measuring.targets import Row, Say, row
from bench.measuring.timing import Spread, interleave, peak_of
from uncertainty_sets import KL, TotalVariation, UncertaintySet
from uncertainty_sets.arrays import Array
from uncertainty_sets.mdp import MDP, RobustMDP, Solution, problems
from uncertainty_sets.mdp.by_action import ByAction
from uncertainty_sets.mdp.by_state import ByState
from uncertainty_sets.mdp.robust import Method, Rectangular
from uncertainty_sets.mdp.solution import Updater

DISCOUNT = 0.95


def inventory(states: int, actions: int) -> MDP:
    """Stock up to states - 1, orders in steps, Poisson demand of a sixth of the room, lost sales."""
    step, mean = max(1, states // (2 * actions)), states / 6
    stock, order, left = np.ogrid[:states, :actions, :states]
    level = np.minimum(stock + order * step, states - 1)
    demand = np.array([math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(states)])
    at_least = np.append(1.0, 1.0 - np.cumsum(demand))
    sold = np.maximum(level - left, 0)
    P = np.where(left > level, 0.0, np.where(left == 0, at_least[level], demand[sold]))
    R = 4.0 * sold - (level - stock) - 0.1 * left
    return MDP(spread_out(P), np.broadcast_to(R, P.shape), DISCOUNT)


def machine(states: int, actions: int) -> MDP:
    """Wear that grows by a random step; action 0 keeps, the last replaces, those between repair a part."""
    wear, action, after = np.ogrid[:states, :actions, :states]
    repaired = np.maximum(0, wear - action * states // actions)
    base = np.where(action == 0, wear, np.where(action == actions - 1, 0, repaired))
    weight = np.where(after >= base, 0.6 ** np.abs(after - base - 1.0), 0.0) + 1e-12
    P = weight / weight.sum(axis=2, keepdims=True)
    R = 10.0 - 0.02 * wear[..., 0] ** 2 - np.where(action[..., 0] == 0, 0.0, 3.0 + 2.0 * action[..., 0])
    return MDP(spread_out(P), R, DISCOUNT)


def spread_out(P: Array) -> Array:
    """Give every next state some probability."""
    P = P + 1.0 / (10 * P.shape[2])
    return np.asarray(P / P.sum(axis=2, keepdims=True))


def nominal_sweep(model: MDP, v: Array) -> Array:
    """One plain Bellman update, vectorised: what a robust one is compared with."""
    shape = (model.states, -1, model.states)
    P = model.probabilities.reshape(shape)
    expected = P @ (model.discount * v) + model.row_rewards.reshape(shape[:2])
    if model.entry_rewards is not None:
        expected += (P * model.entry_rewards.reshape(shape)).sum(axis=2)
    return np.asarray(expected.max(axis=1))


def after_some_sweeps(model: MDP, sweeps: int = 20) -> Array:
    """Values of a problem under way."""
    v = np.zeros(model.states)
    for _ in range(sweeps):
        v = nominal_sweep(model, v)
    return v


DENSE = {"inventory": inventory, "machine": machine}

PER_ROW = {"KL": (KL, 0.1, 1.0), "Total variation": (TotalVariation, 0.1, 3.0)}
"""Radius, and the promised microseconds per row."""

JOINT = {
    ("inventory", 50, 5): {"KL": 0.15, "L1": 0.05},
    ("inventory", 100, 10): {"KL": 0.8, "L1": 0.37},
    ("machine", 20, 2): {"KL": 0.02, "L1": 0.007},
    ("machine", 100, 10): {"KL": 0.6, "L1": 0.37},
}
"""Milliseconds per warm sweep that a first version took, on one thread; 1.5 times as much is allowed."""


def warm_sweep(updater: Updater, v: Array, seed: int) -> Callable[[], object]:
    """A sweep of value iteration, at values a little different from the last sweep's."""
    rng = np.random.default_rng(seed)
    values = cycle([v + 0.01 * rng.normal(size=v.size) for _ in range(7)])
    updater.improve(v)
    return lambda: updater.improve(next(values), transitions=False)


def per_row(states: int, rounds: int, seed: int, say: Say) -> list[Row]:
    """Microseconds per state-action with 50 successors, warm."""
    say("rows with 50 successors")
    model = problems.garnet(states, 5, 50, seed=seed)
    v = np.random.default_rng(seed).normal(size=states)
    calls = {
        label: warm_sweep(ByAction(model, kind, {"radius": radius}, optimistic=False), v, seed)
        for label, (kind, radius, _) in PER_ROW.items()
    }
    samples = interleave(calls, rounds)
    group = f"a state-action row with 50 successors, in sweeps over {model.rows:,} rows"
    return [
        row(group, label, scaled(samples.time(label), 1e6 / model.rows), "µs", limit)
        for label, (_, _, limit) in PER_ROW.items()
    ]


def joint(largest: int, rounds: int, seed: int, say: Say) -> list[Row]:
    """Milliseconds per s-rectangular sweep, warm, beside a plain Bellman sweep; without transitions."""
    rows = []
    for (name, states, actions), limits in JOINT.items():
        if states > largest:
            continue
        say(f"{name} {states}×{actions}")
        model = DENSE[name](states, actions)
        v = after_some_sweeps(model)
        kinds: dict[str, tuple[type[UncertaintySet], float]] = {
            "KL": (KL, 0.005 * actions),
            "L1": (TotalVariation, 0.05 * actions),
        }
        calls: dict[str, Callable[[], object]] = {
            label: warm_sweep(ByState(model, kind, budget), v, seed)
            for label, (kind, budget) in kinds.items()
        }
        calls["plain"] = partial(nominal_sweep, model, v)
        samples = interleave(calls, rounds)
        for label in kinds:
            rows.append(
                row(
                    "s-rectangular sweeps, warm",
                    f"{name} {states}×{actions}, {label}",
                    scaled(samples.time(label), 1e3),
                    "ms",
                    1.5 * limits[label],
                    note=f"{samples.ratio(label, 'plain').median:.1f} times a plain Bellman sweep",
                )
            )
    return rows


def scaled(measured: Spread, factor: float) -> Spread:
    """The same in another unit."""
    median, low, high = factor * measured.median, factor * measured.low, factor * measured.high
    return Spread(median, low, high, factor * measured.least, measured.count)


def small(states: int, say: Say) -> list[Row]:
    """Inventory with 10 actions to a proved 1e-6, a set per state-action and a budget per state."""
    model, rows = inventory(states, 10), []
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


def measurements(quick: bool, seed: int, scale: float, say: Say) -> dict[str, Callable[[], Iterable[Row]]]:
    """What is measured, by name; `scale` shrinks the sizes (for tests; the numbers then mean nothing)."""
    rounds = 5 if quick else 15
    return {
        "rows": lambda: per_row(max(60, int(5_000 * scale)), rounds, seed, say),
        "joint": lambda: joint(max(20, int(100 * scale)), rounds, seed, say),
        "small": lambda: small(max(20, int(100 * scale)), say),
        "large": lambda: large(max(60, int((20_000 if quick else 100_000) * scale)), seed, say),
    }


def main(arguments: list[str]) -> int:
    """Measure and print the table."""
    title, quick = "Robust Markov decision processes", "fewer repeats, 20,000 states"
    return targets.run(arguments, "mdp", title, str(__doc__), quick, measurements)
