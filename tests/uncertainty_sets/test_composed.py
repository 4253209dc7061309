"""Sets made of sets: against the conic program of their constraints, and certificates recomputed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tests import tolerances
from uncertainty_sets import (
    KL,
    Box,
    Burg,
    CDNorm,
    Ellipsoid,
    Intersection,
    Mapped,
    Nested,
    Polyhedron,
    Product,
    Wasserstein1,
)
from uncertainty_sets.errors import BackendUnsuitable, EmptySet, InvalidParameter

Q = np.array([0.1, 0.2, 0.3, 0.4])
F = np.array([1.0, 3.0, -2.0, 0.5])


def kl_bound(f, q, radius, eta):
    return eta * (radius + np.log(q @ np.exp((f - f.max()) / eta))) + f.max()


def clipped(f, q, lower, upper, eta, nu, shape=None):
    """p for multipliers, and its divergence."""
    inside = q > 0
    if shape is None:
        p = np.where(inside, np.clip(q * np.exp((f - nu) / eta), lower, upper), 0.0)
        ratio = np.where(p > 0, p, 1.0) / np.where(inside, q, 1.0)
        return p, (p * np.log(ratio) - p + q).sum()
    p = np.clip(q + shape * (f - nu) / (2 * eta), lower, upper)
    return p, ((p - q) ** 2 / shape).sum()


def same_by_solver(subject, losses, backend="clarabel"):
    answer, other = subject.worst_case(losses), subject.worst_case(losses, backend=backend)
    assert answer.value == pytest.approx(
        other.value, abs=tolerances.value(losses, tolerances.REFERENCE_EXPONENTIAL)
    )
    assert subject.violation(answer.p) <= tolerances.VIOLATION
    return answer


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["kl", "quadratic"])
def test_a_ball_and_a_box(kind, seed):
    rng = np.random.default_rng(seed)
    q, f = rng.dirichlet(np.ones(8)), rng.normal(size=8)
    shape = None if kind == "kl" else rng.uniform(0.1, 1.0, 8)
    radius = float(rng.choice([1e-6, 0.02, 0.2]))
    lower, upper = 0.5 * q, np.minimum(rng.choice([1.2, 2.0, 20.0]) * q, 1.0)
    ball = KL(q, radius) if shape is None else Ellipsoid(q, shape, radius)
    subject = Intersection(Box(lower, upper), ball)
    answer = same_by_solver(subject, f)
    assert answer.backend == "closed-form"
    assert abs(answer.gap) <= tolerances.gap(f)
    eta, nu = answer.dual["eta"], answer.dual["nu"]
    if eta == 0.0:
        bound = nu + np.maximum(lower * (f - nu), upper * (f - nu)).sum()
    else:
        p, divergence = clipped(f, q, lower, upper, eta, nu, shape)
        bound = nu + p @ (f - nu) + eta * (radius - divergence)
    assert bound == pytest.approx(answer.upper_bound, abs=tolerances.CERTIFICATE * np.ptp(f))


def test_an_inactive_box_leaves_the_ball_and_an_inactive_ball_the_box():
    ball, box = KL(Q, 0.1), Box(0.9 * Q, 1.1 * Q)
    wide = Intersection(ball, Box(0 * Q, np.ones(4))).worst_case(F)
    assert wide.value == pytest.approx(ball.worst_case(F).value, abs=1e-12)
    assert wide.dual["eta"] == pytest.approx(ball.worst_case(F).dual["eta"], rel=1e-6)
    tight = Intersection(KL(Q, 5.0), box).worst_case(F)
    assert tight.value == pytest.approx(box.worst_case(F).value, abs=1e-12)
    assert tight.dual["eta"] == 0.0


def test_sets_of_one_point():
    assert Intersection(KL(Q, 0.0), Box(0 * Q, np.ones(4))).worst_case(F).p == pytest.approx(Q, abs=1e-15)
    assert Intersection(KL(Q, 0.1), Box(Q, Q)).worst_case(F).p == pytest.approx(Q, abs=1e-15)


def test_zeros_in_the_centre():
    q = np.array([0.5, 0.0, 0.5, 0.0])
    subject = Intersection(KL(q, 0.05), Box(0 * q, [0.55, 1.0, 1.0, 1.0]))
    answer = same_by_solver(subject, F)
    assert answer.p[[1, 3]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ((KL(Q, 0.01), Box([0.7, 0, 0, 0], np.ones(4))), r"divergence of 1\.\d+, and the radius is 0\.01"),
        ((Ellipsoid(Q, 1.0, 0.01), Box([0.7, 0, 0, 0], np.ones(4))), "nearest to the centre"),
        ((KL([0.5, 0.5, 0, 0], 1.0), Box([0, 0, 0.1, 0], np.ones(4))), "no mass where the centre is 0"),
        ((KL([0.5, 0.5, 0, 0], 1.0), Box(0 * Q, np.full(4, 0.4))), "at least 1, got 0.8"),
        ((Box(0 * Q, np.full(4, 0.4)), Box([0.5, 0, 0, 0], np.ones(4))), "lower bound of 0.5 at entry 0"),
        ((KL(Q, 0.01), Polyhedron([[-1.0, 0, 0, 0]], [-0.7])), "linear rows has a divergence of at least"),
    ],
)
def test_empty_intersections(members, match):
    with pytest.raises(EmptySet, match=match):
        Intersection(*members)


@pytest.mark.parametrize("seed", range(8))
def test_kl_and_linear_rows(seed):
    rng = np.random.default_rng(seed)
    q, f, D = rng.dirichlet(np.ones(10)), rng.normal(size=10), rng.normal(size=(3, 10))
    c = D @ (0.7 * q + 0.3 * rng.dirichlet(np.ones(10)))
    if seed % 2:
        D, c = np.vstack([D, -D[:1]]), np.append(c, -c[0])
    subject = Intersection(KL(q, 0.2), Polyhedron(D, c))
    answer = same_by_solver(subject, f)
    assert answer.backend == "closed-form"
    eta, y = answer.dual["eta"], answer.dual["y"]
    assert (y >= 0).all()
    bound = kl_bound(f - D.T @ y, q, 0.2, eta) + c @ y
    assert bound == pytest.approx(answer.upper_bound, abs=tolerances.CERTIFICATE * np.ptp(f))
    assert abs(answer.gap) <= tolerances.gap(f)


def test_linear_rows_that_alone_decide():
    subject = Intersection(KL(np.full(4, 0.25), 3.0), Polyhedron(np.eye(4), np.full(4, 0.5)))
    answer = subject.worst_case(F)
    assert answer.value == pytest.approx(0.5 * (3.0 + 1.0), abs=1e-9)


@pytest.mark.parametrize(
    "members", [(KL(Q, 0.1), CDNorm(Q, 0.2, 1.0)), (Wasserstein1(Q, 0.3), CDNorm(Q, 0.2, 1.0)), (KL(Q, 0.1),)]
)
def test_other_members_go_to_a_solver(members):
    subject = Intersection(*members)
    answer = subject.worst_case(F)
    assert answer.value <= min(each.worst_case(F).upper_bound for each in members) + 1e-7
    assert subject.violation(answer.p) <= tolerances.CONIC_VIOLATION
    with pytest.raises(BackendUnsuitable, match="Intersection has no closed form"):
        subject.worst_case(F, backend="closed-form")


def test_rows_with_their_own_parameters():
    rng = np.random.default_rng(0)
    q, losses = rng.dirichlet(np.ones(5), size=3), rng.normal(size=(3, 5))
    for subject in (
        Intersection(KL(q, [0.01, 0.1, 1.0]), Box(0.5 * q, 1.5 * q)),
        Intersection(KL(q, 0.1), Polyhedron(np.eye(5)[:1], [0.9])),
        Nested(
            KL([0.5, 0.5], [0.0, 0.1, 1.0]),
            [KL(q[:, :2] / q[:, :2].sum(1, keepdims=True), 0.1), Box(np.zeros(3), np.ones(3))],
        ),
        Mapped(KL([0.5, 0.5], [0.01, 0.1, 1.0]), rng.dirichlet(np.ones(5), size=2)),
        Product([KL([0.5, 0.5], [0.01, 0.1, 1.0]), Box(np.zeros(3), np.ones(3))], [0.3, 0.7]),
    ):
        batch = subject.worst_case(losses)
        single = [subject._row(b).worst_case(losses[b]) for b in range(3)]
        assert batch.value == pytest.approx([each.value for each in single], abs=1e-12)
        again = subject.worst_case(losses, warm_start=batch, out=np.empty((3, 5)))
        assert again.value == pytest.approx(batch.value, abs=1e-9)


def test_nested_is_the_worst_mix_of_worst_mixes():
    rng = np.random.default_rng(3)
    inners = [
        KL(rng.dirichlet(np.ones(3)), 0.1),
        Box(np.zeros(2), np.full(2, 0.7)),
        Wasserstein1([0.5, 0.5], 0.2),
    ]
    outer, f = CDNorm([0.3, 0.3, 0.4], 0.2, 1.0), rng.normal(size=7)
    answer = same_by_solver(Nested(outer, inners), f)
    values = [inners[0].worst_case(f[:3]), inners[1].worst_case(f[3:5]), inners[2].worst_case(f[5:])]
    expected = outer.worst_case([each.value for each in values])
    assert answer.value == pytest.approx(expected.value, abs=1e-12)
    assert answer.dual["inners[1].nu"] == values[1].dual["nu"]
    assert answer.dual["outer.nu"] == pytest.approx(expected.dual["nu"])


def test_a_product_is_the_weighted_sum():
    inners = [KL([0.5, 0.5], 0.1), CDNorm([0.5, 0.5], 0.2, 1.0)]
    answer = same_by_solver(Product(inners, [0.25, 0.75]), F)
    parts = inners[0].worst_case(F[:2]).value, inners[1].worst_case(F[2:]).value
    assert answer.value == pytest.approx(0.25 * parts[0] + 0.75 * parts[1], abs=1e-12)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.csc_matrix])
def test_mapped_groups_that_overlap(make):
    M = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.5, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]])
    groups = KL([0.3, 0.3, 0.4], 0.2)
    answer = same_by_solver(Mapped(groups, make(M)), F)
    direct = groups.worst_case(M @ F)
    assert answer.value == pytest.approx(direct.value, abs=1e-12)
    assert answer.p == pytest.approx(direct.p @ M, abs=1e-14)
    assert answer.upper_bound == pytest.approx(
        kl_bound(M @ F, groups.center, 0.2, answer.dual["eta"]), abs=1e-9
    )


def test_mapped_rows_that_depend_on_each_other():
    M = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    subject = Mapped(Box(np.zeros(3), [0.2, 1.0, 1.0]), M)
    assert subject.contains([0.6, 0.4, 0.0], tol=1e-8)  # π = (0.2, 0, 0.8)
    assert not subject.contains([0.7, 0.3, 0.0], tol=1e-3)


def test_a_part_without_a_closed_form():
    subject = Product([KL([0.5, 0.5], 0.1), Polyhedron(np.eye(2), [0.8, 0.8])], [0.5, 0.5])
    assert subject.worst_case(F).backend == "closed-form and highs"
    with pytest.raises(BackendUnsuitable, match=r"sets\[1\] of Product is a Polyhedron"):
        subject.worst_case(F, backend="closed-form")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (Intersection, "members must hold at least one set"),
        (lambda: Intersection(KL(Q, 0.1), 3), r"members\[1\] must be an uncertainty set, got int"),
        (lambda: Intersection(KL(Q, 0.1), KL([0.5, 0.5], 0.1)), r"same number of entries, got \[4, 2\]"),
        (lambda: Nested(KL(Q, 0.1), [KL(Q, 0.1)]), "a set for each of the 4 entries of outer, got 1"),
        (lambda: Nested(KL(Q, 0.1), KL(Q, 0.1)), "inners must be a list of sets, got KL"),
        (lambda: Product([KL(Q, 0.1)], [0.5]), "weights must sum to 1, got 0.5"),
        (lambda: Product([KL(Q, 0.1)], [0.5, 0.5]), "an entry for each of the 1 sets"),
        (lambda: Mapped(KL(Q, 0.1), np.eye(3)), "a row for each of the 4 entries of groups, got 3"),
        (lambda: Mapped(KL(Q, 0.1), 2.0 * np.eye(4)), "every row of M must sum to 1, got 2 in row 0"),
        (lambda: Mapped(KL(Q, 0.1), -np.eye(4)), "M must not be negative"),
    ],
)
def test_what_is_refused(make, match):
    with pytest.raises(InvalidParameter, match=match):
        make()


@pytest.mark.parametrize("weight", [1e-17, 1e-200, 5e-324])
def test_the_shares_of_a_block_with_hardly_any_mass_are_rounding(weight):
    """Burg's divergence is ∞ at a share of 0, as the last digits of such a block may give it."""
    even = np.array([0.5, 0.5])
    p = np.array([weight, 0.0, 0.5, 0.5])
    blocks = [Burg(even, 0.1), KL(even, 0.1)]
    assert Product(blocks, [weight, 1.0]).violation(p) <= 1e-15
    assert Nested(Box(np.zeros(2), np.ones(2)), blocks).violation(p) <= 1e-15
    assert Product(blocks, [0.5, 0.5]).violation(0.5 * p / p.sum()) > 0.1
