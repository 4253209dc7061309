"""`AspireModels`: the lower bound on the optimum holds, and is missing where nothing is proved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.driver.problems import (
    classification,
    reference,
    six_sets,
)
from fdro_core import (
    AspireModels,
    Crash,
    LeastSquares,
    SoftmaxRegression,
    VirtualEngine,
    solve,
)
from fdro_core.aspire.models.stopping import lower_bound
from fdro_core.errors import InvalidProblem
from tests.fdro_core.helpers import Quadratic, middle_box, softmax_problems
from uncertainty_sets import KL, Box

N = 5


def models(**given):
    return AspireModels(**given)


# -- the bound ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(six_sets(4)))
@pytest.mark.parametrize("iterations", [1, 8, 40, 400])
def test_the_bound_is_below_the_optimum_at_every_stage(kind, iterations):
    problems, chosen = classification(4, seed=6, l2=1e-2), six_sets(4, seed=6)[kind]
    best, _ = reference(problems, chosen)
    result = solve(problems, chosen, algorithm=models(iterations=iterations))
    assert np.isfinite(result.lower_bound)
    assert result.lower_bound <= best + 1e-9 * abs(best)
    assert best <= result.worst_case.upper_bound + 1e-9 * abs(best)
    assert result.gap == result.worst_case.upper_bound - result.lower_bound
    assert result.gap >= result.objective - best - 1e-9 * abs(best)
    assert f"at most {result.gap:.2g} above the optimum" in repr(result)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_the_bound_of_quadratics_is_below_their_minimum(seed):
    """The minimum of Σ s_j·½a_j‖w - c_j‖² is known in closed form; with equal a_j the bound is tight."""
    rng = np.random.default_rng(seed)
    size, p = int(rng.integers(1, 9)), int(rng.integers(1, 6))
    a, centres = rng.uniform(0.1, 3.0, size=size), rng.normal(size=(size, p))
    s, z = rng.dirichlet(np.ones(size)), 10.0 ** rng.uniform(-8, 4) * rng.normal(size=p)
    for curvatures in (a, np.full(size, a[0])):
        away = z - centres
        losses, gradients = 0.5 * curvatures * (away**2).sum(axis=1), curvatures[:, None] * away
        middle = (s * curvatures) @ centres / float(s @ curvatures)
        least = float(s @ (0.5 * curvatures * ((middle - centres) ** 2).sum(axis=1)))
        bound = lower_bound(s, 0.0, losses, gradients, curvatures)
        assert bound <= least
        if curvatures is not a:
            assert least - bound <= 1e-12 * (float(s @ losses) + least)


def test_what_has_no_bound():
    s, f, g = np.array([0.5, 0.5]), np.array([1.0, 2.0]), np.array([[1.0], [-1.0]])
    one = np.ones(2)
    assert np.isfinite(lower_bound(s, 1e-10, f, g, one))
    assert lower_bound(s, 1e-10, f, g, one) < lower_bound(s, 0.0, f, g, one)
    assert lower_bound(s, 1e-8, f, g, one) == -np.inf  # not in the set
    assert lower_bound(s, np.inf, f, g, one) == -np.inf
    assert lower_bound(s, 0.0, f, g, np.zeros(2)) == -np.inf  # convex, no ridge
    assert lower_bound(s, 0.0, f, g, np.array([1.0, -np.inf])) == -np.inf  # unknown
    assert lower_bound(s, 0.0, f, g, np.array([1.0, -1.0])) == -np.inf
    assert np.isfinite(lower_bound(s, 0.0, f, g, np.array([1.0, -0.5])))  # together convex enough


def test_problems_state_their_convexity():
    ridge = LeastSquares([[1.0]], [0.0], l2=0.25, intercept=False)
    assert ridge.strong_convexity == 0.25
    assert SoftmaxRegression([[1.0]], [0], 2, l2=0.5, intercept=False).strong_convexity == 0.5
    without = solve(
        [ridge, LeastSquares([[1.0]], [2.0], intercept=False)], Box([0, 0], [1, 1]), algorithm=models()
    )
    assert np.isfinite(without.lower_bound)  # one ridge is enough if its worker has weight
    none = solve([ridge, Quadratic([2.0])], Box([0, 0], [1, 1]), algorithm=models())
    assert none.lower_bound == -np.inf


@pytest.mark.parametrize("value", ["strong", np.nan, np.inf, True])
def test_a_wrong_convexity_is_refused_before_the_run(value):
    problem = Quadratic([0.0])
    problem.strong_convexity = value
    with pytest.raises(InvalidProblem, match=r"problems\[1\].strong_convexity must be a finite number"):
        solve([Quadratic([1.0]), problem], middle_box(2), algorithm=models())


@pytest.mark.filterwarnings("ignore::fdro_core.errors.WorkerWarning")
@pytest.mark.parametrize("back", [20.0, np.inf])
def test_redistributed_weights_prove_nothing_unless_the_worker_comes_back(back):
    """The set gives worker 0 at least 0.3, and its weight goes to the others while it is away."""
    problems, box = softmax_problems(3), Box([0.3, 0.1, 0.1], [0.5, 0.6, 0.6])
    best = solve(problems, box, algorithm=models()).objective
    result = solve(
        problems,
        box,
        algorithm=models(dead_losses="drop", iterations=300),
        engine=VirtualEngine(seed=2, crashes=[Crash(0, 3.0, back)]),
    )
    returned = back < np.inf
    assert (result.proved, box.contains(result.weights)) == (returned, returned)
    assert result.lower_bound <= best
    assert (result.gap < 1e-7) == returned


def test_the_final_round_asks_the_oracle_once():
    class Counting(KL):
        calls = 0

        def worst_case(self, losses, **given):
            Counting.calls += 1
            return super().worst_case(losses, **given)

    q = np.full(3, 1 / 3)
    solve(softmax_problems(3), Counting(q, 0.1), algorithm=models(iterations=2, plane_interval=10))
    assert Counting.calls == 2  # the other one is the first plane update, at z⁰
