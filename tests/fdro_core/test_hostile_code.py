"""Users' own code that does what it should not: write to w, leave the process, fail on resuming."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fdro_core import AspireModels, ThreadEngine, VirtualEngine, resume, solve
from fdro_core.baselines import AFL, FedAvg
from fdro_core.errors import (
    CheckpointMismatch,
    CheckpointWarning,
    ObserverFailed,
    WorkerFailed,
    WorkerWarning,
)
from fdro_core.observers import Checkpoint
from tests.fdro_core.helpers import FORMS, Quadratic, forms, middle_box
from uncertainty_sets import KL, UncertaintySet

CENTRES = [[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]]
SHORT = AspireModels(iterations=60, tolerance=0.0)
engines = pytest.mark.parametrize("engine", [VirtualEngine, ThreadEngine])


def quadratics():
    return [Quadratic(centre) for centre in CENTRES]


class Named(Quadratic):
    """Says what its data are."""

    def fingerprint(self):
        return str(self.centre.tolist())


class Writes(Quadratic):
    """Takes w for its own."""

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        w -= self.centre
        return float(w @ w / 2), w.copy()


class Leaves(Quadratic):
    """Ends the process, or tries to, after a number of gradients."""

    def __init__(self, centre, after):
        super().__init__(centre)
        self.left = after

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        self.left -= 1
        if self.left < 0:
            sys.exit("enough")
        return super().loss_and_gradient(w, rng, batch_size)


@pytest.mark.parametrize("config", [*forms(iterations=60), FedAvg(iterations=5)], ids=[*FORMS, "fedavg"])
def test_a_problem_cannot_write_to_the_model(config):
    with pytest.raises(WorkerFailed, match="read-only"):
        solve([Writes(CENTRES[0]), *quadratics()[1:]], middle_box(3), algorithm=config)


@engines
def test_leaving_the_process_is_a_failure_of_the_worker(engine):
    with pytest.raises(
        WorkerFailed, match="worker 0 failed before the first step: RuntimeError: SystemExit: enough"
    ):
        solve(
            [Leaves(CENTRES[0], after=0), *quadratics()[1:]], middle_box(3), algorithm=SHORT, engine=engine()
        )


@engines
def test_leaving_the_process_later_is_told_too(engine):
    runner = engine(restarts=0) if engine is ThreadEngine else engine()
    with pytest.warns(WorkerWarning, match="SystemExit: enough"):
        result = solve(
            [Leaves(CENTRES[0], after=8), *quadratics()[1:]], middle_box(3), algorithm=SHORT, engine=runner
        )
    assert not result.proved


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.npz"
    solve([Named(centre) for centre in CENTRES], middle_box(3), algorithm=SHORT, observers=[Checkpoint(path)])
    return path


def failing():
    raise KeyError("ctor")


def test_a_worker_that_fails_when_the_run_is_resumed(saved, aspire):
    longer = aspire(iterations=90)
    with pytest.raises(WorkerFailed, match=r"worker 1 failed.*KeyError: 'ctor'"):
        resume(saved, [Named(CENTRES[0]), failing, Named(CENTRES[2])], middle_box(3), algorithm=longer)


def test_a_problem_that_cannot_say_what_it_is(saved):
    class Mute(Named):
        def fingerprint(self):
            raise OSError("no disk")

    with pytest.raises(WorkerFailed, match="no disk"):
        resume(saved, [Mute([9.0, 9.0]), *map(Named, CENTRES[1:])], middle_box(3), algorithm=SHORT)


def test_force_does_not_cross_algorithms(tmp_path):
    path = tmp_path / "run.npz"
    solve(quadratics(), middle_box(3), algorithm=FedAvg(iterations=5), observers=[Checkpoint(path)])
    with pytest.raises(CheckpointMismatch, match="algorithm: FedAvg → AFL"):
        resume(path, quadratics(), middle_box(3), algorithm=AFL(iterations=9, weight_step=0.05), force=True)
    with pytest.warns(CheckpointWarning):
        resume(path, quadratics(), KL(np.full(3, 1 / 3), 0.1), algorithm=FedAvg(iterations=9), force=True)


class Hidden(UncertaintySet):
    """Keeps its arguments in containers under other names."""

    def __init__(self, groups, limit):
        self._kept = [list(group) for group in groups]
        self._more = {"limit": limit}

    def constraints(self, p):
        return [sum(p[i] for i in group) <= self._more["limit"] for group in self._kept]


def test_a_set_is_known_by_what_its_containers_hold(tmp_path):
    path = tmp_path / "run.npz"
    solve(quadratics(), Hidden([[0], [1]], 0.7), algorithm=SHORT, observers=[Checkpoint(path)])
    with pytest.raises(CheckpointMismatch, match="limit"):
        resume(path, quadratics(), Hidden([[0], [1]], 0.4), algorithm=SHORT)
    with pytest.raises(CheckpointMismatch, match="set"):
        resume(path, quadratics(), Hidden([[1], [2]], 0.7), algorithm=SHORT)


class Tired:
    """An oracle that gives up after some calls."""

    def __init__(self, uncertainty_set, calls):
        self.inner, self.left = uncertainty_set, calls

    def worst_case(self, losses):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("no more answers")
        return self.inner.worst_case(losses)

    def reference(self):
        return self.inner.reference()


def test_an_oracle_that_raises_leaves_the_last_checkpoint_alone(tmp_path, aspire):
    path, finished = tmp_path / "run.npz", []

    class Ends:
        def __call__(self, run, entry):
            """Nothing to do."""

        def finish(self, run):
            finished.append(run.stop_reason)

    config = aspire(iterations=200, report_interval=3)
    with pytest.raises(RuntimeError, match="no more answers"):
        solve(
            quadratics(),
            Tired(middle_box(3), 9),
            algorithm=config,
            observers=[Checkpoint(path, every=1), Ends()],
        )
    assert finished == ["RuntimeError"]
    with pytest.warns(CheckpointWarning, match="set: Tired → Box"):
        assert resume(path, quadratics(), middle_box(3), algorithm=config, force=True).iterations == 200


@pytest.mark.parametrize("answer", [np.ones(3), True, 5])
def test_an_observer_returns_words_or_nothing(answer):
    with pytest.raises(ObserverFailed, match="returns None or a reason to stop"):
        solve(quadratics(), middle_box(3), algorithm=SHORT, observers=[lambda run, entry: answer])


def test_a_class_is_a_factory(aspire):
    class Fixed(Quadratic):
        dimension = 2

        def __init__(self):
            super().__init__([1.0, 1.0])

    result = solve([Fixed, Fixed, Fixed], middle_box(3), algorithm=aspire(iterations=300))
    assert result.w == pytest.approx([1.0, 1.0], abs=1e-6)
