"""Paths of radii: monotone, equal to solving each radius alone, and what robustness costs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from uncertainty_sets import KL, Box, CDNorm, ChiSquare, TotalVariation
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.mdp import RobustMDP, problems
from uncertainty_sets.mdp.path import price_of_robustness, radius_path

RADII = np.array([0.0, 0.003, 0.03, 0.1, 0.5, 2.0])
TOLERANCE = 1e-7
FOREST = problems.forest(8)


@pytest.mark.parametrize("optimistic", [False, True])
@pytest.mark.parametrize(
    ("kind", "rectangular"), [(KL, "sa"), (TotalVariation, "sa"), (KL, "s"), (ChiSquare, "s")]
)
def test_a_path_equals_cold_solves_and_is_monotone(kind, rectangular, optimistic):
    given = {"rectangular": rectangular, "optimistic": optimistic, "tolerance": TOLERANCE}
    path = radius_path(FOREST, kind, RADII, **given)
    assert len(path) == len(RADII)
    for radius, warm in zip(RADII, path, strict=True):
        problem = RobustMDP.of(FOREST, kind, rectangular=rectangular, optimistic=optimistic, radius=radius)
        cold = problem.solve(tolerance=TOLERANCE)
        assert warm.converged
        assert (warm.lower <= cold.upper).all()  # both pairs of bounds hold the same number
        assert (cold.lower <= warm.upper).all()
    for small, large in itertools.pairwise(path):
        less, more = (small, large) if optimistic else (large, small)
        assert (less.lower <= more.upper).all()
    assert abs(path[-1].value - path[0].value).max() > 0.5  # and not all the same


def test_a_path_starts_at_the_solution_before():
    model = problems.inventory(30)
    radii = 0.1 * 1.01 ** np.arange(4)
    path = radius_path(model, KL, radii, method="value")
    cold = RobustMDP.of(model, KL, radius=radii[-1]).solve("value")
    assert path[-1].sweeps < cold.sweeps


def test_a_path_takes_other_parameters_and_sizes():
    path = radius_path(FOREST, "cd-norm", [0.5, 2.0], spread=0.1)
    alone = RobustMDP.of(FOREST, CDNorm, spread=0.1, budget=2.0).solve()
    np.testing.assert_allclose(path[-1].value, alone.value, atol=2e-6)


def test_the_price_of_robustness():
    price = price_of_robustness(FOREST, KL, RADII[1:], tolerance=TOLERANCE)
    nominal = RobustMDP.of(FOREST, TotalVariation, radius=0.0).solve(tolerance=TOLERANCE)
    np.testing.assert_allclose(price.nominal.value, nominal.value, atol=2 * TOLERANCE)
    assert price.size == "radius"
    for radius, robust, ignoring, nominally in zip(
        price.radii, price.robust, price.nominal_policy, price.robust_policy, strict=True
    ):
        problem = RobustMDP.of(FOREST, KL, radius=radius)
        np.testing.assert_allclose(ignoring.value, problem.evaluate(nominal.actions).value, atol=2e-6)
        assert (ignoring.lower <= robust.upper).all()
        assert (robust.lower <= nominally.upper).all()
        assert (nominally.lower <= price.nominal.upper).all()
    gain = [(a.value - b.value).max() for a, b in zip(price.robust, price.nominal_policy, strict=True)]
    assert max(gain) > 0.5  # robustness pays in the worst case


def test_the_price_in_the_best_case():
    price = price_of_robustness(FOREST, TotalVariation, [0.05, 0.2], optimistic=True)
    assert price.optimistic
    assert (price.robust[1].lower >= price.nominal.upper - 1e-6).all()


class InterruptsAt:
    """Raises Ctrl-C in the n-th solution of a problem."""

    def __init__(self, monkeypatch, number):
        self.calls = 0
        original = RobustMDP.solve

        def solve(problem, method="policy", **given):
            self.calls += 1

            def stop(sweep):
                raise KeyboardInterrupt

            last = {"on_sweep": stop} if self.calls == number else {}
            return original(problem, method, **given, **last)

        monkeypatch.setattr(RobustMDP, "solve", solve)


def test_an_interrupted_path_keeps_what_it_has(monkeypatch):
    InterruptsAt(monkeypatch, 3)
    path = radius_path(FOREST, KL, RADII)
    assert [each.interrupted for each in path] == [False, False, True]


def test_an_interrupted_price_keeps_complete_radii(monkeypatch):
    InterruptsAt(monkeypatch, 4)  # the first solves the nominal model
    price = price_of_robustness(FOREST, KL, RADII[1:])
    assert price.radii.tolist() == RADII[1:3].tolist()
    assert [len(part) for part in (price.robust, price.nominal_policy, price.robust_policy)] == [2, 2, 2]


def test_a_price_interrupted_at_once_has_nothing_to_return(monkeypatch):
    InterruptsAt(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        price_of_robustness(FOREST, KL, RADII[1:])


@pytest.mark.parametrize(
    ("kind", "radii", "given", "words"),
    [
        (Box, [0.1], {}, "with a radius or a budget, such as KL"),
        (lambda q: KL(q, 0.1), [0.1], {}, "with a radius or a budget"),
        (KL, [0.2, 0.1], {}, "numbers that increase"),
        (KL, [], {}, "numbers that increase"),
        (KL, [0.1, 0.1], {}, "numbers that increase"),
        (KL, 0.1, {}, "numbers that increase"),
        (KL, [-0.1, 0.1], {}, "radius"),
        (KL, [0.1], {"radius": 0.3}, "leave out radius=0.3"),
    ],
)
def test_bad_paths(kind, radii, given, words):
    with pytest.raises(InvalidParameter, match=words):
        radius_path(FOREST, kind, radii, **given)
    with pytest.raises(InvalidParameter, match=words):
        price_of_robustness(FOREST, kind, radii, **given)
