"""The move of a worst case to 50 digits, from its equations alone, by mpmath.

    p = q·ψ((f - ν)/η), or q + Q(f - ν)/2η, cut at its bounds;   Σ p = 1,   D(p, q) = unit·radius

is solved for ν and η by Newton's method in 80 digits at f + h·df and f - h·df with h = 1e-25: the central
difference is exact to 50 digits. Which entries are at a bound is taken from the double's answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

from uncertainty_sets import (
    KL,
    Box,
    Burg,
    ChiSquare,
    CressieRead,
    Ellipsoid,
    EVaR,
    Hellinger,
    Intersection,
    Penalised,
)
from uncertainty_sets.arrays import Array
from uncertainty_sets.oracle import Oracle

DIGITS, STEP, LEAST = 80, "1e-25", 1e-3


@dataclass(frozen=True)
class Problem:
    """A set with what its equations need.

    Attributes:
        made: the set.
        power: k; None for a quadratic ball.
        shape: Q of a quadratic ball.
        limit: unit·radius; None if η is given.
        eta: the price of D, or None.
        bounds: of a box, or None.
    """

    made: Oracle
    center: Array
    power: float | None
    limit: float | None
    shape: Array | None = None
    eta: float | None = None
    bounds: tuple[Array, Array] | None = None


def problems(size: int, seed: int = 0) -> dict[str, Problem]:
    """Every smooth family around one random centre."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(size, 3.0))
    shape = rng.uniform(0.5, 2.0, size) / size
    lower, upper = 0.6 * q, 1.5 * q
    return {
        "KL": Problem(KL(q, 0.125), q, 1.0, 0.125),
        "EVaR": Problem(EVaR(q, 0.75), q, 1.0, float(np.abs(np.log(0.75)))),
        "χ²": Problem(ChiSquare(q, 0.25), q, 2.0, 0.125),
        "χ², entries at 0": Problem(ChiSquare(q, 1.5), q, 2.0, 0.75),
        "Hellinger": Problem(Hellinger(q, 0.0625), q, 0.5, 0.25),
        "Burg": Problem(Burg(q, 0.25), q, 0.0, 0.25),
        "power 1.5": Problem(CressieRead(q, 0.25, 1.5), q, 1.5, 0.25),
        "power -1": Problem(CressieRead(q, 0.25, -1.0), q, -1.0, 0.25),
        "ellipsoid": Problem(Ellipsoid(q, shape, 0.0625), q, None, 0.0625, shape),
        "ellipsoid, entries at 0": Problem(Ellipsoid(q, shape, 0.5), q, None, 0.5, shape),
        "KL and a box": Problem(
            Intersection(KL(q, 0.03125), Box(lower, upper)), q, 1.0, 0.03125, bounds=(lower, upper)
        ),
        "χ² and a box": Problem(
            Intersection(ChiSquare(q, 0.0625), Box(lower, upper)), q, None, 0.0625, q, bounds=(lower, upper)
        ),
        "price of KL": Problem(Penalised("kl", q, 0.75), q, 1.0, None, eta=0.75),
        "price of χ²": Problem(Penalised("chi-square", q, 0.375), q, 2.0, None, eta=0.75),
    }


def move(problem: Problem, losses: Array, direction: Array) -> list[Any]:
    """Dp along a direction of the losses, to 50 digits."""
    with mpmath.workdps(DIGITS):
        h = mpmath.mpf(STEP)
        f, df = ([mpmath.mpf(float(x)) for x in each] for each in (losses, direction))
        p = problem.made.worst_case(losses).p
        after, before = (
            _solve(problem, [x + s * h * d for x, d in zip(f, df, strict=True)], p) for s in (1, -1)
        )
        return [(a - b) / (2 * h) for a, b in zip(after, before, strict=True)]


def error(problem: Problem, losses: Array, direction: Array) -> float:
    """The largest error of `jvp`, relative to the largest move, or to 0.001 if all are smaller."""
    exact = move(problem, losses, direction)
    ours = problem.made.worst_case(losses).jvp(direction).p
    largest = max(abs(each) for each in exact)
    off = max(abs(mpmath.mpf(float(a)) - b) for a, b in zip(ours, exact, strict=True))
    return float(off / max(largest, mpmath.mpf(LEAST)))


def _solve(problem: Problem, f: list[Any], p: Array) -> list[Any]:
    """P at these losses, by Newton's method from the double's answer."""
    mp = mpmath.mp
    total = mp.fsum(mp.mpf(float(x)) for x in problem.center)
    q = [mp.mpf(float(x)) / total for x in problem.center]
    low, high = _held(problem, p)
    k = None if problem.power is None else mp.mpf(problem.power)

    def entry(i: int, nu: Any, eta: Any) -> Any:
        if low[i] is not None:
            return mp.mpf(float(low[i]))
        if high[i] is not None:
            return mp.mpf(float(high[i]))
        x = (f[i] - nu) / eta
        if k is None:
            assert problem.shape is not None
            return q[i] + mp.mpf(float(problem.shape[i])) * x / 2
        return q[i] * (mp.exp(x) if k == 1 else (1 + (k - 1) * x) ** (1 / (k - 1)))

    def divergence(each: Any, i: int) -> Any:
        if k is None:
            assert problem.shape is not None
            return (each - q[i]) ** 2 / mp.mpf(float(problem.shape[i]))
        t = each / q[i]
        if k == 1:
            return each * mp.log(t) - each + q[i]
        if k == 0:
            return q[i] * (t - 1 - mp.log(t))
        return q[i] * (t**k - k * t + k - 1) / (k * (k - 1))

    def equations(nu: Any, eta: Any) -> list[Any]:
        each = [entry(i, nu, eta) for i in range(len(q))]
        return [mp.fsum(each) - 1, mp.fsum(map(divergence, each, range(len(q)))) - mp.mpf(problem.limit)]

    nu, eta = _start(problem, f, p, low, high)
    if problem.eta is not None:
        price = mp.mpf(problem.eta)
        found = mp.findroot(lambda v: equations_of_price(entry, v, price, len(q)), nu)
        return [entry(i, found, price) for i in range(len(q))]
    solution = mp.findroot(equations, (nu, eta), maxsteps=60)
    return [entry(i, solution[0], solution[1]) for i in range(len(q))]


def equations_of_price(entry: Any, nu: Any, price: Any, size: int) -> Any:
    """Σ p - 1 where η is given."""
    return mpmath.mp.fsum(entry(i, nu, price) for i in range(size)) - 1


def _held(problem: Problem, p: Array) -> tuple[list[Any], list[Any]]:
    """The bound at which each entry is held, or None."""
    if problem.bounds is None:
        return [0.0 if x <= 0.0 else None for x in p], [None] * p.size
    lower, upper = problem.bounds
    low = [a if abs(x - a) < 1e-12 else None for x, a in zip(p, lower, strict=True)]
    return low, [b if abs(x - b) < 1e-12 else None for x, b in zip(p, upper, strict=True)]


def _start(problem: Problem, f: list[Any], p: Array, low: list[Any], high: list[Any]) -> tuple[Any, Any]:
    """ν and η by a line through g(p) of the free entries."""
    free = [i for i in range(p.size) if low[i] is None and high[i] is None]
    q, k = problem.center, problem.power
    if k is None:
        assert problem.shape is not None
        g = 2.0 * (p - q) / problem.shape
    else:
        t = p / q
        g = np.log(t) if k == 1.0 else (t ** (k - 1.0) - 1.0) / (k - 1.0)
    losses = np.array([float(x) for x in f])
    slope, shift = np.polyfit(g[free], losses[free], 1)
    return mpmath.mpf(float(shift)), mpmath.mpf(float(slope))
