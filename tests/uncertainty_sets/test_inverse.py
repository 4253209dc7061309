"""The least radius that reaches a target: against LPs and cvxpy, with the lower bound recomputed."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

from tests import tolerances
from tests.uncertainty_sets.plugins import TotalVariation
from uncertainty_sets import (
    KL,
    Box,
    CDNorm,
    CressieRead,
    Ellipsoid,
    UncertaintySet,
    Wasserstein1,
    WeightedL1,
    get_set,
)
from uncertainty_sets.errors import BackendUnsuitable, BrokenSet, EmptySet, InvalidInput, InvalidLosses
from uncertainty_sets.inverse import _by_oracle, resized

F, Q = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2])


def kl_bound(f, q, theta, target):
    """θ·target - log Σ q·exp(θf), about the largest loss that counts."""
    inside = q > 0.0
    top = f[inside].max()
    return theta * (target - top) - np.log(q[inside] @ np.exp(theta * (f[inside] - top)))


def divergence(p, q):
    used = p > 0.0
    return float(p[used] @ np.log(p[used] / q[used]))


@pytest.mark.parametrize("seed", range(60))
def test_kl_has_a_certificate_that_numpy_repeats(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    q = rng.dirichlet(np.full(n, rng.choice([0.05, 0.5, 5.0])))
    q[rng.integers(n)] = 0.0
    q /= q.sum()
    f = (
        np.round(rng.normal(size=n), 1)
        if seed % 3 == 0
        else rng.normal(size=n) * rng.choice([1e-3, 1.0, 1e3])
    )
    top, mean = f[q > 0.0].max(), q @ f
    for share in (1e-9, 1e-4, 0.3, 0.9, 0.999999):
        target = mean + share * (top - mean)
        found = KL(q, 0.1).radius_for(f, target)
        rounding = 100.0 * found.multiplier * np.spacing(np.abs(f).max())
        slack = max(1e-9 * found.radius, rounding, 1e-15)
        assert found.backend == "closed-form"
        assert abs(found.gap) <= slack
        assert found.p.sum() == pytest.approx(1.0, abs=1e-12)
        assert (found.p[q == 0.0] == 0.0).all()
        assert found.p @ f >= target - tolerances.gap(f)
        assert divergence(found.p, q) == pytest.approx(found.radius, abs=slack + 1e-13)
        assert kl_bound(f, q, found.multiplier, target) == pytest.approx(found.lower_bound, abs=slack + 1e-13)


def test_kl_agrees_with_a_conic_solver():
    rng = np.random.default_rng(3)
    q, f = rng.dirichlet(np.ones(12)), rng.normal(size=12)
    target = q @ f + 0.4 * (f.max() - q @ f)
    p = cp.Variable(12, nonneg=True)
    problem = cp.Problem(cp.Minimize(cp.sum(cp.rel_entr(p, q))), [cp.sum(p) == 1, f @ p >= target])
    problem.solve(solver="CLARABEL")
    assert KL(q, 0.0).radius_for(f, target).radius == pytest.approx(problem.value, abs=1e-6)


def test_edges_of_kl():
    ball = KL([0.5, 0.5, 0.0], 0.3)
    f = [0.0, 2.0, 9.0]  # the largest loss has no mass and does not count
    below, top, beyond = (ball.radius_for(f, target) for target in (1.0, 2.0, 2.5))
    assert (below.radius, below.lower_bound, below.multiplier) == (0.0, 0.0, 0.0)
    np.testing.assert_array_equal(below.p, [0.5, 0.5, 0.0])
    assert top.radius == top.lower_bound == pytest.approx(np.log(2.0))
    np.testing.assert_array_equal(top.p, [0.0, 1.0, 0.0])
    assert beyond.radius == beyond.lower_bound == np.inf
    assert np.isnan(beyond.p).all()
    assert KL(Q, 0.1).radius_for([3.0, 3.0, 3.0], 3.0).radius == 0.0
    assert KL(Q, 0.1).radius_for([3.0, 3.0, 3.0], 3.1).radius == np.inf
    assert KL([1.0], 0.1).radius_for([3.0], 2.0).radius == 0.0


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e200])
def test_kl_at_any_scale_of_the_losses(scale):
    plain, scaled = KL(Q, 0.1).radius_for(F, 2.5), KL(Q, 0.1).radius_for(F * scale, 2.5 * scale)
    assert scaled.radius == pytest.approx(plain.radius, rel=1e-9)
    assert scaled.lower_bound == pytest.approx(plain.radius, rel=1e-9)
    assert scaled.value == pytest.approx(2.5 * scale)


@pytest.mark.parametrize("subject", [KL(Q, 0.1), Wasserstein1(Q, 0.1), Ellipsoid(Q, Q, 0.1)])
def test_the_radius_gives_back_the_target(subject):
    for target in (2.0, 2.5, 3.9):
        found = subject.radius_for(F, target)
        again = type(subject)(**_parameters(subject) | {"radius": found.radius})
        assert again.worst_case(F).value == pytest.approx(target, abs=1e-9)
        less = type(subject)(**_parameters(subject) | {"radius": found.lower_bound * (1.0 - 1e-6)})
        assert less.worst_case(F).upper_bound < target
        assert abs(found.gap) <= 1e-9 * found.radius


def _parameters(subject):
    own = {"center": subject.center}
    return own | {"shape": Q} if isinstance(subject, Ellipsoid) else own


@pytest.mark.parametrize("seed", range(10))
def test_wasserstein_agrees_with_a_linear_program(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 12))
    f, q = rng.normal(size=n), rng.dirichlet(np.ones(n))
    target = q @ f + rng.choice([0.05, 0.5, 1.0]) * (f.max() - q @ f)
    cost = np.abs(np.subtract.outer(np.arange(n), np.arange(n))).astype(float)
    plan = linprog(  # plan[i, j] moves mass from j to i
        cost.ravel(),
        A_ub=-np.repeat(f, n)[None],
        b_ub=[-target],
        A_eq=np.kron(np.ones((1, n)), np.eye(n)),
        b_eq=q,
    )
    found = Wasserstein1(q, 0.2).radius_for(f, target)
    assert found.radius == pytest.approx(plan.fun, rel=1e-6)
    assert found.lower_bound <= plan.fun * (1.0 + 1e-7)
    assert found.iterations <= 8


def test_a_budget_and_a_target_that_no_budget_reaches():
    found = CDNorm(Q, 0.9 * Q, 1.0).radius_for(F, [1.0, 2.5, 4.0])
    assert found.radius[0] == 0.0
    assert CDNorm(Q, 0.9 * Q, found.radius[1]).worst_case(F).value == pytest.approx(2.5)
    assert found.radius[2] == found.lower_bound[2] == np.inf


def test_the_closed_form_and_the_oracle_agree():
    rng = np.random.default_rng(5)
    for _ in range(20):
        q, f = rng.dirichlet(np.ones(8)), rng.normal(size=8)
        target = q @ f + rng.choice([1e-3, 0.3, 0.95]) * (f.max() - q @ f)
        closed, called = KL(q, 0.1).radius_for(f, target), _by_oracle(KL(q, 0.1), f, target)
        assert called.backend == "oracle"
        assert called.radius == pytest.approx(closed.radius, rel=1e-8)
        assert called.lower_bound <= closed.radius * (1.0 + 1e-9)


def test_a_set_without_multipliers_narrows_a_bracket():
    class Sized(TotalVariation):
        """Without a method of its own, but with a radius that questions may change."""

        sized_by = "radius"

        def reference(self):
            return self.center

    found = Sized(Q, 0.05).radius_for(F, 2.5)
    assert np.isnan(found.multiplier)
    assert found.lower_bound <= 0.2 + 1e-6  # 0.2 of the mass from a loss of 1 to one of 4
    assert found.radius == pytest.approx(0.2, rel=1e-4)


def test_batches_are_the_single_answers():
    rng = np.random.default_rng(8)
    losses, centers = rng.normal(size=(5, 6)), rng.dirichlet(np.ones(6), 5)
    targets = (losses * centers).sum(axis=1) + 0.2
    for many in (KL(centers, 0.1), Wasserstein1(centers, 0.1)):
        batch = many.radius_for(losses, targets)
        for b in range(5):
            single = type(many)(centers[b], 0.1).radius_for(losses[b], targets[b])
            assert batch.radius[b] == pytest.approx(single.radius, rel=1e-9)
            assert batch.row(b).radius == batch.radius[b]
    several = KL(centers[0], 0.1).radius_for(losses[0], [0.0, 0.5, 99.0])
    assert several.radius.shape == (3,)
    assert several.p.shape == (3, 6)


def test_what_is_refused():
    with pytest.raises(BackendUnsuitable, match="Box has no radius or budget"):
        Box([0.0, 0.0], [1.0, 1.0]).radius_for([1.0, 2.0], 1.5)
    with pytest.raises(InvalidInput, match="target must be a finite number"):
        KL(Q, 0.1).radius_for(F, np.nan)
    with pytest.raises(InvalidInput, match="of length 2"):
        KL(Q, 0.1).radius_for([F, F], [1.0, 2.0, 3.0])
    with pytest.raises(InvalidLosses, match=r"losses\[1\] = nan"):
        KL(Q, 0.1).radius_for([1.0, np.nan, 2.0], 1.0)


def test_distances():
    p = np.array([0.3, 0.3, 0.4])
    assert KL(Q, 0.1).radius_of(p) == pytest.approx(divergence(p, Q))
    assert KL([1.0, 0.0], 0.1).radius_of([0.5, 0.5]) == np.inf
    assert Ellipsoid(Q, Q, 0.1).radius_of(p) == pytest.approx(((p - Q) ** 2 / Q).sum())
    assert Wasserstein1(Q, 0.1).radius_of(p) == pytest.approx(0.4, rel=1e-9)  # 0.2 of the mass, by 2 places
    assert CDNorm(Q, Q, 0.1).radius_of(p) == pytest.approx((np.abs(p - Q) / Q).sum(), rel=1e-9)
    assert CDNorm(Q, 0.1, 0.1).radius_of(p) == np.inf
    assert KL(Q, 0.1).radius_of(Q) == 0.0


def test_scaled_sets_and_paths():
    ball = KL(Q, 0.1)
    assert ball.scaled(2.0).radius == 0.2
    assert ball.scaled([1.0, 3.0]).radius.tolist() == pytest.approx([0.1, 0.3])
    with pytest.raises(InvalidInput, match="factor must be finite and at least 0"):
        ball.scaled(-1.0)
    radii = [0.3, 0.0, 0.1, 10.0]
    for subject, key in ((ball, "radius"), (CDNorm(Q, Q, 1.0), "budget")):
        path = subject.worst_case_path(F, radii)
        assert path.p.shape == (4, 3)
        for k, size in enumerate(radii):
            once = subject.scaled(size / getattr(subject, key)).worst_case(F)
            assert path.value[k] == pytest.approx(once.value, abs=1e-9)
            assert path.gap[k] <= tolerances.gap(F)
    with pytest.raises(InvalidInput, match="a path needs one loss vector"):
        ball.worst_case_path([F, F], radii)


SIZED = [
    *(get_set(name) for name in ("kl", "total-variation", "chi-square", "burg", "hellinger")),
    lambda q, r: CressieRead(q, r, power=1.5),
    lambda q, r: CressieRead(q, r, power=-1.0),
    lambda q, r: WeightedL1(q, [1.0, 1.0], r),
    lambda q, r: CDNorm(q, q, r),
    lambda q, r: Ellipsoid(q, [0.5, 2.0], r),
    Wasserstein1,
]
FORMULAS = [
    lambda p, q: p * np.log(p / q),
    lambda p, q: 0.5 * abs(p - q),
    lambda p, q: (p - q) ** 2 / q,
    lambda p, q: q * np.log(q / p),
    lambda p, q: 0.5 * (np.sqrt(p) - np.sqrt(q)) ** 2,
    lambda p, q: (q * (p / q) ** 1.5 - 1.5 * (p - q) - q) / 0.75,
    lambda p, q: (q * q / p + p - 2.0 * q) / 2.0,
    lambda p, q: abs(p - q),
    lambda p, q: abs(p - q) / q,
    lambda p, q: (p - q) ** 2 / np.array([0.5, 2.0]),
    lambda p, q: 0.5 * abs(p - q),
]


@pytest.mark.parametrize(("make", "formula"), list(zip(SIZED, FORMULAS, strict=True)))
def test_two_losses_leave_one_distribution(make, formula):
    """pᵀf = T decides p, and so the radius: from targets near the mean to those near the largest loss."""
    q, f = np.array([0.75, 0.25]), np.array([-1.0, 3.0])
    for share in (1e-6, 1e-3, 0.1, 0.5, 0.9):
        target = share * 3.0  # the mean is 0
        p1 = (np.longdouble(target) + 1.0) / 4.0
        least = float(formula(np.array([1.0 - p1, p1]), q.astype(np.longdouble)).sum())
        found = make(q, 0.1).radius_for(f, target)
        # The losses are known to an ulp, by which the target may be nearer or further.
        slack = 1e-9 * least + 1e-13 * (1.0 if np.isnan(found.multiplier) else found.multiplier)
        if p1 - 0.25 > 0.25 and isinstance(make(q, 0.1), CDNorm):
            assert not found.reached
            continue
        assert found.radius == pytest.approx(least, abs=slack)
        assert found.lower_bound == pytest.approx(least, abs=slack)
        assert found.gap >= -1e-12 * found.radius
        np.testing.assert_allclose(found.p, [1.0 - p1, p1], atol=1e-12)


def test_a_target_that_no_radius_reaches_says_so():
    for target, make in ((4.0, get_set("burg")), (4.5, get_set("burg")), (4.0, CressieRead), (4.5, KL)):
        subject = make(Q, 0.1, power=-0.5) if make is CressieRead else make(Q, 0.1)
        found = subject.radius_for(F, target)
        assert not found.reached
        assert (found.radius, found.lower_bound, found.gap) == (np.inf, np.inf, 0.0)
        assert repr(found).startswith("LeastRadius(no radius reaches the target")
    several = KL(Q, 0.1).radius_for(F, [2.5, 9.0])
    assert several.reached.tolist() == [True, False]
    assert "2 targets" in repr(several)
    assert "1 that no radius reaches" in repr(several)


def test_mass_that_moves_for_nothing_needs_no_radius():
    free = Wasserstein1([0.3, 0.3, 0.4], 0.1, cost=[0.0, 0.0, 1.0])
    found = free.radius_for([0.0, 1.0, 0.5], 0.6)
    assert found.lower_bound == 0.0
    assert found.radius <= 1e-13
    assert found.p @ [0.0, 1.0, 0.5] >= 0.6 - 1e-12


def test_the_best_case_is_the_worst_of_the_opposite():
    rng = np.random.default_rng(2)
    losses = rng.normal(size=(4, 3))
    for subject in (KL(Q, 0.1), CDNorm(Q, Q, 1.0), Wasserstein1(Q, 0.2)):
        best, worst = subject.best_case(losses), subject.worst_case(-losses)
        np.testing.assert_array_equal(best.value, -worst.value)
        np.testing.assert_array_equal(best.lower_bound, -worst.upper_bound)
        np.testing.assert_allclose((best.p * losses).sum(axis=1), best.value, atol=1e-12)
        assert (best.value <= losses @ Q).all()
        assert (best.lower_bound <= best.value + 1e-12).all()
        assert (best.gap >= -1e-12).all()
    with pytest.raises(InvalidLosses):
        KL(Q, 0.1).best_case([1.0, np.nan, 0.0])


@pytest.mark.parametrize("seed", range(20))
def test_a_set_made_again_has_the_same_centre(seed):
    """A second division by the sum moves it by an ulp, which a spread of 1e-200 magnifies."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([2, 5, 30, 100]))
    q = rng.gamma(rng.choice([0.05, 1.0]), size=(6, n)) + 1e-30
    ball = CDNorm(q / q.sum(axis=1, keepdims=True), np.full((6, n), 1e-200), 1.0)
    for b in range(6):
        row = ball._row(b)
        np.testing.assert_array_equal(row.center, ball.center[b])
        np.testing.assert_array_equal(resized(row, 2.0).center, ball.center[b])
    found = ball.radius_for(np.ones(n), np.ones(6))
    np.testing.assert_array_equal(found.p, ball.center)
    assert (found.radius == 0.0).all()


@pytest.mark.parametrize("f", [[-9.5e13, -9e7, -27351.0, -86.7, -1.0], [-1e9, -1e6, -1e3, -1.0]])
def test_losses_that_dwarf_the_others_hide_no_radius(f):
    """To reach the largest loss all mass goes there, whatever the others are."""
    f, n, w = np.array(f), len(f), 0.0035
    q = np.full(n, 1.0 / n)
    rounding = 64.0 * np.spacing(-f[0]) / (f[-1] - f[-2])  # of the losses, in mass from the second largest
    for ball, price in ((WeightedL1(q, np.full(n, w), 0.1), 2.0 * w), (CDNorm(q, np.ones(n), 0.1), 2.0)):
        found = ball.radius_for(f, f.max())
        radius = price * (1.0 - 1.0 / n)
        assert radius - price * rounding <= found.radius <= radius * (1.0 + 1e-9)
        assert found.lower_bound <= radius * (1.0 + 1e-12)
        assert found.gap <= 1e-9 * found.radius + price * rounding


@pytest.mark.parametrize("exponent", range(30, 110, 16))
def test_a_radius_may_be_tiny(exponent):
    """Two losses leave one p: (target - mean)²·(1/Q_1 + 1/Q_2)."""
    size = 10.0**exponent
    found = Ellipsoid([0.5, 0.5], [size, 4.0 * size], 1.0).radius_for([0.0, 1.0], 0.75)
    assert found.radius == pytest.approx(0.0625 * 1.25 / size, rel=1e-9)
    assert abs(found.gap) <= 1e-9 * found.radius


def test_a_target_within_rounding_of_the_largest_loss():
    ball = CressieRead([0.3333333333333333] * 3, 0.1, power=3.0)
    for share in (1e-12, 1e-13, 1e-14):
        found = ball.radius_for([0.1, 0.57, 0.1], 0.57 - 0.47 * share)
        assert found.radius == pytest.approx(4.0 / 3.0, rel=1e-9)
        assert found.lower_bound <= found.radius


def test_a_search_does_not_stay_where_its_steps_are_rounding():
    """Two losses and a target 4e-11 above the mean: the lines of short answers move by 1e-8 of the radius."""
    q = np.array([0.3125643004421274, 0.6874356995578726])
    shape, target = np.array([240.23682334157357, 0.3954208292753161]), -0.687435699516596
    found = Ellipsoid(q, shape, 0.439).radius_for([-8.8e-230, -1.0], target)
    rise = (target + q[1]) ** 2 * (1.0 / shape).sum()  # p - q = (d, -d) with d the rise of the mean
    assert found.radius == pytest.approx(rise, rel=1e-3)
    assert found.lower_bound <= found.radius * (1.0 + 1e-9)
    assert found.iterations <= 40


def test_a_row_of_an_answer_is_chosen_by_its_number():
    answer = KL([0.5, 0.3, 0.2], 0.1).radius_for([1.0, 2.0, 4.0], [2.5, 3.0])
    assert answer.row(-1).radius == answer.radius[1]
    for row in (0.5, 2, "a"):
        with pytest.raises(InvalidInput, match="row"):
            answer.row(row)
    with pytest.raises(InvalidInput, match="no rows"):
        answer.row(0).row(0)


def test_near_the_largest_loss_weighted_l1_and_transport_have_answers():
    """Masses of 1e-16 are worth the rounding of the losses: the radius is that of all mass that is more."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        n = int(rng.integers(5, 40))
        q = rng.dirichlet(np.full(n, 0.05))
        f = np.where(np.arange(n) == q.argmin(), 1.0, rng.uniform(-1.0, 0.9, n))
        top = int(f.argmax())
        w, x = 10.0 ** rng.uniform(-3.0, 3.0, n), np.sort(rng.normal(size=n))
        for subject, cost in (
            (WeightedL1(q, w, 0.1), np.where(np.arange(n) == top, 0.0, w + w[top])),
            (Wasserstein1(q, 0.1, cost=x), np.abs(x - x[top])),
        ):
            target = 1.0 - float(rng.choice([0.0, 1e-16, 1e-14]))
            found = subject.radius_for(f, target)
            digits = 64.0 * 2.0**-52 * (np.abs(f - target).max() + np.ptp(f))
            # All mass to the largest loss; and what moves if masses worth no more than rounding stay.
            assert found.radius <= (cost @ q) * (1.0 + 1e-9)
            price = np.sort((1.0 - f) * q / np.maximum(cost * q, 1e-300))
            least = min(
                (cost * q)[(1.0 - f) >= p * cost].sum()
                for p in price
                if ((1.0 - f) * q)[(1.0 - f) < p * cost].sum() <= digits + (1.0 - target)
            )
            assert found.radius >= least * (1.0 - 1e-6) - 1e-9
            assert found.lower_bound <= found.radius


def test_a_ball_smaller_than_the_violation_that_a_closed_form_may_have():
    """A p just outside a radius of 1e-11 does not reach the target within it; nor one whose sum is short."""
    q = np.array([5.571562038868937e-22, 0.9999999966870631, 3.312936941845604e-09])
    shape = np.array([6.364774866253338e87, 6.323812066145954e-07, 1.42432702332331e30])
    f = np.array([-366176781435.5399, -366176781435.41724, -366176781436.8384])
    found = Ellipsoid(q, shape, 0.1).radius_for(f, f[1])
    assert found.radius == pytest.approx(q[2] ** 2 / shape[1], rel=1e-6)  # all of q₃ goes to q₂
    assert found.lower_bound <= found.radius * (1.0 + 1e-9)


def test_a_target_that_only_rounding_reaches():
    """The spread of 1e-33 holds every p at the centre, whose mean is the target up to the last digit."""
    f = np.array([-0.3903891306744434, 0.2991886177716868])
    found = CDNorm([6.174e-15, 1.0 - 6.174e-15], [2.4e-203, 1.6e-33], 0.016).radius_for(f, f[1])
    assert found.reached
    assert f[1] - found.p @ f <= 64.0 * 2.0**-52


def test_a_loss_that_dwarfs_the_others_does_not_take_their_digits():
    f = np.array([0.0, -1.0, -7.74e-13])
    found = Ellipsoid([0.0, 0.0, 1.0], 5.5, 0.4).radius_for(f, -3.87e-13)
    digits = 64.0 * 2.0**-52 * 2.0 * found.multiplier
    assert digits <= 0.2 * found.radius
    assert found.radius == pytest.approx(2.0 * 0.25 / 5.5, abs=digits)  # half of q₃ goes to q₁


class Ball(UncertaintySet):
    """A set of a user's own, that names its radius and says nothing of its centre."""

    name = ""
    sized_by = "radius"

    def __init__(self, center, radius, apart=0.0):
        self.center, self.radius, self.apart, self.size = np.asarray(center), radius, apart, len(center)

    def constraints(self, p):
        beside = p[0] <= self.center[0] + self.radius - self.apart
        return [cp.norm(p - self.center) <= self.radius, *([beside] if self.apart else [])]


@pytest.mark.parametrize("radius", [0.0, 0.1, 0.3])
def test_without_a_reference_the_centre_is_the_member_of_size_0(radius):
    own, known = Ball(Q, radius), Ellipsoid(Q, np.ones(3), 0.1)
    for target in (1.5, Q @ F + 0.01, 2.1, 3.9):
        found, right = own.radius_for(F, target), known.radius_for(F, target)
        assert found.radius == pytest.approx(np.sqrt(right.radius), abs=1e-5)
        assert found.radius == 0.0 or Ball(Q, found.radius).contains(found.p)
    assert not own.radius_for(F, 4.1).reached
    with pytest.raises((BrokenSet, EmptySet), match=r"has no member .* define reference\(\)|empty"):
        Ball(Q, 0.1, apart=1e-3).radius_for(F, 2.1)
