"""Cutting planes: what is added, dropped and merged."""

from __future__ import annotations

import numpy as np

from fdro_core import VirtualEngine, solve
from fdro_core.aspire.planes import Planes
from tests.fdro_core.helpers import middle_box, softmax_problems
from uncertainty_sets import KL

F = np.array([1.0, 2.0, 3.0])
CORNERS = np.eye(3)


def start(**options):
    return Planes(np.full(3, 1 / 3), **({"keep_all": False, "limit": 4} | options))


def test_only_a_violated_plane_is_added():
    planes = start()
    assert planes.update(CORNERS[2], F)
    assert planes.size == 2
    assert planes.multipliers.tolist() == [1.0, 0.0]
    assert planes.losses.tolist() == [2.0, 3.0]
    planes.multipliers[:] = [0.9, 0.1]
    assert not planes.update(CORNERS[2], F)
    assert not planes.update(CORNERS[0], F)


def test_what_rounding_leaves_of_a_zero_is_zero():
    planes = start()
    assert planes.update(np.array([2.6e-18, 1e-12, 1 - 1e-12]), F)
    assert planes.matrix()[1].tolist() == [0.0, 1e-12, 1 - 1e-12]


def test_ease_drops_a_plane_after_two_zeros_and_never_the_last():
    planes = start()
    planes.update(CORNERS[2], F)
    planes.multipliers[:] = [0.0, 1.0]
    planes.previous[:] = [0.5, 0.5]
    assert not planes.update(CORNERS[2], F)
    planes.previous[:] = [0.0, 1.0]
    assert planes.update(CORNERS[2], F)
    assert planes.size == 1
    assert planes.matrix().tolist() == [[0.0, 0.0, 1.0]]
    planes.multipliers[:] = planes.previous[:] = 0.0
    planes.update(CORNERS[2], F)
    assert planes.size == 1


def idle_updates(planes, count):
    """That many plane updates at which only the last plane has weight and nothing is added."""
    for _ in range(count):
        planes.multipliers[:] = planes.previous[:] = 0.0
        planes.multipliers[-1] = 1.0
        planes.update(planes.matrix()[-1], F)


def test_a_plane_is_dropped_when_it_was_idle_for_as_long_as_the_patience():
    planes = start(patience=3)
    planes.update(CORNERS[2], F)
    idle_updates(planes, 2)
    planes.multipliers[:] = 0.5  # weight again: the count begins anew
    planes.update(CORNERS[2], F)
    idle_updates(planes, 2)
    assert planes.size == 2
    idle_updates(planes, 1)
    assert planes.matrix().tolist() == [[0.0, 0.0, 1.0]]


def test_a_full_house_drops_the_plane_idle_for_longest_before_it_merges():
    planes = start(limit=3, patience=100)
    planes.update(CORNERS[2], F)
    idle_updates(planes, 2)
    planes.update(CORNERS[0], np.array([9.0, 2.0, 3.0]))
    planes.multipliers[:] = planes.previous[:] = [0.0, 0.0, 1.0]
    planes.update(CORNERS[1], np.array([1.0, 9.0, 3.0]))
    assert planes.matrix().tolist() == CORNERS[[2, 0, 1]].tolist()


def test_cp_keeps_every_plane_and_grows():
    planes = start(keep_all=True)
    for angle in np.linspace(0.0, 1.5, 20):
        losses = np.array([np.cos(angle), np.sin(angle), 0.0])
        p = losses / losses.sum()  # violated: no earlier plane leans so far to the second worker
        planes.multipliers[:] = planes.previous[:] = 0.0
        planes.update(p, losses)
    assert planes.size == planes.added + 1 > 8
    assert planes.peak == planes.size


def test_a_full_house_merges_the_two_of_least_weight():
    planes = start(limit=3)
    planes.update(CORNERS[2], F)
    planes.multipliers[:] = [0.9, 0.1]
    planes.update(CORNERS[0], np.array([9.0, 2.0, 3.0]))
    planes.multipliers[:] = planes.previous[:] = [0.6, 0.3, 0.1]
    weights = planes.weights()
    planes.update(CORNERS[1], np.array([1.0, 9.0, 3.0]))
    assert planes.size == 3
    np.testing.assert_allclose(planes.weights(), weights, atol=1e-15)
    np.testing.assert_allclose(planes.matrix().sum(axis=1), 1.0)
    np.testing.assert_allclose(sorted(planes.multipliers), [0.0, 0.4, 0.6])
    merged = planes.matrix()[np.argmin(np.abs(planes.multipliers - 0.4))]
    np.testing.assert_allclose(merged, [0.25, 0.0, 0.75])


def test_a_plane_that_returns_is_counted():
    planes = start()
    planes.update(CORNERS[2], F)
    planes.multipliers[:] = planes.previous[:] = [1.0, 0.0]
    planes.update(CORNERS[1], np.array([1.0, 9.0, 2.0]))
    assert planes.returned == 0
    planes.update(CORNERS[2], F)
    assert planes.returned == 1


def test_ease_has_fewer_planes_than_cp_at_the_same_objective(aspire):
    problems = softmax_problems(6)
    results = {}
    for mode in ("ease", "cp"):
        results[mode] = solve(
            problems,
            KL(np.full(6, 1 / 6), 0.3),
            algorithm=aspire(planes=mode, iterations=3000),
            engine=VirtualEngine(seed=0),
        )
    peaks = {
        mode: max(e["planes"] for e in r.history if e["event"] == "report") for mode, r in results.items()
    }
    assert peaks["ease"] < peaks["cp"]
    np.testing.assert_allclose(results["ease"].objective, results["cp"].objective, rtol=1e-5)


def test_no_plane_after_the_horizon(aspire):
    result = solve(
        softmax_problems(6),
        middle_box(6),
        algorithm=aspire(plane_horizon=60, iterations=600, planes="cp"),
    )
    sizes = {e["planes"] for e in result.history if e["event"] == "report" and e["iteration"] >= 60}
    assert len(sizes) == 1
