"""One suite for every engine: what all must do, then what those on a wall clock must survive.

Which tests an engine gets depends on the traits of its class (`protocol/engine.py`).
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

from fdro_core import ProblemFrom, solve
from fdro_core.errors import Deadlock, InvalidProblem, NoWorkersLeft, WorkerFailed, WorkerWarning
from fdro_core.protocol.engine import Lost
from fdro_core.protocol.messages import Begin, Hello, Introduction, Step, Update
from tests.fdro_core.engine_kinds import (
    ENGINES,
    EVERY,
    RAY,
    THREAD,
    VIRTUAL,
    WALL,
    N,
    StopWhen,
    happened,
    kinds_and_forms,
    quadratics,
)
from tests.fdro_core.helpers import (
    Mishap,
    Parrot,
    Quadratic,
    broken_shard,
    load_shard,
    middle_box,
    softmax_problems,
)


def on_kinds(form, **traits):
    """A test of all engines with these traits, in the forms of `kinds_and_forms`."""
    return pytest.mark.parametrize(("kind", "aspire"), kinds_and_forms(form, **traits), indirect=["aspire"])


# -- every engine ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WALL)
def test_engines_agree_when_everyone_is_waited_for(kind, make, aspire):
    problems, box = softmax_problems(N), middle_box(N)
    config = aspire(active_workers=N, iterations=150)
    one = solve(problems, box, algorithm=config, engine=make(VIRTUAL))
    other = solve(problems, box, algorithm=config, engine=make(kind))
    assert np.abs(one.w - other.w).max() <= 1e-12
    assert np.abs(one.losses - other.losses).max() <= 1e-12
    for mine, its in zip(happened(one, "report"), happened(other, "report"), strict=True):
        assert np.abs(mine["losses"] - its["losses"]).max() <= 1e-12
        assert abs(mine["objective"] - its["objective"]) <= 1e-12
    assert not [entry for entry in other.history if entry["event"] != "report"]


@pytest.mark.parametrize("kind", WALL)
def test_asynchronous_runs_reach_the_same_objective(kind, make, aspire):
    problems, box = softmax_problems(N), middle_box(N)
    config = aspire(active_workers=1, iterations=1000)
    best = solve(problems, box, engine=make(VIRTUAL)).objective
    result = solve(problems, box, algorithm=config, engine=make(kind))
    assert result.iterations == 1000
    assert result.objective == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("kind", EVERY)
def test_data_stays_where_it_is(kind, make, tmp_path, aspire):
    rng = np.random.default_rng(0)
    sources = []
    for j in range(N):
        path = tmp_path / f"shard{j}.npz"
        np.savez(path, X=rng.normal(size=(5, 2)), y=rng.normal(size=5))
        sources.append(ProblemFrom(load_shard, path, made_in=tmp_path))
    config = aspire(active_workers=N, iterations=20)
    result = solve(sources, middle_box(N), algorithm=config, engine=make(kind))
    assert result.iterations == 20
    makers = {int(file.name.partition("_")[2]) for file in tmp_path.glob("shard?_*")}
    assert len(list(tmp_path.glob("shard?_*"))) == N  # each made once
    assert (makers == {os.getpid()}) == (not ENGINES[kind].own_processes)


@pytest.mark.parametrize("kind", EVERY)
def test_a_problem_that_cannot_be_made_is_left_out_or_refused(kind, make, aspire):
    config = aspire(iterations=50)
    sources = [*quadratics(), ProblemFrom(broken_shard, "nowhere.npz")]
    patient = aspire(iterations=50, on_failed_start="warn")
    with pytest.warns(WorkerWarning, match="no shard at nowhere"):
        result = solve(sources, middle_box(N), algorithm=patient, engine=make(kind))
    assert [entry["worker"] for entry in happened(result, "worker-dropped")] == [3]
    with pytest.raises(WorkerFailed, match=r"worker 3 .*no shard at nowhere"):
        solve(sources, middle_box(N), algorithm=config, engine=make(kind))
    with pytest.raises(NoWorkersLeft, match="no shard at nowhere"):
        solve([sources[-1]] * 2, middle_box(2), algorithm=config, engine=make(kind))
    with pytest.raises(InvalidProblem, match=r"problems\[1\]"):
        solve([sources[0], ProblemFrom(dict)], middle_box(2), algorithm=config, engine=make(kind))


@pytest.mark.parametrize("kind", EVERY)
def test_an_engine_serves_twice_and_from_another_thread(kind, make, aspire):
    engine, found = make(kind), []
    config = aspire(active_workers=3, iterations=30)

    def run():
        found.append(solve(quadratics(), middle_box(3), algorithm=config, engine=engine))

    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert np.abs(found[0].w - found[1].w).max() <= 1e-12


@pytest.mark.parametrize("kind", WALL)
def test_questions_and_answers_one_by_one(kind, make):
    """The contract of protocol/engine.py, without a master."""
    good = Update(1, np.ones(2), 1.0, 1.0, 1.0)
    strange = [
        Update(1, np.ones(3), 1.0, 1.0, 1.0),
        Update(1, np.ones(2, dtype=np.float32), 1.0, 1.0, 1.0),
        Update(1, np.ones(2), "1", 1.0, 1.0),
        Introduction(2, None, None),
        OSError("disk gone"),
    ]
    engine = make(kind, restarts=0)
    engine.start([partial(Parrot, answer) for answer in [good, *strange]])
    try:
        replies = engine.ask({j: Begin(np.zeros(2), np.ones(2)) for j in (0, 1, 5)})
        assert np.array_equal(replies[0].w, good.w)
        assert replies[0].w.flags.writeable
        assert "shape (3,)" in str(replies[1])
        assert isinstance(replies[5], OSError)
        assert isinstance(engine.ask({4: Hello()})[4], Introduction)
        for j in range(6):
            engine.send(j, Step(1, np.zeros(2), 1.0, 1.0))
        events = {}
        while len(events) < 6:
            event = engine.receive(until=None)
            if event.worker >= 0:
                events[event.worker] = event.payload
        assert isinstance(events.pop(0), Update)
        words = ["shape (3,)", "float32", "loss of type str", "a Introduction for a Step", "disk gone"]
        for lost, word in zip((events[j] for j in range(1, 6)), words, strict=True):
            assert isinstance(lost, Lost)
            assert word in lost.reason
        assert isinstance(engine.ask({3: Hello()})[3], ConnectionError)
        soon = engine.clock + 0.05
        tick = engine.receive(until=soon)
        assert tick.payload is None
        assert engine.clock >= soon or tick.time < soon
        with pytest.raises(Deadlock):
            engine.receive(until=None)
    finally:
        engine.stop()
    engine.stop()  # twice does no harm


# -- hosts that die, hang and return --------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "what", "aspire"),
    [
        *kinds_and_forms("models", "raise", wall_clock=True),
        *kinds_and_forms("admm", "kill", own_processes=True),
    ],
    indirect=["aspire"],
)
def test_a_host_that_dies_comes_back_with_what_it_knew(kind, what, make, tmp_path, aspire):
    problems = quadratics(Mishap([3.0, 1.0], tmp_path, what, at=40))
    config = aspire(iterations=10**6, report_interval=4)
    stop = StopWhen("worker-lost", "worker-back", after=1600)
    told = pytest.warns(WorkerWarning, match="disk gone") if what == "raise" else nullcontext()
    with told:
        result = solve(problems, middle_box(N), algorithm=config, engine=make(kind), observers=[stop])
    lost, back = ({e["worker"] for e in happened(result, event)} for event in ("worker-lost", "worker-back"))
    assert lost == back
    assert 3 in lost
    assert what == "kill" or lost == {3}
    if kind == RAY and what == "kill":
        assert lost == {2, 3}  # two workers share a host
    clean = solve(quadratics(Quadratic([3.0, 1.0])), middle_box(N))
    assert result.objective == pytest.approx(clean.objective, rel=1e-3)
    assert np.isfinite(result.losses).all()


@on_kinds("admm", own_processes=True)
def test_a_host_killed_before_the_first_step(kind, make, tmp_path, aspire):
    problems = quadratics(Mishap([3.0, 1.0], tmp_path, "kill", at=2))
    result = solve(problems, middle_box(N), algorithm=aspire(iterations=800), engine=make(kind))
    assert not happened(result, "worker-dropped")
    assert happened(result, "report")[-1]["live_workers"] == N
    clean = solve(quadratics(Quadratic([3.0, 1.0])), middle_box(N))
    assert result.objective == pytest.approx(clean.objective, rel=1e-2)


@on_kinds("models", survives_hangs=True)
def test_a_host_that_hangs_is_dead_until_it_speaks(kind, make, tmp_path, aspire):
    problems = quadratics(Mishap([3.0, 1.0], tmp_path, "hang", at=30))
    config = aspire(iterations=10**6, deadline=1.0, resends=0, report_interval=4)

    def release(run, entry):
        if entry["event"] == "worker-lost":
            assert "silent" in entry["reason"]
            (tmp_path / "release").touch()

    stop = StopWhen("worker-lost", "worker-back")
    engine = make(kind, hosts=[{}, {}])
    result = solve(problems, middle_box(N), algorithm=config, engine=engine, observers=[release, stop])
    assert 3 in {entry["worker"] for entry in happened(result, "worker-back")}
    assert happened(result, "report")[-1]["live_workers"] == N


@on_kinds("models", wall_clock=True)
def test_all_hosts_die_for_good(kind, make, tmp_path, aspire):
    what = "kill" if ENGINES[kind].own_processes else "raise"
    problems = [Mishap([float(j)], tmp_path, what, at=30 + j, times=99) for j in range(N)]
    told = pytest.warns(WorkerWarning, match="disk gone") if what == "raise" else nullcontext()
    with told, pytest.raises(NoWorkersLeft) as caught:
        solve(problems, middle_box(N), algorithm=aspire(), engine=make(kind, restarts=0))
    result = caught.value.result
    assert result.iterations > 0
    assert np.isfinite(result.w).all()
    assert len(happened(result, "worker-lost")) == N


@on_kinds("admm", wall_clock=True)
def test_all_hosts_die_and_return(kind, make, tmp_path, aspire):
    """The loss of the last one is not told while somebody may come back."""
    what = "kill" if ENGINES[kind].own_processes else "raise"
    problems = [Mishap([float(j)], tmp_path, what, at=30) for j in range(N)]
    config = aspire(active_workers=N, iterations=300)
    engine = make(kind, hosts=1)
    told = pytest.warns(WorkerWarning, match="disk gone") if what == "raise" else nullcontext()
    with told:
        result = solve(problems, middle_box(N), algorithm=config, engine=engine)
    assert result.stop_reason == "iterations"
    assert happened(result, "report")[-1]["live_workers"] == N
    clean = solve([Quadratic([float(j)]) for j in range(N)], middle_box(N))
    assert result.objective == pytest.approx(clean.objective, rel=1e-2)


def test_a_lone_worker_that_dies_is_only_slow_for_the_master(make, tmp_path, aspire):
    config = aspire(iterations=60)
    problem = Mishap([3.0, 1.0], tmp_path, "raise", at=40)
    result = solve([problem], middle_box(1), algorithm=config, engine=make(THREAD))
    assert np.abs(result.w - solve([Quadratic([3.0, 1.0])], middle_box(1), algorithm=config).w).max() <= 1e-12
    assert not happened(result, "worker-lost")


@on_kinds("models", survives_hangs=True)
def test_ctrl_c_while_everyone_hangs(kind, make, tmp_path, aspire):
    problems = [Mishap([float(j)], tmp_path, "hang", at=20) for j in range(2)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    engine, over = make(kind), threading.Event()

    def press():
        while not over.wait(0.02):
            if len(list(tmp_path.glob("*_0"))) == len(problems):
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=press)
    thread.start()
    try:
        with pytest.warns(WorkerWarning, match="gave no answer"):
            result = solve(problems, middle_box(2), algorithm=aspire(active_workers=2), engine=engine)
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
        (tmp_path / "release").touch()
    assert result.stop_reason == "interrupted"
    assert np.isnan(result.losses).all()
    assert np.isfinite(result.w).all()
