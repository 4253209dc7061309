"""The race: its quick form on digits, and what its parts say of made curves."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace

import matplotlib.axes
import pytest

from bench.__main__ import run
from bench.experiments.commands import race
from bench.experiments.presentation import races
from bench.experiments.runs import curves, methods
from bench.experiments.runs.perform import perform
from bench.experiments.runs.task import Task

SECONDS = 100.0
NAMED = Namespace(
    quick=True, batch=None, seconds=None, seed=0, compute=0.2, preconditioned=False, methods=None
)


def made(seed, clock, acc_w, acc_20=None, workers=3):
    """A record with that curve; a look takes 10 gradients and 1e6 bits."""
    looks = range(1, len(clock) + 1)
    curve = {"clock": clock, "acc_w": acc_w, "acc_20": acc_20 or acc_w}
    curve |= {"gradients": [10 * k for k in looks], "bits": [1_000_000 * k for k in looks]}
    return {"seed": seed, "virtual_seconds": SECONDS, "curve": curve, "weights": [1 / workers] * workers}


def cells(table):
    """Rows by their first cell, each by heading."""
    return {row[0]: dict(zip(table.headings[1:], row[1:], strict=True)) for row in table.rows}


def test_the_end_is_the_last_fifth_of_the_time():
    assert curves.tail([10.0, 90.0], [0.4, 0.6], SECONDS) == pytest.approx(0.5)
    assert curves.tail([10.0, 90.0, 108.0], [0.4, 0.6, 0.9], SECONDS) == pytest.approx(0.5)  # too late
    assert curves.tail([120.0], [0.9], SECONDS) == 0.0
    assert curves.tail([], [], SECONDS) == 0.0
    assert races.final({"curve": {}, "virtual_seconds": SECONDS}, "acc_w") == 0.0  # it diverged at once


def test_the_target_is_near_the_median_methods_end():
    ends = {"weak": 0.2, "AFL": 0.6, "AspireModels": 0.7}
    runs = {
        name: [made(k, [1.0], [end + d]) for k, d in enumerate((-0.1, 0.1))] for name, end in ends.items()
    }
    assert races.target(runs, "acc_w") == pytest.approx(0.98 * 0.6)
    runs["strong"] = [made(0, [1.0], [0.99])]
    assert races.target(runs, "acc_w") == pytest.approx(0.98 * 0.65)  # between the two in the middle


def test_what_a_target_costs():
    spike = made(0, [1.0, 2.0, 3.0, 4.0], [0.0, 0.9, 0.0, 0.9])
    assert races.cost(spike, "acc_w", 0.5) == races.Cost(4.0, 40, 4_000_000)  # (0.9 + 0 + 0.9)/3
    assert races.cost(spike, "acc_w", 0.7) is None
    lucky = made(0, [1.0, 2.0, 3.0, 4.0], [0.9, 0.9, 0.0, 0.0])
    assert races.cost(lucky, "acc_w", 0.7) is None  # two looks are no mean of three
    late = made(0, [50.0, 60.0, 101.0], [0.1, 0.1, 0.9])
    assert races.cost(late, "acc_w", 0.3) is None  # after the end
    assert races.cost({"curve": {}, "virtual_seconds": SECONDS}, "acc_w", 0.1) is None


def test_the_table_of_a_race_by_hand():
    runs = {
        "AFL": [made(seed, [10.0, 20.0, 40.0], [0.1, 0.7, 0.5 + seed / 100]) for seed in range(3)],
        "AspireModels": [made(seed, [5.0, 7.0, 10.0], [0.5, 0.5, 0.6 + seed / 50]) for seed in range(3)],
        "never there": [made(seed, [10.0], [0.1]) for seed in range(3)],
    }
    shown = races.table("made", runs, 0.4, "acc_w", "AspireModels")
    found = cells(shown)
    assert "worst 20 %" not in shown.headings
    assert found["AFL"]["Acc_w %"] == "51.00 ± 1.00"
    difference = found["AFL"]["Acc_w: difference from AspireModels (p: t-test, Wilcoxon)"]
    assert difference.startswith("-11.0 (")
    assert found["AFL"]["s to Acc_w 40.0 %"] == "40 ± 0"
    assert found["AspireModels"]["s to Acc_w 40.0 %"] == "10 ± 0"
    assert found["AFL"]["time relative to AspireModels"] == "4.0"
    assert (found["AFL"]["gradients to it"], found["AFL"]["Mbit to it"]) == ("30", "3.0")
    assert found["never there"]["s to Acc_w 40.0 %"] == "never"
    assert found["never there"]["gradients to it"] == "–"


def test_many_workers_have_a_column_for_the_worst_fifth():
    runs = {"AspireModels": [made(0, [8.0, 9.0, 10.0], [0.1] * 3, [0.7] * 3, workers=11)]}
    by_worst = races.table("made", runs, 0.4, "acc_w", "AspireModels")
    assert cells(by_worst)["AspireModels"]["worst 20 %"] == "70.00 ± 0.00"
    assert cells(by_worst)["AspireModels"]["s to Acc_w 40.0 %"] == "never"
    by_fifth = races.table("made", runs, 0.4, "acc_20", "AspireModels")
    assert cells(by_fifth)["AspireModels"]["s to worst 20 % 40.0 %"] == "10 ± 0"


def test_rivals_are_counted_below_and_above():
    def runs(end, spread=0.001):
        return [made(seed, [1], [end + spread * seed]) for seed in range(4)]

    one = {
        "AspireModels": runs(0.5),
        "AspireModels_per": runs(0.9),
        "AFL": runs(0.6, 0.002),
        "ACE": runs(0.4, 0.002),
    }
    one["FedAvg"] = [made(seed, [1], [0.5 + 0.1 * (-1) ** seed]) for seed in range(4)]
    table = races.tally(
        {"a": {"calm": one}, "b": {"calm": one}}, {"a": "acc_w", "b": "acc_w"}, "AspireModels"
    )
    rows = [
        ["a", "calm", "50.2", "60.3, AFL", "3", "1 (1)", "1 (1)"],
        ["b", "calm", "50.2", "60.3, AFL", "3", "1 (1)", "1 (1)"],
    ]
    assert [list(row) for row in table.rows] == [*rows, ["all", "calm", "", "", "6", "2 (2)", "2 (2)"]]


def test_the_best_two_of_each_kind_are_named():
    ends = {"AspireModels": 0.1, "AspireModels_per": 0.2, "FedAvg": 0.5, "AFL": 0.9, "AFL + P": 0.8}
    ends |= {"DRFA-Prox": 0.7, "ACE": 0.4, "FedAsync": 0.3, "FedBuff": 0.6}
    runs = {method: [made(0, [1], [end])] for method, end in ends.items()}
    named = {"AspireModels", "AspireModels_per", "FedAvg", "AFL", "AFL + P", "ACE", "FedBuff"}
    assert races.leading(runs, "acc_w") == named


def test_the_overview_is_ordered_by_the_mean_place_with_stragglers(tmp_path, monkeypatch):
    ends = {"AFL": (0.90, 0.50), "ACE": (0.60, 0.60), "AspireModels": (0.70, 0.70), "FedAsync": (0.65, 0.0)}

    def both(*more):
        return {
            situation: {method: [made(0, [1], [pair[place]])] for method, pair in ends.items()}
            | {name: [made(0, [1], [0.9])] for name in more}
            for place, situation in enumerate(race.SITUATIONS)
        }

    ticks = []
    drawn = matplotlib.axes.Axes.set_yticks
    monkeypatch.setattr(
        matplotlib.axes.Axes,
        "set_yticks",
        lambda axes, at, names: (ticks.append(names), drawn(axes, at, names)),
    )
    found = {"one": both(), "two": both("q-FFL")}  # a method that was not raced everywhere is left out
    races.draw_overview(tmp_path, "race", found, {"one": "acc_w", "two": "acc_20"})
    assert ticks[0] == ["FedAsync", "AFL", "ACE", "AspireModels"]  # from below
    assert (tmp_path / "race.svg").stat().st_size > 1000


def test_both_situations_differ_in_the_stragglers_alone():
    both = race.tasks(NAMED, "digits", "softmax")
    without, slow = (both[name] for name in race.SITUATIONS)
    assert without.stragglers == ()
    assert slow.stragglers == ((9, 10.0, 0.0, None), (8, 10.0, 0.0, None))  # a fifth of ten
    assert replace(slow, stragglers=()) == without
    assert without.compute == 0.2


def test_local_steps_cost_time_in_a_race():
    base = race.tasks(NAMED, "digits", "softmax")[race.WITHOUT_STRAGGLERS]
    settings = {"step": 0.5}
    one, ten = (
        perform(replace(base, method="FedAvg", settings={**settings, "local_steps": steps}))
        for steps in (1, 10)
    )
    rounds = [record["metrics"]["iteration"] for record in (one, ten)]
    assert rounds[0] > 1.3 * rounds[1]
    free = replace(base, method="FedAvg", settings={**settings, "local_steps": 10}, compute=0.0)
    assert perform(free)["metrics"]["iteration"] > rounds[0]


def test_looks_are_closer_at_the_start():
    task = Task("test", "digits", "AspireModels", {"report_interval": 1}, "run", 0, 0, 16, points=5)
    task = replace(task, virtual_seconds=20.0)
    even = perform(task)["curve"]["clock"]
    early = perform(replace(task, early=True))["curve"]
    assert len(even) <= 7
    assert sum(clock < 4.0 for clock in early["clock"]) >= 5
    assert early["bits"] == sorted(early["bits"])
    assert early["bits"][0] > 0
    assert {"acc_20", "held_acc_20"} <= set(early)


def test_the_race_finds_every_baseline():
    rows = race.rows(NAMED)
    known = methods.registry(3)
    assert set(rows) <= set(known)
    assert {cls.label for cls in methods.baseline_classes()} - race.WITHOUT <= set(rows)
    assert "AFL + P" in race.rows(Namespace(**vars(NAMED) | {"preconditioned": True}))
    base = race.tasks(NAMED, "digits", "softmax")[race.WITHOUT_STRAGGLERS]
    assert race.rivals(base, 10)["AspireModels"].default["max_staleness"] == 30  # the driver's own
    assert "max_staleness" not in race.rivals(base, 10)["AFL"].search


def test_a_quick_race_on_digits_resumes(tmp_path, capsys):
    given = ["race", "--quick", "--methods", "FedAvg", "AFL", "AspireModels", "--out", str(tmp_path)]
    assert run(given) == 0
    records = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert len(records) == 2 * 3 * (2 + 2)  # situations, methods, trials and repeats
    assert {bool(record["stragglers"]) for record in records if record["stage"] == "tune"} == {True, False}
    assert {path.name for path in tmp_path.glob("race*")} == {
        "race-digits-softmax.png",
        "race-digits-softmax.svg",
        "race.png",
        "race.svg",
    }
    text = (tmp_path / "tables.md").read_text()
    assert "**digits, softmax: without stragglers**" in text
    assert "**digits, softmax: with stragglers**" in text
    before = (tmp_path / "runs.jsonl").read_bytes()
    assert run(given) == 0
    assert (tmp_path / "runs.jsonl").read_bytes() == before
    assert "AspireModels" in capsys.readouterr().out
