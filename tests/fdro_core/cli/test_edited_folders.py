"""Random edits of every file of a run folder: each command does its work, or says what is wrong.

An edit replaces, removes or repeats an entry, or damages bytes. Checkpoints are signed again after an edit of
their entries: a digest tells damage, not intent. `FDRO_EDITS=2000` makes the long test longer.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fdro_core.cli.app import app
from fdro_core.master import checkpoint
from tests.fdro_core.command import fdro, furnish

COUNT = int(os.environ.get("FDRO_EDITS", "300"))
SECONDS = 60  # that a command may take
CODES = {0, 1, 2, 130}

VALUES = (
    None, True, False, 0, -1, 1, 3, 10**6, 2**63, 10**400, -0.5, 0.5, 2.0, 1e308, float("nan"), float("inf"),
    float("-inf"), "", "x", "report", "worker-lost", "é", "\ud800", "\0", "\x1b[31m", "<b>", "1", [], [1],
    [[1]], [None], ["a"], {}, {"a": 1}, {"name": "x"}, "x" * 100_000,
)  # fmt: skip
TOML_VALUES = (
    "", "0", "-1", "1e999", "nan", "inf", "true", '""', '"x"', '"kl"', "[]", "[1, 2]", "{}", "{ a = 1 }",
    "[[1]]", "1979-05-27", "07:32:00", "9" * 5000, "9" * 30, "0x", '"\\ud800"', '"""', "[" * 2000,
    '"\\u0000"', '"../x.csv"', '[{ worker = 9, factor = 1e999 }]', '"module:function"',
)  # fmt: skip


def places(tree, place=()):
    """All places in a tree of dicts and lists."""
    yield place
    if isinstance(tree, dict):
        for key in tree:
            yield from places(tree[key], (*place, key))
    elif isinstance(tree, list | tuple):
        for key in range(min(len(tree), 20)):
            yield from places(tree[key], (*place, key))


def changed(tree, place, change):
    """The tree with an edit at one place: a value, or what a function makes of the one that is there."""
    if not place:
        return change(tree)
    key, rest = place[0], place[1:]
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    if not rest and change is remove:
        del copy[key]
    else:
        copy[key] = changed(copy[key], rest, change)
    return tuple(copy) if isinstance(tree, tuple) else copy


def remove(value):
    """At the root: nothing is left."""
    return None


def edited(rng, tree):
    """The tree with one random edit."""
    found = list(places(tree))
    place = found[rng.integers(len(found))]
    kind = rng.integers(6)
    if kind == 0:
        return changed(tree, place, remove)
    if kind == 1:
        return changed(tree, place, lambda value: [value, value])
    if kind == 2:
        return changed(tree, place, lambda value: value * 2 if isinstance(value, list | str) else {"": value})
    return changed(tree, place, lambda value: VALUES[rng.integers(len(VALUES))])


def as_json(value):
    return json.dumps(value, default=lambda each: each.tolist())


def damaged(rng, content):
    """Bytes with random damage."""
    content = bytearray(content)
    kind = rng.integers(6)
    place = int(rng.integers(max(1, len(content))))
    if kind == 0:
        return bytes(content[:place])
    if kind == 1 and content:
        content[place] ^= 1 << int(rng.integers(8))
    elif kind == 2:
        content[place:place] = rng.bytes(int(rng.integers(1, 40)))
    elif kind == 3:
        content[place:place] = b"[" * 100_000
    elif kind == 4:
        del content[place : place + int(rng.integers(1, 200))]
    else:
        content[place:place] = content[: int(rng.integers(1, 300))]
    return bytes(content)


def edit_json(rng, file):
    file.write_text(as_json(edited(rng, json.loads(file.read_text(encoding="utf-8")))), encoding="utf-8")


def edit_lines(rng, file):
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    place = rng.integers(len(lines))
    lines[place] = edited(rng, lines[place])
    file.write_text("".join(as_json(line) + "\n" for line in lines), encoding="utf-8")


def edit_toml(rng, file):
    lines = file.read_text(encoding="utf-8").splitlines()
    place, kind = int(rng.integers(len(lines))), rng.integers(4)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines.insert(place, lines[rng.integers(len(lines))])
    else:
        key = lines[place].partition("=")[0]
        lines[place] = f"{key}= {TOML_VALUES[rng.integers(len(TOML_VALUES))]}"
    file.write_text("\n".join(lines), encoding="utf-8")


def edit_checkpoint(rng, file):
    """Change an entry, or an array, and sign the file again."""
    state = checkpoint.read(file)
    state.pop("format")
    arrays = [place for place in places(state) if isinstance(at(state, place), np.ndarray)]
    if rng.random() < 0.3:
        new = changed(state, arrays[rng.integers(len(arrays))], lambda array: odd_array(rng, array))
    else:
        new = edited(rng, state)
    try:
        checkpoint.write(file, new)
    except (TypeError, ValueError):  # nothing that a checkpoint can hold
        file.write_bytes(b"")


def at(tree, place):
    for key in place:
        tree = tree[key]
    return tree


def odd_array(rng, array):
    choices = (
        array[:-1], array[None], array.astype("float32"), array.astype("complex128"), array.astype("S8"),
        np.zeros(0), np.array(1.0), np.full_like(array, np.nan, dtype=float), array * 1e300, -array,
        array[..., ::-1], np.asfortranarray(array), np.array(["x"]),
    )  # fmt: skip
    return choices[rng.integers(len(choices))]


def edit_bytes(rng, file):
    file.write_bytes(damaged(rng, file.read_bytes()))


EDITS = (
    ("result.json", edit_json, ("report", "compare")),
    ("history.jsonl", edit_lines, ("report",)),
    ("origin.json", edit_json, ("report", "resume")),
    ("run.toml", edit_toml, ("report", "compare", "check")),
    ("checkpoint.npz", edit_checkpoint, ("resume",)),
    ("samples.csv", edit_bytes, ("check",)),
    ("result.json", edit_bytes, ("report",)),
    ("history.jsonl", edit_bytes, ("report",)),
    ("run.toml", edit_bytes, ("report", "check")),
    ("checkpoint.npz", edit_bytes, ("resume",)),
)


ALGORITHMS = {
    "aspire-ease": "",
    "aspire-models": "tolerance = 0.0",
    "fed-avg": "local_steps = 2",
    "fed-buff": "batch_size = 8",
}


def run_with(folder, algorithm):
    """Make the folder of a run with everything in it: a worker that was lost and came back, tests, planes."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        furnish()
        file = Path("run.toml")
        settings = f'name = "{algorithm}"\n{ALGORITHMS[algorithm]}\niterations = 24\nreport_interval = 4'
        text = file.read_text(encoding="utf-8").replace("iterations = 120", settings)
        crash = "seed = 3\ncrashes = [{ worker = 1, at = 3.0, until = 6.0 }]"
        file.write_text(text.replace("seed = 3", crash), encoding="utf-8")
        fdro("train", "run.toml")
    finally:
        os.chdir(before)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Makes the folder of an algorithm's run once."""
    made = {}

    def folder(algorithm):
        if algorithm not in made:
            made[algorithm] = run_with(tmp_path_factory.mktemp(algorithm), algorithm)
        return made[algorithm]

    return folder


@contextmanager
def limited():
    """Raise if it takes too long."""

    def late(*_):
        raise TimeoutError(f"no end within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def lines_of(what, folder):
    """The command lines that are tried."""
    run = str(folder / "run")
    return {
        "report": ["report", run],
        "compare": ["compare", run, str(folder / "other")],
        "resume": ["resume", run, "--iterations", "30"],
        "check": ["check", f"{folder}/run/run.toml"],
    }[what]


def tried(finished, folder, number, edit):
    """Make edit `number`, and return what is wrong with how the commands take it; "" if nothing is."""
    rng = np.random.default_rng([34, number])
    name, change, commands = edit
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(finished, folder)
    shutil.copytree(finished / "run", folder / "other")
    origin = folder / "run" / "origin.json"
    origin.write_text(
        origin.read_text(encoding="utf-8").replace(str(finished), str(folder)), encoding="utf-8"
    )
    change(rng, folder / name if name == "samples.csv" else folder / "run" / name)
    for what in commands:
        with warnings.catch_warnings(), limited():
            warnings.simplefilter("ignore")
            answer = CliRunner().invoke(app, lines_of(what, folder))
        raised = answer.exception
        if (raised is not None and not isinstance(raised, SystemExit)) or answer.exit_code not in CODES:
            return (
                f"{number}: {name} by {change.__name__}: {what}: {type(raised).__name__}: {str(raised)[:200]}"
            )
        if answer.exit_code in {1, 2} and "error:" not in answer.stderr:
            return f"{number}: {name}: {what}: exit {answer.exit_code} without a word"
    return ""


def faults(finished, folder, numbers, edits=EDITS):
    found = [tried(finished, folder, number, edits[number % len(edits)]) for number in numbers]
    return [each for each in found if each]


STATES = [each for each in EDITS if each[1] is edit_checkpoint]
algorithms = pytest.mark.parametrize("algorithm", ALGORITHMS)


def test_edits_end_in_words(finished, tmp_path):
    assert not faults(finished("aspire-ease"), tmp_path / "here", range(30))


@pytest.mark.few(2)
@algorithms
def test_edits_of_a_state_end_in_words(algorithm, finished, tmp_path):
    assert not faults(finished(algorithm), tmp_path / "here", range(8), STATES)


@pytest.mark.thorough
def test_many_edits_end_in_words(finished, tmp_path):
    assert not faults(finished("aspire-models"), tmp_path / "here", range(30, 30 + COUNT))


@pytest.mark.thorough
@algorithms
def test_many_edits_of_a_state_end_in_words(algorithm, finished, tmp_path):
    assert not faults(finished(algorithm), tmp_path / "here", range(8, 8 + COUNT // 3), STATES)
