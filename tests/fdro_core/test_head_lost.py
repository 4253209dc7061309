"""A cluster that goes away under a run: the run says what is lost, and its checkpoint continues elsewhere."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest

from fdro_core import AspireModels, FlowerEngine, NamedProblem, ThreadEngine, resume, solve
from fdro_core.engines.flower_.client import client_app
from fdro_core.engines.ray_.cluster import HeadWatch
from fdro_core.errors import ClusterLost
from fdro_core.observers import Checkpoint
from tests.fdro_core.engine_kinds import ROOT, needs_flower, needs_ray
from tests.fdro_core.flower_loopback import LocalNodes, grid_at
from tests.fdro_core.helpers import Quadratic, middle_box, softmax_problems

RUN = """
import sys
from fdro_core import AspireModels, RayEngine, solve
from fdro_core.engines.ray_.cluster import several_nodes
from fdro_core.errors import ClusterLost
from fdro_core.observers import Checkpoint
from tests.fdro_core.helpers import middle_box, softmax_problems

with several_nodes(1, {"host": 1.0}) as nodes:
    def kill(run, entry):
        if entry["iteration"] == 8:
            nodes._cluster.head_node.kill_raylet(check_alive=False)

    engine = RayEngine(address=nodes.address, hosts=[{"host": 0.1}])
    config = AspireModels(iterations=100000, tolerance=0.0, report_interval=1)
    try:
        solve(softmax_problems(2), middle_box(2), algorithm=config, engine=engine,
              observers=[kill, Checkpoint(sys.argv[1], every=10**9)])
    except ClusterLost as error:
        print("lost:", error, flush=True)
"""


@needs_ray
def test_a_run_whose_head_dies_says_so_and_is_resumed_from_its_checkpoint(tmp_path):
    path = tmp_path / "state.npz"
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=240, env=os.environ,
    )  # fmt: skip
    said = " ".join(done.stdout.split())
    assert "lost: the cluster of Ray is lost, and all workers with it: the raylet of this machine" in said, (
        done.stderr[-2000:]
    )
    assert "resume(path, ..., engine=RayEngine(...)) continues" in said
    problems, chosen = softmax_problems(2), middle_box(2)
    whole = solve(problems, chosen)
    continued = resume(
        path,
        problems,
        chosen,
        algorithm=AspireModels(iterations=100000, report_interval=1),
        engine=ThreadEngine(),
    )
    assert continued.history[0]["iteration"] <= 8  # the same run
    assert continued.objective == pytest.approx(whole.objective, rel=1e-6)


@pytest.fixture
def head():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def raylet(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "raylet"))
        server.listen()
        yield server


@pytest.fixture
def watch():
    """Makes watches, and ends them."""
    made = []

    def make(*arguments, **settings):
        made.append(HeadWatch(*arguments, **settings))
        return made[-1]

    yield make
    for each in made:
        each.stop()
        each._thread.join()


def address_of(server):
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_raylet_that_ends_is_noticed_at_once(head, raylet, watch):
    found = watch(address_of(head), raylet.getsockname(), every=1e-3)
    assert found.look_here() == ""
    raylet.close()
    found._thread.join(30)
    assert found.gone == "the raylet of this machine has ended (Connection refused)"


def test_a_head_may_be_away_for_a_while_and_not_longer(head, watch):
    away = address_of(head)
    head.close()
    patient, hasty = watch(away, "", every=1e-3, patience=1e9), watch(away, "", every=1e-3, patience=1e-2)
    hasty._thread.join(30)
    assert hasty.gone.startswith(f"nothing has answered at {away} for 0 s")
    assert patient.gone == ""


def test_a_head_that_answers_is_not_given_up(head, watch):
    answers = threading.Event()

    def answer():
        for _ in range(20):
            head.accept()[0].close()
        answers.set()

    thread = threading.Thread(target=answer)
    thread.start()
    found = watch(address_of(head), "", every=1e-3, patience=1e-2)
    thread.join(30)
    assert answers.is_set()
    assert found.gone == ""


# -- Flower -----------------------------------------------------------------------------------------------


@needs_flower
def test_a_superlink_that_is_not_there_is_given_up_after_the_engines_patience(head):
    """Flower's own grid, which by itself would try for ever."""
    grid = grid_at(address_of(head))
    head.close()
    engine = FlowerEngine(grid, patience=0.2)
    problems = [NamedProblem("tests.fdro_core.test_head_lost:named", centre=0.0)]
    with pytest.raises(ClusterLost, match=r"the SuperLink does not answer any more \(ConnectError"):
        solve(problems, middle_box(1), engine=engine)


def named(centre, node_config):
    return Quadratic([centre, 1.0])


def named_app():
    return client_app([named])


@needs_flower
def test_a_run_whose_superlink_dies_leaves_a_checkpoint_that_is_resumed(tmp_path):
    path = tmp_path / "state.npz"
    chosen, config = middle_box(2), AspireModels(iterations=100, tolerance=0.0, report_interval=1)
    problems = [NamedProblem(f"{__name__}:named", centre=float(j)) for j in range(2)]
    nodes = LocalNodes(2, f"{__name__}:named_app", [__name__])
    pull = nodes.grid.pull_messages

    def refuse(names):
        raise ConnectionRefusedError("nobody listens")

    def cut(run, entry):
        if entry["iteration"] == 8:
            nodes.grid.pull_messages = refuse

    try:
        with pytest.raises(ClusterLost, match="ConnectionRefusedError: nobody listens") as raised:
            solve(
                problems, chosen, algorithm=config, engine=FlowerEngine(nodes.grid, poll=0.002),
                observers=[cut, Checkpoint(path, every=10**9)],
            )  # fmt: skip
        assert "resume(path, ..., engine=FlowerEngine(grid))" in str(raised.value)
        nodes.grid.pull_messages = pull
        continued = resume(
            path, problems, chosen, algorithm=config, engine=FlowerEngine(nodes.grid, poll=0.002)
        )
    finally:
        nodes.close()
    whole = solve([Quadratic([float(j), 1.0]) for j in range(2)], chosen, algorithm=config)
    assert continued.iterations == 100
    assert continued.objective == pytest.approx(whole.objective, rel=1e-9)
