"""The commands on the virtual clock: their quick forms on digits, and what their parts say of made curves."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.__main__ import commands, run
from bench.experiments.commands import adaptive, efficiency, planes, scale
from bench.experiments.presentation import reporting
from bench.experiments.runs import curves, search
from bench.experiments.runs.looks import MOST, columns
from bench.experiments.runs.perform import perform
from bench.experiments.runs.task import Records, Task, read

DIGITS = Task(
    "test",
    "digits",
    "AspireModels",
    {},
    "run",
    seed=0,
    gradients=0,
    batch=None,
    l2=1e-3,
    points=20,
    options={"digits": (3, 8, 9)},
    virtual_seconds=60.0,
)


def quick(command: str, out: Path, *more: str) -> list[dict[str, Any]]:
    """The records of a quick run."""
    assert run([command, "--quick", "--out", str(out), *more]) == 0
    assert "too short to compare methods" in next(out.glob("table*.md")).read_text(encoding="utf-8")
    return [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("command", "runs", "pictures"),
    [
        ("efficiency", 56, {"efficiency"}),  # fourteen methods, two trials and two repeats each
        ("planes", 8, {"planes", "planes-objective"}),  # two sets, two methods, two repeats
        ("scale", 4, {"scale-digits"}),  # ten workers: S = 10 and S = 1, two repeats
        ("adaptive", 6, {"adaptive-digits"}),
    ],
)
@pytest.mark.thorough
def test_quick_runs_on_digits_and_resumes(
    command: str, runs: int, pictures: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = quick(command, tmp_path)
    assert len(records) == runs
    assert {record["data"] for record in records} == {"digits"}
    assert {path.stem for path in tmp_path.glob("*.png")} == pictures
    assert {path.stem for path in tmp_path.glob("*.svg")} == pictures
    first = capsys.readouterr().out
    assert "digits" in first
    before = (tmp_path / "runs.jsonl").read_bytes()
    quick(command, tmp_path)
    assert (tmp_path / "runs.jsonl").read_bytes() == before  # nothing was run again
    assert "digits" in (tmp_path / "tables.md").read_text()
    assert command in commands()


def test_the_clock_ends_a_run_and_a_seed_repeats_it() -> None:
    one, two = perform(DIGITS), perform(DIGITS)
    assert one["curve"] == two["curve"]
    assert one["stop"] == "time"
    assert one["curve"]["clock"][-1] >= 60.0 > one["curve"]["clock"][-2]
    assert len(one["curve"]["clock"]) <= 22
    assert one["curve"]["clock"] == sorted(one["curve"]["clock"])
    assert one["curve"]["acc_w"][-1] > 0.5
    assert 0 < one["metrics"]["held_acc_w"] < 1
    assert perform(replace(DIGITS, seed=1))["curve"] != one["curve"]


def test_a_run_stops_at_the_accuracy_asked_for() -> None:
    record = perform(replace(DIGITS, method="ASPIRE-EASE", until=0.6, parts=(), held=0.0))
    assert record["stop"] == "accuracy"
    assert record["curve"]["acc"][-1] >= 0.6 > max(record["curve"]["acc"][:-1])
    assert "loss_w" not in record["curve"]


def test_a_straggler_slows_the_synchronous_run_alone() -> None:
    slow = replace(DIGITS, stragglers=((2, 20.0, 0.0, None),), virtual_seconds=200.0)
    together = perform(replace(slow, method="AspireModels(-)"))["metrics"]["iteration"]
    assert together < 200 / 10  # every round waits for the straggler
    assert perform(slow)["metrics"]["iteration"] > 10 * together


def test_records_of_runs_on_the_clock_are_found_again(tmp_path: Path) -> None:
    records = Records(tmp_path / "runs.jsonl")
    task = replace(DIGITS, virtual_seconds=5.0, stragglers=((1, 2.0, 0.0, None),))
    records.add(perform(task))
    again = Records(tmp_path / "runs.jsonl")
    assert again.get(task) == json.loads(json.dumps(records.get(task)))
    assert again.get(replace(task, stragglers=((0, 2.0, 0.0, None),))) is None
    assert again.get(replace(task, virtual_seconds=6.0)) is None
    assert set(asdict(task)) <= set(again.get(task) or {})


def test_steps_so_long_that_nothing_is_left_are_a_bad_trial() -> None:
    settings = {"step": 1e300, "penalty": 1.0, "budget": 3.0}
    record = perform(replace(DIGITS, method="ASPIRE-EASE", settings=settings, batch=32, stage="tune"))
    assert record["metrics"]["held_acc_w"] < 0.5
    assert record["curve"] == {}


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    rows = [{"clock": 0.5 + k, "acc": k / 1000} for k in range(1000)]
    kept = columns(rows)
    assert 50 < len(kept["clock"]) <= MOST + 1
    assert (kept["clock"][0], kept["clock"][-1]) == (0.5, 999.5)
    assert kept["clock"] == sorted(set(kept["clock"]))
    assert kept["acc"] == [round((clock - 0.5) / 1000, 4) for clock in kept["clock"]]
    assert columns(rows[:10])["clock"] == [row["clock"] for row in rows[:10]]


# -- curves -------------------------------------------------------------------------------------------


def test_curves() -> None:
    clock, values = [1.0, 2.0, 4.0], [0.1, 0.9, 0.5]
    assert curves.at([0.5, 1.0, 3.9, 9.0], clock, values)[1:].tolist() == [0.1, 0.9, 0.5]
    assert np.isnan(curves.at([0.5], clock, values)[0])
    assert curves.average_over(clock, values, 5.0) == pytest.approx((0.1 + 2 * 0.9 + 0.5) / 5)
    assert curves.average_over(clock, values, 3.0) == pytest.approx((0.1 + 0.9) / 3)  # cut at the end
    assert curves.first_time(clock, values, 0.5) == 2.0
    assert curves.first_time(clock, values, 0.95) is None
    assert curves.smoothed([1.0]).tolist() == [1.0]


def test_times_as_text() -> None:
    assert reporting.seconds([]) == "–"
    assert reporting.seconds([None, None]) == "never"
    assert reporting.ratio([None], [1.0]) == "–"


def made(seed: int = 0, **curve: list[Any]) -> dict[str, Any]:
    """A record with that curve."""
    metrics = {name: values[-1] for name, values in curve.items()}
    return {"seed": seed, "curve": curve, "metrics": metrics | {"gradients": 7}, "objective": 1.0}


def cells(table: Any) -> dict[str, list[str]]:
    """Rows by their first cell."""
    return {row[0]: list(row[1:]) for row in table.rows}


def test_scale_measures_against_the_synchronous_run_of_the_same_seed() -> None:
    runs = {
        "synchronous": [made(clock=[10.0, 50.0, 100.0], acc=[0.5, 0.82, 0.9])],
        "asynchronous, S = 1": [made(clock=[1.0, 2.0, 5.0], acc=[0.81, 0.86, 0.9])],
    }
    found = cells(scale.table("made", runs))
    assert found["synchronous"][:4] == ["50 ± 0", "100 ± 0", "100 ± 0", "1.0 ± 0.0"]
    assert found["asynchronous, S = 1"][:4] == ["1 ± 0", "2 ± 0", "5 ± 0", "20.0 ± 0.0"]


def test_planes_wait_until_the_objective_stays_down() -> None:
    record = made(clock=[1.0, 2.0, 3.0, 4.0], objective=[1.0, 0.5, 0.8, 0.5], planes=[1, 2, 3, 2])
    assert planes.there(record, 0.5) == 4.0
    assert planes.there(record, 1.0) == 1.0
    assert planes.there(record, 0.4) is None


def test_adaptive_finds_the_switches() -> None:
    record = made(clock=[100.0, 895.0, 930.0, 1290.0, 1310.0, 1320.0], active=[3, 3, 1, 1, 1, 3])
    assert adaptive.switches(record) == (30.0, 20.0)
    never = made(clock=[100.0, 950.0, 1400.0], active=[3, 3, 3])
    assert adaptive.switches(never) == (None, 100.0)


def test_efficiency_times_the_mean_of_three_looks() -> None:
    spike = made(clock=[1.0, 2.0, 3.0, 4.0], acc_w=[0.0, 0.9, 0.0, 0.3])
    steady = made(clock=[1.0, 2.0, 3.0, 4.0], acc_w=[0.5, 0.6, 0.6, 0.6])
    lucky = made(clock=[1.0, 2.0, 3.0, 4.0], acc_w=[0.9, 0.0, 0.3, 0.6])
    assert efficiency.times([spike, steady, lucky], 0.5) == [None, 3.0, None]  # one look is no mean of three
    found = cells(efficiency.table("made", {"AFL": [spike] * 2, "AspireModels": [steady] * 2}))
    assert found["AFL"][0] == "never"
    assert found["AspireModels"][0] == "3 ± 0"  # 90 % of 0.6 is 0.54, the mean of the first three 0.57
    assert found["AFL"][-1].startswith("-30.0")
    assert found["AspireModels"][-1] == "–"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["adaptive", "--quick", "--data", "heart-disease"], "three workers|FDRO_DATA"),
        (["scale", "--data", "no-such-data"], "no-such-data"),
        (["efficiency", "--quick", "--methods", "Newton"], "Newton"),
        (["planes", "--repeats", "0"], "at least 1"),
    ],
)
def test_what_cannot_work_is_said(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        raise SystemExit(run([*arguments, "--out", str(tmp_path)]))
    assert stop.value.code not in {0, None}
    assert re.search(said, f"{stop.value} {capsys.readouterr().err}")


def test_models_have_no_settings_to_search_with_full_batches() -> None:
    known = efficiency.one_problem(replace(DIGITS), 5)
    assert search.candidates(known["AspireModels"], 3) == [{}, {}, {}]
    sampled = efficiency.one_problem(replace(DIGITS, batch=8), 5)
    assert set(sampled["AspireModels"].search) == {"model_step", "weight_step"}


def test_variants_are_tried_with_the_same_settings() -> None:
    known = efficiency.one_problem(replace(DIGITS, batch=8), 5)
    tried = [
        search.candidates(known[name], 6) for name in ("AspireModels", "AspireModels-CP", "AspireModels(-)")
    ]
    assert tried[0] == tried[1] == tried[2]
    assert "budget" not in tried[0][0]
    own = [settings["step"] for settings in search.candidates(known["AFL + P"], 6)]
    assert own[1:] != [settings["model_step"] for settings in tried[0]][1:]


def test_defaults_are_judged_blind_on_seeds_of_their_own(tmp_path: Path) -> None:
    arguments = ["defaults", "--quick", "--rows", "digits,softmax", "--gradients", "60"]
    arguments += ["--only", "defaults", "tau of 3 rounds", "AFL + P", "--out", str(tmp_path)]
    assert run(arguments) == 0
    records = read(tmp_path / "runs.jsonl")
    assert {record["seed"] for record in records} == {100, 101}
    assert {record["stage"] for record in records} == {"tune"}
    assert all("acc_w" not in record["metrics"] for record in records)  # that of the test data
    assert run([*arguments, "--slow", "--seconds", "5"]) == 0
    assert {record["virtual_seconds"] for record in read(tmp_path / "runs.jsonl")} == {0.0, 5.0}
