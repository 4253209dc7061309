"""Checkpoints: resume equals uninterrupted, bit for bit; an interrupt leaves a usable state."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from fdro_core import (
    Adaptive,
    Constant,
    Crash,
    Exponential,
    LogNormal,
    Straggler,
    VirtualEngine,
    resume,
    solve,
)
from fdro_core.errors import InvalidSetting, NoWorkersLeft
from fdro_core.master import checkpoint as files
from fdro_core.observers import Checkpoint, HistoryFile, read_history
from tests.fdro_core.helpers import middle_box, same, softmax_problems
from uncertainty_sets import KL, Polyhedron

N = 5

SCENES = {
    "plain": ({}, {}),
    "synchronous": ({"active_workers": N}, {"delays": Exponential()}),
    "mini-batches": ({"batch_size": 4, "active_workers": 2}, {"delays": LogNormal(2.0, 1.0)}),
    "cp": ({"planes": "cp"}, {"delays": Constant()}),
    "adaptive": ({"adaptive": Adaptive(few=2)}, {"stragglers": [Straggler(1, 15.0, 20.0, 50.0)]}),
    "dropped": ({"dead_losses": "drop"}, {"crashes": [Crash(0, 9.0, 14.0), Crash(3, 30.0)]}),
    "faults": (
        {"deadline": 5.0, "active_workers": 2},
        {"lost": 0.03, "repeated": 0.1, "crashes": [Crash(0, 9.0, 14.0), Crash(3, 30.0)]},
    ),
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("stop", [3, 37, 120])
def test_resume_equals_uninterrupted(scene, stop, tmp_path, aspire):
    settings, engine = SCENES[scene]
    problems, box = softmax_problems(N), middle_box(N)
    whole = solve(
        problems,
        box,
        algorithm=aspire(iterations=300, **settings),
        engine=VirtualEngine(seed=2, **engine),
    )
    path = tmp_path / "run.npz"
    solve(
        problems,
        box,
        algorithm=aspire(iterations=stop, **settings),
        engine=VirtualEngine(seed=2, **engine),
        observers=[Checkpoint(path)],
    )
    rest = resume(
        path,
        problems,
        box,
        algorithm=aspire(iterations=300, **settings),
        engine=VirtualEngine(seed=2, **engine),
    )
    same(whole, rest)


@pytest.mark.parametrize("kind", ["kl", "polyhedron"])
def test_resume_does_not_depend_on_what_an_oracle_remembers(kind, tmp_path, aspire):
    q = np.full(N, 1 / N)
    make = {
        "kl": lambda: KL(q, 0.3),
        "polyhedron": lambda: Polyhedron(
            np.vstack([np.eye(N), np.arange(N)]), np.append(np.full(N, 0.5), 2.5)
        ),
    }[kind]
    problems, path = softmax_problems(N), tmp_path / "run.npz"
    whole = solve(problems, make(), algorithm=aspire(iterations=400))
    solve(problems, make(), algorithm=aspire(iterations=123), observers=[Checkpoint(path)])
    same(whole, resume(path, problems, make(), algorithm=aspire(iterations=400)))


def test_the_history_file_goes_on_where_it_was(tmp_path, aspire):
    problems, box, path = softmax_problems(N), middle_box(N), tmp_path / "run.npz"
    whole, parts = HistoryFile(tmp_path / "whole.jsonl"), tmp_path / "parts.jsonl"
    solve(problems, box, algorithm=aspire(iterations=100), observers=[whole])
    solve(
        problems,
        box,
        algorithm=aspire(iterations=40),
        observers=[HistoryFile(parts), Checkpoint(path, every=3)],
    )
    resume(path, problems, box, algorithm=aspire(iterations=100), observers=[HistoryFile(parts)])
    assert read_history(parts) == read_history(tmp_path / "whole.jsonl")
    with parts.open("a") as file:
        file.write('{"event": "rep')
    assert read_history(parts) == read_history(tmp_path / "whole.jsonl")


@pytest.fixture
def ctrl_c():
    """Ctrl-C as in a terminal: a process started in the background may have inherited that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_leaves_a_checkpoint_and_a_result(tmp_path, aspire):
    problems, box, path = softmax_problems(N), middle_box(N), tmp_path / "run.npz"

    def press(run, entry):
        if entry["iteration"] == 50:
            os.kill(os.getpid(), signal.SIGINT)

    config = aspire(iterations=300)
    result = solve(problems, box, algorithm=config, observers=[press, Checkpoint(path, every=10**6)])
    assert result.stop_reason == "interrupted"
    assert 50 <= result.iterations < 60
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    rest = resume(path, problems, box, algorithm=config)
    same(solve(problems, box, algorithm=config), rest)


def test_a_run_that_fails_leaves_a_checkpoint(tmp_path):
    path = tmp_path / "run.npz"
    with pytest.raises(NoWorkersLeft):
        solve(
            softmax_problems(N),
            middle_box(N),
            engine=VirtualEngine(crashes=[Crash(j, 10.0) for j in range(N)]),
            observers=[Checkpoint(path)],
        )
    assert files.read(path)["master"]["iteration"] > 0


def test_no_pickle_in_the_file(tmp_path, aspire):
    path = tmp_path / "run.npz"
    solve(softmax_problems(N), middle_box(N), algorithm=aspire(iterations=20), observers=[Checkpoint(path)])
    with np.load(path, allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)


def test_values_survive_packing():
    value = {"a": [1, 2.5, (3, "x")], 4: {"b": np.arange(3.0)}, "c": [None, True, float("inf"), 0.1 + 0.2]}
    arrays = {}
    back = files.unpack(files.pack(value, arrays, {}), arrays)
    assert back["a"] == value["a"]
    assert np.array_equal(back[4]["b"], value[4]["b"])
    assert back["c"] == value["c"]
    with pytest.raises(TypeError, match="object"):
        files.pack(object(), {}, {})


def test_wrong_files_are_refused(tmp_path, aspire):
    problems, box = softmax_problems(N), middle_box(N)
    with pytest.raises(InvalidSetting, match="no checkpoint"):
        resume(tmp_path / "none.npz", problems, box)
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(b"PK not a zip")
    with pytest.raises(InvalidSetting, match="damaged"):
        resume(damaged, problems, box)
    path = tmp_path / "run.npz"
    solve(problems, box, algorithm=aspire(iterations=20), observers=[Checkpoint(path)])
    with pytest.raises(InvalidSetting, match="5 workers"):
        resume(path, problems[:3], middle_box(3))
    newer = tmp_path / "newer.npz"
    files.write(newer, {"format": 99})
    with pytest.raises(InvalidSetting, match="format 99"):
        files.read(newer)
