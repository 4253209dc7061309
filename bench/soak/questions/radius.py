"""Targets for `radius_for`: p and its distance recomputed in long double, the lower bound by the oracle.

At a radius just below the lower bound the oracle's multipliers, judged by the formulas of `bounds`, must keep
pᵀf below the target; beyond every radius, if none is said to reach it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.soak import centers, losses
from bench.soak.asking import ask
from bench.soak.cases import Case
from bench.soak.certificates import bounds
from bench.soak.drawing import Draw
from bench.soak.families import Rng, mixed
from bench.soak.judge import public_parameters
from bench.soak.parameters import MAKERS
from bench.soak.questions.question import LONG, Batch, asked
from bench.soak.record import written
from bench.soak.residuals import RESIDUALS, simplex
from uncertainty_sets.arrays import Array

CLOSED = ("kl", "total-variation", "chi-square", "hellinger", "burg", "cressie-read")
NAMES = (*CLOSED, *CLOSED, "cd-norm", "weighted-l1", "ellipsoid", "wasserstein-1")
LOSSES = ("plain", "ties", "shifts", "ladders", "tails", "near the top")
CENTERS = ("plain", "concentrated", "zeros", "ties")
GENERATORS = tuple(f"{name}: {family}" for family in (*LOSSES, *CENTERS[1:]) for name in dict.fromkeys(NAMES))
EPS, FEASIBLE, GAP = 2.0**-52, 1e-10, 1e-9


def batch(rng: Rng, generator: str) -> Batch:
    """A batch of one set, with a target for each row, anywhere from the mean to beyond the largest loss."""
    name, _, family = generator.partition(": ")
    case, key = draw(rng, name, family), "budget" if name == "cd-norm" else "radius"
    T, found = targets(rng, case), Batch()
    answer = asked(partial(_ask, case, T))
    if not isinstance(answer, Exception):
        judge(found, case, key, T, answer)
        return found
    for b in range(case.rows):  # which row was it?
        row = case.only(np.array([b]))
        one = asked(partial(_ask, row, T[b : b + 1]))
        if isinstance(one, Exception):
            found.cases += 1
            found.failed(one, case.size, call_of(row, 0, T[b]))
        else:
            judge(found, row, key, T[b : b + 1], one)
    return found


def _ask(case: Case, T: Array) -> Any:
    return case.subject().radius_for(case.losses, T)


def draw(rng: Rng, name: str, family: str) -> Case:
    """Parameters by row, some centres and losses of the family."""
    n = int(rng.choice([2, 3, 5, 10, 30, 100]))
    rows = 100 if name in CLOSED else 20
    few = {each: losses.FAMILIES[each] for each in LOSSES}
    f = mixed(few, rng, (rows, n), family if family in few else "plain")
    some = {each: centers.FAMILIES[each] for each in CENTERS}
    q = mixed(some, rng, (rows, n), family) if family in CENTERS else centers.plain(rng, (rows, n))
    parameters, by_row = MAKERS[name].make(Draw(rng, f, q, saturated=False))
    if name == "cressie-read":
        parameters["power"] = float(rng.choice([-1.0, -0.3, 0.25, 0.9, 1.3, 1.5, 3.0]))
    parameters["budget" if name == "cd-norm" else "radius"] = 10.0 ** rng.uniform(-3.0, 1.0, rows)
    return Case(name, family, parameters, frozenset({*by_row}), f)


def targets(rng: Rng, case: Case) -> Array:
    """Shares of the way from the mean to the largest loss; the ends, and beyond both."""
    q, f = np.asarray(case.parameters["center"]), case.losses
    mean, top = (q * f).sum(axis=1), f.max(axis=1)
    small = 10.0 ** -rng.uniform(0.0, 12.0, case.rows)
    share = rng.choice([0.0, 0.5, 0.9, 1.0, 1.0, 1.0], case.rows)
    share = np.where(share == 0.0, small, np.where(share == 1.0, 1.0 - small, share))
    T = mean + share * (top - mean)
    kind = rng.random(case.rows)
    T = np.where(kind < 0.08, top, T)
    T = np.where(kind > 0.95, top + 0.1 * np.maximum(top - mean, 1e-3 * np.abs(top)), T)
    T = np.where((kind > 0.92) & (kind < 0.95), mean - 0.1 * (top - mean), T)
    return np.asarray(T)


def resized(case: Case, key: str, extent: Array) -> Case:
    """The case at other radii."""
    parameters = case.parameters | {key: extent}
    return Case(case.name, case.generator, parameters, case.by_row | {key}, case.losses)


def residual(case: Case, key: str, extent: Any, p: Any) -> Any:
    """How far p is outside the sets of those radii; with 0, its distance."""
    given = public_parameters(resized(case, key, np.asarray(extent, float)))
    half = 0.5 * np.spacing(np.abs(p).astype(float)).astype(LONG)
    with np.errstate(all="ignore"):
        found = RESIDUALS[case.name](given, p, half)
    # That of total variation is of Σ|p - q| <= 2·radius.
    return 0.5 * found if case.name == "total-variation" and not np.any(extent) else found


def most(case: Case, key: str, extent: Array) -> tuple[Any, Any]:
    """The bound on pᵀf by the oracle's multipliers at those radii, and how far p is below it; NaN if none."""
    at = resized(case, key, extent) if key else case
    bound, gap = np.full(case.rows, np.nan, LONG), np.full(case.rows, np.nan, LONG)
    answers = ask(at)
    if len(answers.rows):
        known = at.only(answers.rows)
        given = public_parameters(known)
        F = known.losses.astype(LONG)
        inside = given["center"] > 0.0 if covers(case.name, given) else np.ones_like(F, bool)
        anchor = np.where(inside, F, -np.inf).max(axis=1, keepdims=True)
        h = np.where(inside, F - anchor, 0.0)
        with np.errstate(all="ignore"):
            found = bounds(known, given, h, anchor, answers.dual)
        bound[answers.rows] = found + anchor[:, 0]
        gap[answers.rows] = found - (answers.p * h).sum(axis=1)
    return bound, gap


def covers(name: str, given: dict[str, Any]) -> bool:
    """Whether the set leaves no mass where q = 0."""
    return name in {"kl", "chi-square"} or (name == "cressie-read" and float(given["power"].max()) > 1.0)


def judge(found: Batch, case: Case, key: str, T: Array, answer: Any) -> None:
    """Check every row."""
    f, p, r = case.losses.astype(LONG), answer.p.astype(LONG), answer.radius
    q = np.asarray(case.parameters["center"]).astype(LONG)
    size = np.abs(case.losses).max(axis=1) + np.abs(T)
    reached = np.isfinite(r)
    P = np.where(reached[:, None], p, q)
    # Not less than of the numbers that an oracle is asked: losses less the target, and their spread.
    g = np.abs(case.losses - T[:, None]).max(axis=1) + np.ptp(case.losses, axis=1)
    digits = 64.0 * EPS * np.maximum(size, g)
    known = digits * np.where(np.isfinite(answer.multiplier), answer.multiplier, 0.0)
    allowed = GAP * r + known
    over = residual(case, key, np.where(reached, r, 0.0), P)
    distance = residual(case, key, np.zeros(case.rows), P)
    worth = np.where(np.isfinite(answer.multiplier) & (answer.multiplier > 0.0), answer.multiplier, np.inf)
    short = T - (P * f).sum(axis=1) - (1.0 - P.sum(axis=1)) * T
    low, finite = (np.where(reached, each, 0.0) for each in (answer.lower_bound, r))
    below = np.where(reached, np.maximum(low - GAP * finite, 0.0) * (1.0 - 1e-9), 1e13)
    bound, slack = most(case, key, below)
    # A target above all that the set reaches is beyond the bound too, up to rounding.
    room = 64.0 * EPS * size + 2.0 * np.abs(slack)
    for b in range(case.rows):
        found.cases += 1
        gap = float(answer.gap[b])
        found.saw(gap / float(r[b]) if reached[b] and r[b] > 0.0 else 0.0)
        tests: dict[str, tuple[Any, Any]] = {
            "said to be reached": (float(answer.reached[b] != reached[b]), 0.0),
            "reaches the target above": (-np.inf if below[b] == 0.0 else bound[b] - T[b], room[b]),
        }
        if reached[b]:
            tests |= {
                "p outside the simplex": (simplex(P[b : b + 1])[0], FEASIBLE),
                "p outside the radius": (over[b], FEASIBLE),
                "p is further than the radius": (distance[b] - r[b], 10.0 * allowed[b] + 1e-15),
                "p does not reach the target": (short[b], 64.0 * EPS * size[b] + GAP * r[b] / worth[b]),
                "gap": (gap, allowed[b]),
                "negative gap": (-gap, 0.0),
                "gap is not radius - bound": (abs(r[b] - answer.lower_bound[b] - gap), allowed[b]),
            }
        found.check(tests, case.size, call_of(case, b, T[b]))


def call_of(case: Case, row: int, target: float) -> str:
    """Python for one row."""
    if case.size > 10:
        return ""
    given = ", ".join(f"{key}={written(value)}" for key, value in case.row_parameters(row).items())
    name = MAKERS[case.name].build.__name__
    return f"{name}({given}).radius_for({written(case.losses[row])}, {float(target)!r})"
