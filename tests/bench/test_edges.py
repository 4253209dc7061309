"""Searches whose best setting is at the end of a range: how they go on, and what is said."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pytest
from rich.console import Console

from bench.__main__ import run
from bench.experiments.runs import compare, methods, search
from bench.experiments.runs.pool import Pool
from bench.experiments.runs.task import Records, Task

BASE = Task("test", "digits", "", {}, "run", 0, 30, 8, points=2, options={"digits": [3, 8]})


def method(search, default, name="mine"):
    return methods.Method(name, methods.ease(), search, default)


@pytest.mark.parametrize(
    ("space", "value", "side", "beyond"),
    [
        (methods.Range(0.1, 10.0), 7.9, 0, None),  # 10^(2·0.95 - 1) = 7.94
        (methods.Range(0.1, 10.0), 7.95, 1, 25.1),
        (methods.Range(0.1, 10.0), 0.12, -1, 0.0379),
        (methods.Range(0.1, 10.0), 31.6, 1, 99.9),
        (methods.Range(0.1, 1.0, limits=(0.0, 1.0)), 0.95, 1, 1.0),
        (methods.Range(0.1, 1.0, limits=(0.0, 1.0)), 1.0, 1, None),
        (methods.Choice((2, 5, 10)), 5, 0, None),
        (methods.Choice((2, 5, 10)), 10, 1, 20),
        (methods.Choice((2, 5, 10)), 40, 1, 80),
        (methods.Choice((2, 5, 10)), 2, -1, 1),
        (methods.Choice((2, 5, 10)), 1, -1, None),
        (methods.Choice((0.0, 0.5, 1.0)), 0.0, -1, None),
        (methods.Choice((0.0, 0.5, 1.0)), 1.0, 1, 2.0),
        (methods.Choice((30,)), 30, 0, None),
        (methods.Choice((0, 1, 2), cover=True), 2, 0, None),
        (methods.Choice(("mean", "sum")), "sum", 0, None),
        (methods.BUDGET.space, 2.0, 1, None),  # the whole simplex
        (methods.BUDGET.space, 0.25, -1, 0.125),
    ],
)
def test_ends_of_ranges_by_hand(space, value, side, beyond):
    assert search.side(space, value) == side
    assert search.beyond(space, value) == beyond


def searched(known, best, reach):
    """Drive a search beyond its ranges, with scores from a function; the settings tried and the outcome."""
    going, tried = search.widened(known, best, reach(best)), []
    try:
        settings = next(going)
        while True:
            tried.append(settings)
            settings = going.send(reach(settings))
    except StopIteration as end:
        return tried, *end.value


def test_a_search_goes_on_until_its_best_is_inside():
    known = method({"step": methods.Range(0.1, 10.0)}, {"step": 1.0})
    tried, best, left = searched(known, {"step": 10.0}, lambda s: -abs(np.log(s["step"] / 100)))
    assert [settings["step"] for settings in tried] == [31.6, 99.9, 316.0]
    assert (best, left) == ({"step": 99.9}, [])


def test_every_end_is_settled_by_itself_and_there_is_a_limit():
    spaces = {"step": methods.Range(0.1, 10.0), "local_steps": methods.Choice((2, 5, 10))}
    known = method(spaces, {"step": 1.0, "local_steps": 5})
    tried, best, left = searched(known, {"step": 0.1, "local_steps": 10}, lambda s: s["local_steps"])
    assert tried[0] == {"step": 0.0316, "local_steps": 10}  # no better: settled
    assert [settings["local_steps"] for settings in tried[1:]] == [20, 40, 80, 160, 320]
    assert len(tried) == search.MOST
    assert best == {"step": 0.1, "local_steps": 320}
    assert [str(edge) for edge in left] == ["mine: local_steps 320, upper end outside [2, 10]"]


def test_settings_that_a_method_refuses_are_no_edge():
    known = method({"active_workers": methods.Choice((1, 2, 3))}, {"active_workers": 2})
    assert [edge.beyond for edge in search.edges(known, {"active_workers": 3})] == [4]
    assert not search.edges(known, {"active_workers": 3}, search.accepts(known, 3, 8))  # there are only three
    assert search.edges(known, {"active_workers": 3}, search.accepts(known, 5, 8))


@pytest.fixture
def made_records(tmp_path, monkeypatch):
    """Records of a search whose score rises with the step, without runs."""
    monkeypatch.setattr(methods, "_registered", {})
    known = methods.register(method({"step": methods.Range(0.1, 10.0)}, {"step": 9.5}))

    def perform(task):
        score = 1 - abs(np.log10(task.settings["step"]) - 1.6) / 10 + task.seed % 2 / 1000
        record = {name: getattr(task, name) for name in Task.__dataclass_fields__}
        return record | {"schema": 1, "metrics": {"held_acc_w": score}}

    console = Console(record=True, width=200)

    def tuned(widen):
        given = argparse.Namespace(
            trials=1, search_seeds=2, seed=0, repeats=2, widen=widen, halving=True, outer=0.05, edges=[]
        )
        records = Records(tmp_path / "runs.jsonl")
        with Pool(1, console, perform) as pool:
            runs = compare.tuned_runs(pool, records, given, BASE, ["mine"], 2, {"mine": known})
        return runs["mine"], given.edges, records

    return tuned, console


def test_an_open_end_is_said(made_records):
    tuned, console = made_records
    runs, found, _ = tuned(False)
    assert [record["settings"] for record in runs] == [{"step": 9.5}] * 2
    assert found == ["digits, softmax: mine: step 9.5, upper end of [0.1, 10]"]
    assert found[0] in console.export_text()


def test_a_widened_search_is_written_down_and_resumes(made_records):
    tuned, console = made_records
    runs, found, records = tuned(True)
    assert [record["settings"] for record in runs] == [{"step": 30.0}] * 2  # 95.0 is worse: log10 1.98
    assert not found
    steps = [record["settings"]["step"] for record in records.known.values() if record["stage"] == "tune"]
    assert steps == [9.5, 9.5, 30.0, 30.0, 94.9, 94.9]
    before = records.path.read_bytes()
    assert tuned(True)[0] == json.loads(json.dumps(runs))
    assert records.path.read_bytes() == before
    assert "end of its range" not in console.export_text()


def test_a_command_says_which_settings_stayed_at_an_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(methods, "_registered", {})
    methods.register(method({"step": methods.Range(0.1, 0.5)}, {"step": 0.5}, "short"))
    given = ["heterogeneity", "--quick", "--gradients", "60", "--trials", "1", "--repeats", "1"]
    assert run([*given, "--methods", "short", "AFL", "--out", str(tmp_path)]) == 0
    said = "digits, softmax: short: step 0.5, upper end of [0.1, 0.5]"
    assert f"At the end of a range, which was too small: {said}." in (tmp_path / "tables.md").read_text()
    assert f"At the end of its range: {said}" in capsys.readouterr().out.replace("\n", " ")
    assert run([*given, "--methods", "short", "--widen", "--out", str(tmp_path)]) == 0
    lines = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert {"step": 1.58} in [line["settings"] for line in lines if line["stage"] == "tune"]
