"""A baseline is one file: copied into the folder it passes the shared suite, and nothing else is edited."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fdro_core import baselines

ROOT = Path(__file__).resolve().parents[2]

PLUG_IN = '''\
"""Worst first: each round follows the worker of largest loss, and the others by a small share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator

from fdro_core.baselines.rounds import Job, Replies, Rounds, RoundState
from fdro_core.protocol.settings import Number, documented, setting


@documented
@dataclass(frozen=True, kw_only=True)
class WorstFirst(Rounds):
    """w ← Σ_j λ_jw_j with λ_j in proportion to share + [f_j is the largest loss]."""

    share: float = setting(0.1, Number(inclusive=True), "weight of the other workers")

    name: ClassVar[str] = "worst-first"
    adapts: ClassVar[bool] = True

    def close(self, state: RoundState, phase: int, job: Job, replies: Replies, rng: Generator) -> None:
        """Average the models, then set the weights."""
        super().close(state, phase, job, replies, rng)
        weights = self.share + (state.losses == state.losses.max())
        state.weights = weights / weights.sum()
'''

WITHOUT_ROUNDS = '''\
"""Delay scaled: every update moves w, the older the less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fdro_core.baselines.arrivals import Arrival, Arrivals, ArrivalState
from fdro_core.protocol.settings import Number, documented, setting
from uncertainty_sets.arrays import Array


@documented
@dataclass(frozen=True, kw_only=True)
class DelayScaled(Arrivals):
    """w ← w + (w_j - w_sent)/(1 + age)^power."""

    power: float = setting(1.0, Number(inclusive=True), "how much less an old update moves w")

    name: ClassVar[str] = "delay-scaled"

    def combine(self, state: ArrivalState, arrival: Arrival) -> Array | None:
        """Scale the update."""
        return arrival.move / (1.0 + arrival.age) ** self.power
'''

FROM_COPY = """\
# Loads fdro_core.baselines from the copy of its folder, before any test is collected.
import importlib.util
import sys

spec = importlib.util.spec_from_file_location(
    "fdro_core.baselines", {init!r}, submodule_search_locations=[{folder!r}]
)
module = sys.modules["fdro_core.baselines"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
import fdro_core

fdro_core.baselines = module
"""


@pytest.mark.parametrize(
    ("name", "text"), [("worst-first", PLUG_IN), ("delay-scaled", WITHOUT_ROUNDS)], ids=["rounds", "arrivals"]
)
@pytest.mark.few(1)
def test_a_copied_file_is_a_baseline(name, text, tmp_path):
    folder = tmp_path / "baselines"
    shutil.copytree(baselines.__path__[0], folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / f"{name.replace('-', '_')}.py").write_text(text)
    (tmp_path / "from_copy.py").write_text(
        FROM_COPY.format(init=str(folder / "__init__.py"), folder=str(folder))
    )
    answer = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-m", "", "-q", "-p", "from_copy", "-p", "no:cacheprovider",
            "-k", name, "tests/fdro_core/test_every_baseline.py",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "18 passed" in answer.stdout


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            'name: ClassVar[str] = "worst-first"',
            'name: ClassVar[str] = "FedAvg"',
            "two algorithms are called 'FedAvg': fdro_core.baselines.fedavg.FedAvg has the name (as "
            "'fed-avg'), and fdro_core.baselines.worst_first.WorstFirst wants it",
        ),
        ("class WorstFirst", "class FedAvg", "two baselines are called FedAvg, in fdro_core.baselines."),
    ],
    ids=["name", "class"],
)
def test_two_baselines_of_one_name_are_refused(old, new, words, tmp_path):
    """The second would replace the first in run files or in imports."""
    shutil.copytree(ROOT / "fdro_core", tmp_path / "fdro_core", ignore=shutil.ignore_patterns("__pycache__"))
    assert old in PLUG_IN
    (tmp_path / "fdro_core" / "baselines" / "worst_first.py").write_text(
        PLUG_IN.replace(old, new), encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import fdro_core.baselines"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert words in done.stderr
