"""ChiSquare, Hellinger, Burg and CressieRead: definitions, cvxpy, and certificates in 80-bit numbers."""

from __future__ import annotations

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest

from tests import tolerances
from tests.uncertainty_sets.reference import power_bound
from uncertainty_sets import KL, Burg, ChiSquare, CressieRead, Hellinger
from uncertainty_sets.errors import InvalidParameter

POWERS = [-8.0, -1.0, -0.5, 0.0, 0.05, 0.3, 0.5, 0.95, 1.05, 1.5, 2.0, 3.0, 8.0]
LONG = np.longdouble


def divergence(p, q, k):
    """Σ q·φ(p/q) from the definition, with the part that has left the support."""
    inside = q > 0.0
    t = p[inside].astype(LONG) / q[inside]
    phi = t - 1 - np.log(t) if k == 0.0 else (t ** LONG(k) - k * t + k - 1) / (LONG(k) * (k - 1))
    return float(q[inside] @ phi) + (float(p[~inside].sum()) / (1.0 - k) if k < 1.0 else 0.0)


def check(f, q, radius, k):
    """Feasible by the definition, and within the promise of a bound recomputed from the margin."""
    answer = CressieRead(q, radius, k).worst_case(f, backend="closed-form")
    assert (answer.p >= 0.0).all()
    assert abs(answer.p.sum() - 1.0) <= tolerances.VIOLATION
    assert divergence(answer.p, q, k) <= radius + tolerances.VIOLATION * max(1.0, radius)
    top = f.max()
    again = power_bound(f - top, q, radius, k, answer.dual["margin"])
    assert again - answer.p @ (f - top) <= tolerances.gap(f)
    return answer


def drawn(rng, tiny):
    n = int(rng.integers(1, 40))
    kinds = (
        rng.normal(size=n),
        rng.integers(0, 4, n) * 1.0,
        rng.integers(0, 2, n) + 1e-9 * rng.normal(size=n),
    )
    q = rng.dirichlet(np.full(n, rng.choice([0.05, 0.5, 5.0]))) * (rng.random(n) < 0.8)
    if tiny:
        q = q * 10.0 ** rng.choice([0, 0, -20, -25, -100], n)
    q = q if q.sum() > 0.0 else np.eye(n)[0]
    return kinds[rng.integers(3)], q / q.sum()


@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.parametrize("k", POWERS)
def test_feasible_and_proved_by_the_definition(k, tiny):
    rng = np.random.default_rng([int(10 * k) + 100, tiny])
    for _ in range(150):
        f, q = drawn(rng, tiny)
        check(f, q, float(rng.choice([1e-6, 0.01, 0.1, 0.8, 3.0, 30.0])), k)


@pytest.mark.parametrize("k", POWERS)
def test_a_tiny_radius_keeps_its_digits(k):
    f, q = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2])
    sigma = np.sqrt(q @ (f - q @ f) ** 2)
    for radius in (1e-12, 1e-16, 1e-20):
        answer = CressieRead(q, radius, k).worst_case(f)
        assert abs(answer.gap) <= tolerances.ulps(f)
        assert answer.dual["eta"] * np.sqrt(2.0 * radius) == pytest.approx(sigma, rel=1e-4)


@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1e100, 1e300])
@pytest.mark.parametrize("k", [-1.0, 0.0, 0.5, 1.5, 2.0])
def test_scale_does_not_matter(k, scale):
    f, q = np.array([0.1, 0.7, 0.3, 0.65]), np.array([0.4, 0.0, 0.4, 0.2])
    one, other = (CressieRead(q, 0.2, k).worst_case(each) for each in (f, scale * f))
    np.testing.assert_allclose(other.p, one.p, rtol=1e-9)
    for key in ("eta", "margin"):
        assert other.dual[key] == pytest.approx(scale * one.dual[key], rel=1e-9)


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda q: ChiSquare(q, 0.3), lambda p, q: cp.sum(cp.multiply(1 / q, cp.square(p - q))) <= 0.3),
        (lambda q: Hellinger(q, 0.05), lambda p, q: np.sqrt(q) @ cp.sqrt(p) >= 0.95),
        (lambda q: Burg(q, 0.2), lambda p, q: q @ (np.log(q) - cp.log(p)) <= 0.2),
        (lambda q: CressieRead(q, 0.2, -1.0), lambda p, q: q**2 @ cp.inv_pos(p) <= 1.4),
        (lambda q: CressieRead(q, 0.2, 1.5), lambda p, q: q**-0.5 @ cp.power(p, 1.5) <= 1.15),
    ],
)
def test_cvxpy_agrees(make, limit):
    rng = np.random.default_rng(5)
    for n in (2, 5, 12):
        f, q, p = rng.normal(size=n), rng.dirichlet(np.full(n, 2.0)), cp.Variable(n, nonneg=True)
        problem = cp.Problem(cp.Maximize(f @ p), [cp.sum(p) == 1, limit(p, q)])
        problem.solve(solver=cp.CLARABEL)
        assert make(q).worst_case(f).value == pytest.approx(problem.value, abs=tolerances.REFERENCE_CONIC)
        assert make(q).worst_case(f, backend="clarabel").value == pytest.approx(problem.value, abs=1e-5)


@pytest.mark.parametrize("k", [-2.345, -0.7, 0.3, 0.95, 1.06, np.pi, 3.7])
def test_constraints_of_any_fraction(k):
    """Without the warning that cvxpy has for powers with many cones (warnings are errors here)."""
    rng = np.random.default_rng(8)
    f, q, p = rng.normal(size=6), rng.dirichlet(np.full(6, 2.0)), cp.Variable(6, nonneg=True)
    ball = CressieRead(q, 0.1, k)
    problem = cp.Problem(cp.Maximize(f @ p), [cp.sum(p) == 1, *ball.constraints(p)])
    problem.solve(solver=cp.CLARABEL)
    assert ball.worst_case(f).value == pytest.approx(problem.value, abs=tolerances.REFERENCE_CONIC)
    assert ball.worst_case(f, backend="clarabel").value == pytest.approx(problem.value, abs=1e-5)


def test_the_named_sets_are_powers():
    rng = np.random.default_rng(6)
    f, q = rng.normal(size=(20, 30)), rng.dirichlet(np.ones(30))
    for named, radius, power in ((ChiSquare, 0.5, 2.0), (Hellinger, 4.0, 0.5), (Burg, 1.0, 0.0)):
        one, other = named(q, 0.1).worst_case(f), CressieRead(q, 0.1 * radius, power).worst_case(f)
        np.testing.assert_allclose(one.value, other.value, rtol=1e-10)
        np.testing.assert_allclose(one.dual["eta"], radius * other.dual["eta"], rtol=1e-6)


@pytest.mark.parametrize("make", [ChiSquare, Hellinger, Burg, lambda q, r: CressieRead(q, r, 1.5)])
def test_eta_is_the_slope_of_the_bound(make):
    f, q, step = np.array([1.0, 2.0, 4.0, 0.0]), np.array([0.4, 0.3, 0.1, 0.2]), 1e-6
    low, mid, high = (make(q, 0.1 + x).worst_case(f) for x in (-step, 0.0, step))
    assert (high.value - low.value) / (2.0 * step) == pytest.approx(mid.dual["eta"], rel=1e-5)


def test_edges():
    f, q = np.array([0.0, 1.0, 3.0]), np.array([0.5, 0.5, 0.0])
    assert ChiSquare(q, 0.0).worst_case(f).p.tolist() == q.tolist()
    assert ChiSquare(q, 1.0).worst_case(f).p.tolist() == [0.0, 1.0, 0.0]  # never where q = 0
    assert Hellinger(q, 1.0).worst_case(f).p.tolist() == [0.0, 0.0, 1.0]  # the whole simplex
    assert Burg(q, 0.5).worst_case(f).p[2] > 0.1  # mass leaves the support
    assert Burg([1.0, 0.0], 0.5).worst_case([0.0, 1.0]).value == pytest.approx(1.0 - np.exp(-0.5))
    for one in (ChiSquare, Hellinger, Burg):
        assert one([1.0], 0.3).worst_case([2.0]).value == 2.0


@pytest.mark.parametrize(
    ("power", "words"),
    [
        (1.0, r"use KL\(center, radius\)"),
        (1.01, r"within 0.05 of 1"),
        (0.01, r"use power=0"),
        (9.0, r"between -8 and 8"),
        ([2.0, 3.0], r"one number"),
    ],
)
def test_powers_that_are_refused(power, words):
    with pytest.raises(InvalidParameter, match=words):
        CressieRead([0.5, 0.5], 0.1, power)


def test_near_one_it_tends_to_kl():
    f, q = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2])
    low, high = (CressieRead(q, 0.1, k).worst_case(f).value for k in (0.9, 1.1))
    assert 0.5 * (low + high) == pytest.approx(KL(q, 0.1).worst_case(f).value, abs=1e-3)


def test_nearly_all_mass_at_the_threshold_has_a_proof():
    """D jumps where the loss with the mass of ½ is at the zero of p/q; only the bound just above is tight."""
    q = np.array([1.0264e-141, 0.5, 2.4321121957416638e-27, 0.5, 1.6196e-230])
    f = np.array([1.4330973886, 1.0302648823, 118.55555344551338, 5.050441308152013, 13.3111])
    radius = 4.1116483102666e26
    answer = ChiSquare(q, radius).worst_case(f, backend="closed-form")
    assert answer.gap <= tolerances.gap(f)
    above = np.maximum(answer.dual["margin"] - (f.max() - f.astype(LONG)), 0.0)
    bound = f.max() - answer.dual["margin"] + np.sqrt((1.0 + radius) * (q * above**2).sum())
    assert bound - answer.p @ f.astype(LONG) <= tolerances.gap(f)


def test_squares_that_underflow_prove_nothing():
    q = np.array([4.907e-163, 1.0, 3.2956e-166, 8.9298e-256, 4.2596e-181])
    f = np.array([-9.051e262, -1.0591e183, 6.9496e-220, -4.5e-110, -3.116e180])
    ball = ChiSquare(q, 4.3748587869724524e-08)
    answer = ball.worst_case(f)
    assert ball.violation(answer.p) <= tolerances.VIOLATION
    assert answer.p[1] == pytest.approx(1.0)


def test_the_margin_is_not_below_a_loss_with_mass_by_its_rounding():
    """At a margin of 0.9000000000000001 the loss 0.1 counts, and the bound is 3.8e7 instead of 1."""
    q = [1.0275351972731658e-05, 9.905337725184272e-08, 7.288002390872789e-09, 1.2961133226155274e-06]
    q += [4.5910483439556554e-05, 3.444595774846494e-08, 0.15797911361652486, 3.299979630342572e-25]
    q = np.array([*q, 0.8419632636474029, 1.321151031851648e-54])
    f = np.array([1e-07, 0.1, 1e-08, 0.01, 1e-06, 1e-09, 0.0001, 9.999999999999999e-06, 0.001, 1.0])
    radius = 7.569157317301243e53
    for answer in (ChiSquare(q, radius).worst_case(f), CressieRead(q, 0.5 * radius, 2.0).worst_case(f)):
        above = np.maximum(LONG(answer.dual["margin"]) - (LONG(1.0) - f.astype(LONG)), 0.0)
        bound = 1.0 - answer.dual["margin"] + np.sqrt((1.0 + radius) * (q * above**2).sum())
        assert bound - answer.p @ f.astype(LONG) <= tolerances.gap(f)


@pytest.mark.parametrize("short", [1e-6, 1e-9])
@pytest.mark.parametrize("mass", [1e-188, 1e-260, 1e-300])
def test_a_huge_radius_just_short_of_the_largest_loss(mass, short):
    """p at the top is √((1+radius)·mass), and the rest is at the next loss; (p/q)² is above 1e308."""
    f, q = np.array([2.0, 1.0, 0.0]), np.array([mass, 0.5, 0.5])
    radius = (1.0 - short) / mass
    for ball in (ChiSquare(q, radius), CressieRead(q, 0.5 * radius, 2.0)):
        answer = ball.worst_case(f, backend="closed-form")
        assert 2.0 - answer.value == pytest.approx(-np.expm1(0.5 * np.log1p(-short)), rel=1e-6)
        assert answer.gap <= tolerances.gap(f)
        assert ball.violation(answer.p) <= tolerances.VIOLATION


def test_a_huge_radius_and_losses_that_differ_by_little():
    """Where the variance is so small that radius/variance has no number."""
    q = np.array([7.128686569534981e-261, 1.0, 6.775e-87, 4.558e-143, 1.247e-154])
    f = np.array([0.0, -3.7545946789499564e-258, -1.0, -1.734e-103, -2.224e-78])
    answer = CressieRead(q, 7.01391476708052e259, 2.0).worst_case(f, backend="closed-form")
    assert -1e-250 <= answer.value <= 0.0
    assert answer.gap <= tolerances.gap(f)


def least_radius(f, q, target, k):
    """The least radius in 60 digits, by bisection for θ; or with mass at the largest loss where q is 0."""
    with mp.workdps(60):
        g, q, k = [mp.mpf(x) - mp.mpf(target) for x in f], [mp.mpf(x) for x in q], mp.mpf(k)
        total, top, power = sum(q), max(g), 1 / (k - 1)
        q = [x / total for x in q]

        def weights(theta):
            return [x * (1 + (k - 1) * theta * (y - top)) ** power for x, y in zip(q, g, strict=True)]

        def mean(theta):
            return sum(w * y for w, y in zip(weights(theta), g, strict=True))

        if q[-1] == 0.0 and mean(mp.mpf(10) ** 40) < 0.0:
            # p ∝ q·(top - g)^{1/(k-1)} where q is, as much as leaves the mean at the target.
            w = [x * (top - y) ** power for x, y in zip(q[:-1], g[:-1], strict=True)]
            scale = top / sum(x * (top - y) for x, y in zip(w, g[:-1], strict=True))
            p = [scale * x for x in w]
            p.append(1 - sum(p))
        else:
            low, high = mp.mpf(-200), mp.mpf(400)
            for _ in range(220):
                middle = (low + high) / 2
                low, high = (middle, high) if mean(mp.exp(middle)) < 0 else (low, middle)
            w = weights(mp.exp(low))
            p = [x / sum(w) for x in w]
        spent = mp.mpf(0)
        for x, y in zip(p, q, strict=True):
            t = x / y if y else mp.inf
            if not y:
                spent += x / (1 - k)
            else:
                spent += y * (t - 1 - mp.log(t) if k == 0 else (t**k - k * t + k - 1) / (k * (k - 1)))
        return float(spent)


@pytest.mark.parametrize("mass", [0.0, 1e-39, 1e-20, 1e-14, 1e-9])
@pytest.mark.parametrize("k", [-1.0, -0.3, 0.0, 0.25, 0.5, 0.9])
def test_a_loss_that_dwarfs_the_others_leaves_the_least_radius_its_digits(k, mass):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        f, q = np.r_[rng.lognormal(3.0, 1.0, 8), 1.3e13], np.r_[rng.dirichlet(np.ones(8)), mass]
        q /= q.sum()
        target = q @ f + 10.0 ** rng.uniform(-2.0, 2.0)
        found = CressieRead(q, 0.1, k).radius_for(f, target)
        digits = 64.0 * 2.0**-52 * (q @ np.abs(f - target)) * found.multiplier
        assert 0.0 <= found.gap <= 1e-9 * found.radius + digits
        assert found.radius == pytest.approx(least_radius(f, q, target, k), rel=1e-9, abs=digits)
        assert found.p @ f == pytest.approx(target, rel=1e-9)
