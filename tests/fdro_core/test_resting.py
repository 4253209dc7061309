"""`rest`: with mini-batches, workers of little weight are asked less often, and no run hangs."""

from __future__ import annotations

import numpy as np
import pytest

from fdro_core import Adaptive, AspireModels, Crash, LogNormal, Straggler, VirtualEngine, resume, solve
from fdro_core.aspire.models.sampled import Resting
from fdro_core.observers import Checkpoint
from tests.fdro_core.helpers import same, softmax_problems
from uncertainty_sets import Box

N = 6


def sampled(**settings):
    return AspireModels(**{"batch_size": 8, "iterations": 600, **settings})


def without_two():
    """A set in which workers 0 and 1 never have weight."""
    return Box([0.0, 0.0, *[0.1] * (N - 2)], [0.0, 0.0, *[0.5] * (N - 2)])


def visits(result):
    """How often each worker's loss changed between reports, one per iteration: its visits."""
    losses = np.array([entry["losses"] for entry in result.history if entry["event"] == "report"])
    return (np.diff(losses, axis=0) != 0).sum(axis=0)


# -- the rule -----------------------------------------------------------------------------------------------


def test_those_of_little_weight_rest_until_their_time():
    resting = Resting(3.0, workers=4)
    weights = [0.0, 0.125, 0.2, 0.675]
    assert resting.leave([0, 1, 2, 3], weights.__getitem__, iteration=10) == [2, 3]
    assert resting.until == {0: 13, 1: 11}  # an epoch is one iteration if all four are active
    assert resting.leave([2], weights.__getitem__, iteration=11) == [2, 1]
    assert resting.leave([1], weights.__getitem__, iteration=12) == []
    assert resting.until == {0: 13, 1: 16}  # and four if one is
    assert resting.wake(1) == [0]
    assert resting.reconsider(np.array([0.0, 0.25, 0.2, 0.55])) == [1]
    assert resting.until == {}


def test_a_worker_that_was_asked_meanwhile_is_not_called_twice():
    resting = Resting(2.0, workers=2)
    assert resting.leave([0], lambda j: 0.0, iteration=0) == []
    resting.forget(0)
    assert resting.leave([0], lambda j: 0.0, iteration=3) == []
    assert resting.until == {0: 7}
    assert resting.leave([1], lambda j: 1.0, iteration=5) == [1]  # the first rest would have ended at 4
    again = Resting(2.0, workers=2, until=resting.snapshot())
    assert again.wake(5) == [0]
    assert again.wake(1) == []


# -- runs ---------------------------------------------------------------------------------------------------


def test_workers_without_weight_are_asked_every_fourth_epoch():
    problems = softmax_problems(N)
    settings = {"report_interval": 1, "iterations": 1200}
    alike = visits(solve(problems, without_two(), algorithm=sampled(rest=0.0, **settings)))
    assert alike.max() - alike.min() <= 0.15 * alike.mean()
    counts = visits(solve(problems, without_two(), algorithm=sampled(**settings)))
    assert counts[:2].max() < 0.5 * counts[2:].min()
    assert counts[:2].min() > 0.15 * counts[2:].max()


def test_a_rest_changes_neither_full_batches_nor_runs_that_wait_for_all():
    problems, chosen = softmax_problems(N), without_two()
    for settings in ({"batch_size": None}, {"active_workers": N}):
        plain = solve(problems, chosen, algorithm=sampled(rest=0.0, **settings))
        np.testing.assert_array_equal(solve(problems, chosen, algorithm=sampled(**settings)).w, plain.w)


@pytest.mark.filterwarnings("ignore::fdro_core.errors.WorkerWarning")
@pytest.mark.parametrize("active", [1, 3])
def test_resting_workers_take_over_if_all_others_are_lost(active):
    crashes = [Crash(j, at=20.0 + j) for j in range(2, N)]
    engine = VirtualEngine(seed=3, crashes=crashes)
    algorithm = sampled(active_workers=active, iterations=400)
    result = solve(softmax_problems(N), without_two(), algorithm=algorithm, engine=engine)
    assert result.iterations == 400
    assert np.isfinite(result.losses[:2]).all()
    assert np.isnan(result.losses[2:]).all()


SCENES = {
    "one": ({}, {"delays": LogNormal(1.0, 0.5)}),
    "three": ({"active_workers": 3}, {"stragglers": [Straggler(4, 12.0)]}),
    "adaptive": ({"adaptive": Adaptive(few=2)}, {"stragglers": [Straggler(1, 15.0, 20.0, 50.0)]}),
    "local steps": ({"local_steps": 3}, {}),
    "faults": (
        {"deadline": 5.0, "dead_losses": "drop"},
        {"lost": 0.03, "repeated": 0.1, "crashes": [Crash(0, 9.0, 14.0), Crash(3, 30.0)]},
    ),
}


@pytest.mark.filterwarnings("ignore::fdro_core.errors.WorkerWarning")
@pytest.mark.parametrize("scene", SCENES)
def test_a_run_goes_on_bit_for_bit(scene, tmp_path):
    settings, engine = SCENES[scene]
    problems, chosen, path = softmax_problems(N), without_two(), tmp_path / "run.npz"

    def go(iterations, *observers):
        return solve(
            problems,
            chosen,
            algorithm=sampled(**settings | {"iterations": iterations}),
            engine=VirtualEngine(seed=2, **engine),
            observers=observers,
        )

    whole = go(200)
    go(73, Checkpoint(path))
    rest = resume(
        path,
        problems,
        chosen,
        algorithm=sampled(**settings | {"iterations": 200}),
        engine=VirtualEngine(seed=2, **engine),
    )
    same(whole, rest)
