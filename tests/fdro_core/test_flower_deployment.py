"""A SuperLink and two SuperNodes on loopback, with TLS and known keys, run the app of `fdro flower new`."""

from __future__ import annotations

import importlib.util
import re
import sys
import threading

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.network.flower_deployment import deployed, plain_text, write_node_key
from fdro_core import AspireModels, NamedProblem, solve
from fdro_core.cli.app import app as fdro
from fdro_core.master import checkpoint as snapshots
from tests.fdro_core.engine_kinds import needs_flower
from uncertainty_sets import KL
from uncertainty_sets.calibration import KL_RADIUS

pytestmark = [needs_flower, pytest.mark.xdist_group("deployment")]  # one deployment for all of them
PATIENCE = 600.0  # seconds for a run before the test gives up


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("flower")


@pytest.fixture(scope="module")
def app(place):
    """The app as the command writes it."""
    folder = place / "wards"
    done = CliRunner().invoke(fdro, ["flower", "new", str(folder), "--workers", "2"])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def deployment(place):
    folder = place / "deployment"
    folder.mkdir()
    with deployed(folder, nodes=2) as found:
        yield found


def lines_of(process):
    """The lines of a run's log; the run is ended if it takes too long."""
    end = threading.Timer(PATIENCE, process.kill)
    end.start()
    try:
        for line in process.stdout:
            yield plain_text(line).rstrip()
    finally:
        end.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def objective_in(log):
    found = re.search(r"objective (\S+) after (\d+) iterations", log)
    assert found, log
    return float(found[1]), int(found[2])


def kill_server_app(deployment):
    """Kill the process of the master, as a machine without memory does."""
    psutil = pytest.importorskip("psutil")
    family = psutil.Process(deployment.processes["superlink"].pid).children(recursive=True)
    apps = [each for each in family if any("flwr-serverapp" in word for word in each.cmdline())]
    assert apps
    for each in apps:
        each.kill()


def test_a_killed_master_resumes_to_the_objective_of_the_virtual_engine(deployment, app, monkeypatch):
    settings = {"iterations": 10**6, "active-workers": 2}
    for line in lines_of(deployment.run(app, settings)):
        if "report" in line:  # its checkpoint is written: the observers are in this order
            kill_server_app(deployment)
            break
    else:
        pytest.fail(f"no report within {PATIENCE:g} s: {deployment.log('superlink')[-2000:]}")
    last = snapshots.read(deployment.folder / "wards-checkpoint.npz")["master"]["iteration"] + 1
    assert last > 1
    log = "\n".join(lines_of(deployment.run(app, settings | {"iterations": last, "resume": True})))
    assert "iteration 1," not in log
    monkeypatch.syspath_prepend(str(app))
    monkeypatch.delitem(sys.modules, "wards", raising=False)
    assert importlib.util.find_spec("wards.task") is not None
    problems = [NamedProblem("wards.task:make_problem", l2=0.01, node_config={"worker": j}) for j in range(2)]
    config = AspireModels(iterations=last, active_workers=2, local_steps=5)
    here = solve(problems, KL(np.full(2, 0.5), KL_RADIUS), algorithm=config)
    assert objective_in(log) == (pytest.approx(here.objective, rel=1e-9), last)
    assert "lost" not in log


def test_a_node_that_is_killed_does_not_end_the_run(deployment, app):
    """It counts as lost after the deadline; the other one goes on."""
    settings = {"iterations": 3, "active-workers": 2, "deadline": 20.0}  # a message takes seconds
    log = []
    for line in lines_of(deployment.run(app, settings)):
        log.append(line)
        if "report" in line and "node1" in deployment.processes:
            deployment.kill("node1")
    text = "\n".join(log)
    assert objective_in(text)[1] == 3
    assert re.search(r"worker-lost worker 1: silent", text), text
    assert "node1" not in deployment.processes


def test_a_node_without_a_known_key_is_turned_away(deployment):
    write_node_key(deployment.folder, "node7")
    deployment.start_node(7)
    assert deployment.processes["node7"].wait(60) != 0
    assert "Failed to activate SuperNode" in deployment.log("node7")
