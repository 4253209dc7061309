"""A private run by a run file: what it writes, prints and reports, and what it says is not covered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fdro_core.command import RUN_FILE, asked, fdro

pytest.importorskip("dp_accounting")
pytestmark = pytest.mark.usefixtures("place")

SETTINGS = "batch_size = 100\nprivacy = { epsilon = 2.0, noise = 20.0, bound = 1.0, loss_bound = 2.0 }"


def write(settings):
    Path("run.toml").write_text(RUN_FILE.replace("iterations = 120", settings), encoding="utf-8")


def test_a_run_file_may_ask_for_privacy():
    write(SETTINGS)
    numbers = asked("train", "run.toml")
    privacy = numbers["privacy"]
    assert numbers["stop_reason"] == "privacy budget"
    assert not numbers["proved"]
    assert [privacy[key] for key in ("epsilon", "delta", "unit", "noise")] == [2.0, 1e-5, "sample", 20.0]
    assert max(privacy["spent"]) <= 2.0
    assert len(privacy["releases"]) == 3
    assert [worker["loss"] for worker in numbers["workers"]] == [None] * 3  # nobody told
    fdro("report", "run")
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert "each sample is protected with ε = 2, δ = 1e-05" in page
    assert "Not covered: accuracies" in page


def test_the_command_says_what_is_covered():
    write(SETTINGS)
    printed = " ".join(fdro("train", "run.toml").stdout.split())
    assert "each sample is protected with ε = 2" in printed
    assert "Not covered: accuracies" in printed
    assert json.loads(Path("run/result.json").read_text(encoding="utf-8"))["privacy"]["not_covered"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("noise = 20.0", "noise = 0.0", "Privacy.noise must be a finite number > 0, got 0.0"),
        ("noise = 20.0, ", "", "[algorithm.privacy] needs `noise`"),
        ("noise =", "nose =", "did you mean 'noise'?"),
        ("batch_size = 100\n", "", "privacy needs"),
    ],
)
def test_mistakes_are_reported(old, new, words):
    assert old in SETTINGS
    write(SETTINGS.replace(old, new))
    answer = fdro("train", "run.toml", code=2)
    assert words in " ".join(answer.output.split())
