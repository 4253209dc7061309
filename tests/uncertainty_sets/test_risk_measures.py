"""CVaR, EVaR, Spectral and CVaRMixture: values by hand, by cvxpy, by sorting, and at the edges."""

from __future__ import annotations

import itertools

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

from tests import tolerances
from tests.uncertainty_sets.cases import center
from uncertainty_sets import KL, Box, CVaR, CVaRMixture, EVaR, Spectral, check_set, get_set
from uncertainty_sets.errors import BackendUnsuitable, InvalidInput, InvalidParameter
from uncertainty_sets.robust import support

Q, F = np.array([0.4, 0.3, 0.1, 0.2]), np.array([1.0, 2.0, 4.0, 3.0])
TAILS = [1.0, 0.9, 0.5, 0.1, 1e-3, 1e-20]
KINKED = [(0.0, 0.0), (0.1, 0.4), (0.5, 0.8), (1.0, 1.0)]
FUNCTIONS = [np.sqrt, lambda u: 1.0 - (1.0 - u) ** 3, lambda u: u]


def mean_of_worst(f, q, tail):
    """CVaR by sorting: walk down until `tail` of the probability is spent."""
    left, total = tail, 0.0
    for i in np.argsort(-f):
        spent = min(left, q[i])
        total += spent * f[i]
        left -= spent
    return total / tail


def certified(answer, f):
    assert (answer.p >= 0.0).all()
    assert abs(answer.p.sum() - 1.0) <= tolerances.VIOLATION
    assert answer.violation <= tolerances.VIOLATION
    assert abs(answer.gap) <= tolerances.gap(f)
    top = f.max()
    assert abs(answer.value - (top + answer.p @ (f - top))) <= tolerances.gap(f)


def hard_case(rng):
    size = int(rng.integers(1, 200))
    q = center(rng, size)
    if size > 1 and rng.random() < 0.3:
        q[rng.integers(size)] = 1e-20
        q /= q.sum()
    kind = rng.integers(3)
    f = [rng.normal(size=size), rng.integers(-3, 4, size).astype(float), np.full(size, 1.7)][kind]
    return f * 10.0 ** rng.choice([0, 0, -100, 100, -200, 200]), q


def test_cvar_by_hand():
    assert CVaR(Q, 0.1).worst_case(F).value == pytest.approx(4.0, abs=1e-14)
    assert CVaR(Q, 0.3).worst_case(F).value == pytest.approx((0.4 + 0.6) / 0.3, abs=1e-14)
    assert CVaR(Q, 1.0).worst_case(F).value == pytest.approx(Q @ F, abs=1e-14)
    tied = CVaR([0.1, 0.3, 0.6], 0.2).worst_case([1.0, 1.0, 0.0])
    np.testing.assert_allclose(tied.p, [0.25, 0.75, 0.0], rtol=1e-14)
    assert CVaR([1.0], 0.3).worst_case([5.0]).value == 5.0


def test_the_multiplier_of_cvar_is_the_value_at_risk():
    """Also if one entry holds more than the tail, for which Box's bounds are cut at 1."""
    for tail, var in [(0.05, 4.0), (0.2, 3.0), (0.5, 2.0), (0.9, 1.0)]:
        assert CVaR(Q, tail).worst_case(F).dual["var"] == var


def test_cvar_and_evar_are_certified_at_the_edges():
    rng = np.random.default_rng(20)
    for _ in range(300):
        f, q = hard_case(rng)
        tail = float(rng.choice(TAILS))
        r = CVaR(q, tail).worst_case(f)
        certified(r, f)
        var, unit = r.dual["var"], tolerances.spread(f) or 1.0
        again = var + unit * (q @ (np.maximum(f - var, 0.0) / unit)) / tail
        assert abs(again - r.upper_bound) <= tolerances.value(f, tolerances.CERTIFICATE)
        assert abs(mean_of_worst(f / unit, q, tail) - r.value / unit) <= 1e-9 * max(1.0, abs(f / unit).max())
        smooth = EVaR(q, tail).worst_case(f)
        certified(smooth, f)
        assert smooth.value >= r.value - 2.0 * tolerances.gap(f)


def test_cvar_is_a_box_and_evar_a_ball():
    assert CVaR(Q, 0.3).worst_case(F).value == pytest.approx(Box(0 * Q, Q / 0.3).worst_case(F).value)
    one, other = EVaR(Q, 0.3).worst_case(F), KL(Q, -np.log(0.3)).worst_case(F)
    np.testing.assert_array_equal(one.p, other.p)
    assert repr(EVaR(Q, 0.3)) == "EVaR(center=[0.4, 0.3, 0.1, 0.2], tail=0.3)"
    assert repr(CVaR(Q, 0.3)) == "CVaR(center=[0.4, 0.3, 0.1, 0.2], tail=0.3)"


@pytest.mark.parametrize("kind", [CVaR, EVaR])
def test_center_and_tail_by_row(kind):
    rng = np.random.default_rng(21)
    q, tail, f = rng.dirichlet(np.ones(6), 4), np.array([0.1, 0.5, 0.9, 1.0]), rng.normal(size=(4, 6))
    batch = kind(q, tail).worst_case(f)
    shared = kind(q[0], tail)
    np.testing.assert_array_equal(shared.tail, tail)
    for b in range(4):
        np.testing.assert_array_equal(batch.p[b], kind(q[b], tail[b]).worst_case(f[b]).p)
        np.testing.assert_array_equal(shared.worst_case(f).p[b], kind(q[0], tail[b]).worst_case(f[b]).p)


@pytest.mark.parametrize("kind", [CVaR, EVaR])
def test_ragged_rows_are_the_sets_of_the_rows(kind):
    rng = np.random.default_rng(22)
    indptr = np.array([0, 1, 4, 9, 15])
    indices = np.concatenate([rng.permutation(20)[:n] for n in np.diff(indptr)])
    q = np.concatenate([center(rng, int(n)) for n in np.diff(indptr)])
    v = rng.normal(size=20)
    for tail in (0.3, np.array([0.2, 1.0, 1e-20, 0.7])):
        rows = kind.ragged(q, tail, indptr=indptr, indices=indices)
        answer = rows.worst_case(v)
        warm = rows.worst_case(v, warm_start=answer)
        for b in range(4):
            alone = rows.row(b).worst_case(v[indices[indptr[b] : indptr[b + 1]]])
            assert type(rows.row(b)) is kind
            # Not to the last bit: the row's own set divides its centre by its sum once more.
            np.testing.assert_allclose(answer.row(b).p, alone.p, rtol=1e-9, atol=1e-15)
            assert answer.row(b).dual == pytest.approx(alone.dual, rel=1e-9)
            assert abs(warm.value[b] - alone.value) <= 1e-9
    with pytest.raises(InvalidParameter, match=r"tail must be in \(0, 1\].* got 2"):
        kind.ragged(q, 2.0, indptr=indptr, indices=indices)


@pytest.mark.parametrize("kind", [CVaR, EVaR])
@pytest.mark.parametrize("tail", [0.0, 1.5])
def test_tails_that_are_not_a_share_are_refused(kind, tail):
    with pytest.raises(InvalidParameter, match=rf"tail must be in \(0, 1\].*got {tail:g}"):
        kind(Q, tail)
    with pytest.raises(InvalidParameter, match=r"tail must not be negative, got -0\.1"):
        kind(Q, -0.1)


def every_event(q, H, p):
    """p(S) <= H(q(S)) for all S, written out."""
    events = itertools.product([0.0, 1.0], repeat=q.size)
    return [np.array(event) @ p <= float(H(np.array([min(1.0, np.array(event) @ q)]))[0]) for event in events]


@pytest.mark.parametrize("H", [*FUNCTIONS, KINKED])
def test_spectral_is_the_maximum_over_all_events(H):
    function = H if callable(H) else lambda u: np.interp(u, *np.array(H).T)
    rng = np.random.default_rng(23)
    for _ in range(4):
        q, f = rng.dirichlet(np.ones(5)), rng.normal(size=5)
        p = cp.Variable(5, nonneg=True)
        problem = cp.Problem(cp.Maximize(f @ p), [cp.sum(p) == 1, *every_event(q, function, p)])
        best = problem.solve(solver=cp.CLARABEL)
        r = Spectral(q, H).worst_case(f)
        assert abs(r.value - best) <= tolerances.value(f, tolerances.REFERENCE_CONIC)
        assert Spectral(q, H).violation(r.p) <= tolerances.VIOLATION
        assert Spectral(q, H).violation(p.value) <= 1e-6


@pytest.mark.parametrize("H", [*FUNCTIONS, KINKED])
def test_spectral_is_certified_at_the_edges(H):
    function = H if callable(H) else lambda u: np.interp(u, *np.array(H).T)
    rng = np.random.default_rng(24)
    for _ in range(100):
        f, q = hard_case(rng)
        subject = Spectral(q, H)
        r = subject.worst_case(f)
        certified(r, f)
        assert subject.violation(r.p) <= tolerances.VIOLATION
        order = r.dual["order"]
        g, h = f[order], function(np.minimum(np.cumsum(q[order]), 1.0))
        assert (np.diff(g) <= 0.0).all()
        assert sorted(order) == list(range(f.size))
        again = g[0] + (g[:-1] - g[1:]) @ (h[:-1] - 1.0)
        assert abs(again - r.upper_bound) <= tolerances.value(f, tolerances.CERTIFICATE)
        batch = subject.worst_case(np.array([f, f[::-1]]))
        np.testing.assert_array_equal(batch.p[0], r.p)
        np.testing.assert_array_equal(batch.dual["order"][0], order)


def test_ties_share_in_proportion_to_the_centre():
    p = Spectral([0.1, 0.3, 0.6], np.sqrt).worst_case([1.0, 1.0, 0.0]).p
    np.testing.assert_allclose(p, [0.25 * 0.4**0.5, 0.75 * 0.4**0.5, 1.0 - 0.4**0.5], rtol=1e-14)


def test_a_mixture_is_the_mean_of_its_cvars_and_a_spectral_measure():
    rng = np.random.default_rng(25)
    for _ in range(150):
        f, q = hard_case(rng)
        tails, weights = np.array([1.0, *rng.uniform(0.05, 1.0, 2)]), rng.dirichlet(np.ones(3))
        subject = CVaRMixture(q, tails, weights)
        r = subject.worst_case(f)
        certified(r, f)
        assert subject.violation(r.p) <= tolerances.VIOLATION
        var, unit = r.dual["var"], tolerances.spread(f) or 1.0
        over = np.maximum(f - var[:, None], 0.0) / unit @ q / tails
        assert abs(weights @ (var + unit * over) - r.upper_bound) <= tolerances.value(
            f, tolerances.CERTIFICATE
        )
        alone = [CVaR(q, tail).worst_case(f).value for tail in tails]
        assert abs(weights @ alone - r.value) <= 4.0 * tolerances.gap(f)
        assert abs(Spectral(q, subject.distortion).worst_case(f).value - r.value) <= 4.0 * tolerances.gap(f)


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("name", ["cvar", "evar", "spectral", "cvar-mixture"])
def test_check_set_finds_nothing(name, size):
    check_set(get_set(name).example(size, np.random.default_rng(26)))


def test_robust_counterparts():
    u = np.arange(5) / 4
    for subject in (
        CVaR(Q, 0.3), EVaR(Q, 0.3), Spectral(Q, KINKED), CVaRMixture(Q, [1.0, 0.2], [0.5, 0.5]),
        Spectral(np.full(4, 0.25), np.sqrt), Spectral(np.full(4, 0.25), np.column_stack([u, np.sqrt(u)])),
    ):  # fmt: skip
        x = cp.Variable()
        optimum = cp.Problem(cp.Minimize(support(subject, F + cp.square(x)))).solve(solver=cp.CLARABEL)
        assert optimum == pytest.approx(subject.worst_case(F).value, abs=1e-6)


def test_a_function_and_another_centre_have_no_conic_form():
    with pytest.raises(InvalidInput, match="piecewise linear distortion unless the centre is uniform"):
        Spectral(Q, np.sqrt).worst_case(F, backend="clarabel")


@pytest.mark.parametrize(
    ("distortion", "words"),
    [
        (lambda u: u**2, "be concave, got H"),
        (lambda u: 0.5 * u, r"H\(0\) = 0 and H\(1\) = 1, got 0 and 0.5"),
        (lambda u: 0.5, r"a finite number for each entry .*got shape \(\)"),
        (lambda u: u * np.nan, "numbers that are not finite"),
        ([(0, 0), (0.5, 0.2), (1, 1)], r"be concave, got H\(0.5\) = 0.2 below the chord from 0 to 1"),
        ([(0, 0), (0.5, 1.5), (1, 1)], r"not fall, got H\(0.5\) = 1.5"),
        ([(0, 0), (0.5, 0.6)], "ascend from u = 0 to u = 1"),
        ([0.0, 1.0], r"shape \(K, 2\) .*got shape \(2,\)"),
    ],
)
def test_distortions_that_are_none_are_refused(distortion, words):
    with pytest.raises(InvalidParameter, match=words):
        Spectral(Q, distortion)


def test_levels_that_do_not_fit_are_refused():
    with pytest.raises(InvalidParameter, match=r"weights must sum to 1, got 0\.9"):
        CVaRMixture(Q, [1.0, 0.1], [0.5, 0.4])
    with pytest.raises(InvalidParameter, match="weights must have one number per tail, 2, got 1"):
        CVaRMixture(Q, [1.0, 0.1], [1.0])
    with pytest.raises(InvalidParameter, match=r"tails must be in \(0, 1\].*got 0"):
        CVaRMixture(Q, [1.0, 0.0], [0.5, 0.5])
    with pytest.raises(InvalidParameter, match=r"weights must not be negative, got -0.5"):
        CVaRMixture(Q, [1.0, 0.1], [1.5, -0.5])


def test_the_largest_tail_that_reaches_a_target():
    """By a linear program: the least s with p <= (1 + s)·q and pᵀf >= target."""
    rng = np.random.default_rng(0)
    for round_ in range(200):
        n = int(rng.integers(2, 9))
        f = rng.integers(0, 5, n).astype(float) if round_ % 2 else rng.normal(size=n)
        q = rng.dirichlet(np.ones(n))
        if round_ % 5 == 0 and n > 2:
            q[0] = 0.0
            q /= q.sum()
        target = float(rng.choice(f)) if round_ % 7 == 0 else rng.uniform(f.min() - 0.2, f.max() + 0.2)
        found = CVaR(q, 1.0).radius_for(f, target)
        if not found.reached:
            assert target > f[q > 0].max()
            continue
        program = linprog(
            np.r_[np.zeros(n), 1.0], A_ub=np.vstack([np.c_[np.eye(n), -q], np.r_[-f, 0.0]]),
            b_ub=np.r_[q, -target], A_eq=[np.r_[np.ones(n), 0.0]], b_eq=[1.0],
        )  # fmt: skip
        assert found.radius == pytest.approx(program.fun, rel=1e-6, abs=1e-9)
        assert -1e-12 <= found.gap <= 1e-9 * (1 + found.radius)
        assert found.p @ f >= target - 1e-9
        assert (found.p <= q * (1 + found.radius) * (1 + 1e-9)).all()
        if found.radius > 0:
            assert CVaR(q, 1 / (1 + found.radius)).worst_case(f).value == pytest.approx(target)
    evar = EVaR(Q, 0.5).radius_for(F, 2.5)
    assert EVaR(Q, np.exp(-evar.radius)).worst_case(F).value == pytest.approx(2.5)
    several = CVaR(np.tile(Q, (2, 1)), [1.0, 0.5]).radius_for(F, [2.5, 9.0])
    assert several.reached.tolist() == [True, False]


def test_a_set_without_a_size_says_so():
    with pytest.raises(BackendUnsuitable, match="no radius or budget"):
        Box([0.0, 0.0], [1.0, 1.0]).radius_for([1.0, 2.0], 1.5)
