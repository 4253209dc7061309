"""A folder to try the `fdro` command in: samples of three workers, a run file for them, and the command."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner, Result

from fdro_core.cli.app import app

ROOT = Path(__file__).resolve().parents[2]

RUN_FILE = """\
[data]
source = "samples.csv"

[model]
l2 = 0.01

[set]
name = "kl"
radius = 0.1

[algorithm]
iterations = 120

[engine]
seed = 3
stragglers = [{ worker = 0, factor = 5.0 }]

[output]
folder = "run"
"""

TO_THE_END = RUN_FILE.replace("[algorithm]\n", "[algorithm]\ntolerance = 0.0\n")
"""The run file for all its iterations: by default a run stops at the optimum."""


def furnish() -> None:
    """Write samples and a run file to the current folder."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    label = np.where(X[:, 0] + rng.normal(size=90) > 0, "ill", "well")
    lines = [f"{x[0]},{x[1]},{name},w{j % 3}" for j, (x, name) in enumerate(zip(X, label, strict=True))]
    Path("samples.csv").write_text("\n".join(["a,b,label,worker", *lines]) + "\n")
    Path("run.toml").write_text(RUN_FILE)


def fdro(*arguments: Any, given: str | None = None, code: int = 0) -> Result:
    """The command's answer; its exit code must be the one expected."""
    answer = CliRunner().invoke(app, [str(part) for part in arguments], input=given)
    assert answer.exit_code == code, (answer.output, answer.exception)
    return answer


def asked(*arguments: Any, given: str | None = None) -> Any:
    """What `--json` prints."""
    return json.loads(fdro(*arguments, "--json", given=given).stdout)


def command(*arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command as a process of its own: the line, and the environment."""
    return [sys.executable, "-m", "fdro_core.cli", *arguments], {**os.environ, "PYTHONPATH": str(ROOT)}
