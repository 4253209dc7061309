"""Penalised oracles against cvxpy, against their definition, and by bounds recomputed in NumPy."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress
from unittest import mock

import cvxpy as cp
import numpy as np
import pytest

from tests import tolerances
from tests.uncertainty_sets.cases import center
from uncertainty_sets import KL, Box, EVaR, Penalised, verdict
from uncertainty_sets.base import SETS
from uncertainty_sets.errors import (
    BackendUnsuitable,
    InvalidLosses,
    InvalidParameter,
    SolverFailed,
    UnknownName,
)
from uncertainty_sets.robust import support

DIVERGENCES = ["kl", "chi-square", "total-variation"]
every = pytest.mark.parametrize("divergence", DIVERGENCES)
WEIGHTS = [0.0, 1e-12, 1e-3, 0.1, 1.0, 10.0, 1e4, 1e12]


def divergence_of(divergence, p, q):
    """D(p‖q) from its definition; p is 0 where q is 0, for total variation aside."""
    inside = q > 0.0
    if divergence == "total-variation":
        return 0.5 * np.abs(p - q).sum()
    assert (p[~inside] == 0.0).all()
    if divergence == "chi-square":
        return ((p - q)[inside] ** 2 / q[inside]).sum()
    some = p > 0.0
    return (p[some] * np.log(p[some] / q[some])).sum()


def bound(divergence, f, q, weight, nu):
    """The bound of the docstring."""
    inside = q > 0.0
    if divergence == "total-variation":
        assert nu >= f.max() - weight - tolerances.ulps(f)
        return q @ np.maximum(f, nu)
    if divergence == "chi-square":
        return nu + weight + q[inside] @ np.maximum(f[inside] - nu, 0.0) ** 2 / (4.0 * weight)
    return nu - weight + weight * (q[inside] @ np.exp((f[inside] - nu) / weight))


def losses(rng, size):
    return [
        rng.normal(size=size),
        rng.integers(-3, 4, size).astype(float),
        np.exp(3.0 * rng.normal(size=size)),
        np.full(size, 1.7),
    ][rng.integers(4)]


@every
def test_answers_are_certified_by_the_definition(divergence):
    rng = np.random.default_rng(16)
    for trial in range(400):
        size = 3000 if trial % 40 == 0 else int(rng.integers(1, 60))
        q, f = center(rng, size), losses(rng, size)
        unit = tolerances.spread(f) or 1.0
        weight = unit * float(rng.choice(WEIGHTS))
        r = Penalised(divergence, q, weight).worst_case(f)
        assert (r.p >= 0.0).all()
        assert abs(r.p.sum() - 1.0) <= tolerances.VIOLATION
        assert r.violation <= tolerances.VIOLATION
        assert abs(r.gap) <= tolerances.gap(f)
        top = f.max()
        value = top + r.p @ (f - top) - weight * divergence_of(divergence, r.p, q)
        rounding = 1e-14 * weight  # of the definition's logarithms and of q, which the price multiplies
        assert abs(value - r.value) <= tolerances.gap(f) + rounding
        if weight >= 1e-3 * unit:
            again = bound(divergence, f, q, weight, r.dual["nu"])
            assert abs(again - r.upper_bound) <= tolerances.gap(f) + rounding


@every
def test_cvxpy_finds_the_same_maximum(divergence):
    rng = np.random.default_rng(17)
    for _ in range(12):
        size = int(rng.integers(2, 9))
        q, f = rng.dirichlet(np.ones(size)), rng.normal(size=size)
        weight = float(rng.choice([0.1, 1.0, 5.0]))
        p = cp.Variable(size, nonneg=True)
        price = {
            "kl": lambda p=p, q=q: cp.sum(cp.rel_entr(p, q)),
            "chi-square": lambda p=p, q=q: cp.sum(cp.multiply(1.0 / q, cp.square(p - q))),
            "total-variation": lambda p=p, q=q: 0.5 * cp.norm1(p - q),
        }[divergence]()
        best = cp.Problem(cp.Maximize(f @ p - weight * price), [cp.sum(p) == 1]).solve(solver=cp.CLARABEL)
        found = Penalised(divergence, q, weight).worst_case(f).value
        assert abs(found - best) <= tolerances.value(f, tolerances.REFERENCE_CONIC)


@every
def test_no_other_distribution_is_better(divergence):
    rng = np.random.default_rng(18)
    q, f = rng.dirichlet(np.ones(6)), rng.normal(size=6)
    best = Penalised(divergence, q, 0.3).worst_case(f).upper_bound
    for p in rng.dirichlet(np.ones(6), 500):
        assert p @ f - 0.3 * divergence_of(divergence, p, q) <= best + tolerances.gap(f)


@every
@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e200, 1e307])
def test_losses_and_weight_of_any_size(divergence, scale):
    q, f = np.array([0.5, 0.3, 0.2]), np.array([-1.0, 2.0, 4.0])
    one = Penalised(divergence, q, 2.0).worst_case(f)
    other = Penalised(divergence, q, 2.0 * scale).worst_case(f * scale)
    np.testing.assert_allclose(other.p, one.p, rtol=1e-12)
    assert other.value == pytest.approx(one.value * scale, rel=1e-12)
    assert abs(other.gap) <= tolerances.GAP * 5.0 * scale


@every
def test_no_weight_is_the_largest_loss_and_a_huge_one_the_mean(divergence):
    q, f = np.array([0.5, 0.3, 0.2, 0.0]), np.array([1.0, 2.0, 4.0, 9.0])
    free = Penalised(divergence, q, 0.0).worst_case(f)
    assert free.value == pytest.approx(9.0 if divergence == "total-variation" else 4.0, rel=1e-12)
    fixed = Penalised(divergence, q, 1e200).worst_case(f)
    np.testing.assert_allclose(fixed.p, q, rtol=1e-15)
    assert fixed.value == pytest.approx(1.9, rel=1e-14)


@every
def test_tiny_masses_at_the_top(divergence):
    for mass in (1e-20, 1e-100, 1e-300):
        q = np.array([mass, 0.5, 0.5])
        for weight in (1e-12, 1e-3, 1.0):
            r = Penalised(divergence, q, weight).worst_case([1.0, 0.5, 0.0])
            assert abs(r.gap) <= tolerances.GAP
            assert r.violation <= tolerances.VIOLATION


@every
def test_batches_copies_and_out(divergence):
    rng = np.random.default_rng(19)
    q, weight, f = rng.dirichlet(np.ones(7), 5), rng.random(5), rng.normal(size=(5, 7))
    many = Penalised(divergence, q, weight)
    out = np.empty((5, 7))
    batch = many.worst_case(f, out=out)
    assert batch.p is out
    for b in range(5):
        one = Penalised(divergence, q[b], weight[b]).worst_case(f[b])
        np.testing.assert_array_equal(batch.p[b], one.p)
        assert batch.value[b] == one.value
        assert batch.dual["nu"][b] == one.dual["nu"]
    for twin in (copy.copy(many), pickle.loads(pickle.dumps(many))):
        np.testing.assert_array_equal(twin.worst_case(f, warm_start=batch).p, batch.p)
        assert repr(twin) == repr(many)


def test_kl_is_the_ball_of_its_own_radius():
    q, f = np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, 4.0])
    priced = Penalised(KL, q, 2.0).worst_case(f)
    ball = KL(q, divergence_of("kl", priced.p, q)).worst_case(f)
    np.testing.assert_allclose(ball.p, priced.p, atol=tolerances.SAME_DISTRIBUTION)
    assert ball.dual["eta"] == pytest.approx(2.0, rel=1e-6)


@every
def test_the_robust_counterpart_is_the_same_number(divergence):
    q = np.array([0.5, 0.3, 0.0, 0.2])
    f = np.array([1.0, 2.0, 3.5, 4.0])
    for weight in (0.0, 0.5, 3.0):
        priced = Penalised(divergence, q, weight)
        shift = cp.Variable()
        worst = support(priced, f + cp.square(shift - 1.0))
        optimum = cp.Problem(cp.Minimize(worst)).solve(solver=cp.CLARABEL)
        assert optimum == pytest.approx(priced.worst_case(f).value, abs=1e-6)
        assert shift.value == pytest.approx(1.0, abs=1e-2)


@every
def test_the_gradient_of_robust_loss_is_p(divergence):
    torch = pytest.importorskip("torch")
    from uncertainty_sets.torch import robust_loss

    priced = Penalised(divergence, [0.5, 0.3, 0.2], 2.0)
    f = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64, requires_grad=True)
    value = robust_loss(f, priced)
    value.backward()
    answer = priced.worst_case([1.0, 2.0, 4.0])
    assert value.item() == answer.value
    np.testing.assert_array_equal(f.grad.numpy(), answer.p)
    step = 1e-6
    for i in range(3):
        up, down = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 4.0])
        up[i], down[i] = up[i] + step, down[i] - step
        slope = (priced.worst_case(up).value - priced.worst_case(down).value) / (2.0 * step)
        if divergence != "total-variation":  # which has a kink here
            assert slope == pytest.approx(answer.p[i], abs=1e-6)


def test_errors_say_what_is_needed():
    half = [0.5, 0.5]
    with pytest.raises(UnknownName, match=r"no penalised oracle for 'k1'; did you mean 'kl'\?"):
        Penalised("k1", half, 1.0)
    with pytest.raises(UnknownName, match=r"no penalised oracle for Box.* chi-square, kl, total-variation"):
        Penalised(Box, half, 1.0)
    with pytest.raises(InvalidParameter, match="weight must not be negative, got -1"):
        Penalised("kl", half, -1.0)
    with pytest.raises(BackendUnsuitable, match="needs no solver; leave out backend='clarabel'"):
        Penalised("kl", half, 1.0).worst_case([1.0, 2.0], backend="clarabel")
    with pytest.raises(InvalidLosses, match=r"losses must be finite, got losses\[1\] = nan"):
        Penalised("chi-square", half, 1.0).worst_case([1.0, np.nan])
    with pytest.raises(InvalidLosses, match="losses must have 2 entries"):
        Penalised("kl", half, 1.0).worst_case([1.0, 2.0, 3.0])
    assert repr(Penalised(KL, half, 1.0)) == "Penalised(divergence='kl', center=[0.5, 0.5], weight=1)"


def test_a_price_belongs_to_the_name():
    """A class that replaces a set keeps its price; one of another name, such as EVaR, has none."""

    class Mine(KL, replace=True):
        name = "kl"

    try:
        assert Penalised("kl", [0.5, 0.5], 1.0).worst_case([1.0, 2.0]).value > 1.5
    finally:
        SETS.forget("kl")
    with pytest.raises(UnknownName, match=r"no penalised oracle for EVaR.*chi-square, kl, total-variation"):
        Penalised(EVaR, [0.5, 0.5], 1.0)


@every
def test_a_solver_answers_where_the_closed_form_has_no_proof(divergence, monkeypatch):
    from uncertainty_sets.kernels import penalised

    q, f = np.array([[0.5, 0.3, 0.2], [0.2, 0.0, 0.8]]), np.array([[1.0, 2.0, 4.0], [3.0, 1.0, -1.0]])
    priced = Penalised(divergence, q, [0.7, 2.0])
    right = priced.worst_case(f)

    def unproved(F, center, weight, warm, P, out):
        P[:] = center
        out[:] = [1.0, 2.0, 1.0, 0.0, 1.0, 3.0, 0.0, 0.0]  # NOT_SOLVED, with a gap of 1

    monkeypatch.setattr(penalised, divergence.replace("-", "_"), unproved)
    priced = copy.copy(priced)  # which does not have the kernel yet
    answer = priced.worst_case(f)
    assert "clarabel" in answer.backend
    np.testing.assert_allclose(answer.value, right.value, atol=1e-6)
    np.testing.assert_allclose(answer.p, right.p, atol=1e-3)
    for b, weight in enumerate((0.7, 2.0)):
        proved = bound(divergence, f[b], q[b], weight, answer.dual["nu"][b])
        assert proved == pytest.approx(answer.upper_bound[b], abs=1e-9)
        assert proved >= right.value[b] - 1e-9
    with pytest.raises(SolverFailed, match="no answer of Penalised for rows 0, 1 of 2") as failed:
        priced.worst_case(f, backend="closed-form")
    assert "try to minimise robust.support(…) with a solver" in str(failed.value)
    assert "backend" not in str(failed.value)  # none would be accepted


@pytest.mark.parametrize("weight", [1e-300, 1e-150, 1e-20, 6.8e-18])
@pytest.mark.parametrize("tiny", [1e-40, 1e-16, 1e-100])
def test_chi_square_where_hardly_any_mass_has_the_largest_loss(weight, tiny):
    """Two losses: p₁ = min(1, q₁ + q₁·q₂/2τ) in closed form."""
    f, q = np.array([2.0, 1.0]), np.array([tiny, 1.0])
    answer = Penalised("chi-square", q, weight).worst_case(f)
    with np.errstate(over="ignore"):
        moved = min(1.0, tiny / (2.0 * weight))
    assert answer.backend == "closed-form"
    assert answer.p[0] == pytest.approx(tiny + moved if moved < 1.0 else 1.0, rel=1e-9)
    assert answer.value == pytest.approx(1.0 + moved - weight * (moved / tiny) * moved, abs=1e-9)


def test_weights_at_the_end_of_the_range():
    f, q = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2])
    answer = Penalised("chi-square", q, 1e302).worst_case(f)
    assert answer.dual["nu"] == pytest.approx(-2e302)
    assert answer.value == pytest.approx(q @ f)
    with pytest.raises(InvalidParameter, match="weight must be at most 5e"):
        Penalised("chi-square", q, 1e308)


@pytest.mark.parametrize("divergence", ["kl", "chi-square", "total-variation"])
@pytest.mark.parametrize("decades", [12, 19, 21, 36, 120, 250])
def test_weights_far_above_the_losses(divergence, decades):
    f, q = np.array([-0.6, -0.3, 0.2, -1.0]), np.array([0.1, 0.4, 0.2, 0.3])
    answer = Penalised(divergence, q, 10.0**decades).worst_case(f)
    assert answer.value == pytest.approx(q @ f, abs=1e-11)
    assert abs(answer.gap) <= 1e-9 * np.ptp(f)
    np.testing.assert_allclose(answer.p, q, atol=1e-11)


@pytest.mark.parametrize("seed", range(4))
def test_chi_square_with_masses_and_weights_of_any_size(seed):
    """One entry has nearly all mass; the others have 1e-300 to 1e-10, and the weight is of their size."""
    rng = np.random.default_rng([33, seed])
    rows, size = 400, int(rng.integers(2, 12))
    q = 10.0 ** rng.uniform(-300.0, -10.0, (rows, size)) * 10.0 ** rng.choice([0.0, 2.0], (rows, size))
    if seed % 2:
        q = q[:, :1] * 10.0 ** rng.uniform(-2.0, 2.0, (rows, size))
    q[np.arange(rows), rng.integers(size, size=rows)] = 1.0
    f = np.sort(rng.choice([-1.0, 1.0], (rows, size)) * 10.0 ** rng.uniform(-3.0, 0.0, (rows, size)), axis=1)
    q = np.maximum(q, 1e-305)
    q /= q.sum(axis=1, keepdims=True)
    weight = np.minimum(q.min(axis=1) * 10.0 ** rng.uniform(-6.0, 40.0, rows), 1.0)
    answer = Penalised("chi-square", q, weight).worst_case(f)
    assert answer.backend == "closed-form"
    wide, f = f, f.astype(np.longdouble)
    q, p = q.astype(np.longdouble), answer.p.astype(np.longdouble)
    tau = weight.astype(np.longdouble)[:, None]
    nu = answer.dual["nu"].astype(np.longdouble)[:, None]
    value = (p * f).sum(axis=1) - (tau * ((p - q) * ((p - q) / q))).sum(axis=1)
    proved = (nu + tau)[:, 0] + (q * (np.maximum(f - nu, 0.0) ** 2 / (4.0 * tau))).sum(axis=1)
    spread = np.ptp(wide, axis=1)
    assert (np.abs(p.sum(axis=1) - 1.0) <= tolerances.VIOLATION).all()
    assert (np.abs(answer.value - value) <= 1e-12 * spread).all()
    assert (proved - value <= tolerances.GAP * spread).all()
    assert (proved - value >= -1e-12 * spread).all()


def test_kl_where_the_largest_loss_is_lost_beside_the_spread():
    """Losses over more decades than doubles have: ν is the largest loss, as for each of them alone."""
    f = np.array([-1e-41, 9e-237, -3e264])
    answer = Penalised("kl", [0.2, 0.3, 0.5], [1e-300, 1e-290]).worst_case(np.array([f, -f[::-1]]))
    assert answer.dual["nu"][0] == 9e-237
    assert answer.dual["nu"][1] == 3e264
    assert Penalised("kl", [0.2, 0.3, 0.5], 1e-300).worst_case(f).dual["nu"] == 9e-237


@pytest.mark.parametrize("divergence", ["kl", "chi-square", "total-variation"])
def test_a_solver_that_doubts_its_answer_is_judged_by_the_certificate(divergence):
    """cvxpy's "optimal_inaccurate" is a warning of its own, which is no error here; a poor gap is."""
    real = cp.Problem.solve

    def hurried(self, *args, **options):
        return real(self, *args, **options, max_iter=5, reduced_tol_gap_abs=1.0, reduced_tol_gap_rel=1.0,
                    reduced_tol_feas=1.0)  # fmt: skip

    q, f = np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, 4.0])
    subject = Penalised(divergence, q, 1.0)
    best = subject.worst_case(f).value
    found = None
    with mock.patch.object(cp.Problem, "solve", hurried), suppress(SolverFailed):
        found = verdict.by_solver(subject, f)
    if found is not None:
        assert found.value <= best + 1e-12
        assert best - found.value <= 3e-4
        assert found.upper_bound >= best - 1e-12
    assert verdict.by_solver(subject, f).gap <= 1e-6
