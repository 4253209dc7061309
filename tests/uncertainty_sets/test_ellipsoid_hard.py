"""Ellipsoids whose numbers span many orders of magnitude: the closed form settles them or says so.

Every certificate is recomputed here, from the formulas of the docstring, in extended precision (diagonal) or
with residuals in exact rational arithmetic (dense).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests import tolerances
from uncertainty_sets import Ellipsoid
from uncertainty_sets.errors import SolverFailed

Long = np.longdouble


def certificate(subject, f, answer):
    """Gap and violation of one answer of a diagonal ellipsoid. Σp = 1 is the violation's business alone."""
    q, Q, radius = subject.center.astype(Long), subject.shape.astype(Long), Long(subject.radius)
    nu, tau, p, f = Long(answer.dual["nu"]), Long(answer.dual["tau"]), answer.p.astype(Long), f.astype(Long)
    y = np.maximum(f - nu, -tau * q / Q) if np.isfinite(tau) else f - nu
    bound = nu + (q * y).sum() + np.sqrt(radius * (Q * y * y).sum())
    value = f.max() + (p * (f - f.max())).sum()
    size = ((p - q) ** 2 / Q).sum()
    violation = max(abs(p.sum() - 1), -p.min(), (size - radius) / max(Long(1), radius))
    return float(bound - value), float(violation)


def check(center, shape, radius, f, **options):
    """Solve by the closed form alone and recheck what it says."""
    f = np.asarray(f, dtype=float)
    subject = Ellipsoid(center, shape, radius)
    answer = subject.worst_case(f, backend="closed-form", **options)
    gap, violation = certificate(subject, f, answer)
    assert abs(gap) <= tolerances.gap(f), (gap, answer)
    assert violation <= tolerances.VIOLATION, (violation, answer)
    assert abs(answer.gap - gap) <= tolerances.gap(f)
    assert answer.backend == "closed-form"
    return answer


LOSSES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "halves": lambda rng, n: 2.0 ** -np.minimum(np.arange(n), 1070.0),
    "tenths": lambda rng, n: 10.0 ** -np.minimum(np.arange(n), 300.0),
    "tenths, negative": lambda rng, n: -(10.0 ** -np.minimum(np.arange(n), 300.0)),
    "any exponent": lambda rng, n: rng.choice([-1, 1]) * 10.0 ** (-300.0 * rng.random(n)),
    "within rounding of the top": lambda rng, n: 1.0 - rng.integers(0, 8, n) * 2.0**-53,
    "cluster and others": lambda rng, n: np.where(
        rng.random(n) < 0.5, 1 - 1e-13 * rng.random(n), rng.random(n)
    ),
    "power tail": lambda rng, n: rng.random(n) ** -rng.choice([1.0, 5.0]),
    "power tail, negative": lambda rng, n: -(rng.random(n) ** -rng.choice([1.0, 5.0])),
    "ties": lambda rng, n: rng.integers(-2, 3, n).astype(float),
    "shifted": lambda rng, n: 1e6 + rng.normal(size=n),
    "tiny": lambda rng, n: 1e-149 * rng.normal(size=n),
    "huge": lambda rng, n: 1e149 * rng.normal(size=n),
}
CENTERS = {
    "flat": lambda rng, n: np.ones(n),
    "concentrated": lambda rng, n: rng.gamma(0.05, size=n) + 1e-300,
    "many decades": lambda rng, n: 10.0 ** (-rng.choice([17, 30, 90]) * rng.random(n)),
    "ladder": lambda rng, n: 10.0 ** -np.minimum(np.arange(n), 90.0),
    "zeros": lambda rng, n: np.r_[0.1, rng.random(n - 1) * (rng.random(n - 1) < 0.4)],
    "corner": lambda rng, n: np.r_[np.full(n - 1, 1e-17), 1.0],
    "one entry": lambda rng, n: np.eye(n)[rng.integers(n)],
}
SHAPES = {
    "one": lambda rng, n, q: np.ones(n),
    "chi-square": lambda rng, n, q: np.maximum(q, 1e-100),
    "sixteen decades": lambda rng, n, q: 10.0 ** (-16.0 * rng.random(n)),
    "two hundred decades": lambda rng, n, q: 10.0 ** rng.uniform(-100, 100, n),
    "ladder": lambda rng, n, q: 4.0 ** np.clip(np.arange(n) - n // 2, -166.0, 166.0),
    "ladder down": lambda rng, n, q: 4.0 ** np.clip(n // 2 - np.arange(n), -166.0, 166.0),
    "one heavy": lambda rng, n, q: np.where(np.arange(n) == rng.integers(n), rng.choice([1e16, 1e100]), 1.0),
    "many light": lambda rng, n, q: np.where(rng.random(n) < 0.5, 1.0, rng.choice([1e-16, 1e-30, 1e-100])),
}


def radii(rng, f, q, Q):
    """Fixed ones, and some that just reach, or just miss, the largest losses alone."""
    top = f == f.max()
    reach = max(0.0, 1.0 - q[top].sum()) ** 2 / Q[top].sum() + (q[~top] ** 2 / Q[~top]).sum()
    some, part = 10.0 ** rng.uniform(-6, 3), 10.0 ** -rng.uniform(0, 20)
    return [1e-20, some, 1e13, reach, reach * (1 - 1e-12), reach * part]


@pytest.mark.parametrize("size", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("losses", LOSSES)
def test_any_range_of_losses_centres_and_shapes(losses, size):
    rng = np.random.default_rng([size, len(losses)])
    for center in CENTERS.values():
        for shape in SHAPES.values():
            f, q = LOSSES[losses](rng, size), center(rng, size)
            q = q / q.sum()
            Q = shape(rng, size, q)
            for radius in radii(rng, f, q, Q):
                check(q, Q, radius, f)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("losses", LOSSES)
def test_many_entries_take_a_bounded_number_of_passes(losses, shape):
    rng = np.random.default_rng(len(losses) + len(shape))
    size = 20_000
    f, q = LOSSES[losses](rng, size), rng.dirichlet(np.ones(size))
    Q = SHAPES[shape](rng, size, q)
    for radius in radii(rng, f, q, Q):
        assert check(q, Q, radius, f).iterations <= 100


def test_shapes_that_fall_like_powers_take_a_bounded_number_of_passes():
    """A shape that grows where the loss falls: without bisection entries would leave one a round."""
    size = 300
    for ratio in (2.0, 4.0, 10.0):
        for f in (np.linspace(1, 0, size), 10.0 ** -np.arange(size), 2.0 ** -np.arange(size)):
            Q = np.clip(ratio ** (np.arange(size) - 150.0), 1e-100, 1e100)
            for q in (np.full(size, 1 / size), np.eye(size)[24], np.eye(size)[200]):
                for radius in (1e-9, 0.1, 1e9):
                    assert check(q, Q, radius, f).iterations <= 130


@pytest.mark.parametrize("least", [1e-17, 1e-30])
def test_chi_square_ball_with_a_tiny_centre_moves(least):
    """Sums about a point far from the mean lose the variance; it then looked as if nothing could move."""
    q = np.array([1.0 - least, least])
    radius = 0.25 / least  # p = (1/2, 1/2) is at 1/4 / least, up to the first entry's share
    answer = check(q, q, radius, [0.0, 1.0])
    assert answer.value == pytest.approx(0.5, rel=1e-12)


def test_an_extreme_radius_reaches_the_largest_loss_alone():
    q = np.array([0.5, 0.5, 0.0])
    assert check(q, [1.0, 1.0, 1e-13], 1e14, [0.0, 0.5, 1.0]).p.tolist() == [0, 0, 1]


def test_warm_starts_from_another_range():
    rng = np.random.default_rng(1)
    q = rng.dirichlet(np.full(30, 0.05)) + 1e-30
    q /= q.sum()
    for _ in range(50):
        f, other = rng.normal(size=30), rng.normal(size=30) * 10.0 ** rng.uniform(-5, 5)
        Q = 10.0 ** rng.uniform(-20, 0, 30)
        before = Ellipsoid(q, Q, 10.0 ** rng.uniform(-5, 5)).worst_case(other)
        check(q, Q, 0.1, f, warm_start=before)


def distance(Q, d):
    """dᵀQ⁻¹d: the residual in rationals, the correction by any inverse, until nothing is left."""
    exact = [[Fraction(x) for x in row] for row in Q.tolist()]
    target = [Fraction(x) for x in d.tolist()]
    z, rest, inverse = [Fraction(0)] * len(d), target, np.linalg.inv(Q)
    for _ in range(60):
        step = inverse @ np.array(rest, dtype=float)
        z = [a + Fraction(b) for a, b in zip(z, step.tolist(), strict=True)]
        image = (sum(a * b for a, b in zip(row, z, strict=True)) for row in exact)
        rest = [a - b for a, b in zip(target, image, strict=True)]
        if max(map(abs, rest)) < Fraction(1, 10**40):
            break
    return float(sum(a * b for a, b in zip(target, z, strict=True)))


def dense_shape(rng, kind, size, digits):
    """A matrix of condition 10^digits."""
    if kind == "turned":
        basis, _ = np.linalg.qr(rng.normal(size=(size, size)))
        Q = (basis * 10.0 ** np.linspace(-digits, 0, size)) @ basis.T
    elif kind == "hilbert":
        Q = 1 / (np.arange(size)[:, None] + np.arange(size) + 1.0) + 10.0**-digits * np.eye(size)
    else:
        scale, factor = 10.0 ** (-0.5 * digits * rng.random(size)), rng.normal(size=(size, size))
        Q = scale[:, None] * (factor @ factor.T / size + 0.1 * np.eye(size)) * scale
    return 0.5 * (Q + Q.T)


def dense_truth(subject, f, answer):
    """Gap and violation in rationals: at a condition of 1e14, long double leaves the bound four digits."""

    def exact(numbers):
        return [Fraction(float(x)) for x in numbers]

    q, Q, radius = subject.center, subject.shape, subject.radius
    nu, losses = Fraction(float(answer.dual["nu"])), exact(f)
    y = [loss - nu + mu for loss, mu in zip(losses, exact(answer.dual["mu"]), strict=True)]
    image = (sum(a * b for a, b in zip(exact(row), y, strict=True)) for row in Q)
    square = Fraction(radius) * sum(a * b for a, b in zip(image, y, strict=True))
    rest = nu + sum((a * b for a, b in zip(exact(q), y, strict=True)), Fraction(0))
    rest -= sum((a * b for a, b in zip(exact(answer.p), losses, strict=True)), Fraction(0))
    excess = (distance(Q, answer.p - q) - radius) / max(1.0, radius)
    assert min(answer.dual["mu"]) >= 0.0
    return float(rest) + float(square) ** 0.5, max(abs(answer.p.sum() - 1.0), -answer.p.min(), excess)


@pytest.mark.parametrize("kind", ["turned", "hilbert", "graded"])
def test_dense_closed_forms_hold_up_to_a_condition_of_1e12(kind):
    """p sums to 1 to rounding, so that value is pᵀf where losses are far from 0; a solver is hardly asked."""
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(40):
        size, digits = int(rng.choice([3, 6, 12, 25])), rng.uniform(6, 12)
        f = rng.normal(size=size) + rng.choice([0.0, 1e6, -1e9])
        radius, alpha = 10.0 ** rng.uniform(-6, 2), rng.choice([0.1, 1.0, 10.0])
        center = rng.dirichlet(np.full(size, alpha))
        subject = Ellipsoid(center, dense_shape(rng, kind, size, digits), radius)
        try:
            answer = subject.worst_case(f, backend="closed-form")
        except SolverFailed:
            refused += 1
            continue
        assert abs(answer.p.sum() - 1.0) <= 1e-15
        assert answer.p.min() >= 0.0
        assert abs(answer.value - answer.p @ f) <= 4 * np.spacing(np.abs(f).max())
        if size <= 6:
            gap, violation = dense_truth(subject, f, answer)
            assert abs(gap) <= tolerances.gap(f)
            assert violation <= tolerances.VIOLATION
    assert refused <= 2


@pytest.mark.parametrize("kind", ["turned", "hilbert", "graded"])
@pytest.mark.parametrize("digits", [4, 8, 12, 14, 15])
def test_dense_certificates_are_true_at_any_condition(kind, digits):
    """What is reported is so, within the promise or not; the closed form gives out nothing else."""
    rng = np.random.default_rng(digits)
    proved = 0
    for _ in range(12):
        size = int(rng.choice([3, 6, 12]))
        f, radius = rng.normal(size=size), 10.0 ** rng.uniform(-3, digits)
        subject = Ellipsoid(rng.dirichlet(np.ones(size)), dense_shape(rng, kind, size, digits), radius)
        try:
            answer = subject.worst_case(f)
        except SolverFailed as error:
            answer = error.answer
        gap, violation = dense_truth(subject, f, answer)
        assert answer.violation == pytest.approx(violation, rel=1e-3, abs=tolerances.VIOLATION)
        assert subject.violation(answer.p) == pytest.approx(max(0.0, violation), rel=1e-3, abs=1e-12)
        assert answer.gap == pytest.approx(gap, rel=1e-3, abs=tolerances.gap(f))
        try:
            own = subject.worst_case(f, backend="closed-form")
        except SolverFailed:
            continue
        gap, violation = dense_truth(subject, f, own)
        assert own.backend == "closed-form"
        assert abs(gap) <= tolerances.gap(f)
        assert violation <= tolerances.VIOLATION
        proved += 1
    assert proved > 0


def test_only_the_rows_that_fail_go_to_the_solver():
    rng = np.random.default_rng(0)
    size = 12
    subject = Ellipsoid(np.full(size, 1 / size), dense_shape(rng, "hilbert", size, 14), 1e6)
    F = rng.normal(size=(40, size))
    alone = []
    for f in F:
        try:
            alone.append(subject.worst_case(f, backend="closed-form").value)
        except SolverFailed:
            alone.append(None)
    failing = [row for row, value in enumerate(alone) if value is None]
    assert 0 < len(failing) < len(F)  # the case is one where some rows fail
    with pytest.raises(SolverFailed, match="certificate") as error:
        subject.worst_case(F, backend="closed-form")
    assert list(error.value.rows) == failing
    batch = subject.worst_case(F)
    assert batch.backend == "closed-form and clarabel"
    assert set(batch.dual) == {"nu", "mu"}
    for row, value in enumerate(alone):
        assert value is None or batch.value[row] == value


def test_an_ulp_of_p_may_be_worth_more_than_the_excess_that_is_allowed():
    """At a condition of 1e15 a p on the boundary has no doubles; one within has."""
    rng, by_solver = np.random.default_rng(1), 0
    for _ in range(60):
        n = int(rng.choice([3, 5, 10, 20]))
        root, _ = np.linalg.qr(rng.normal(size=(n, n)))
        values = 10.0 ** np.linspace(0.0, -15.0, n)
        shape = (root * values) @ root.T
        shape = 0.5 * (shape + shape.T)
        if np.linalg.eigvalsh(shape)[0] < 1e-16:
            continue
        subject = Ellipsoid(rng.dirichlet(np.ones(n)), shape, 10.0 ** rng.uniform(-3.0, 1.0))
        f = rng.normal(size=n)
        answer = subject.worst_case(f)
        by_solver += answer.backend != "closed-form"
        far = [
            Fraction(a) - Fraction(b) for a, b in zip(answer.p.tolist(), subject.center.tolist(), strict=True)
        ]
        excess = distance(shape, np.array(far, dtype=object)) - float(subject.radius)
        assert excess <= 1e-9 * max(1.0, float(subject.radius))
        assert abs(answer.gap) <= 1e-6 * np.ptp(f)
    assert by_solver <= 1
