"""KL where numbers span many decades: every answer is certified, in exact arithmetic outside the code."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal

import numpy as np
import pytest

from tests import tolerances
from uncertainty_sets import KL, WorstCase
from uncertainty_sets.arrays import Array

MOST_PASSES = 40

# 90 digits: at a radius of 1e-30 the bound is the difference of numbers 1e30 apart, squared.
EXACT = decimal.Context(prec=90, Emin=-(10**9), Emax=10**9)


def ladder(base: float, size: int) -> Array:
    return -(base ** -np.arange(size, dtype=np.float64))


def losses(rng: np.random.Generator, size: int) -> Array:
    """Ladders, clusters at the top, heavy tails, ties, ulps; with or without another scale."""
    i = np.arange(size, dtype=np.float64)
    families = [
        lambda: -(2.0 ** -np.minimum(i, 1000.0)),
        lambda: -(10.0 ** -np.minimum(i * rng.choice([1.0, 7.0, 20.0]), 300.0)),
        lambda: -(10.0 ** -rng.uniform(0.0, rng.choice([3.0, 20.0, 160.0, 300.0]), size)),
        lambda: np.where(rng.random(size) < 0.5, -(10.0 ** -rng.uniform(155, 165, size)), -rng.random(size)),
        lambda: 1.0 - np.spacing(1.0) * rng.integers(0, 5, size) - (rng.random(size) < 0.3),
        lambda: rng.normal(size=size),
        lambda: rng.standard_cauchy(size) ** rng.choice([1, 3, 5]),
        lambda: rng.integers(0, 3, size).astype(np.float64),
        lambda: 2.0 ** np.minimum(i, 900.0),
        lambda: 10.0 ** rng.uniform(-30, 30, size) * rng.choice([-1.0, 1.0], size),
        lambda: 1e10 + rng.integers(0, 9, size) * np.spacing(1e10),
    ]
    f = np.asarray(families[rng.integers(len(families))]())
    if rng.random() < 0.3:
        f = f * 10.0 ** rng.uniform(-30, 30)
    if rng.random() < 0.3:
        f[rng.integers(size)] = 0.0
    return rng.permutation(f)


def masses(rng: np.random.Generator, size: int) -> Array:
    """Masses from 1e-300 to 1, with zeros."""
    families = [
        lambda: np.ones(size),
        lambda: rng.dirichlet(np.full(size, 0.05)) + 1e-300,
        lambda: 10.0 ** -rng.uniform(0.0, rng.choice([3.0, 16.0, 30.0, 100.0, 300.0]), size),
        lambda: rng.permutation(2.0 ** -np.minimum(np.arange(size), 990.0)),
        lambda: np.where(rng.random(size) < 0.5, 10.0 ** -rng.uniform(290, 300, size), rng.random(size)),
        lambda: rng.random(size) * (rng.random(size) < 0.5) + (np.arange(size) == 0),
    ]
    q = families[rng.integers(len(families))]()
    return np.asarray(q / q.sum())


def radius(rng: np.random.Generator, f: Array, q: Array) -> float:
    """From 1e-30 to 1e6, or where the top alone is just in or out of reach."""
    top = q[f == f[q > 0.0].max()].sum()
    if top < 1.0 and rng.random() < 0.2:
        return -math.log(top) * (1.0 + rng.choice([-1e-3, -1e-9, -1e-15, -2e-16, 2e-16]))
    low, high = [(-30, 6), (-12, -1), (-3, 3)][rng.integers(3)]
    return float(10.0 ** rng.uniform(low, high))


def case(seed: int, size: int) -> tuple[Array, Array, float]:
    rng = np.random.default_rng(seed)
    f, q = losses(rng, size), masses(rng, size)
    return f, q, radius(rng, f, q)


def check(f: Array, center: Array, limit: float, answer: WorstCase) -> None:
    """Feasible, and as good as the bound that η gives by the docstring's formula: all in 90 digits."""
    inside = center > 0.0
    with decimal.localcontext(EXACT):
        loss, q, p = ([Decimal(float(x)) for x in values[inside]] for values in (f, center, answer.p))
        top, most = max(loss), sum(q)
        # Rounding leaves the sums of p and q off 1 by 1e-16: hence - p + q, which is 0 in sum without it.
        divergence = sum((x * (x / y).ln() if x else Decimal(0)) - x + y for x, y in zip(p, q, strict=True))
        value = sum(x * (g - top) for x, g in zip(p, loss, strict=True))
        eta = Decimal(float(answer.dual["eta"]))
        if eta == 0:
            bound = Decimal(0)
        else:
            weight = sum(y * ((g - top) / eta).exp() for y, g in zip(q, loss, strict=True))
            bound = eta * (Decimal(limit) + (weight / most).ln())
        gap, excess, total = float(bound - value), float(divergence - Decimal(limit)), float(sum(p) - 1)
        unit = float(top - min(loss))
    promise = max(tolerances.GAP * unit, tolerances.ulps(f[inside]))
    assert -promise <= gap <= promise, (gap, unit)
    assert abs(answer.value - float(top) - float(value)) <= promise
    assert abs(total) <= tolerances.VIOLATION
    assert not answer.p[~inside].any()
    assert answer.p.min() >= 0.0
    # Entries of p are rounded, by 1e-16 of p: that moves a divergence of r by 1e-16·√r or so.
    assert excess <= tolerances.VIOLATION * limit + 2e-15 * math.sqrt(limit), (excess, limit)
    assert answer.violation <= tolerances.VIOLATION
    assert abs(answer.gap) <= promise
    assert answer.iterations <= MOST_PASSES


def solve(f: Array, q: Array, limit: float) -> WorstCase:
    """The closed form alone: nothing else may step in."""
    subject = KL(q, limit)
    answer = subject.worst_case(f, backend="closed-form")
    check(np.asarray(f, dtype=np.float64), np.asarray(subject.center), limit, answer)
    assert subject.violation(answer.p) <= tolerances.VIOLATION
    return answer


@pytest.mark.parametrize("size", [1, 2, 3, 5, 10, 30])
@pytest.mark.parametrize("block", range(4))
def test_every_answer_over_many_decades_is_certified(block: int, size: int) -> None:
    count = 300 // size + 20
    for seed in range(block * count, (block + 1) * count):
        solve(*case(seed, size))


@pytest.mark.parametrize("limit", [1e-30, 1e-20, 1e-12, 1e-6, 1e-3, 0.1, 0.5, 1.0, 3.0, 100.0, 1e6])
@pytest.mark.parametrize("base", [2.0, 10.0, 1e3, 1e20])
def test_ladders(base: float, limit: float) -> None:
    f = np.append(ladder(base, 15), 0.0)
    for q in (np.full(16, 1 / 16), 2.0 ** -np.arange(1, 17) / (1 - 2.0**-16), np.geomspace(1e-280, 1.0, 16)):
        solve(f, q / q.sum(), limit)


@pytest.mark.parametrize("closeness", [1e-40, 1e-159, 1e-165, 1e-200, 1e-290])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_losses_too_close_to_the_top_are_one_face(closeness: float, share: float) -> None:
    """Between the face's own divergence, log 2, and that of its best vertex, the value is the top's."""
    f, q = np.array([-1.0, -closeness, 0.0]), np.array([0.5, 0.3, 0.2])
    limit = math.log(2.0) + share * (math.log(5.0) - math.log(2.0))
    answer = solve(f, q, limit)
    assert answer.p[0] <= 1e-12
    assert answer.value == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("ulps", [1, 2, 5])
def test_losses_an_ulp_below_the_top(ulps: int) -> None:
    f = np.array([0.0, 1.0 - ulps * 2.0**-53, 1.0 - 2.0**-53, 1.0])
    for limit in (1e-12, 0.01, 0.3, 0.6, 1.0, 5.0):
        solve(f, np.array([0.4, 0.2, 0.39, 0.01]), limit)


@pytest.mark.parametrize("tiny", [1e-300, 1e-307, 1e-315])
def test_a_top_of_almost_no_mass(tiny: float) -> None:
    """The tilt that reaches it is e^690 and more; what remains of the rest must not vanish beside it."""
    f, q = np.array([0.0, 0.3, 1.0]), np.array([0.7, 0.3, tiny])
    for limit in (1e-12, 1e-6, 0.1, 10.0, 300.0, -math.log(tiny) * (1 - 1e-5), -math.log(tiny) * (1 - 1e-9)):
        solve(f, q, limit)


def test_the_top_just_out_of_reach() -> None:
    """-log of a mass near 1 comes from what is missing to 1: the mass itself has lost its digits."""
    rest = 2.8815857e-10
    f, q = np.array([-1.0, -1e-40, 0.0]), np.array([1.5e-16, rest, 1.0 - rest])
    for factor in (1 - 1e-6, 1 - 1e-8, 1 - 1e-9, 1 + 1e-9, 1 + 1e-8):
        solve(f, q, rest * factor)


@pytest.mark.parametrize("seed", range(12))
def test_large_sets(seed: int) -> None:
    """N = 10⁵, with sums by math.fsum in place of 90 digits."""
    f, q, limit = case(seed, 100_000)
    subject = KL(q, limit)
    answer = subject.worst_case(f, backend="closed-form")
    inside = subject.center > 0.0
    p, center = answer.p[inside], subject.center[inside]
    kept = p > 0.0
    divergence = math.fsum(p[kept] * (np.log(p[kept]) - np.log(center[kept])))
    assert divergence <= limit + tolerances.VIOLATION * max(1.0, limit)
    assert math.fsum(p) == pytest.approx(1.0, abs=tolerances.VIOLATION)
    value = math.fsum(p * (f[inside] - f[inside].max())) + f[inside].max()
    assert value == pytest.approx(answer.value, abs=tolerances.gap(f[inside]))
    assert answer.upper_bound - answer.value <= tolerances.gap(f[inside])
    assert answer.iterations <= MOST_PASSES


def test_passes_stay_near_those_of_a_normal_call() -> None:
    """Many decades of masses and losses at a radius of 1e-12, where a search in θ alone crawls."""
    passes = []
    for seed in range(2_000):
        rng = np.random.default_rng(seed)
        f, q = 10.0 ** rng.uniform(-20, 20, 30), 10.0 ** -rng.uniform(0, 300, 30)
        limit = float(rng.choice([1e-12, 1e-9, 1e-6, 1e-3, 1.0]))
        passes.append(KL(q / q.sum(), limit).worst_case(f, backend="closed-form").iterations)
    assert max(passes) <= MOST_PASSES
    assert np.quantile(passes, 0.99) <= 20


def test_a_warm_start_from_anywhere_gives_the_same_answer() -> None:
    for seed in range(200):
        f, q, limit = case(seed, 10)
        other, center, another = case(seed + 1, 10)
        warm = KL(center, another).worst_case(other, backend="closed-form")
        answer = KL(q, limit).worst_case(f, backend="closed-form", warm_start=warm)
        check(f, np.asarray(KL(q, limit).center), limit, answer)


def test_the_place_of_p_in_memory_does_not_matter() -> None:
    """Compilers guard a loop that stores against overlap, and take the slow loop for arrays too close."""
    from uncertainty_sets.kernels.dispatch import COLD
    from uncertainty_sets.kernels.kl import rows
    from uncertainty_sets.kernels.layout import COLUMNS

    for size in (5, 9, 33):
        memory, answers = np.zeros(4 * size + 400), []
        memory[:size] = np.random.default_rng(size).normal(size=size)
        for place in (size, size + 1, size + 3, size + 8, size + 300):
            losses, p = memory[:size].reshape(1, -1), memory[place : place + size].reshape(1, -1)
            out = np.empty((1, COLUMNS))
            rows(losses, np.full((1, size), 1.0 / size), np.array([0.01]), COLD, p, out)
            answers.append(np.append(out[0, :-1], p))
        np.testing.assert_array_equal(answers, answers[:1] * len(answers))
