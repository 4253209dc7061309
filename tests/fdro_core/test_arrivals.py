"""The asynchronous baselines: first arrivals by hand, and with a preconditioner in plain NumPy.

What holds for every baseline is in test_every_baseline.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fdro_core import Constant, LeastSquares, VirtualEngine, solve
from fdro_core.baselines import ACE, FedAsync, FedAvg, FedBuff, MixEven
from tests.fdro_core.helpers import Quadratic, machines, softmax_problems
from tests.fdro_core.test_preconditioned_baselines import Followed, root
from uncertainty_sets import Box

METHODS = [FedAsync(), FedBuff(buffer=2), ACE()]
SECONDS = (1.0, 1.625)

every_method = pytest.mark.parametrize("config", METHODS, ids=lambda config: config.label)


def anywhere(workers=2):
    return Box(np.zeros(workers), np.ones(workers))


def steady(seconds=SECONDS, **faults):
    """Worker j takes seconds[j] for every message."""
    return VirtualEngine(delays=[Constant(each) for each in seconds], **faults)


# -- first arrivals -----------------------------------------------------------------------------------------

# ½(w - 4)² and ½(w + 8)², from w = 0. Worker 0 takes 1 s and worker 1 takes 1.625 s, so they arrive in the
# order 0 1 0 0 1, at 1, 1.625, 2, 3 and 3.25 s. With η = ½ a step leads from v to (v + 4)/2 or (v - 8)/2.


def opposed():
    return [Quadratic([4.0]), Quadratic([-8.0])]


def path(config, count, *, every=1):
    """The models after each of the first iterations, and the whole run."""
    models = []
    result = solve(
        opposed(),
        anywhere(),
        algorithm=replace(config, iterations=count, report_interval=every),
        engine=steady(),
        observers=[lambda run, entry: models.append(float(run.master.z[0]))],
    )
    return models, result


def test_fedasync_mixes_the_older_the_less():
    # w_j: 2 (from 0, age 0), -4 (0, age 1), 2.5 (1, age 1), 2.21875 (0.4375, age 0), -4.125 (-0.25, age 2);
    # α_t = ½/(age + 1): 0 + ½·2 = 1;  1 + ¼·(-4 - 1) = -0.25;  -0.25 + ¼·(2.5 + 0.25) = 0.4375;
    # 0.4375 + ½·(2.21875 - 0.4375) = 1.328125;  1.328125 + (1/6)·(-4.125 - 1.328125) = 161/384
    config = FedAsync(step=0.5, local_steps=1, mixing=0.5, staleness_power=1.0)
    models, result = path(config, 5)
    assert models == pytest.approx([1.0, -0.25, 0.4375, 1.328125, 161 / 384], rel=1e-15)
    assert [entry["staleness"] for entry in result.history] == [1, 2, 2, 1, 3]  # an age and the step itself
    assert [entry["clock"] for entry in result.history] == [1.0, 1.625, 2.0, 3.0, 3.25]
    assert [entry["gradients"] for entry in result.history] == [1, 2, 3, 4, 5]


def test_fedasync_without_staleness_and_with_local_steps():
    # two local steps lead from v to v/4 + 3 or v/4 - 6: 0 + ½·3 = 1.5;  1.5 + ½·(-6 - 1.5) = -2.25;
    # -2.25 + ½·(3.375 + 2.25) = 0.5625
    config = FedAsync(step=0.5, local_steps=2, mixing=0.5, staleness_power=0.0)
    models, result = path(config, 3)
    assert models == [1.5, -2.25, 0.5625]
    assert result.gradients == 6


def test_fedbuff_waits_for_k_updates_and_nobody_waits_for_it():
    # moves: 2 and -4 from 0: w = 0 + ½·½(2 - 4) = -0.5. Worker 0 had gone on from 0: 2 again, age 1; then
    # from -0.5: 2.25, age 0: w = -0.5 + ½·½(2/√2 + 2.25) = 0.0625 + √2/4
    models, result = path(FedBuff(step=0.5, local_steps=1, buffer=2, server_step=0.5), 2)
    assert models == pytest.approx([-0.5, 0.0625 + np.sqrt(2) / 4], rel=1e-15)
    assert [entry["clock"] for entry in result.history] == [1.625, 3.0]
    assert [entry["gradients"] for entry in result.history] == [2, 4]
    assert [entry["staleness"] for entry in result.history] == [1, 2]
    assert [entry["active_workers"] for entry in result.history] == [2, 2]


def test_ace_moves_by_everyones_newest_update():
    # updates (worker 0, worker 1), 0 until heard: (2, 0): w = 1;  (2, -4): w = 1 - 1 = 0;
    # from 1: (1.5, -4): w = -1.25;  from -1.25: (2.625, -4): w = -1.25 - 0.6875 = -1.9375;
    # worker 1 from 0: -4 again: w = -1.9375 - 0.6875 = -2.625
    models, result = path(ACE(step=0.5, server_step=1.0), 5)
    assert models == [1.0, 0.0, -1.25, -1.9375, -2.625]
    assert result.gradients == 5
    # β = 1/N = ½: 0.5;  0.5 - 0.5 = 0;  then worker 0 from 0.5: (1.75, -4): ½·(-1.125)
    assert path(ACE(step=0.5), 3)[0] == [0.5, 0.0, -0.5625]
    # L = 1, so η = ½ by default
    assert path(ACE(), 3)[0] == pytest.approx([0.5, 0.0, -0.5625], rel=1e-7)


def test_ace_with_a_largest_age_leaves_old_updates_out():
    # as above until worker 1's update, from iteration 0, is 2 old: (1.5, out): w = 0 + 1.5;
    # from 1.5: (1.25, out): w = 2.75;  worker 1's new one, from iteration 2, comes in iteration 4, too old:
    # (1.25, out): w = 4
    assert path(ACE(step=0.5, server_step=1.0, max_age=1), 5)[0] == [1.0, 0.0, 1.5, 2.75, 4.0]


def test_ace_with_no_update_young_enough_stays():
    # each is used when it arrives at age 0 alone, as the first one is; those of others are older
    models, _ = path(ACE(step=0.5, server_step=1.0, max_age=0), 5)
    # 2/2 (worker 1's 0 is as young);  nothing;  nothing;  worker 0 sent in 3, from 1: 1.5;  nothing
    assert models == [1.0, 1.0, 1.0, 2.5, 2.5]


def test_messages_and_bits_are_counted_as_the_drivers():
    # p = 1: a Train has ticket, w, steps, step and mark, a Trained ticket, w and loss
    one, two = (path(ACE(step=0.5), count)[1].history[-1] for count in (1, 2))
    assert two["bits_down"] - one["bits_down"] == 32 * 5
    assert two["bits_up"] - one["bits_up"] == 32 * 3
    assert two["bytes"] - one["bytes"] == 8 * 8
    assert path(ACE(step=0.5), 4, every=2)[1].history[-1]["iteration"] == 4


@every_method
def test_reports_come_about_once_in_n_updates(config):
    result = solve(softmax_problems(6), anywhere(6), algorithm=replace(config, iterations=24))
    apart = 3 if isinstance(config, FedBuff) else 6
    assert [entry["iteration"] for entry in result.history] == list(range(apart, 25, apart))


# -- one worker: the same as a round ------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("helped", [{}, {"preconditioner": "gradients", "averaging": 0.1}])
def test_with_one_worker_an_arrival_is_a_round(steps, helped):
    shared = {"local_steps": steps, "iterations": 60, "batch_size": 4, "step": 0.01, **helped}
    problems = softmax_problems(1)
    rounds = solve(problems, Box([1.0], [1.0]), algorithm=FedAvg(**shared))
    for config in (FedBuff(buffer=1, **shared), ACE(**shared)):
        single = solve(problems, Box([1.0], [1.0]), algorithm=config)
        assert single.w == pytest.approx(rounds.w, rel=1e-12)
        assert single.losses == pytest.approx(rounds.losses, rel=1e-12)
        for name in ("gradients", "bits_up", "bits_down", "staleness"):
            assert [e[name] for e in single.history] == [e[name] for e in rounds.history]


# -- with a preconditioner, in plain NumPy ------------------------------------------------------------------


def pace(epochs):
    """The step after so many epochs, as a share of the longest, from the formula of the docs."""
    return min(1.0, (1.0 + epochs) / 15) / np.sqrt(1.0 + epochs / 100)


ORDER = [0, 1, 0, 0, 1, 0, 1, 0]  # at 1, 1.625, 2, 3, 3.25, 4, 4.875, 5 s


def targets():
    return [Quadratic([4.0, -1.0]), Quadratic([-8.0, 3.0], scale=2.0)]


def test_ace_with_a_preconditioner():
    problems, w, followed = targets(), np.zeros(2), Followed(2)
    newest, sent, heard = np.zeros((2, 2)), [w, w], [-1, -1]
    for t, j in enumerate(ORDER):
        newest[j] = problems[j].loss_and_gradient(sent[j])[1]
        followed.reply(newest[j], 0.5, gap=max(1.0, (t - heard[j]) / 2))
        w = w - 0.5 * 0.01 * pace(t / 2) * newest.mean(axis=0) / followed.root  # an arrival is half an epoch
        sent[j], heard[j] = w, t
    config = ACE(preconditioner="gradients", step=0.01, iterations=len(ORDER))
    result = solve(targets(), anywhere(), algorithm=config, engine=steady())
    assert result.w == pytest.approx(w, rel=1e-12)


@pytest.mark.parametrize("steps", [1, 3])
def test_fedbuff_with_a_preconditioner(steps):
    problems, w, followed, t, buffer = targets(), np.zeros(2), Followed(2), 0, []
    sent, heard, known = [(w, None, 0, pace(0))] * 2, [-1, -1], None
    for j in ORDER:
        point, metric, at, length = sent[j]
        total = np.zeros(2)
        for _ in range(steps):
            gradient = problems[j].loss_and_gradient(point)[1]
            metric = root(gradient**2) if metric is None else metric
            point, total = point - 0.01 * length * gradient / metric, total + gradient
        followed.reply(total / steps, 0.5, gap=max(1.0, (t - heard[j]) * steps))
        buffer.append(total / steps / np.sqrt(1 + t - at))
        heard[j] = t
        if len(buffer) == 2:
            d, buffer, known = np.mean(buffer, axis=0), [], followed.root
            w = w - 0.5 * steps * 0.01 * pace(t * steps) * d / known  # two updates of E gradients: E epochs
            t += 1
        sent[j] = (w, known, t, pace(t * steps))
    config = FedBuff(
        preconditioner="gradients", step=0.01, server_step=0.5, buffer=2, local_steps=steps, iterations=t
    )
    result = solve(targets(), anywhere(), algorithm=config, engine=steady())
    assert result.w == pytest.approx(w, rel=1e-12)
    assert result.gradients == steps * len(ORDER)


def test_the_step_rises_and_falls_with_epochs_not_with_arrivals():
    """An epoch is N gradients, whatever makes an iteration: as many epochs, the same step."""
    helped = {"preconditioner": "gradients"}
    for workers in (2, 10):
        longest = []
        for config in (
            MixEven(**helped, iterations=30),
            ACE(**helped, iterations=30 * workers),
            FedBuff(**helped, buffer=2, local_steps=5, iterations=3 * workers),
        ):
            master, _ = machines([Quadratic([1.0])] * workers, anywhere(workers), config)
            master.iteration = config.iterations
            longest.append(master._step)
        assert longest == pytest.approx([0.006 * np.sqrt(workers) * pace(30)] * 3, rel=1e-14)


@pytest.mark.parametrize("config", [FedBuff(buffer=2), ACE()], ids=lambda config: config.label)
@pytest.mark.few(2)
def test_with_the_default_step_it_converges(config):
    helped = replace(config, preconditioner="gradients", averaging=0.1, iterations=8000)
    result = solve([Quadratic([0.0]), Quadratic([2.0])], anywhere(), algorithm=helped)
    assert result.w == pytest.approx([1.0], abs=0.05)


def test_a_proximal_term_holds_local_steps_back():
    """f(w) = ½(w - 2)² from 0, η = ½: w₁ = 1, then w₂ = 1 - ½·(-1 + ρ·1), 1 with ρ = 1; α = ½ halves it."""
    problem = [LeastSquares([[1.0]], [2.0], intercept=False)]
    found = {
        rho: solve(
            problem,
            Box([1.0], [1.0]),
            algorithm=FedAsync(
                step=0.5, local_steps=2, mixing=0.5, proximal=rho, iterations=1, metric="none"
            ),
        ).w[0]
        for rho in (0.0, 1.0)
    }
    assert found == pytest.approx({0.0: 0.75, 1.0: 0.5})
