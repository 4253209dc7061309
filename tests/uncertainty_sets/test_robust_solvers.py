"""`problem.solve()` without arguments: cvxpy must know which cones a support function brings along."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from tests.uncertainty_sets.cases import NAMES
from tests.uncertainty_sets.plugins import ALL, Transport
from uncertainty_sets import CDNorm, Ellipsoid, Polyhedron, UncertaintySet, Wasserstein1, get_set
from uncertainty_sets.robust import support

N = 4
CENTER = np.array([0.4, 0.3, 0.2, 0.1])
TARGET = np.array([1.0, -0.5, 2.0, 0.3])

# Clarabel stops at 1e-8 on data that it has scaled, and the cuts below at as much.
SOLVED = 1e-5

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


@pytest.mark.parametrize("where", ["objective", "constraint"])
def test_a_linear_set_that_is_too_much_for_osqp(where):
    """900 auxiliary variables: OSQP, cvxpy's choice for quadratic programs, ends at its limit."""
    rng = np.random.default_rng(0)
    uncertainty_set, target = Transport(rng.dirichlet(np.ones(30)), 0.1), rng.normal(size=30)
    x = cp.Variable(30)
    worst, distance = support(uncertainty_set, x), cp.sum_squares(x - target)
    limit = uncertainty_set.worst_case(target).value - 0.3
    if where == "objective":
        problem = cp.Problem(cp.Minimize(worst + distance))
    else:
        problem = cp.Problem(cp.Minimize(distance), [worst <= limit])
    problem.solve()
    assert problem.status == "optimal"
    at = uncertainty_set.worst_case(x.value).value
    if where == "objective":
        assert problem.solution.opt_val == pytest.approx(at + np.sum((x.value - target) ** 2), abs=SOLVED)
    else:
        assert at == pytest.approx(limit, abs=SOLVED)


def test_a_linear_set_by_a_linear_solver():
    x, whole = cp.Variable(N), cp.Variable(integer=True)
    for name in ("box", "polyhedron", "cd-norm", "wasserstein-1", "TotalVariation"):
        problem = cp.Problem(cp.Minimize(support(SETS[name], x, linear=True)), [x == TARGET])
        problem.solve(solver=cp.HIGHS)
        assert problem.solution.opt_val == pytest.approx(SETS[name].worst_case(TARGET).value, abs=1e-6)
        apart = cp.Problem(
            cp.Minimize(support(SETS[name], x, linear=True) + whole), [x == TARGET, whole >= 0.5]
        )
        apart.solve()
        assert apart.solution.opt_val == pytest.approx(problem.solution.opt_val + 1, abs=1e-6)


@pytest.mark.parametrize("name", ["box", "polyhedron", "TotalVariation"])
def test_a_linear_set_of_whole_numbers(name):
    """A mixed-integer LP, which HiGHS solves by default."""
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
    kinds = [type(support(SETS[name], x, linear=True)) for name in ("kl", "ellipsoid", "box", "Entropic")]
    assert kinds[0] is kinds[3]
    assert len(set(kinds[:3])) == 3
    assert type(support(SETS["box"], x)) is kinds[1]


@pytest.mark.parametrize("exponents", [(-12, -4), (4, 12)])
def test_rows_of_a_polyhedron_may_be_in_any_units(exponents):
    rng = np.random.default_rng(0)
    for _ in range(15):
        D, q, f = rng.normal(size=(4, N)), rng.dirichlet(np.ones(N)), rng.normal(size=N)
        c, units = D @ q + 0.02, 10.0 ** rng.uniform(*exponents, 4)
        x = cp.Variable(N)
        problem = cp.Problem(cp.Minimize(support(Polyhedron(D * units[:, None], c * units), x)), [x == f])
        problem.solve()
        assert problem.solution.opt_val == pytest.approx(Polyhedron(D, c).worst_case(f).value, abs=1e-6)


@pytest.mark.parametrize("limit", [1.0, 1e12, 1e20])
def test_rows_that_no_distribution_can_break_do_not_matter(limit):
    x = cp.Variable()
    worst = support(Polyhedron(np.eye(2), [0.7, limit]), cp.hstack([x - 1, -2 * x]))
    problem = cp.Problem(cp.Minimize(worst + cp.square(x)))
    assert problem.solve() == pytest.approx(-5 / 9, abs=1e-6)


@pytest.mark.parametrize("spread", [1e-3, 1e-8, 1e-14])
def test_cd_norm_with_a_tiny_spread_among_larger_ones(spread):
    """As the spread goes to 0 the least of the worst cases goes to 0.00734375, at x = 0.0875."""
    x = cp.Variable()
    subject = CDNorm([0.2, 0.3, 0.5], [0.1, spread, 0.1], 1.0)
    worst = support(subject, np.array([1.0, -2.0, 0.5]) * x + np.array([-1.0, 0.0, 0.3]))
    found = cp.Problem(cp.Minimize(worst + cp.square(x))).solve()
    assert found == pytest.approx(0.00734375, abs=1e-6 + 2.0 * spread)


class Scaled(UncertaintySet):
    """A Euclidean ball in a unit of its own."""

    def __init__(self, unit):
        self.unit, self.size = unit, N

    def constraints(self, p):
        return [cp.norm(self.unit * (p - CENTER)) <= 0.1 * self.unit]


@pytest.mark.parametrize("unit", [1e-8, 1e-5, 1e5, 1e8])
def test_the_unit_of_a_constraint_does_not_matter(unit):
    """Its dual's multipliers would be as large as the unit is small, and a solver stops at once."""
    x, worst = cp.Variable(N), Scaled(unit)
    problem = cp.Problem(cp.Minimize(support(worst, x) + cp.sum_squares(x - TARGET)))
    problem.solve()
    assert problem.status == "optimal"
    other = cp.sum_squares(x - TARGET)
    best = stated(Scaled(1.0), x, lambda found: found + other, lambda found: [])
    assert problem.solution.opt_val == pytest.approx(best, abs=SOLVED)
    fixed = np.array([-0.12, 0.2, -0.4, 0.05])
    again = cp.Problem(cp.Minimize(support(worst, x)), [x >= fixed])
    assert again.solve() == pytest.approx(Scaled(1.0).worst_case(fixed).value, abs=SOLVED)
