"""The history of long runs: what is left out, and what a checkpoint writes of it."""

from __future__ import annotations

import numpy as np
import pytest

import fdro_core.history
from fdro_core import AspireModels, Crash, VirtualEngine, resume, solve
from fdro_core.baselines import AFL
from fdro_core.history import History
from fdro_core.master import checkpoint
from fdro_core.observers import Checkpoint, HistoryFile, read_history
from tests.fdro_core.helpers import middle_box, same, softmax_problems

FEW = 16


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(fdro_core.history, "REPORTS", FEW)
    monkeypatch.setattr(fdro_core.history, "NOTICES", FEW)


def report(n):
    return {"event": "report", "iteration": n, "objective": 1.0 / (n + 1), "losses": np.array([n, -1.5])}


def equal(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert list(a) == list(b)
        for key, value in a.items():
            assert type(value) is type(b[key])
            np.testing.assert_array_equal(value, b[key])


def through_a_file(history, path):
    checkpoint.write(path, {"history": history.snapshot()})
    return History.restored(checkpoint.read(path)["history"])


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_entries_are_a_checkpoint_gives_them_back(seed, short, tmp_path):
    """Snapshots at random times, entries of all kinds, and the two histories go on alike."""
    rng = np.random.default_rng(seed)
    history = History()
    for n in range(150):
        entry = report(n)
        if rng.random() < 0.3:
            entry = {"event": "worker-lost", "worker": n, "reason": "gone"}
        elif rng.random() < 0.2:
            entry |= {"clipped": [[0, n]], "note": None}
        elif rng.random() < 0.1:
            entry["objective"] = float(rng.choice([np.nan, np.inf]))
        elif rng.random() < 0.1:
            entry["iteration"] = 2**60 + n
        history.add(entry)
        if rng.random() < 0.2:
            history.entries[-1]["added later"] = 1.5  # by an observer
        if rng.random() < 0.3:
            other = through_a_file(history, tmp_path / "h.npz")
            equal(history.entries, other.entries)
            if rng.random() < 0.3:
                history = other
    assert sum(entry["event"] == "report" for entry in history.entries) <= FEW


def test_what_is_kept_is_evenly_spaced_with_the_first_and_the_last(short):
    history = History()
    for n in range(1000):
        history.add(report(n))
        kept = [entry["iteration"] for entry in history.entries]
        assert len(kept) <= FEW
        assert (kept[0], kept[-1]) == (0, n)
        assert kept[:-1] == list(range(0, kept[-2] + 1 if n else 0, history.stride))
        assert n < FEW or len(kept) > FEW / 2 - 1


def test_notices_that_a_result_is_judged_by_stay(short):
    history = History()
    history.add({"event": "suspicious", "worker": 3})
    for n in range(300):
        history.add({"event": "worker-lost", "worker": n})
        history.add(report(n))
    assert history.entries[0]["event"] == "suspicious"
    notices = [entry for entry in history.entries if entry["event"] != "report"]
    assert len(notices) <= FEW
    assert notices[-1]["worker"] == 299


@pytest.mark.filterwarnings("ignore::fdro_core.errors.WorkerWarning")
@pytest.mark.parametrize("algorithm", [AspireModels(iterations=300, tolerance=0.0), AFL(iterations=60)])
def test_a_long_run_is_resumed_as_if_it_had_not_stopped(algorithm, short, tmp_path):
    problems, path, lines = softmax_problems(3), tmp_path / "run.npz", tmp_path / "history.jsonl"

    def engine():
        return VirtualEngine(seed=1, crashes=[Crash(1, 3.0, 6.0)])

    class Stop:
        def __call__(self, run, entry):
            return "enough" if entry["iteration"] >= 40 else None

    whole = solve(
        problems, middle_box(3), algorithm=algorithm, engine=engine(), observers=[HistoryFile(lines)]
    )
    first = [Stop(), Checkpoint(path, every=1)]
    solve(problems, middle_box(3), algorithm=algorithm, engine=engine(), observers=first)
    same(whole, resume(path, problems, middle_box(3), algorithm=algorithm, engine=engine()))
    reports = [entry["iteration"] for entry in read_history(lines) if entry["event"] == "report"]
    assert len(reports) == (100 if isinstance(algorithm, AspireModels) else 60)  # the file has all
    assert len(whole.history) < 2 * FEW + 1
