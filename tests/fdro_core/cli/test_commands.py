"""The `fdro` command: sets, choose, demo, help, and the command as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.fdro_core.command import asked, command, fdro
from uncertainty_sets import KL

pytestmark = pytest.mark.usefixtures("place")


def test_sets_are_those_of_the_registry():
    from uncertainty_sets import available_sets

    found = {each["name"]: each for each in asked("sets")}
    assert sorted(found) == available_sets()
    assert [each["name"] for each in found["cd-norm"]["parameters"]] == ["center", "spread", "budget"]
    assert [each["needed"] for each in found["cd-norm"]["parameters"]] == [False, True, True]
    assert found["kl"]["cost"] == "O(N)"
    assert "highs" not in found["kl"]["backends"]
    assert "highs" in found["polyhedron"]["backends"]
    assert found["kl"]["backends"][0] == "closed-form"
    text = fdro("sets").stdout
    assert all(name in text for name in found)
    assert all(each["meaning"] for facts in found.values() for each in facts["parameters"])


def test_sets_line_to_try_works():
    for name in ("box", "cd-norm", "ellipsoid", "kl", "wasserstein-1"):
        line = fdro("sets", name).stdout.partition("try: fdro ")[2]
        assert line.startswith(f"oracle --set {name} ")
        assert "proved upper bound" in fdro(*line.split()).stdout


def test_sets_unknown():
    assert "did you mean 'box'?" in fdro("sets", "bx", code=2).stderr


def test_choose():
    assert asked("choose", "--scenario", "latency")["choice"] == "cd-norm"
    assert asked("choose", "-s", "4")["choice"] == "ellipsoid"
    answer = asked("choose", "-s", "flexibility", "-s", "prior")
    assert answer["ranking"][0] == {"set": "kl", "scenarios": 2}
    assert asked("choose")["choice"] is None  # nothing said, nothing chosen: the list
    text = fdro("choose", "-s", "conservatism").stdout
    assert 'name = "ellipsoid"' in text
    assert "No set suits all scenarios" in fdro("choose", "-s", "conservatism", "-s", "latency").stdout
    assert "did you mean 'latency'?" in fdro("choose", "-s", "latencie", code=2).stderr


def test_choose_starts_are_valid():
    import tomllib

    from fdro_core.cli.commands.choose import SCENARIOS, STARTS
    from fdro_core.cli.written import set_class, written_set

    assert set(STARTS) == {name for scenario in SCENARIOS for name in scenario.sets}
    for name, text in STARTS.items():
        written_set(set_class(name), tomllib.loads(text), 10).worst_case(np.arange(10.0))


def test_choose_asks_on_a_terminal(monkeypatch):
    from fdro_core.cli.commands import choose

    monkeypatch.setattr(
        choose, "sys", type("Terminal", (), {"stdin": type("In", (), {"isatty": lambda: True})})
    )
    assert "Use kl." in fdro("choose", given="n\nn\nn\nn\ny\n").stdout
    assert "kl is a good start" in fdro("choose", given="\n\n\n\n\n").stdout


def test_the_command_itself():
    line, environment = command("oracle", "--set", "kl", "--losses", "-", "--radius", "0.1", "--quiet")
    answer = subprocess.run(line, input="1,2,4", env=environment, capture_output=True, text=True, check=True)
    assert float(answer.stdout) == KL(np.full(3, 1 / 3), 0.1).worst_case([1.0, 2.0, 4.0]).value
    assert answer.stderr == ""


def test_help_and_version():
    text = fdro("--help").stdout
    for each in ("demo", "oracle", "sets", "choose", "train", "resume", "report", "compare"):
        assert each in text
        assert "Examples" in fdro(each, "--help").stdout
    assert fdro("--version").stdout.startswith("fdro ")
    assert "Did you mean 'train'" in fdro("trian", code=2).stderr


def test_import_stays_light():
    """`fdro_core` loads no part of the command line, and the command line no plotting or solver."""
    for statement, barred in (
        ("import fdro_core", {"typer", "rich", "matplotlib", "sklearn", "torch", "cvxpy"}),
        ("import fdro_core.cli.app", {"matplotlib", "sklearn", "torch", "cvxpy"}),
    ):
        script = f"import sys; {statement}; print(*{{m.partition('.')[0] for m in sys.modules}})"
        _, environment = command()
        answer = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert barred.isdisjoint(answer.stdout.split()), statement


def test_demo(monkeypatch):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    answer = asked("demo")
    assert answer["robust"]["worst_test_accuracy"] >= answer["fedavg"]["worst_test_accuracy"] + 0.05
    assert answer["robust"]["objective"] < answer["fedavg"]["objective"]
    assert answer["robust"]["upper_bound"] - answer["robust"]["objective"] < 1e-9
    assert Path("fdro-demo.png").read_bytes().startswith(b"\x89PNG")
    assert "--pixels must be 1, 2, 4 or 8" in fdro("demo", "--pixels", 3, code=2).stderr


def test_demo_goes_on_without_matplotlib(monkeypatch):
    pytest.importorskip("sklearn")
    from fdro_core.cli.commands import demo

    monkeypatch.setattr(demo, "ROUNDS", 5)
    monkeypatch.setattr(demo, "ITERATIONS", 50)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    answer = fdro("demo", "-q")
    assert 'pip install "fdro[plot]"' in answer.stderr
    assert "worst-worker test accuracy" in answer.stdout
    assert not Path("fdro-demo.png").exists()


def test_demo_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert 'pip install "fdro[demo]"' in fdro("demo", code=3).stderr
