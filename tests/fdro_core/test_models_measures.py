"""docs/models-theory.md: errors of the models, measures of stationarity, fixed points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fdro_core import AspireModels, Straggler, VirtualEngine, solve
from fdro_core.aspire.models import full
from fdro_core.aspire.models.full import FullModels
from fdro_core.aspire.models.sampled import SampledModels
from fdro_core.aspire.planes import Planes
from tests.fdro_core.helpers import Quadratic, middle_box, softmax_problems
from tests.fdro_core.model_runs import KINDS, ROUNDING, SETS, Array, N, P, Run, delta, synchronous
from uncertainty_sets import Box


@pytest.fixture(autouse=True)
def steps_are_finished(monkeypatch):
    """The proofs are about steps that end by themselves; the driver ends them after 200 moves."""
    monkeypatch.setattr(full, "MOVES", 100_000)


def measure(run: Run, z: Array, weights: Array) -> tuple[float, float]:
    """The two terms of R(z, s): max_p pᵀf - sᵀf, and ‖Σ_j s_j∇f_j‖² in 1/D."""
    f, g = run.at(z)
    slope = weights @ g
    above = float(run.set.worst_case(f).value) - float(weights @ f)
    return above, float(slope**2 @ (1.0 / run.metric))


def old_points(kind: str, set_: str, seed: int, factor: float = 1.0) -> Run:
    """A run after a step from points that differ from worker to worker."""
    run, rng = Run(kind, set_, seed, factor), np.random.default_rng(seed)
    width = 10.0 ** rng.uniform(-3.0, 0.5)
    for j in range(N):
        run.answer(j, run.models.z + width * rng.normal(size=run.metric.size))
    run.step(1 + seed % 3)
    return run


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [1.0, 0.4])
@pytest.mark.parametrize("seed", range(6))
def test_errors_of_the_models(kind, factor, seed):
    """(1-κ)/2·cr² <= m - f <= (1+κ)/2·cr² with L = κc; ½cr² and one c in place of two if f is convex."""
    run = old_points(kind, "kl", seed, factor)
    models, kappa = run.models, 1.0 / factor
    f, g = run.at(models.z)
    away = models.z - models.X
    r_sq = away**2 @ run.metric
    above = models.values() - f
    slope = g - models.G - models.curvature[:, None] * away * run.metric
    off = np.sqrt(slope**2 @ (1.0 / run.metric))
    convex = run.losses[0].convex
    assert (above >= 0.5 * (1 - kappa) * run.c * r_sq - ROUNDING).all()
    assert (above <= 0.5 * (1 if convex else 1 + kappa) * run.c * r_sq + ROUNDING).all()
    assert (off <= (max(1.0, kappa - 1) if convex else 1 + kappa) * run.c * np.sqrt(r_sq) + ROUNDING).all()


def test_the_constants_of_those_errors_are_the_best():
    """f = -½cw² has m - f = cr² and |∇m - ∇f| = 2cr."""
    c, x, z = 2.0, 1.0, 4.0
    model = -0.5 * c * x**2 - c * x * (z - x) + 0.5 * c * (z - x) ** 2
    assert model + 0.5 * c * z**2 == pytest.approx(c * (z - x) ** 2)
    assert (-c * x + c * (z - x)) + c * z == pytest.approx(2 * c * (z - x))


@pytest.mark.parametrize("set_", SETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_what_delta_implies(kind, set_, seed):
    run = old_points(kind, set_, seed)
    above, steep = measure(run, run.models.z, run.weights)
    level, age = delta(run)
    total = float(run.weights @ run.c)
    assert above <= level + age + ROUNDING
    assert steep <= 4 * total * age + ROUNDING
    if run.losses[0].convex:
        assert above <= level + 0.5 * age + ROUNDING
        assert steep <= total * age + ROUNDING


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_what_delta_implies_if_curvatures_are_underestimated(kind, seed):
    run = old_points(kind, "box", seed, factor=0.4)
    kappa = 1 / 0.4
    above, steep = measure(run, run.models.z, run.weights)
    level, age = delta(run)
    away = (run.models.z - run.models.X) ** 2 @ run.metric
    others = float(run.set.worst_case(run.c * away).value)
    assert above <= level + 0.5 * (1 + kappa) * age + 0.5 * (kappa - 1) * others + ROUNDING
    assert steep <= (1 + kappa) ** 2 * float(run.weights @ run.c) * age + ROUNDING


def test_an_underestimated_curvature_of_a_worker_without_weight_is_not_in_delta():
    """δ = 0 although the other worker's loss is 40 higher; max_j c_j‖z - x_j‖²_D would show that it moved."""
    shallow, steep = Quadratic([1.0]), Quadratic([0.0], scale=100.0, shift=-10.0)
    z, x = np.array([1.0]), np.array([0.0])
    pairs = shallow.loss_and_gradient(z), steep.loss_and_gradient(x)
    planes = Planes(np.array([1.0, 0.0]), keep_all=True, limit=20)
    f, g = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
    models = FullModels(planes, z, np.ones(1), f, g, np.ones(2))
    models.X[1] = x
    models.recentre()
    models.step(1.0)
    values, away = models.values(), (models.z - models.X) ** 2 @ models.metric
    assert float(values.max() - values[0] + away[0]) == 0.0  # δ over all distributions
    assert steep.loss_and_gradient(models.z)[0] - shallow.loss_and_gradient(models.z)[0] == 40.0
    assert float((models.curvature * away).max()) == 1.0


@pytest.mark.parametrize("set_", SETS)
@pytest.mark.parametrize("kind", ["quadratic", "softmax"])
def test_the_gap_to_the_optimum(kind, set_):
    """F(z) - F* <= max_p pᵀf(z) - sᵀf(z) + ‖Σ_j s_j∇f_j(z)‖²/(2μ) for every z and every s in P."""
    run = Run(kind, set_)
    synchronous(run, 600)
    best, rng = run.objective(run.models.z), np.random.default_rng(0)
    gaps = []
    for width in (0.0, 1e-3, 0.1, 1.0):
        z = run.models.z + width * rng.normal(size=run.metric.size)
        f, g = run.at(z)
        corners = [run.weights, np.asarray(run.set.worst_case(f).p), np.asarray(run.set.reference())]
        for weights in [*corners, np.mean(corners, axis=0)]:
            slope = weights @ g
            above = float(run.set.worst_case(f).value) - float(weights @ f)
            gaps.append(above + float(slope @ slope) / (2 * run.losses[0].mu))
            assert run.objective(z) - best <= gaps[-1] + 1e-10
    assert gaps[0] < 1e-5 * gaps[-1]


def test_the_gap_needs_weights_of_the_set():
    """All weight on one worker, which this box forbids, would prove a negative gap."""
    chosen, problems = Box([0.4, 0.4], [0.6, 0.6]), [Quadratic([0.0], shift=10.0), Quadratic([0.0])]
    f = np.array([problem.loss_and_gradient(np.zeros(1))[0] for problem in problems])  # z = 0 is optimal
    above = float(chosen.worst_case(f).value) - f
    assert above[0] == pytest.approx(-4.0)


@pytest.mark.parametrize("seed", range(10))
def test_the_measure_is_above_definition_1(seed):
    """‖∇G‖² at w_j = z, φ_j = s_j∇f_j(z), h = max_l p_lᵀf(z), with unit steps and D = I."""
    run = Run("wave", "box", seed)
    run.metric = np.ones(P)
    rng = np.random.default_rng(seed)
    z = rng.normal(size=P)
    f, g = run.at(z)
    A = np.array([run.set.worst_case(rng.normal(size=N)).p for _ in range(3)] + [run.set.worst_case(f).p])
    multipliers = rng.dirichlet(np.ones(4)) * (rng.uniform(size=4) > 0.3)
    multipliers /= multipliers.sum()
    s = multipliers @ A
    h = float((A @ f).max())
    phi = s[:, None] * g
    in_w = s[:, None] * g - phi
    in_lambda = multipliers - np.maximum(multipliers + (A @ f - h), 0.0)
    gap = float(np.sum(in_w**2) + np.sum(phi.sum(axis=0) ** 2) + np.sum(in_lambda**2))
    above, steep = measure(run, z, s)
    assert gap <= above + steep + ROUNDING
    assert gap > 1e-6


def saddle(problems: Sequence[Any], chosen: Any) -> tuple[Array, Array, Array]:
    """z, the planes with weight as rows, and their λ, by a long run of the driver."""
    result = solve(problems, chosen, algorithm=AspireModels(iterations=3000, tolerance=0))
    assert result.stationarity < 1e-12
    return result.w, result.planes, result.weights


def at_rest(problems: Sequence[Any], z: Array, weights: Array) -> tuple[Planes, Array, Array]:
    """The saddle point's weights as the only plane, and all losses and gradients there."""
    pairs = [problem.loss_and_gradient(z) for problem in problems]
    return (
        Planes(weights, keep_all=True, limit=20),
        np.array([f for f, _ in pairs]),
        np.array([np.array(g) for _, g in pairs]),
    )


def test_full_models_rest_at_a_saddle_point():
    problems, chosen = softmax_problems(N), middle_box(N)
    z, _, weights = saddle(problems, chosen)
    planes, f, g = at_rest(problems, z, weights)
    models = FullModels(planes, z, problems[0].metric(), f, g, np.full(N, 0.5))
    planes.update(np.asarray(chosen.worst_case(f).p), f)  # what the oracle adds moves nothing
    models.recentre()
    models.step(1.0)
    np.testing.assert_allclose(models.z, z, atol=1e-5)
    models.G[int(np.argmax(weights))] += 1.0  # at a point that is none they move
    models.recentre()
    models.step(1.0)
    assert float(np.abs(models.z - z).max()) > 1e-3


def test_sampled_models_rest_at_a_saddle_point_whatever_the_trust():
    problems, chosen = softmax_problems(N), middle_box(N)
    z, _, weights = saddle(problems, chosen)
    planes, f, g = at_rest(problems, z, weights)
    models = SampledModels(planes, z, f, g, step=0.01, prox=0.1, window=0.1)
    models.squares = np.full(z.size, 1e-2)
    models.trust[:] = [1.0, 0.2, 0.05, 0.7]
    models.recentre()
    models.step(0.25)
    np.testing.assert_allclose(models.z, z, atol=1e-6)
    np.testing.assert_allclose(planes.weights(), weights, atol=1e-12)


def attracted(targets, noise=0.0, step=0.03, rounds=1500, size=5):
    """Sampled models of least squares with those optima, everyone in every round.

    Returns |z - z*|, the models, and the least that steps were taken times.
    """
    rng = np.random.default_rng(0)
    curvature = 10 ** rng.uniform(-1, 1, size=(len(targets), size))
    best = np.sum(curvature * targets, axis=0) / curvature.sum(axis=0)
    z = np.zeros(size)

    def gradients(z):
        return curvature * (z - targets) + noise * rng.normal(size=curvature.shape)

    planes = Planes(np.full(len(targets), 1 / len(targets)), keep_all=True, limit=20)
    losses = np.zeros(len(targets))
    models = SampledModels(planes, z, losses, gradients(z), step=step, prox=0.1, window=0.1)
    least = 1.0
    for _ in range(rounds):
        for j, gradient in enumerate(gradients(models.z)):
            models.learn(j, models.z, 0.0, gradient)
        models.step(1.0)
        least = min(least, models.curb)
    return float(np.abs(models.z - best).max()), models, least


def test_a_solution_attracts_where_workers_disagree():
    """v stays above 0 there, so steps become short by themselves."""
    rng = np.random.default_rng(1)
    away, models, least = attracted(rng.normal(size=(4, 5)))
    assert away < 1e-9
    assert models.squares.min() > 1e-3
    assert least == 1.0


@pytest.mark.parametrize("workers", [1, 4])
def test_a_solution_attracts_where_all_agree(workers):
    """There v falls with the gradient; without shorter steps z would circle around it, half of η away."""
    target = np.random.default_rng(1).normal(size=5)
    away, models, least = attracted(np.tile(target, (workers, 1)), step=0.3)
    assert away < 1e-12
    assert least < 0.2
    assert models.longest_step == 0.3


def test_noise_does_not_shorten_steps():
    rng = np.random.default_rng(2)
    _, models, least = attracted(rng.normal(size=(3, 5)), noise=1.0)
    assert least == 1.0
    assert models.step_size == pytest.approx(0.03 / np.sqrt(16.0))


def test_the_limit_of_an_asynchronous_run_is_stationary():
    """Delays, a straggler and one oracle call per epoch: where z comes to rest, R is zero."""
    problems, chosen = softmax_problems(N), middle_box(N)
    engine = VirtualEngine(seed=3, stragglers=[Straggler(1, factor=7.0)])
    algorithm = AspireModels(iterations=2000, tolerance=0)
    result = solve(problems, chosen, algorithm=algorithm, engine=engine)
    weights, f = result.weights, result.losses
    gradients = np.array([problem.loss_and_gradient(result.w)[1] for problem in problems])
    assert float(np.abs(weights @ gradients).max()) < 1e-6
    assert float(chosen.worst_case(f).value) - float(weights @ f) < 1e-9


def local_ends(run: Run, z: Array, s: Array, scale: Array, pull: float, steps: int) -> tuple[Array, Array]:
    """Where every worker's local steps end, (N, p), and the sum of s_j∇f_j over all points on the way."""
    v = run.at(z)[1]
    ends, total = np.repeat(z[None, :], N, axis=0), np.zeros_like(z)
    for _ in range(steps):
        slopes = np.array([run.at(ends[j])[1][j] for j in range(N)])
        total += s @ slopes
        ends = ends - scale * (slopes - v + s @ v) - pull * (ends - z)
    return ends, total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 4])
def test_corrected_local_steps_make_the_means_steps(kind, steps):
    run, s = Run(kind), np.array([0.1, 0.2, 0.3, 0.4])
    z, scale = run.models.z, 0.3 / run.metric / run.c.max()
    ends, total = local_ends(run, z, s, scale, 0.0, steps)
    np.testing.assert_allclose(s @ ends, z - scale * total, atol=1e-12)
    assert float(np.abs(ends - s @ ends).max()) > 1e-4 or steps == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("steps", [1, 3, 20])
def test_local_steps_have_no_other_fixed_points_on_convex_quadratics(seed, steps):
    """‖Σ_j s_j∇m_j(z)‖ >= ‖Σ_j s_j∇f_j(z)‖ in 1/D, m_j the model where worker j's local steps ended."""
    run = Run("quadratic", seed=seed)
    rng = np.random.default_rng(seed)
    z, s, damping = rng.normal(size=P), rng.dirichlet(np.ones(N)), 0.5
    scale = 1.0 / ((1 + damping) * run.c[:, None] * run.metric)
    ends, _ = local_ends(run, z, s, scale, damping / (1 + damping), steps)
    slopes = np.array([run.at(ends[j])[1][j] for j in range(N)])
    models = s @ (slopes + run.c[:, None] * run.metric * (z - ends))
    losses = s @ run.at(z)[1]
    assert models**2 @ (1 / run.metric) >= losses**2 @ (1 / run.metric) - ROUNDING
    assert float(np.abs(ends - z).max()) > 1e-3
