"""What holds for every baseline: each class that `fdro_core.baselines` finds, and some variants."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from fdro_core import Crash, LogNormal, ThreadEngine, VirtualEngine, baselines, resume, solve
from fdro_core.baselines.arrivals import Arrivals
from fdro_core.errors import CheckpointMismatch, InvalidSetting
from fdro_core.observers import Checkpoint
from fdro_core.protocol.tuning import PRECONDITIONED
from tests.fdro_core.command import RUN_FILE, asked
from tests.fdro_core.helpers import middle_box, same, softmax_problems

N = 5
FOUND = {cls.name: cls for cls in (getattr(baselines, name) for name in baselines.__all__)}
METHODS = {name: cls() for name, cls in FOUND.items()} | {
    "individual-2": baselines.Individual(worker_index=2),
    "fed-avg-sampled": baselines.FedAvg(clients=3, local_steps=3, batch_size=4),
    "afl-sampled": baselines.AFL(batch_size=4),
    "afl-batch": baselines.AFL(batch_size=4, reported_loss="batch", dead_losses="drop"),
    "drfa-prox-sampled": baselines.DRFAProx(batch_size=4, local_steps=3, clients=2),
    "fed-async-sampled": baselines.FedAsync(batch_size=4, local_steps=3, averaging=0.1),
    "fed-buff-sampled": baselines.FedBuff(buffer=3, batch_size=4, reported_loss="batch"),
    "ace-sampled": baselines.ACE(max_age=6, batch_size=4, local_steps=3),
    "scaffold-sampled": baselines.Scaffold(clients=3, local_steps=3, batch_size=4),
    "scaff-pd-sampled": baselines.ScaffPD(batch_size=4, reported_loss="batch"),
}
METHODS |= {
    f"{name}-preconditioned": cls(batch_size=4, preconditioner="gradients", averaging=0.1)
    for name, cls in FOUND.items()
    if PRECONDITIONED in cls.variants
}
WITHOUT_ROUNDS = [name for name, method in METHODS.items() if isinstance(method, Arrivals)]
IN_ROUNDS = [name for name in METHODS if name not in WITHOUT_ROUNDS]


def iterations(name: str, rounds: int = 40) -> int:
    """So many rounds; without rounds, as many iterations as take the updates of so many."""
    return rounds * N // METHODS[name].arrivals if name in WITHOUT_ROUNDS else rounds


METHODS = {name: replace(method, iterations=iterations(name)) for name, method in METHODS.items()}
FAULTS = {"lost": 0.05, "repeated": 0.1, "crashes": [Crash(0, 9.0, 14.0), Crash(3, 30.0)]}

every_method = pytest.mark.parametrize("name", METHODS)
every_class = pytest.mark.parametrize("name", FOUND)


@every_method
def test_reports_have_the_drivers_fields(name):
    config = replace(METHODS[name], report_interval=1)
    result = solve(softmax_problems(N), middle_box(N), algorithm=config)
    other = solve(softmax_problems(N), middle_box(N))
    assert result.history[-1].keys() == other.history[0].keys()
    assert len(result.history) == config.iterations
    assert result.iterations == config.iterations
    assert result.stop_reason == "iterations"
    assert result.objective == pytest.approx(float(middle_box(N).worst_case(result.losses).value))
    assert result.clock > 0


@pytest.mark.parametrize("faults", [False, True])
@every_method
def test_resume_equals_uninterrupted(name, faults, tmp_path):
    engine = {"delays": LogNormal(1.0, 0.5), **(FAULTS if faults else {})}
    config = replace(METHODS[name], deadline=5.0 if faults else None)
    problems, box, path = softmax_problems(N), middle_box(N), tmp_path / "run.npz"
    whole = solve(problems, box, algorithm=config, engine=VirtualEngine(seed=2, **engine))
    first = replace(config, iterations=iterations(name, 17))
    solve(
        problems, box, algorithm=first, engine=VirtualEngine(seed=2, **engine), observers=[Checkpoint(path)]
    )
    rest = resume(path, problems, box, algorithm=config, engine=VirtualEngine(seed=2, **engine))
    same(whole, rest)
    told = {entry["event"] for entry in whole.history}
    assert {"worker-lost", "worker-back", "asked-again"} <= told if faults else told == {"report"}


@pytest.mark.parametrize("name", IN_ROUNDS)
def test_rounds_do_not_depend_on_who_answers_first(name):
    problems, box = softmax_problems(N), middle_box(N)
    threads = solve(problems, box, algorithm=METHODS[name], engine=ThreadEngine())
    assert np.array_equal(threads.w, solve(problems, box, algorithm=METHODS[name]).w)


@pytest.mark.parametrize("name", WITHOUT_ROUNDS)
def test_the_updates_of_one_worker_do_not_depend_on_the_clock(name):
    """With more workers the order of arrivals is part of the result."""
    problems, box = softmax_problems(1), middle_box(1)
    threads = solve(problems, box, algorithm=METHODS[name], engine=ThreadEngine())
    assert np.array_equal(threads.w, solve(problems, box, algorithm=METHODS[name]).w)


@every_method
def test_a_checkpoint_of_other_workers_is_refused(name, tmp_path):
    path = tmp_path / "run.npz"
    solve(softmax_problems(N), middle_box(N), algorithm=METHODS[name], observers=[Checkpoint(path)])
    with pytest.raises(CheckpointMismatch, match="same problems, set, algorithm and engine"):
        resume(path, softmax_problems(N - 1), middle_box(N - 1), algorithm=METHODS[name])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"iterations": 0}, "iterations must be a whole number >= 1"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
        ({"deadline": 0.0}, "deadline must be"),
        ({"on_failed_start": "ignore"}, "raise, warn"),
        ({"preconditioner": "adam"}, "preconditioner must be one of none, gradients, got 'adam'"),
        ({"averaging": -0.1}, "averaging must be a finite number >= 0, got -0.1"),
    ],
)
@every_class
def test_wrong_settings_are_refused(name, settings, words):
    with pytest.raises(InvalidSetting, match=words):
        solve(softmax_problems(N), middle_box(N), algorithm=FOUND[name](**settings))


@every_class
def test_the_docstring_has_every_setting(name):
    for item in fields(FOUND[name]):
        assert f"\n    {item.name}: " in FOUND[name].__doc__


@every_class
@pytest.mark.usefixtures("place")
def test_fdro_train_knows_its_name(name):
    text = RUN_FILE.replace("iterations = 120", f'name = "{name}"\niterations = 20')
    Path("run.toml").write_text(text)
    answer = asked("train", "run.toml")
    assert answer["algorithm"]["name"] == name
    assert np.isfinite(answer["objective"])
