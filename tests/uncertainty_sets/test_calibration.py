"""Calibration: hand values, coverage by simulation, monotonicity, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tolerances
from uncertainty_sets import KL, Burg, CDNorm, Ellipsoid, UncertaintySet, Wasserstein1
from uncertainty_sets.arrays import Array
from uncertainty_sets.calibration import (
    burg_radius,
    divergence_radius,
    kl_radius,
    l1_radius,
    total_variation_radius,
    wasserstein1_radius,
)
from uncertainty_sets.errors import InvalidParameter

REPETITIONS = 20_000

TRUTHS = {
    "coin": np.array([0.5, 0.5]),
    "skewed": np.array([0.6, 0.2, 0.1, 0.06, 0.04]),
    "with a zero": np.array([0.5, 0.0, 0.3, 0.2]),
    "ends": np.array([0.5, 0.0, 0.0, 0.0, 0.0, 0.5]),
    "uniform 40": np.full(40, 1 / 40),
}
POSITIONS = {
    "coin": np.array([3.0, -1.0]),
    "skewed": np.array([0.0, 10.0, 0.5, 0.7, 1.0]),
    "with a zero": np.array([1.0, 1.0, 2.0, -5.0]),
    "ends": np.array([0.0, 0.1, 0.2, 0.3, 0.4, 7.0]),
    "uniform 40": np.linspace(-1.0, 1.0, 40) ** 3,
}


def draw(truth: Array, samples: int, seed: int) -> Array:
    """Sample frequencies, one row a repetition."""
    return np.random.default_rng(seed).multinomial(samples, truth, size=REPETITIONS) / samples


def l1(p: Array, q: Array) -> Array:
    return np.abs(p - q).sum(axis=1)


def line(p: Array, q: Array, positions: Array | None = None) -> Array:
    """Wasserstein-1 on a line: the area between the distribution functions."""
    positions = np.arange(p.size, dtype=np.float64) if positions is None else positions
    order = np.argsort(positions)
    difference = np.cumsum((p - q)[:, order], axis=1)[:, :-1]
    return np.abs(difference) @ np.diff(positions[order])


def kullback_leibler(p: Array, q: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0) / q), 0.0).sum(axis=1)


def burg(p: Array, q: Array) -> Array:
    ratio = np.divide(q, p, out=np.ones_like(q), where=(q > 0))
    return (q * np.log(ratio)).sum(axis=1)


def modified_chi_squared(p: Array, q: Array) -> Array:
    return ((p - q) ** 2 / q).sum(axis=1)


def chi_squared(p: Array, q: Array) -> Array:
    return ((p - q) ** 2 / p).sum(axis=1)


def hellinger(p: Array, q: Array) -> Array:
    return ((np.sqrt(p) - np.sqrt(q)) ** 2).sum(axis=1)


# Hand values


def test_divergence_by_hand() -> None:
    # two degrees of freedom: the χ² quantile is -2·log(1 - confidence)
    assert kl_radius(50, 3, 0.9) == pytest.approx(math.log(10) / 50, rel=1e-12)
    assert divergence_radius(50, 3, 0.9, curvature=2.0) == pytest.approx(2 * math.log(10) / 50, rel=1e-12)
    # one degree: the square of the two-sided normal quantile
    assert kl_radius(100, 2, 0.95) == pytest.approx(1.959963984540054**2 / 200, rel=1e-12)


def test_l1_by_hand() -> None:
    assert l1_radius(200, 2, 0.9) == pytest.approx(math.sqrt(0.01 * math.log(20)), rel=1e-12)
    assert total_variation_radius(200, 2, 0.9) == 0.5 * l1_radius(200, 2, 0.9)
    assert l1_radius(1000, 3, 0.95) == pytest.approx(math.sqrt(0.002 * math.log(6 / 0.05)), rel=1e-12)


def test_burg_by_hand() -> None:
    # x = 2 and x = 3 in x - 1 - log x = log(1 / (1 - confidence)) / k
    assert burg_radius(50, 2, 1 - 2 / math.e) == pytest.approx(2 / 50, rel=1e-12)
    assert burg_radius(40, 5, 1 - math.exp(-4 * (2 - math.log(3)))) == pytest.approx(4 * 3 / 40, rel=1e-12)


@pytest.mark.parametrize("confidence", [1e-17, 1e-6, 0.5, 0.95, 1 - 1e-16])
@pytest.mark.parametrize("atoms", [2, 30, 10**6])
def test_burg_radius_solves_its_equation(atoms: int, confidence: float) -> None:
    """With s = x - 1 in decimals of 60 digits, where nothing cancels."""
    with localcontext() as context:
        context.prec = 60
        s = Decimal(burg_radius(1, atoms, confidence)) / (atoms - 1) - 1
        wanted = -Decimal(1 - confidence).ln() / (atoms - 1)
        slope = s / (1 + s)
        assert abs(s - (1 + s).ln() - wanted) <= Decimal("1e-15") * (slope * (1 + s) + wanted)


def test_wasserstein1_by_hand() -> None:
    one = math.sqrt(math.log(20) / 1000)
    assert wasserstein1_radius(500, 2, 0.9) == pytest.approx(one, rel=1e-12)
    assert wasserstein1_radius(500, 11, 0.9) == pytest.approx(10 * one, rel=1e-12)
    assert wasserstein1_radius(500, 3, 0.9, positions=[5, -2, 1]) == pytest.approx(7 * one, rel=1e-12)
    assert wasserstein1_radius(500, 3, 0.9, positions=[1, 2, 3]) == wasserstein1_radius(500, 3, 0.9)


# The ends of the range


def test_one_atom_needs_no_radius() -> None:
    assert kl_radius(10, 1, 0.9) == 0.0
    assert divergence_radius(10, 1, 0.9, curvature=3.0) == 0.0
    assert l1_radius(10, 1, 0.9) == 0.0
    assert burg_radius(10, 1, 0.9) == 0.0
    assert wasserstein1_radius(10, 1, 0.9) == 0.0
    assert wasserstein1_radius(10, 1, 0.9, positions=[4.0]) == 0.0


def test_no_radius_exceeds_the_simplex() -> None:
    assert l1_radius(1, 100, 0.99) == 2.0
    assert wasserstein1_radius(1, 100, 0.99) == 99.0
    assert wasserstein1_radius(1, 3, 0.99, positions=[0.0, 0.5, 0.25]) == 0.5


@pytest.mark.parametrize("atoms", [50, 60, 1_000, 1_024, 5_000, 10**6])
def test_many_atoms_do_not_overflow(atoms: int) -> None:
    samples = 10**9
    exact = (atoms * math.log(2) - math.log(0.05)) * 2 / samples  # the -2 in 2^N - 2 is below rounding
    assert l1_radius(samples, atoms, 0.95) == pytest.approx(math.sqrt(exact), rel=1e-12)
    # χ² with many degrees of freedom is near normal: N - 1 ± a few √(2N)
    degrees = 2 * samples * kl_radius(samples, atoms, 0.95)
    assert atoms - 1 < degrees < atoms - 1 + 2.2 * math.sqrt(2 * atoms)


def test_numpy_scalars_are_welcome() -> None:
    assert kl_radius(np.int64(50), np.int32(3), np.float64(0.9)) == kl_radius(50, 3, 0.9)
    assert isinstance(l1_radius(np.int64(50), np.int64(3), np.float64(0.9)), float)


# Coverage: how often the true distribution is inside the set around the frequencies


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("samples", [1, 7, 60, 1_000])
@pytest.mark.parametrize("case", TRUTHS)
def test_finite_sample_radii_cover(case: str, samples: int, confidence: float) -> None:
    truth, positions = TRUTHS[case], POSITIONS[case]
    frequencies = draw(truth, samples, seed=samples)
    least = confidence - tolerances.frequency(confidence, REPETITIONS)
    atoms, rounding = truth.size, 1e-12

    def coverage(distance: Array, radius: float) -> float:
        return float(np.mean(distance <= radius + rounding))

    assert coverage(l1(truth, frequencies), l1_radius(samples, atoms, confidence)) >= least
    assert coverage(burg(truth, frequencies), burg_radius(samples, atoms, confidence)) >= least
    assert coverage(line(truth, frequencies), wasserstein1_radius(samples, atoms, confidence)) >= least
    on_line = wasserstein1_radius(samples, atoms, confidence, positions=positions)
    assert coverage(line(truth, frequencies, positions), on_line) >= least


@pytest.mark.parametrize(
    ("distance", "radius"),
    [
        (l1, 0.6 * l1_radius(1_000, 2, 0.9)),
        (line, 0.6 * wasserstein1_radius(1_000, 2, 0.9)),
        (burg, 0.25 * burg_radius(1_000, 2, 0.9)),
    ],
)
def test_the_coverage_test_can_fail(distance: Callable[[Array, Array], Array], radius: float) -> None:
    """A fair coin is nearly the worst case: a radius smaller by two fifths is found out.

    That of Burg is here 3.6 times the asymptotic one, which is right.
    """
    truth = TRUTHS["coin"]
    distances = distance(truth, draw(truth, 1_000, seed=11))
    assert np.mean(distances <= radius) < 0.9 - tolerances.frequency(0.9, REPETITIONS)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("case", ["coin", "skewed"])
@pytest.mark.parametrize(
    ("divergence", "curvature"),
    [(kullback_leibler, 1.0), (burg, 1.0), (modified_chi_squared, 2.0), (chi_squared, 2.0), (hellinger, 0.5)],
)
def test_divergence_radius_is_near_nominal_for_many_samples(
    divergence: Callable[[Array, Array], Array], curvature: float, case: str, confidence: float
) -> None:
    truth, samples = TRUTHS[case], 100_000
    distances = divergence(truth, draw(truth, samples, seed=5))
    radius = divergence_radius(samples, truth.size, confidence, curvature=curvature)
    margin = tolerances.frequency(confidence, REPETITIONS)
    # a coin shows n + 1 frequencies only: one of them more or less at each end of the ball
    lattice = 2 * math.sqrt(2 / math.pi / samples) if truth.size == 2 else 0.0
    assert abs(np.mean(distances <= radius) - confidence) <= margin + lattice


def test_kl_radius_can_fall_short_for_few_samples() -> None:
    """What the docstring warns of: an atom never drawn leaves the truth outside."""
    truth, samples = TRUTHS["skewed"], 30
    with_kl = kullback_leibler(truth, draw(truth, samples, seed=8)) <= kl_radius(samples, truth.size, 0.95)
    assert np.mean(with_kl) < 0.95 - tolerances.frequency(0.95, REPETITIONS)


@pytest.mark.parametrize("samples", [40, 400])
def test_the_sets_agree_with_the_distances_simulated_here(samples: int) -> None:
    truth, positions, confidence = TRUTHS["skewed"], POSITIONS["skewed"], 0.6
    atoms = truth.size
    frequencies = draw(truth, samples, seed=3)
    frequencies = frequencies[(frequencies > 0).all(axis=1)][:150]
    kl, chi = (
        kl_radius(samples, atoms, confidence),
        divergence_radius(samples, atoms, confidence, curvature=2),
    )
    # a third of the finite-sample radii, so that both answers occur
    around, on_line, on_points = (
        l1_radius(samples, atoms, confidence) / 3,
        wasserstein1_radius(samples, atoms, confidence) / 3,
        wasserstein1_radius(samples, atoms, confidence, positions=positions) / 3,
    )
    cases: list[tuple[Array, float, Callable[[Array], UncertaintySet]]] = [
        (kullback_leibler(truth, frequencies), kl, lambda q: KL(q, kl)),
        (modified_chi_squared(truth, frequencies), chi, lambda q: Ellipsoid(q, q, chi)),
        (burg(truth, frequencies), kl, lambda q: Burg(q, kl)),
        (l1(truth, frequencies), around, lambda q: CDNorm(q, 1.0, around)),
        (line(truth, frequencies), on_line, lambda q: Wasserstein1(q, on_line)),
        (line(truth, frequencies, positions), on_points, lambda q: Wasserstein1(q, on_points, positions)),
    ]
    for distances, radius, make in cases:
        clear = np.abs(distances - radius) > 1e-6 * radius
        inside = distances <= radius
        assert inside[clear].any()
        assert not inside[clear].all()
        for q, expected in zip(frequencies[clear], inside[clear], strict=True):
            assert make(q).contains(truth) == expected


# Monotonicity and inverses

samples_ = st.integers(1, 10**7)
atoms_ = st.integers(1, 3_000)
confidence_ = st.floats(1e-6, 1 - 1e-6)
RADII = [burg_radius, kl_radius, l1_radius, total_variation_radius, wasserstein1_radius]


@pytest.mark.parametrize("radius", RADII)
@given(samples_, samples_, atoms_, confidence_)
def test_more_samples_never_enlarge(
    radius: Callable[[int, int, float], float], few: int, many: int, atoms: int, confidence: float
) -> None:
    few, many = sorted((few, many))
    assert 0.0 <= radius(many, atoms, confidence) <= radius(few, atoms, confidence)


@pytest.mark.parametrize("radius", RADII)
@given(samples_, atoms_, confidence_, confidence_)
def test_more_confidence_never_shrinks(
    radius: Callable[[int, int, float], float], samples: int, atoms: int, low: float, high: float
) -> None:
    low, high = sorted((low, high))
    assert radius(samples, atoms, low) <= radius(samples, atoms, high) * (1 + 1e-12)


@pytest.mark.parametrize("radius", RADII)
@given(samples_, atoms_, confidence_)
def test_one_more_atom_never_shrinks(
    radius: Callable[[int, int, float], float], samples: int, atoms: int, confidence: float
) -> None:
    assert radius(samples, atoms, confidence) <= radius(samples, atoms + 1, confidence) * (1 + 1e-12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), samples_, confidence_, st.floats(1e-3, 1e3))
def test_wasserstein1_scales_with_the_line(
    positions: list[float], samples: int, confidence: float, factor: float
) -> None:
    radius = wasserstein1_radius(samples, len(positions), confidence, positions=positions)
    longer = wasserstein1_radius(
        samples, len(positions), confidence, positions=[factor * x for x in positions]
    )
    assert longer == pytest.approx(factor * radius, rel=1e-9, abs=1e-9 * factor * max(map(abs, positions)))


# Errors


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize(
    ("samples", "atoms", "confidence", "message"),
    [
        (0, 3, 0.9, "samples must be at least 1, got 0"),
        (-4, 3, 0.9, "samples must be at least 1, got -4"),
        (10.5, 3, 0.9, "samples must be a whole number, got 10.5"),
        ("many", 3, 0.9, "samples must be a whole number, got 'many'"),
        (10, 0, 0.9, "atoms must be at least 1, got 0"),
        (10, 2.0, 0.9, "atoms must be a whole number, got 2.0"),
        (10, 3, 0.0, "confidence must lie strictly between 0 and 1"),
        (10, 3, 1.0, "confidence must lie strictly between 0 and 1"),
        (10, 3, 95, "0.95 for 95 %.*got 95"),
        (10, 3, -0.1, "got -0.1"),
        (10, 3, math.nan, "got nan"),
        (10, 3, None, "confidence must be a real number, got None"),
    ],
)
def test_radius_errors(
    radius: Callable[..., float], samples: object, atoms: object, confidence: object, message: str
) -> None:
    with pytest.raises(InvalidParameter, match=message):
        radius(samples, atoms, confidence)


@pytest.mark.parametrize("curvature", [0.0, -1.0, math.nan, math.inf])
def test_curvature_errors(curvature: float) -> None:
    with pytest.raises(InvalidParameter, match=r"curvature .* must be positive and finite"):
        divergence_radius(10, 3, 0.9, curvature=curvature)


def test_curvature_is_a_number() -> None:
    with pytest.raises(InvalidParameter, match="curvature must be a real number, got 'kl'"):
        divergence_radius(10, 3, 0.9, curvature="kl")


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([1.0, 2.0], r"positions must have shape \(3,\), one an atom, got \(2,\)"),
        ([[1.0, 2.0, 3.0]], r"got \(1, 3\)"),
        ([1.0, math.nan, 2.0], "positions must be finite, got nan"),
        ([1.0, math.inf, 2.0], "positions must be finite, got inf"),
        (["left", "middle", "right"], "positions must be a vector of real numbers"),
        ([[1.0], [2.0, 3.0]], "positions must be a vector of real numbers"),
    ],
)
def test_position_errors(positions: object, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        wasserstein1_radius(10, 3, 0.9, positions=positions)


def test_errors_are_value_errors() -> None:
    with pytest.raises(ValueError, match="confidence"):
        kl_radius(10, 3, 2.0)
