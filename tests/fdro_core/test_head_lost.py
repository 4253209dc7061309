"""A cluster that goes away under a run: the run says what is lost, and its checkpoint continues elsewhere."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest

from fdro_core import AspireEase, ThreadEngine, resume, solve
from fdro_core.engines.ray_.head import HeadWatch
from tests.fdro_core.engine_kinds import ROOT, needs_ray
from tests.fdro_core.helpers import middle_box, softmax_problems

RUN = """
import sys
from fdro_core import AspireEase, RayEngine, solve
from fdro_core.engines.ray_.cluster import several_nodes
from fdro_core.errors import ClusterLost
from fdro_core.observers import Checkpoint
from tests.fdro_core.helpers import middle_box, softmax_problems

with several_nodes(1, {"host": 1.0}) as nodes:
    def kill(run, entry):
        if entry["iteration"] == 8:
            nodes._cluster.head_node.kill_raylet(check_alive=False)

    engine = RayEngine(address=nodes.address, hosts=[{"host": 0.1}])
    config = AspireEase(iterations=100000, tolerance=0.0, report_interval=1)
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
        algorithm=AspireEase(iterations=100000, report_interval=1),
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
