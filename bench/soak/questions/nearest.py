"""Points to `project`, near and up to 1e250 away: the proof recomputed in long double.

p is judged by the residuals of the set. Half its squared distance is at most the largest p'ᵀd - pᵀd over the
set from the least one, d = point - p: the oracle is asked for the direction d, and its multipliers are judged
by the formulas of `bounds`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.soak import centers, losses
from bench.soak.cases import Case
from bench.soak.drawing import Draw
from bench.soak.families import Rng, mixed
from bench.soak.judge import public_parameters
from bench.soak.parameters import MAKERS
from bench.soak.questions.question import LONG, Batch, asked
from bench.soak.questions.radius import most
from bench.soak.record import written
from bench.soak.residuals import RESIDUALS, simplex
from uncertainty_sets.arrays import Array

NAMES = ("box", "cd-norm", "kl", "ellipsoid", "total-variation", "chi-square", "cvar")
BY_SOLVER = ("hellinger", "weighted-l1", "wasserstein-1")
KINDS = ("near", "plain", "far", "ties", "shifts", "concentrated", "zeros")
GENERATORS = tuple(
    f"{name}: {kind}" for kind in KINDS for name in (*NAMES, *(BY_SOLVER if kind in {"plain", "far"} else ()))
)
GAP, USABLE, FEASIBLE, EPS = 1e-9, 1e-6, 1e-9, 2.0**-52


def batch(rng: Rng, generator: str) -> Batch:
    """Points for the rows of one draw, each projected by itself."""
    name, _, kind = generator.partition(": ")
    case = draw(rng, name, kind)
    far = 10.0 ** rng.uniform(*{"near": (-9.0, 0.0), "far": (3.0, 250.0)}.get(kind, (-1.0, 6.0)), case.rows)
    q = np.asarray(case.parameters.get("center", np.full(case.losses.shape, 1.0 / case.size)))
    X = q + far[:, None] * case.losses / np.maximum(np.abs(case.losses).max(axis=1, keepdims=True), 1e-300)
    found, P, answers = Batch(), np.empty(X.shape), {}
    for b in range(case.rows):
        answer = asked(partial(_ask, case, b, X[b]))
        found.cases += 1
        if isinstance(answer, Exception):
            found.failed(answer, case.size, call_of(case, b, X[b]))
        else:
            P[b], answers[b] = answer.p, answer
    rows = np.array(list(answers), dtype=np.int64)
    if rows.size:
        judge(found, case.only(rows), X[rows], P[rows], [answers[b] for b in rows.tolist()])
    return found


def _ask(case: Case, row: int, point: Array) -> Any:
    return case.subject(row).project(point)


def draw(rng: Rng, name: str, kind: str) -> Case:
    """Parameters by row, and losses that are the directions of the points."""
    by_solver = name in BY_SOLVER
    n = int(rng.choice([2, 3, 10]) if by_solver else rng.choice([1, 2, 3, 5, 10, 30, 100]))
    rows = 4 if by_solver else 100
    f = mixed({each: losses.FAMILIES[each] for each in ("plain", "ties", "shifts")}, rng, (rows, n),
              kind if kind in {"ties", "shifts"} else "plain")  # fmt: skip
    family = kind if kind in centers.FAMILIES and kind != "ties" else "plain"
    q = centers.FAMILIES[family](rng, (rows, n))
    parameters, by_row = MAKERS[name].make(Draw(rng, f, q, saturated=False))
    for key in {"radius", "budget"} & parameters.keys():
        parameters[key] = 10.0 ** rng.uniform(-3.0, 1.0, rows)
    if "spread" in parameters:
        parameters["spread"] = q * 10.0 ** rng.uniform(-2.0, 1.0, q.shape)
    if "shape" in parameters:
        parameters["shape"] = 10.0 ** rng.uniform(-2.0, 1.0, n)
    return Case(name, kind, parameters, frozenset(by_row), f)


def judge(found: Batch, case: Case, X: Array, P: Array, answers: list[Any]) -> None:
    """Check every row that was answered."""
    p, x = P.astype(LONG), X.astype(LONG)
    half = 0.5 * np.spacing(np.abs(P)).astype(LONG)
    with np.errstate(all="ignore"):
        outside = np.maximum(simplex(p), RESIDUALS[case.name](public_parameters(case), p, half))
    d = x - p
    d = d - d.mean(axis=1, keepdims=True)
    away = Case(case.name, case.generator, case.parameters, case.by_row, d.astype(float))
    key = next((each for each in ("radius", "budget") if each in case.parameters), "")
    bound, _ = most(away, key, case.parameters.get(key, np.empty(0)))
    direction = away.losses.astype(LONG)
    # The direction was rounded to doubles: that much may be added for any p'.
    far = np.abs(direction).max(axis=1)
    gap = bound - (p * direction).sum(axis=1)
    distance = np.sqrt(((x - p) / far.clip(1e-300)[:, None]) ** 2 @ np.ones(case.size)) * far.clip(1e-300)
    for b, answer in enumerate(answers):
        closed = answer.backend == "closed-form"
        allowed = (GAP if closed else USABLE) * max(1.0, float(far[b])) + 64.0 * EPS * float(
            np.abs(X[b]).max()
        )
        found.saw(float(gap[b] / max(1.0, far[b])), float(outside[b]))
        found.check(
            {
                "p outside": (outside[b], FEASIBLE),
                "gap": (gap[b], allowed),
                "negative gap": (-gap[b], allowed),
                "reported gap": (abs(answer.gap - gap[b]), 2.0 * allowed),
                "reported distance": (abs(answer.distance - distance[b]), 1e-12 * distance[b] + 1e-15),
                "bound above the distance": (answer.lower_bound - distance[b], 1e-12 * distance[b] + 1e-15),
            },
            case.size,
            call_of(case, b, X[b]),
        )


def call_of(case: Case, row: int, point: Array) -> str:
    """Python for one row."""
    if case.size > 10:
        return ""
    given = ", ".join(
        f"{key}={written(value)}" for key, value in case.row_parameters(row).items() if value is not None
    )
    return f"{MAKERS[case.name].build.__name__}({given}).project({written(point)})"
