"""A set from a user's file, `module:Class`, on the command line and in run files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fdro_core.command import RUN_FILE, TO_THE_END, asked, fdro

pytestmark = pytest.mark.usefixtures("place")

OWN = '''
import cvxpy as cp
import numpy as np
from uncertainty_sets import UncertaintySet

class Halved(UncertaintySet):
    """No entry has more than `most`."""

    def __init__(self, most=0.5):
        self.most = float(most)
        if not self.most > 0.4:
            raise ValueError("most must be above 0.4")

    def constraints(self, p):
        return [p <= self.most]

class Other:
    pass

def helper():
    pass

finished = Halved()
'''


@pytest.fixture
def own(request):
    """A module with sets beside the run file; its name is new in each test, since imports are kept."""
    name = f"own_{request.node.name.partition('[')[0]}"
    Path(f"{name}.py").write_text(OWN)
    return name


def test_oracle(own):
    answer = asked("oracle", "--set", f"{own}:Halved", "--losses", "1,2,4", "--most", "0.6")
    assert answer["value"] == pytest.approx(0.6 * 4 + 0.4 * 2, abs=1e-6)
    assert answer["set"] == f"{own}:Halved"
    assert "has no parameter 'mos'" in fdro(
        "oracle", "--set", f"{own}:Halved", "--losses", "1,2", "--param", "mos=1", code=2
    ).stderr  # fmt: skip
    assert asked("sets", f"{own}:Halved")["parameters"][0]["name"] == "most"
    told = fdro("sets", f"{own}:Halved").stdout
    assert f"fdro oracle --set {own}:Halved" in told
    assert f"{own}:Halved: No entry has more than `most`" in told
    assert "0.5 by default" in told
    assert "clarabel" in told


def test_a_set_without_an_example_says_why():
    Path("broken_set.py").write_text(
        "from uncertainty_sets import UncertaintySet\n"
        "class Broken(UncertaintySet):\n"
        "    def __init__(self, cap):\n"
        "        super().__init__(cap)\n"
    )
    answer = fdro("sets", "broken_set:Broken")
    assert "no example could be made" in answer.stderr
    assert "its constructor needs cap" in answer.stderr
    assert "not explained: `Args:`" in answer.stdout


def test_mdp(own):
    answer = asked("mdp", "--example", "river-swim", "--set", f"{own}:Halved", "--most", "1.0")
    assert answer["set"] == f"{own}:Halved"


@pytest.mark.parametrize("text", ['[set]\nname = "OWN:Halved"\nmost = 0.5\n', 'set = "OWN:Halved"\n'])
def test_train_and_resume(own, text):
    table = '[set]\nname = "kl"\nradius = 0.1\n'
    assert table in TO_THE_END
    text = text.replace("OWN", own)
    rest = TO_THE_END.replace("iterations = 120", "iterations = 60")
    rest = rest.replace(table, "") if text.startswith("set") else rest.replace(table, text)
    Path("run.toml").write_text(text + rest if text.startswith("set") else rest)
    numbers = asked("train", "run.toml")
    assert numbers["set"] == {"name": f"{own}:Halved", "as": "Halved(most=0.5)"}
    assert max(worker["worst_case_p"] for worker in numbers["workers"]) == pytest.approx(0.5, abs=1e-6)
    assert json.loads(Path("run/result.json").read_text())["set"]["name"] == f"{own}:Halved"
    assert asked("resume", "run", "--iterations", "90")["iterations"] == 90
    fdro("report", "run")


def test_another_set_is_another_run(own):
    Path("run.toml").write_text(TO_THE_END.replace('"kl"\nradius = 0.1', f'"{own}:Halved"\nmost = 0.5'))
    fdro("train", "run.toml", "-q")
    text = Path("run/run.toml").read_text()
    Path("run/run.toml").write_text(text.replace("most = 0.5", "most = 0.75"))
    assert "set.most: 0.5 → 0.75" in fdro("resume", "run", "--iterations", "150", code=2).stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("OWN:Halve", "has no class 'Halve'; did you mean 'Halved'?"),
        ("OWN:Other", "OWN:Other is a class of another kind, and a set is needed: a subclass of"),
        ("OWN:helper", "OWN:helper is a function, and a set is needed"),
        ("OWN:finished", "OWN has no class 'finished'"),
        ("nowhere_sets:Halved", "there is no module 'nowhere_sets': put nowhere_sets.py into"),
    ],
)
def test_what_is_no_set(own, name, words):
    name, words = name.replace("OWN", own), words.replace("OWN", own)
    assert words in fdro("oracle", "--set", name, "--losses", "1,2", code=2).stderr
    Path("run.toml").write_text(RUN_FILE.replace('"kl"', f'"{name}"'))
    message = fdro("train", "run.toml", code=2).stderr
    assert message.startswith("error: run.toml:8: set.name: ")
    assert words in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import numpy\n1 / 0\n", "ZeroDivisionError: division by zero ("),
        ("class Broken(\n", "SyntaxError: '(' was never closed ("),
        ("import no_such_package\n", "needs the package 'no_such_package': pip install no_such_package"),
    ],
)
def test_a_module_that_cannot_be_imported(text, words):
    Path("own_broken.py").write_text(text)
    told = fdro("oracle", "--set", "own_broken:Broken", "--losses", "1,2", code=2).stderr
    assert words in told
    assert "Traceback" not in told


def test_errors_of_the_constructor_are_located(own):
    Path("run.toml").write_text(RUN_FILE.replace('"kl"\nradius = 0.1', f'"{own}:Halved"\nmost = 0.1'))
    message = fdro("train", "run.toml", code=2).stderr
    assert message.startswith("error: run.toml:7: set: Halved: most must be above 0.4")


OWN_METHOD = """
from dataclasses import dataclass

from fdro_core import ThreadEngine
from fdro_core.baselines import FedAvg

@dataclass(frozen=True, kw_only=True)
class Own(FedAvg):
    extra: float = 1.0

class OwnEngine(ThreadEngine):
    pass
"""


def test_an_algorithm_and_an_engine_beside_the_run_file():
    Path("own_method.py").write_text(OWN_METHOD)
    text = RUN_FILE.replace("iterations = 120", 'name = "own_method:Own"\niterations = 5\nextra = 2.0')
    text = text.partition("[engine]")[0] + '[engine]\nname = "own_method:OwnEngine"\n'
    Path("run.toml").write_text(text)
    numbers = asked("train", "run.toml")
    assert numbers["algorithm"]["name"] == "own_method:Own"
    assert numbers["engine"]["name"] == "own_method:OwnEngine"
    Path("run.toml").write_text(text.replace('own_method:Own"', 'own_method:Owm"'))
    assert "own_method has no class 'Owm'" in fdro("train", "run.toml", code=2).stderr
