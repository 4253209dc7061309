"""A checkpoint knows what it belongs to: another run is refused with a list of what differs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from fdro_core import (
    Adaptive,
    AspireEase,
    AspireModels,
    Constant,
    LeastSquares,
    LogNormal,
    ProblemFrom,
    SoftmaxRegression,
    Straggler,
    ThreadEngine,
    VirtualEngine,
    resume,
    solve,
)
from fdro_core.baselines import FedAvg
from fdro_core.errors import CheckpointMismatch, CheckpointWarning, InvalidProblem
from fdro_core.master import checkpoint as snapshots
from fdro_core.master.identity import describe
from fdro_core.observers import Checkpoint, StopAfter
from tests.fdro_core.engine_kinds import EVERY, N, quadratics
from tests.fdro_core.helpers import Quadratic, load_shard, middle_box, softmax_problems
from tests.uncertainty_sets.plugins import TotalVariation
from uncertainty_sets import KL, Box, CDNorm, Ellipsoid, Polyhedron, Wasserstein1
from uncertainty_sets.base import UncertaintySet

q = np.full(N, 1 / N)

FIRST = {
    "problems": softmax_problems(N),
    "uncertainty_set": KL(q, 0.3),
    "algorithm": AspireModels(iterations=20, active_workers=2, tolerance=0.0),
}


def virtual(**settings):
    laws = [Constant(1.0), LogNormal(), LogNormal(2.0), Constant(3.0)]
    return VirtualEngine(**{"seed": 2, "delays": laws} | settings)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A checkpoint of FIRST on the virtual engine."""
    path = tmp_path_factory.mktemp("first") / "run.npz"
    solve(**FIRST, engine=virtual(), observers=[Checkpoint(path)])
    return path


def other_data():
    problems = softmax_problems(N)
    changed = problems[1].X.copy()
    changed[3, 1] += 1e-9
    problems[1] = SoftmaxRegression(changed, problems[1].y, 3, l2=1e-2, intercept=False)
    return problems


def other_ridge():
    problems = softmax_problems(N)
    problems[2] = SoftmaxRegression(problems[2].X, problems[2].y, 3, l2=2e-2, intercept=False)
    return problems


def another_kind():
    problems = softmax_problems(N)
    X = problems[3].X
    problems[3] = LeastSquares(np.tile(X, 3), np.ones(len(X)), intercept=False)
    return problems


CONFIG = FIRST["algorithm"]

# what is different the second time, the lines that say so, and whether `force` can go on from it
OTHERS = {
    "set": ({"uncertainty_set": middle_box(N)}, ["set: KL → Box"], True),
    "radius": ({"uncertainty_set": KL(q, 0.4)}, ["set.radius: 0.3 → 0.4"], True),
    "centre": ({"uncertainty_set": KL([0.1, 0.2, 0.3, 0.4], 0.3)}, ["set.center: "], True),
    "seed": ({"algorithm": replace(CONFIG, seed=1)}, ["algorithm.seed: 0 → 1"], True),
    "S": ({"algorithm": replace(CONFIG, active_workers=3)}, ["algorithm.active_workers: 2 → 3"], True),
    "batch": ({"algorithm": replace(CONFIG, batch_size=4)}, ["algorithm.batch_size: None → 4"], False),
    "rule": (
        {"algorithm": replace(CONFIG, adaptive=Adaptive(few=1))},
        ["algorithm.adaptive"],
        True,
    ),
    "data": ({"problems": other_data()}, [r"problems\[1\]: \w+ sha256 \w+, 9 parameters, 13"], True),
    "ridge": ({"problems": other_ridge()}, [r"problems\[2\]: SoftmaxRegression"], True),
    "kind": ({"problems": another_kind()}, [r"problems\[3\]: Softmax.* → LeastSquares"], True),
    "order": (
        {"problems": [FIRST["problems"][j] for j in (1, 0, 2, 3)]},
        ["problems: the same ones in another order, at workers 0, 1"],
        True,
    ),
    "number": (
        {"problems": softmax_problems(3), "uncertainty_set": KL([0.3, 0.3, 0.4], 0.3),
         "engine": VirtualEngine(seed=2, delays=[Constant()] * 3)},
        ["set.center: ", "engine.delays: 4 in all → 3 in all", "engine.delays", "problems: 4 workers → 3"],
        False,
    ),
    "size": (
        {"problems": softmax_problems(N, features=4)},
        [rf"problems\[{j}\]: .* 9 parameters, .* 12 parameters" for j in range(N)],
        False,
    ),
    "form": (
        {"algorithm": AspireEase(iterations=20)},
        ["algorithm: AspireModels → AspireEase"],
        False,
    ),
    "algorithm": ({"algorithm": FedAvg(iterations=20)}, ["algorithm: AspireModels → FedAvg"], False),
    "times": ({"engine": virtual(seed=3)}, ["engine.seed: 2 → 3"], True),
    "laws": (
        {"engine": virtual(delays=[Constant(1.0), LogNormal(), LogNormal(9.0), Constant(3.0)])},
        [r"engine.delays\[2\].median: 2.0 → 9.0"],
        True,
    ),
    "fewer laws": ({"engine": virtual(delays=Constant(1.0))}, ["engine.delays: 4 in all → Constant"], False),
    "stragglers": (
        {"engine": virtual(stragglers=[Straggler(1, 9.0)])},
        [r"engine.stragglers: \[\] → 1 in all"],
        True,
    ),
    "lost": ({"engine": virtual(lost=0.1), "algorithm": replace(CONFIG, deadline=9.0)},
             ["algorithm.deadline", "engine.lost: 0.0 → 0.1"], True),
    "clock": ({"engine": ThreadEngine(2)}, ["engine: VirtualEngine → an engine on a wall clock"], False),
    "several": (
        {"uncertainty_set": KL(q, 0.4), "algorithm": replace(CONFIG, seed=1)},
        ["algorithm.seed: 0 → 1", "set.radius: 0.3 → 0.4"],
        True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_another_run_is_refused_with_a_list(what, path):
    changed, lines, _ = OTHERS[what]
    with pytest.raises(CheckpointMismatch, match="belongs to another run") as caught:
        resume(path, **{**FIRST, "engine": virtual(), **changed})
    found = caught.value.differences
    for line in lines:
        assert any(re.match(line, each) for each in found), found
    if what != "number":  # where four laws became three, each field is one
        assert len(found) == len(lines), found
    assert all(each in str(caught.value) for each in found)
    assert "force=True" in str(caught.value)


@pytest.mark.parametrize("what", [name for name, other in OTHERS.items() if other[2]])
def test_force_goes_on_and_warns_with_the_list(what, path):
    changed, lines, _ = OTHERS[what]
    again = {**FIRST, "engine": virtual(), **changed}
    again["algorithm"] = replace(again["algorithm"], iterations=40)
    with pytest.warns(CheckpointWarning) as warned:
        result = resume(path, **again, force=True)
    assert re.search(lines[0], str(warned[0].message))
    assert warned[0].filename == __file__
    assert result.iterations == 40
    assert np.isfinite(result.objective)


@pytest.mark.parametrize("what", [name for name, other in OTHERS.items() if not other[2]])
def test_force_cannot_make_a_state_fit(what, path):
    forced = {**FIRST, "engine": virtual(), **OTHERS[what][0]}
    if what in {"algorithm", "form"}:  # refused by its name, before the state is looked at
        with pytest.raises(CheckpointMismatch, match=r"algorithm: .* → (FedAvg|AspireEase)"):
            resume(path, **forced, force=True)
        return
    with pytest.warns(CheckpointWarning), pytest.raises(CheckpointMismatch) as caught:
        resume(path, **forced, force=True)
    assert caught.value.differences == []
    assert re.search(
        "4 workers|9 parameters|delay laws|wall clock|with full batches",
        str(caught.value),
    )


def test_a_forced_run_writes_what_it_is_now(path, tmp_path):
    later, again = tmp_path / "later.npz", {**FIRST, "uncertainty_set": KL(q, 0.4), "engine": virtual()}
    with pytest.warns(CheckpointWarning):
        resume(path, **again, force=True, observers=[Checkpoint(later)])
    resume(later, **again)
    with pytest.raises(CheckpointMismatch, match=r"0\.4 → 0\.3"):
        resume(later, **FIRST, engine=virtual())


HARMLESS = {
    "iterations": {"algorithm": replace(CONFIG, iterations=31)},
    "reports": {"algorithm": replace(CONFIG, report_interval=1)},
    "observers": {"observers": [StopAfter(1e9)]},
    "the same again": {"uncertainty_set": KL(list(q), 0.3), "problems": softmax_problems(N)},
    "a tuple": {"engine": virtual(delays=(Constant(1.0), LogNormal(), LogNormal(2.0), Constant(3.0)))},
    "the default written out": {"algorithm": replace(CONFIG, planes="ease", deadline=CONFIG.deadline)},
}


@pytest.mark.parametrize("what", HARMLESS)
def test_what_makes_no_other_run(what, path):
    given = {**FIRST, "engine": virtual(), **HARMLESS[what]}
    assert resume(path, **given).iterations == given["algorithm"].iterations  # warnings are errors


def test_many_differences_are_counted(tmp_path):
    path, problems = tmp_path / "run.npz", softmax_problems(30)
    config = AspireModels(iterations=5)
    solve(problems, middle_box(30), algorithm=config, observers=[Checkpoint(path)])
    with pytest.raises(CheckpointMismatch, match="and 18 more") as caught:
        resume(path, softmax_problems(30, seed=1), middle_box(30), algorithm=config)
    assert len(caught.value.differences) == 30


# -- parts that describe themselves, or do not ------------------------------------------------------


SETS = {
    "box": lambda change: Box([0.1] * 4, [0.5 + change] * 4),
    "cd-norm": lambda change: CDNorm(q, 0.2, 1.0 + change),
    "ellipsoid": lambda change: Ellipsoid(q, 1.0 + change, 0.1),
    "dense ellipsoid": lambda change: Ellipsoid(q, np.eye(4) + change * np.diag([1, 0, 0, 0]), 0.1),
    "kl": lambda change: KL(q, 0.1 + change),
    "polyhedron": lambda change: Polyhedron(np.eye(4), np.full(4, 0.5 + change)),
    "wasserstein": lambda change: Wasserstein1(q, 0.1 + change),
    "wasserstein's cost": lambda change: Wasserstein1(q, 0.1, [0.0, 1.0, 2.0, 3.0 + change]),
    "large": lambda change: KL(np.full(100, 0.01), 0.1 + change),
    "large center": lambda change: KL(np.full(100, 0.01) + change * np.eye(100)[0], 0.1),
    "plug-in": lambda change: TotalVariation(q, 0.1 + change),
    "plug-in with its own names": lambda change: Renamed(0.1 + change),
}


class Renamed(UncertaintySet):
    """A plug-in that keeps its argument under another name, and a cache."""

    size = 4

    def __init__(self, radius):
        self._reach, self.last = radius, object()

    def constraints(self, p):
        return [p <= 0.25 + self._reach]


@pytest.mark.parametrize("kind", SETS)
def test_sets_are_known_by_class_and_parameters(kind):
    make = SETS[kind]
    assert describe(make(0.0)) == describe(make(0.0))
    assert describe(make(0.0)) != describe(make(1e-9))


def test_a_fingerprint_of_the_parts_own():
    class Law:
        def __init__(self, where):
            self.where = where

        def fingerprint(self):
            return {"": "Law", "numbers": 3}

    assert describe(Law("here")) == describe(Law("there")) == {"": "Law", "numbers": 3}
    assert describe([1.0] * 20) != describe([1.0] * 21)
    assert describe({"f": softmax_problems}) == {"f": "softmax_problems"}


@pytest.mark.parametrize("kind", EVERY)
def test_data_that_live_with_the_worker_are_known_too(kind, make, tmp_path):
    """Factories: the master never sees the shards, and a changed one is found all the same."""
    rng, path = np.random.default_rng(0), tmp_path / "run.npz"
    shards = [tmp_path / f"{j}.npz" for j in range(N)]
    for shard in shards:
        np.savez(shard, X=rng.normal(size=(5, 2)), y=rng.normal(size=5))
    problems = [ProblemFrom(load_shard, shard, tmp_path) for shard in shards]
    config = AspireModels(iterations=12)
    solve(problems, KL(q, 0.3), algorithm=config, engine=make(kind), observers=[Checkpoint(path)])
    resume(path, problems, KL(q, 0.3), algorithm=replace(config, iterations=24), engine=make(kind))
    np.savez(shards[2], X=rng.normal(size=(5, 2)), y=rng.normal(size=5))
    with pytest.raises(CheckpointMismatch, match=r"problems\[2\]: LeastSquares sha256") as caught:
        resume(path, problems, KL(q, 0.3), algorithm=config, engine=make(kind))
    assert len(caught.value.differences) == 1


def test_problems_without_a_fingerprint_are_known_by_class_and_shape(tmp_path):
    class Other(Quadratic):
        samples = 7

    path, config = tmp_path / "run.npz", AspireModels(iterations=5)
    solve(quadratics(), middle_box(3), algorithm=config, observers=[Checkpoint(path)])
    resume(path, [*quadratics()[:2], Quadratic([9.0, 9.0])], middle_box(3), algorithm=config)
    with pytest.raises(CheckpointMismatch, match=r"Quadratic, 2 parameters → Other, 2 parameters, 7 samples"):
        resume(path, [*quadratics()[:2], Other([2.0, 2.0])], middle_box(3), algorithm=config)


def test_a_fingerprint_that_is_no_text():
    class Wrong(Quadratic):
        def fingerprint(self):
            return np.zeros(3)

    with pytest.raises(InvalidProblem, match=r"Wrong\.fingerprint\(\) must give a string, got a ndarray"):
        solve([Wrong([0.0]), Wrong([1.0])], middle_box(2))


def test_a_long_fingerprint_is_shortened(tmp_path):
    class Talkative(Quadratic):
        words = "x" * 10_000

        def fingerprint(self):
            return self.words

    path, config = tmp_path / "run.npz", AspireModels(iterations=5)
    problems = [Talkative([0.0]), Talkative([1.0])]
    solve(problems, middle_box(2), algorithm=config, observers=[Checkpoint(path)])
    assert max(map(len, snapshots.read(path)["belongs_to"]["problems"])) < 100
    problems[1].words += "y"
    with pytest.raises(CheckpointMismatch, match=r"problems\[1\]"):
        resume(path, problems, middle_box(2), algorithm=config)
