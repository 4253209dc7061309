"""The kernels of the model steps against NumPy, and what a run costs before its first step."""

from __future__ import annotations

import numpy as np
import pytest

from bench.driver.problems import Counted, classification
from fdro_core import AspireEase, AspireModels, VirtualEngine, solve
from fdro_core.aspire.models import kernels, sampled
from fdro_core.aspire.planes import Planes
from fdro_core.master.kernels import follow_squares
from tests.fdro_core.helpers import middle_box

CLOSE = {"rtol": 1e-12, "atol": 1e-12}
P, PLANES = 37, 5


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def vectors(rng, count):
    return [rng.normal(size=P) for _ in range(count)]


def weights(rng):
    """Weights of planes, one of them zero."""
    found = rng.dirichlet(np.ones(PLANES))
    found[2] = 0.0
    return found


LONG = 2 * kernels.BLOCK + 5
"""Entries of a vector that takes three blocks."""


@pytest.mark.parametrize("size", [P, LONG])
def test_replacing_a_model(rng, size):
    x, g, old_x, old_g, origin = (rng.normal(size=size) for _ in range(5))
    metric, c, old_c = rng.uniform(0.5, 2.0, size=size), 1.7, 0.6
    E, share, inverse = rng.normal(size=(PLANES, size)), weights(rng), 1.0 / metric
    rows, planes, gram = (old_x.copy(), old_g.copy()), E.copy(), (E * inverse) @ E.T
    after, before = kernels.replace_model(
        x, g, c, rows[0], rows[1], old_c, origin, metric, inverse, share, planes, gram
    )

    def slope_and_value(x, g, c):
        away = origin - x
        return g + c * metric * away, g @ away + 0.5 * c * away @ (metric * away)

    (new_slope, new_value), (old_slope, old_value) = (
        slope_and_value(x, g, c),
        slope_and_value(old_x, old_g, old_c),
    )
    np.testing.assert_allclose([after, before], [new_value, old_value], **CLOSE)
    np.testing.assert_array_equal(rows, [x, g])
    expected = E + np.outer(share, new_slope - old_slope)
    np.testing.assert_allclose(planes, expected, **CLOSE)
    np.testing.assert_allclose(gram, (expected * inverse) @ expected.T, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", [P, LONG])
def test_values_and_sums_of_models(rng, size):
    workers = 4
    z, X, G = rng.normal(size=size), rng.normal(size=(workers, size)), rng.normal(size=(workers, size))
    metric, c = rng.uniform(0.5, 2.0, size=size), rng.uniform(0.5, 2.0, size=workers)
    table = rng.dirichlet(np.ones(workers), size=PLANES).T.copy()
    table[1, 2] = 0.0
    linear, bend = np.full(workers, np.nan), np.full(workers, np.nan)
    kernels.model_values(z, X, G, metric, linear, bend)
    np.testing.assert_allclose(linear, np.sum(G * (z - X), axis=1), **CLOSE)
    np.testing.assert_allclose(bend, (z - X) ** 2 @ metric, **CLOSE)
    planes, gram = np.full((PLANES, size), np.nan), np.full((PLANES, PLANES), np.nan)
    kernels.sum_models(z, X, G, c, metric, 1.0 / metric, table, planes, gram)
    expected = table.T @ (G + c[:, None] * metric * (z - X))
    np.testing.assert_allclose(planes, expected, **CLOSE)
    np.testing.assert_allclose(gram, (expected / metric) @ expected.T, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", [P, LONG])
def test_mixing_planes_and_their_least_point(rng, size):
    E, share, out = rng.normal(size=(PLANES, size)), weights(rng), np.full(size, np.nan)
    kernels.mix(E, share, out)
    np.testing.assert_allclose(out, share @ E, **CLOSE)
    origin, inverse = rng.normal(size=size), rng.uniform(0.5, 2.0, size=size)
    kernels.least_point(origin, inverse, E, share, 3.0, out)
    np.testing.assert_allclose(out, origin - inverse * (share @ E) / 3.0, **CLOSE)


def test_a_plane_without_weight_does_not_spoil_the_mix(rng):
    E, share, out = rng.normal(size=(PLANES, P)), weights(rng), np.empty(P)
    E[2] = np.nan
    kernels.mix(E, share, out)
    assert np.isfinite(out).all()


def test_replacing_sums(rng):
    slopes, points, share = rng.normal(size=(PLANES, P)), rng.normal(size=(PLANES, P)), weights(rng)
    g, old_g, x, old_x = vectors(rng, 4)
    found = slopes.copy(), points.copy()
    rows = old_g.copy(), old_x.copy()
    kernels.replace_sums(*found, share, g, rows[0], x, 0.8, rows[1], 0.3)
    np.testing.assert_allclose(found[0], slopes + np.outer(share, g - old_g), **CLOSE)
    np.testing.assert_allclose(found[1], points + np.outer(share, 0.8 * x - 0.3 * old_x), **CLOSE)
    np.testing.assert_array_equal(rows, [g, x])


def test_the_preconditioned_step(rng):
    slope, anchor, average = vectors(rng, 3)
    squares = rng.uniform(0.0, 2.0, size=P)
    followed = squares.copy()
    mean = follow_squares(followed, slope, 0.05)
    expected = squares + 0.05 * (slope**2 - squares)
    np.testing.assert_allclose(followed, expected, **CLOSE)
    assert mean == pytest.approx(expected.mean(), rel=1e-12)
    z, moved = anchor.copy(), np.full(P, np.nan)
    kernels.precondition(z, average, slope, followed, 0.01, 0.003, 0.9, 0.25, moved)
    step = anchor / 0.9 - 0.003 * slope / (np.sqrt(expected) + 0.01)
    np.testing.assert_allclose(z, step, **CLOSE)
    np.testing.assert_allclose(moved, average + 0.25 * (step - average), **CLOSE)


def test_plane_sums_of_many_parameters_and_workers(rng):
    p, workers = 2 * sampled.COLUMNS + 7, sampled.CHUNK + 3
    planes = Planes(rng.dirichlet(np.ones(workers)), keep_all=True, limit=10)
    z, gradients = rng.normal(size=p), rng.normal(size=(workers, p))
    models = sampled.SampledModels(
        planes, z, rng.normal(size=workers), gradients, step=0.01, prox=0.1, window=0.5
    )
    for _ in range(3):
        planes._add(rng.dirichlet(np.ones(workers)), 1.0)
    models.X[:], models.trust[:] = rng.normal(size=(workers, p)), rng.uniform(0.1, 1.0, size=workers)
    models.recentre()
    matrix = planes.matrix()
    slopes, points, trusts = matrix @ gradients, (matrix * models.trust) @ models.X, matrix @ models.trust
    np.testing.assert_allclose(models.sums.slopes, slopes, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(models.sums.points, points, rtol=1e-11, atol=1e-13)
    metric, step = models.metric, models.step_size
    B = slopes + metric / step * (np.outer(trusts, z) - points)
    np.testing.assert_allclose(models.stiffness, step * (B / metric) @ B.T, rtol=1e-10)


@pytest.mark.parametrize(("kind", "before"), [(AspireModels, 2), (AspireEase, 9)])
def test_gradients_before_the_first_step(kind, before):
    """At the first report all workers have made their start-up and the steps that `gradients` counts."""
    problems = [Counted(problem) for problem in classification(4, seed=1)]
    seen = []

    def look(run, entry):
        seen.append(sum(problem.calls for problem in problems) - entry["gradients"])

    config = kind(active_workers=4, iterations=1)
    solve(problems, middle_box(4), algorithm=config, engine=VirtualEngine(), observers=[look])
    assert seen == [4 * before]


def test_the_first_question_is_after_the_first_step():
    """With full batches the handshake's gradients are used, so no worker is asked at z⁰ again."""
    problems = classification(4, seed=1)
    engine, config = VirtualEngine(), AspireModels()
    engine.start([config.worker(j, problem) for j, problem in enumerate(problems)])
    master = config.master(middle_box(4), 4, engine.ask, None)
    start = master.z
    sent = [message.z for _, message in master.start()]
    assert len(sent) == 4
    losses = [[problem.loss_and_gradient(z)[0] for problem in problems] for z in (start, sent[0])]
    before, after = (middle_box(4).worst_case(np.array(f)).value for f in losses)
    assert after < before
