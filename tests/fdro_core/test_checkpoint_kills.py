"""Runs that are killed without warning, several times, and resumed: the same run in the end."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from fdro_core import (
    AspireEase,
    AspireModels,
    Crash,
    LogNormal,
    Straggler,
    ThreadEngine,
    VirtualEngine,
    resume,
    solve,
)
from fdro_core.baselines import DRFAProx
from fdro_core.master import checkpoint as snapshots
from tests.fdro_core.engine_kinds import ROOT
from tests.fdro_core.helpers import middle_box, same, softmax_problems

N, KILLS = 4, 3
FOR_EVER = 10**7


def virtual():
    return VirtualEngine(
        seed=5, delays=LogNormal(1.0, 0.8), stragglers=[Straggler(1, 6.0)], crashes=[Crash(2, 30.0, 60.0)]
    )


SCENES = {
    "models": (AspireModels(iterations=FOR_EVER, tolerance=0.0), virtual),
    "mini-batches": (AspireModels(iterations=FOR_EVER, batch_size=5), virtual),
    "admm": (AspireEase(iterations=FOR_EVER, batch_size=5), virtual),
    "drfa-prox": (DRFAProx(iterations=FOR_EVER, clients=3), virtual),
    "threads": (AspireModels(iterations=FOR_EVER, active_workers=N, tolerance=0.0), lambda: ThreadEngine(2)),
}

# The first life solves, the others resume; each writes as often as it can, so that some are hit writing.
LIFE = """
import sys
from pathlib import Path
from fdro_core import resume, solve
from fdro_core.observers import Checkpoint
from tests.fdro_core.test_checkpoint_kills import SCENES, N, middle_box, softmax_problems
path, (config, engine) = Path(sys.argv[1]), SCENES[sys.argv[2]]
run = {"algorithm": config, "engine": engine(), "observers": [Checkpoint(path, every=1)]}
if path.exists():
    resume(path, softmax_problems(N), middle_box(N), **run)
else:
    solve(softmax_problems(N), middle_box(N), **run)
"""


def reached(path):
    return snapshots.read(path)["master"]["iteration"] if path.exists() else -1


@pytest.mark.parametrize("scene", SCENES)
def test_killed_and_resumed_it_is_the_same_run(scene, tmp_path):
    path, rng = tmp_path / "run.npz", np.random.default_rng(0)
    for _ in range(KILLS):
        before = reached(path)
        life = subprocess.Popen([sys.executable, "-c", LIFE, str(path), scene], cwd=ROOT)
        try:
            while reached(path) <= before:  # each life gets somewhere
                assert life.poll() is None
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 0.1))
        finally:
            life.kill()
            life.wait()
    config, engine = SCENES[scene]
    last = {**vars(config), "iterations": reached(path) + 20}
    config = type(config)(**last)
    problems, box = softmax_problems(N), middle_box(N)
    rest = resume(path, problems, box, algorithm=config, engine=engine())
    whole = solve(problems, box, algorithm=config, engine=engine())
    if scene == "threads":  # sums are taken in the workers' order, so only the clock differs
        assert np.array_equal(rest.w, whole.w)
        assert np.array_equal(rest.losses, whole.losses)
    else:
        same(whole, rest)
