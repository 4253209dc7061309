"""The baselines: each against steps worked out by hand, and with faults.

What holds for every baseline is in test_every_baseline.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from fdro_core import Constant, Crash, Straggler, VirtualEngine, solve
from fdro_core.baselines import AFL, DRFAProx, FedAvg, Individual, MixEven
from fdro_core.baselines._common import RoundWorker
from fdro_core.baselines.rounds import project
from fdro_core.errors import InvalidSetting, NoWorkersLeft, WorkerWarning
from fdro_core.observers import StopWhenStationary
from fdro_core.protocol.engine import Event
from fdro_core.protocol.messages import Hello, Train, Trained
from tests.fdro_core.helpers import Faulty, Quadratic, machines, middle_box, softmax_problems
from uncertainty_sets import KL, Box

N = 5


def pair() -> list[Quadratic]:
    """½w² and ½(w - 2)², from w = 0."""
    return [Quadratic([0.0]), Quadratic([2.0])]


def even() -> Box:
    return Box([0.0, 0.0], [1.0, 1.0])


def final(config, problems=None, chosen=None):
    result = solve(problems or pair(), chosen or even(), algorithm=config)
    return float(result.w[0]), result


def test_individual_learns_from_one_worker():
    # 0 - ½(0 - 2) = 1, then 1 - ½(1 - 2) = 1.5
    w, result = final(Individual(worker_index=1, step=0.5, iterations=2))
    assert w == 1.5
    assert result.gradients == 2
    assert result.losses.tolist() == [1.125, 0.125]
    assert result.weights.tolist() == [0.0, 1.0]


def test_mix_even_takes_the_mean_gradient():
    # 0 - ½·½(0 - 2) = 0.5, then 0.5 - ½·½(0.5 - 1.5) = 0.75
    assert final(MixEven(step=0.5, iterations=2))[0] == 0.75


def test_fedavg_averages_after_local_steps():
    # worker 0 stays at 0, worker 1 goes 0, 1, 1.5: mean 0.75;
    # then 0.75, 0.375, 0.1875 and 0.75, 1.375, 1.6875: mean 0.9375
    w, result = final(FedAvg(step=0.5, local_steps=2, iterations=2))
    assert w == 0.9375
    assert result.gradients == 8


def test_fedavg_weighs_by_samples():
    problems = pair()
    problems[0].samples, problems[1].samples = 1, 3
    # 0 and 1 with weights ¼ and ¾
    assert final(FedAvg(step=0.5, local_steps=1, iterations=1), problems)[0] == 0.75


def test_afl_descends_and_ascends_from_the_same_point():
    # f = (0, 2) at w = 0: w = ½·½·2 = 0.5, λ = Π(0.5, 0.7) = (0.4, 0.6);
    # f = (0.125, 1.125) at 0.5: w = 0.5 - ½(0.4·0.5 - 0.6·1.5) = 0.85, λ = Π(0.4125, 0.7125) = (0.35, 0.65)
    w, result = final(AFL(step=0.5, weight_step=0.1, iterations=2))
    assert w == pytest.approx(0.85, abs=1e-15)
    assert result.weights == pytest.approx([0.35, 0.65], abs=1e-15)


def test_drfa_prox_by_hand():
    # λ = q = (0, 1): only worker 1 is drawn. w = w' = 1; f(w') = (4.5, 0.5);
    # λ = Π(((0, 1) + 0.1·((4.5, 0.5) + (0, 1))) / 1.1) = Π(0.45/1.1, 1.15/1.1) = (2/11, 9/11)
    problems, prior = [Quadratic([4.0]), Quadratic([2.0])], KL([0.0, 1.0], 0.0)
    config = DRFAProx(step=0.5, weight_step=0.1, regularisation=1.0, local_steps=1, iterations=1)
    w, result = final(config, problems, prior)
    assert w == 1.0
    assert result.weights == pytest.approx([2 / 11, 9 / 11], abs=1e-15)


def machine(config, problems, chosen):
    return machines(problems, chosen, config)


def test_drfa_asks_a_few_and_scales_their_losses():
    # m = 1 of N = 2: the one that is asked counts double, the other not at all
    config = DRFAProx(step=0.5, weight_step=0.01, regularisation=0.0, local_steps=2, clients=1, seed=3)
    master, workers = machine(config, [Quadratic([1.0]), Quadratic([2.0])], even())
    ((trained, message),) = master.start()
    assert message.mark in {1, 2}
    reply = workers[trained].handle(message)
    centre = trained + 1.0
    ((asked, message),) = master.handle(Event(1.0, trained, reply))
    after = [None, 0.5 * centre, 0.75 * centre]
    assert message.steps == 0
    assert message.w == pytest.approx([after[master.job.mark or reply_mark(reply, after)]])
    reply = workers[asked].handle(message)
    loss = 0.5 * (message.w[0] - (asked + 1.0)) ** 2
    master.handle(Event(2.0, asked, reply))
    v = np.zeros(2)
    v[asked] = 2 * loss
    assert master.state.weights == pytest.approx(project(np.full(2, 0.5) + 0.02 * v))
    assert master.z == pytest.approx([0.75 * centre])


def reply_mark(reply: Trained, after) -> int:
    return 1 if reply.marked == pytest.approx([after[1]]) else 2


def test_a_worker_marks_the_step_it_is_asked_for():
    worker = RoundWorker(0, Quadratic([2.0]), DRFAProx())
    worker.handle(Hello())
    _, (worker,) = machine(DRFAProx(), [Quadratic([2.0])], Box([1.0], [1.0]))
    reply = worker.handle(Train(1, np.zeros(1), 3, 0.5, 2))
    assert (reply.loss, reply.marked[0], reply.w[0]) == (2.0, 1.5, 1.75)
    again = worker.handle(Train(1, np.zeros(1), 3, 0.5, 2))
    assert np.array_equal(again.w, reply.w)


def test_projection_on_the_simplex():
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.normal(size=6)
        nearest = project(values)
        assert nearest.min() >= 0
        assert nearest.sum() == pytest.approx(1.0)
        gap = values - nearest  # optimal: one threshold where positive, at most that elsewhere
        level = gap[nearest > 0]
        assert np.ptp(level) < 1e-12
        assert (gap[nearest == 0] <= level[0] + 1e-12).all()


def test_afl_reaches_the_minimax_point():
    problems = [Quadratic([0.0, 0.0]), Quadratic([2.0, 0.0]), Quadratic([1.0, 3.0])]
    result = solve(problems, Box(np.zeros(3), np.ones(3)), algorithm=AFL(step=0.05, weight_step=0.02))
    # the centre of the circle through the three points: (1, 4/3), radius 5/3
    assert result.w == pytest.approx([1.0, 4 / 3], abs=1e-3)
    assert result.objective == pytest.approx(0.5 * (5 / 3) ** 2, abs=1e-3)


def test_a_round_waits_for_its_slowest():
    engine = VirtualEngine(delays=Constant(1.0), stragglers=[Straggler(1, 20.0)])
    result = solve(softmax_problems(N), middle_box(N), algorithm=MixEven(iterations=10), engine=engine)
    assert result.clock == 200.0
    assert all(entry["staleness"] == 1 for entry in result.history)


def test_a_crashed_worker_is_left_out_and_comes_back():
    engine = VirtualEngine(delays=Constant(1.0), crashes=[Crash(0, 2.5, 6.5)])
    result = solve([Quadratic([0.0]), Quadratic([2.0])], even(), algorithm=MixEven(step=1.0), engine=engine)
    events = [entry["event"] for entry in result.history if entry["event"] != "report"]
    assert events == ["worker-lost", "worker-back"]
    at = {entry["iteration"]: entry for entry in result.history if entry["event"] == "report"}
    assert [at[t]["live_workers"] for t in (2, 3, 7)] == [2, 1, 2]
    assert result.w == pytest.approx([1.0])


def test_lost_messages_end_in_a_deadline():
    config = MixEven(iterations=60, deadline=5.0)
    engine = VirtualEngine(seed=1, delays=Constant(1.0), lost=0.1, repeated=0.2)
    result = solve(softmax_problems(N), middle_box(N), algorithm=config, engine=engine)
    lost = [entry for entry in result.history if entry["event"] == "worker-lost"]
    back = [entry for entry in result.history if entry["event"] == "worker-back"]
    assert lost
    assert len(back) >= len(lost) - N
    assert result.iterations == 60


def test_bad_updates_are_left_out_then_their_worker():
    # one evaluation at the start; then the 3rd and 5th step are bad
    once = [Faulty([0.0], bad={4, 6}), Quadratic([2.0])]
    result = solve(once, even(), algorithm=MixEven(iterations=20, step=0.5))
    assert [entry["count"] for entry in result.history if entry["event"] == "bad-update"] == [1, 2]
    assert result.w == pytest.approx([1.0], abs=1e-4)
    always = [Faulty([0.0], bad=set(range(4, 90))), Quadratic([2.0])]
    with pytest.warns(WorkerWarning, match="3 updates with NaN"):
        result = solve(always, even(), algorithm=MixEven(iterations=20, step=0.5))
    assert [entry["event"] for entry in result.history if "worker" in entry][-1] == "worker-dropped"
    assert result.w == pytest.approx([2.0], abs=1e-4)


def test_a_worker_that_raises_is_lost():
    problems = [Faulty([0.0], broken={5}), Quadratic([2.0])]
    with pytest.warns(WorkerWarning, match="disk gone"):
        result = solve(problems, even(), algorithm=FedAvg(iterations=20, step=0.5, local_steps=1))
    (lost,) = [entry for entry in result.history if entry["event"] == "worker-lost"]
    assert "disk gone" in lost["reason"]


def test_without_workers_it_says_so():
    config = DRFAProx(iterations=50)
    with pytest.raises(NoWorkersLeft, match="no worker is left in round") as caught:
        solve(pair(), even(), algorithm=config, engine=VirtualEngine(crashes=[Crash(0, 5.0), Crash(1, 6.0)]))
    assert np.isfinite(caught.value.result.w).all()
    with pytest.raises(NoWorkersLeft, match="starting point"):
        solve([Faulty([0.0], bad={1})], Box([1.0], [1.0]), algorithm=MixEven())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Individual(worker_index=2), r"worker_index \(j\) must be in 0..1"),
        (FedAvg(clients=3), "clients must be in 1..2"),
        (FedAvg(local_steps=0), "local_steps"),
        (AFL(weight_step=0.0), r"weight_step \(γ\) must be a finite number > 0"),
        (AFL(step=float("nan")), r"step \(η\) must be"),
        (DRFAProx(regularisation=-1.0), r"regularisation \(μ\) must be a finite number >= 0"),
        (DRFAProx(clients=0), r"clients \(m\) must be a whole number >= 1"),
        (MixEven(reported_loss="average"), "reported_loss"),
        (MixEven(seed=-1), "seed"),
        (MixEven(metric="mine"), "metric"),
    ],
)
def test_wrong_settings_are_refused(config, words):
    with pytest.raises(InvalidSetting, match=words):
        solve(pair(), even(), algorithm=config)


def test_a_baseline_is_never_called_stationary():
    result = solve(
        pair(), even(), algorithm=MixEven(iterations=9), observers=[StopWhenStationary(1e-3, every=1)]
    )
    assert result.stop_reason == "iterations"
    assert result.stationarity == np.inf
