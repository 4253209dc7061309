"""The search for settings, the same for every method: as many trials, drawn and judged in the same way.

The first trial is the method's default; the others are drawn from its ranges with one seed. A trial's score
is the worst-worker accuracy on data held out of training (or what else the task is judged by), of the model
that the stopping rule takes, averaged over the tuning seeds. With halving, all trials are run with the first
seed, and after each seed the better half goes on to the next: twelve trials and three seeds are 12 + 6 + 3
runs, for the price of seven trials without. The results use other seeds. If the best value of a setting is at
the end of its range, the search goes on beyond it (`edges`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from bench.experiments.runs.methods import Method, Range, Setup
from bench.experiments.runs.task import Task
from fdro_core.errors import InvalidSetting
from fdro_core.protocol.tuning import Choice, Space

FIRST_SEED = 10_000


def candidates(method: Method, trials: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return the settings to try: the default, then drawn ones.

    A choice that is to be covered (the worker of Ind_j, whose best is over all j) goes through its values in
    turn instead of being drawn; if it has more values than `trials`, there are as many trials.
    """
    rng = np.random.default_rng([seed, *(method.family or method.name).encode()])
    covered = {
        name: space.values
        for name, space in method.search.items()
        if isinstance(space, Choice) and space.cover
    }
    trials = max(trials, *map(len, covered.values()), 1)
    drawn = [{name: space.draw(rng) for name, space in method.search.items()} for _ in range(trials - 1)]
    for place, settings in enumerate(drawn, start=1):
        settings |= {name: values[place % len(values)] for name, values in covered.items()}
    return [dict(method.default), *drawn]


def trial(base: Task, method: Method, settings: Mapping[str, Any], repeats: int, seed: int) -> list[Task]:
    """Return the tasks of one trial, a seed each."""
    return [
        replace(base, method=method.name, settings=settings, stage="tune", seed=FIRST_SEED + seed + repeat)
        for repeat in range(repeats)
    ]


Score = tuple[float, float]
"""What a trial is judged by: the accuracy; among equals, the loss with a minus.

Trials whose worst worker has nothing right are equals, and one may still be on the way.
"""


def score(records: Sequence[Mapping[str, Any]]) -> Score:
    """Return the mean score of one trial's records."""
    metrics = [record["metrics"] for record in records]
    judged = [record["metrics"][f"held_{record.get('judge', 'acc_w')}"] for record in records]
    losses = [found.get("held_loss_w") for found in metrics]
    known = [-np.inf if loss is None or not np.isfinite(loss) else -loss for loss in losses]
    return float(np.mean(judged)), float(np.mean(known))


def better(trials: Sequence[dict[str, Any]], scores: Sequence[Score], count: int) -> list[dict[str, Any]]:
    """Return so many trials with the best scores, in the order given; the earlier among equals.

    >>> better([{"step": 0.1}, {"step": 0.5}, {"step": 2.0}], [(0.0, -9.0), (0.7, -1.0), (0.0, -2.0)], 2)
    [{'step': 0.5}, {'step': 2.0}]
    """
    order = sorted(range(len(trials)), key=lambda place: scores[place], reverse=True)
    return [trials[place] for place in sorted(order[:count])]


OUTER = 0.05  # the usual share of a range, on its logarithmic scale
FACTOR = 10**0.5
MOST = 6

Settings = dict[str, Any]
Allowed = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Edge:
    """A setting whose best value is at the end of what was searched.

    Attributes:
        method: its name.
        setting: its name.
        value: the best one.
        low, high: the ends of the range, or the first and last choice.
        side: -1 at the lower end, 1 at the upper one.
        beyond: the next value outwards.
    """

    method: str
    setting: str
    value: float
    low: float
    high: float
    side: int
    beyond: float

    def __str__(self) -> str:
        where = "of" if self.low <= self.value <= self.high else "outside"
        end = ("lower" if self.side < 0 else "upper") + " end "
        return f"{self.method}: {self.setting} {self.value:g}, {end}{where} [{self.low:g}, {self.high:g}]"


def ends(space: Space) -> tuple[float, float, float, float] | None:
    """Return low, high and the factors that lead beyond each; None if the values have no order.

    >>> ends(Choice((2, 5, 10)))
    (2, 10, 0.4, 2.0)
    """
    if isinstance(space, Range):
        return space.low, space.high, 1 / FACTOR, FACTOR
    values = space.values
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if space.cover or len(values) < 2 or not numbers or any(a >= b for a, b in pairwise(values)):
        return None
    down = values[0] / values[1] if values[0] > 0 else 1.0  # from 0 no factor leads on
    up = values[-1] / values[-2] if values[-2] > 0 else FACTOR
    return values[0], values[-1], down, up


def side(space: Space, value: Any, outer: float = OUTER) -> int:
    """Return -1 or 1 if the value is at the lower or upper end, or beyond it; else 0.

    >>> side(Range(0.1, 10.0), 8.0), side(Range(0.1, 10.0), 7.0), side(Range(0.1, 10.0), 30.0)
    (1, 0, 1)
    >>> side(Range(0.1, 10.0), 7.0, outer=0.25)
    1
    """
    found = ends(space)
    if found is None:
        return 0
    low, high = found[:2]
    if isinstance(space, Range):
        place = np.log(value / low) / np.log(high / low)
        return -1 if place <= outer else 1 if place >= 1 - outer else 0
    return -1 if value <= low else 1 if value >= high else 0


def beyond(space: Space, value: Any, outer: float = OUTER) -> Any:
    """Return the next value outwards from one at an end; None if there is none within the limits.

    >>> beyond(Range(0.1, 10.0), 8.0), beyond(Choice((2, 5, 10)), 2), beyond(Choice((1, 5, 10)), 1)
    (25.3, 1, None)
    """
    found, at = ends(space), side(space, value, outer)
    if found is None or at == 0:
        return None
    smallest, largest = space.limits
    moved = min(max(float(f"{value * found[2 if at < 0 else 3]:.3g}"), smallest), largest)
    if isinstance(space, Choice) and all(isinstance(each, int) for each in space.values):
        moved = max(1, round(moved))
    return None if moved in {value, 0} else moved


def edges(
    method: Method, settings: Mapping[str, Any], allowed: Allowed = lambda _: True, outer: float = OUTER
) -> list[Edge]:
    """Return the settings at an end with something beyond that the method does not refuse."""
    found = []
    for name, space in method.search.items():
        known = ends(space)
        further = None if known is None else beyond(space, settings[name], outer)
        if known is not None and further is not None and allowed({**settings, name: further}):
            at = side(space, settings[name], outer)
            found.append(Edge(method.name, name, settings[name], known[0], known[1], at, further))
    return found


def widened(
    method: Method,
    best: Settings,
    score: Score,
    allowed: Allowed = lambda _: True,
    outer: float = OUTER,
) -> Generator[Settings, Score, tuple[Settings, list[Edge]]]:
    """Yield settings to try; take their score; return the best and the ends that `MOST` left open."""
    settled: set[tuple[str, int]] = set()

    def left() -> list[Edge]:
        found = edges(method, best, allowed, outer)
        return [each for each in found if (each.setting, each.side) not in settled]

    for _ in range(MOST):
        if not left():
            break
        edge = left()[0]
        tried = {**best, edge.setting: edge.beyond}
        reached = yield tried
        if reached > score:
            best, score = tried, reached
        else:
            settled.add((edge.setting, edge.side))
    return best, left()


def accepts(method: Method, workers: int, batch: int | None) -> Allowed:
    """Return what tells whether a method takes settings at all."""
    setup = Setup(np.full(workers, 1 / workers), 1, batch, 0, lambda: np.ones(workers))

    def allowed(settings: Mapping[str, Any]) -> bool:
        try:
            method.config(setup, settings).check(workers, method.uncertainty_set(setup, settings))
        except InvalidSetting:
            return False
        return True

    return allowed
