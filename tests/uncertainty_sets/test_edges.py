"""Inputs at the edge: extreme scales, ties, degenerate parameters, and those that once went wrong."""

from __future__ import annotations

import numpy as np
import pytest

from tests import tolerances
from tests.uncertainty_sets import reference
from tests.uncertainty_sets.cases import CLOSED, PARAMETERS, Case
from tests.uncertainty_sets.test_properties import check_answer
from uncertainty_sets import KL, Box, CDNorm, Ellipsoid, Wasserstein1, get_set

Q3 = np.array([0.2, 0.3, 0.5])
DRAWN = [name for name in CLOSED if name in PARAMETERS]


def certified(name, losses, **given):
    case = Case(name, get_set(name)(**given), np.asarray(losses, dtype=float), given)
    answer = case.set.worst_case(case.losses)
    check_answer(case, answer)
    return answer


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("size", [1, 2, 3, 10, 1_000, 100_000, 1_000_000])
def test_promise_at_every_size(name, size):
    rng = np.random.default_rng(size)
    subject = get_set(name).example(size, rng)
    f = rng.normal(size=size)
    answer = subject.worst_case(f)
    assert abs(answer.gap) <= tolerances.gap(f)
    assert subject.violation(answer.p) <= tolerances.VIOLATION


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("kind", ["two values", "integers", "periodic", "sorted", "one large", "geometric"])
@pytest.mark.parametrize("size", [97, 400, 20_011])
def test_ties_and_structure_where_selection_samples(name, kind, size):
    """The bound is checked outside the code; with it and a feasible p the answer is proved right."""
    rng = np.random.default_rng(size)
    f = {
        "two values": lambda: (np.arange(size) % 2).astype(float),
        "integers": lambda: rng.integers(0, 5, size).astype(float),
        "periodic": lambda: np.tile(rng.normal(size=16), size // 16 + 1)[:size],
        "sorted": lambda: np.linspace(-1.0, 1.0, size),
        "one large": lambda: np.eye(1, size, size // 3)[0],
        "geometric": lambda: 0.9 ** np.arange(size),
    }[kind]()
    for seed in range(3):
        given = PARAMETERS[name](size, np.random.default_rng(seed))
        if size > 1000 and name == "wasserstein-1":
            given["cost"] = None
        if size > 1000 and name == "ellipsoid":
            given["shape"] = 0.5
        subject = get_set(name)(**given)
        answer = subject.worst_case(f)
        assert abs(answer.gap) <= tolerances.gap(f)
        assert subject.violation(answer.p) <= tolerances.VIOLATION
        if size <= 1000:
            again = reference.bound(name, f, given, answer.dual)
            assert abs(again - answer.upper_bound) <= tolerances.value(f, tolerances.CERTIFICATE)


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize(
    "losses",
    [
        [1e-200, 0.0, 3e-201],
        [1e200, 0.0, 3e199],
        [5e-324, 0.0, 0.0],
        [1e300, -1e300, 0.0],
        [1e15, 1e15 + 1, 1e15 + 3],
        [-1e6 - 1, -1e6, -1e6 - 2],
        [0.0, 0.0, 0.0],
        [7.0, 7.0, 7.0],
        [1.0, 0.0, 1e-310],
    ],
)
def test_extreme_losses(name, losses):
    for seed in range(4):
        certified(name, losses, **PARAMETERS[name](3, np.random.default_rng(seed)))


def test_kl_ignores_losses_off_its_support():
    for off in (1e308, -1e20, 1.0, -7e23):
        answer = certified("kl", [off, 0.0, 1e-10], center=np.array([0.0, 0.5, 0.5]), radius=0.1)
        assert answer.value == pytest.approx(reference.kl(np.array([0.0, 1e-10]), np.full(2, 0.5), 0.1))


def test_warm_start_from_another_scale_is_not_trusted():
    f = np.array([0.0, -3.8, -1.2, -67.0])
    for subject in (
        KL(np.full(4, 0.25), 0.9),
        Ellipsoid([0.2, 0.24, 0.29, 0.27], [0.1, 0.1, 0.2, 0.1], 1e-3),
        Wasserstein1(np.full(4, 0.25), 0.3),
        CDNorm(np.full(4, 0.25), [0.1, 0.2, 0.05, 0.1], 1.0),
        Box(np.full(4, 0.1), np.full(4, 0.6)),
    ):
        cold = subject.worst_case(f)
        for scale in (1e-60, 1e-8, 1e8, 1e60):
            for shift in (0.0, 1e7):
                warm = subject.worst_case(f, warm_start=subject.worst_case(f * scale + shift))
                assert warm.value == pytest.approx(cold.value, rel=1e-12)
                assert abs(warm.gap) <= tolerances.gap(f)


@pytest.mark.parametrize(
    ("center", "shape", "radius"),
    [
        ([1 - 1e-12, 1e-12], [1.0, 1e-9], 1e6),
        ([0.999, 0.001], [1.0, 1e-12], 1.0),
        ([1.0, 0.0], [1.0, 1e-12], 1.0),
        ([0.999, 0.001], [1.0, 1e-9], 100.0),
        ([0.77, 0.23], [8e5, 7e5], 2e-303),
        ([0.5, 0.5], 1.0, 5e-324),
    ],
)
def test_ellipsoids_of_extreme_shape(center, shape, radius):
    certified("ellipsoid", [0.07, 0.67], center=np.array(center), shape=shape, radius=radius)


def test_dense_ellipsoids_of_any_condition():
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(30, 30)))
    for digits in (2, 6, 9, 12):
        Q = (basis * 10.0 ** np.linspace(-digits, 0, 30)) @ basis.T
        subject = Ellipsoid(np.full(30, 1 / 30), 0.5 * (Q + Q.T), 0.1)
        F = rng.normal(size=(10, 30))
        batch = subject.worst_case(F)
        assert batch.gap.max() <= tolerances.CONIC_GAP
        for row, nu, mu, bound in zip(F, batch.dual["nu"], batch.dual["mu"], batch.upper_bound, strict=True):
            given = {"center": subject.center, "shape": subject.shape, "radius": 0.1}
            assert reference.bound("ellipsoid", row, given, {"nu": nu, "mu": mu}) == pytest.approx(bound)


@pytest.mark.parametrize(
    ("center", "spread", "budget", "losses"),
    [
        ([0.5, 0.0, 0.5], [6.1e8, 4.9e7, 9.3e8], 8.3e-10, [0, 1, 2]),
        (
            [0, 0.4, 0.2, 0.2, 0.2],
            [0.0387, 10559.6, 7.567e7, 7.5e-9, 57104.8],
            1.0,
            [1.01, -0.005, 0.37, 0.28, -0.01],
        ),
    ],
)
def test_cd_norm_with_spreads_above_one(center, spread, budget, losses):
    certified("cd-norm", losses, center=np.array(center), spread=np.array(spread), budget=budget)


def test_cd_norm_budget_at_equal_spreads_is_not_wasted_on_ties():
    """Entries tied at the threshold move one way only; both ways would overspend the budget."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        size = int(rng.integers(2, 12))
        f = rng.integers(-2, 3, size)
        budget = float(rng.choice([0.5, 1.0, 2.5, 4.0]))
        certified("cd-norm", f, center=rng.dirichlet(np.ones(size)), spread=rng.random(), budget=budget)


def test_wasserstein_over_vanishing_distances():
    assert Wasserstein1(Q3, 0.0, [0.0, 1e-310, 1.0]).worst_case([1.0, 2.0, 0.0]).value == pytest.approx(1.0)
    tiny = np.array([[0, 1e-310, 1], [1, 0, 1], [1, 2, 0.0]])
    assert Wasserstein1(Q3, 0.0, tiny).worst_case([1.0, 2.0, 0.0]).gap == pytest.approx(0.0, abs=1e-15)


def test_wasserstein_keeps_its_digits_over_a_long_line():
    size = 1_000_000
    subject = Wasserstein1(np.full(size, 1 / size), 1.0)
    f = np.eye(1, size, size // 2)[0]
    assert subject.violation(subject.worst_case(f).p) <= tolerances.VIOLATION


def test_box_whose_bounds_sum_to_one_by_rounding():
    upper = np.full(10, 0.1)
    answer = Box(np.zeros(10), upper).worst_case(np.arange(10.0))
    np.testing.assert_allclose(answer.p, upper)
    answer = Box(np.array([0.1, 0.2, 0.7]), np.array([0.1, 0.2, 0.7])).worst_case([1, 2, 3])
    assert answer.gap == pytest.approx(0.0, abs=1e-15)


def test_answers_print_themselves():
    answer = KL(Q3, 0.1).worst_case([1.0, 2.0, 3.0])
    assert repr(answer).startswith("WorstCase(value=")
    assert "closed-form" in repr(KL(Q3, 0.1).worst_case(np.ones((2, 3))))
    assert repr(KL(Q3, 0.1)) == "KL(center=[0.2, 0.3, 0.5], radius=0.1)"
    assert repr(CDNorm(np.full(10, 0.1), 0.1, 2)) == "CDNorm(center=<10 array>, spread=<10 array>, budget=2)"
    assert "cost=[1, 2, 4]" in repr(Wasserstein1(Q3, 0.1, [1, 2, 4]))


def test_parameters_cannot_be_written_through():
    subject = KL(Q3, 0.1)
    with pytest.raises(ValueError, match="read-only"):
        subject.center[0] = 1.0
    with pytest.raises(AttributeError):
        subject.radius = 2.0
