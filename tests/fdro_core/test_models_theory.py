"""docs/models-theory.md: the step, descent and rates, on the code's own models, planes and oracles."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from bench.driver.problems import six_sets
from fdro_core.aspire.models import full, kernels
from fdro_core.aspire.planes import VIOLATION
from tests.fdro_core.model_runs import KINDS, ROUNDING, SETS, Array, N, P, Run, delta, in_metric, synchronous


@pytest.fixture(autouse=True)
def steps_are_finished(monkeypatch):
    """The proofs are about steps that end by themselves; the driver ends them after 200 moves."""
    monkeypatch.setattr(full, "MOVES", 100_000)


def random_planes(seed: int, size: int = 5) -> tuple[Array, Array, Array, Array]:
    """e, E, C and λ of planes of very different curvature."""
    rng = np.random.default_rng(seed)
    C = 10.0 ** rng.uniform(-2.0, 2.0, size=size)
    return rng.normal(size=size), rng.normal(size=(size, P)), C, rng.dirichlet(np.ones(size))


def dual(e: Array, E: Array, C: Array, weights: Array) -> float:
    """φ(λ)."""
    return float(e @ weights) - float(np.sum((weights @ E) ** 2)) / (2.0 * float(C @ weights))


def primal(e: Array, E: Array, C: Array, weights: Array) -> tuple[Array, Array]:
    """z(λ) and the planes' values there."""
    z = -(weights @ E) / float(C @ weights)
    return z, e + E @ z + 0.5 * C * float(z @ z)


@pytest.mark.parametrize("seed", range(10))
def test_the_gradient_of_the_dual_is_the_planes_values(seed):
    e, E, C, weights = random_planes(seed)
    values = primal(e, E, C, weights)[1]
    for i in range(e.size):
        ahead, behind = weights.copy(), weights.copy()
        ahead[i] += 1e-6
        behind[i] -= 1e-6
        slope = (dual(e, E, C, ahead) - dual(e, E, C, behind)) / 2e-6
        assert slope == pytest.approx(values[i], rel=1e-5, abs=1e-6)
    assert float(weights @ values) == pytest.approx(dual(e, E, C, weights), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_every_move_maximises_the_dual_between_its_two_planes(seed):
    e, E, C, weights = random_planes(seed)
    for _ in range(6):
        before = weights.copy()
        if kernels.balance(e, E @ E.T, C, weights, 1) == 0:
            break
        assert dual(e, E, C, weights) >= dual(e, E, C, before) - 1e-14
        up, down = int(np.argmax(weights - before)), int(np.argmin(weights - before))

        def along(amount, start=before, up=up, down=down):
            shifted = start.copy()
            shifted[up] += amount
            shifted[down] -= amount
            return -dual(e, E, C, shifted)

        best = minimize_scalar(along, bounds=(0.0, before[down]), method="bounded", options={"xatol": 1e-13})
        assert dual(e, E, C, weights) >= -float(best.fun) - 1e-12 * max(1.0, abs(float(best.fun)))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("moves", [0, 1, 3, 10])
def test_the_level_difference_bounds_the_error_of_an_unfinished_step(seed, moves):
    e, E, C, weights = random_planes(seed)
    exact = weights.copy()
    kernels.balance(e, E @ E.T, C, exact, 100_000)
    best_z, best = primal(e, E, C, exact)
    kernels.balance(e, E @ E.T, C, weights, moves)
    z, values = primal(e, E, C, weights)
    difference = float(values.max() - values[weights > 0].min())
    assert values.max() - best.max() <= difference + ROUNDING
    assert 0.5 * C.min() * float(np.sum((z - best_z) ** 2)) <= difference + ROUNDING


@pytest.mark.parametrize("set_", sorted(six_sets(N)))
@pytest.mark.parametrize("seed", range(3))
def test_every_call_of_the_oracle_raises_the_models_value(set_, seed):
    """By min(ω/2, c̲ω²/(2G²)) at least, although EASE drops planes, and up to the maximum over P."""
    run = Run("quadratic", set_, seed)
    models, rng = run.models, np.random.default_rng(seed)
    for j in range(N):
        run.answer(j, rng.normal(size=P))
    models.recentre()
    models.step(1.0)
    calls = 0
    while True:
        values = models.values()
        answer, value = run.set.worst_case(values), float(run.weights @ values)
        short = float(answer.value) - value
        slope = answer.p @ (models.G + models.curvature[:, None] * (models.z - models.X) * models.metric)
        steep = float(slope**2 @ (1.0 / models.metric))
        if not run.ask():
            break
        models.step(1.0)
        risen = float(run.weights @ models.values()) - value
        assert risen >= min(short / 2, run.c.min() * short**2 / (2 * steep)) - ROUNDING
        calls += 1
        assert calls < 500
    assert calls > 0
    assert short <= 2 * VIOLATION * np.ptp(values)


# -- descent ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("set_", SETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("calls", [1, 1000])
def test_synchronous_descent(kind, set_, calls):
    """F(z⁺) <= F(z) - ½C‖z⁺ - z‖²_D + ε if c_j >= L_j; ε is nothing once the oracle has no new plane."""
    seen = synchronous(Run(kind, set_), 25, calls)
    for before, after, moved, excess in seen:
        assert after <= before - moved + excess + ROUNDING
        if calls > 1:
            assert excess < 100 * VIOLATION
            assert after <= before + 100 * VIOLATION
    assert seen[0][2] > 1e-3


def test_without_majorisation_the_objective_can_rise():
    seen = synchronous(Run("quadratic", factor=0.1), 12)
    assert any(after > before + 1.0 for before, after, _, _ in seen)


@pytest.mark.parametrize("set_", SETS)
@pytest.mark.parametrize("kind", ["quadratic", "softmax"])
def test_rates_of_the_synchronous_method(kind, set_):
    far, run = Run(kind, set_), Run(kind, set_)
    synchronous(far, 600)
    best = far.models.z
    least = far.objective(best)
    assert run.moved(best) > 1e-3

    def distance(z: Array) -> float:
        return float(run.metric @ (z - best) ** 2)

    top, mu = float(run.c.max()), run.losses[0].mu / float(run.metric.max())
    first = previous = distance(run.models.z)
    for k in range(1, 60):
        [(_, after, _, _)] = synchronous(run, 1)
        assert after - least <= top * first / (2 * k) + 1e-9
        assert after - least <= 0.5 * (top - mu) * previous + 1e-9
        now = distance(run.models.z)
        assert now <= (top - mu) / (top + mu) * previous + 1e-7
        previous = now


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_one_worker_after_the_other(kind, seed):
    """The models' value U falls by ½C‖Δz‖²_D and stays above F, and δ falls as O(1/K)."""
    run, rng = Run(kind, "kl", seed), np.random.default_rng(seed)
    models = run.models
    run.step()
    start = value = float(run.set.worst_case(models.values()).value)
    interval, deltas = 2 * N - 1, []
    for _ in range(60):
        for j in rng.permutation(N):
            z = models.z
            run.answer(int(j), z)
            excess = run.step()
            now = float(run.set.worst_case(models.values()).value)
            assert now <= value - run.moved(z) + excess + ROUNDING
            assert run.objective(models.z) <= now + ROUNDING
            deltas.append(delta(run)[0] + delta(run)[1])
            value = now
    drop = start - value
    assert drop > 1e-3
    bound = 2 * run.c.max() / run.c.min() * interval**2 * drop / len(deltas)
    assert min(deltas) <= bound + ROUNDING


def test_delays_break_that_argument():
    """With replies at points that z has left, U can rise: asynchronous descent is not a corollary."""
    run, rng = Run("quadratic", "box", 2), np.random.default_rng(2)
    models = run.models
    run.step()
    value = float(run.set.worst_case(models.values()).value)
    waiting, rises = [(j, models.z) for j in range(N)], []
    for _ in range(200):
        j, x = waiting.pop(0 if rng.uniform() < 0.6 else -1)
        run.answer(j, x)
        run.step()
        waiting.append((j, models.z))
        now = float(run.set.worst_case(models.values()).value)
        rises.append(now - value)
        value = now
    assert max(rises) > 1e-2


@pytest.mark.parametrize("seed", range(3))
def test_fixed_weights_bear_any_delay(seed):
    """‖z - z*‖_D falls by 1 - μ/max c_j between epochs in which every worker's point was renewed."""
    run, rng = Run("quadratic", "kl", seed), np.random.default_rng(seed)
    models, weights = run.models, run.weights.copy()
    slope = run.at(np.zeros(P))[1]
    hessian = np.array([[run.losses[j].value(axis)[1] - slope[j] for axis in np.eye(P)] for j in range(N)])
    best = -np.linalg.solve(np.tensordot(weights, hessian, 1), weights @ slope)

    def distance() -> float:
        return float(np.sqrt(run.metric @ (models.z - best) ** 2))

    mu = min(float(in_metric(H, run.metric)[0]) for H in hessian)
    rate = 1.0 - mu / float(run.c.max())
    assert rate < 0.999
    waiting, points = [(j, models.z) for j in range(N)], [0] * N
    waiting_since = [0] * N
    bound, since, distances = distance(), 0, []
    for k in range(1, 3000):
        place = int(rng.choice(N, p=[0.9, 0.06, 0.03, 0.01]))  # the last in the queue may wait for long
        j, x = waiting.pop(place)
        run.answer(j, x)
        points[j] = waiting_since[j]
        models.recentre()
        models.step(1.0)
        waiting.append((j, models.z))
        waiting_since[j] = k
        if min(points) >= since:  # a new epoch: all points were sent after the last one began
            bound, since = rate * bound, k
        distances.append(distance())
        assert distances[-1] <= bound + 1e-9
    assert bound < 0.9 * distances[0]
