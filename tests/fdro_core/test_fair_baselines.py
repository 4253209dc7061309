"""FedProx and q-FFL: rounds worked out by hand, and where they come to rest by a direct solution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from fdro_core import LeastSquares, solve
from fdro_core.baselines import QFFL, FedAvg, FedProx
from fdro_core.errors import InvalidProblem, InvalidSetting
from tests.fdro_core.helpers import Quadratic, square_problems
from tests.fdro_core.test_preconditioned_baselines import Followed, anywhere, root, step


def final(config, problems):
    result = solve(problems, anywhere(len(problems)), algorithm=config)
    return float(result.w[0]), result


def pair():
    """½w² and ½(w - 2)², from w = 0."""
    return [Quadratic([0.0]), Quadratic([2.0])]


def with_metric(value):
    """½(w - 2)² in the metric D = value."""
    problem = Quadratic([2.0])
    problem.metric = lambda: np.array([value])
    return problem


def uneven(workers=3, features=3):
    """Least squares of different sizes, curvatures and solutions."""
    rng = np.random.default_rng(5)
    return [
        LeastSquares(
            (1.0 + j) * rng.normal(size=(8 + 4 * j, features)), rng.normal(size=8 + 4 * j), intercept=False
        )
        for j in range(workers)
    ]


def form(problem):
    """H and b of a quadratic f(w) = ½wᵀHw - bᵀw + f(0), from its gradients."""
    at_zero = problem.loss_and_gradient(np.zeros(problem.dimension))[1].copy()
    columns = [problem.loss_and_gradient(e)[1] - at_zero for e in np.eye(problem.dimension)]
    return np.array(columns), -at_zero


def shares_of(problems):
    counts = np.array([problem.samples for problem in problems], dtype=float)
    return counts / counts.sum()


# -- FedProx --------------------------------------------------------------------------------------


def test_two_rounds_of_fedprox_by_hand():
    # η = μ = ½, E = 2. From 0 worker 0 stays; worker 1 goes to 1, then 1 - ½(-1 + ½·1) = 1.25: mean 0.625.
    # From 0.625 worker 0 goes to 0.3125, then 0.3125 - ½(0.3125 - ½·0.3125) = 0.234375; worker 1 goes to
    # 1.3125, then 1.3125 - ½(-0.6875 + ½·0.6875) = 1.484375: mean 0.859375
    for rounds, expected in ((1, 0.625), (2, 0.859375)):
        config = FedProx(step=0.5, proximal=0.5, local_steps=2, iterations=rounds)
        w, result = final(config, pair())
        assert w == expected
        assert result.gradients == 4 * rounds


def test_the_proximal_term_is_in_the_metric_of_the_steps():
    # D = 4, η = μ = ½: 0 + (½/4)·2 = 0.25, then 0.25 + (½/4)·1.75 - ½·½·0.25 = 0.40625;
    # without the metric 0 + ½·2 = 1, then 1 + ½·1 - ¼·1 = 1.25
    for metric, expected in (("problem", 0.40625), ("none", 1.25)):
        config = FedProx(step=0.5, proximal=0.5, local_steps=2, iterations=1, metric=metric)
        assert final(config, [with_metric(4.0)])[0] == expected


def test_fedprox_without_a_weight_is_fedavg():
    problems = square_problems(3)
    settings = {"step": 0.1, "iterations": 20}
    one = solve(problems, anywhere(3), algorithm=FedProx(proximal=0.0, **settings))
    other = solve(problems, anywhere(3), algorithm=FedAvg(**settings))
    assert np.array_equal(one.w, other.w)
    assert one.history[-1]["bits_down"] == other.history[-1]["bits_down"]
    different = solve(problems, anywhere(3), algorithm=FedProx(proximal=0.5, **settings))
    assert not np.allclose(different.w, one.w, atol=1e-4)


def test_fedprox_rests_where_its_affine_map_does():
    """E steps map w to M^E·w + (Σ_{i<E} M^i)·η(b + μw) with M = I - η(H + μI): one linear system."""
    problems, eta, mu, E = uneven(), 0.02, 1.5, 6
    shares, slope, offset = shares_of(problems), np.zeros((3, 3)), np.zeros(3)
    for share, problem in zip(shares, problems, strict=True):
        H, b = form(problem)
        M = np.eye(3) - eta * (H + mu * np.eye(3))
        powers = sum(np.linalg.matrix_power(M, i) for i in range(E))
        slope += share * (np.linalg.matrix_power(M, E) + eta * mu * powers)
        offset += share * powers @ (eta * b)
    rest = np.linalg.solve(np.eye(3) - slope, offset)
    config = FedProx(step=eta, proximal=mu, local_steps=E, metric="none", iterations=500)
    assert solve(problems, anywhere(3), algorithm=config).w == pytest.approx(rest, abs=1e-9)


def test_two_rounds_of_fedprox_with_a_preconditioner():
    problems, w, followed = square_problems(3, features=4), np.zeros(4), Followed(3)
    for t in range(2):
        sums = []
        for problem in problems:
            local, total, metric = w, np.zeros(4), None if t == 0 else followed.root
            for _ in range(3):
                gradient = problem.loss_and_gradient(local)[1] + 0.7 * (local - w)
                metric = root(gradient**2) if metric is None else metric
                local, total = local - step(0.1, 3 * t) * gradient / metric, total + gradient
            sums.append(total / 3)
        followed.round(sums, np.full(3, 1 / 3), gap=3.0)
        w = w - 3 * step(0.1, 3 * t) * np.mean(sums, axis=0) / followed.root
    settings = {"preconditioner": "gradients", "metric": "none", "step": 0.1, "local_steps": 3}
    config = FedProx(proximal=0.7, iterations=2, **settings)
    assert solve(problems, anywhere(3), algorithm=config).w == pytest.approx(w, rel=1e-12)


# -- q-FFL ----------------------------------------------------------------------------------------


def test_two_rounds_of_q_ffl_by_hand():
    # q = 1, η = ½, so L = 2. At w = 0: f = (0, 2). Worker 0 stays: Δ = h = 0. Worker 1 goes to 1:
    # Δ = 2·2(0 - 1) = -4, h = 1·2⁰·(-2)² + 2·2 = 8; w = 0 + 4/8 = 0.5.
    # At 0.5: f = (0.125, 1.125). Worker 0 goes to 0.25: Δ = 0.125·0.5 = 0.0625, h = 0.5² + 2·0.125 = 0.5.
    # Worker 1 goes to 1.25: Δ = 1.125·(-1.5) = -1.6875, h = 1.5² + 2·1.125 = 4.5; w = 0.5 + 1.625/5 = 0.825
    for rounds, expected, weights in ((1, 0.5, [0.0, 1.0]), (2, 0.825, [0.1, 0.9])):
        w, result = final(QFFL(power=1.0, step=0.5, local_steps=1, iterations=rounds), pair())
        assert w == pytest.approx(expected, rel=1e-15)
        assert result.weights == pytest.approx(weights, rel=1e-15)


def test_q_ffl_weighs_by_samples():
    # q = 2, L = 2, p = (¼, ¾). At 0: f = (½, 2), L(w - w_j) = (-1, -2), Δ = (-¼, -8),
    # h = (2·½·1 + 2·¼, 2·2·4 + 2·4) = (1.5, 24); w = (¼·¼ + ¾·8) / (¼·1.5 + ¾·24) = 97/294
    problems = [Quadratic([1.0]), Quadratic([2.0])]
    problems[0].samples, problems[1].samples = 1, 3
    w, _ = final(QFFL(power=2.0, step=0.5, local_steps=1, iterations=1), problems)
    assert w == pytest.approx(97 / 294, rel=1e-15)


def test_a_loss_of_zero_with_a_power_below_one():
    # q = ½, L = 2. Worker 0 has f = 0 and no part. Worker 1: Δ = √2·(-2), h = ½·4/√2 + 2√2 = 3√2; w = 2/3
    w, result = final(QFFL(power=0.5, step=0.5, local_steps=1, iterations=1), pair())
    assert w == pytest.approx(2 / 3, rel=1e-15)
    assert result.weights.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("power", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("help_", ["none", "gradients"])
def test_with_every_loss_zero_the_model_stays(power, help_):
    config = QFFL(power=power, step=0.5, iterations=3, preconditioner=help_)
    w, result = final(config, [Quadratic([0.0]), Quadratic([0.0])])
    assert w == 0.0
    assert result.weights.tolist() == [0.5, 0.5]


def test_the_norm_of_q_ffl_is_in_the_metric():
    # D = 4: in u = 2w, f = ½(u/2 - 2)² has the gradient -1 at 0. q = 1, L = 2: Δ = 2·(-1), h = 1 + 2·2;
    # u = 2/5, w = 0.2. With metric="none": L(w - w_j) = -2, Δ = -4, h = 4 + 4; w = 0.5
    for metric, expected in (("problem", 0.2), ("none", 0.5)):
        config = QFFL(power=1.0, step=0.5, local_steps=1, iterations=1, metric=metric)
        assert final(config, [with_metric(4.0)])[0] == pytest.approx(expected, rel=1e-15)


def test_losses_below_zero_end_the_run_in_words():
    problems = [Quadratic([0.0], shift=1.0), Quadratic([2.0], shift=-5.0)]
    with pytest.raises(InvalidProblem, match=r"must be >= 0, and worker 1 reports -3: add a constant"):
        final(QFFL(power=0.5, step=0.5), problems)
    assert final(QFFL(power=0.0, step=0.5, iterations=60), problems)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("scale", [1e-120, 1.0, 1e120])
def test_the_scale_of_the_losses_cancels_in_a_high_power(scale):
    config = QFFL(power=12.0, step=0.3 / scale, local_steps=1, iterations=30)
    w, _ = final(config, [Quadratic([0.5], scale), Quadratic([2.0], scale)])
    assert w == pytest.approx(final(QFFL(power=12.0, step=0.3, local_steps=1, iterations=30),
                                    [Quadratic([0.5]), Quadratic([2.0])])[0], rel=1e-9)  # fmt: skip


@pytest.mark.parametrize("settings", [{}, {"preconditioner": "gradients", "step": 0.01}])
def test_power_zero_is_fedavg(settings):
    settings = {"step": 0.1, "iterations": 20, **settings}
    one = solve(uneven(), anywhere(3), algorithm=QFFL(power=0.0, **settings))
    other = solve(uneven(), anywhere(3), algorithm=FedAvg(**settings))
    assert one.w == pytest.approx(other.w, rel=1e-12)
    assert one.weights == pytest.approx(other.weights, rel=1e-12)


@pytest.mark.parametrize("power", [0.3, 1.0, 4.0])
def test_q_ffl_reaches_the_minimum_of_its_objective(power):
    problems = uneven()
    shares = shares_of(problems)

    def objective(w):
        pairs = [problem.loss_and_gradient(w) for problem in problems]
        losses, gradients = np.array([f for f, _ in pairs]), np.array([g for _, g in pairs])
        return shares @ losses ** (power + 1) / (power + 1), (shares * losses**power) @ gradients

    best = minimize(objective, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-11})
    config = QFFL(power=power, local_steps=1, iterations=2000, report_interval=500)
    result = solve(problems, anywhere(3), algorithm=config)
    assert result.w == pytest.approx(best.x, abs=1e-6)
    mean = sum(share * form(problem)[0] for share, problem in zip(shares, problems, strict=True))
    plain = np.linalg.solve(
        mean, sum(s * form(problem)[1] for s, problem in zip(shares, problems, strict=True))
    )
    assert np.abs(best.x - plain).max() > 1e-3  # q = 0 has its minimum elsewhere


def test_a_round_of_q_ffl_with_a_preconditioner():
    problems, w, weights, followed = (
        square_problems(3, features=4),
        np.zeros(4),
        np.full(3, 1 / 3),
        Followed(3),
    )
    for t in range(2):
        losses, gradients = zip(*(problem.loss_and_gradient(w) for problem in problems), strict=True)
        followed.round(gradients, weights / weights.sum())  # by the weights of the round before
        weights = np.array(losses) ** 1.5
        w = w - step(0.01, t) * (weights @ np.array(gradients) / weights.sum()) / followed.root
    config = QFFL(preconditioner="gradients", power=1.5, step=0.01, local_steps=1, iterations=2)
    result = solve(problems, anywhere(3), algorithm=config)
    assert result.w == pytest.approx(w, rel=1e-12)
    assert result.weights == pytest.approx(weights / weights.sum(), rel=1e-12)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (FedProx(proximal=-0.1), r"proximal \(μ\) must be a finite number >= 0"),
        (QFFL(power=-1.0), r"power \(q\) must be a finite number >= 0"),
        (QFFL(power=float("inf")), r"power \(q\) must be a finite number >= 0"),
    ],
)
def test_wrong_settings_are_refused(config, words):
    with pytest.raises(InvalidSetting, match=words):
        final(config, pair())
