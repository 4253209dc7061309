"""The search for settings: which trials are run with which seeds, and what they are judged by."""

from __future__ import annotations

import argparse
from collections import Counter

import pytest
from rich.console import Console

from bench.experiments.runs import compare, methods, search
from bench.experiments.runs.methods import Method, Range
from bench.experiments.runs.perform import perform
from bench.experiments.runs.pool import Pool
from bench.experiments.runs.task import Records, Task

BASE = Task("heterogeneity", "digits", "", {}, "run", 0, gradients=60, batch=16, points=3)
ANY = Method("any", methods.ease(), {"step": Range(0.1, 10.0)}, {"step": 1.0})


def searched(tmp_path, score, *, halving, trials=5, seeds=3):
    """Return the settings chosen and how many runs each trial had, with scores in the place of runs."""

    def scored(task):
        record = {name: getattr(task, name) for name in Task.__dataclass_fields__}
        held = score(task.settings["step"], task.seed % search.FIRST_SEED)
        return record | {"schema": 1, "metrics": {"held_acc_w": held, "acc_w": 1 - held}}

    given = argparse.Namespace(
        trials=trials,
        search_seeds=seeds,
        seed=0,
        repeats=1,
        widen=False,
        halving=halving,
        outer=0.05,
        edges=[],
    )
    records = Records(tmp_path / "runs.jsonl")
    with Pool(1, Console(quiet=True), scored) as pool:
        (run,) = compare.tuned_runs(pool, records, given, BASE, ["any"], 2, {"any": ANY})["any"]
    tuned = [record for record in records.known.values() if record["stage"] == "tune"]
    return run["settings"], Counter(record["settings"]["step"] for record in tuned)


def test_the_better_half_goes_on_to_the_next_seed(tmp_path):
    chosen, runs = searched(tmp_path, lambda step, seed: step / 100, halving=True)
    longest = max(settings["step"] for settings in search.candidates(ANY, 5))
    assert chosen == {"step": longest}
    assert sorted(runs.values()) == [1, 1, 2, 3, 3]  # 5 with one seed, 3 with two, 2 with three
    assert runs[longest] == 3


def test_without_halving_every_trial_has_every_seed(tmp_path):
    _, runs = searched(tmp_path, lambda step, seed: step / 100, halving=False)
    assert sorted(runs.values()) == [3] * 5


@pytest.mark.parametrize("halving", [False, True])
def test_a_trial_is_judged_by_the_mean_over_its_seeds(tmp_path, halving):
    steps = [settings["step"] for settings in search.candidates(ANY, 2)]
    held = {steps[0]: (0.5, 0.7), steps[1]: (0.9, 0.1)}  # 0.6 against 0.5 on average
    chosen, _ = searched(tmp_path, lambda step, seed: held[step][seed], halving=halving, trials=2, seeds=2)
    # With halving the second seed never sees the first trial: one of two goes on.
    assert chosen == {"step": steps[1] if halving else steps[0]}


def test_the_earlier_of_equal_trials_is_chosen(tmp_path):
    chosen, runs = searched(tmp_path, lambda step, seed: 0.5, halving=True)
    assert chosen == ANY.default
    assert runs[1.0] == 3


@pytest.mark.parametrize("seconds", [0.0, 20.0])
def test_a_trial_sees_held_out_data_alone(seconds):
    task = Task(
        "race", "digits", "AFL", {"step": 1.0, "weight_step": 0.01}, "tune", 0,
        gradients=60, batch=16, points=3, virtual_seconds=seconds,
    )  # fmt: skip
    seen = perform(task)["metrics"]
    assert "held_acc_w" in seen
    assert not {"acc_w", "acc_20", "loss_w", "accuracies"} & set(seen)
    whole = perform(Task(**{**vars(task), "stage": "run"}))["metrics"]
    assert whole["held_acc_w"] == seen["held_acc_w"]
    assert "acc_w" in whole
