"""Wasserstein-1 with settled entries dropped during the search, against the search over all of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests import tolerances
from uncertainty_sets import Wasserstein1
from uncertainty_sets.kernels import wasserstein_envelope, wasserstein_line, wasserstein_prune
from uncertainty_sets.kernels.layout import (
    BOUND,
    COLUMNS,
    DUAL,
    GAP,
    ITERATIONS,
    OK,
    STATUS,
    VALUE,
    VIOLATION,
)
from uncertainty_sets.kernels.tangent import MEMORY

SIZE = 400
EVERY = 2
"""Drop entries down to that many: more often than any caller would."""


def solve(subject, f, pruned_from, warm=np.nan):
    p, out = np.full(f.size, np.nan), np.full(COLUMNS, np.nan)
    scratch = np.empty((5, f.size), np.uint32), np.empty(f.size), np.empty((5, 3)), np.empty(MEMORY)
    parameters = subject._sorted_center[0], subject._limit[0], subject._cost[0], subject._step[0]
    wasserstein_line.solve(f, *parameters, subject._power, warm, pruned_from, p, out, *scratch)
    return p, out


def losses(kind, rng, size):
    normal = rng.normal(size=size)
    return {
        "normal": normal,
        "walk": np.cumsum(normal),
        "tied": np.round(4 * normal) / 4,
        "cauchy": rng.standard_cauchy(size),
        "two-valued": (normal > 1.0).astype(float),
        "duplicates": np.repeat(normal[: size // 4], 4),
        "sorted": np.sort(normal),
        "outlier": np.where(np.arange(size) == 7, 1e6, normal),
        "sine": np.sin(np.arange(size) / 20) + 1e-3 * normal,
    }[kind]


def positions(kind, rng, size):
    return {
        "integers": np.arange(float(size)),
        "uniform": np.sort(rng.random(size)) * size,
        "equal": np.sort(rng.integers(0, size // 3, size)).astype(float),
        "gaps": np.cumsum(np.abs(rng.standard_cauchy(size))),
    }[kind]


KINDS = ["normal", "walk", "tied", "cauchy", "two-valued", "duplicates", "sorted", "outlier", "sine"]


def assert_proved(subject, f, p, out):
    assert out[STATUS] == OK
    assert abs(out[GAP]) <= tolerances.gap(f)
    assert out[VIOLATION] <= tolerances.VIOLATION
    assert subject.violation(p) <= tolerances.VIOLATION
    # The bound again from the multiplier alone, by the formula of the docstring.
    x, lam = subject._cost[0], out[DUAL]
    best = (f[:, None] - lam * np.abs(x[:, None] - x)).max(axis=0)
    bound = lam * subject._radius[0] + subject._sorted_center[0] @ best
    assert bound == pytest.approx(out[BOUND], abs=tolerances.gap(f))
    assert float(p @ f) == pytest.approx(out[VALUE], abs=tolerances.gap(f))


@pytest.mark.parametrize("radius", [0.0, 1e-9, 0.01, 0.3, 3.0, 40.0, 1e6])
@pytest.mark.parametrize("spacing", ["integers", "uniform", "equal", "gaps"])
@pytest.mark.parametrize("kind", KINDS)
def test_dropping_settled_entries_changes_nothing(kind, spacing, radius):
    rng = np.random.default_rng(5)
    q = rng.dirichlet(np.full(SIZE, 0.5))
    q[rng.random(SIZE) < 0.2] = 0.0
    f = losses(kind, rng, SIZE)
    subject = Wasserstein1(q / q.sum(), radius, positions(spacing, rng, SIZE))
    _, every = solve(subject, f, wasserstein_line.NEVER)
    for pruned_from in (EVERY, wasserstein_line.PRUNED_FROM):
        p, out = solve(subject, f, pruned_from)
        assert_proved(subject, f, p, out)
        assert out[VALUE] == pytest.approx(every[VALUE], abs=tolerances.value(f, tolerances.SAME_VALUE))


@pytest.mark.parametrize("scale", [1e-140, 1e-7, 1e9, 1e140])
@pytest.mark.parametrize("kind", KINDS)
def test_dropping_at_other_scales_and_from_any_start(kind, scale):
    rng = np.random.default_rng(6)
    f = scale * losses(kind, rng, SIZE)
    subject = Wasserstein1(rng.dirichlet(np.ones(SIZE)), 1.0)
    _, every = solve(subject, f, wasserstein_line.NEVER)
    for start in (np.nan, every[DUAL], 1.01 * every[DUAL], 1e-6 * scale, 1e6 * scale):
        p, out = solve(subject, f, EVERY, start)
        assert_proved(subject, f, p, out)
        assert out[VALUE] == pytest.approx(every[VALUE], abs=tolerances.value(f, tolerances.SAME_VALUE))


@pytest.mark.parametrize("radius", [0.05, 1.0, 300.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_line_long_enough_to_start_from_a_sample(kind, radius):
    rng = np.random.default_rng(7)
    size = wasserstein_line.GUESSED_FROM
    f = losses(kind, rng, size)
    subject = Wasserstein1(rng.dirichlet(np.ones(size)), radius)
    p, out = solve(subject, f, wasserstein_line.PRUNED_FROM)
    _, every = solve(subject, f, wasserstein_line.NEVER)
    assert out[STATUS] == OK
    assert abs(out[GAP]) <= tolerances.gap(f)
    assert subject.violation(p) <= tolerances.VIOLATION
    assert out[VALUE] == pytest.approx(every[VALUE], abs=tolerances.value(f, tolerances.SAME_VALUE))


def test_entries_are_dropped_and_the_search_is_the_same():
    """Most of a line is settled after a few evaluations; the rest takes as many as before."""
    rng = np.random.default_rng(8)
    f, subject = rng.normal(size=SIZE), Wasserstein1(np.full(SIZE, 1 / SIZE), 1.0)
    _, pruned = solve(subject, f, EVERY)
    _, every = solve(subject, f, wasserstein_line.NEVER)
    assert abs(pruned[ITERATIONS] - every[ITERATIONS]) <= 2
    x, lam = np.arange(float(SIZE)), every[DUAL]
    low, high = np.empty(SIZE, np.uint32), np.empty(SIZE, np.uint32)
    wasserstein_envelope.sweep(f, x, subject.center, f.max(), 0.99 * lam, low)
    wasserstein_envelope.sweep(f, x, subject.center, f.max(), 1.01 * lam, high)
    count = wasserstein_prune.changing(low, high)
    changed = wasserstein_prune.sources(low, high, count)
    assert changed.tolist() == np.flatnonzero(low != high).tolist()
    marks = np.empty(SIZE, np.uint8)
    targets = wasserstein_prune.able(high, 1.0, np.empty(0, np.uint32))
    kept = wasserstein_prune.mark(x, low, high, changed, targets, marks)
    assert 0 < count < kept < SIZE / 4
    # Every target at a rate in between is kept.
    between = np.empty(SIZE, np.uint32)
    wasserstein_envelope.sweep(f, x, subject.center, f.max(), lam, between)
    assert (marks[between[changed]] != wasserstein_prune.DROPPED).all()
    settled = low == high
    assert (between[settled] == low[settled]).all()


@pytest.mark.parametrize("radius", [0.0, 0.1, 1e6])
@pytest.mark.parametrize("costs", ["plane", "integers", "zeros", "one way"])
@pytest.mark.parametrize("kind", ["normal", "tied", "cauchy", "two-valued"])
def test_a_matrix_with_settled_sources_left_out(kind, costs, radius):
    rng = np.random.default_rng(9)
    size = 300
    points = rng.normal(size=(size, 2))
    cost = {
        "plane": np.linalg.norm(points[:, None] - points, axis=2),
        "integers": np.abs(np.subtract.outer(np.arange(float(size)), np.arange(size))) % 7,
        "zeros": np.maximum(np.linalg.norm(points[:, None] - points, axis=2) - 0.3, 0.0),
        "one way": rng.uniform(0.1, 1.0, (size, size)) * (1.0 - np.eye(size)),
    }[costs]
    q = rng.dirichlet(np.full(size, 0.5))
    q[rng.random(size) < 0.2] = 0.0
    f, subject = losses(kind, rng, size), Wasserstein1(q / q.sum(), radius, cost)
    for warm_start in (None, subject.worst_case(f + 0.01 * rng.normal(size=size))):
        answer = subject.worst_case(f, warm_start=warm_start)
        assert answer.backend == "closed-form"
        assert abs(answer.gap) <= tolerances.gap(f)
        lam = answer.dual["lam"]
        bound = lam * radius + subject.center @ (f[:, None] - lam * cost).max(axis=0)
        assert bound == pytest.approx(answer.upper_bound, abs=tolerances.gap(f))
        assert float(answer.p @ f) == pytest.approx(bound, abs=tolerances.gap(f))
    assert subject.violation(answer.p) <= tolerances.VIOLATION
