"""The asynchronous baselines: what they converge to with a slow worker, and with faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fdro_core import Constant, Crash, LeastSquares, Straggler, ThreadEngine, VirtualEngine, resume, solve
from fdro_core.baselines import ACE, FedAsync, FedBuff
from fdro_core.errors import InvalidSetting, NoWorkersLeft, WorkerWarning
from fdro_core.observers import Checkpoint
from fdro_core.protocol.engine import Event
from tests.fdro_core.helpers import Faulty, Quadratic, machines
from tests.fdro_core.test_arrivals import anywhere, every_method, opposed, steady

# -- what they converge to ----------------------------------------------------------------------------------

SLOW = 10.0  # times the others' delay


def regressions(workers=4):
    """X and y of each worker; the first one's are of another model."""
    rng = np.random.default_rng(5)
    features = [rng.normal(size=(12, 2)) for _ in range(workers)]
    return [(X, X @ (5.0, -3.0) if j == 0 else rng.normal(size=12)) for j, X in enumerate(features)]


def problems_of(data):
    return [LeastSquares(X, y, l2=0.1, intercept=False) for X, y in data]


def weighted_optimum(data, weights):
    """The minimiser of Σ_j weights_j·f_j, by its normal equations."""
    weights = np.asarray(weights) / np.sum(weights)
    left = sum(p * (X.T @ X / len(y) + 0.1 * np.eye(2)) for p, (X, y) in zip(weights, data, strict=True))
    right = sum(p * X.T @ y / len(y) for p, (X, y) in zip(weights, data, strict=True))
    return np.linalg.solve(left, right)


def with_one_slow(seed=0):
    return VirtualEngine(seed=seed, delays=Constant(1.0), stragglers=[Straggler(0, SLOW)])


def test_ace_finds_the_even_optimum_in_spite_of_a_slow_worker():
    data = regressions()
    result = solve(
        problems_of(data), anywhere(4), algorithm=ACE(step=0.3, iterations=6000), engine=with_one_slow()
    )
    assert result.w == pytest.approx(weighted_optimum(data, np.ones(4)), abs=1e-10)


# Worker 0 reports 0.1 times a second and the others once, 3.1 in all; so 2.1 others report between two
# reports of a fast worker, and 30 between two of the slow one. With short steps the model stays where
# Σ_j (reports per second)_j·(factor for the age)_j·∇f_j = 0.
RATE = np.array([1 / SLOW, 1.0, 1.0, 1.0])
AGE = np.array([30.0, 2.1, 2.1, 2.1])
# A buffer of 31 is a model every 10 s: the slow worker's updates are one old, one in ten of the others' is.
ONE_OLD = np.array([np.sqrt(0.5), *3 * [0.9 + 0.1 * np.sqrt(0.5)]])
BIASED = {
    "fedasync, whatever the age": (FedAsync(staleness_power=0.0, mixing=0.02), RATE),
    "fedasync": (FedAsync(staleness_power=0.5, mixing=0.02), RATE / np.sqrt(1 + AGE)),
    "fedbuff": (FedBuff(buffer=1, server_step=0.02), RATE / np.sqrt(1 + AGE)),
    "fedbuff of 31": (FedBuff(buffer=31, server_step=0.2), RATE * ONE_OLD),
}


@pytest.mark.parametrize("name", BIASED)
@pytest.mark.few(1)
def test_fedasync_and_fedbuff_are_drawn_to_the_fast_workers(name):
    config, weights = BIASED[name]
    config = replace(config, step=0.3, local_steps=1, averaging=0.3, iterations=9000 // config.arrivals)
    data = regressions()
    result = solve(problems_of(data), anywhere(4), algorithm=config, engine=with_one_slow())
    even, drawn = weighted_optimum(data, np.ones(4)), weighted_optimum(data, weights)
    bias = np.linalg.norm(drawn - even)
    assert bias > 1.0
    assert np.linalg.norm(result.w - drawn) < 0.1 * bias
    assert np.linalg.norm(result.w - even) > 0.9 * bias


def test_fast_workers_go_on_while_a_slow_one_computes():
    seen = []
    solve(
        problems_of(regressions()),
        anywhere(4),
        algorithm=ACE(iterations=62, report_interval=31),
        engine=with_one_slow(),
        observers=[lambda run, entry: seen.append((entry["clock"], entry["gradients"], entry["staleness"]))],
    )
    # Three updates a second, and in the 10th and the 20th the slow one's before theirs: the 28th, sent in
    # iteration 0, and the 59th, sent in 28
    assert seen == [(10.0, 31, 28), (20.0, 62, 31)]


@every_method
def test_on_threads_it_reaches_the_optimum_of_equals(config):
    """Who is how fast is up to the machine: the workers have one minimiser."""
    problems = [Quadratic([1.0, -2.0], scale=scale) for scale in (1.0, 2.0, 4.0)]
    result = solve(
        problems, anywhere(3), algorithm=replace(config, iterations=600), engine=ThreadEngine(threads=2)
    )
    assert result.w == pytest.approx([1.0, -2.0], abs=1e-6)
    assert result.iterations == 600
    assert result.gradients >= 600


@every_method
def test_a_run_on_threads_goes_on_from_its_checkpoint(config, tmp_path):
    problems = [Quadratic([1.0, -2.0], scale=scale) for scale in (1.0, 2.0, 4.0)]
    first, path = replace(config, iterations=20), tmp_path / "run.npz"
    begun = solve(
        problems, anywhere(3), algorithm=first, engine=ThreadEngine(threads=2), observers=[Checkpoint(path)]
    )
    longer = replace(config, iterations=600)
    rest = resume(path, problems, anywhere(3), algorithm=longer, engine=ThreadEngine(threads=2))
    assert rest.w == pytest.approx([1.0, -2.0], abs=1e-6)
    assert rest.history[: len(begun.history)][-1]["gradients"] == begun.history[-1]["gradients"]
    assert rest.iterations == 600


# -- faults -------------------------------------------------------------------------------------------------


def events(result, *names):
    return [entry["event"] for entry in result.history if entry["event"] in names]


@every_method
def test_without_a_lost_worker_the_others_go_on(config):
    short = replace(config, step=0.5, iterations=400)
    engine = steady((1.0, 1.0), crashes=[Crash(0, 2.5)])
    result = solve([Quadratic([0.0]), Quadratic([2.0])], anywhere(), algorithm=short, engine=engine)
    assert events(result, "worker-lost", "worker-back") == ["worker-lost"]
    assert result.w == pytest.approx([2.0], abs=1e-6)
    assert result.history[-1]["live_workers"] == 1


@every_method
def test_a_worker_that_returns_takes_part_again(config):
    short = replace(config, step=0.1, iterations=4000 // config.arrivals, averaging=0.5)
    engine = steady((1.0, 1.0), crashes=[Crash(0, 2.5, 9.5)])
    result = solve([Quadratic([0.0]), Quadratic([2.0])], anywhere(), algorithm=short, engine=engine)
    assert events(result, "worker-lost", "worker-back") == ["worker-lost", "worker-back"]
    assert result.w == pytest.approx([1.0], abs=0.2)


def test_ace_leaves_a_lost_workers_update_out_until_it_reports_again():
    # both arrive at 1 s and 2 s; at 2.5 s worker 0 is gone, at 3 s only worker 1's update counts
    master, workers = machines(opposed(), anywhere(), ACE(step=0.5, server_step=1.0))
    out = dict(master.start())
    out |= dict(master.handle(Event(1.0, 0, workers[0].handle(out[0]))))  # updates 2, 0: w = 1
    out |= dict(master.handle(Event(1.0, 1, workers[1].handle(out[1]))))  # 2, -4: w = 0
    master._lose(0, "gone")
    out |= dict(master.handle(Event(2.0, 1, workers[1].handle(out[1]))))  # -4 from 0, alone: w = -4
    assert master.z.tolist() == [-4.0]
    out |= dict(master._return(0))
    out |= dict(master.handle(Event(3.0, 1, workers[1].handle(out[1]))))  # -2 from -4, still alone: w = -6
    assert master.z.tolist() == [-6.0]
    master.handle(Event(4.0, 0, workers[0].handle(out[0])))  # 4 from -4, and -2: w = -6 + 1
    assert master.z.tolist() == [-5.0]


@every_method
def test_a_repeated_message_brings_the_same_model(config):
    """The worker may have answered the first: its update is relative to the model that it was sent."""
    master, workers = machines(opposed(), anywhere(), replace(config, deadline=5.0))
    out = dict(master.start())
    for _ in range(2):
        out |= dict(master.handle(Event(4.0, 0, workers[0].handle(out[0]))))
    assert master.iteration > 0
    ((asked, again),) = master.handle(Event(5.0, -1, None))
    assert (asked, again.ticket) == (1, out[1].ticket)
    assert again.w.tolist() == [0.0] != master.state.w.tolist()
    sent = master.sent
    late = workers[1].handle(again)
    assert master.handle(Event(6.0, 1, late))
    count = master.gradients
    assert (
        master.handle(Event(6.5, 1, late)) == []
    )  # the answer to the first message, after that to the second
    assert master.gradients == count
    assert master.sent > sent


def test_ace_finds_the_optimum_when_messages_are_lost_and_repeated():
    data = regressions()
    config = ACE(step=0.3, iterations=6000, deadline=15.0, resends=20)
    engine = VirtualEngine(seed=3, delays=Constant(1.0), lost=0.1, repeated=0.2)
    result = solve(problems_of(data), anywhere(4), algorithm=config, engine=engine)
    assert len(events(result, "asked-again")) > 100
    assert events(result, "worker-lost") == []
    assert result.w == pytest.approx(weighted_optimum(data, np.ones(4)), abs=1e-9)


@every_method
def test_bad_updates_are_left_out_then_their_worker(config):
    # one evaluation at the start; then the 3rd and 5th step are bad
    once = [Faulty([0.0], bad={4, 6}), Quadratic([2.0])]
    short = replace(config, step=0.5, local_steps=1, iterations=100)
    result = solve(once, anywhere(), algorithm=short)
    assert [entry["count"] for entry in result.history if entry["event"] == "bad-update"] == [1, 2]
    assert np.isfinite(result.w).all()
    always = [Faulty([0.0], bad=set(range(4, 90))), Quadratic([2.0])]
    with pytest.warns(WorkerWarning, match="3 updates with NaN"):
        result = solve(always, anywhere(), algorithm=replace(short, iterations=400))
    assert events(result, "worker-dropped", "worker-lost") == ["worker-dropped"]
    assert result.w == pytest.approx([2.0], abs=1e-6)


@every_method
def test_without_workers_it_says_so(config):
    engine = steady(crashes=[Crash(0, 5.0), Crash(1, 6.0)])
    with pytest.raises(NoWorkersLeft, match="no worker is left at iteration") as caught:
        solve(opposed(), anywhere(), algorithm=config, engine=engine)
    assert np.isfinite(caught.value.result.w).all()


@every_method
def test_a_worker_that_never_began_has_no_weight(config):
    problems = [Faulty([0.0], broken={1}), Quadratic([2.0]), Quadratic([2.0])]
    with pytest.warns(WorkerWarning, match="disk gone"):
        result = solve(
            problems,
            anywhere(3),
            algorithm=replace(config, step=0.5, iterations=300, on_failed_start="warn"),
        )
    assert result.weights.tolist() == [0.0, 0.5, 0.5]
    assert result.w == pytest.approx([2.0], abs=1e-6)
    assert result.stationarity == np.inf


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (FedAsync(mixing=0.0), r"mixing \(α\) must be a number > 0 and <= 1, got 0.0"),
        (FedAsync(mixing=1.5), r"mixing \(α\) must be a number > 0 and <= 1, got 1.5"),
        (FedAsync(staleness_power=-1.0), r"staleness_power \(a\) must be a finite number >= 0"),
        (FedAsync(preconditioner="gradients"), 'mixes models .* preconditioner must be "none"'),
        (FedBuff(buffer=0), r"buffer \(K\) must be a whole number >= 1"),
        (FedBuff(server_step=0.0), r"server_step \(η_g\) must be a finite number > 0"),
        (ACE(server_step=-1.0), r"server_step \(β\) must be a finite number > 0"),
        (ACE(max_age=-1), r"max_age \(τ_algo\) must be a whole number >= 0"),
        (ACE(report_interval=0), "report_interval must be a whole number >= 1"),
    ],
)
def test_wrong_settings_are_refused(config, words):
    with pytest.raises(InvalidSetting, match=words):
        solve(opposed(), anywhere(), algorithm=config)
