"""`fdro train`, `resume` and `compare`: what is written, what goes on, what is kept when things go wrong."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from fdro_core.errors import CheckpointWarning
from fdro_core.master import checkpoint as snapshot
from tests.fdro_core.command import RUN_FILE, TO_THE_END, asked, command, fdro

pytestmark = pytest.mark.usefixtures("place")


def test_train_writes_a_folder():
    numbers = asked("train", "run.toml")
    assert numbers["folder"] == "run"
    names = {file.name for file in Path("run").iterdir()}
    assert names == {
        "run.toml",
        "origin.json",
        "history.jsonl",
        "checkpoint.npz",
        "result.json",
        "result.npz",
    }
    assert Path("run/run.toml").read_text() == RUN_FILE
    assert [worker["name"] for worker in numbers["workers"]] == ["w0", "w1", "w2"]
    assert sum(worker["samples"] + worker["test_samples"] for worker in numbers["workers"]) == 90
    assert {key: value for key, value in numbers.items() if key != "folder"} == json.loads(
        Path("run/result.json").read_text()
    )
    with np.load("run/result.npz") as arrays:
        assert arrays["classes"].tolist() == ["ill", "well"]
        right = model_accuracy(arrays)
    parts = [
        (w["accuracy"] * w["samples"], w["test_accuracy"] * w["test_samples"]) for w in numbers["workers"]
    ]
    assert right == pytest.approx(np.sum(parts) / 90, abs=1e-12)
    told = [worker["test_accuracy"] for worker in numbers["workers"]]
    assert numbers["worst_test_accuracy"] == min(told)
    history = [json.loads(line) for line in Path("run/history.jsonl").read_text().splitlines()]
    assert [entry["iteration"] for entry in history] == list(range(3, numbers["iterations"] + 1, 3))
    assert len(history[-1]["test_accuracy"]) == 3


def test_a_run_that_converges_ends_by_itself_and_says_so():
    text = RUN_FILE.replace("iterations = 120", "iterations = 5_000")
    Path("run.toml").write_text(text)
    printed = fdro("train", "run.toml").stdout
    numbers = json.loads(Path("run/result.json").read_text())
    assert (numbers["stop_reason"], numbers["planned"], numbers["model"]) == ("converged", 5000, "z")
    assert numbers["iterations"] < 1000
    ended = f"converged after {numbers['iterations']:,} of 5,000 iterations"
    assert ended in printed
    assert 0.0 <= numbers["optimality_gap"] < 1e-6
    assert f"and at most {numbers['optimality_gap']:.2g} above the optimum" in printed
    assert numbers["lower_bound"] <= numbers["objective"]
    fdro("report", "run")
    page = Path("run/report.html").read_text()
    assert ended in page
    assert 'data-value="optimality_gap"' in page
    assert 'data-value="stationarity"' in page
    assert fdro("resume", "run", "--json").stdout  # ends at once, in the same state
    again = json.loads(Path("run/result.json").read_text())
    for name in ("iterations", "objective", "lower_bound", "stop_reason"):
        assert again[name] == numbers[name]


def test_a_run_that_has_not_converged_says_so():
    Path("run.toml").write_text(RUN_FILE.replace("iterations = 120", "iterations = 9"))
    printed = fdro("train", "run.toml").stdout
    told = "not converged; continue with: fdro resume run --iterations 18"
    assert told in printed
    assert asked("resume", *told.split()[-3:])["iterations"] == 18
    for text, words in (
        (TO_THE_END, "tolerance is 0"),
        (RUN_FILE.replace("iterations = 120", 'name = "fed-avg"\niterations = 9'), "fed-avg has no test"),
    ):
        Path("run.toml").write_text(text)
        assert f"not checked for convergence: {words}" in fdro("train", "run.toml", "--force").stdout


def test_a_run_that_a_rule_ended_names_the_rule():
    text = TO_THE_END.replace("tolerance = 0.0", "tolerance = 1e-9") + "\n[stop]\nseconds = 5\n"
    Path("run.toml").write_text(text)
    printed = fdro("train", "run.toml").stdout
    told = "stopped at stop.seconds = 5; to go on raise it in run/run.toml, then: fdro resume run\n"
    assert told in printed
    assert "--iterations" not in printed
    before = json.loads(Path("run/result.json").read_text())["iterations"]
    Path("run/run.toml").write_text(text.replace("seconds = 5", "seconds = 10"))
    assert asked(*told.split()[-2:])["iterations"] > before


def model_accuracy(arrays):
    """The saved model on the file it came from, by the recipe of docs/cli.md."""
    rows = [line.split(",") for line in Path("samples.csv").read_text().splitlines()[1:]]
    X = (np.array([row[:2] for row in rows], dtype=float) - arrays["mean"]) / arrays["scale"]
    scores = np.column_stack([X, np.ones(len(X))]) @ arrays["w"].reshape(3, 2)
    return np.mean(arrays["classes"][scores.argmax(axis=1)] == np.array([row[2] for row in rows]))


def test_train_says_what_came_of_it():
    text = fdro("train", "run.toml").stdout
    assert "proved at most" in text
    assert "next: fdro report run" in text
    assert fdro("train", "run.toml", "-o", "other", "--quiet").stdout.startswith("other: objective ")


def test_a_run_is_not_overwritten():
    fdro("train", "run.toml", "-q")
    answer = fdro("train", "run.toml", code=2)
    assert "fdro resume run" in answer.stderr
    assert "--force" in answer.stderr
    Path("run/notes.txt").write_text("mine")
    fdro("train", "run.toml", "--force", "-q")
    assert Path("run/notes.txt").read_text() == "mine"
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("x")
    assert "has other files in it" in fdro("train", "run.toml", "-o", "mine", code=2).stderr
    assert "is a file" in fdro("train", "run.toml", "-o", "samples.csv", code=2).stderr


def test_names_that_are_too_long():
    long = "x" * 300
    assert (
        "cannot be the folder of a run (File name too long)"
        in fdro("train", "run.toml", "-o", long, code=2).stderr
    )
    assert "cannot be read: File name too long" in fdro("train", long, code=2).stderr
    for verb in ("resume", "report"):
        assert "there is no folder xxx" in fdro(verb, long, code=2).stderr
    fdro("train", "run.toml", "-q")
    assert "cannot be written: File name too long" in fdro("report", "run", "-o", long, code=2).stderr


def test_a_run_can_be_repeated_from_its_folder():
    first = asked("train", "run.toml")
    again = asked("train", "run/run.toml", "-o", "again")
    assert again["objective"] == first["objective"]


def test_check_trains_nothing():
    assert "is fine: 3 workers" in fdro("check", "run.toml").stdout
    assert not Path("run").exists()


@pytest.mark.thorough
def test_the_example_is_ahead_of_fedavg_for_the_worst_worker():
    """By more than noise, although FedAvg takes many times as many gradients."""
    Path("example.toml").write_text(fdro("train", "--example").stdout)
    answer = asked("train", "example.toml", "--against", "FedAvg", "--output", "own")
    assert answer["runs"] == ["own", "own-fed-avg"]
    assert answer["best"] == "own"
    assert answer["differences"][0]["low"] > 0.05
    assert answer["gradients"][0] < answer["gradients"][1]
    assert set(answer["differ"]) == {"algorithm.name", "algorithm.active_workers", "algorithm.tolerance"}


def test_against_is_checked_before_the_first_run():
    told = fdro("train", "run.toml", "--against", "fedavgg", code=2).stderr
    assert "did you mean 'fed-avg'?" in told
    told = fdro("train", "run.toml", "--against", "aspire-models", code=2).stderr
    assert "--against aspire-models: the run file has this algorithm too" in told
    Path("run-fed-avg").mkdir()
    Path("run-fed-avg/result.json").write_text("{}")
    assert "already holds a run" in fdro("train", "run.toml", "--against", "fed-avg", code=2).stderr
    assert not Path("run").exists()


def test_train_without_run_file():
    assert "fdro train --example" in fdro("train", code=2).stderr
    assert "there is no file runn.toml; did you mean 'run.toml'?" in fdro("train", "runn.toml", code=2).stderr


def test_npz_regression_and_baseline():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 3))
    np.savez("data.npz", X=X, y=X @ [1.0, 2.0, 3.0], worker=np.arange(40) % 4)
    text = RUN_FILE.replace("samples.csv", "data.npz").replace(
        "l2 = 0.01", 'kind = "least-squares"\nl2 = 0.0'
    )
    text = text.replace("iterations = 120", 'name = "FedAvg"\niterations = 400')
    Path("run.toml").write_text(text)
    numbers = asked("train", "run.toml")
    assert numbers["algorithm"]["name"] == "fed-avg"
    assert numbers["worst_test_accuracy"] is None
    assert numbers["worst_test_loss"] < 1e-6
    Path("run.toml").write_text(text.replace('"data.npz"', '"data.npz"\nfeatures = "x"'))
    assert (
        "has no array 'x'; did you mean 'X'? It has: X, y, worker"
        in fdro("train", "run.toml", "--force", code=2).stderr
    )


def test_problems_from_a_function():
    Path("own_problems.py").write_text(
        "from fdro_core import LeastSquares\n\n"
        "def make(count):\n"
        "    return [LeastSquares([[1.0]], [float(j)], intercept=False) for j in range(count)]\n\n"
        "def wrong():\n    return 3\n"
    )
    text = RUN_FILE.replace('"samples.csv"', '"own_problems:make"\narguments = { count = 3 }')
    Path("run.toml").write_text(text.replace("[model]\nl2 = 0.01\n", ""))
    numbers = asked("train", "run.toml")
    assert [worker["test_loss"] for worker in numbers["workers"]] == [None] * 3
    assert 0.5 < numbers["worst_loss"] < 1.0  # between the mean's 1 - ε and the minimax of 0.5
    Path("run.toml").write_text(text.replace(":make", ":mak"))
    assert "has no function 'mak'; did you mean 'make'?" in fdro("train", "run.toml", code=2).stderr
    Path("run.toml").write_text(text.replace(":make", ":wrong").replace("arguments = { count = 3 }", ""))
    assert "must return (X, y, worker)" in fdro("train", "run.toml", code=2).stderr


def test_torch_module_from_a_function():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    Path("own_module.py").write_text(
        "import torch\n\n"
        "def make(features, classes, hidden):\n    torch.manual_seed(0)\n"
        "    first, last = torch.nn.Linear(features, hidden), torch.nn.Linear(hidden, classes)\n"
        "    return torch.nn.Sequential(first, torch.nn.ReLU(), last).double()\n"
    )
    text = RUN_FILE.replace("l2 = 0.01", 'kind = "own_module:make"\narguments = { hidden = 4 }')
    Path("run.toml").write_text(text)
    numbers = asked("train", "run.toml")
    assert numbers["parameters"] == 2 * 4 + 4 + 4 * 2 + 2
    assert numbers["mean_test_accuracy"] > 0.5


def test_resume_is_the_run_that_never_stopped():
    Path("run.toml").write_text(TO_THE_END)
    whole = asked("train", "run.toml", "-o", "whole")
    Path("run.toml").write_text(TO_THE_END.replace("iterations = 120", "iterations = 60"))
    fdro("train", "run.toml", "-q")
    resumed = asked("resume", "run", "--iterations", "120")
    with np.load("whole/result.npz") as a, np.load("run/result.npz") as b:
        np.testing.assert_array_equal(a["w"], b["w"])
    assert resumed["objective"] == whole["objective"]
    lines = Path("run/history.jsonl").read_text().splitlines()
    assert len(lines) == 40  # the first half's reports are in it too


def test_resume_and_report_of_what_is_no_run():
    assert "there is no folder rn" in fdro("resume", "rn", code=2).stderr
    Path("empty").mkdir()
    for verb in ("resume", "report"):
        assert "it is not the folder of a run" in fdro(verb, "empty", code=2).stderr
    fdro("train", "run.toml", "-q")
    Path("run/checkpoint.npz").unlink()
    assert "has no checkpoint.npz" in fdro("resume", "run", code=2).stderr
    Path("run/checkpoint.npz").write_bytes(b"junk")
    assert "is not a checkpoint of fdro" in fdro("resume", "run", code=2).stderr


def test_resume_of_a_run_that_became_another():
    Path("run.toml").write_text(TO_THE_END)
    fdro("train", "run.toml", "-q")
    Path("run/run.toml").write_text(TO_THE_END.replace("radius = 0.1", "radius = 0.2"))
    told = fdro("resume", "run", "--iterations", "150", code=2).stderr
    assert "set.radius: 0.1 → 0.2" in told
    assert "fdro resume run --force" in told
    with pytest.warns(CheckpointWarning, match="0.1 → 0.2"):
        assert asked("resume", "run", "--iterations", "150", "--force")["iterations"] == 150
    samples = Path("samples.csv").read_text()
    Path("samples.csv").write_text(samples.replace(",well,w1", ",ill,w1", 1))
    assert "problems[1]" in fdro("resume", "run", code=2).stderr


def test_a_disk_that_fills_up(monkeypatch):
    """The error names the checkpoint, and what could not be kept after it."""

    def full(*arguments, **named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        told = fdro("train", "run.toml", "-q", code=1).stderr
    assert "run/checkpoint.npz could not be written (No space left on device)" in told
    assert re.search(r"state could not be written: \S*run/result\.npz", told)
    assert not list(Path("run").glob("*.part"))


def test_compare():
    fdro("train", "run.toml", "-q")
    Path("run.toml").write_text(RUN_FILE.replace("radius = 0.1", "radius = 0.0"))
    fdro("train", "run.toml", "-o", "mean", "-q")
    answer = asked("compare", "run", "mean")
    assert answer["differ"] == {"set.radius": [0.1, 0.0]}
    assert answer["worst_test_accuracy"] == [
        json.loads(Path(f"{name}/result.json").read_text())["worst_test_accuracy"] for name in ("run", "mean")
    ]
    text = fdro("compare", "run", "mean").stdout
    assert "set.radius" in text
    assert "test accuracy, worst worker: " in text
    assert "give two or more runs" in fdro("compare", "run", code=2).stderr


def test_no_workers_left_keeps_the_last_state():
    crashes = "crashes = [{ worker = 0, at = 5.0 }, { worker = 1, at = 5.0 }, { worker = 2, at = 5.0 }]"
    Path("run.toml").write_text(RUN_FILE.replace("seed = 3", crashes))
    message = fdro("train", "run.toml", code=1).stderr
    assert "the last good state is in run" in message
    assert json.loads(Path("run/result.json").read_text())["stop_reason"] == "NoWorkersLeft"
    fdro("report", "run")


HEED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from fdro_core.cli.app import app
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_leaves_a_checkpoint():
    Path("run.toml").write_text(TO_THE_END.replace("iterations = 120", "iterations = 100_000_000"))
    line, environment = command("train", "run.toml")
    # A shell in the background may have SIGINT ignored, and children inherit that.
    line = [line[0], "-c", f"{HEED}sys.argv[0] = 'fdro'; app()", *line[3:]]
    process = subprocess.Popen(
        line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    history = Path("run/history.jsonl")
    try:
        while process.poll() is None and not (history.exists() and history.stat().st_size > 5_000):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        shown, told = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, told
    assert "continue with: fdro resume run" in told
    assert "--iterations" not in shown
    stopped = json.loads(Path("run/result.json").read_text())
    assert stopped["stop_reason"] == "interrupted"
    reached = snapshot.read("run/checkpoint.npz")["master"]["iteration"]
    assert reached == stopped["iterations"]
    resumed = asked("resume", "run", "--iterations", str(reached + 30))
    assert resumed["iterations"] == reached + 30
