"""The `fdro` command: sets, choose, demo, help, and the command as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.fdro_core.command import ROOT, asked, command, fdro
from uncertainty_sets import KL

pytestmark = pytest.mark.usefixtures("place")


def test_sets_are_those_of_the_registry(monkeypatch):
    from uncertainty_sets import available_sets

    found = {each["name"]: each for each in asked("sets")}
    assert sorted(found) == available_sets()
    assert [each["name"] for each in found["cd-norm"]["parameters"]] == ["center", "spread", "budget"]
    assert [each["needed"] for each in found["cd-norm"]["parameters"]] == [False, True, True]
    assert found["kl"]["cost"] == "O(N)"
    assert "highs" not in found["kl"]["backends"]
    assert "highs" in found["polyhedron"]["backends"]
    assert found["kl"]["backends"][0] == "closed-form"
    monkeypatch.setenv("COLUMNS", "80")
    text = fdro("sets").stdout
    assert "…" not in text.replace(", …", "")
    assert max(map(len, text.splitlines()[:40])) <= 80
    assert all(name in text for name in found)
    assert all(each["meaning"] for facts in found.values() for each in facts["parameters"])


def test_sets_line_to_try_works():
    for name in ("box", "cd-norm", "ellipsoid", "kl", "wasserstein-1"):
        line = fdro("sets", name).stdout.partition("try: fdro ")[2]
        assert line.startswith(f"oracle --set {name} ")
        assert "proved upper bound" in fdro(*line.split()).stdout


def test_sets_unknown():
    assert "did you mean 'box'?" in fdro("sets", "bx", code=2).stderr


CHOICES = {
    (): "kl",
    ("--counts", "120,70,10"): "kl",
    ("--counts", "12,7,0"): "burg",
    ("--counts", "12,7,1", "--positions", "1,2,10"): "wasserstein-1",
    ("--between", "0.05,0.4"): "box",
    ("--between", "0.1,0.2,0.1;0.4,0.5,0.6"): "box",
    ("--spread", "0.1"): "cd-norm",
    ("--spread", "0.1,0.1,0.2"): "cd-norm",
    ("--spread", "0.1", "--budget", "2"): "cd-norm",
    ("--moved", "0.1"): "total-variation",
    ("--tail", "0.1"): "cvar",
}


@pytest.mark.parametrize("options", CHOICES, ids=" ".join)
def test_choose(options):
    """The lines it gives work as they are written, in Python and in a run file, and are the same set."""
    import tomllib

    from fdro_core.cli.written import set_class, written_set

    answer = asked("choose", *options)
    assert answer["choice"] == CHOICES[options]
    size = 3 if "," in "".join(options) and "0.05,0.4" not in options else 8
    names = {"np": np, "N": size, "q": np.full(size, 1.0 / size)}
    exec(answer["python"], names)
    table = tomllib.loads(answer["run_file"])["set"]
    made = written_set(set_class(table.pop("name")), table, size, np.ones(size))
    losses = np.linspace(0.0, 1.0, size) ** 2
    value = made.worst_case(losses).value
    assert names["uncertainty_set"].worst_case(losses).value == pytest.approx(value, abs=1e-5)
    assert answer["python"] in fdro("choose", *options).stdout


def test_choose_takes_the_radius_from_calibration():
    from uncertainty_sets.calibration import burg_radius, kl_radius, wasserstein1_radius

    def radius(*options):
        return asked("choose", *options, "--confidence", "0.9")["parameters"]["radius"]

    assert radius("--counts", "120,70,10") == kl_radius(200, 3, 0.9)
    assert radius("--counts", "12,7,1") == burg_radius(20, 3, 0.9)
    with_places = radius("--counts", "12,7,1", "--positions", "1,2,10")
    assert with_places == wasserstein1_radius(20, 3, 0.9, positions=[1, 2, 10])


def test_one_default_radius():
    """That of the estimators, which has a reason."""
    import tomllib

    from fdro_core.cli.commands import demo, train
    from uncertainty_sets.calibration import KL_RADIUS

    assert asked("choose")["parameters"] == {"radius": KL_RADIUS}
    assert tomllib.loads(train.EXAMPLE)["set"]["radius"] == demo.RADIUS == KL_RADIUS
    template = ROOT / "fdro_core" / "cli" / "templates" / "flower" / "pyproject.toml.txt"
    assert f"\nradius = {KL_RADIUS} " in template.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--counts", "1.5,2"), "--counts must be whole numbers"),
        (("--counts", "0,0"), "--counts are all 0"),
        (("--counts", "3,x"), "--counts: entry 2 of 2 is 'x', not a number"),
        (("--positions", "1,2"), "--positions needs --counts"),
        (("--counts", "3,4", "--tail", "0.1"), "--counts and --tail lead to a set each"),
        (("--between", "0.3"), "--between needs two numbers"),
        (("--between", "0.6,0.7;0.7,0.8"), "the set is empty"),
        (("--moved", "3"), "--moved must be a share, above 0 and at most 1, got 3.0"),
        (("--tail", "10%"), "--tail is a number, not per cent: for 10% write 0.1"),
        (("--spread", "2.5 %"), "for 2.5 % write 0.025"),
        (("--moved", "some"), "--moved must be a number, got 'some'"),
        (("--counts", "some"), "--counts must be numbers, got 'some'"),
        (("--scenario", "prior"), "No such option"),
    ],
)
def test_choose_says_what_is_wrong(options, words):
    assert words in fdro("choose", *options, code=2).stderr


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("12,7,1\n1,2,10\n", "wasserstein-1"),
        ("\n\n0.1\n2\n", "cd-norm"),
        ("\n\n\n\n\n", "kl"),
        ("\n\n\n0.2\n", "total-variation"),
        ("1.5,2\nmany\n12,7,1\n1,2\n1,2,10\n", "wasserstein-1"),
        ("\n\n\n20%\n3\n0.2\n", "total-variation"),
        ("\n0.3\n0.6,0.7;0.7,0.8\n0.1,0.4\n", "box"),
    ],
)
def test_choose_asks_on_a_terminal(monkeypatch, given, name):
    from fdro_core.cli.commands import choose

    monkeypatch.setattr(
        choose, "sys", type("Terminal", (), {"stdin": type("In", (), {"isatty": lambda: True})})
    )
    assert f"\n{name}: " in fdro("choose", given=given).stdout


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
