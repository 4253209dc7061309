"""Text from outside: what a terminal obeys is written out, printed lines can be pasted, TOML is read back."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fdro_core.cli.app import app
from fdro_core.outside import command, toml_text, visible
from tests.fdro_core.command import RUN_FILE, furnish

UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
HOSTILE = "ward\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\r\x08"


@given(st.text(st.characters()))
@example(HOSTILE)
@example("\ud800")
def test_nothing_unseen_is_left_and_the_rest_stays(text):
    shown = visible(text)
    assert not UNSEEN.search(shown)
    shown.encode()
    assert not set("\n\t") & set(visible(text, lines=False))
    if not UNSEEN.search(text):
        assert shown == text


@pytest.mark.parametrize(
    "part",
    [
        "run",
        "my run",
        "it's",
        "a;rm -rf ~",
        "$(id)",
        "`id`",
        '"',
        "\\",
        "-x",
        "ü",
        "a\nb",
        HOSTILE,
        "\\'\x1b",
    ],
)
def test_a_shell_takes_a_printed_line_back(part):
    line = command("printf", "%s", part)
    assert not UNSEEN.search(line)
    taken = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout.decode()
    assert taken == part


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example(HOSTILE)
@example('"\n[tool]\nx = "')
def test_toml_is_read_back(text):
    assert tomllib.loads(f"a = {toml_text(text)}") == {"a": text}


def told(*arguments, given=None):
    """All that a command prints, on both streams."""
    answer = CliRunner().invoke(app, [str(part) for part in arguments], input=given)
    return answer.stdout + answer.stderr


@pytest.mark.usefixtures("place")
def test_no_command_lets_control_characters_of_files_through():
    furnish()
    samples = Path("samples.csv").read_text(encoding="utf-8")
    Path("samples.csv").write_text(samples.replace(",w1\n", f',"{HOSTILE}"\n'), encoding="utf-8")
    folder = f"run {HOSTILE}".replace("\r", "")
    Path("run.toml").write_text(RUN_FILE.replace("iterations = 120", "iterations = 8"), encoding="utf-8")
    losses = f"name,loss\n{HOSTILE[:-2]},0.9\nb,1.4\n"
    Path("losses.csv").write_text(losses, encoding="utf-8")
    Path("bad.csv").write_text(losses.replace("1.4", HOSTILE[:-2]), encoding="utf-8")
    Path("bad.toml").write_text(RUN_FILE.replace('"kl"', '"k\\u001b[2Jl"'), encoding="utf-8")
    lines = [
        ("train", "run.toml", "--output", folder),
        ("train", "run.toml", "--output", folder),
        ("check", "run.toml"),
        ("train", "bad.toml"),
        ("train", f"{HOSTILE}.toml"),
        ("report", folder),
        ("report", f"no{HOSTILE}"),
        ("train", "run.toml", "-q", "--output", "other"),
        ("compare", folder, "other"),
        ("resume", folder, "--iterations", "12"),
        ("resume", folder, "--iterations", "12", "--json"),
        ("oracle", "-s", "kl", "-l", "losses.csv", "--radius", "0.1"),
        ("oracle", "-s", "kl", "-l", "losses.csv", "--radius", "0.1", "--format", "csv"),
        ("oracle", "-s", "kl", "-l", "bad.csv", "--radius", "0.1"),
        ("oracle", "-s", f"kl{HOSTILE}", "-l", "losses.csv", "--radius", "0.1"),
        ("flower", "new", f"app{HOSTILE}"),
    ]
    for line in lines:
        printed = told(*line)
        assert printed
        assert not UNSEEN.search(printed), (line, printed)
    assert "\\x1b[2J" in told("report", folder)  # shown as what it is


@pytest.mark.usefixtures("place")
def test_the_line_to_continue_with_can_be_pasted():
    furnish()
    text = RUN_FILE.replace("iterations = 120", "iterations = 4\n[output2]").replace("\n[output2]", "")
    Path("run.toml").write_text(text.replace('"run"', '"my run; echo owned"'), encoding="utf-8")
    printed = told("train", "run.toml")
    assert "next: fdro report 'my run; echo owned'" in printed
    again = told("train", "run.toml")
    assert "`fdro resume 'my run; echo owned'`" in again


@pytest.mark.usefixtures("place")
def test_a_publisher_is_a_text_and_no_more():
    publisher = 'St. "Mary"\n[tool.flwr.app.config]\nworkers = 9 \\ \x1b'
    assert "wrote" in told("flower", "new", "wards", "--publisher", publisher)
    found = tomllib.loads(Path("wards/pyproject.toml").read_text(encoding="utf-8"))
    assert found["tool"]["flwr"]["app"]["publisher"] == publisher
    assert found["tool"]["flwr"]["app"]["config"]["workers"] == 2


@pytest.mark.usefixtures("place")
def test_what_a_worker_raises_is_shown_and_not_obeyed():
    Path("own.py").write_text(
        "class Loud:\n    dimension = 2\n"
        "    def loss_and_gradient(self, w, rng=None, batch_size=None):\n"
        f"        raise ValueError({HOSTILE!r})\n"
        "def problems():\n    return [Loud(), Loud()]\n",
        encoding="utf-8",
    )
    text = RUN_FILE.replace('"samples.csv"', '"own:problems"').replace("[model]\nl2 = 0.01\n", "")
    Path("run.toml").write_text(text, encoding="utf-8")
    printed = told("train", "run.toml")
    assert "ValueError" in printed
    assert "\\x1b[2J" in printed
    assert not UNSEEN.search(printed)
