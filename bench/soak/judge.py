"""Judge answers: everything is recomputed here from public parameters, p and multipliers alone.

An answer is wrong if p is outside the set, if the bound that its multipliers prove is not within the promise
of its value, or if what it reports (value, bound, gap, violation) is not what p and the multipliers give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.soak import compositions, intersections, penalties, residuals
from bench.soak.asking import Answers
from bench.soak.bounds import POWERS, power_of
from bench.soak.cases import Case
from bench.soak.certificates import KEYS, bounds, worth_of_last_digits
from bench.soak.parameters import MAKERS
from bench.soak.residuals import simplex
from uncertainty_sets import Nested, UncertaintySet
from uncertainty_sets.arrays import Array
from uncertainty_sets.conic import oracle as conic

Long = NDArray[np.longdouble]

RESIDUALS = residuals.RESIDUALS | intersections.RESIDUALS | penalties.RESIDUALS

LEAVE_ZEROS = {
    "kl", "evar", "kl with box", "chi-square with box", "kl with rows", "penalised kl",
    "penalised chi-square",
}  # fmt: skip
"""Those that allow no mass where q = 0, beside the divergences of a power above 1."""

GAP, ULPS, VIOLATION = 1e-9, 8, 1e-10
"""The closed forms' promise: gap over the spread (or so many ulp of the largest loss), residual of p."""

CONIC_GAP, CONIC_VIOLATION = 1e-7, 1e-8
"""The same for rows that a conic solver answered."""

LIGHT = 1e-15
"""The shares within a group of no more weight have no digits; any others are as near to p."""

VALUE = 1e-12
"""Rounding of a sum in double precision, over the spread: what `value` may differ by from pᵀf."""


@dataclass
class Finding:
    """One thing that is wrong with one row: its kind, by how much, and how much was allowed."""

    row: int
    kind: str
    amount: float
    allowed: float


@dataclass
class Assessment:
    """What was found, and what was measured for each row answered: gap over the spread, violation."""

    findings: list[Finding]
    gap: Array
    violation: Array
    excused: int = 0
    """Rows that pass only because their multipliers have no more digits, or no room, in a double."""


def judge(case: Case, answers: Answers) -> Assessment:
    """Check every row of the answers."""
    findings = [
        Finding(row, f"raised {type(error).__name__}", np.nan, 0.0) for row, error in answers.errors.items()
    ]
    if not len(answers.rows):
        return Assessment(findings, np.empty(0), np.empty(0))
    asked = case.only(answers.rows)
    given = public_parameters(asked)
    # The multipliers of a closed form that this file has no formula for prove nothing.
    composed = case.name in compositions.MAKERS
    unknown = not composed and case.name not in RESIDUALS and "y" not in answers.dual
    F, p = asked.losses.astype(np.longdouble), answers.p.astype(np.longdouble)
    counted = given["center"] > 0.0 if _leaves_zeros(case.name, given) else np.ones_like(F, dtype=bool)
    anchor = np.where(counted, F, -np.inf).max(axis=1, keepdims=True)
    h = np.where(counted, F - anchor, 0.0)
    spread = -h.min(axis=1)
    largest = np.where(counted, np.abs(F), 0.0).max(axis=1)
    solved = by_solver(case, answers)
    # A solver is given all losses.
    spread = np.where(solved, np.ptp(F, axis=1), spread)
    # Those of groups and of blocks are rounded before they are losses of a set themselves.
    ulps = (2 if composed else 1) * ULPS * np.spacing(largest.astype(float)).astype(np.longdouble)
    allowed = np.maximum(np.where(solved, CONIC_GAP, GAP) * spread, ulps)
    feasible = np.where(solved, CONIC_VIOLATION, VIOLATION)

    half = 0.5 * np.spacing(np.abs(answers.p)).astype(np.longdouble)
    violation = np.maximum(simplex(p), _residual(asked, given, p, half))
    value = (p * np.where(solved[:, None], F - anchor, h)).sum(axis=1)
    if case.name in penalties.COSTS:
        cost = penalties.COSTS[case.name](given, p)
        value = value - np.where(cost > 0.0, cost * given["weight"][:, 0], 0.0)
    if composed:
        bound = compositions.bound(case.name, asked.parameters, h, anchor, answers.dual, _public)
    else:
        bound = bounds(asked, given, h, anchor, answers.dual)
    if unknown:
        bound = answers.upper_bound - anchor[:, 0]
    gap = bound - value
    # pᵀf and r + pᵀ(f - r) differ by r·(Σp - 1): `value` may be measured from any loss r, or from none.
    sum_off = np.abs(p.sum(axis=1) - 1.0) * (largest + spread)
    reported = answers.gap.astype(np.longdouble)

    tests: dict[str, tuple[Long, Any]] = {
        "p < 0": (-p.min(axis=1), np.where(solved, CONIC_VIOLATION, 0.0)),
        "violation": (violation, feasible),
        "gap": (gap, allowed),
        "negative gap": (-gap, allowed),
        "reported violation": (answers.violation.astype(np.longdouble), feasible),
        "reported gap": (np.abs(reported), allowed),
        "gap is not bound - value": (np.abs(reported - gap), allowed),
        "value is not pᵀf": (np.abs(answers.value - anchor[:, 0] - value), VALUE * spread + ulps + sum_off),
        "bound is not the multipliers'": (np.abs(answers.upper_bound - anchor[:, 0] - bound), allowed),
    }
    unproved = np.isnan(bound)
    findings += [
        Finding(
            int(answers.rows[b]), f"no multipliers that prove a bound ({answers.backends[b]})", np.nan, 0.0
        )
        for b in np.flatnonzero(unproved)
    ]
    room: Long | None = None
    excused = np.zeros(len(answers.rows), dtype=bool)
    for kind, (amount, limit) in tests.items():
        limits = np.broadcast_to(np.asarray(limit, dtype=np.longdouble), amount.shape)
        bad = ~(amount <= limits) & ~(np.isnan(amount) & unproved)
        if bad.any() and kind in {"gap", "gap is not bound - value", "bound is not the multipliers'"}:
            if room is None:
                room = worth_of_last_digits(asked, given, h, anchor, answers.dual, bound)
            limits = limits + room
            excused |= bad & (amount <= limits)
            bad &= ~(amount <= limits)
        findings += [
            Finding(int(answers.rows[b]), kind, float(amount[b]), float(limits[b]))
            for b in np.flatnonzero(bad)
        ]
    unit = np.where(spread > 0.0, np.maximum(spread, allowed / GAP), 1.0)
    with np.errstate(over="ignore"):
        measured = np.asarray(gap / unit, float), np.asarray(violation, float)
    return Assessment(_first_of_each_row(findings), *measured, int(excused.sum()))


def _leaves_zeros(name: str, given: dict[str, Any]) -> bool:
    """Whether the set leaves no mass where q = 0, so that those losses do not count."""
    if name in POWERS or "power" in given:
        return power_of(name, given)[0] > 1.0
    return name in LEAVE_ZEROS


def by_solver(case: Case, answers: Answers) -> NDArray[np.bool_]:
    """The rows that a conic solver answered: a batch names all backends, a row's multipliers tell which."""
    mixed = np.array([backend != "closed-form" for backend in answers.backends])
    if case.name in compositions.MAKERS:
        return mixed
    keys = KEYS.get(case.name, ())
    if not len(answers.rows):
        return mixed
    own = np.ones(len(answers.rows), dtype=bool)
    for key in keys:
        value = answers.dual.get(key, np.full(len(own), np.nan))
        own &= ~np.isnan(value.reshape(len(own), -1)[:, 0])  # a longer one of a solver pads the others
    return (mixed & ~own) if keys and not MAKERS[case.name].conic else np.full(len(own), True)


def _first_of_each_row(findings: list[Finding]) -> list[Finding]:
    """The first finding of each row, in the order of the tests: p before what the answer reports."""
    first: dict[int, Finding] = {}
    for each in findings:
        first.setdefault(each.row, each)
    return list(first.values())


def _residual(case: Case, given: dict[str, Any], p: Long, half: Long) -> Long:
    if case.name in compositions.MAKERS:
        return compositions.residual(case.name, case.parameters, p, half, _public)
    if case.name in RESIDUALS:
        return RESIDUALS[case.name](given, p, half)
    return np.array(
        [_by_constraints(case.subject(b), row) for b, row in enumerate(p.astype(float))], np.longdouble
    )


def _by_constraints(subject: UncertaintySet, p: Array) -> float:
    """The residual of the set's own constraints; of `Nested`, of its sets at the groups' sums and shares.

    Its own have auxiliary variables, which a solver finds to 1e-8 only, or just outside an exponential cone.
    """
    if not isinstance(subject, Nested):
        return conic.residual(subject, p)
    parts = np.split(p, np.cumsum([each.size or 0 for each in subject.inners])[:-1])
    sums = np.array([part.sum() for part in parts])
    within = [
        weight * _by_constraints(each, part / weight)
        for each, part, weight in zip(subject.inners, parts, sums, strict=True)
        if weight > LIGHT
    ]
    return float(max([_by_constraints(subject.outer, sums), *within]))


def public_parameters(case: Case) -> dict[str, Any]:
    """The parameters in long double, rows first; the centre as the set has it."""
    if case.name in compositions.MAKERS:
        return {}
    return _public(case.name, case.parameters, case.size)


def _public(name: str, parameters: dict[str, Any], size: int) -> dict[str, Any]:
    """Those of a set of that name."""
    given: dict[str, Any] = {}
    for key, value in parameters.items():
        if value is None:
            continue
        array = np.asarray(value, dtype=np.longdouble)
        if key in {"shape", "cost"} and array.ndim == 2:
            given["matrix"] = array
        elif array.ndim == 0:
            given[key] = np.full((1, size if key in {"shape", "spread", "weights"} else 1), array)
        elif key in {"radius", "budget", "tail", "weight"}:
            given[key] = array[:, None]
        elif key in {"D", "distortion"}:
            given[key] = array
        else:
            given[key] = np.atleast_2d(array)
    if "center" in given:
        q = np.asarray(parameters["center"])
        total = q.sum(axis=-1, keepdims=True)  # as the set: a sum that is 1 up to rounding stays
        total = np.where(np.abs(total - 1.0) <= 4.0 * 2.0**-52, 1.0, total)
        given["center"] = np.atleast_2d(q / total).astype(np.longdouble)
    if name == "wasserstein-1":
        given.setdefault("cost", np.arange(size, dtype=np.longdouble)[None])
        given["order"] = np.argsort(given["cost"][0], kind="stable")
    return given
