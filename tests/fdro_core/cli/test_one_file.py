"""A command and a problem are one file each: a copy of the package with one more file is enough.

Each test copies the package into a temporary folder, adds a small file, and runs commands there in a process
of their own. Nothing else is edited.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.copies import copied, python

COMMAND = '''"""`fdro weigh`: for this test."""

from typing import Annotated

import typer

from fdro_core.cli.command import command
from fdro_core.cli.output import AsJson, Output
from fdro_core.errors import InvalidSetting


@command("Sets and worst cases", "fdro weigh 2 3", place=22)
def weigh(
    numbers: Annotated[list[float], typer.Argument(help="What to weigh.")], as_json: AsJson = False
) -> None:
    """Say how much some numbers weigh."""
    if min(numbers) < 0:
        raise InvalidSetting(f"numbers must be at least 0, got {min(numbers)}")
    output = Output(quiet=False, as_json=as_json)
    output.data({"weight": sum(numbers)})
    output.say(f"they weigh {sum(numbers)}")
'''

PROBLEM = '''"""Pseudo-Huber regression: for this test."""

from typing import ClassVar

import numpy as np


class Smooth:
    """f(w) = mean of sqrt(1 + r²/width²) - 1 over the residuals r = Xw - y, plus l2/2·‖w‖²."""

    kind: ClassVar[str] = "smooth"

    def __init__(self, X, y, width: float = 1.0, l2: float = 0.0):
        self.X, self.y, self.width, self.l2 = X, y, width, l2
        self.dimension = X.shape[1]

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        r = (self.X @ w - self.y) / self.width
        root = np.sqrt(1.0 + r * r)
        gradient = self.X.T @ (r / root) / (self.width * r.size) + self.l2 * w
        return float(np.mean(root - 1.0)) + 0.5 * self.l2 * float(w @ w), gradient

    def accuracy(self, w):
        """The share of the targets that are met to within a half."""
        return float(np.mean(np.abs(self.X @ w - self.y) < 0.5))
'''

RUN_FILE = """
[data]
source = "samples.csv"
standardise = false

[model]
kind = "smooth"
width = {width}
l2 = 0.5

[set]
name = "kl"
radius = 0.1
"""


def fdro(folder: Path, *arguments: str, code: int = 0) -> str:
    """The command of the copy; what it prints, on stderr if it fails."""
    return python(folder, "-m", "fdro_core.cli", *arguments, code=code)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of fdro_core with two more files."""
    folder = tmp_path_factory.mktemp("project")
    core = copied("fdro_core", folder)
    (core / "cli" / "commands" / "weigh.py").write_text(COMMAND, encoding="utf-8")
    (core / "problems" / "smooth.py").write_text(PROBLEM, encoding="utf-8")
    return folder


def test_a_command_is_one_file(project: Path) -> None:
    text = fdro(project, "--help")
    sets, oracle, choose, weigh, mdp, training = (
        text.index(each) for each in ("Sets and worst", "oracle", "choose ", "weigh ", "mdp ", "─ Training")
    )
    assert sets < oracle < choose < weigh < mdp < training  # in its panel, at its place
    shown = fdro(project, "weigh", "--help")
    assert "Say how much some numbers weigh" in shown
    assert "fdro weigh 2 3" in shown
    assert json.loads(fdro(project, "weigh", "2", "3", "--json")) == {"weight": 5.0}
    assert "error: numbers must be at least 0, got -1.0" in fdro(project, "weigh", "--", "-1", code=2)


def test_a_problem_is_one_file(project: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"{x},{x + shift},{name}" for name, shift in (("a", 0.0), ("b", 1.0)) for x in rng.normal(size=20)
    ]
    (project / "samples.csv").write_text("\n".join(["x,label,worker", *rows, ""]), encoding="utf-8")
    (project / "run.toml").write_text(RUN_FILE.format(width=2.0), encoding="utf-8")
    numbers = json.loads(fdro(project, "train", "run.toml", "--json"))
    # Two sites whose targets differ by 1, no intercept: the set says which of them counts more.
    assert 0.0 < numbers["objective"] < 0.5
    assert all(worker["test_accuracy"] is not None for worker in numbers["workers"])
    (project / "run.toml").write_text(RUN_FILE.format(width='"wide"'), encoding="utf-8")
    assert "run.toml:8: model.width: must be a number" in fdro(project, "train", "run.toml", code=2)
