"""`fdro mdp`: the table, JSON, files, the picture, examples, and every way to get it wrong."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.fdro_core.command import asked, fdro
from uncertainty_sets import KL, TotalVariation
from uncertainty_sets.mdp import RobustMDP, problems
from uncertainty_sets.mdp.files import read_csv, write_csv

pytestmark = pytest.mark.usefixtures("place")

KL_BALL = ("--set", "kl", "--radius", "0.1")


@pytest.fixture
def forest(place):
    """A problem in a file."""
    write_csv(problems.forest(5), "forest.csv")
    return read_csv("forest.csv", 0.9)


def columns(path):
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


def test_json_has_what_the_library_finds(forest):
    answer = asked("mdp", "forest.csv", *KL_BALL, "--discount", 0.9)
    expected = RobustMDP.of(forest, KL, radius=0.1).solve()
    assert answer["value"] == expected.value.tolist()
    assert answer["lower"] == expected.lower.tolist()
    assert answer["upper"] == expected.upper.tolist()
    assert answer["actions"] == expected.actions.tolist()
    assert [each["action"] for each in answer["policy"]] == expected.actions.tolist()
    assert (answer["states"], answer["state_actions"], answer["discount"]) == (5, 10, 0.9)
    assert answer["converged"] is True
    assert answer["width"] <= 1e-6
    assert [each["number"] for each in answer["history"]] == list(range(1, answer["sweeps"] + 1))
    assert answer["parameters"] == {"radius": 0.1}
    assert answer["files"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("forest.csv", "--radius", "0.1", "--set", "kl"),
        ("--radius", "0.1", "forest.csv", "--set", "kl"),
        ("--set", "kl", "--radius=0.1", "forest.csv"),
        ("-s", "kl", "-p", "radius=0.1", "forest.csv"),
        ("forest.csv", "--set", "kl", "--radius", "0.1,0.1,0.1,0.1,0.1"),
        ("forest.csv", "--set", "kl", "--radius", "@radii.npy"),
    ],
)
def test_options_come_in_any_order(forest, words):
    np.save("radii.npy", np.full(5, 0.1))
    expected = RobustMDP.of(forest, KL, radius=0.1).solve().value
    np.testing.assert_allclose(asked("mdp", *words, "--discount", 0.9)["value"], expected, atol=2e-6)


def test_every_choice_reaches_the_solver(forest):
    common = ("mdp", "forest.csv", "--set", "kl", "--radius", 0.2, "--discount", 0.9)
    robust = RobustMDP.of(forest, KL, radius=0.2)
    hopeful = RobustMDP.of(forest, KL, radius=0.2, optimistic=True)
    shared = RobustMDP.of(forest, KL, radius=0.2, rectangular="s")
    by_value = asked(*common, "--method", "value", "--tolerance", 1e-3)
    assert by_value["sweeps"] == robust.solve("value", tolerance=1e-3).sweeps
    assert by_value["sweeps"] != robust.solve("policy", tolerance=1e-3).sweeps
    assert by_value["width"] <= 1e-3
    np.testing.assert_allclose(asked(*common, "--optimistic")["value"], hopeful.solve().value, atol=2e-6)
    np.testing.assert_allclose(asked(*common, "--rectangular", "s")["value"], shared.solve().value, atol=2e-6)
    assert np.abs(hopeful.solve().value - robust.solve().value).max() > 1.0


def test_the_table(forest):
    shown = fdro("mdp", "forest.csv", *KL_BALL).stdout
    assert "forest.csv: 5 states, 10 state-actions, 15 successors, discount 0.95 (default)" in shown
    assert "kl, radius 0.1; a set for each state and action; worst case" in shown
    solution = RobustMDP.of(read_csv("forest.csv", 0.95), KL, radius=0.1).solve()
    for s in range(5):
        assert f" {s}  " in shown
        assert f"{solution.lower[s]:.8g}" in shown
        assert f"{solution.upper[s]:.8g}" in shown
    assert "the policy earns at least lower for all transitions in the sets" in shown
    assert "(default)" not in fdro("mdp", "forest.csv", *KL_BALL, "--discount", 0.95).stdout
    hopeful = fdro("mdp", "forest.csv", *KL_BALL, "--optimistic", "--rectangular", "s").stdout
    assert "one budget for all actions of a state; best case" in hopeful
    assert "no policy and no transitions in the sets give more than upper" in hopeful


def test_a_long_problem_shows_its_first_states():
    shown = fdro("mdp", "--example", "inventory").stdout
    assert "… 30 more states" in shown
    assert "\n 19  " in shown
    assert "\n 20  " not in shown


def test_a_randomised_policy_shows_its_probabilities():
    """Two bets on the same coin, one on each side: with one budget for both, hedging is best."""
    lines = ["idstatefrom,idaction,idstateto,probability,reward"]
    for action, won in ((0, 1), (1, 2)):
        lines += [f"0,{action},{t},0.5,{1.0 if t == won else 0.0}" for t in (1, 2)]
    lines += ["1,0,1,1,0", "2,0,2,1,0"]
    Path("coin.csv").write_text("\n".join(lines))
    words = ("mdp", "coin.csv", "--set", "kl", "--radius", 0.1, "--rectangular", "s")
    assert "0: 50 %, 1: 50 %" in fdro(*words).stdout
    assert [each["probability"] for each in asked(*words)["policy"][:2]] == pytest.approx([0.5, 0.5])


def test_quiet_prints_one_line(forest):
    mean = RobustMDP.of(forest, KL, radius=0.1).solve().value.mean()
    shown = fdro("mdp", "forest.csv", *KL_BALL, "--discount", 0.9, "--quiet").stdout
    assert shown.startswith(f"mean value {mean:.8g} over 5 states, bounds at most ")
    assert shown.count("\n") == 1


def test_files_of_policy_and_values(forest):
    files = ("--policy-out", "policy.csv", "--values-out", "values.csv")
    answer = asked("mdp", "forest.csv", *KL_BALL, *files)
    assert answer["files"] == ["policy.csv", "values.csv"]
    assert columns("policy.csv")["idaction"] == answer["actions"]
    values = columns("values.csv")
    assert [values[side] for side in ("value", "lower", "upper")] == [
        answer[side] for side in ("value", "lower", "upper")
    ]
    assert "written to     policy.csv, values.csv" in fdro("mdp", "forest.csv", *KL_BALL, *files).stdout


@pytest.mark.parametrize("name", ["inventory", "machine-replacement", "river-swim", "gridworld", "forest"])
def test_examples_run_without_anything_else(name):
    answer = asked("mdp", "--example", name)
    model = getattr(problems, name.replace("-", "_"))()
    assert answer["value"] == RobustMDP.of(model, KL, radius=0.1).solve().value.tolist()
    assert (answer["set"], answer["parameters"]) == ("kl", {"radius": 0.1})
    assert answer["discount"] == model.discount


def test_an_example_with_other_settings():
    answer = asked("mdp", "--example", "forest", "-s", "total-variation", "--radius", 0.2, "--discount", 0.5)
    expected = RobustMDP.of(problems.forest(discount=0.5), TotalVariation, radius=0.2).solve()
    assert answer["value"] == expected.value.tolist()
    assert asked("mdp", "--example", "forest", "--radius", 0.3)["parameters"] == {"radius": 0.3}


def test_sets_with_other_parameters(forest):
    answer = asked("mdp", "forest.csv", "--set", "cd-norm", "--spread", 0.1, "--budget", 1)
    assert answer["converged"]
    assert asked("mdp", "forest.csv", "--set", "cvar", "--tail", 0.5)["converged"]


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_picture(forest, kind):
    pytest.importorskip("matplotlib")
    shown = fdro("mdp", "forest.csv", *KL_BALL, "--picture", f"price.{kind}").stdout
    assert f"picture: price.{kind}" in shown
    start = Path(f"price.{kind}").read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if kind == "png" else b"<?xml" in start
    answer = asked("mdp", "forest.csv", *KL_BALL, "--picture", f"price.{kind}")
    assert answer["files"] == [f"price.{kind}"]


def test_a_picture_without_matplotlib(forest, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    answer = fdro("mdp", "forest.csv", *KL_BALL, "--picture", "price.png", code=3)
    assert 'pip install "fdro[plot]"' in answer.stderr


def interrupt(monkeypatch, number):
    """Press Ctrl-C in the number-th solution."""
    original, calls = RobustMDP.solve, []

    def solve(problem, method="policy", **given):
        calls.append(method)

        def stop(sweep):
            raise KeyboardInterrupt

        return original(problem, method, **(given | ({"on_sweep": stop} if len(calls) == number else {})))

    monkeypatch.setattr(RobustMDP, "solve", solve)


def test_ctrl_c_keeps_the_best(forest, monkeypatch):
    interrupt(monkeypatch, 1)
    answer = fdro(
        "mdp", "forest.csv", *KL_BALL, "--json", "--values-out", "v.csv", "--picture", "p.png", code=130
    )
    found = json.loads(answer.stdout)
    assert found["interrupted"] is True
    assert found["sweeps"] == 1
    assert columns("v.csv")["lower"] == found["lower"]
    assert "interrupted: bounds are" in answer.stderr
    assert not Path("p.png").exists()


@pytest.mark.parametrize(("number", "drawn"), [(2, False), (6, True)])
def test_ctrl_c_during_the_picture_keeps_the_answer(forest, monkeypatch, number, drawn):
    interrupt(monkeypatch, number)
    answer = fdro("mdp", "forest.csv", *KL_BALL, "--json", "--picture", "p.png", code=130)
    assert json.loads(answer.stdout)["converged"] is True
    assert "the picture is not complete" in answer.stderr
    assert Path("p.png").exists() is drawn


def test_bounds_that_do_not_meet_the_tolerance_fail(forest):
    answer = fdro("mdp", "forest.csv", *KL_BALL, "--tolerance", 1e-18, "--json", code=1)
    assert "more than the tolerance 1e-18" in answer.stderr
    found = json.loads(answer.stdout)
    assert found["converged"] is False
    assert found["width"] < 1e-9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give --set and its parameters, as in --set kl --radius 0.1"),
        (KL_BALL, "give a problem's CSV file or --example with one of forest, gridworld, inventory"),
        (("forest.csv",), "give --set"),
        (("forest.csv", "--example", "forest", *KL_BALL), "got forest.csv and --example forest"),
        (("forest.csv", "two.csv", *KL_BALL), "give one problem, got 'forest.csv' and 'two.csv'"),
        (("--example", "river"), "no example is called 'river'; did you mean 'river-swim'?"),
        (("forests.csv", *KL_BALL), "there is no file forests.csv; did you mean 'forest.csv'?"),
        ((".", *KL_BALL), "is a folder"),
        (("forest.csv", "--set", "klx", "--radius", "0.1"), "did you mean 'kl'?"),
        (("forest.csv", "--set", "kl"), "kl needs radius"),
        (("forest.csv", *KL_BALL, "--discont", "0.9"), "did you mean 'discount'?"),
        (("forest.csv", *KL_BALL, "--policyout", "p.csv"), "did you mean 'policy-out'?"),
        (("forest.csv", "--set", "kl", "--radius"), "--radius needs a value"),
        (("forest.csv", "--set", "kl", "--radius", "-1"), "radius must not be negative"),
        (("forest.csv", "--set", "kl", "--radius", "small"), "radius must be numbers"),
        (("forest.csv", *KL_BALL, "--center", "uniform"), "the problem's own probabilities"),
        (("forest.csv", *KL_BALL, "--discount", "1"), "discount must be at least 0 and below 1, got 1.0"),
        (("forest.csv", *KL_BALL, "--tolerance", "0"), "tolerance must be a finite number above 0"),
        (("bad.csv", *KL_BALL), "the probabilities of state 0, action 0 sum to 0.9"),
        (("word.csv", *KL_BALL), "line 2: probability must be a number, got 'half'"),
        (("samples.csv", *KL_BALL), "has no column idstatefrom"),
        (("forest.csv", *KL_BALL, "--policy-out", "no/p.csv"), "--policy-out no/p.csv: there is no folder"),
        (("forest.csv", *KL_BALL, "--values-out", "."), "--values-out . is a folder"),
        (("forest.csv", *KL_BALL, "--picture", "price.txt"), "--picture must end in one of"),
        (("forest.csv", "--set", "cvar", "--tail", "0.5", "--picture", "p.png"), "and cvar has none"),
        (("forest.csv", "--set", "kl", "--radius", "0", "--picture", "p.png"), "one positive radius"),
        (("forest.csv", "--set", "kl", "--radius", "1,1,1,1,1", "--picture", "p.png"), "one positive radius"),
        (("forest.csv", "--set", "burg", "--radius", "0.1", "--rectangular", "s"), "Burg"),
    ],
)  # fmt: skip
def test_mistakes(forest, arguments, words):
    head = "idstatefrom,idaction,idstateto,probability,reward\n"
    Path("bad.csv").write_text(f"{head}0,0,0,0.9,1\n")
    Path("word.csv").write_text(f"{head}0,0,0,half,1\n")
    answer = fdro("mdp", *arguments, code=2)
    assert words in answer.stderr
    assert answer.stdout == ""
    told = json.loads(fdro("mdp", *arguments, "--json", code=2).stderr)
    assert words in told["error"]
    assert told["exit_code"] == 2


def test_sweeps_are_shown_on_a_terminal(forest, monkeypatch):
    from contextlib import contextmanager

    from fdro_core.cli.commands import mdp

    lines = []

    @contextmanager
    def status(output):
        yield lines.append

    monkeypatch.setattr(mdp, "status", status)
    fdro("mdp", "forest.csv", *KL_BALL)
    assert lines[0].startswith("sweep 1: bounds ")
    assert len(lines) == RobustMDP.of(read_csv("forest.csv", 0.95), KL, radius=0.1).solve().sweeps
