"""The ends of the float range: losses, radii, tails, weights and masses of 1e-324 to 1e308 side by side.

An answer is judged as every other, a solver's by what it promises. Where there is none in doubles, an error
of the library that says so is right too; a warning or any other error is not.
"""

from __future__ import annotations

import numpy as np

from bench.soak import intersections
from bench.soak.asking import ask
from bench.soak.cases import GENERATORS as DRAWN
from bench.soak.cases import Case, draw
from bench.soak.families import Rng
from bench.soak.judge import RESIDUALS, judge
from bench.soak.parameters import MAKERS
from bench.soak.questions.question import Batch, Wrong
from bench.soak.record import SHOWN, written
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import FdroError
from uncertainty_sets.verdict import USABLE

NAMES = tuple(
    name
    for name, maker in MAKERS.items()
    if not maker.conic and name in RESIDUALS and name not in intersections.MAKERS
)
GENERATORS = NAMES
ROWS, LARGEST = 25, 100
SMALL = (5e-324, 1e-320, 1e-310, 1e-300, 1e-290)
LARGE = (1e290, 4.6e299, 1e302, 1e307, 1.7e308)
FEW = 32 * 5e-324
"""A gap of losses that are themselves a few of the least number."""
LEFT = {"radius", "budget", "weight", "tail"}


def batch(rng: Rng, generator: str) -> Batch:
    """Rows of one set, each asked by itself."""
    case = at_the_ends(rng, generator)
    found = Batch()
    for b in range(case.rows):
        row = case.only(np.array([b]))
        row.single = True
        with np.errstate(all="ignore"):
            answers = ask(row)
        found.cases += 1
        errors = [each for each in answers.errors.values() if not isinstance(each, FdroError)]
        if errors:
            found.failed(errors[0], case.size, call_of(row))
        elif not answers.errors:
            with np.errstate(all="ignore"):
                assessment = judge(row, answers)
            found.saw(float(assessment.gap[0]), float(assessment.violation[0]))
            spread = 2.0 * float(np.ptp(0.5 * row.losses)) if answers.backends != ["closed-form"] else 0.0
            found.wrong += [
                Wrong(each.kind, each.amount, each.allowed, case.size, call_of(row))
                for each in assessment.findings[:1]
                if not (each.kind == "gap" and each.amount <= max(USABLE * spread, FEW))
            ]
    return found


def at_the_ends(rng: Rng, name: str) -> Case:
    """An ordinary draw, with some of its numbers at an end."""
    case = draw(name, DRAWN[rng.integers(len(DRAWN))], rng)
    while case.size > LARGEST:
        case = draw(name, DRAWN[rng.integers(len(DRAWN))], rng)
    case = case.only(np.arange(min(case.rows, ROWS)))
    case.warm = None
    rows, n = case.losses.shape
    case.losses = losses(rng, case.losses)
    ends = np.array([*SMALL, *LARGE])
    for key in LEFT & case.parameters.keys() & case.by_row:
        given = case.parameters[key]
        among = np.array(SMALL) if key == "tail" else ends
        case.parameters[key] = np.where(rng.random(rows) < 0.5, rng.choice(among, rows), given)
    if "center" in case.by_row and n > 1:
        q = case.parameters["center"].copy()
        light = q.argmin(axis=1)
        some = np.flatnonzero((rng.random(rows) < 0.3) & (q.min(axis=1) < 0.5))
        q[some, light[some]] = rng.choice(SMALL, some.size)
        case.parameters["center"] = q / q.sum(axis=1, keepdims=True)
    return case


def losses(rng: Rng, f: Array) -> Array:
    """Of all sizes in a row, a large one beside small ones, multiples of the least number, or as they are."""
    sizes = rng.choice([0.0, 1.0, *SMALL, *LARGE], f.shape) * rng.choice([-1.0, 1.0], f.shape)
    beside = np.array(rng.choice(SMALL, f.shape) * rng.integers(-9, 10, f.shape))
    beside[np.arange(len(f)), rng.integers(f.shape[1], size=len(f))] = rng.choice(LARGE, len(f))
    least = rng.integers(-9, 10, f.shape) * 5e-324
    kind = rng.integers(4, size=(len(f), 1))
    return np.asarray(np.where(kind == 0, sizes, np.where(kind == 1, beside, np.where(kind == 2, least, f))))


def call_of(row: Case) -> str:
    """Python for the row."""
    if row.size > SHOWN:
        return ""
    given = ", ".join(
        f"{key}={written(value)}" for key, value in row.row_parameters(0).items() if value is not None
    )
    name = getattr(MAKERS[row.name].build, "__name__", row.name)
    return f"{name}({given}).worst_case({written(row.losses[0])})"
