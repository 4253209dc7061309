"""Nothing waits for ever by default: workers that hang at every stage of a run."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from fdro_core import LogNormal, ProblemFrom, Straggler, VirtualEngine, resume, solve
from fdro_core.baselines import AFL, FedAvg
from fdro_core.errors import InvalidSetting, NoWorkersLeft, WorkerFailed, WorkerSilent, WorkerWarning
from fdro_core.observers import Checkpoint
from fdro_core.protocol.engine import Away, Event, Silent
from fdro_core.protocol.messages import Begin, Hello, Introduction, Step, Update
from tests.fdro_core.engine_kinds import (
    ENGINES,
    FLOWER,
    RAY,
    SURVIVES_HANGS,
    THREAD,
    N,
    StopWhen,
    happened,
    kinds,
    needs_ray,
    quadratics,
)
from tests.fdro_core.helpers import (
    FORMS,
    Mishap,
    Parrot,
    Quadratic,
    Slow,
    begin_calls,
    forms,
    hang_until_released,
    machines,
    middle_box,
    one_life,
    same,
)

LAST = [3.0, 1.0]
FLOOR = 2.0  # a busy machine lets a process wait for a second now and then
LATER = 300  # steps, after which the first ones of a new process are forgotten


# On Ray in one form only: a process that hangs is waited for, and engines know nothing of forms.
in_both_forms = pytest.mark.parametrize(
    ("kind", "aspire"),
    [*kinds("models", survives_hangs=True), pytest.param(THREAD, "admm", marks=pytest.mark.thorough)],
    indirect=["aspire"],
)


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    """A step that compiles first would be the slowest one seen."""
    for config in forms(iterations=30):
        solve(quadratics(), middle_box(3), algorithm=config)


@pytest.fixture
def short(make):
    """Makes an engine that does not wait long."""

    def engine(kind, **settings):
        patience = 30.0 if ENGINES[kind].own_processes else 2.0  # a process takes long to start
        if kind == FLOWER:
            patience = 15.0  # its processes are forked from one that has loaded everything
        return make(kind, **{"deadline_floor": FLOOR, "patience": patience, "hosts": N} | settings)

    return engine


def impatient(seconds):
    """An observer that leaves an engine that little patience once its workers are there."""

    def observer(run, entry):
        run.engine.patience = seconds

    return observer


@pytest.fixture
def hung(tmp_path):
    """Makes problems that hang until the test is over, so that no thread is left behind."""

    def problem(at, centre=LAST, times=1):
        return Mishap(centre, tmp_path, "hang", at=at, times=times)

    yield problem
    (tmp_path / "release").touch()


# -- in the midst of a run ------------------------------------------------------------------------


@pytest.mark.parametrize(("S", "iterations"), [(1, 2400), (N, 600)])
@in_both_forms
def test_a_worker_that_hangs_does_not_stop_the_run(kind, S, iterations, short, hung, aspire):
    engine = short(kind)
    config = aspire(active_workers=S, iterations=iterations)
    said = r"worker 3 has been silent for .* past the deadline of .* s: "
    with pytest.warns(WorkerSilent, match=said) as seen:
        result = solve(quadratics(hung(at=LATER)), middle_box(N), algorithm=config, engine=engine)
    assert len([w for w in seen if "worker 3" in str(w.message)]) == 1
    assert result.stop_reason == "iterations"
    events = [entry["event"] for entry in result.history if entry.get("worker") == 3]
    assert events == ["worker-silent", "asked-again", "worker-lost"]
    (silent,) = happened(result, "worker-silent")
    assert silent["seconds"] >= FLOOR
    assert "slowest recent answer" in silent["reason"]
    assert "silent for" in happened(result, "worker-lost")[0]["reason"]
    assert np.isnan(result.losses).tolist() == [False, False, False, True]


@pytest.mark.few(1)
@pytest.mark.parametrize("config", [FedAvg(iterations=60), AFL(iterations=60, weight_step=0.02)], ids=repr)
def test_a_worker_that_hangs_does_not_stop_a_baseline(config, short, hung):
    with pytest.warns(WorkerSilent, match="worker 3"):
        result = solve(quadratics(hung(at=30)), middle_box(N), algorithm=config, engine=short(THREAD))
    assert result.stop_reason == "iterations"
    events = [entry["event"] for entry in result.history if entry.get("worker") == 3]
    assert events == ["worker-silent", "asked-again", "worker-lost"]


@in_both_forms
def test_a_worker_that_speaks_again_is_back(kind, short, hung, tmp_path, aspire):
    def release(run, entry):
        if entry["event"] == "worker-lost":
            (tmp_path / "release").touch()

    config = aspire(iterations=10**6, report_interval=4)
    stop = StopWhen("worker-silent", "worker-back", after=400)
    with pytest.warns(WorkerSilent, match="worker 3"):
        result = solve(
            quadratics(hung(at=LATER)), middle_box(N), algorithm=config,
            engine=short(kind), observers=[release, stop],
        )  # fmt: skip
    assert happened(result, "report")[-1]["live_workers"] == N
    clean = solve(quadratics(Quadratic(LAST)), middle_box(N))
    assert result.objective == pytest.approx(clean.objective, rel=1e-3)


@pytest.mark.thorough
def test_more_workers_hang_than_there_are_threads(short, hung, aspire):
    """Those that only wait for a thread are not silent, and get one."""
    problems = [hung(at=20 + j, centre=[float(j), 9.0]) for j in range(3)]
    problems += [Quadratic([float(j), 0.0]) for j in range(20)]
    config = aspire(active_workers=len(problems), iterations=60)
    with pytest.warns(WorkerSilent) as seen:
        result = solve(problems, middle_box(len(problems)), algorithm=config, engine=short(THREAD))
    assert result.stop_reason == "iterations"
    assert {entry["worker"] for entry in happened(result, "worker-silent")} == {0, 1, 2}
    assert {entry["worker"] for entry in happened(result, "worker-lost")} == {0, 1, 2}
    assert len(seen) == 3


@in_both_forms
def test_everyone_hangs_and_the_run_ends_with_its_last_state(kind, short, hung, aspire):
    problems = [hung(at=LATER + j, centre=[float(j)]) for j in range(2)]
    said = r"the last, worker [01]: silent for .* No answer came from worker 0 and worker 1: .*`deadline`"
    with pytest.warns(WorkerSilent), pytest.raises(NoWorkersLeft, match=said) as caught:
        solve(problems, middle_box(2), algorithm=aspire(active_workers=2), engine=short(kind))
    assert caught.value.result.iterations > 0
    assert np.isfinite(caught.value.result.w).all()


@pytest.mark.few(1)
def test_without_a_deadline_it_waits(make, hung, tmp_path, aspire):
    """None still means that: the worker is let go after many times the deadline that "auto" would have."""
    timer = threading.Timer(4.0, (tmp_path / "release").touch)
    timer.start()
    config = aspire(active_workers=N, iterations=60, deadline=None)
    engine = make(THREAD, deadline_floor=0.1, patience=0.2)
    result = solve(quadratics(hung(at=30)), middle_box(N), algorithm=config, engine=engine)
    timer.join()
    assert not [entry for entry in result.history if entry["event"] != "report"]
    assert np.isfinite(result.losses).all()


# -- before the first step and after the last -----------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "aspire", "at"),
    [*product([THREAD], FORMS, ["last"]), *kinds("models", "first", survives_hangs=True)],
    indirect=["aspire"],
)
def test_a_worker_that_hangs_at_the_start_is_left_out(kind, at, short, hung, aspire):
    engine = short(kind)
    config = aspire(iterations=40, on_failed_start="warn")
    call = begin_calls(config) if at == "last" else 1
    with pytest.warns(WorkerWarning, match="worker 3, iteration 0: worker-dropped.*gave no answer"):
        result = solve(quadratics(hung(at=call)), middle_box(N), algorithm=config, engine=engine)
    assert [entry["worker"] for entry in happened(result, "worker-dropped")] == [3]
    assert result.iterations == 40


@in_both_forms
def test_problems_that_are_never_made(kind, short, tmp_path, aspire):
    """Two threads are not enough for two that hang: the others get new ones."""
    stuck = [ProblemFrom(hang_until_released, tmp_path)] * 2
    try:
        engine = short(kind)
        config = aspire(iterations=40, on_failed_start="warn")
        with pytest.warns(WorkerWarning, match="gave no answer"):
            result = solve([*stuck, *quadratics()[:2]], middle_box(N), algorithm=config, engine=engine)
        assert [entry["worker"] for entry in happened(result, "worker-dropped")] == [0, 1]
        assert np.isfinite(result.losses[2:]).all()
    finally:
        (tmp_path / "release").touch()


def test_no_problem_is_ever_made(short, tmp_path):
    stuck = [ProblemFrom(hang_until_released, tmp_path)] * 3
    try:
        with pytest.raises(NoWorkersLeft, match=r"gave no answer.*; raise `patience` of ThreadEngine"):
            solve(stuck, middle_box(3), engine=short(THREAD))
    finally:
        (tmp_path / "release").touch()


@needs_ray
def test_a_host_that_no_node_has_room_for(make):
    """Ray waits for such a node for ever, and says nothing."""
    engine = make(RAY, patience=3.0, hosts=[{}, {"no-such-site": 1}])
    said = r"worker 1 gave no answer.*; host 1 was never started: no node of the cluster has no-such-site: 1"
    with pytest.raises(WorkerFailed, match=said):
        solve(quadratics()[:2], middle_box(2), engine=engine)


@in_both_forms
def test_a_worker_that_hangs_in_the_last_round(kind, short, hung, aspire):
    iterations = 50
    engine = short(kind)
    config = aspire(active_workers=N, iterations=iterations)
    # Every reply of the last iteration is in and the next step is under way: that one and the probe are left.
    problem = hung(at=begin_calls(config) + iterations + 2)
    with pytest.warns(WorkerWarning, match="worker 3, iteration 50: probe-failed"):
        result = solve(
            quadratics(problem), middle_box(N), algorithm=config, engine=engine, observers=[impatient(2.0)]
        )
    assert result.iterations == iterations
    assert np.isnan(result.losses).tolist() == [False, False, False, True]


@in_both_forms
def test_a_worker_that_is_never_made_again(kind, short, tmp_path, aspire):
    """The only worker raises, and its second life does not begin: `restarts` attempts, and the run ends."""
    problem = ProblemFrom(one_life, tmp_path)
    try:
        with pytest.raises(NoWorkersLeft, match="not created again within"):
            solve(
                [problem], middle_box(1), algorithm=aspire(), engine=short(kind, restarts=2),
                observers=[impatient(2.0)],
            )  # fmt: skip
    finally:
        (tmp_path / "release").touch()


@pytest.mark.few(1)
def test_a_resumed_run_does_not_wait_for_ever_either(make, tmp_path, aspire):
    path, first = tmp_path / "run.npz", aspire(iterations=40, on_failed_start="warn")
    more = aspire(iterations=90, on_failed_start="warn")
    solve(quadratics(), middle_box(3), algorithm=first, engine=make(THREAD), observers=[Checkpoint(path)])
    stuck = ProblemFrom(hang_until_released, tmp_path)
    try:
        with pytest.warns(WorkerWarning) as seen:  # also that it answers no probe, if it is there by then
            rest = resume(
                path, [*quadratics()[:2], stuck], middle_box(3), algorithm=more,
                engine=make(THREAD, deadline_floor=0.5, patience=0.5, restarts=1),
            )  # fmt: skip
    finally:
        (tmp_path / "release").touch()
    assert "worker 2 failed when the run was resumed" in str(seen[0].message)
    assert rest.iterations == 90
    assert [entry["worker"] for entry in happened(rest, "worker-lost")] == [2]


def test_what_was_seen_survives_a_checkpoint(make, tmp_path, aspire):
    path, config = tmp_path / "run.npz", aspire(iterations=20)
    engine = make(THREAD)
    solve(quadratics(), middle_box(3), algorithm=config, engine=engine, observers=[Checkpoint(path)])
    seen = []
    later = make(THREAD)
    resume(
        path, quadratics(), middle_box(3), algorithm=aspire(iterations=40), engine=later,
        observers=[lambda run, entry: seen.append(list(run.engine.answer_times.longest)) and None],
    )  # fmt: skip
    assert all(seconds > 0 for seconds in seen[0])


# -- the virtual clock ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [*forms(iterations=300), *forms(iterations=60, active_workers=3), FedAvg(iterations=40)],
    ids=[*(f"{form}, S={S}" for S in ("1", "N") for form in FORMS), "fedavg"],
)
def test_a_straggler_on_the_virtual_clock_is_waited_for(config):
    def run(deadline):
        engine = VirtualEngine(
            seed=4, delays=LogNormal(30.0, 2.0), stragglers=[Straggler(2, factor=200.0)], repeated=0.1
        )
        chosen = replace(config, deadline=deadline)
        return solve(quadratics(), middle_box(3), algorithm=chosen, engine=engine)

    assert config.deadline == "auto"
    same(run("auto"), run(None))


# -- the masters, without an engine ---------------------------------------------------------------


@pytest.mark.parametrize("config", [*forms(active_workers=2), FedAvg()], ids=[*FORMS, "fedavg"])
def test_what_the_master_does_about_silence(config):
    master, workers = machines([Quadratic([0.0]), Quadratic([1.0])], middle_box(2), config)
    sent = dict(master.start())
    assert master.wake_at is None  # the engine watches
    out = master.handle(Event(7.0, 1, Silent(7.0, 5.0, "as the test says")))
    assert [(j, message.ticket) for j, message in out] == [(1, sent[1].ticket)]
    assert master.wake_at == 12.0
    assert master.handle(Event(8.0, 1, Silent(8.0, 5.0, "again"))) == []  # it is asked already
    assert master.handle(Event(9.0, -1, None)) == []
    out = master.handle(Event(12.0, -1, None))
    assert [j for j, _ in out] == [1]
    assert not master.roster.alive[1]
    assert master.handle(Event(13.0, 1, Silent(1.0, 5.0, "dead already"))) == []
    assert master.wake_at == 22.0  # twice as long
    notices = [(entry["event"], entry.get("reason")) for entry in master.take_notices()]
    assert notices == [
        ("worker-silent", "silent for 7 s, past the deadline of 5 s: as the test says"),
        ("asked-again", None),
        ("worker-lost", "silent for 12 s"),
    ]
    back = master.handle(Event(14.0, 1, workers[1].handle(out[0][1])))
    assert master.roster.alive[1]
    assert back == [] or [j for j, _ in back] == [1]


@pytest.mark.parametrize("deadline", [None, 100.0])
def test_a_deadline_that_was_given_is_the_one_that_counts(deadline, aspire):
    for config in (aspire(deadline=deadline), FedAvg(deadline=deadline)):
        master, _ = machines([Quadratic([0.0]), Quadratic([1.0])], middle_box(2), config)
        master.start()
        assert master.handle(Event(7.0, 1, Silent(7.0, 5.0, "says the engine"))) == []
        assert master.take_notices() == []
        assert master.wake_at == deadline


def test_a_state_with_another_deadline_asks_nobody_in_vain(aspire):
    """Retries of a run with a deadline in seconds mean nothing where there is none, or another."""
    timed = aspire(deadline=5.0, resends=0)
    master, workers = machines([Quadratic([0.0]), Quadratic([1.0])], middle_box(2), timed)
    first = dict(master.start())
    master.handle(Event(1.0, 0, workers[0].handle(first[0])))
    master.handle(Event(5.5, -1, None))
    state = master.snapshot()
    assert state["roster"]["retries"]
    assert timed.restore(middle_box(2), 2, state).wake_at is not None
    for deadline in (None, "auto"):
        assert aspire(deadline=deadline).restore(middle_box(2), 2, state).wake_at is None


@pytest.mark.parametrize("deadline", ["soon", "", True, 0, -1.0, float("inf"), float("nan"), [5.0]])
def test_what_is_no_deadline_is_refused(deadline, aspire):
    for config in (aspire(deadline=deadline), FedAvg(deadline=deadline)):
        with pytest.raises(InvalidSetting, match='deadline must be "auto", None or a finite number'):
            solve(quadratics(), middle_box(3), algorithm=config)


# -- the engine, without a master -----------------------------------------------------------------


@pytest.mark.parametrize("kind", SURVIVES_HANGS)
def test_an_engine_says_who_is_silent_once_a_step(kind, short):
    good = Update(1, np.ones(2), 1.0, 1.0, 1.0)
    engine = short(kind, deadline_floor=0.3, hosts=2)
    engine.start([partial(Slow, good, 0.0), partial(Slow, good, 4.0)])
    try:
        for _ in range(3):  # the first answers of a new process are slow
            engine.ask({j: Begin(np.zeros(2), np.ones(2)) for j in (0, 1)})
        found = []
        for j in (0, 1):
            engine.send(j, Step(1, np.zeros(2), 1.0, 1.0))
        while not any(event.worker == 1 and isinstance(event.payload, Update) for event in found):
            found.append(engine.receive(until=None))
        (silent,) = [event for event in found if isinstance(event.payload, Silent)]
        assert silent.worker == 1
        assert 0.3 <= silent.payload.seconds <= silent.time
        assert engine.answer_times.longest[1] >= 3.9
    finally:
        engine.stop()


def test_a_round_does_not_wait_for_those_that_hang_already(make, tmp_path):
    engine = make(THREAD, patience=600.0)
    hangs = threading.Event()
    answer = Introduction(2, None, None)

    class Stuck(Parrot):
        def handle(self, message):
            if isinstance(message, Step):
                hangs.wait()
            return super().handle(message)

    engine.start([partial(Parrot, answer), partial(Stuck, answer)])
    try:
        assert len(engine.ask({j: Hello() for j in (0, 1)})) == 2
        for _ in range(2):  # sent twice: the master has lost patience
            engine.send(1, Step(1, np.zeros(2), 1.0, 1.0))
        replies = engine.ask({j: Hello() for j in (0, 1)})
        assert isinstance(replies[0], Introduction)
        assert isinstance(replies[1], Away)
    finally:
        hangs.set()
        engine.stop()
