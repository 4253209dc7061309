"""Views for `entropy_pooling`: certificates recomputed in long double, one and two views solved apart.

Two ways apart: bisection of the multipliers, and the closed form for views on probabilities of events, where
p is the centre scaled in each cell of the partition that they make.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bench.soak import centers
from bench.soak.families import Rng, mixed
from bench.soak.questions.question import LONG, Batch, asked
from bench.soak.record import written
from uncertainty_sets import entropy_pooling
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import EmptySet

GENERATORS = (
    "one view", "two views", "many views", "events", "faces", "centres", "units", "twice", "nearly twice",
    "contradictory", "one event", "two events",
)  # fmt: skip
CASES = 25
GAP, VIOLATION, ULPS = 1e-9, 1e-10, 8 * 2.0**-52


class Views(NamedTuple):
    """A centre and what is asked of it; `empty` if nothing agrees."""

    q: Array
    A_eq: Array
    b_eq: Array
    A_ub: Array
    b_ub: Array
    empty: bool = False
    known: Array | None = None
    """The answer's p, where there is a closed form."""


def batch(rng: Rng, generator: str) -> Batch:
    """Ask `CASES` times for views of one kind."""
    found, plain = Batch(), []
    for _ in range(CASES):
        case = draw(rng, generator)
        given: dict[str, Any] = {"A_eq": case.A_eq, "b_eq": case.b_eq, "A_ub": case.A_ub, "b_ub": case.b_ub}
        given = {key: each for key, each in given.items() if each.size}
        words = ", ".join(f"{key}={written(each)}" for key, each in given.items())
        call = f"entropy_pooling({written(case.q)}, {words})" if case.q.size * len(words) < 20_000 else ""
        answer = asked(partial(entropy_pooling, case.q, **given))
        found.cases += 1
        if case.empty:
            right = isinstance(answer, EmptySet)
            found.check({"no EmptySet": (0.0 if right else 1.0, 0.5)}, case.q.size, call)
        elif isinstance(answer, Exception):
            found.failed(answer, case.q.size, call)
        elif certified(found, case, answer, call):
            plain.append((case, answer, call))
            if case.known is not None:
                compare_with_closed_form(found, case, answer, call)
    if generator in {"one view", "two views"}:
        compare(found, plain)
    return found


def draw(rng: Rng, generator: str) -> Views:
    """A centre, rows, and values that a distribution on the support has: p0, or p0 with some room."""
    if generator in {"one event", "two events"}:
        return draw_events(rng, 1 if generator == "one event" else 2)
    n = int(rng.choice([2, 3, 5, 10, 30, 100, 300]))
    if generator == "two views":
        n = max(n, 3)  # two that hold exactly leave one p of two entries, up to the rounding of their values
    if generator == "units":
        n = max(n, 10)  # a value's rounding, beside a spread of a millionth, must leave room for the others
    families = {"centres": centers.FAMILIES}.get(generator, {"plain": centers.plain})
    q = mixed(families, rng, (1, n), str(rng.choice(list(families))))[0]
    inside = np.flatnonzero(q > 0.0)
    count = {"one view": 1, "two views": 2, "centres": int(rng.integers(1, 4))}.get(
        generator, int(rng.integers(2, 7))
    )
    p0 = np.zeros(n)
    p0[inside] = rng.dirichlet(np.full(inside.size, rng.choice([0.3, 1.0, 5.0])))
    p0 = 0.999 * p0 + 0.001 * (q > 0.0) / inside.size
    rows = rng.normal(size=(count, n))
    kind = rng.integers(4, size=count)
    rows[kind == 1] = np.sign(rows[kind == 1])
    rows[kind == 2] = np.arange(n) == rng.integers(n)
    rows[kind == 3] = np.exp(rows[kind == 3])
    equal = rng.random(count) < 0.5
    if generator in {"events", "faces"}:
        rows = (rng.random((count, n)) < rng.choice([0.2, 0.5, 1.0 / n])).astype(float)
        if generator == "faces":  # some events are certain or impossible
            sure = rows[: count // 2].any(axis=0) & (rng.random() < 0.7)
            p0 = np.where(sure | (q == 0.0), 0.0, p0)
            p0 = p0 / p0.sum() if p0.any() else np.where(np.arange(n) == inside[0], 1.0, 0.0)
    if generator == "units":
        rows = rows * 10.0 ** rng.uniform(-250.0, 250.0, (count, 1))
        away = rng.choice([0.0, 1.0, -1e3], (count, 1))
        rows = rows + away * np.abs(rows).max(axis=1, keepdims=True)
    if generator == "twice":
        rows[-1] = rows[0] * rng.choice([1.0, -1.0, 2.0])
        if count > 2:
            rows[1] = rows[0] + rows[-2]
    if generator == "nearly twice":
        # Multipliers grow as 1/difference: from 1e-6 on their last digit is worth more than the promise.
        apart = (
            10.0 ** rng.uniform(-5.0, -1.0) * np.abs(rows[0]).max() / np.abs(rows[-1]).max()
        )  # of its size
        rows[-1] = rng.choice([1.0, -1.0, 2.0]) * rows[0] + apart * rows[-1]
    values = (rows.astype(LONG) @ p0.astype(LONG)).astype(float)
    room = np.abs(rows).max(axis=1) * rng.choice([0.0, 0.0, 0.1], count)
    empty = False
    if generator == "contradictory":
        # A mix of the views with weights >= 0 on limits asks for less than the smallest entry of its row.
        w = rng.random(count) + 0.1
        rows[-1] = -(w[:-1] @ rows[:-1]) / w[-1]
        values[-1] = (-(w[:-1] @ values[:-1]) - 10.0 ** rng.uniform(-6.0, 0.0)) / w[-1]
        room, empty = np.zeros(count), True
    sides = np.where(rng.random(count) < 0.5, -1.0, 1.0) if not empty else np.ones(count)
    A_ub, b_ub = (sides[:, None] * rows)[~equal], (sides * values + room)[~equal]
    return Views(q, rows[equal], values[equal], A_ub, b_ub, empty)


def draw_events(rng: Rng, count: int) -> Views:
    """One event, exactly or as a limit from either side; or two, disjoint or one within the other."""
    n = max(int(rng.choice([2, 3, 5, 10, 30, 100, 300, 1000])), count + 1)
    q = np.full(n, 1.0 / n) if rng.random() < 0.3 else centers.plain(rng, (1, n))[0]
    cuts = np.sort(rng.choice(np.arange(1, n), count, replace=False))
    cells = np.zeros((count + 1, n))
    for cell, part in zip(cells, np.split(rng.permutation(n), cuts), strict=True):
        cell[part] = 1.0
    mass = rng.dirichlet(np.full(count + 1, rng.choice([0.2, 1.0, 5.0]))).clip(1e-9)
    mass /= mass.sum()
    rows, values = cells[:count].copy(), mass[:count].copy()
    if count == 2 and rng.random() < 0.5:
        rows[1], values[1] = rows.sum(axis=0), values.sum()
    before = cells @ q
    known = q * ((mass / before) @ cells)
    if count == 2 or rng.random() < 0.5:
        return Views(q, rows, values, np.empty((0, n)), np.empty(0), known=known)
    side = rng.choice([-1.0, 1.0])
    known = q if side * before[0] <= side * values[0] else known
    return Views(q, np.empty((0, n)), np.empty(0), side * rows, side * values, known=known)


def compare_with_closed_form(found: Batch, case: Views, answer: Any, call: str) -> None:
    """p to a rounding of its entries and of the view's value."""
    found.compared += 1
    known = np.asarray(case.known)
    off = float(np.abs(answer.p - known).sum())
    inside = known > 0.0
    least = float(
        (known[inside] * np.log(known[inside] / case.q[inside]) - known[inside] + case.q[inside]).sum()
    )
    found.check(
        {
            "not the closed form's p": (off, 1e-9),
            "not the closed form's divergence": (abs(answer.divergence - least), 1e-9 * least + 1e-13),
        },
        case.q.size,
        call,
    )


def certified(found: Batch, case: Views, answer: Any, call: str) -> bool:
    """Recompute divergence, bound and residuals from p and the multipliers."""
    q, p = case.q.astype(LONG), answer.p.astype(LONG)
    q, inside = q / q.sum(), case.q > 0.0
    y = np.append(answer.dual["eq"], -answer.dual["ub"]).astype(LONG)
    rows = np.vstack([case.A_eq, case.A_ub]).astype(LONG)
    values = np.append(case.b_eq, case.b_ub).astype(LONG)
    tilt = (y @ (rows - values[:, None]))[inside] + np.log(q[inside])
    bound = -(tilt.max() + np.log(np.exp(tilt - tilt.max()).sum()))
    divergence = (p[inside] * np.log(np.where(p > 0.0, p, q)[inside] / q[inside])).sum()
    off = rows @ p - values
    off[len(case.b_eq) :] = np.maximum(off[len(case.b_eq) :], 0.0)
    width = np.ptp(rows[:, inside], axis=1)
    size = np.maximum(np.abs(rows[:, inside]).max(axis=1), np.abs(values))
    unit = np.where(width > 1e-14 * size, width, np.where(size > 0.0, size, 1.0))
    violation = ((np.abs(off) - 2.0 * ULPS * size) / unit).max(initial=0.0)
    rounding = min(GAP, ULPS * float(2.0 + np.abs(y) @ size))
    gap = divergence - bound
    allowed = max(GAP * divergence, 2.0 * rounding)
    found.saw(float(gap), float(violation))
    return found.check(
        {
            "p < 0": (-p.min(), 0.0),
            "Σp is not 1": (abs(p.sum() - 1.0), VIOLATION),
            "p where q = 0": (p[~inside].max(initial=0.0), 0.0),
            "multiplier < 0": (-answer.dual["ub"].min(initial=0.0), 0.0),
            "violation": (violation, VIOLATION),
            "gap": (abs(gap), allowed),
            "reported divergence": (abs(answer.divergence - divergence), allowed),
            "reported bound": (abs(answer.lower_bound - bound), allowed),
            "reported gap": (abs(answer.gap - gap), allowed),
        },
        q.size,
        call,
    )


def compare(found: Batch, plain: list[tuple[Views, Any, str]]) -> None:
    """Solve one or two views by bisection of their multipliers, one inside the other."""
    for case, answer, call in plain:
        rows = np.vstack([case.A_eq, case.A_ub])
        if case.q.size > 30 or np.linalg.matrix_rank(rows - rows.mean(axis=1, keepdims=True)) < len(rows):
            continue
        found.compared += 1
        long = np.vstack([case.A_eq, -case.A_ub]).astype(LONG)
        long = long - np.append(case.b_eq, -case.b_ub).astype(LONG)[:, None]
        least = least_divergence(case.q.astype(LONG) / case.q.sum(), long, len(case.b_eq))
        amount = abs(answer.divergence - least)
        found.check({"not the least divergence": (amount, 1e-8 * least + 1e-12)}, case.q.size, call)


def least_divergence(q: Any, rows: Any, equal: int) -> float:
    """The least divergence with rows·p = 0 (>= 0 from `equal` on): the largest dual over each face."""
    free = [(-30.0, 30.0) if k < equal else (0.0, 30.0) for k in range(len(rows))]
    size = np.abs(rows).max(axis=1, keepdims=True)
    rows = np.where(size > 1e-12, rows, 0.0) / np.where(size > 1e-12, size, 1.0)  # a row that always holds
    y = np.zeros((len(rows), 1), LONG)
    low, high = (np.array([[end[side]] for end in free], LONG) for side in (0, 1))

    def mean(row: int, y: Any) -> Any:
        tilt = np.sinh(y).T @ rows
        weight = q * np.exp(tilt - tilt.max(axis=1, keepdims=True))
        return (weight @ rows[row]) / weight.sum(axis=1)

    def settle(row: int, y: Any) -> Any:
        """y with the multipliers from `row` on at their best."""
        if row == len(rows):
            return y
        a, b = low[row].copy(), high[row].copy()
        for _ in range(75):
            y[row] = 0.5 * (a + b)
            y = settle(row + 1, y)
            short = mean(row, y) < 0.0
            a, b = np.where(short, y[row], a), np.where(short, b, y[row])
        y[row] = np.where(a == low[row], a, 0.5 * (a + b))
        return settle(row + 1, y)

    tilt = np.sinh(settle(0, y)[:, 0]) @ rows
    return float(-np.log((q * np.exp(tilt - tilt.max())).sum()) - tilt.max())
