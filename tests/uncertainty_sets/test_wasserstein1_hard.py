"""Wasserstein-1 where numbers are extreme: tiny distances, huge losses, long lines."""

from __future__ import annotations

import numpy as np
import pytest

from tests import tolerances
from uncertainty_sets import Wasserstein1


def recomputed_gap(subject, f, answer):
    """The bound of the docstring less pᵀf, in extended precision, from the largest loss."""
    g, lam = np.asarray(f, dtype=np.longdouble) - np.longdouble(np.max(f)), np.longdouble(answer.dual["lam"])
    x = np.arange(len(g)) if subject.cost is None else subject.cost.astype(np.longdouble)
    cost = x if x.ndim == 2 else np.abs(np.subtract.outer(x, x))
    bound = lam * np.longdouble(subject.radius) + subject.center @ (g[:, None] - lam * cost).max(axis=0)
    return float(bound - answer.p @ g)


@pytest.mark.parametrize("as_matrix", [False, True])
@pytest.mark.parametrize(
    ("distance", "loss"), [(1e-160, 1e145), (1e-20, 1e287), (1e150, 1e-150), (1e-3, 1e300)]
)
def test_distances_and_losses_far_apart_in_size(as_matrix, distance, loss):
    x = distance * np.array([0.0, 1.0, 2.0])
    cost = np.abs(np.subtract.outer(x, x)) if as_matrix else x
    subject = Wasserstein1([0.5, 0.25, 0.25], 0.25 * distance, cost)
    f = loss * np.array([0.0, 1.0, 4.0])
    answer = subject.worst_case(f)
    # Moving mass from the second to the third entry gains 3 a unit of distance, more than any other move.
    assert answer.p == pytest.approx([0.5, 0.0, 0.5], abs=1e-15)
    assert answer.backend == "closed-form"
    assert abs(recomputed_gap(subject, f, answer)) <= tolerances.gap(f)


@pytest.mark.parametrize("seed", range(20))
def test_a_line_so_long_that_rounding_of_p_costs_more_than_the_promise(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 40))
    x, q = rng.random(size) * 1e12, rng.dirichlet(np.full(size, 0.3))
    subject, f = Wasserstein1(q, 1.0, x), rng.normal(size=size)
    answer = subject.worst_case(f)
    assert answer.backend == "closed-form"
    assert abs(recomputed_gap(subject, f, answer)) <= tolerances.gap(f)
    assert subject.violation(answer.p) <= tolerances.VIOLATION


def test_only_the_rounding_of_p_is_forgiven():
    """A mass of 1e-20 that travels 1e12 costs 1e-8: its place is known to all digits, so it counts."""
    x = np.array([0.0, 1.0, 1e12])
    subject = Wasserstein1([0.5, 0.5, 0.0], 1e-12, x)
    assert subject.violation([0.5, 0.5, 1e-20]) == pytest.approx(1e-8, rel=1e-3)
    assert subject.violation([0.5 - 1e-15, 0.5 + 1e-15, 0.0]) <= 1e-12
    assert subject.violation([0.5 - 1e-9, 0.5, 1e-9]) == pytest.approx(1e3, rel=1e-6)


def test_with_a_matrix_the_rounding_of_p_is_forgiven_too():
    rng = np.random.default_rng(0)
    x = 1e10 * np.arange(20.0)
    subject = Wasserstein1(rng.dirichlet(np.ones(20)), 0.3, np.abs(np.subtract.outer(x, x)))
    assert subject.violation(subject.worst_case(rng.normal(size=20)).p) <= tolerances.VIOLATION
    assert Wasserstein1([0.5, 0.5], 0.1, [[0.0, 1e10], [1e10, 0.0]]).violation([0.5 - 1e-9, 0.5 + 1e-9]) > 9.0
