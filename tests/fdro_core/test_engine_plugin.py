"""An engine is one file: dropped into the folder it has a name, runs `fdro train` and passes the suite."""

from __future__ import annotations

import doctest
import inspect
import json
import os
import subprocess
import sys

import pytest

from fdro_core import RayEngine, ThreadEngine, VirtualEngine
from fdro_core.protocol.engine import EngineTraits
from tests.fdro_core.command import RUN_FILE
from tests.fdro_core.engine_kinds import ENGINES, ROOT

SUITE = ["engines", "engines_restart", "own_messages", "replies", "worker_errors", "checkpoint_identity"]


def engine_of_the_page():
    """The source of the engine in docs/add-an-engine.md."""
    source = []
    for example in doctest.DocTestParser().get_examples((ROOT / "docs" / "add-an-engine.md").read_text()):
        source.append(example.source)
        if "class QueueEngine" in example.source:
            return "\n".join(source)
    raise AssertionError("docs/add-an-engine.md has no QueueEngine any more")


@pytest.fixture
def plugged(tmp_path):
    """Runs Python with one more file in the folder of engines."""
    folder = tmp_path / "engines"
    folder.mkdir()
    (folder / "queues.py").write_text(engine_of_the_page())
    (tmp_path / "plugged.py").write_text(
        f"import fdro_core.engines\nfdro_core.engines.__path__.append({str(folder)!r})\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])

    def python(*arguments, cwd):
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=cwd, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return python


def test_a_new_engine_passes_the_shared_suite(plugged):
    files = [f"tests/fdro_core/test_{name}.py" for name in SUITE]
    all_cases = ("-m", "pytest", "-m", "", "-p", "plugged", "-q", "-n", "0", "-k", "queue")
    answer = plugged(*all_cases, *files, cwd=ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    passed = int(answer.stdout.rpartition(" passed")[0].split()[-1])
    assert passed > 30  # not an empty selection
    assert "skipped" not in answer.stdout


def test_a_new_engine_runs_by_its_name(plugged, place, tmp_path):
    settings = RUN_FILE.replace(
        "seed = 3\nstragglers = [{ worker = 0, factor = 5.0 }]", 'name = "queue"\nrestarts = 3'
    )
    (tmp_path / "run.toml").write_text(settings)
    answer = plugged(
        "-c", "import plugged; from fdro_core.cli.app import app; app()", "train", "run.toml", cwd=tmp_path
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text())["engine"]["name"] == "queue"


def test_engines_are_known_by_the_name_of_their_class():
    named = {"virtual": VirtualEngine, "thread": ThreadEngine, "ray": RayEngine}
    assert named.items() <= ENGINES.items()
    assert all(issubclass(cls, EngineTraits) and not inspect.isabstract(cls) for cls in ENGINES.values())
