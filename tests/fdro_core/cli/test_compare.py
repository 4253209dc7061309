"""`fdro compare`: a winner is named only if it is ahead by more than noise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fdro_core.cli.runs.comparing import difference_of_shares, judge, paired_interval
from tests.fdro_core.command import RUN_FILE, asked, fdro

TESTED = 200.0


def result(accuracies, samples=TESTED):
    """What a run's result.json holds of its tests."""
    workers = [
        {"name": f"w{j}", "test_accuracy": value, "test_samples": samples}
        for j, value in enumerate(accuracies)
    ]
    known = [value for value in accuracies if value is not None]
    return {
        "worst_test_accuracy": min(known),
        "mean_test_accuracy": sum(known) / len(known),
        "workers": workers,
    }


def of_loss(loss):
    return {"worst_test_accuracy": None, "worst_test_loss": loss, "workers": []}


SETTINGS = [{"algorithm.name": "aspire-models"}, {"algorithm.name": "fed-avg"}]


def test_held_out_samples_decide_single_runs():
    far = judge(["a", "b"], SETTINGS, [result([0.9, 0.8, 0.9]), result([0.95, 0.6, 0.95])])
    assert (far.best, far.leaders) == ("a", ["a"])
    worst, mean = far.differences
    assert (worst.low, worst.high) == difference_of_shares(0.8, TESTED, 0.6, TESTED)
    assert (mean.low, mean.high) == pytest.approx(paired_interval([-0.05, 0.2, -0.05]))
    few = judge(["a", "b"], SETTINGS, [result([0.9, 0.8], 10.0), result([0.95, 0.6], 10.0)])
    assert (few.best, few.leaders) == (None, ["a", "b"])  # the same shares of few samples
    same = judge(["a", "b"], SETTINGS, [result([0.9, 0.8, None])] * 2)
    assert same.best is None


def test_seeds_are_paired():
    rng = np.random.default_rng(0)
    common = rng.normal(scale=0.05, size=6)
    settings = [
        {**each, "data.seed": seed, "output.folder": f"{seed}"} for each in SETTINGS for seed in range(6)
    ]
    names = [f"{method}{seed}" for method in "ab" for seed in range(6)]
    results = [result([0.7 + shift, 0.9], 20.0) for shift in common]
    results += [
        result([0.68 + shift + noise, 0.9], 20.0)
        for shift, noise in zip(common, 0.001 * rng.normal(size=6), strict=True)
    ]
    verdict = judge(names, settings, results)
    assert verdict.best == "a0"  # 2 points on 20 samples: no single pair of runs could tell
    assert verdict.differences[0].source == "paired over 6 seeds"
    unlike = judge(names[:-1], settings[:-1], results[:-1])  # one seed is missing: no pairs
    assert unlike.best is None
    assert "held-out samples" in unlike.differences[0].source


def test_noise_alone_is_rarely_called_a_difference():
    """Two equal methods, 400 draws: at most 5 % are told apart, with a margin of three deviations."""
    rng = np.random.default_rng(1)
    wins = 0
    for _ in range(400):
        first, second = (rng.binomial(60, 0.8, size=1) / 60 for _ in range(2))
        wins += judge(["a", "b"], SETTINGS, [result(first, 60.0), result(second, 60.0)]).best is not None
    assert wins <= 400 * 0.05 + 3 * np.sqrt(400 * 0.05 * 0.95)
    apart = [rng.binomial(60, share, size=400) / 60 for share in (0.95, 0.6)]  # the control
    told = [
        judge(["a", "b"], SETTINGS, [result([x], 60.0), result([y], 60.0)]).best
        for x, y in zip(*apart, strict=True)
    ]
    assert told.count("a") > 390


def test_losses_without_noise():
    assert judge(["a", "b"], SETTINGS, [of_loss(1.0), of_loss(0.9)]).best == "b"
    assert judge(["a", "b"], SETTINGS, [of_loss(1.0), of_loss(1.0 + 1e-9)]).best is None


def test_three_methods():
    settings = [*SETTINGS, {"algorithm.name": "afl"}]
    verdict = judge(["a", "b", "c"], settings, [result([0.8]), result([0.79]), result([0.3])])
    assert (verdict.best, verdict.leaders) == (None, ["a", "b"])


@pytest.mark.usefixtures("place")
def test_the_command_names_no_winner_in_a_tie():
    fdro("train", "run.toml", "-q")
    fdro("train", "run.toml", "-o", "again", "-q")
    told = fdro("compare", "run", "again").stdout
    assert "no difference beyond noise for the worst worker: run, again" in told
    assert "test accuracy, worst worker: run is equal to again (95 % interval -" in told
    assert "best for" not in told
    assert fdro("compare", "run", "again", "-q").stdout.startswith("no difference beyond noise")
    answer = asked("compare", "run", "again")
    assert answer["best"] is None
    assert [each["measure"] for each in answer["differences"]] == [
        "worst_test_accuracy",
        "mean_test_accuracy",
    ]


@pytest.mark.usefixtures("place")
def test_the_command_names_a_winner():
    fdro("train", "run.toml", "-q")
    Path("run.toml").write_text(RUN_FILE.replace("radius = 0.1", "radius = 0.0"))
    fdro("train", "run.toml", "-o", "mean", "-q")
    numbers = json.loads(Path("mean/result.json").read_text())
    for worker in numbers["workers"]:
        worker |= {"test_accuracy": 0.99, "test_samples": 900.0}
    numbers |= {"worst_test_accuracy": 0.99, "mean_test_accuracy": 0.99}
    Path("mean/result.json").write_text(json.dumps(numbers))
    assert "best for its worst worker: mean\n" in fdro("compare", "run", "mean").stdout
    assert fdro("compare", "run", "mean", "-q").stdout == "mean\n"
    assert asked("compare", "run", "mean")["best"] == "mean"
