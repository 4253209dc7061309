"""A ball and a box where it is hard: no radius, tiny masses, boxes beside the centre, empty rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests import tolerances
from uncertainty_sets import KL, Box, ChiSquare, Ellipsoid, Intersection, Polyhedron
from uncertainty_sets.errors import EmptySet, SolverFailed

Q = np.array([0.5, 0.3, 0.2])
F = np.array([1.0, 2.0, 4.0])


def bound(f, q, scale, radius, lower, upper, eta, nu):
    """The bound of Intersection's docstring in long double; `scale` is None for KL."""
    f, q, lower, upper = (np.asarray(each, dtype=np.longdouble) for each in (f, q, lower, upper))
    low, high, d = np.maximum(lower, 0), np.minimum(upper, 1), f - nu
    if eta == 0.0:
        return nu + np.maximum(low * d, high * d).sum()
    if scale is None:
        p = np.clip(q * np.exp(d / eta), low, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            divergence = np.where(p > 0, p * np.log(p / q), 0) - p + q
    else:
        p = np.clip(q + scale * d / (2 * eta), low, high)
        divergence = (p - q) ** 2 / scale
    return nu + eta * radius + (p * d - eta * divergence).sum()


@pytest.mark.parametrize("kind", [KL, ChiSquare])
def test_centres_over_many_decades_stay_in_the_closed_form(kind):
    rng = np.random.default_rng(33)
    for _ in range(60):
        size, rows = int(rng.integers(2, 51)), 20
        q = rng.gamma(0.02, size=(rows, size)) + 1e-300
        q /= q.sum(axis=1, keepdims=True)
        radius = 10.0 ** rng.uniform(-3.0, 0.5, rows)
        lower = rng.choice([0.0, 0.5, 0.9], (rows, 1)) * q
        upper = np.maximum(rng.choice([1.2, 2.0, 1e6], (rows, 1)) * q, rng.choice([0.0, 0.3, 1.0], (rows, 1)))
        f = rng.normal(size=(rows, size))
        answer = Intersection(kind(q, radius), Box(lower, upper)).worst_case(f)
        assert answer.backend == "closed-form"
        p = answer.p.astype(np.longdouble)
        assert (p >= lower - 1e-15).all()
        assert (p <= upper + 1e-15).all()
        if kind is KL:
            with np.errstate(divide="ignore", invalid="ignore"):
                divergence = np.where(p > 0, p * np.log(p / q), 0).sum(axis=1)
        else:
            divergence = ((p - q) ** 2 / q).sum(axis=1)
        assert (divergence - radius <= tolerances.VIOLATION * np.maximum(1.0, radius)).all()
        assert np.abs(p.sum(axis=1) - 1).max() <= tolerances.VIOLATION
        for b in range(rows):
            scale = None if kind is KL else q[b].astype(np.longdouble)
            eta, nu = answer.dual["eta"][b], answer.dual["nu"][b]
            proved = bound(f[b], q[b], scale, radius[b], lower[b], upper[b], eta, nu)
            assert abs(proved - p[b] @ f[b]) <= tolerances.gap(f[b])


@pytest.mark.parametrize(
    "ball", [lambda r: KL(Q, r), lambda r: ChiSquare(Q, r), lambda r: Ellipsoid(Q, 1e8, r)]
)
@pytest.mark.parametrize("radius", [0.0, 1e-30, 1e-12])
def test_no_centre_outside_the_box_comes_back(ball, radius):
    """The divergence of the nearest point is small, as the shape is large, and still beyond the radius."""
    with pytest.raises(EmptySet, match="divergence of"):
        Intersection(ball(radius), Box([0.0, 0.0, 0.21], np.ones(3)))
    answer = Intersection(ball(radius), Box([0.0, 0.0, 0.2], np.ones(3))).worst_case(F)
    assert answer.violation <= tolerances.VIOLATION
    assert answer.value == pytest.approx(Q @ F, abs=1e-6 if radius == 1e-12 else 1e-9) or radius == 1e-12
    assert answer.p[2] >= 0.2


def test_a_tiny_radius_and_a_huge_shape():
    shape, radius = 1e8, 1e-20
    subject = Intersection(Ellipsoid(Q, shape, radius), Box(0.5 * Q, 2.0 * Q))
    answer = subject.worst_case(F)
    assert ((answer.p - Q) ** 2).sum() / shape <= radius * (1.0 + 1e-9)
    centered = F - F.mean()
    assert answer.value == pytest.approx(Q @ F + np.sqrt(radius * shape * (centered @ centered)), rel=1e-12)


@pytest.mark.parametrize("shape", [None, 0.3])
def test_a_box_beside_the_centre(shape):
    """From just touching: the value grows with the root of what the radius has beyond the nearest point."""
    box = Box([0.0, 0.0, 0.4], np.ones(3))
    near = np.array([0.375, 0.225, 0.4]) if shape is None else np.array([0.4, 0.2, 0.4])
    if shape is None:
        least = float((near * np.log(near / Q)).sum())
    else:
        least = float(((near - Q) ** 2).sum() / shape)
    for more in (1e-8, 1e-4, 1e-1):
        radius = least * (1.0 + more)
        ball = KL(Q, radius) if shape is None else Ellipsoid(Q, shape, radius)
        answer = Intersection(ball, box).worst_case(F)
        assert answer.backend == "closed-form"
        assert abs(answer.gap) <= tolerances.gap(F)
        proved = bound(F, Q, shape, radius, [0, 0, 0.4], [1, 1, 1], answer.dual["eta"], answer.dual["nu"])
        assert float(proved) == pytest.approx(answer.upper_bound, abs=1e-9)
        assert near @ F < answer.value < near @ F + 4.0 * np.sqrt(more)
    with pytest.raises(EmptySet):
        Intersection(KL(Q, 0.99 * least) if shape is None else Ellipsoid(Q, shape, 0.99 * least), box)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (KL(Q, [0.1, 0.1, 0.1]), Box([[0, 0, 0], [0, 0, 0.9], [0.1, 0.1, 0.1]], np.ones((3, 3)))),
        (ChiSquare(Q, [0.1, 0.1, 0.1]), Box([[0, 0, 0], [0.6, 0, 0.9], [0.1, 0.1, 0.1]], np.ones((3, 3)))),
        (KL(Q, [0.1, 1e-4, 0.1]), Polyhedron([[0.0, 0.0, -1.0]], [-0.3])),
        (Box(np.zeros((3, 3)), np.ones(3)), Box([[0, 0, 0], [0, 0.9, 0.9], [0, 0, 0.1]], np.ones((3, 3)))),
    ],
)
def test_an_empty_row_is_a_failed_row(first, second):
    subject, losses = Intersection(first, second), np.array([F, F, F[::-1]])
    answer = subject.worst_case(losses, on_failure="nan")
    assert list(answer.failed) == [1]
    assert "empty" in answer.failed[1]
    assert np.isnan(answer.p[1]).all()
    assert answer.gap[1] == np.inf
    for b in (0, 2):
        assert answer.value[b] == pytest.approx(subject._row(b).worst_case(losses[b]).value, abs=1e-12)
    with pytest.raises(SolverFailed, match="has no distribution in row 1 of 3: the"):
        subject.worst_case(losses)


def test_an_empty_row_of_a_box_and_boxes_that_are_all_empty():
    lower = np.array([[0.0, 0.0], [0.6, 0.6]])
    answer = Box(lower, np.ones((2, 2))).worst_case(np.eye(2), on_failure="nan")
    assert answer.p[0].tolist() == [1.0, 0.0]
    assert "at most 1, got 1.2" in answer.failed[1]
    with pytest.raises(EmptySet, match="at most 1"):
        Box(lower[1:], np.ones((1, 2)))
    with pytest.raises(EmptySet):
        Intersection(KL([0.5, 0.5], [0.0, 0.0]), Box([[0.6, 0.0], [0.7, 0.0]], np.ones((2, 2))))


def test_rows_without_a_limit_have_a_multiplier_of_0():
    rng = np.random.default_rng(3)
    for _ in range(10):
        D, c = rng.normal(size=(5, 3)), rng.normal(size=5)
        c = np.where(rng.random(5) < 0.5, np.inf, D @ Q + np.abs(c))
        c[2] = D[2] @ Q + 0.01
        answer = Intersection(KL(Q, 0.1), Polyhedron(D, c)).worst_case(F)
        eta, y = answer.dual["eta"], answer.dual["y"]
        assert y.shape == (5,)
        assert (y[np.isinf(c)] == 0.0).all()
        finite = np.isfinite(c)
        g = (F - D.T @ y) / eta
        proved = eta * (0.1 + np.log(Q @ np.exp(g - g.max())) + g.max()) + c[finite] @ y[finite]
        assert proved == pytest.approx(answer.upper_bound, abs=1e-9)


def check_spender(q, radius, lower, upper, f, k):
    """Entry k alone costs anything: it gets what the radius allows, the rest goes to the largest losses."""
    answer = Intersection(ChiSquare(q, radius), Box(lower, upper)).worst_case(f)
    assert answer.backend == "closed-form"
    assert answer.violation <= tolerances.VIOLATION
    best = lower.copy()
    best[k] = np.sqrt(radius) * np.sqrt(q[k])
    left = 1.0 - best.sum()
    for i in np.argsort(-f):
        if i != k:
            more = min(left, upper[i] - lower[i])
            best[i], left = best[i] + more, left - more
    assert answer.value == pytest.approx(best @ f, abs=tolerances.gap(f))


@pytest.mark.parametrize("seed", range(4))
def test_one_entry_spends_the_radius(seed):
    """All others are so cheap that they go from one bound to the other: Σp decides what the first costs."""
    rng = np.random.default_rng([33, seed])
    for _ in range(60):
        size = int(rng.integers(3, 20))
        q = 10.0 ** rng.uniform(-240.0, -20.0, size)
        q[0], q[1] = 1e-290, 1.0
        q /= q.sum()
        point = rng.exponential(size=size) ** rng.choice([1.0, 4.0])
        point /= point.sum()
        lower, upper = point * (0.0 if seed % 2 else 0.99), point * (1.0 + 10.0 ** rng.uniform(-8.0, -1.0))
        high = min(upper[0], 1.0 - lower[1:].sum())
        low = max(lower[0], 1.0 - upper[1:].sum())
        most = low + (high - low) * 10.0 ** rng.uniform(-7.0, -0.1)
        f = rng.normal(size=size)
        f[0] = f.max() + 1.0
        check_spender(q, most / q[0] * most, lower, upper, f, 0)


def test_a_room_below_what_a_rounded_sum_is_worth():
    """The radius leaves 1e-5 and 1e-9 of itself: a θ beyond it must not pass for one below."""
    # fmt: off
    center = [1.07e-187, 3.586e-258, 1.644e-125, 9.251244540782966e-287, 0.99999999999997932, 7.042e-148,
              1.826e-18, 2.0314e-274, 3.0547e-75, 2.0614e-14]
    lower = [2.2026294539349337e-06, 1.406410805423801e-08, 1.014499750130771e-08, 5.85385552453099e-05,
             0.9801000032550008, 5.437214367582772e-10, 0.008913665930148145, 2.994272120594861e-08,
             4.874873579274863e-05, 0.000876786198810834]
    upper = [2.2248782385227914e-06, 1.4206169765961736e-08, 1.0247472233790613e-08, 5.9129853842271175e-05,
             0.9900000042778797, 5.492135730323219e-10, 0.009003702968749305, 3.0245172965546805e-08,
             4.9241147314643806e-05, 0.0008856426259470911]
    f = [-0.33806199712789126, 0.9221352599159336, -0.7806100315118052, -0.02142113558209814,
         0.7060001777952728, -1.310496631814145, -1.1982955673032716, -1.1298016172499667,
         1.411939321564614, 2.689615440430001]
    check_spender(np.array(center), 3.7792195788726554e+277, np.array(lower), np.array(upper), np.array(f), 3)
    center = [2.5534628758763542e-253, 7.0296e-132, 9.2355e-67, 1.7342e-60, 2.7399e-58, 8.116e-185, 1.0,
              2.0352e-103, 1.9598e-178, 6.7647e-68]
    upper = [0.02303442408738, 0.08503528515159993, 0.05073572824807674, 0.06486818838476155,
             0.009760657955432064, 0.03386658983372333, 0.5751900103960166, 0.12018663506519328,
             0.022923432998354625, 0.01439904887946198]
    # fmt: on
    f = 10.0 ** -np.arange(0, 30, 3.0)
    check_spender(np.array(center), 2.077902336124264e249, np.zeros(10), np.array(upper), f, 0)


@pytest.mark.parametrize("radius", [1e-30, 1e-28, 1e-26])
def test_a_radius_lost_in_the_rounding_of_the_centre_has_a_price(radius):
    rng = np.random.default_rng(33)
    for _ in range(20):
        q = rng.dirichlet(np.full(10, 0.2))
        shape = 10.0 ** rng.uniform(-8.0, 8.0, 10)
        f = rng.normal(size=10)
        answer = Intersection(Ellipsoid(q, shape, radius), Box(q, 1e6 * q + 1e-12)).worst_case(f)
        eta, nu = (np.longdouble(answer.dual[key]) for key in ("eta", "nu"))
        proved = bound(f, q, shape, radius, q, 1e6 * q + 1e-12, eta, nu)
        assert abs(proved - answer.value) <= tolerances.gap(f)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 40.0])
def test_two_opposite_rows_may_be_in_different_units(unit):
    """Each multiplier belongs to its row as it was given."""
    rng = np.random.default_rng(3)
    for _ in range(10):
        q, f, row = rng.dirichlet(np.ones(5)), rng.normal(size=5), rng.normal(size=5)
        c = row @ (0.9 * q + 0.1 * rng.dirichlet(np.ones(5)))
        D, right = np.array([row, -unit * row]), np.array([c, -unit * c])
        answer = Intersection(KL(q, 0.2), Polyhedron(D, right)).worst_case(f)
        eta, y = answer.dual["eta"], answer.dual["y"]
        proved = eta * (0.2 + np.log(q @ np.exp((f - D.T @ y) / eta))) + right @ y
        assert (y >= 0.0).all()
        assert abs(proved - answer.value) <= 1e-9 * np.ptp(f)
        again = Intersection(KL(q, 0.2), Polyhedron(D, right)).worst_case(f + 1e-3, warm_start=answer)
        assert again.iterations <= 4


def test_where_rows_alone_decide_only_the_support_counts():
    """The largest loss is where the centre has no mass; the ball is wider than the rows."""
    q, f = np.array([0.5, 0.3, 0.2, 0.0]), np.array([1.0, 2.0, 4.0, 9.0])
    subject = Intersection(KL(q, 5.0), Polyhedron([[0.0, 0.0, 1.0, 0.0]], [0.4]))
    answer = subject.worst_case(f)
    np.testing.assert_allclose(answer.p, [0.0, 0.6, 0.4, 0.0], atol=1e-8)
    assert answer.dual["eta"] == pytest.approx(0.0, abs=1e-8)
    assert answer.gap <= 1e-8


def test_opposite_rows_in_other_units_are_an_equation_up_to_rounding():
    """Of two entries one is left: losses of 4e8 must not take the digits of the multipliers."""
    row, unit = np.array([0.17349692892050392, -0.4125818372439057]), -47.268184
    D, c = np.array([row, unit * row]), np.array([-0.1195424541617009, unit * -0.1195424541617009])
    f = np.array([-424332157.3962166, -424332158.7592137])
    answer = Intersection(KL([0.5, 0.5], 3.103197693202965e-06), Polyhedron(D, c)).worst_case(f)
    assert abs(answer.gap) <= 4.0 * np.spacing(np.abs(f).max())
    eta, y = answer.dual["eta"], answer.dual["y"]
    left = f - f.max() - D.T @ y
    proved = eta * 3.103197693202965e-06 + c @ y + left.max()
    proved += eta * np.log(0.5 * np.exp((left - left.max()) / eta).sum())
    assert abs(proved - answer.p @ (f - f.max())) <= 4.0 * np.spacing(np.abs(f).max())


def test_rows_that_decide_alone_are_approached_in_steps():
    """At θ = 1402 Newton's method lost the multipliers that it brought from θ = 8."""
    f = np.array([128877026878.70616, 128877026878.34499, 128877026879.99342])
    linear = Polyhedron([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]], [0.5497775509198544, 0.02])
    answer = Intersection(KL([0.48333333333333334, 0.03333333333333333, 0.48333333333333334], 0.194), linear)
    found = answer.worst_case(f)
    np.testing.assert_allclose(found.p, [1.0 - linear.c[0], 0.0, linear.c[0]], atol=1e-6)
    assert found.gap <= 1e-6 * np.ptp(f)


def test_entries_that_cost_nothing_move_one_after_another():
    """Nine entries are free beside one of 1e-290; of them only the least loss has to move."""
    q = [1.1073509298250199e-290, 5.7e-24, 4e-57, 5.3e-128, 1.4e-104, 2.6e-70, 2.8e-193, 0.5, 0.5, 8.9e-43]
    upper = np.array([
        0.21178799165565437, 0.04202701175833954, 0.04115333675552837, 0.016166574413356262,
        0.06278133772823337, 0.03633793489971977, 0.006472654756734941, 0.27971977472805665,
        0.3014681079576326, 0.0020852763467441885,
    ])  # fmt: skip
    f, radius = 10.0 ** (-3.0 * np.arange(10)), 4.050581601796404e288
    answer = Intersection(ChiSquare(q, radius), Box(0.99 * upper, upper)).worst_case(f)
    assert answer.backend == "closed-form"
    assert abs(answer.p.sum() - 1.0) <= 1e-10
    known = np.append(np.sqrt(radius) * np.sqrt(q[0]), upper[1:])  # the ball alone, and what is left
    known[-1] -= known.sum() - 1.0
    np.testing.assert_allclose(answer.p, known, atol=1e-10)


def test_rows_that_another_makes_superfluous_change_nothing():
    """An equation, the same row again with a little room, and rows of zeros: once a gap of 4e-7."""
    at = 0.3384836569321912
    D = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, -1.0]])
    c = np.array([at, 2.0 * (at + 1e-9), 0.0, 1e-9, -at])
    subject = Intersection(
        KL([0.6580973166730436, 0.3419026833269564], 3.489684837819341e-05), Polyhedron(D, c)
    )
    answer = subject.worst_case([0.0, 1.0])
    np.testing.assert_allclose(answer.p, [1.0 - at, at], atol=1e-12)
    assert abs(answer.gap) <= 1e-9
    assert answer.dual["y"].shape == (5,)
    with pytest.raises(EmptySet):
        Intersection(KL([0.6, 0.4], 0.1), Polyhedron(D, np.append(c[:3], [-1e-3, c[4]]))).worst_case(
            [0.0, 1.0]
        )
