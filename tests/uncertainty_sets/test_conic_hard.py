"""The conic way where it is hard: no answer leaves that breaks the promise, and no good row is lost."""

from __future__ import annotations

import pickle

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import brentq

from tests import tolerances
from tests.uncertainty_sets.plugins import ALL, Ball, Entropic, Euclidean, Stated, TotalVariation
from uncertainty_sets import KL, Polyhedron
from uncertainty_sets.backends import in_order
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.conic import oracle as conic
from uncertainty_sets.conic.compile import compiled
from uncertainty_sets.conic.membership import interior
from uncertainty_sets.conic.program import ConicProgram, equilibrated
from uncertainty_sets.errors import EmptySet, FdroError, InvalidLosses, InvalidParameter, SolverFailed
from uncertainty_sets.robust import support

LOSSES = np.array([1.0, 2.0, 3.0])
NAN = float("nan")


def keeps_promise(answer, losses):
    """What conic.worst_case promises, in the units of the losses."""
    spread = np.ptp(losses)
    return (
        -conic.NEGATIVE * spread <= answer.gap <= conic.USABLE * spread and answer.violation <= conic.USABLE
    )


# -- the promise


class Burg(Ball):
    """{p : Σ q·log(q/p) <= radius}: log p has no value at p = 0, which a solver may well return."""

    def constraints(self, p):
        return [cp.sum(cp.rel_entr(self.center, p)) <= self.radius]


class BurgByLogarithms(Ball):
    """The same set, stated another way."""

    def constraints(self, p):
        return [-(self.center @ (cp.log(p) - np.log(self.center))) <= self.radius]


def best_burg(q, radius, f):
    """p ∝ q/(ν - f) with ν > max f such that the divergence is the radius."""

    def at(log_distance):
        weights = q / (np.exp(log_distance) + (f.max() - f))
        return weights / weights.sum()

    def excess(log_distance):
        return q @ np.log(q / at(log_distance)) - radius

    low = -60.0
    while excess(low) < 0 and low > -600:
        low *= 1.5
    return at(brentq(excess, low, 60.0, xtol=1e-14)) @ f if excess(low) > 0 else f.max()


@pytest.mark.parametrize("cls", [Burg, BurgByLogarithms])
def test_burg_entropy(cls):
    rng = np.random.default_rng(0)
    for _ in range(60):
        n = int(rng.integers(2, 12))
        q = np.maximum(rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 10.0]))), 1e-6)
        q, radius, f = q / q.sum(), float(10 ** rng.uniform(-3, 1)), rng.normal(size=n)
        r = cls(q, radius).worst_case(f)
        assert keeps_promise(r, f)
        assert r.p.min() > 0
        best = best_burg(q, radius, f)
        assert r.value == pytest.approx(best, abs=tolerances.value(f, tolerances.REFERENCE_EXPONENTIAL))
        assert r.upper_bound >= best - tolerances.gap(f)


def test_an_answer_on_the_edge_of_a_domain_is_moved_inside():
    """The case where Clarabel returns p_i = 0: a whole violation is mended by a tiny step."""
    rng = np.random.default_rng(1)
    q, f = rng.dirichlet(np.ones(4)), np.array([0.0, 1.0, 2.0, 3.0])
    uncertainty_set = Burg(q, 0.5)
    good = uncertainty_set.worst_case(f)
    edge = good.p.copy()
    edge[0] = 0.0
    edge /= edge.sum()
    assert uncertainty_set.violation(edge) == np.inf
    found = conic._Candidate(edge, good.dual["y"], float(edge @ f), good.upper_bound, np.inf, "clarabel", 1)
    moved = conic._moved_inside(uncertainty_set, found, f)
    assert moved.violation < np.inf
    assert moved.p.min() > 0
    assert moved.p.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("cls", ALL)
def test_answers_keep_the_promise_or_are_raised(cls):
    rng = np.random.default_rng(ALL.index(cls))
    kept, failures = 0, []
    for _ in range(25):
        n = int(rng.integers(2, 10))
        q, f = rng.dirichlet(np.full(n, rng.choice([0.1, 1.0, 10.0]))), rng.normal(size=n)
        radius = float(10 ** rng.uniform(-9, 0.5))
        try:
            r = cls(q, radius).worst_case(f)
        except SolverFailed as error:
            failures.append((error.answer, f))
        except EmptySet:
            assert q.max() > 0.85  # Powers and Mixed have caps beside their ball
        else:
            assert keeps_promise(r, f)
            kept += 1
    assert kept >= 20
    assert all(answer is None or not keeps_promise(answer, f) for answer, f in failures)


class Disagreeing(TotalVariation):
    """A plug-in with a mistake: its test of membership rejects what its constraints allow."""

    def _residual(self, p):
        return 1.0 if p[2] > 0.3 else 0.0


CENTER = np.array([0.4, 0.4, 0.2])


def test_an_answer_that_breaks_the_promise_is_raised_with_its_certificate():
    with pytest.raises(SolverFailed, match=r"a gap of 0\.\d+ of the spread") as caught:
        Disagreeing(CENTER, 0.3).worst_case(LOSSES, backend="highs")
    error = caught.value
    assert error.rows == ()
    assert "highs ended with status 'kOptimal'" in str(error)
    assert error.answer.upper_bound == pytest.approx(2.4)
    assert not keeps_promise(error.answer, LOSSES)
    # Without a name, every solver that has the cones is asked first.
    with pytest.raises(SolverFailed, match=r"highs ended.*clarabel ended.*scs ended"):
        Disagreeing(CENTER, 0.3).worst_case(LOSSES)
    assert pickle.loads(pickle.dumps(error)).answer.upper_bound == error.answer.upper_bound


def test_another_solver_is_asked_where_the_first_gives_nothing(monkeypatch):
    uncertainty_set = Euclidean(CENTER, 0.1)
    expected = uncertainty_set.worst_case(LOSSES)
    assert in_order(conic.program(uncertainty_set))[:2] == ["clarabel", "scs"]
    assert in_order(conic.program(Polyhedron([[1.0, 0.0]], [0.5])))[:3] == ["highs", "clarabel", "scs"]
    first = compiled(uncertainty_set, 3).solver("clarabel")
    found = first.solve(np.zeros(conic.program(uncertainty_set).A.shape[1]))
    for outcome in ("failed", "infeasible", "solved"):
        nothing = found._replace(outcome=outcome, x=np.zeros(0), y=np.zeros(0), status="Stuck")
        monkeypatch.setattr(first, "solve", lambda cost, nothing=nothing: nothing)
        r = uncertainty_set.worst_case(LOSSES)
        assert r.backend == "scs"
        assert r.value == pytest.approx(expected.value, abs=tolerances.REFERENCE_FIRST_ORDER)
    with pytest.raises(SolverFailed, match=r"'Stuck' after .* and without a distribution") as caught:
        uncertainty_set.worst_case(LOSSES, backend="clarabel")
    assert caught.value.answer is None


def test_a_point_inside():
    inside = interior(TotalVariation(CENTER, 0.1), 3)
    assert TotalVariation(CENTER, 0.05).contains(inside)
    assert inside.min() > 0.01
    assert interior(Stated(lambda p: [p <= CENTER]), 3) is None
    assert interior(Stated(lambda p: [p[0] >= 2]), 3) is None
    first, *others = interior(Stated(lambda p: [p[0] == 0.5, p <= 0.7]), 3)
    assert first == pytest.approx(0.5, abs=1e-9)
    assert all(0.01 < each < 0.69 for each in others)


# -- batches


def test_the_rows_that_fail_are_named_and_the_others_kept():
    uncertainty_set = Disagreeing(CENTER, 0.3)
    batch = np.array([[3.0, 2.0, 1.0], LOSSES, [1.0, 5.0, 0.0], 2 * LOSSES])
    with pytest.raises(
        SolverFailed, match=r"2 of 4 rows have no usable answer \(rows 1, 3\).*Row 1: "
    ) as caught:
        uncertainty_set.worst_case(batch)
    error = caught.value
    assert error.rows == (1, 3)
    assert isinstance(error.__cause__, SolverFailed)
    for row in range(4):
        alone = None if row in error.rows else uncertainty_set.worst_case(batch[row])
        for name in ("p", "value", "upper_bound", "gap", "violation"):
            found = getattr(error.answer, name)[row]
            if alone is None:
                assert found == np.inf if name == "gap" else np.isnan(found).all()
            else:
                np.testing.assert_allclose(found, getattr(alone, name), atol=1e-12)
        assert np.isnan(error.answer.dual["y"][row]).all() == (alone is None)


def test_a_batch_without_any_good_row():
    with pytest.raises(SolverFailed, match=r"12 of 12 rows.*and 4 more") as caught:
        Disagreeing(CENTER, 0.3).worst_case(np.tile(LOSSES, (12, 1)), backend="highs")
    assert np.isnan(caught.value.answer.p).all()
    assert caught.value.answer.p.shape == (12, 3)
    assert caught.value.rows == tuple(range(12))


class Caps(UncertaintySet):
    """p <= cap, another cap for each row."""

    def __init__(self, caps):
        self.caps = caps
        self.rows = len(caps) if np.ndim(caps) else None

    def constraints(self, p):
        return [p <= self.caps]

    def _row(self, index):
        return Caps(float(self.caps[index]))


def test_the_row_of_an_empty_set_is_named():
    batch = np.tile(LOSSES, (3, 1))
    assert Caps(np.array([0.5, 0.6, 1.0])).worst_case(batch).value.tolist() == pytest.approx([2.5, 2.6, 3.0])
    with pytest.raises(SolverFailed, match=r"Row 1: .* is empty") as caught:
        Caps(np.array([0.5, 0.1, 1.0])).worst_case(batch)
    assert isinstance(caught.value.__cause__, EmptySet)
    assert caught.value.answer.value[[0, 2]].tolist() == pytest.approx([2.5, 3.0])
    with pytest.raises(EmptySet, match=r"^Stated\(\) is empty"):
        Stated(lambda p: [p <= 0.1]).worst_case(batch)  # no row's fault


# -- the constraints' numbers


@pytest.mark.parametrize(
    "make",
    [
        lambda p: [p <= np.array([0.5, np.inf, 0.5])],
        lambda p: [np.array([-np.inf, -0.5, -0.5]) <= -p, p[0] <= 0.5],
        lambda p: [p <= 0.5, cp.norm(p) <= np.inf],
        lambda p: [p <= 0.5, cp.sum(p) - np.inf <= 0],
        lambda p: [p <= 0.5, cp.SOC(cp.Constant(np.inf), p)],
        lambda p: [p[2] <= 0.5, p >= -np.inf],
        lambda p: [cp.reshape(p, (3, 1), order="F") <= np.array([[np.inf], [np.inf], [0.5]])],
        lambda p: [p[2] <= 0.5, cp.norm1(p) <= cp.Variable(), p[:2] <= np.array([np.inf, 1.0])],
    ],
)
def test_an_infinite_bound_is_none(make):
    uncertainty_set = Stated(make)
    r = uncertainty_set.worst_case(LOSSES)
    assert r.value == pytest.approx(2.5, abs=1e-6)
    assert 0 <= r.gap <= tolerances.GAP
    assert np.isfinite(conic.program(uncertainty_set, 3).b).all()
    assert uncertainty_set.violation([0.3, 0.3, 0.4]) <= 1e-9
    assert uncertainty_set.violation([0.0, 0.0, 1.0]) == pytest.approx(0.5, abs=1e-6)
    x = cp.Variable(3)
    problem = cp.Problem(cp.Minimize(support(uncertainty_set, x)), [x == LOSSES])
    problem.solve()
    assert problem.solution.opt_val == pytest.approx(2.5, abs=1e-6)


def test_nothing_but_infinite_bounds_is_the_simplex():
    r = Stated(lambda p: [p <= np.inf, p >= -np.inf]).worst_case(LOSSES)
    assert (r.value, r.upper_bound, r.gap) == (3.0, 3.0, 0.0)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda p: [p <= -np.inf], EmptySet, "-inf on the right"),
        (lambda p: [p[0] == np.inf], InvalidParameter, "infinite constant"),
        (lambda p: [cp.exp(p[0] + np.inf) <= 3], InvalidParameter, "infinite constant"),
        (lambda p: [p <= NAN], InvalidParameter, "a constant that is NaN"),
        (lambda p: [p[0] == NAN], InvalidParameter, "a constant that is NaN"),
        (lambda p: [cp.norm(p - np.nan) <= 1], InvalidParameter, "a constant that is NaN"),
        (lambda p: [np.array([np.nan, 1, 1]) @ p <= 1], InvalidParameter, "coefficient of nan"),
        (lambda p: [np.array([np.inf, 1, 1]) @ p <= 1], InvalidParameter, "coefficient of inf"),
        (
            lambda p: [cp.sum(cp.rel_entr(p, np.array([np.nan, 0.5, 0.5]))) <= 1],
            InvalidParameter,
            "constant that is NaN",
        ),
        (lambda p: [p <= cp.Parameter(3, name="cap")], InvalidParameter, "'cap', which has no value"),
    ],
)
def test_numbers_that_mean_nothing(make, error, says):
    with pytest.raises(error, match=f"Stated.*{says}"):
        Stated(make).worst_case(LOSSES)


def test_a_parameter_with_a_value_is_a_number():
    cap = cp.Parameter(3, value=np.full(3, 0.5))
    assert Stated(lambda p: [p <= cap]).worst_case(LOSSES).value == pytest.approx(2.5)


def with_large_variables(shape, size, q, z):
    """Total variation of 0.2 around q, by way of a variable z of that size."""
    if shape == "scaled":
        return Stated(lambda p: [z == size * (p - q), cp.norm1(z) <= 0.4 * size])
    return Stated(lambda p: [z - size == p - q, cp.norm1(z - size) <= 0.4])


@pytest.mark.parametrize("size", [1e6, 1e8, 1e9])
@pytest.mark.parametrize("shape", ["scaled", "shifted"])
def test_the_bound_holds_with_large_auxiliary_variables(shape, size):
    """Sums of large terms lose digits; the bound says so and stays above the maximum."""
    rng = np.random.default_rng(0)
    for _ in range(15):
        n = int(rng.integers(2, 8))
        q, f = rng.dirichlet(np.ones(n)), rng.normal(size=n)
        exact = TotalVariation(q, 0.2).worst_case(f)
        r = with_large_variables(shape, size, q, cp.Variable(n)).worst_case(f)
        assert r.upper_bound >= exact.value - tolerances.ulps(f)
        assert r.gap <= max(tolerances.GAP, 1e-14 * size * n) * np.ptp(f)


@pytest.mark.parametrize("n", [3, 100])
@pytest.mark.parametrize("make", [TotalVariation, lambda q, r: Polyhedron(np.eye(q.size), q + r)])
def test_the_allowance_for_rounding_is_small(make, n):
    rng = np.random.default_rng(n)
    q, f = rng.dirichlet(np.ones(n)), rng.normal(size=n)
    r = make(q, 0.1).worst_case(f)
    assert 0 <= r.gap <= 1e-11 * np.ptp(f)


def test_rows_are_equilibrated_by_powers_of_two():
    A = sparse.csc_array(np.array([[1.0, 1.0], [-3e9, 0.0], [0.0, 0.0], [1e-7, 5e-8], [1e300, -1e300]]))
    given = ConicProgram(
        A, np.array([1.0, 0.0, 1.0, 1e-7, 1e300]), (("zero", 1), ("nonneg", 4)), np.arange(2)
    )
    program, factors = equilibrated(given)
    assert (np.frexp(factors)[0] == 0.5).all()
    largest = abs(program.A).max(axis=1).toarray()
    assert ((largest >= 1) & (largest < 2))[[0, 1, 3, 4]].all()
    np.testing.assert_array_equal(program.A.toarray(), A.toarray() * factors[:, None])
    np.testing.assert_array_equal(program.b, given.b * factors)
    cone = ConicProgram(sparse.csc_array(np.diag([8.0, 1.0])), np.ones(2), (("soc", 2),), np.arange(2))
    scaled, factors = equilibrated(cone)  # one factor for a whole cone
    assert factors.tolist() == [0.125, 0.125]
    assert equilibrated(scaled)[0] is scaled


@pytest.mark.parametrize(("low", "high"), [(-12, -4), (4, 8), (8, 12), (-200, 200)])
@pytest.mark.parametrize("centred", [False, True])
def test_rows_of_a_polyhedron_may_be_in_any_units(low, high, centred):
    rng = np.random.default_rng(abs(low))
    for _ in range(60):
        n, rows = int(rng.integers(2, 10)), int(rng.integers(1, 8))
        D, q, f = rng.normal(size=(rows, n)), rng.dirichlet(np.ones(n)), rng.normal(size=n)
        c = D @ q + rng.choice([1e-3, 0.05, 0.5]) * rng.random(rows)
        if centred:
            D, c = D - (D @ q)[:, None], c - D @ q  # the same set, with right-hand sides near 0
        units = 10.0 ** rng.uniform(low, high, rows)
        plain = Polyhedron(D, c).worst_case(f)
        r = Polyhedron(D * units[:, None], c * units).worst_case(f)
        assert r.value == pytest.approx(plain.value, abs=tolerances.value(f, 10 * tolerances.GAP))
        assert abs(r.gap) <= tolerances.gap(f)
        y = r.dual["y"] * units
        assert c @ y + (f - D.T @ y).max() == pytest.approx(r.upper_bound, abs=tolerances.CERTIFICATE)


def test_empty_in_any_units():
    D, c = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]), np.array([0.4, 0.4])
    for units in (1e-12, 1e-6, 1e6, 1e12):
        with pytest.raises(EmptySet):
            Polyhedron(D * units, c * units)


# -- units of the losses


@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e-290, 1e290, 1e300])
def test_multipliers_are_finite_where_floats_reach(scale):
    D, c = np.array([[1e-4, 0.0, 0.0], [0.0, 1e-5, 0.0]]), np.array([0.5e-4, 0.1e-5])
    f = np.array([1.0, 0.3, -0.7])
    plain, r = Polyhedron(D, c).worst_case(f), Polyhedron(D, c).worst_case(f * scale)
    np.testing.assert_allclose(r.dual["y"], plain.dual["y"] * scale, rtol=1e-9)
    assert np.isfinite(r.dual["y"]).all()
    assert r.value == pytest.approx(plain.value * scale)
    assert abs(r.gap) <= 1e-9 * scale
    if scale >= 1e300:
        beyond = Polyhedron(1e-10 * D, 1e-10 * c).worst_case(f * scale)
        assert beyond.value == r.value
        assert abs(beyond.gap) <= 1e-9 * scale
        assert np.isinf(beyond.dual["y"]).all()


# -- what is not a number at all


class Tensorlike:
    """What numpy meets in a tensor that requires grad, for when torch is not installed."""

    requires_grad = True

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )


def tensor():
    torch = pytest.importorskip("torch")
    return torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("make", [Tensorlike, tensor])
def test_a_tensor_with_a_gradient(make):
    value = make()
    with pytest.raises(InvalidLosses, match=r"requires grad; give losses\.detach\(\)"):
        KL(CENTER, 0.1).worst_case(value)
    with pytest.raises(InvalidLosses, match="requires grad"):
        Entropic(CENTER, 0.1).worst_case(value)
    with pytest.raises(InvalidParameter, match=r"requires grad; give center\.detach\(\)"):
        KL(value, 0.1)
    with pytest.raises(FdroError, match="requires grad"):
        KL(CENTER, 0.1).violation(value)


def test_tensors_in_a_list_and_without_a_gradient():
    value = tensor()
    with pytest.raises(InvalidLosses, match=r"requires grad.*detach"):
        KL(CENTER, 0.1).worst_case(list(value))
    with_numbers = KL(CENTER, 0.1).worst_case(value.detach())
    assert with_numbers.value == KL(CENTER, 0.1).worst_case([0.2, 0.3, 0.5]).value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (cp.Parameter(3), "cvxpy Parameter; give its `value`, which is not set yet"),
        (cp.Variable(3), "cvxpy Variable; give its `value`, which is not set yet"),
        (cp.Parameter(3, value=np.ones(3)), "cvxpy Parameter; give its `value`$"),
        (cp.Parameter(3) + 1, "cvxpy AddExpression; give its `value`, which is not set yet"),
    ],
)
def test_an_expression_of_cvxpy(value, says):
    with pytest.raises(InvalidLosses, match=f"losses must be real numbers, got a {says}"):
        KL(CENTER, 0.1).worst_case(value)
    with pytest.raises(InvalidParameter, match=f"center must be real numbers, got a {says}"):
        KL(value, 0.1)
    with pytest.raises(InvalidParameter, match="D must be real numbers, got a cvxpy"):
        Polyhedron(value, [1.0])
