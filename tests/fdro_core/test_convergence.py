"""The defaults against the conic optimum, and sets and models that the driver has never seen."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from bench.driver.problems import (
    Scaled,
    classification,
    optimum,
    regression,
    relative_gap,
    robust_value,
    six_sets,
)
from fdro_core import LogNormal, Straggler, VirtualEngine, solve
from tests.fdro_core.helpers import softmax_problems, square_problems
from uncertainty_sets import Box, UncertaintySet

TARGET = 1e-3
SETS = ["box", "cd-norm", "ellipsoid", "kl", "polyhedron", "wasserstein-1"]


def gap(problems, uncertainty_set, config, **engine):
    result = solve(problems, uncertainty_set, algorithm=config, engine=VirtualEngine(seed=0, **engine))
    start = robust_value(problems, uncertainty_set, np.zeros(problems[0].dimension))
    best = optimum(problems, uncertainty_set)
    assert result.objective == pytest.approx(robust_value(problems, uncertainty_set, result.w))
    return relative_gap(result.objective, best, start)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.few(3)
def test_defaults_reach_the_conic_optimum(name, aspire):
    problems = classification(8, seed=11)
    active = {"box": 1, "cd-norm": 4, "ellipsoid": 8, "kl": 1, "polyhedron": 8, "wasserstein-1": 4}[name]
    assert abs(gap(problems, six_sets(8, seed=11)[name], aspire(active_workers=active))) < TARGET


@pytest.mark.parametrize("factor", [100.0, 0.01])
@pytest.mark.few(1)
def test_units_delays_and_a_straggler_do_not_matter(factor, aspire):
    problems = [Scaled(problem, factor) for problem in regression(8, seed=12)]
    delays = {"delays": LogNormal(1.0, 0.8), "stragglers": [Straggler(5, 20.0)]}
    assert abs(gap(problems, six_sets(8, seed=12)["kl"], aspire(), **delays)) < TARGET


@pytest.mark.thorough
def test_features_of_condition_1e4(aspire):
    problems = classification(8, seed=13, condition=1e4)
    assert abs(gap(problems, six_sets(8, seed=13)["box"], aspire(active_workers=4))) < 10 * TARGET


class AtMostHalf(UncertaintySet):
    """A set in ten lines: no worker counts more than half."""

    name: ClassVar[str] = ""

    def __init__(self, size):
        self.size = size

    def constraints(self, p):
        return [p <= 0.5]


def test_a_plug_in_set_of_ten_lines(aspire):
    problems = softmax_problems(3)
    assert abs(gap(problems, AtMostHalf(3), aspire(active_workers=3, iterations=400))) < TARGET


def test_one_worker_is_plain_minimisation(aspire):
    (problem,) = square_problems(1)
    result = solve([problem], Box([1.0], [1.0]), algorithm=aspire(iterations=1500))
    best = np.linalg.solve(
        problem.X.T @ problem.X / 6 + 0.1 * np.eye(2),
        problem.X.T @ problem.y / 6,
    )
    np.testing.assert_allclose(result.w, best, atol=1e-8)


def test_the_result_carries_what_is_needed_to_check_it(aspire):
    problems = softmax_problems(4)
    result = solve(problems, six_sets(4)["kl"], algorithm=aspire(iterations=2000))
    losses = [problem.loss_and_gradient(result.w)[0] for problem in problems]
    np.testing.assert_allclose(result.losses, losses)
    assert result.objective == pytest.approx(float(result.worst_case.p @ losses))
    assert result.worst_case.upper_bound - result.objective < 1e-8
    np.testing.assert_allclose(result.planes.sum(axis=1), 1.0, atol=1e-9)
    assert all(six_sets(4)["kl"].contains(p, tol=1e-8) for p in result.planes)
    assert result.weights.sum() == pytest.approx(1.0)
    assert "objective" in repr(result)
