"""A master that is killed in the midst of writing, life after life: the same run in the end, no orphans."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from fdro_core import AspireModels, LogNormal, RayEngine, ThreadEngine, VirtualEngine, resume, solve
from fdro_core.engines.ray_ import cluster
from fdro_core.master import checkpoint as snapshots
from tests.fdro_core.engine_kinds import RAY, ROOT, THREAD, VIRTUAL, kinds
from tests.fdro_core.helpers import middle_box, same, softmax_problems

N, WRITES = 4, 3  # a life is killed in its third write
BEFORE, AFTER = ("opened", "half of it", "not synchronised", "not renamed"), ("renamed", "kept")
"""Where in a write: up to which the old file is there, and from which the new one."""

MAKE = {
    VIRTUAL: lambda address: VirtualEngine(seed=5, delays=LogNormal(1.0, 0.8)),
    THREAD: lambda address: ThreadEngine(2),
    RAY: lambda address: RayEngine(address=address),
}


def algorithm(iterations=10**7):
    return AspireModels(iterations=iterations, active_workers=N, report_interval=4, tolerance=0.0)


# The first life solves, the others resume; each notes what it is about to write.
LIFE = """
import os, signal, stat, sys
from pathlib import Path
import numpy as np
from fdro_core import resume, solve
from fdro_core.observers import Checkpoint
from tests.fdro_core.test_master_killed import MAKE, N, WRITES, algorithm, middle_box, softmax_problems
path, kind, stage, address = Path(sys.argv[1]), *sys.argv[2:]
writes = 0

def note(run, entry):
    if entry["event"] == "report":
        global writes
        writes += 1
        with path.with_suffix(".notes").open("a") as notes:
            notes.write(f"{entry['iteration']}\\n")

def die_at(here):
    if here == stage and writes == WRITES:
        os.kill(os.getpid(), signal.SIGKILL)

savez, fsync, replace = np.savez, os.fsync, Path.replace

def save(file, **arrays):
    die_at("opened")
    if stage == "half of it" and writes == WRITES:
        os.write(file.fileno(), path.read_bytes()[: path.stat().st_size // 2])
    die_at("half of it")
    savez(file, **arrays)

def sync(handle):
    folder = stat.S_ISDIR(os.fstat(handle).st_mode)
    die_at("renamed" if folder else "not synchronised")
    fsync(handle)

def rename(part, target):
    die_at("not renamed")
    return replace(part, target)

def after(run, entry):
    if entry["event"] == "report":
        die_at("kept")

np.savez, os.fsync, Path.replace = save, sync, rename
run = {"algorithm": algorithm(), "engine": MAKE[kind](address or None)}
run["observers"] = [note, Checkpoint(path, every=1), after]
if path.exists():
    resume(path, softmax_problems(N), middle_box(N), **run)
else:
    solve(softmax_problems(N), middle_box(N), **run)
"""


def hosts_here():
    """Ray's hosts in the cluster of this process."""
    psutil = pytest.importorskip("psutil")
    return [each for each in psutil.Process().children(recursive=True) if each.name() == "ray::Host"]


@pytest.mark.parametrize("kind", kinds(name=VIRTUAL) + kinds(name=THREAD) + kinds(name=RAY))
def test_killed_in_the_midst_of_every_write(kind, make, tmp_path):
    """Each life dies at another place of its third write; the next goes on from the file that is there."""
    path, address = tmp_path / "run.npz", ""
    make(kind)  # the cluster of the suite
    if kind == RAY:
        address = cluster.load().get_runtime_context().gcs_address
    for stage in (BEFORE[1], AFTER[1]) if kind == RAY else (*BEFORE, *AFTER):  # Ray's processes start slowly
        life = [sys.executable, "-c", LIFE, str(path), kind, stage, address]
        assert subprocess.run(life, cwd=ROOT, check=False).returncode == -signal.SIGKILL
        notes = [int(line) for line in path.with_suffix(".notes").read_text().split()]
        assert snapshots.read(path)["master"]["iteration"] == notes[-1 if stage in AFTER else -2]
        left = [name for name in os.listdir(tmp_path) if name.endswith(".part")]
        assert len(left) == (stage in BEFORE), "the next life removes what the last one left"
    if kind == RAY:
        import psutil

        _, alive = psutil.wait_procs(hosts_here(), timeout=120)
        assert alive == [], "hosts end with their master"
    config = algorithm(notes[-1] + 20)
    problems, box = softmax_problems(N), middle_box(N)
    rest = resume(path, problems, box, algorithm=config, engine=MAKE[kind](address or None))
    whole = solve(problems, box, algorithm=config, engine=MAKE[kind](address or None))
    assert rest.iterations == whole.iterations == notes[-1] + 20
    if kind == VIRTUAL:
        same(whole, rest)
    else:  # sums are taken in the workers' order, so only the clock differs
        assert np.array_equal(rest.w, whole.w)
        assert np.array_equal(rest.losses, whole.losses)
    assert sorted(os.listdir(tmp_path)) == ["run.notes", "run.npz"]
