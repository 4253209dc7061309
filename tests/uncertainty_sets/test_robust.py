"""The support function as a cvxpy expression: equal to the oracle, and right inside other problems."""

from __future__ import annotations

import subprocess
import sys

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

from tests.uncertainty_sets.plugins import ALL, Entropic, Euclidean, TotalVariation
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import EmptySet, InvalidInput
from uncertainty_sets.penalised import Penalised, penalties
from uncertainty_sets.robust import support
from uncertainty_sets.sets.kl import KL
from uncertainty_sets.sets.polyhedron import Polyhedron

N = 5
CENTER = np.array([0.1, 0.3, 0.2, 0.25, 0.15])


def make_polyhedron(center, radius):
    return Polyhedron(np.vstack([np.eye(N), -np.eye(N)]), np.r_[center + radius, radius - center])


MAKERS = [*ALL, make_polyhedron]


def solved(problem):
    """The solver's own optimum: `problem.value` would evaluate the oracle instead."""
    problem.solve(solver=cp.CLARABEL)
    assert problem.status == "optimal"
    return problem.solution.opt_val


@pytest.mark.parametrize("make", MAKERS)
def test_equals_the_oracle_at_a_point(make):
    rng = np.random.default_rng(0)
    uncertainty_set = make(CENTER, 0.1)
    for _ in range(3):
        f = rng.normal(size=N)
        x = cp.Variable(N)
        best = solved(cp.Problem(cp.Minimize(support(uncertainty_set, x)), [x == f]))
        assert best == pytest.approx(uncertainty_set.worst_case(f).value, abs=1e-6)


@pytest.mark.parametrize("make", MAKERS)
def test_one_convex_expression(make):
    uncertainty_set = make(CENTER, 0.1)
    x = cp.Variable(N)
    worst = support(uncertainty_set, cp.square(x))
    assert isinstance(worst, cp.Expression)
    assert worst.shape == ()
    assert worst.is_convex()
    assert not worst.is_concave()
    assert worst.is_nonneg()
    x.value = np.arange(N, dtype=float)
    assert worst.value == pytest.approx(uncertainty_set.worst_case(np.arange(N) ** 2.0).value)
    np.testing.assert_allclose(
        worst.grad[x].toarray().ravel(),
        2 * x.value * uncertainty_set.worst_case(np.arange(N) ** 2.0).p,
    )


@pytest.mark.parametrize("make", MAKERS)
def test_minimising_it_against_a_descent_on_the_oracle(make):
    """min over w of the worst case of convex losses, twice: one conic problem, and the oracle alone."""
    rng = np.random.default_rng(1)
    X, t = rng.normal(size=(N, 2)), rng.normal(size=N)
    uncertainty_set = make(CENTER, 0.1)
    w = cp.Variable(2)
    best = solved(cp.Problem(cp.Minimize(support(uncertainty_set, cp.square(X @ w - t)) + 0.1 * cp.norm1(w))))

    def by_oracle(w):
        return uncertainty_set.worst_case((X @ w - t) ** 2).value + 0.1 * np.abs(w).sum()

    assert by_oracle(w.value) == pytest.approx(best, abs=1e-5)
    descent = minimize(by_oracle, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9})
    assert best == pytest.approx(descent.fun, abs=1e-5)


def test_in_sums_constraints_and_with_other_sets():
    rng = np.random.default_rng(2)
    X, t = rng.normal(size=(N, 2)), rng.normal(size=N)
    first, second = TotalVariation(CENTER, 0.1), Entropic(CENTER, 0.2)
    w = cp.Variable(2)
    losses = cp.abs(X @ w - t)
    limit = 1.05 * min(second.worst_case(np.abs(t)).value, 2.0)
    problem = cp.Problem(
        cp.Minimize(2 * support(first, losses) + support(second, X @ w) + 1),
        [support(second, losses) <= limit, support(first, losses) + w[0] <= 3],
    )
    best = solved(problem)
    at = np.abs(X @ w.value - t)
    assert best == pytest.approx(
        2 * first.worst_case(at).value + second.worst_case(X @ w.value).value + 1, abs=1e-5
    )
    assert second.worst_case(at).value <= limit + 1e-5


def test_two_sets_with_the_same_argument_stay_apart():
    x = cp.Variable(N)
    f = np.arange(N, dtype=float)
    small, large = TotalVariation(CENTER, 0.05), TotalVariation(CENTER, 0.3)
    best = solved(cp.Problem(cp.Minimize(support(small, x) + 10 * support(large, x)), [x == f]))
    assert best == pytest.approx(small.worst_case(f).value + 10 * large.worst_case(f).value, abs=1e-6)


def test_parameters_and_lists():
    uncertainty_set = Euclidean(CENTER, 0.1)
    shift, x = cp.Parameter(N), cp.Variable(N)
    problem = cp.Problem(cp.Minimize(support(uncertainty_set, x + shift) + cp.sum_squares(x)))
    for value in (np.zeros(N), np.arange(N, dtype=float)):
        shift.value = value
        best = solved(problem)
        assert best == pytest.approx(
            uncertainty_set.worst_case(x.value + value).value + x.value @ x.value, abs=1e-5
        )
    scalars = [cp.square(x[0] - k) for k in range(N)]
    assert support(uncertainty_set, scalars).is_convex()
    assert support(uncertainty_set, cp.reshape(x, (N, 1), order="F")).is_convex()
    assert support(uncertainty_set, np.arange(N)).value == pytest.approx(
        uncertainty_set.worst_case(np.arange(N)).value
    )


class Point(UncertaintySet):
    size = 3

    def constraints(self, p):
        return [p == np.array([0.2, 0.3, 0.5])]

    def _singleton(self):
        return np.array([0.2, 0.3, 0.5])


def test_a_single_point_is_its_expectation():
    x = cp.Variable(3)
    expectation = support(Point(), cp.square(x))
    x.value = np.array([1.0, 2.0, 3.0])
    assert expectation.value == pytest.approx(5.9)


def test_unusable_losses():
    uncertainty_set, x = Euclidean(CENTER, 0.1), cp.Variable(N)
    with pytest.raises(InvalidInput, match="must be convex by cvxpy's rules, got concave"):
        support(uncertainty_set, cp.sqrt(x))
    with pytest.raises(InvalidInput, match="got unknown"):
        support(uncertainty_set, cp.square(cp.sqrt(x)) - cp.square(x))
    with pytest.raises(InvalidInput, match=f"must have {N} entries, one per entry of the set, got 2"):
        support(uncertainty_set, x[:2])
    with pytest.raises(InvalidInput, match="must be a vector"):
        support(uncertainty_set, cp.Variable((2, 3)))
    many = Euclidean(CENTER, 0.1)
    many.rows = 2
    with pytest.raises(InvalidInput, match="parameters have 2 rows"):
        support(many, x)


@pytest.mark.parametrize(
    ("given", "losses", "match"),
    [
        (cp.Variable(3), KL(CENTER, 0.1), r"takes the set first: write support\(KL\(…\), losses\)"),
        (KL, cp.Variable(N), r"KL is a class: write support\(KL\(…\), losses\)"),
        ("kl", cp.Variable(N), "takes an uncertainty set or a Penalised, got str"),
        (KL(CENTER, 0.1), None, "must be real numbers, got None"),
        (KL(CENTER, 0.1), [cp.Variable(), "b"], "must be cvxpy expressions or numbers"),
        (KL(CENTER, 0.1), cp.Variable(N, complex=True), "must be real, got a complex"),
    ],
)
def test_what_is_no_set_and_what_are_no_losses(given, losses, match):
    with pytest.raises(InvalidInput, match=match):
        support(given, losses)


class Stated(UncertaintySet):
    """Any constraints."""

    size = 3

    def __init__(self, limits):
        self.limits = limits

    def constraints(self, p):
        return self.limits(p)


@pytest.mark.parametrize(
    "limits",
    [
        lambda p: [p[0] >= 0.7, p[1] >= 0.7],
        lambda p: [cp.norm(p) <= 0.1],
        lambda p: [cp.sum(cp.rel_entr(p, np.full(3, 1 / 3))) <= -0.1],
    ],
)
def test_an_empty_set_is_an_error_and_not_an_unbounded_problem(limits):
    with pytest.raises(EmptySet, match=r"Stated\(.*\) is empty"):
        support(Stated(limits), cp.Variable(3))


@pytest.mark.parametrize("divergence", sorted(penalties()))
@pytest.mark.parametrize("weight", [0.0, 1e-3, 0.5, 1e4])
def test_a_penalised_expression(divergence, weight):
    """Value, slope and sign, a centre with a zero, and the solver's optimum at a point."""
    q, f = np.array([0.3, 0.0, 0.3, 0.4]), np.array([1.0, 3.0, 2.0, 0.5])
    oracle, x = Penalised(divergence, q, weight), cp.Variable(4)
    worst = support(oracle, cp.square(x))
    assert worst.is_nonneg()
    assert worst.is_convex()
    assert not worst.is_concave()
    x.value = f
    answer = oracle.worst_case(f**2)
    assert worst.value == pytest.approx(answer.value)
    np.testing.assert_allclose(worst.grad[x].toarray().ravel(), 2.0 * f * answer.p)
    problem = cp.Problem(cp.Minimize(support(oracle, x)), [x == f])
    problem.solve()
    assert problem.solution.opt_val == pytest.approx(oracle.worst_case(f).value, abs=1e-6)


def test_penalised_total_variation_is_not_left_to_osqp():
    """OSQP, cvxpy's choice for quadratic programs, ends far from the optimum; by name, a user may want it."""
    rng = np.random.default_rng(0)
    oracle, t, x = (
        Penalised("total-variation", rng.dirichlet(np.ones(300)), 0.05),
        rng.normal(size=300),
        cp.Variable(300),
    )
    problem = cp.Problem(cp.Minimize(support(oracle, x) + cp.sum_squares(x - t)))
    problem.solve()
    at = oracle.worst_case(x.value).value + np.sum((x.value - t) ** 2)
    assert problem.solution.opt_val == pytest.approx(at, abs=1e-6)
    linear = cp.Problem(cp.Minimize(support(oracle, x, linear=True)), [x == t])
    linear.solve(solver=cp.HIGHS)
    assert linear.solution.opt_val == pytest.approx(oracle.worst_case(t).value, abs=1e-6)


def test_maximising_it_is_refused_by_cvxpy():
    x = cp.Variable(N)
    problem = cp.Problem(cp.Maximize(support(Euclidean(CENTER, 0.1), x)), [x <= 1])
    assert not problem.is_dcp()


def test_importing_it_does_not_import_cvxpy():
    code = "import sys; import uncertainty_sets.robust; print('cvxpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
