"""Wasserstein balls of any order: against linear programs, POT, Wasserstein1 and their own certificates."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import ot
import pytest

from tests import tolerances
from tests.uncertainty_sets import cases
from uncertainty_sets import Wasserstein, Wasserstein1, robust
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.kernels import wasserstein_envelope, wasserstein_line, wasserstein_prune
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, GAP, OK, STATUS, VALUE, VIOLATION
from uncertainty_sets.kernels.tangent import MEMORY

ORDERS = [1.0, 1.5, 2.0, 3.0]
COSTS = ["places", "positions", "tied", "matrix"]


def cost_of(kind, rng, size):
    return {
        "places": None,
        "positions": rng.normal(size=size),
        "tied": rng.integers(0, 4, size) / 2.0,
        "matrix": rng.random((size, size)) * (1.0 - np.eye(size)),
    }[kind]


def powers(subject):
    """cost[i, j]^order, from j to i."""
    x = np.arange(subject.size) if subject.cost is None else subject.cost
    return (np.abs(np.subtract.outer(x, x)) if x.ndim == 1 else x) ** subject.order


def largest(subject, f):
    """The largest pᵀf by cvxpy, over plans from the centre."""
    plan = cp.Variable((f.size, f.size), nonneg=True)
    limits = [
        cp.sum(plan, axis=0) == subject.center,
        cp.sum(cp.multiply(powers(subject), plan)) <= subject.radius**subject.order,
    ]
    problem = cp.Problem(cp.Maximize(f @ cp.sum(plan, axis=1)), limits)
    problem.solve(solver=cp.CLARABEL)
    assert problem.status == cp.OPTIMAL
    return float(problem.value)


def recomputed_gap(subject, f, answer):
    """The bound of the docstring less pᵀf, in extended precision, from the largest loss."""
    g, lam = np.asarray(f, dtype=np.longdouble) - np.longdouble(np.max(f)), np.longdouble(answer.dual["lam"])
    limit = lam * np.longdouble(subject.radius) ** subject.order
    bound = limit + subject.center @ (g[:, None] - lam * powers(subject).astype(np.longdouble)).max(axis=0)
    return float(bound - answer.p @ g)


def assert_proved(subject, f, answer):
    assert answer.backend == "closed-form"
    assert abs(answer.gap) <= tolerances.gap(f)
    assert abs(recomputed_gap(subject, f, answer)) <= tolerances.gap(f)
    assert answer.violation <= tolerances.VIOLATION
    assert subject.violation(answer.p) <= tolerances.VIOLATION


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("order", ORDERS)
def test_value_of_the_linear_program_and_distance_by_pot(order, cost, seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 12))
    q, f = cases.center(rng, size), rng.normal(size=size)
    subject = Wasserstein(q, float(rng.choice([0.1, 0.5, 1.0])), cost_of(cost, rng, size), order)
    answer = subject.worst_case(f)
    assert_proved(subject, f, answer)
    assert answer.value == pytest.approx(largest(subject, f), abs=1e-6)
    distance = ot.emd2(subject.center, answer.p / answer.p.sum(), powers(subject).T.copy())
    assert distance <= subject.radius**order + 1e-12


@pytest.mark.parametrize("cost", COSTS)
def test_order_1_is_wasserstein1(cost):
    rng = np.random.default_rng(1)
    q, F, between = cases.center(rng, 30), rng.normal(size=(20, 30)), cost_of(cost, rng, 30)
    ours = Wasserstein(q, 0.3, between, order=1).worst_case(F)
    theirs = Wasserstein1(q, 0.3, between).worst_case(F)
    assert (ours.p == theirs.p).all()
    assert (ours.dual["lam"] == theirs.dual["lam"]).all()


@pytest.mark.parametrize("order", ORDERS)
def test_a_line_is_the_matrix_of_its_distances(order):
    rng = np.random.default_rng(2)
    for size in (1, 2, 7, 70, 150):
        q, x, f = cases.center(rng, size), rng.normal(size=size), rng.normal(size=size)
        line = Wasserstein(q, 0.2, x, order).worst_case(f)
        matrix = Wasserstein(q, 0.2, np.abs(np.subtract.outer(x, x)), order).worst_case(f)
        assert line.value == pytest.approx(matrix.value, abs=tolerances.value(f, tolerances.SAME_VALUE))


def test_values_by_hand():
    # Half of the mass may move by 1: 0.5·1² = 0.5. All of it by 1 would cost 1.
    assert Wasserstein([1, 0], np.sqrt(0.5)).worst_case([0, 1]).p == pytest.approx([0.5, 0.5])
    # Each half moves by 1, which costs 1 in all; moving one of them by 2 would cost 2.
    answer = Wasserstein([0.5, 0.5, 0.0], 1.0).worst_case([0.0, 1.0, 2.0])
    assert answer.p == pytest.approx([0.0, 0.5, 0.5])
    assert answer.value == pytest.approx(1.5)
    # A position for two entries: mass moves between them at no cost.
    assert Wasserstein([0.5, 0.0, 0.5], 0.0, [1, 1, 2]).worst_case([0, 1, 0]).value == pytest.approx(0.5)
    assert Wasserstein([0.3, 0.7], 0.0).worst_case([0, 1]).p == pytest.approx([0.3, 0.7])
    assert Wasserstein([0.3, 0.7], 9.0).worst_case([1, 0]).p == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize("order", ORDERS)
def test_rows_of_a_batch_with_their_own_centre_and_radius(order):
    rng = np.random.default_rng(3)
    Q, radius = rng.dirichlet(np.ones(9), 6), np.array([0.0, 0.1, 0.5, 1.0, 3.0, 50.0])
    F, x = rng.normal(size=(6, 9)), rng.normal(size=9)
    cold = Wasserstein(Q, radius, x, order).worst_case(F)
    warm = Wasserstein(Q, radius, x, order).worst_case(F, warm_start=cold)
    for b in range(6):
        single = Wasserstein(Q[b], radius[b], x, order).worst_case(F[b])
        assert cold.value[b] == pytest.approx(single.value, abs=1e-12)
        assert warm.value[b] == pytest.approx(single.value, abs=1e-12)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cost", COSTS)
def test_ragged_rows_are_the_single_sets(cost, order):
    rng = np.random.default_rng(4)
    indptr, indices = np.array([0, 3, 4, 12, 20]), rng.integers(0, 10, 20)
    q = np.concatenate([cases.center(rng, n) for n in np.diff(indptr)])
    between, v = cost_of(cost, rng, 10), rng.normal(size=10)
    rows = Wasserstein.ragged(q, [0.1, 0.3, 0.5, 1.0], between, order, indptr=indptr, indices=indices)
    answer = rows.worst_case(v)
    for b in range(4):
        f = v[indices[indptr[b] : indptr[b + 1]]]
        single = rows.row(b)
        assert (type(single), single.order) == (Wasserstein, order)
        assert answer.value[b] == pytest.approx(single.worst_case(f).value, abs=1e-12)
        assert answer.gap[b] <= tolerances.gap(v)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("scale", [1e-100, 1e100, 1e300])
def test_losses_of_any_scale(scale, order):
    rng = np.random.default_rng(5)
    f = scale * rng.normal(size=12)
    subject = Wasserstein(cases.center(rng, 12), 0.5, None, order)
    assert_proved(subject, f, subject.worst_case(f))


@pytest.mark.parametrize("order", [1.5, 2.0, 3.0])
def test_centres_with_vanishing_entries_and_a_long_line(order):
    rng = np.random.default_rng(6)
    q = np.concatenate([rng.dirichlet(np.ones(20)), [1e-20, 1e-30, 1e-300, 0.0]])
    for x in (None, 1e9 * rng.random(24), 1e6 + rng.random(24)):
        subject, f = Wasserstein(q, 0.5, x, order), rng.normal(size=24)
        assert_proved(subject, f, subject.worst_case(f))


def test_only_the_rounding_of_p_is_forgiven():
    subject = Wasserstein([0.5, 0.5, 0.0], 1e-12, [0.0, 1.0, 1e12])
    assert subject.violation([0.5, 0.5, 1e-20]) == pytest.approx(1e4, rel=1e-3)
    assert subject.violation([0.5 - 1e-15, 0.5 + 1e-15, 0.0]) <= 1e-12
    assert subject.violation([0.5 - 1e-9, 0.5 + 1e-9, 0.0]) == pytest.approx(1e-9, rel=1e-3)


@pytest.mark.parametrize("order", [1.0, 1.5, 2.0, 3.0])
def test_violation_is_the_distance_of_pot(order):
    rng = np.random.default_rng(7)
    for size in (2, 5, 30):
        q, p, x = cases.center(rng, size), cases.center(rng, size), rng.normal(size=size)
        subject = Wasserstein(q, 0.0, x, order)
        exact = ot.emd2(q, p, powers(subject))
        assert subject.violation(p) == pytest.approx(exact, rel=1e-9, abs=1e-13)


def solve(subject, f, pruned_from):
    p, out = np.full(f.size, np.nan), np.full(COLUMNS, np.nan)
    scratch = np.empty((5, f.size), np.uint32), np.empty(f.size), np.empty((5, 3)), np.empty(MEMORY)
    parameters = subject._sorted_center[0], subject._limit[0], subject._cost[0], subject._step[0]
    wasserstein_line.solve(f, *parameters, subject.order, np.nan, pruned_from, p, out, *scratch)
    return p, out


@pytest.mark.parametrize("order", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("radius", [1e-9, 0.01, 0.3, 3.0, 40.0, 1e6])
@pytest.mark.parametrize("kind", ["normal", "walk", "tied", "cauchy", "sine"])
def test_dropping_settled_entries_changes_nothing(kind, radius, order):
    rng = np.random.default_rng(8)
    size = 300
    q, normal = rng.dirichlet(np.full(size, 0.5)), rng.normal(size=size)
    f = {
        "normal": normal,
        "walk": np.cumsum(normal),
        "tied": np.round(4 * normal) / 4,
        "cauchy": rng.standard_cauchy(size),
        "sine": np.sin(np.arange(size) / 20) + 1e-3 * normal,
    }[kind]
    for x in (np.arange(float(size)), np.sort(rng.integers(0, size // 3, size)).astype(float)):
        subject = Wasserstein(q, radius, x, order)
        _, every = solve(subject, f, wasserstein_line.NEVER)
        p, out = solve(subject, f, 2)
        for each in (every, out):
            assert each[STATUS] == OK
            assert abs(each[GAP]) <= tolerances.gap(f)
            assert each[VIOLATION] <= tolerances.VIOLATION
        assert out[VALUE] == pytest.approx(every[VALUE], abs=tolerances.value(f, tolerances.SAME_VALUE))
        assert float(p @ f) == pytest.approx(out[VALUE], abs=tolerances.gap(f))


def test_targets_in_between_are_kept():
    """Of parabolas, those on the envelope at the high end; most of the line is dropped."""
    rng = np.random.default_rng(9)
    size = 2_000
    f, q, x = rng.normal(size=size), np.full(size, 1 / size), np.arange(float(size))
    lam = solve(Wasserstein(q, 1.0), f, 2)[1][DUAL]
    low, high, between = (np.empty(size, np.uint32) for _ in range(3))
    stack, starts = np.empty(size, np.uint32), np.empty(size)
    wasserstein_envelope.evaluate(f, x, q, f.max(), 0.99 * lam, 2.0, low, stack, starts)
    wasserstein_envelope.evaluate(f, x, q, f.max(), lam, 2.0, between, stack, starts)
    *_, count = wasserstein_envelope.evaluate(f, x, q, f.max(), 1.01 * lam, 2.0, high, stack, starts)
    changed = wasserstein_prune.sources(low, high, wasserstein_prune.changing(low, high))
    marks = np.empty(size, np.uint8)
    targets = wasserstein_prune.able(high, 2.0, stack[:count])
    kept = wasserstein_prune.mark(x, low, high, changed, targets, marks)
    assert 0 < changed.size < kept < size / 4
    assert (marks[between[changed]] != wasserstein_prune.DROPPED).all()
    settled = low == high
    assert (between[settled] == low[settled]).all()
    # The targets themselves, by trying all.
    best = (f[:, None] - lam * (x[:, None] - x) ** 2).max(axis=0)
    assert f[between] - lam * (x[between] - x) ** 2 == pytest.approx(best, abs=1e-14)


@pytest.mark.parametrize("order", [2.0, 3.0])
def test_a_line_long_enough_to_start_from_a_sample(order):
    rng = np.random.default_rng(10)
    size = wasserstein_line.GUESSED_FROM
    for radius in (0.3, 5.0):
        f, subject = rng.normal(size=size), Wasserstein(rng.dirichlet(np.ones(size)), radius, None, order)
        answer = subject.worst_case(f)
        assert answer.backend == "closed-form"
        assert abs(answer.gap) <= tolerances.gap(f)
        assert subject.violation(answer.p) <= tolerances.VIOLATION


def test_the_robust_counterpart():
    x = cp.Variable()
    points, subject = np.array([-1.0, 0.0, 2.0]), Wasserstein([0.2, 0.5, 0.3], 0.4)
    problem = cp.Problem(cp.Minimize(robust.support(subject, cp.square(x - points))))
    problem.solve(solver=cp.CLARABEL)
    found = subject.worst_case((float(x.value) - points) ** 2)
    assert problem.value == pytest.approx(found.value, abs=1e-6)
    for nearby in (-0.01, 0.01):
        assert subject.worst_case((float(x.value) + nearby - points) ** 2).value > found.value


@pytest.mark.parametrize("order", [0.5, np.nan, np.inf, [1, 2], 101, None])
def test_an_order_that_is_refused(order):
    with pytest.raises(InvalidParameter, match="order must be"):
        Wasserstein([0.5, 0.5], 0.1, None, order)


def test_costs_whose_power_overflows():
    with pytest.raises(InvalidParameter, match="outermost positions to the power of 2 overflows"):
        Wasserstein([0.5, 0.5], 0.1, [0.0, 1e200])
    with pytest.raises(InvalidParameter, match=r"largest cost, 1e\+200, to the power of 2 overflows"):
        Wasserstein([0.5, 0.5], 0.1, [[0.0, 1e200], [1.0, 0.0]])
    with pytest.raises(InvalidParameter, match="outermost positions of row 0 to the power of 2 overflows"):
        Wasserstein.ragged([0.5, 0.5], 0.1, [0.0, 1e200], indptr=[0, 2])
    # A radius whose power does is just large, and distances whose power vanishes count as 0.
    assert Wasserstein([0.5, 0.5], 1e200).worst_case([0.0, 1.0]).value == 1.0
    assert Wasserstein([0.5, 0.5], 0.0, [0.0, 1e-160]).worst_case([0.0, 1.0]).value == 1.0
