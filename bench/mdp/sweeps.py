"""Time per sweep: a row of the (s,a) case at 50 successors, and the s-rectangular updates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle

import numpy as np

from bench.mdp import dense
from bench.measuring.targets import Row, row
from bench.measuring.timing import Spread, interleave
from uncertainty_sets import KL, TotalVariation, UncertaintySet
from uncertainty_sets.arrays import Array
from uncertainty_sets.mdp import problems
from uncertainty_sets.mdp.by_action import ByAction
from uncertainty_sets.mdp.by_state import ByState
from uncertainty_sets.mdp.solution import Updater

Say = Callable[[str], None]

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
        model = getattr(dense, name)(states, actions)
        v = dense.after_some_sweeps(model)
        kinds: dict[str, tuple[type[UncertaintySet], float]] = {
            "KL": (KL, 0.005 * actions),
            "L1": (TotalVariation, 0.05 * actions),
        }
        calls: dict[str, Callable[[], object]] = {
            label: warm_sweep(ByState(model, kind, budget), v, seed)
            for label, (kind, budget) in kinds.items()
        }
        calls["plain"] = partial(dense.nominal_sweep, model, v)
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
