"""Joining a cluster that is not there, is something else, or refuses the token."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest

from fdro_core import RayEngine
from fdro_core.engines.ray_ import cluster
from fdro_core.errors import InvalidSetting
from tests.fdro_core.engine_kinds import ROOT, needs_ray

JOIN = """
import sys
from fdro_core import RayEngine, solve
from fdro_core.errors import ClusterUnreachable
from tests.fdro_core.helpers import middle_box, softmax_problems
engine = RayEngine(address=sys.argv[1], join_timeout=float(sys.argv[2]))
try:
    solve(softmax_problems(2), middle_box(2), engine=engine)
except ClusterUnreachable as error:
    print("unreachable:", error)
"""


def join(address, seconds, **environment):
    answer = subprocess.run(
        [sys.executable, "-c", JOIN, address, str(seconds)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120, env=os.environ | environment,
    )  # fmt: skip
    return answer.stdout


@pytest.fixture
def taken():
    """A port that nobody else gets."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield kept


@needs_ray
def test_nobody_is_there(taken):
    said = join(f"127.0.0.1:{taken.getsockname()[1]}", 2)
    assert "unreachable: no cluster of Ray can be joined" in said
    assert "for 2 s (`join_timeout`)" in said


@needs_ray
def test_somebody_is_there_who_never_answers(taken):
    taken.listen()
    held = []

    def accept():
        while True:
            try:
                held.append(taken.accept()[0])
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    said = join(f"127.0.0.1:{taken.getsockname()[1]}", 2)
    assert held
    assert "for 2 s (`join_timeout`)" in said
    for connection in held:
        connection.close()
    taken.shutdown(socket.SHUT_RDWR)


@needs_ray
def test_a_wrong_token_is_refused_at_once(local_ray):
    """With a timeout longer than the test has."""
    address = cluster.load().get_runtime_context().gcs_address
    said = join(address, 3600, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64)
    assert "unreachable" in said
    assert "RAY_AUTH_TOKEN" in said


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_the_timeout_is_checked(seconds):
    with pytest.raises(InvalidSetting, match="join_timeout"):
        RayEngine(join_timeout=seconds)
    with pytest.raises(InvalidSetting, match="deadline_floor"):
        RayEngine(deadline_floor=seconds)
