"""The virtual engine: bits, staleness, delays, and workers that come and go."""

from __future__ import annotations

import numpy as np
import pytest

from fdro_core import (
    Adaptive,
    AspireModels,
    Constant,
    Crash,
    Exponential,
    LogNormal,
    Straggler,
    Trace,
    VirtualEngine,
    solve,
)
from fdro_core.errors import Deadlock, InvalidSetting, NoWorkersLeft, WorkerWarning
from tests.fdro_core.helpers import Faulty, Quadratic, middle_box, softmax_problems

N = 6


def reports(result):
    return [entry for entry in result.history if entry["event"] == "report"]


def notices(result, event):
    return [entry for entry in result.history if entry["event"] == event]


def run(config=None, problems=None, **engine):
    problems = softmax_problems(N) if problems is None else problems
    config = AspireModels(iterations=600, tolerance=0.0) if config is None else config
    return solve(
        problems, middle_box(len(problems)), algorithm=config, engine=VirtualEngine(seed=4, **engine)
    )


@pytest.mark.parametrize("law", [Constant(), LogNormal(), Exponential(1.0, 0.1), Trace([0.5, 1.0, 4.0])])
def test_same_seed_same_bits(law, aspire):
    config = aspire(active_workers=2, iterations=200)
    first, second = (run(config, delays=law, lost=0.0, repeated=0.1) for _ in range(2))
    assert np.array_equal(first.w, second.w)
    assert first.clock == second.clock
    assert first.objective == second.objective
    if not isinstance(law, Constant):
        other = solve(
            softmax_problems(N), middle_box(N), algorithm=config, engine=VirtualEngine(seed=5, delays=law)
        )
        assert other.clock != first.clock


@pytest.mark.parametrize("active", [1, 3, 6])
@pytest.mark.parametrize("factor", [1.0, 20.0])
def test_staleness_never_above_tau(active, factor, aspire):
    tau = -(-N // active) + 2
    config = aspire(active_workers=active, max_staleness=tau, iterations=300, report_interval=1)
    result = run(config, stragglers=[Straggler(2, factor)])
    stalest = max(entry["staleness"] for entry in reports(result))
    assert stalest <= tau
    if factor == 20.0 and active == 1:
        assert stalest == tau  # the limit binds


@pytest.mark.parametrize("batch", [None, 4])
def test_local_steps_take_time_if_computing_does(aspire, batch):
    times = {}
    for steps in (1, 3):
        config = aspire(active_workers=N, iterations=10, local_steps=steps, batch_size=batch)
        times[steps] = run(config, delays=Constant(), compute=0.25, stragglers=[Straggler(1, 2.0)]).clock
    assert times == {1: pytest.approx(10 * 2 * 1.25), 3: pytest.approx(10 * 2 * 1.75)}  # of the straggler
    with pytest.raises(InvalidSetting, match=r"VirtualEngine\.compute"):
        VirtualEngine(compute=-1.0)


def test_computing_is_part_of_what_fixes_the_times():
    assert "compute" not in VirtualEngine().fingerprint()  # checkpoints from before it existed still fit
    assert VirtualEngine(compute=0.5).fingerprint()["compute"] == 0.5


def test_a_straggler_costs_time_only_when_waited_for(aspire):
    slow = [Straggler(0, 20.0)]
    patient = aspire(active_workers=1, iterations=600, max_staleness=600)
    alone = run(patient, delays=Constant(), stragglers=slow)
    together = run(aspire(active_workers=N, iterations=100), delays=Constant(), stragglers=slow)
    assert together.clock == pytest.approx(2000.0)
    assert alone.clock < together.clock / 10


def test_a_straggler_for_a_time(aspire):
    result = run(
        aspire(active_workers=N, iterations=10),
        delays=Constant(1.0),
        stragglers=[Straggler(1, 5.0, start=2.0, end=3.0)],
    )
    assert result.clock == pytest.approx(9 + 5.0)


def test_the_papers_three_workers_switch_s(aspire):
    """Worker 3 slow between 900 and 1,300 s: S = 3, then s = 1, then 3 again (Figure 5)."""
    problems = [Quadratic([0.0]), Quadratic([1.0]), Quadratic([3.0])]
    config = aspire(adaptive=Adaptive(few=1), iterations=1000)
    engine = VirtualEngine(
        seed=0, delays=LogNormal(4.0, 0.1), stragglers=[Straggler(2, 10.0, start=900.0, end=1300.0)]
    )
    result = solve(problems, middle_box(3), algorithm=config, engine=engine)
    changes = [(entry["clock"], entry["active_workers"]) for entry in notices(result, "active-workers")]
    assert [active for _, active in changes] == [1, 3]
    assert (
        900 < changes[0][0] < 930
    )  # T₃ > 2(T₁ + T₂), some 16 s, and not first when its reply comes, after 40 s
    assert 1300 < changes[1][0] < 1400
    assert result.clock > 1400


@pytest.mark.parametrize("rule", ["mean", "median", "seconds"])
def test_adaptive_without_stragglers_stays_synchronous(rule, aspire):
    threshold = 20.0 if rule == "seconds" else 4.0
    config = aspire(adaptive=Adaptive(few=2, rule=rule, threshold=threshold), iterations=100)
    result = run(config, delays=LogNormal(1.0, 0.2))
    assert not notices(result, "active-workers")
    assert reports(result)[-1]["active_workers"] == N


def test_crash_and_return(aspire):
    clean = run(aspire())
    result = run(aspire(), crashes=[Crash(1, 20.0, 60.0), Crash(3, 30.0, 50.0)])
    assert len(notices(result, "worker-lost")) == 2
    assert len(notices(result, "worker-back")) == 2
    assert result.objective == pytest.approx(clean.objective, rel=1e-9)


def test_a_dead_worker_leaves_and_s_shrinks(aspire):
    config = aspire(active_workers=N, iterations=300)
    result = run(config, crashes=[Crash(1, 10.0), Crash(2, 20.0)])
    assert reports(result)[-1]["live_workers"] == N - 2
    assert reports(result)[-1]["active_workers"] == N - 2
    assert np.isnan(result.losses[[1, 2]]).all()
    assert np.isfinite(result.losses[[0, 3, 4, 5]]).all()


@pytest.mark.parametrize("mode", ["freeze", "drop"])
def test_the_lost_workers_loss(mode, aspire):
    problems = [Quadratic([0.0]), Quadratic([1.0]), Quadratic([8.0])]
    config = aspire(active_workers=1, iterations=2000, dead_losses=mode)
    result = run(config, problems=problems, crashes=[Crash(2, 1.0)])
    # Without worker 2 the middle of the other two is best; its weight is lost or shared out.
    total = result.weights.sum()
    assert total == pytest.approx(1.0)
    assert (result.weights[2] == 0) == (mode == "drop")
    if mode == "drop":
        assert result.w[0] == pytest.approx(0.5, abs=1e-3)


def test_lost_messages_need_a_deadline(aspire):
    with pytest.raises(Deadlock, match="deadline") as caught:
        run(aspire(active_workers=N), lost=0.05)
    assert caught.value.result is not None
    lossy = {"delays": LogNormal(1.0, 0.3), "lost": 0.02, "repeated": 0.05}
    config = aspire(active_workers=N, deadline=8.0, resends=0)
    result = run(config, **lossy)
    assert result.stop_reason == "iterations"
    assert notices(result, "worker-lost")
    assert notices(result, "worker-back")


@pytest.mark.parametrize("S", [1, N])
@pytest.mark.few(1)
def test_a_lost_message_is_sent_again_and_changes_nothing(S, aspire):
    config = aspire(active_workers=S, deadline=8.0, resends=4)
    result = run(config, delays=LogNormal(1.0, 0.3), lost=0.05, repeated=0.05)
    assert notices(result, "asked-again")
    assert not notices(result, "worker-lost")
    assert result.objective == pytest.approx(run(aspire(active_workers=S)).objective, rel=1e-6)


def test_a_worker_that_stays_silent_is_asked_again_and_then_leaves(aspire):
    # Worker 1's reply takes 100 s: asked again at 3 s and 6 s, dead at 9 s.
    engine = {"delays": [Constant(1.0), Constant(100.0), *[Constant(1.0)] * (N - 2)]}
    config = aspire(active_workers=N, iterations=30, deadline=3.0, resends=2)
    result = run(config, **engine)
    first = [(entry["event"], entry["clock"]) for entry in result.history if entry.get("worker") == 1][:3]
    assert first == [("asked-again", 3.0), ("asked-again", 6.0), ("worker-lost", 9.0)]


def test_repeated_messages_change_nothing_but_traffic(aspire):
    config = aspire(active_workers=2, iterations=300)
    result = run(config, delays=Constant(), repeated=0.3)
    plain = run(config, delays=Constant())
    assert np.array_equal(result.w, plain.w)
    assert reports(result)[-1]["bits_up"] > reports(plain)[-1]["bits_up"]


def test_staleness_holds_for_workers_that_return(aspire):
    config = aspire(active_workers=1, max_staleness=12, iterations=800, deadline=4.0, report_interval=1)
    result = run(config, delays=LogNormal(1.0, 0.8), lost=0.05, repeated=0.1, crashes=[Crash(0, 20.0, 40.0)])
    assert max(entry["staleness"] for entry in reports(result)) <= 12


def test_a_bad_update_is_left_out_and_counted(aspire):
    problems = [Quadratic([0.0]), Quadratic([1.0]), Faulty([3.0], bad=[20])]
    result = run(aspire(iterations=2000), problems=problems)
    assert [entry["count"] for entry in notices(result, "bad-update")] == [1]
    clean = run(aspire(iterations=2000), problems=[*problems[:2], Quadratic([3.0])])
    assert result.objective == pytest.approx(clean.objective, rel=1e-6)


def test_too_many_bad_updates_and_the_worker_is_dropped(aspire):
    problems = [Quadratic([0.0]), Quadratic([1.0]), Faulty([3.0], bad=range(20, 10**6))]
    with pytest.warns(WorkerWarning, match=r"worker 2.*2 updates with NaN"):
        result = run(aspire(iterations=1000, max_bad_updates=2), problems=problems)
    assert [entry["count"] for entry in notices(result, "bad-update")] == [1, 2]
    assert [entry["worker"] for entry in notices(result, "worker-dropped")] == [2]


def test_a_worker_that_raises_is_like_a_crash(aspire):
    problems = [Quadratic([0.0]), Quadratic([1.0]), Faulty([3.0], broken=[20])]
    with pytest.warns(WorkerWarning, match="disk gone"):
        result = run(aspire(iterations=500), problems=problems)
    (notice,) = notices(result, "worker-lost")
    assert notice["worker"] == 2
    assert "disk gone" in notice["reason"]


def test_no_worker_left_keeps_the_last_good_state(aspire):
    with pytest.raises(NoWorkersLeft) as caught:
        run(aspire(iterations=600), crashes=[Crash(j, 10.0 + j) for j in range(N)])
    result = caught.value.result
    assert result is not None
    assert result.iterations > 0
    assert np.isfinite(result.w).all()
    assert result.stop_reason == "NoWorkersLeft"


def test_a_worker_that_fails_from_the_start_is_left_out(aspire):
    problems = [Quadratic([0.0]), Faulty([1.0], broken=[1]), Quadratic([2.0]), Faulty([9.0], bad=[1])]
    with pytest.warns(WorkerWarning):
        result = run(aspire(iterations=1000, on_failed_start="warn"), problems=problems)
    assert {entry["worker"] for entry in notices(result, "worker-dropped")} == {1, 3}
    assert np.isfinite(result.w).all()


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"lost": 1.0}, "lost"),
        ({"repeated": -0.1}, "repeated"),
        ({"delays": [Constant()] * 2}, "one law, or 6"),
        ({"crashes": [Crash(6, 1.0)]}, "worker 6"),
        ({"stragglers": [Straggler(-1, 2.0)]}, "worker -1"),
    ],
)
def test_engine_settings_are_checked(engine, message):
    with pytest.raises(InvalidSetting, match=message):
        run(**engine)


def test_delay_settings_are_checked():
    for make in (
        lambda: Constant(0.0),
        lambda: LogNormal(-1.0),
        lambda: Exponential(1.0, -1.0),
        lambda: Trace([]),
        lambda: Trace([1.0, float("nan")]),
        lambda: Straggler(0, 0.0),
        lambda: Crash(0, 5.0, 4.0),
    ):
        with pytest.raises(InvalidSetting):
            make()


def test_a_law_for_each_worker(aspire):
    laws = [Constant(1.0), *([Constant(3.0)] * (N - 1))]
    result = run(aspire(active_workers=N, iterations=5), delays=laws)
    assert result.clock == pytest.approx(15.0)
