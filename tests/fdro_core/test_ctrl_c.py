"""Ctrl-C ends a run promptly wherever it waits: a real SIGINT to a real process and its children."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.fdro_core.engine_kinds import FLOWER, ROOT, kinds, needs_ray

LONG = 120.0  # seconds; the settings below would have a run wait for an hour

LISTEN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
"""

MASTER = (
    LISTEN
    + """
import sys
from pathlib import Path
from fdro_core import AspireModels, solve
from fdro_core.protocol.engine import ENGINES
from tests.fdro_core.helpers import Mishap, begin_calls, middle_box
kind, stage, folder = sys.argv[1:4]
slow = dict(patience=3600.0, deadline_floor=3600.0)
iterations = 30 if stage == "last round" else 10**9
config = AspireModels(active_workers=2, iterations=iterations, report_interval=20, tolerance=0.0)
calls = {"start": 2, "run": 40, "last round": begin_calls(config) + 30 + 2, "busy": 10**9}[stage]
problems = [Mishap([float(j)], folder, "hang", at=calls) for j in range(2)]
engine = ENGINES.get(kind)
engine = engine(**slow) if engine.wall_clock else engine()
def busy(run, entry):
    Path(folder, "busy").touch()
result = solve(problems, middle_box(2), algorithm=config, engine=engine, observers=[busy])
print("ended:", result.stop_reason, len(result.w))
"""
)

JOIN = (
    LISTEN
    + """
import sys
from fdro_core import RayEngine, solve
from tests.fdro_core.helpers import middle_box, softmax_problems
print("joining", flush=True)
solve(softmax_problems(2), middle_box(2), engine=RayEngine(address=sys.argv[1], join_timeout=3600.0))
"""
)


def press_ctrl_c(process):
    """What a terminal does: the signal goes to the whole group."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        return process.communicate(timeout=LONG)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", *map(str, arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


STAGES = [
    *kinds("busy", "ended: interrupted"),
    *kinds("start", "KeyboardInterrupt", survives_hangs=True),
    *kinds("run", "ended: interrupted", survives_hangs=True),
    *kinds("last round", "ended: iterations", survives_hangs=True),
]


@pytest.mark.parametrize(
    ("kind", "stage", "word"),
    [case for case in STAGES if case.values[0] != FLOWER],  # its master is in Flower's own process
)
@pytest.mark.few(2)
def test_one_ctrl_c_ends_a_run_that_waits(kind, stage, word, tmp_path):
    process = start(MASTER, kind, stage, tmp_path)
    try:
        hung = 0
        while hung < 2 and not (stage == "busy" and (tmp_path / "busy").exists()):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
            hung = len(list(tmp_path.glob("*_0")))
        time.sleep(1.0)  # the master now waits for workers that say nothing
        out, err = press_ctrl_c(process)
    finally:
        (tmp_path / "release").touch()
    assert word in out + err, (out, err)


@needs_ray
def test_ctrl_c_while_joining_a_cluster():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens: the port is only kept
        process = start(JOIN, f"127.0.0.1:{taken.getsockname()[1]}")
        assert process.stdout.readline() == "joining\n"
        time.sleep(3.0)
        _, err = press_ctrl_c(process)
    assert "KeyboardInterrupt" in err
