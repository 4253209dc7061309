"""A new master on every engine's checkpoint; and how engines are set up and started."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from fdro_core import ProblemFrom, RayEngine, ThreadEngine, resume, solve
from fdro_core.baselines import FedAvg
from fdro_core.engines.ray_ import cluster
from fdro_core.errors import InvalidProblem, InvalidSetting, WorkerWarning
from fdro_core.observers import Checkpoint
from tests.fdro_core.engine_kinds import (
    RAY,
    ROOT,
    THREAD,
    N,
    StopWhen,
    happened,
    kinds_and_forms,
    needs_ray,
    quadratics,
)
from tests.fdro_core.helpers import (
    Mishap,
    Quadratic,
    begin_calls,
    load_shard,
    middle_box,
    softmax_problems,
)
from uncertainty_sets.errors import BackendMissing

# -- the master dies ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "first", "aspire"),
    [
        *kinds_and_forms("admm", "the same", wall_clock=True),
        *kinds_and_forms("models", THREAD, wall_clock=True),
    ],
    indirect=["aspire"],
)
def test_a_new_master_goes_on_from_the_checkpoint(kind, first, make, tmp_path, aspire):
    """A checkpoint passes from one engine on a wall clock to any other."""
    problems, box, path = softmax_problems(N), middle_box(N), tmp_path / "run.npz"
    whole = solve(problems, box, algorithm=aspire(active_workers=N, iterations=120))
    short, long = (aspire(active_workers=N, iterations=i) for i in (50, 120))
    before = make(kind if first == "the same" else first)
    solve(problems, box, algorithm=short, engine=before, observers=[Checkpoint(path)])
    rest = resume(path, problems, box, algorithm=long, engine=make(kind))
    assert rest.iterations == 120
    assert np.abs(rest.w - whole.w).max() <= 1e-12
    assert np.abs(rest.losses - whole.losses).max() <= 1e-12


def test_a_baseline_loses_a_worker_and_gets_it_back(make, tmp_path):
    problems = quadratics(Mishap([3.0, 1.0], tmp_path, "raise", at=40))
    same, config = quadratics(Quadratic([3.0, 1.0])), FedAvg(iterations=4000, report_interval=4)
    stop = StopWhen("worker-lost", "worker-back", after=100)
    with pytest.warns(WorkerWarning, match="disk gone"):
        result = solve(problems, middle_box(N), algorithm=config, engine=make(THREAD), observers=[stop])
    assert [entry["worker"] for entry in happened(result, "worker-back")] == [3]
    assert result.objective == pytest.approx(solve(same, middle_box(N), algorithm=config).objective, rel=1e-3)


def test_mini_batches_go_on_with_the_same_draws(make, tmp_path, aspire):
    problems, box, path = softmax_problems(N), middle_box(N), tmp_path / "run.npz"
    settings = {"active_workers": N, "batch_size": 4}
    whole = solve(problems, box, algorithm=aspire(iterations=60, **settings))
    config = aspire(iterations=25, **settings)
    solve(problems, box, algorithm=config, engine=make(THREAD), observers=[Checkpoint(path)])
    rest = resume(path, problems, box, algorithm=aspire(iterations=60, **settings), engine=make(THREAD))
    assert np.abs(rest.w - whole.w).max() <= 1e-12


def test_a_worker_that_was_away_is_back_for_the_new_master(make, tmp_path, aspire):
    path, config = tmp_path / "run.npz", aspire(iterations=60)
    problems = quadratics(Mishap([3.0, 1.0], tmp_path, "raise", at=begin_calls(config) + 8))
    engine = make(THREAD, restarts=0)
    with pytest.warns(WorkerWarning, match="disk gone"):
        gone = solve(problems, middle_box(N), algorithm=config, engine=engine, observers=[Checkpoint(path)])
    assert len(happened(gone, "worker-lost")) == 1
    rest = resume(path, problems, middle_box(N), algorithm=aspire(iterations=900), engine=make(THREAD))
    assert [entry["worker"] for entry in happened(rest, "worker-back")] == [3]
    assert np.isfinite(rest.losses).all()


MASTER = """
import sys
from fdro_core import RayEngine, ThreadEngine, solve
from fdro_core.observers import Checkpoint
from tests.fdro_core.helpers import in_form, middle_box, softmax_problems
engine = RayEngine(address=sys.argv[2]) if len(sys.argv) > 2 else ThreadEngine(2)
config = in_form({form!r}, active_workers={N}, iterations=10**7)
checkpoint = Checkpoint(sys.argv[1], every=10)
solve(softmax_problems({N}), middle_box({N}), algorithm=config, engine=engine, observers=[checkpoint])
"""


@pytest.mark.parametrize("kind", [THREAD, pytest.param(RAY, marks=needs_ray)])
def test_a_master_that_is_killed(kind, make, tmp_path, aspire):
    path, arguments = tmp_path / "run.npz", []
    engine = make(kind)
    if kind == RAY:
        arguments = [cluster.load().get_runtime_context().gcs_address]
    script = MASTER.format(N=N, form=aspire.args[0])
    master = subprocess.Popen([sys.executable, "-c", script, str(path), *arguments], cwd=ROOT)
    try:
        while not path.exists():
            assert master.poll() is None
            time.sleep(0.02)
        time.sleep(0.1)
    finally:
        master.kill()
        master.wait()
    problems, box = softmax_problems(N), middle_box(N)
    saved = resume(path, problems, box, algorithm=aspire(active_workers=N, iterations=1), engine=make(THREAD))
    last = saved.iterations + 50
    rest = resume(path, problems, box, algorithm=aspire(active_workers=N, iterations=last), engine=engine)
    whole = solve(problems, box, algorithm=aspire(active_workers=N, iterations=last))
    assert np.abs(rest.w - whole.w).max() <= 1e-12


def test_checkpoints_of_other_clocks_are_refused(make, tmp_path, aspire):
    path, config = tmp_path / "run.npz", aspire(iterations=20)
    solve(quadratics(), middle_box(3), algorithm=config, observers=[Checkpoint(path)])
    with pytest.raises(InvalidSetting, match="wall clock"):
        resume(path, quadratics(), middle_box(3), algorithm=config, engine=make(THREAD))


# -- settings and starting ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ThreadEngine(0), "threads"),
        (lambda: ThreadEngine(patience=0.0), "patience"),
        (lambda: ThreadEngine(restarts=-1), "restarts"),
        (lambda: ThreadEngine(restart_after=float("nan")), "restart_after"),
        (lambda: RayEngine(hosts=0), "hosts"),
        (lambda: RayEngine(hosts=[{"site": -1.0}]), "hosts"),
        (lambda: RayEngine(cpus=0), "cpus"),
        (lambda: RayEngine(object_store_mb=1), "object_store_mb"),
        (lambda: RayEngine(placement=[0]).start([None, None]), "placement names a host for 1 of 2"),
        (lambda: RayEngine(placement=[0, 2]).start([None, None]), "worker 1 to host 2"),
        (lambda: ThreadEngine("a"), "ThreadEngine.threads must be a whole number >= 1, got 'a'"),
        (lambda: ThreadEngine(True), "ThreadEngine.threads"),
        (
            lambda: ThreadEngine(patience="long"),
            "patience must be a finite number of seconds > 0, got 'long'",
        ),
        (lambda: ThreadEngine(restarts=1.5), "restarts must be a whole number >= 0, got 1.5"),
        (lambda: ThreadEngine(restart_after=None), "restart_after must be a finite number"),
        (lambda: RayEngine(address=6379), 'address must be "host:port" or None, got 6379'),
        (lambda: RayEngine(hosts="two"), "hosts must be a number, or for each host"),
        (lambda: RayEngine(hosts=2.5), "hosts must be a number, or for each host"),
        (lambda: RayEngine(hosts=True), "hosts must be a whole number"),
        (lambda: RayEngine(hosts=[]), "hosts must be a number, or for each host"),
        (lambda: RayEngine(hosts=[1, 2]), "hosts must be a number, or for each host"),
        (lambda: RayEngine(hosts=[{"site": "a"}]), r"hosts\[0\]\['site'\] must be a finite number > 0"),
        (lambda: RayEngine(placement=0), "placement must be a list of hosts, got 0"),
        (lambda: RayEngine(placement=["a"]), r"placement\[0\] must be a whole number >= 0, got 'a'"),
        (lambda: RayEngine(cpus="all"), "cpus must be a whole number >= 1, got 'all'"),
        (lambda: RayEngine(join_timeout="soon"), "join_timeout must be a finite number of seconds > 0"),
    ],
)
def test_settings_are_checked(build, message):
    with pytest.raises(InvalidSetting, match=message):
        build()


def test_a_factory_must_be_callable():
    with pytest.raises(InvalidProblem, match="callable"):
        ProblemFrom("shard.npz")
    assert (
        repr(ProblemFrom(load_shard, "a.npz", made_in=".")) == "ProblemFrom(load_shard, 'a.npz', made_in='.')"
    )


def test_without_ray_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BackendMissing, match=r"fdro\[ray\]"):
        solve(quadratics(), middle_box(3), engine=RayEngine())


@needs_ray
def test_a_problem_that_cannot_travel(make):
    stuck = Quadratic([0.0, 0.0])
    stuck.lock = threading.Lock()
    with pytest.raises(InvalidProblem, match=r"problems\[1\].*ProblemFrom"):
        solve([Quadratic([1.0, 1.0]), stuck], middle_box(2), engine=make(RAY))


ALONE = """
import os, psutil
from fdro_core import AspireModels, RayEngine, solve
from tests.fdro_core.helpers import middle_box, softmax_problems
me, seen = psutil.Process(), set()
def look(run, entry):
    if not seen:
        family = [me, *me.children(recursive=True)]
        for member in family:
            seen.add(member)
            for c in member.net_connections(kind="inet"):
                if c.status == psutil.CONN_LISTEN:
                    assert c.laddr.ip in {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, c
        assert any("raylet" in member.name() for member in family)
for _ in range(2):
    seen.clear()
    config = AspireModels(iterations=20)
    solve(softmax_problems(2), middle_box(2), algorithm=config, engine=RayEngine(), observers=[look])
    seen.discard(me)
    gone, alive = psutil.wait_procs(seen, timeout=20)
    assert not alive, alive
print("clean")
"""


@needs_ray
def test_a_local_cluster_listens_on_loopback_only_and_leaves_nothing_behind():
    pytest.importorskip("psutil")
    answer = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", ALONE],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == "clean"
