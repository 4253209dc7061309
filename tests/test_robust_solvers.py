"""`problem.solve()` without arguments: cvxpy must know which cones a support function brings along."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from tests.cases import NAMES
from tests.plugins import ALL
from uncertainty_sets import Ellipsoid, Wasserstein1, get_set
from uncertainty_sets.robust import support

N = 4
CENTER = np.array([0.4, 0.3, 0.2, 0.1])
TARGET = np.array([1.0, -0.5, 2.0, 0.3])

# cvxpy sends a quadratic objective over linear constraints to OSQP, which stops at 1e-5 by default.
SOLVED = 2e-4

SETS = {
    **{name: get_set(name).example(N, np.random.default_rng(0)) for name in NAMES},
    **{cls.__name__: cls(CENTER, 0.1) for cls in ALL},
    "dense ellipsoid": Ellipsoid(CENTER, np.eye(N) + 0.3, 0.1),
    "dense transport": Wasserstein1(CENTER, 0.1, 1.0 - np.eye(N)),
}


def stated(uncertainty_set, x, objective, limits):
    """The same problem by the oracle alone: a cut pᵀx for each worst case p, until none is above."""
    cuts = [uncertainty_set.worst_case(TARGET).p]
    for _ in range(60):
        worst = cp.Variable()
        problem = cp.Problem(cp.Minimize(objective(worst)), [worst >= np.array(cuts) @ x, *limits(worst)])
        problem.solve(solver=cp.CLARABEL)
        answer = uncertainty_set.worst_case(x.value)
        if answer.value <= worst.value + 1e-8:
            break
        cuts.append(answer.p)
    return problem.value


def near(x):
    """Where x is kept: a box, so that every objective below is bounded."""
    return [x >= TARGET - 1, x <= TARGET + 1]


OBJECTIVES = {
    "quadratic": lambda worst, x: worst + cp.sum_squares(x - TARGET),
    "linear": lambda worst, x: worst + np.arange(N) @ x,
    "norm": lambda worst, x: worst + 2 * cp.norm(x - TARGET),
    "nothing else": lambda worst, x: worst,
}


@pytest.mark.parametrize("term", OBJECTIVES)
@pytest.mark.parametrize("name", SETS)
def test_in_an_objective(name, term):
    x = cp.Variable(N)
    problem = cp.Problem(cp.Minimize(OBJECTIVES[term](support(SETS[name], x), x)), near(x))
    problem.solve()
    assert problem.status == "optimal"
    best = stated(SETS[name], x, lambda worst: OBJECTIVES[term](worst, x), lambda worst: near(x))
    assert problem.solution.opt_val == pytest.approx(best, abs=SOLVED)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    "objective",
    [lambda x: cp.sum_squares(x - TARGET), lambda x: np.arange(N) @ x, lambda x: cp.norm(x - TARGET)],
    ids=["quadratic", "linear", "norm"],
)
def test_in_a_constraint(name, objective):
    x = cp.Variable(N)
    limit = SETS[name].worst_case(TARGET).value - 0.3
    problem = cp.Problem(cp.Minimize(objective(x)), [support(SETS[name], x) <= limit, *near(x)])
    problem.solve()
    assert problem.status == "optimal"
    best = stated(
        SETS[name], x, lambda worst: objective(x) + 0 * worst, lambda worst: [worst <= limit, *near(x)]
    )
    assert problem.solution.opt_val == pytest.approx(best, abs=SOLVED)


@pytest.mark.parametrize("name", ["kl", "box", "ellipsoid"])
def test_a_parameter_and_a_scaled_support(name):
    """Through the parametrised path, where cvxpy compiles once for all values."""
    x, weight = cp.Variable(N), cp.Parameter(nonneg=True)
    problem = cp.Problem(cp.Minimize(weight * support(SETS[name], x) + cp.sum_squares(x - TARGET)))
    for weight.value in (0.5, 2.0):
        problem.solve()
        assert problem.status == "optimal"
        best = stated(
            SETS[name],
            x,
            lambda worst: float(weight.value) * worst + cp.sum_squares(x - TARGET),
            lambda worst: [],
        )
        assert problem.solution.opt_val == pytest.approx(best, abs=SOLVED)


@pytest.mark.parametrize("name", ["box", "polyhedron", "TotalVariation"])
def test_a_set_of_linear_constraints_stays_linear(name):
    """Whole numbers and linear sets are a mixed-integer LP, which HiGHS solves by default."""
    x = cp.Variable(N, integer=True)
    problem = cp.Problem(cp.Minimize(support(SETS[name], x)), [cp.sum(x) == 3, x >= -2, x <= 5])
    problem.solve()
    best = min(
        SETS[name].worst_case(np.array(each, dtype=float)).value
        for each in np.ndindex(*[8] * N)
        if sum(each) == 3 + 2 * N
    )
    assert problem.solution.opt_val == pytest.approx(best - 2, abs=1e-6)


def test_sets_with_other_cones_are_other_atoms():
    x = cp.Variable(N)
    kinds = [type(support(SETS[name], x)) for name in ("kl", "ellipsoid", "box", "Entropic")]
    assert kinds[0] is kinds[3]
    assert len(set(kinds[:3])) == 3
