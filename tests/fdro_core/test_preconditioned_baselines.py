"""Baselines with ASPIRE's preconditioner and averaging, against the same steps in plain numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.driver.problems import regression
from fdro_core import AspireModels, LeastSquares, baselines, resume, solve
from fdro_core.baselines import AFL, QFFL, DRFAProx, FedAvg, FedProx, Individual, MixEven, Scaffold, ScaffPD
from fdro_core.baselines._common import RoundWorker
from fdro_core.baselines.rounds import Job, RoundState, close_preconditioned, project
from fdro_core.errors import CheckpointDamaged
from fdro_core.master import checkpoint as snapshots
from fdro_core.master import preconditioner
from fdro_core.observers import Checkpoint
from fdro_core.protocol.engine import Event
from fdro_core.protocol.tuning import PRECONDITIONED_STEP
from tests.fdro_core.helpers import (
    Quadratic,
    machines,
    middle_box,
    softmax_problems,
    square_problems,
)
from uncertainty_sets import KL, Box

HELPED = {"preconditioner": "gradients", "averaging": 0.1}


def root(v):
    """P, from the formula of the docs."""
    return np.sqrt(v) + 1e-3 * np.sqrt(v.mean()) + 1e-12


def step(longest, epochs):
    """η after so many epochs, from the formula of the docs."""
    return longest * min(1.0, (1.0 + epochs) / 15) / np.sqrt(1.0 + epochs / 100)


class Followed:
    """v as it follows replies, from the formula of the docs; in the first epoch it is their plain mean."""

    def __init__(self, workers):
        self.workers, self.replies, self.v = workers, 0, None

    def reply(self, gradient, weight, gap=1.0):
        self.replies += 1
        if self.v is None:
            self.v = gradient**2
            return
        r = min(0.5, max(0.05, 1 / (1 + self.replies / self.workers)) * weight * gap)
        if self.replies <= self.workers:
            r = max(r, 1 / self.replies)
        self.v = (1 - r) * self.v + r * gradient**2

    def round(self, gradients, weights, gap=1.0):
        for gradient, weight in zip(gradients, weights, strict=True):
            self.reply(gradient, weight, gap)

    @property
    def root(self):
        """P."""
        return root(self.v)


def anywhere(workers):
    return Box(np.zeros(workers), np.ones(workers))


def test_two_rounds_of_afl_in_a_few_lines():
    problems, w, weights, metric = square_problems(3, features=4), np.zeros(4), np.full(3, 1 / 3), Followed(3)
    for t in range(2):
        losses, gradients = zip(*(problem.loss_and_gradient(w) for problem in problems), strict=True)
        metric.round(gradients, weights)
        w = w - step(0.01, t) * (weights @ np.array(gradients)) / metric.root
        weights = project(weights + 0.02 * np.array(losses))
    config = AFL(preconditioner="gradients", step=0.01, weight_step=0.02, iterations=2)
    result = solve(problems, anywhere(3), algorithm=config)
    assert result.w == pytest.approx(w, rel=1e-13)
    assert result.weights == pytest.approx(weights, rel=1e-13)
    assert result.gradients == 6


def test_two_rounds_of_fedavg_with_local_steps():
    """A worker steps in its own first gradient's P, then in the one that the master sends."""
    problems, w, followed = square_problems(3, features=4), np.zeros(4), Followed(3)
    for t in range(2):
        sums = []
        for problem in problems:
            local, total, metric = w, np.zeros(4), None if t == 0 else followed.root
            for _ in range(3):
                gradient = problem.loss_and_gradient(local)[1].copy()
                metric = root(gradient**2) if metric is None else metric
                local, total = local - step(0.01, 3 * t) * gradient / metric, total + gradient
            sums.append(total / 3)
        followed.round(sums, np.full(3, 1 / 3), gap=3.0)
        w = w - 3 * step(0.01, 3 * t) * np.mean(sums, axis=0) / followed.root
    config = FedAvg(preconditioner="gradients", step=0.01, local_steps=3, iterations=2)
    result = solve(problems, anywhere(3), algorithm=config)
    assert result.w == pytest.approx(w, rel=1e-12)
    assert result.gradients == 18


@pytest.mark.parametrize("start", [0.0, 1e8])
def test_the_descent_is_the_weighted_gradient_to_the_last_digits(start):
    """Models that were sent and subtracted would lose eight digits at 1e8, and more with short steps."""
    rng = np.random.default_rng(0)
    problems = [Quadratic(start + rng.normal(size=5)) for _ in range(4)]
    config = AFL(preconditioner="gradients", step=1e-6)
    workers = [RoundWorker(j, problem, config) for j, problem in enumerate(problems)]
    master = config.master(
        anywhere(4),
        4,
        lambda messages: {j: workers[j].handle(message) for j, message in messages.items()},
        np.full(5, start),
    )
    for j, message in master.start():
        assert message.inverse is None  # one local step needs no metric
        master.handle(Event(1.0, j, workers[j].handle(message)))
    gradients = [problem.loss_and_gradient(np.full(5, start))[1] for problem in problems]
    assert master.state.squares == pytest.approx(np.mean(np.square(gradients), axis=0), rel=1e-12)


def test_the_marked_model_of_drfa_is_on_the_way_to_the_next():
    """d' is the mean of the first t' gradients: w' = w - t'η·d'/P, in the P of the round."""
    seen = set()
    for seed in range(6):
        config = DRFAProx(preconditioner="gradients", step=0.01, local_steps=2, seed=seed)
        master, (worker,) = machines([Quadratic([2.0, -1.0])], Box([1.0], [1.0]), config)
        ((_, message),) = master.start()
        ((_, asked),) = master.handle(Event(1.0, 0, worker.handle(message)))
        first = -np.array([2.0, -1.0])
        eta = step(0.01, 0)
        second = first - eta * first / root(first**2)
        d = (first + second) / 2
        after = [-eta * first / root(d**2), -2 * eta * d / root(d**2)]
        assert asked.w == pytest.approx(after[message.mark - 1], rel=1e-12)
        assert master.z == pytest.approx(after[1], rel=1e-12)
        seen.add(message.mark)
    assert seen == {1, 2}


@pytest.mark.parametrize(
    ("config", "at", "weights"),
    [
        (AFL(iterations=2500, **HELPED), 1.0, [0.5, 0.5]),
        (MixEven(iterations=2500, **HELPED), 1.0, [0.5, 0.5]),
        (FedAvg(iterations=1000, **HELPED), 1.0, [0.5, 0.5]),
        (Individual(worker_index=1, iterations=2500, **HELPED), 2.0, [0.0, 1.0]),
        (FedProx(iterations=1000, **HELPED), 1.0, [0.5, 0.5]),
        (QFFL(iterations=1000, **HELPED), 1.0, [0.5, 0.5]),
        (Scaffold(iterations=1000, **HELPED), 1.0, [0.5, 0.5]),
        (ScaffPD(iterations=1000, weight_step=0.01, **HELPED), 1.0, [0.5, 0.5]),
        (DRFAProx(iterations=6000, weight_step=0.01, regularisation=1e3, **HELPED), 1.0, [0.5, 0.5]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_method_converges_with_the_default_step(config, at, weights):
    problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 2.0)]
    result = solve(problems, anywhere(2), algorithm=config)
    assert result.w == pytest.approx([at], abs=0.01)
    assert result.weights == pytest.approx(weights, abs=0.01)


def test_the_scale_of_the_losses_cancels():
    config = MixEven(preconditioner="gradients", iterations=50)
    runs = [
        solve([Quadratic([1.0, 2.0], scale)], Box([1.0], [1.0]), algorithm=config).w for scale in (1.0, 1e6)
    ]
    assert runs[1] == pytest.approx(runs[0], rel=1e-9)


def test_no_curvature_is_measured():
    class Counted(Quadratic):
        calls = 0

        def loss_and_gradient(self, w, rng=None, batch_size=None):
            self.calls += 1
            return super().loss_and_gradient(w)

    for config, calls in ((AFL(preconditioner="gradients"), 1), (AFL(step=0.1), 1), (AFL(), 9)):
        problems = [Counted([0.0]), Counted([2.0])]
        master, _ = machines(problems, anywhere(2), config)
        assert [problem.calls for problem in problems] == [calls, calls]
        if config.preconditioned:
            assert master.state.step == pytest.approx(0.006 * np.sqrt(2), rel=1e-15)


def test_the_rule_and_its_step_are_aspires():
    assert PRECONDITIONED_STEP.default == preconditioner.STEP
    for workers in (1, 9, 200):
        usual = PRECONDITIONED_STEP.value(PRECONDITIONED_STEP.default, workers, 1.0)
        assert AspireModels().longest_step(workers) == AFL(preconditioner="gradients").start_step(
            1.0, workers
        )
        assert AspireModels().longest_step(workers) == pytest.approx(usual, rel=1e-15)
    d, metric = np.array([3.0, 0.0, -4.0]), Followed(5)
    v = d**2
    metric.v, metric.replies = v.copy(), 7
    metric.reply(2 * d, 0.3, gap=2.0)
    mean = preconditioner.follow(v, 2 * d, preconditioner.rate(8 / 5, 0.3, 2.0))
    assert v == pytest.approx(metric.v, rel=1e-15)
    assert mean == pytest.approx(v.mean(), rel=1e-15)
    assert preconditioner.metric(v) == pytest.approx(root(v), rel=1e-15)


def test_a_round_without_replies_leaves_model_and_metric():
    for squares in (None, np.array([4.0, 1.0])):
        state = RoundState(np.ones(2), np.ones(1), np.ones(1), np.ones(1), np.ones(1), 0.1, squares=squares)
        close_preconditioned(FedAvg(), state, 0, Job([0], 1), {}, np.random.default_rng(0), 0.1)
        assert state.w.tolist() == [1.0, 1.0]
        assert state.squares is squares


# -- averaging ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0.25, 3.0])
def test_the_result_is_the_running_mean(window):
    # w = 2(1 - 2⁻ᵗ) in round t
    w = average = 0.0
    for t in range(1, 21):
        w = w - 0.5 * (w - 2.0)
        average += min(1.0, 1.0 / max(1.0, window * t)) * (w - average)
    config = Individual(worker_index=1, step=0.5, averaging=window, iterations=20)
    result = solve([Quadratic([0.0]), Quadratic([2.0])], anywhere(2), algorithm=config)
    assert result.w == pytest.approx([average], rel=1e-14)
    assert abs(average - w) > 1e-4
    assert result.losses == pytest.approx([0.5 * average**2, 0.5 * (average - 2.0) ** 2], rel=1e-12)


def test_the_steps_do_not_depend_on_the_average():
    problems = softmax_problems(3)
    plain = AFL(iterations=30, batch_size=4)
    masters = []
    for config in (plain, replace(plain, averaging=0.1)):
        master, workers = machines(problems, middle_box(3), config)
        out = master.start()
        for _ in range(30):
            events = [Event(1.0, j, workers[j].handle(message)) for j, message in out]
            out = [each for event in events for each in master.handle(event)]
        masters.append(master)
    assert np.array_equal(masters[0].z, masters[1].state.w)
    assert not np.array_equal(masters[1].z, masters[1].state.w)


# -- checkpoints --------------------------------------------------------------------------------------------


def saved_at_17(config, path):
    """The state of a checkpoint in round 17, and the run without an interruption."""
    problems, box = softmax_problems(3), middle_box(3)
    first = replace(config, iterations=17)
    solve(problems, box, algorithm=first, observers=[Checkpoint(path)])
    return snapshots.read(path), solve(problems, box, algorithm=config)


@pytest.mark.parametrize(
    ("name", "by", "message"),
    [
        ("squares", lambda v: -v, "squares must be >= 0"),
        ("squares", lambda v: v[:-1], "8 entries where p is 9"),
        ("average", lambda w: w * np.nan, "average holds NaN"),
    ],
)
def test_what_a_checkpoint_has_of_them_is_checked(name, by, message, tmp_path):
    config, path = AFL(iterations=30, **HELPED), tmp_path / "run.npz"
    state, _ = saved_at_17(config, path)
    state["master"]["state"][name] = by(state["master"]["state"][name])
    snapshots.write(path, state)
    with pytest.raises(CheckpointDamaged, match=message):
        resume(path, softmax_problems(3), middle_box(3), algorithm=config)


@pytest.mark.parametrize("workers", [1, 4])
def test_full_batches_end_at_the_optimum(workers):
    """Steps of one length would circle around it; methods that draw workers or wait for none keep theirs."""
    noisy = {"DRFAProx", "ACE", "FedBuff", "Individual"} if workers > 1 else set()
    problems = [
        LeastSquares(each.X, each.y, l2=1e-2, intercept=False) for each in regression(workers, seed=2)
    ]
    for name in set(baselines.__all__) - noisy - {"FedAsync"}:
        algorithm = getattr(baselines, name)(iterations=400, local_steps=1, preconditioner="gradients")
        result = solve(problems, KL(np.full(workers, 1 / workers), 0.1), algorithm=algorithm)
        slope = sum(
            s * each.loss_and_gradient(result.w)[1] for s, each in zip(result.weights, problems, strict=True)
        )
        assert np.abs(slope).max() < 1e-6, name


def test_the_step_grows_on_the_way_and_shrinks_past_the_end():
    ahead = np.array([1.0, 0.5])
    assert preconditioner.adapted(0.1, ahead, None) == 0.1
    assert preconditioner.adapted(0.1, ahead, 3.0 * ahead) > 0.1
    assert preconditioner.adapted(0.1, ahead, -ahead) < 0.1
    assert preconditioner.adapted(0.1, ahead, 0.0 * ahead) == 0.1
