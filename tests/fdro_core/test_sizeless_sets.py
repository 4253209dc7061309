"""A set that leaves its size to the losses, in every way of training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fdro_core import VirtualEngine, baselines, resume, solve
from fdro_core.cli.runs.run_file import load
from fdro_core.cli.written import set_class, written_set
from fdro_core.errors import InvalidConfig, InvalidSetting
from fdro_core.estimators import central
from fdro_core.estimators.group_set import build_set
from fdro_core.estimators.groups import GroupedSoftmax
from fdro_core.observers import Checkpoint
from fdro_core.sklearn import RobustClassifier
from tests.fdro_core.command import ROOT, RUN_FILE, asked, furnish
from tests.fdro_core.helpers import FORMS, in_form, softmax_problems
from tests.uncertainty_sets.plugins import TotalVariation as Sized
from tests.uncertainty_sets.sizeless import EVERY, Tail, TotalVariation
from uncertainty_sets.base import SETS
from uncertainty_sets.errors import InvalidInput

every_kind = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
METHODS = {name: getattr(baselines, name) for name in baselines.__all__}


def objective(result):
    """The worst case recomputed from the losses."""
    return float(result.worst_case.p @ result.losses)


@every_kind
def test_solve(make, aspire):
    free = make(3)
    result = solve(softmax_problems(3), free, algorithm=aspire(iterations=60))
    assert result.objective == pytest.approx(objective(result))
    assert free.with_size(3).contains(result.worst_case.p, tol=1e-7)
    assert free.size is None


def test_solve_gives_what_a_set_with_its_size_gives(aspire):
    q = np.full(3, 1 / 3)
    free, fixed = (
        solve(softmax_problems(3), each, algorithm=aspire(iterations=60))
        for each in (TotalVariation(q, 0.2), Sized(q, 0.2))
    )
    np.testing.assert_array_equal(free.w, fixed.w)
    assert free.objective == fixed.objective


@pytest.mark.parametrize("name", METHODS)
def test_every_baseline(name):
    method = METHODS[name]
    result = solve(softmax_problems(3), Tail(), algorithm=method(iterations=10))
    assert result.objective == pytest.approx(objective(result))


@every_kind
@pytest.mark.parametrize("config", [*(partial(in_form, form) for form in FORMS), baselines.DRFAProx])
def test_resume(make, config, tmp_path):
    def engine():
        return VirtualEngine(seed=3)

    whole = solve(softmax_problems(3), make(3), algorithm=config(iterations=40), engine=engine())
    path = tmp_path / "half.npz"
    solve(
        softmax_problems(3),
        make(3),
        algorithm=config(iterations=20),
        engine=engine(),
        observers=[Checkpoint(path)],
    )
    again = resume(path, softmax_problems(3), make(3), algorithm=config(iterations=40), engine=engine())
    np.testing.assert_array_equal(again.w, whole.w)


def test_two_sizes():
    with pytest.raises(InvalidSetting, match="the uncertainty set has 4 entries and there are 3 problems"):
        solve(softmax_problems(3), Tail().with_size(4))
    with pytest.raises(InvalidInput, match=r"TotalVariation.constraints .* 3 entries.*\(4,\)"):
        solve(softmax_problems(3), TotalVariation(np.full(4, 0.25), 0.2))


def test_two_sizes_are_found_before_any_worker_starts():
    class Watched(VirtualEngine):
        started = False

        def start(self, factories):
            self.started = True
            super().start(factories)

    engine = Watched()
    with pytest.raises(InvalidInput):
        solve(softmax_problems(3), TotalVariation(np.full(4, 0.25), 0.2), engine=engine)
    assert not engine.started


def grouped(groups=4):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=80) > 0).astype(int)
    return X, y, np.arange(80) % groups


@every_kind
@pytest.mark.parametrize("solver", ["central", "aspire-models"])
def test_robust_classifier_with_a_finished_set(make, solver):
    X, y, group = grouped()
    steps = None if solver == "central" else 40
    model = RobustClassifier(make(4), solver=solver, steps=steps, l2=0.1).fit(X, y, groups=group)
    assert model.uncertainty_set_.size == 4
    assert model.worst_case_.p @ model.group_losses_ == pytest.approx(model.worst_case_.value)
    assert solver != "central" or model.gap_ <= 1e-4


def test_robust_classifier_with_a_class():
    X, y, group = grouped()
    model = RobustClassifier(TotalVariation, radius=0.1).fit(X, y, groups=group)
    assert model.uncertainty_set_.size == 4
    with pytest.raises(InvalidInput, match=r"TotalVariation.constraints .* 4 entries.*\(3,\)"):
        RobustClassifier(TotalVariation(np.full(3, 1 / 3), 0.1)).fit(X, y, groups=group)


def test_robust_classifier_names_both_sizes():
    with pytest.raises(InvalidSetting, match="has 3 entries and there are 4 groups"):
        build_set(Tail().with_size(3), np.full(4, 0.25), {}, None)


@every_kind
def test_central(make):
    X, y, group = grouped()
    problem = GroupedSoftmax(X, y, group, 2, 0.1)
    found = central.minimise(problem, make(4), 0.1, 1e-4, 500)
    same = central.minimise(problem, make(4).with_size(4), 0.1, 1e-4, 500)
    assert found.converged
    np.testing.assert_array_equal(found.w, same.w)
    assert found.evaluations == same.evaluations, "the size costs no pass over the data"


class TwoEntries(Tail):
    """Has a size of its own."""

    size = 2


@pytest.fixture
def named(monkeypatch):
    """A plug-in in the registry, for as long as the test."""
    for cls in (Tail, TwoEntries):
        monkeypatch.setattr(cls, "name", "tail")
    SETS.define(Tail)
    yield
    SETS.forget("tail")


@pytest.mark.usefixtures("named")
def test_written_set():
    assert written_set(set_class("tail"), {"level": 0.25}, 5).size == 5


PACKAGE = """
import cvxpy as cp
import numpy as np
from uncertainty_sets import UncertaintySet

class Tail(UncertaintySet):
    def __init__(self, level: float):
        self.level = level

    def constraints(self, p):
        return [p <= 1.0 / (p.size * (1.0 - self.level))]

class Near(UncertaintySet):
    def __init__(self, center, radius: float):
        self.center, self.radius = np.asarray(center), radius

    def constraints(self, p):
        return [cp.norm1(p - self.center) <= 2 * self.radius]
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder with samples, and a distribution as an installer would have left it on the path."""
    monkeypatch.chdir(tmp_path)
    furnish()
    site = tmp_path / "site"
    info = site / "my_sets-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "my_sets.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-sets\nVersion: 1.0\n")
    points = "[uncertainty_sets.sets]\nmy-tail = my_sets:Tail\nmy-near = my_sets:Near\n"
    (info / "entry_points.txt").write_text(points)
    return f"{site}:{ROOT}"


def fdro(path, *arguments):
    """The command in a process of its own, which finds the package's sets."""
    line = [sys.executable, "-m", "fdro_core.cli", *arguments]
    return subprocess.run(
        line, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "section", ['name = "my-tail"\nlevel = 0.5', 'name = "my-near"\nradius = 0.2'], ids=["any size", "centre"]
)
@pytest.mark.parametrize("algorithm", ["aspire-models", "aspire-ease", "fed-avg"])
def test_train_and_resume(installed, section, algorithm):
    text = RUN_FILE.replace('name = "kl"\nradius = 0.1', section)
    text = text.replace("iterations = 120", f'name = "{algorithm}"\niterations = 12')
    Path("run.toml").write_text(text)
    done = fdro(installed, "train", "run.toml", "--json")
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout)
    assert sum(worker["prior"] for worker in numbers["workers"]) == pytest.approx(1.0)
    more = fdro(installed, "resume", "run", "--iterations", "20", "--json")
    assert more.returncode == 0, more.stderr
    assert json.loads(more.stdout)["iterations"] == 20
    report = fdro(installed, "report", "run")
    assert report.returncode == 0, report.stderr


def test_train_with_a_centre_of_another_size(installed):
    section = 'name = "my-near"\nradius = 0.2\ncenter = [0.5, 0.5]'
    Path("run.toml").write_text(RUN_FILE.replace('name = "kl"\nradius = 0.1', section))
    done = fdro(installed, "train", "run.toml")
    assert done.returncode == 2
    assert "Near.constraints" in done.stderr
    assert "3 entries" in done.stderr
    assert "(2,)" in done.stderr


@pytest.mark.usefixtures("named")
def test_the_oracle_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = asked("oracle", "--set", "tail", "--losses", "1,2,3,4", "--level", "0.5")
    assert answer["value"] == pytest.approx(3.5)


@pytest.mark.usefixtures("named")
def test_a_config_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    furnish()
    Path("run.toml").write_text(RUN_FILE.replace('name = "kl"\nradius = 0.1', 'name = "tail"'))
    assert load(Path("run.toml")).uncertainty_set.size == 3
    SETS.forget("tail")
    SETS.define(TwoEntries)
    Path("run.toml").write_text(RUN_FILE.replace('name = "kl"\nradius = 0.1', 'name = "tail"\nlevel = 0.5'))
    with pytest.raises(InvalidConfig, match="the set has 2 entries, and there are 3 workers"):
        load(Path("run.toml"))
