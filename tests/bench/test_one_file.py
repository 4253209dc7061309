"""A data set, an experiment, a baseline and a set are one file each, and nothing else is edited.

Each test copies the package into a temporary folder, adds a small file, and runs commands there in a process
of their own.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.copies import ROOT, copied, python

DATASET = '''"""Two kinds of points.

- Source: made here. Licence: none needed.
"""

import numpy as np

from bench.datasets import Client, Federation, dataset


@dataset("two-points", clients="3 made ones", features="2 numbers", split="seeded", order=15)
def two_points(n: int = 40) -> Federation:
    """Load three clients."""
    clients = []
    for k in range(3):
        rng = np.random.default_rng(k)
        y = np.arange(n) % 2
        X = rng.normal(size=(n, 2)) + (2 + k) * y[:, None]
        clients.append(Client(f"made {k}", X[: n // 2], y[: n // 2], X[n // 2 :], y[n // 2 :]))
    return Federation("two-points", tuple(clients), 2, ("no", "yes"), about=__doc__)
'''

BASELINE = '''"""Signs: FedAvg with a fixed number of local steps, for this test."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fdro_core.baselines.fedavg import FedAvg
from fdro_core.protocol.tuning import STEP, Choice, Tunable


@dataclass(frozen=True, kw_only=True)
class ThreeSteps(FedAvg):
    """FedAvg with two or three local steps."""

    name: ClassVar[str] = "three-steps"
    label: ClassVar[str] = "Three-Steps"
    year: ClassVar[int] = 2018
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "step": STEP,
        "few": Tunable(3, Choice((2, 3)), field="local_steps"),
    }
'''

EXPERIMENT = '''"""How far FedAvg comes in few gradients."""

from bench.experiments.commands import options
from bench.experiments.commands.options import Session
from bench.experiments.presentation import reporting, tables
from bench.experiments.runs import compare


def main(arguments: list[str]) -> int:
    """Run it and print the table."""
    session = Session(options.parser("few", __doc__, ["digits"]), arguments, "few")
    with session.pool() as pool:
        base = options.base(session.given, "few", "digits")
        runs = compare.tuned_runs(
            pool, session.records, session.given, base, ["FedAvg"], compare.workers_of(base)
        )
    made = [tables.settings_found({"digits": runs})]
    session.publish(made, reporting.about(session.given, session.shown(), session.began))
    return 0
'''

SET = '''"""Within an l1 distance of a centre, by constraints alone."""

import cvxpy as cp
import numpy as np

from uncertainty_sets import UncertaintySet


class NearCentre(UncertaintySet):
    """The distributions p with sum |p - center| <= radius."""

    name = "near-centre"

    def __init__(self, center, radius):
        self.center, self.radius = np.asarray(center), radius
        self.size = self.center.size

    def constraints(self, p):
        return [cp.norm1(p - self.center) <= self.radius]
'''


def test_a_data_set_is_one_file(tmp_path: Path) -> None:
    bench = copied("bench", tmp_path)
    (bench / "datasets" / "two_points.py").write_text(DATASET)
    found = python(tmp_path, "-c", "import bench.datasets as d; print(d.__file__, d.names())")
    assert str(tmp_path) in found
    assert "'hospitals', 'two-points', 'fashion-mnist'" in found  # by its order, not its name
    page = tmp_path / "datasets.md"
    page.write_text((ROOT / "docs" / "datasets.md").read_text(encoding="utf-8"), encoding="utf-8")
    python(tmp_path, "-m", "bench", "datasets", "--to", str(page))
    assert "| `two-points` | 3 made ones | 2 numbers | seeded | none |" in page.read_text(encoding="utf-8")
    out = tmp_path / "out"
    quick = ["--quick", "--gradients", "40", "--methods", "FedAvg", "AspireModels", "--out", str(out)]
    python(tmp_path, "-m", "bench", "heterogeneity", "--data", "two-points", *quick)
    assert "**two-points**" in (out / "tables.md").read_text(encoding="utf-8")


def test_an_experiment_is_listed(tmp_path: Path) -> None:
    bench = copied("bench", tmp_path)
    (bench / "experiments" / "commands" / "few.py").write_text(EXPERIMENT)
    listed = python(tmp_path, "-m", "bench")
    assert "  few            How far FedAvg comes in few gradients." in listed.partition("experiments:")[2]


@pytest.mark.thorough
def test_an_experiment_is_one_file(tmp_path: Path) -> None:
    bench = copied("bench", tmp_path)
    (bench / "experiments" / "commands" / "few.py").write_text(EXPERIMENT)
    out = tmp_path / "out"
    quick = ["--quick", "--gradients", "40", "--trials", "1", "--repeats", "1", "--out", str(out)]
    python(tmp_path, "-m", "bench", "few", *quick)
    assert "FedAvg" in (out / "tables.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_a_baseline_is_one_file(tmp_path: Path) -> None:
    core = copied("fdro_core", tmp_path)
    (core / "baselines" / "three_steps.py").write_text(BASELINE)
    out = tmp_path / "out"
    quick = ["--quick", "--gradients", "40", "--trials", "2", "--out", str(out)]
    python(tmp_path, "-m", "bench", "heterogeneity", *quick)
    lines = (out / "tables.md").read_text(encoding="utf-8").splitlines()
    methods = [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ")]
    place = methods.index("Three-Steps")
    assert methods[place - 1 : place + 2] == ["FedAvg", "Three-Steps", "AFL"]  # by year
    records = [json.loads(line) for line in (out / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    tried = [each["settings"] for each in records if each["method"] == "Three-Steps"]
    assert {"step": 0.5, "few": 3} in tried
    assert {settings["few"] for settings in tried} <= {2, 3}


@pytest.mark.parametrize("command", ["attack", "efficiency"])
def test_a_baseline_is_in_the_tables_without_a_list(command: str, tmp_path: Path) -> None:
    core = copied("fdro_core", tmp_path)
    (core / "baselines" / "three_steps.py").write_text(BASELINE)
    code = (
        f"from bench.experiments.commands import {command} as c; from bench.experiments.runs import methods; "
        "print(methods.names(without=c.WITHOUT))"
    )
    assert "'FedAvg', 'Three-Steps', 'AFL'" in python(tmp_path, "-c", code)


@pytest.mark.thorough
def test_a_set_with_constraints_alone_is_measured_at_small_sizes(tmp_path: Path) -> None:
    sets = copied("uncertainty_sets", tmp_path)
    (sets / "sets" / "near_centre.py").write_text(SET)
    out = tmp_path / "out"
    python(tmp_path, "-m", "bench", "complexity", "--quick", "--sets", "near-centre", "--out", str(out))
    document = json.loads((out / "results.json").read_text(encoding="utf-8"))
    measured = {group[-1] for group in document["groups"] if group[0] == "cells"}
    assert measured == {10, 100, 1_000}
    assert {cell["size"] for cell in document["cells"]} <= measured
    assert "near-centre" in (out / "table.md").read_text(encoding="utf-8")
