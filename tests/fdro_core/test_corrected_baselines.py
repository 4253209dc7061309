"""SCAFFOLD and SCAFF-PD: rounds worked out by hand, and where they come to rest by other solvers."""

from __future__ import annotations

import cvxpy
import numpy as np
import pytest
from scipy.optimize import minimize

from fdro_core import Constant, Crash, VirtualEngine, solve
from fdro_core.baselines import FedAvg, Scaffold, ScaffPD
from fdro_core.baselines.rounds import project
from fdro_core.errors import InvalidSetting
from fdro_core.protocol.engine import Event
from fdro_core.protocol.messages import Train
from tests.fdro_core.helpers import Quadratic, machines, square_problems
from tests.fdro_core.test_fair_baselines import form, uneven
from tests.fdro_core.test_preconditioned_baselines import Followed, anywhere, root, step
from uncertainty_sets import Box


def pair():
    """½w² and ¼(w - 2)², from w = 0: of different curvature, so that local steps drift apart."""
    return [Quadratic([0.0]), Quadratic([2.0], 0.5)]


def after(config, rounds, problems=None):
    """The master after some rounds, with the messages that it sends then."""
    problems = problems or pair()
    master, workers = machines(problems, anywhere(len(problems)), config)
    out = master.start()
    while master.iteration < rounds:
        out = [new for j, m in out for new in master.handle(Event(1.0, j, workers[j].handle(m)))]
    return master, out


def minimax(problems):
    """The smallest largest loss and its model, by cvxpy."""
    w = cvxpy.Variable(problems[0].dimension)
    losses = []
    for problem in problems:
        H, b = form(problem)
        at_zero = problem.loss_and_gradient(np.zeros(problem.dimension))[0]
        losses.append(0.5 * cvxpy.quad_form(w, cvxpy.psd_wrap(H)) - b @ w + at_zero)
    value = cvxpy.Problem(cvxpy.Minimize(cvxpy.maximum(*losses))).solve(solver="CLARABEL")
    return value, w.value


# -- the worker's shift ---------------------------------------------------------------------------


def test_a_worker_adds_the_shift_to_every_gradient():
    # ½(w - 2)² from 0 with η = ½: 0 - ½(-2 + 0.5) = 0.75, then 0.75 - ½(-1.25 + 0.5) = 1.125
    _, (worker,) = machines([Quadratic([2.0])], Box([1.0], [1.0]), Scaffold())
    message = Train(1, np.zeros(1), 2, 0.5, shift=np.array([0.5]))
    reply = worker.handle(message)
    assert (reply.w[0], reply.loss) == (1.125, 2.0)
    assert message.numbers - Train(1, np.zeros(1), 2, 0.5).numbers == 1


# -- SCAFFOLD -------------------------------------------------------------------------------------


def test_two_rounds_of_scaffold_by_hand():
    # η = ½, E = 2, c = c_j = 0. Worker 0 stays at 0; worker 1 has the gradients -1 at 0 and -0.75 at 0.5 and
    # ends at 0.875: w = 0.4375, c_0 = 0, c_1 = (0 - 0.875)/(2·½) = -0.875, c = -0.4375.
    # Worker 0 (c - c_0 = -0.4375): 0.4375 - 0.4375 = 0, so it stays at 0.4375.
    # Worker 1 (c - c_1 = 0.4375): -0.78125 + 0.4375 leads to 0.609375, -0.6953125 + 0.4375 to 0.73828125:
    # w = 0.587890625, c_0 = 0.4375, c_1 = (-0.78125 - 0.6953125)/2 = -0.73828125
    master, out = after(Scaffold(step=0.5, local_steps=2), 1)
    assert master.z.tolist() == [0.4375]
    assert master.state.controls.tolist() == [[0.0], [-0.875]]
    assert {j: message.shift.tolist() for j, message in out} == {0: [-0.4375], 1: [0.4375]}
    master, _ = after(Scaffold(step=0.5, local_steps=2), 2)
    assert master.z.tolist() == [0.587890625]
    assert master.state.controls.tolist() == [[0.4375], [-0.73828125]]
    assert master.gradients == 8


def test_the_global_step_scales_the_mean_move():
    # half of the way from 0 to 0.4375; c_j does not depend on it
    master, _ = after(Scaffold(step=0.5, local_steps=2, global_step=0.5), 1)
    assert master.z.tolist() == [0.21875]
    assert master.state.controls.tolist() == [[0.0], [-0.875]]


def test_controls_are_gradients_in_any_metric():
    problems = square_problems(3)
    for problem, scale in zip(problems, (1.0, 4.0, 9.0), strict=True):
        problem.metric = lambda scale=scale: np.array([scale, 2.0])
    master, _ = after(Scaffold(step=0.1, local_steps=1), 1, problems)
    gradients = [problem.loss_and_gradient(np.zeros(2))[1].copy() for problem in problems]
    assert master.state.controls == pytest.approx(np.array(gradients), rel=1e-12)


@pytest.mark.thorough
def test_scaffold_reaches_the_optimum_where_fedavg_does_not():
    problems = uneven()
    forms = [form(problem) for problem in problems]
    optimum = np.linalg.solve(sum(H for H, _ in forms), sum(b for _, b in forms))
    for problem in problems:
        problem.samples = 1  # FedAvg minimises the same mean of losses
    settings = {"local_steps": 8, "step": 0.03, "metric": "none", "iterations": 500, "report_interval": 100}
    biased = solve(problems, anywhere(3), algorithm=FedAvg(**settings))
    assert np.abs(biased.w - optimum).max() > 1e-2
    for more in ({}, {"clients": 2}, {"metric": "problem"}, {"global_step": 0.5}):
        result = solve(problems, anywhere(3), algorithm=Scaffold(**settings | more))
        assert result.w == pytest.approx(optimum, abs=1e-8)


def test_a_worker_that_is_lost_for_good_leaves_with_its_control():
    problems = uneven()
    (H, b), (G, c), _ = (form(problem) for problem in problems)
    engine = VirtualEngine(delays=Constant(1.0), crashes=[Crash(2, 3.5)])
    config = Scaffold(local_steps=8, step=0.03, metric="none", iterations=500)
    result = solve(problems, anywhere(3), algorithm=config, engine=engine)
    assert result.w == pytest.approx(np.linalg.solve(H + G, b + c), abs=1e-8)


def test_messages_down_are_twice_those_of_fedavg_and_up_the_same():
    problems = square_problems(3, features=4)
    settings = {"step": 0.1, "local_steps": 2, "iterations": 5}
    one = solve(problems, anywhere(3), algorithm=Scaffold(**settings)).history[-1]
    other = solve(problems, anywhere(3), algorithm=FedAvg(**settings)).history[-1]
    assert one["bits_down"] - other["bits_down"] == 32 * 3 * 4 * 6  # N·p in 5 rounds, and in the one begun
    assert one["bits_up"] == other["bits_up"]


def test_three_rounds_of_scaffold_with_a_preconditioner():
    problems, w, followed = square_problems(3, features=4), np.zeros(4), Followed(3)
    controls = np.zeros((3, 4))
    for t in range(3):
        means, shift = [], controls.mean(axis=0) - controls
        for problem, own in zip(problems, shift, strict=True):
            local, gradients, metric = w, [], None if t == 0 else followed.root
            for _ in range(3):
                gradients.append(problem.loss_and_gradient(local)[1].copy())
                along = gradients[-1] + own
                metric = root(along**2) if metric is None else metric
                local = local - step(0.1, 3 * t) * along / metric
            means.append(np.mean(gradients, axis=0))
        controls = np.array(means)
        followed.round(controls, np.full(3, 1 / 3), gap=3.0)  # the gradients without the shift
        w = w - 3 * step(0.1, 3 * t) * controls.mean(axis=0) / followed.root
    config = Scaffold(preconditioner="gradients", step=0.1, local_steps=3, iterations=3)
    result = solve(problems, anywhere(3), algorithm=config)
    assert result.w == pytest.approx(w, rel=1e-11)


# -- SCAFF-PD -------------------------------------------------------------------------------------


def test_two_rounds_of_scaff_pd_by_hand():
    # η = ½, γ = 0.1, E = 2, so λ steps by 0.2; θ = 1. At 0: f = s = (0, 1), λ = Π(0.5, 0.7) = (0.4, 0.6),
    # c_j = (0, -1), c = -0.6. Both go to 0.3; worker 0 then to 0.3 - ½(0.3 - 0.6) = 0.45, worker 1 to
    # 0.3 - ½(-0.85 + 0.4) = 0.525: w = 0.4·0.45 + 0.6·0.525 = 0.495.
    # At 0.495: f = (0.1225125, 0.56625625), s = 2f - (0, 1) = (0.245025, 0.1325125),
    # λ = Π(0.449005, 0.6265025) = (0.41125125, 0.58874875), c_j = (0.495, -0.7525), c = -0.239464065625.
    # Both go to 0.495 - c/2 = 0.6147320328125; worker 0 to 0.6147320328125 - ½(0.1197320328125 + c) =
    # 0.67459804921875, worker 1 to 0.6147320328125 - ½(-0.69263398359375 + 0.7525 + c) = 0.704531057421875:
    # w = 0.41125125·0.67459804921875 + 0.58874875·0.704531057421875 = 0.6922210703820796
    config = ScaffPD(step=0.5, weight_step=0.1, local_steps=2)
    master, out = after(config, 1)
    assert master.z == pytest.approx([0.495], rel=1e-14)
    assert master.state.weights == pytest.approx([0.4, 0.6], rel=1e-14)
    assert [message.shift for _, message in out] == [None, None]  # the first phase asks for the gradient
    assert {message.steps for _, message in out} == {1}
    master, _ = after(config, 2)
    assert master.z == pytest.approx([0.6922210703820796], rel=1e-14)
    assert master.state.weights == pytest.approx([0.41125125, 0.58874875], rel=1e-14)
    assert master.gradients == 2 * 2 * (1 + 2)


def test_without_extrapolation_the_weights_follow_the_losses():
    # E = 1: at 0 λ = Π(0.5, 0.6) = (0.45, 0.55), w = ½·0.55 = 0.275; f = (0.0378125, 0.74390625), and
    # λ = Π(0.45378125, 0.624390625) = (0.4146953125, 0.5853046875)
    config = ScaffPD(step=0.5, weight_step=0.1, local_steps=1, extrapolation=0.0)
    assert after(config, 2)[0].state.weights == pytest.approx([0.4146953125, 0.5853046875], rel=1e-14)


def test_the_regulariser_holds_the_weights_at_the_prior():
    # f = (0, 1), q = (½, ½), μ = 1, γ = 0.1: λ = Π((0.55, 0.65)/1.1) = (0.5 - 1/22, 0.5 + 1/22)
    config = ScaffPD(step=0.5, weight_step=0.1, local_steps=1, regularisation=1.0)
    assert after(config, 1)[0].state.weights == pytest.approx([10 / 22, 12 / 22], rel=1e-14)


@pytest.mark.parametrize("more", [{}, {"metric": "problem"}, {"global_step": 0.5}])
@pytest.mark.few(1)
def test_scaff_pd_reaches_the_minimax_model(more):
    problems = uneven()
    value, best = minimax(problems)
    losses = np.array([problem.loss_and_gradient(best)[0] for problem in problems])
    assert np.sort(losses)[-2] == pytest.approx(value, abs=1e-6)  # at least two workers are worst
    settings = {"step": 0.02, "weight_step": 0.02, "local_steps": 6, "metric": "none", "iterations": 1500}
    config = ScaffPD(report_interval=500, **settings | more)
    result = solve(problems, anywhere(3), algorithm=config)
    assert result.losses.max() == pytest.approx(value, abs=1e-8)
    assert result.w == pytest.approx(best, abs=1e-4)  # √ of the reference's error in the value


def test_scaff_pd_reaches_the_regularised_saddle_point():
    problems, mu, prior = uneven(), 0.8, np.full(3, 1 / 3)

    def objective(w):
        pairs = [problem.loss_and_gradient(w) for problem in problems]
        losses, gradients = np.array([f for f, _ in pairs]), np.array([g for _, g in pairs])
        weights = project(prior + losses / mu)  # the maximum of λᵀf - (μ/2)‖λ - q‖²
        return weights @ losses - 0.5 * mu * np.sum((weights - prior) ** 2), weights @ gradients

    best = minimize(objective, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-10}).x
    losses = np.array([problem.loss_and_gradient(best)[0] for problem in problems])
    config = ScaffPD(step=0.02, weight_step=0.02, local_steps=6, regularisation=mu, iterations=1000)
    result = solve(problems, anywhere(3), algorithm=config)
    assert result.w == pytest.approx(best, abs=1e-6)
    assert result.weights == pytest.approx(project(prior + losses / mu), abs=1e-6)
    assert np.abs(best - minimax(problems)[1]).max() > 1e-3


def test_the_control_of_a_lost_worker_has_no_part():
    """Where the model rests, the gradients of the others cancel by their weights."""
    problems = uneven()
    engine = VirtualEngine(delays=Constant(1.0), crashes=[Crash(0, 7.5)])
    config = ScaffPD(step=0.02, weight_step=0.02, local_steps=6, dead_losses="drop", iterations=1500)
    result = solve(problems, anywhere(3), algorithm=config, engine=engine)
    assert result.weights[0] == 0.0
    assert result.weights[1:].min() > 0.1
    gradients = np.array([problem.loss_and_gradient(result.w)[1] for problem in problems])
    assert result.weights @ gradients == pytest.approx(np.zeros(3), abs=1e-8)
    assert np.abs(gradients[1:]).max() > 1e-2


def test_two_rounds_of_scaff_pd_with_a_preconditioner():
    problems, w, followed = square_problems(3, features=4), np.zeros(4), Followed(3)
    weights, earlier = np.full(3, 1 / 3), None
    for t in range(2):
        losses, gradients = map(np.array, zip(*(p.loss_and_gradient(w) for p in problems), strict=True))
        s = losses if earlier is None else 2 * losses - earlier
        followed.round(gradients, weights)  # those of the first phase too
        weights, earlier = project(weights + 3 * 0.05 * s), losses
        c, means = weights @ gradients, []
        for problem, own in zip(problems, gradients, strict=True):
            local, total, metric = w, np.zeros(4), followed.root
            for _ in range(3):
                along = problem.loss_and_gradient(local)[1] - own + c
                local, total = local - step(0.1, 3 * t) * along / metric, total + along
            means.append(total / 3)
        d = weights @ np.array(means)
        followed.round(np.array(means) - c + gradients, weights, gap=3.0)
        w = w - 3 * step(0.1, 3 * t) * d / followed.root
    config = ScaffPD(preconditioner="gradients", step=0.1, weight_step=0.05, local_steps=3, iterations=2)
    result = solve(problems, anywhere(3), algorithm=config)
    assert result.w == pytest.approx(w, rel=1e-11)
    assert result.weights == pytest.approx(weights, rel=1e-12)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Scaffold(global_step=0.0), r"global_step \(η_g\) must be a finite number > 0"),
        (Scaffold(clients=3), "clients must be in 1..2"),
        (ScaffPD(extrapolation=-0.5), r"extrapolation \(θ\) must be a finite number >= 0"),
        (ScaffPD(regularisation=-1.0), r"regularisation \(μ\) must be a finite number >= 0"),
    ],
)
def test_wrong_settings_are_refused(config, words):
    with pytest.raises(InvalidSetting, match=words):
        solve(pair(), anywhere(2), algorithm=config)
