"""What `radius_for` promises for every set with a radius or budget, found by the registry."""

from __future__ import annotations

import numpy as np
import pytest

from tests import tolerances
from uncertainty_sets import (
    KL,
    Box,
    ChiSquare,
    TotalVariation,
    Wasserstein,
    available_sets,
    calibration,
    get_set,
)
from uncertainty_sets.errors import BackendUnsuitable, InvalidInput, InvalidLosses, InvalidParameter
from uncertainty_sets.inverse import resized

SIZED = [name for name in available_sets() if get_set(name).sized_by]
SHARES = (0.02, 0.5, 0.97)  # of the way from the mean to the largest loss


def example(name, size, rng):
    return get_set(name).example(size, rng)


def targets_of(subject, f):
    """Targets that some radius reaches: the set with an enormous one tells how far that is."""
    mean, most = float(subject.reference() @ f), float(resized(subject, 1e3 * f.size).worst_case(f).value)
    return [mean + share * (most - mean) for share in SHARES]


@pytest.mark.parametrize("size", [2, 5, 30])
@pytest.mark.parametrize("name", SIZED)
def test_the_worst_case_at_that_radius_is_the_target(name, size):
    rng = np.random.default_rng(size)
    for f in (rng.normal(size=size), np.round(rng.normal(size=size)) + 3.0, rng.exponential(size=size) ** 3):
        subject = example(name, size, rng)
        for target in targets_of(subject, f):
            found = subject.radius_for(f, target)
            # 1. p is within the radius and reaches the target, and so does the oracle.
            again = resized(subject, found.radius)
            assert again.violation(found.p) <= 1e-9
            assert found.p @ f >= target - 1e-9 * max(1.0, np.ptp(f))
            assert found.value == pytest.approx(found.p @ f, abs=1e-12 * max(1.0, np.abs(f).max()))
            assert again.worst_case(f).value == pytest.approx(target, abs=1e-9 * max(1.0, np.ptp(f)))
            # 2. No smaller radius does.
            assert abs(found.gap) <= 1e-9 * max(found.radius, 1e-3)
            if np.ptp(f) > 0.0 and found.lower_bound > 0.0:
                assert resized(subject, (1.0 - 1e-6) * found.lower_bound).worst_case(f).value < target


@pytest.mark.parametrize("name", SIZED)
def test_the_radius_of_the_set_itself_does_not_matter(name):
    rng = np.random.default_rng(4)
    subject, f = example(name, 6, rng), rng.normal(size=6)
    target = targets_of(subject, f)[1]
    once = subject.radius_for(f, target)
    for factor in (0.0, 1e-3, 30.0):
        assert subject.scaled(factor).radius_for(f, target).radius == pytest.approx(once.radius, rel=1e-8)


@pytest.mark.parametrize("name", SIZED)
def test_it_grows_with_the_target_up_to_infinity(name):
    rng = np.random.default_rng(5)
    subject, f = example(name, 7, rng), rng.normal(size=7)
    mean = float(subject.reference() @ f)
    targets = np.array([mean - 1.0, mean, *targets_of(subject, f), f.max() + 1e-3])
    found = subject.radius_for(f, targets)
    assert found.radius[:2].tolist() == found.lower_bound[:2].tolist() == [0.0, 0.0]
    assert (np.diff(found.radius[1:-1]) > 0.0).all()
    assert found.radius[-1] == found.lower_bound[-1] == np.inf
    assert np.isnan(found.p[-1]).all()
    for b, target in enumerate(targets):
        assert found.row(b).radius == pytest.approx(subject.radius_for(f, target).radius, rel=1e-9)


@pytest.mark.parametrize("name", SIZED)
def test_rows_of_a_batch_are_the_single_answers(name):
    rng = np.random.default_rng(6)
    subject, losses = example(name, 6, rng), rng.normal(size=(4, 6))
    targets = np.array([targets_of(subject, f)[1] for f in losses])
    batch = subject.radius_for(losses, targets)
    assert batch.p.shape == (4, 6)
    for b in range(4):
        single = subject.radius_for(losses[b], targets[b])
        assert batch.radius[b] == pytest.approx(single.radius, rel=1e-9)
        assert batch.lower_bound[b] == pytest.approx(single.lower_bound, rel=1e-9)


@pytest.mark.parametrize("name", SIZED)
def test_sets_that_differ_by_row(name):
    rng = np.random.default_rng(7)
    subject = example(name, 5, rng)
    several = subject.scaled([1.0, 0.5, 2.0])
    losses = rng.normal(size=(3, 5))
    targets = np.array([targets_of(subject, f)[1] for f in losses])
    found = several.radius_for(losses, targets)
    for b in range(3):
        assert found.radius[b] == pytest.approx(subject.radius_for(losses[b], targets[b]).radius, rel=1e-8)


@pytest.mark.parametrize("scale", [1e-100, 1e100])
@pytest.mark.parametrize("name", SIZED)
def test_any_scale_of_the_losses(name, scale):
    rng = np.random.default_rng(8)
    subject, f = example(name, 6, rng), rng.normal(size=6)
    target = targets_of(subject, f)[1]
    found = subject.radius_for(scale * f, scale * target)
    assert found.radius == pytest.approx(subject.radius_for(f, target).radius, rel=1e-7)
    assert found.value == pytest.approx(scale * target, rel=1e-9)


@pytest.mark.parametrize("name", SIZED)
def test_distances_are_the_least_radius_that_holds_a_distribution(name):
    rng = np.random.default_rng(9)
    subject = example(name, 6, rng)
    p = subject.worst_case(rng.normal(size=6)).p
    radius = subject.radius_of(p)
    assert radius == pytest.approx(getattr(subject, subject.sized_by), rel=1e-6)
    assert resized(subject, radius).violation(p) <= tolerances.VIOLATION
    assert resized(subject, 0.99 * radius).violation(p) > tolerances.VIOLATION
    assert subject.radius_of(subject.reference()) <= 1e-12


@pytest.mark.parametrize("name", SIZED)
def test_what_is_refused(name):
    subject = example(name, 3, np.random.default_rng(0))
    f = [1.0, 2.0, 4.0]
    for target in (np.nan, np.inf, [[1.0]], "high"):
        with pytest.raises(InvalidInput, match="target"):
            subject.radius_for(f, target)
    with pytest.raises(InvalidInput, match="of length 2"):
        subject.radius_for([f, f], [1.0, 2.0, 3.0])
    with pytest.raises(InvalidLosses, match=r"losses\[1\] = nan"):
        subject.radius_for([1.0, np.nan, 2.0], 2.5)
    with pytest.raises(InvalidLosses):
        subject.radius_for([1.0, 2.0], 1.5)


def test_a_wasserstein_ball_of_order_2_is_not_concave_in_its_radius():
    # Mass m moves from 0 to 1 if m <= radius²: the line of a multiplier of the radius would be no bound.
    found = Wasserstein([0.5, 0.5], 0.1, order=2).radius_for([0.0, 1.0], 0.75)
    assert found.radius == pytest.approx(0.5, rel=1e-9)
    assert found.lower_bound == pytest.approx(0.5, rel=1e-9)
    assert found.multiplier == pytest.approx(1.0)


@pytest.mark.parametrize("name", SIZED)
def test_bootstrap_radius_holds_that_share_of_resamples(name):
    subject = example(name, 4, None)  # a uniform centre
    count, samples = 60, 4000
    radius = calibration.bootstrap_radius(
        subject, samples, 0.75, rng=np.random.default_rng(1), resamples=count
    )
    draws = np.random.default_rng(1).multinomial(samples, subject.reference(), size=count) / samples
    ball = resized(subject, radius * (1.0 + 1e-9))
    inside = sum(ball.violation(p) <= 1e-12 for p in draws)
    assert inside == 46  # ⌈0.75·61⌉: the order statistic that covers one more draw with that probability
    assert radius == subject.scaled(0.0).radius_of(
        draws[np.argsort([subject.radius_of(p) for p in draws])[45]]
    )


@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_bootstrap_radius_covers_the_truth_of_large_samples(confidence):
    truth, samples, repeats = np.array([0.4, 0.3, 0.2, 0.1]), 3000, 100
    rng = np.random.default_rng(3)
    for ball in (KL, ChiSquare, TotalVariation):
        covered = 0
        for _ in range(repeats):
            q = rng.multinomial(samples, truth) / samples
            radius = calibration.bootstrap_radius(ball(q, 0.0), samples, confidence, rng=rng, resamples=100)
            covered += ball(q, radius).radius_of(truth) <= radius
        assert covered / repeats == pytest.approx(confidence, abs=tolerances.frequency(confidence, repeats))


def test_bootstrap_radius_of_a_centre_without_a_choice():
    for ball in (KL, ChiSquare, TotalVariation):
        sure = calibration.bootstrap_radius(ball([0.0, 1.0], 0.1), 10, 0.9, rng=np.random.default_rng(0))
        assert sure == 0.0


def test_bootstrap_radius_refuses():
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidParameter, match="parameters differ by row"):
        calibration.bootstrap_radius(KL([[0.5, 0.5]], 0.1), 10, 0.9, rng=rng)
    with pytest.raises(BackendUnsuitable, match="Box has no radius or budget"):
        calibration.bootstrap_radius(Box([0.0, 0.0], [1.0, 1.0]), 10, 0.9, rng=rng)
    for samples, confidence, resamples in ((0, 0.9, 10), (10, 1.0, 10), (10, 0.0, 10), (10, 0.9, 0)):
        with pytest.raises(InvalidParameter):
            calibration.bootstrap_radius(
                KL([0.5, 0.5], 0.1), samples, confidence, rng=rng, resamples=resamples
            )
