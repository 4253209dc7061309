"""`AspireModels`: the model step against dense references, and the driver's promises for this form."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from bench.driver.problems import classification, reference, regression, relative_gap, robust_value, six_sets
from fdro_core import (
    AspireModels,
    Crash,
    VirtualEngine,
    solve,
)
from fdro_core.aspire.models import kernels
from fdro_core.aspire.models.full import FullModels
from fdro_core.aspire.models.messages import Evaluate
from fdro_core.aspire.models.sampled import PlaneSums, SampledModels, WorkerSums
from fdro_core.aspire.models.worker import ModelWorker
from fdro_core.aspire.planes import Planes
from tests.fdro_core.helpers import Faulty, Quadratic, middle_box, softmax_problems
from uncertainty_sets import KL, Box, UncertaintySet

N, P = 5, 4


def models(**settings):
    return AspireModels(**settings)


def three_planes(rng, workers=N):
    """Three random planes, with weights."""
    planes = Planes(rng.dirichlet(np.ones(workers)), keep_all=True, limit=20)
    for worker in (0, 1):
        planes.update(np.eye(workers)[worker], 9.0 * (worker + 1) * np.eye(workers)[worker])
    assert planes.size == 3
    planes.multipliers[:] = rng.dirichlet(np.ones(3))
    return planes


def full(rng, scale=1.0):
    planes = three_planes(rng)
    z, metric = rng.normal(size=P), rng.uniform(0.5, 2.0, size=P)
    losses, gradients = scale * rng.normal(size=N), scale * rng.normal(size=(N, P))
    return FullModels(planes, z, metric, losses, gradients, scale * rng.uniform(0.5, 2.0, size=N))


def dense(state):
    """Value and slope of every worker's model at z, from their definition."""
    away = state.z - state.X
    values = state.losses + (state.G * away).sum(axis=1) + 0.5 * state.curvature * (away**2 @ state.metric)
    return values, state.G + state.curvature[:, None] * away * state.metric


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_planes_models_follow_every_reply(scale):
    rng = np.random.default_rng(0)
    state = full(rng, scale)
    for turn in range(40):
        j = int(rng.integers(N))
        state.learn(j, rng.normal(size=P), scale * rng.normal(), scale * rng.normal(size=P))
        state.z = state.origin + rng.normal(size=P)
        if turn % 7 == 3:
            state.recentre()
        table = state.planes.table[:, : state.planes.size]
        values, slopes = dense(state)
        off = state.z - state.origin
        found = state.e + state.E @ off + 0.5 * state.C * float(state.metric @ off**2)
        np.testing.assert_allclose(found, values @ table, rtol=1e-10, atol=1e-10 * scale)
        along = state.E + state.C[:, None] * state.metric * off
        np.testing.assert_allclose(along, table.T @ slopes, rtol=1e-10, atol=1e-10 * scale)
        np.testing.assert_allclose(
            state.gram, (state.E / state.metric) @ state.E.T, rtol=1e-9, atol=1e-9 * scale**2
        )


@pytest.mark.parametrize("seed", range(8))
def test_a_step_minimises_the_largest_plane(seed):
    rng = np.random.default_rng(seed)
    state = full(rng)
    state.step(1 / N)
    table = state.planes.table[:, : state.planes.size]
    z, top = cp.Variable(P), cp.Variable()
    rows = [
        sum(
            table[j, k]
            * (
                state.losses[j]
                + state.G[j] @ (z - state.X[j])
                + 0.5 * state.curvature[j] * cp.sum(cp.multiply(state.metric, cp.square(z - state.X[j])))
            )
            for j in range(N)
        )
        <= top
        for k in range(state.planes.size)
    ]
    best = cp.Problem(cp.Minimize(top), rows).solve(solver="CLARABEL")
    reached = float((dense(state)[0] @ table).max())
    assert reached == pytest.approx(best, abs=1e-7)
    np.testing.assert_allclose(state.z, z.value, atol=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_the_weights_of_planes_are_balanced(seed):
    """At the end every plane with weight has the largest value: the condition for the maximum of φ."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 12))
    E, C, e = rng.normal(size=(size, 3)), rng.uniform(0.1, 3.0, size=size), rng.normal(size=size)
    weights = np.full(size, 1 / size)
    kernels.balance(e, E @ E.T, C, weights, 2000)
    z = -(weights @ E) / float(weights @ C)
    values = e + E @ z + 0.5 * C * float(z @ z)
    assert weights.sum() == pytest.approx(1.0)
    assert float(values.max() - values[weights > 0].min()) < 1e-8


@pytest.mark.parametrize("kind", sorted(six_sets(4)))
@pytest.mark.parametrize("make", [classification, regression])
@pytest.mark.parametrize("S", [1, 4])
def test_the_optimum_of_convex_problems(kind, make, S):
    problems, chosen = make(4, seed=5), six_sets(4, seed=5)[kind]
    best, _ = reference(problems, chosen)
    result = solve(problems, chosen, algorithm=models(active_workers=S, iterations=480 // S))
    start = robust_value(problems, chosen, np.zeros(problems[0].dimension))
    assert abs(relative_gap(robust_value(problems, chosen, result.w), best, start)) < 1e-7
    assert result.stationarity < 1e-6


def test_a_set_without_a_size_of_its_own():
    class Near(UncertaintySet):
        def constraints(self, p):
            return [cp.norm(p - 1.0 / p.size) <= 0.2]

    problems = softmax_problems(3)
    ours = solve(problems, Near(), algorithm=models(iterations=300))
    paper = solve(problems, Near())
    assert ours.objective == pytest.approx(paper.objective, rel=1e-5)


@pytest.mark.parametrize("when", [0.5, 1.5, 7.3, 20.0])
@pytest.mark.parametrize("local_steps", [1, 3])
def test_a_worker_may_crash_and_return_at_any_time(when, local_steps):
    problems, box = softmax_problems(N), middle_box(N)
    algorithm = models(local_steps=local_steps)
    calm = solve(problems, box, algorithm=algorithm)
    engine = VirtualEngine(seed=1, crashes=[Crash(2, when, when + 8.0), Crash(4, when + 0.1, when + 30.0)])
    assert solve(problems, box, algorithm=algorithm, engine=engine).objective == pytest.approx(
        calm.objective, rel=1e-9
    )


def test_a_new_worker_answers_as_the_old_one_would():
    problem = softmax_problems(1)[0]
    old, new = (ModelWorker(0, problem, seed=3, batch_size=4) for _ in range(2))
    z = np.linspace(-1.0, 1.0, problem.dimension)
    for ticket in range(1, 9):
        kept = old.handle(Evaluate(ticket, z))
    fresh = new.handle(Evaluate(8, z))
    assert kept.loss == fresh.loss
    np.testing.assert_array_equal(kept.gradient, fresh.gradient)
    assert new.snapshot() is None


@pytest.mark.filterwarnings("ignore::fdro_core.errors.WorkerWarning")
def test_bad_replies_are_left_out():
    problems = [Quadratic([0.0]), Faulty([1.0], bad={5, 7}), Quadratic([2.0])]
    algorithm = models(iterations=200, tolerance=0.0)  # no end before the bad replies
    result = solve(problems, middle_box(3), algorithm=algorithm)
    assert any(entry["event"] == "bad-update" for entry in result.history)
    assert np.isfinite(result.w).all()
    calm = solve([Quadratic([c]) for c in (0.0, 1.0, 2.0)], middle_box(3), algorithm=algorithm)
    assert result.objective == pytest.approx(calm.objective, rel=1e-9)


def test_a_worker_that_fails_at_the_start():
    problems = [Quadratic([0.0]), Faulty([1.0], broken={1}), Quadratic([2.0])]
    with pytest.warns(Warning, match="worker 1"):
        result = solve(problems, middle_box(3), algorithm=models(iterations=60, on_failed_start="warn"))
    assert result.weights[1] == 0.0
    assert np.isnan(result.losses[1])


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_of_the_losses_do_not_matter(factor):
    class Scaled(Quadratic):
        def loss_and_gradient(self, w, rng=None, batch_size=None):
            loss, gradient = super().loss_and_gradient(w)
            return factor * loss, factor * gradient

    centres = ([0.0, 1.0], [2.0, -1.0], [4.0, 3.0])
    plain = solve([Quadratic(c) for c in centres], middle_box(3), algorithm=models(iterations=90))
    scaled = solve([Scaled(c) for c in centres], middle_box(3), algorithm=models(iterations=90))
    np.testing.assert_allclose(scaled.w, plain.w, rtol=1e-7)


def test_negative_losses_one_worker_one_parameter():
    low = solve(
        [Quadratic([c], shift=-50.0) for c in (0.0, 2.0)], middle_box(2), algorithm=models(iterations=60)
    )
    high = solve([Quadratic([c]) for c in (0.0, 2.0)], middle_box(2), algorithm=models(iterations=60))
    np.testing.assert_allclose(low.w, high.w, atol=1e-9)
    alone = solve([Quadratic([3.0])], KL([1.0], 0.1), algorithm=models(iterations=20))
    np.testing.assert_allclose(alone.w, [3.0], atol=1e-9)


def test_losses_that_are_linear_at_the_start():
    class Huber(Quadratic):
        def loss_and_gradient(self, w, rng=None, batch_size=None):
            away = w - self.centre
            size = np.abs(away)
            return float(np.where(size > 1.0, size - 0.5, 0.5 * away**2).sum()), np.clip(away, -1.0, 1.0)

    result = solve([Huber([5.0]), Huber([9.0])], Box([0, 0], [1, 1]), algorithm=models(iterations=200))
    np.testing.assert_allclose(result.w, [7.0], atol=1e-6)


def test_mini_batches_come_near_the_optimum():
    problems, chosen = classification(4, seed=5), six_sets(4, seed=5)["kl"]
    best, _ = reference(problems, chosen)
    result = solve(problems, chosen, algorithm=models(batch_size=16, iterations=4000))
    start = robust_value(problems, chosen, np.zeros(problems[0].dimension))
    assert relative_gap(robust_value(problems, chosen, result.w), best, start) < 0.02


@pytest.mark.parametrize("few", [0, N])
def test_the_sampled_sums_follow_every_reply(few, monkeypatch):
    monkeypatch.setattr("fdro_core.aspire.models.sampled.FEW", few)  # by plane, or by worker
    rng = np.random.default_rng(1)
    planes = three_planes(rng)
    z, losses, gradients = rng.normal(size=P), rng.normal(size=N), rng.normal(size=(N, P))
    state = SampledModels(planes, z, losses, gradients, step=0.01, prox=0.1, window=0.1)
    assert isinstance(state.sums, WorkerSums if few else PlaneSums)
    for _ in range(30):
        j = int(rng.integers(N))
        state.learn(j, rng.normal(size=P), rng.normal(), rng.normal(size=P))
        state.step(1 / N)
        table = planes.table[:, : planes.size]
        saved = state.snapshot()
        np.testing.assert_allclose(saved["slopes"], table.T @ state.G, atol=1e-10)
        np.testing.assert_allclose(saved["points"], (table * state.trust[:, None]).T @ state.X, atol=1e-10)
        np.testing.assert_allclose(saved["trusts"], state.trust @ table, atol=1e-12)
        np.testing.assert_allclose(planes.losses, state.losses @ table, atol=1e-12)
        s = table @ planes.multipliers
        np.testing.assert_allclose(state.sums.descent(np.full(P, np.nan)), s @ state.G, atol=1e-10)
        point = np.full(P, np.nan)
        assert state.sums.anchor(point) == pytest.approx(s @ state.trust)
        np.testing.assert_allclose(point, (s * state.trust) @ state.X, atol=1e-10)


@pytest.mark.parametrize(("workers", "share"), [(5, 1.0), (20, 1.0), (40, 0.125), (500, 0.01)])
def test_the_weights_of_many_workers_move_by_shorter_steps(workers, share):
    """An epoch moves them by at most ρ·‖losses‖, and ρ shrinks with the even weight beyond twenty workers."""
    rng = np.random.default_rng(2)
    planes = three_planes(rng, workers)
    losses, gradients = rng.uniform(size=workers), np.zeros((workers, P))
    state = SampledModels(planes, np.zeros(P), losses, gradients, step=0.01, prox=0.1, window=0.1)
    assert state.prox == pytest.approx(0.1 * share)
    table = planes.table[:, : planes.size].copy()
    before = table @ planes.multipliers
    state.step(1.0)
    moved = np.linalg.norm(table @ planes.multipliers - before)
    assert 0.0 < moved <= 0.1 * share * np.linalg.norm(losses) + 1e-12


def test_sums_by_plane_and_by_worker_train_alike(monkeypatch):
    """Rounding alone differs, until it decides whether a plane is used or a worker rests, some time later."""
    found = []
    for few in (0, 4):
        monkeypatch.setattr("fdro_core.aspire.models.sampled.FEW", few)
        found.append(
            solve(
                classification(4, seed=5),
                six_sets(4, seed=5)["cd-norm"],
                algorithm=models(batch_size=16, iterations=60, local_steps=2),
            )
        )
    np.testing.assert_allclose(found[0].w, found[1].w, rtol=1e-12, atol=1e-13)
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-12)
