"""`fdro flower new`: the app that it writes, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile

import pytest
from typer.testing import CliRunner

from fdro_core import NamedProblem, solve
from fdro_core.cli.app import app
from tests.fdro_core.helpers import middle_box


def call(*arguments):
    return CliRunner().invoke(app, ["flower", "new", *map(str, arguments)])


def test_it_writes_an_app_whose_parts_fit_together(tmp_path, monkeypatch):
    done = call(tmp_path / "eye-clinics", "--workers", 3, "--publisher", "us", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "folder": str(tmp_path / "eye-clinics"), "package": "eye_clinics", "workers": 3,
    }  # fmt: skip
    folder = tmp_path / "eye-clinics"
    content = tomllib.loads((folder / "pyproject.toml").read_text())
    flwr = content["tool"]["flwr"]["app"]
    assert content["project"]["name"] == "eye-clinics"
    assert content["project"]["dependencies"] == []  # nothing is installed for a run
    assert (flwr["publisher"], flwr["config"]["workers"]) == ("us", 3)
    for reference in (*flwr["components"].values(), flwr["config"]["problem"]):
        module, _, name = reference.partition(":")
        source = (folder / (module.replace(".", "/") + ".py")).read_text()
        assert f"\n{name} = " in source or f"\ndef {name}(" in source
    assert f'["{flwr["config"]["problem"]}"]' in (folder / "eye_clinics" / "client_app.py").read_text()
    assert not [file for file in folder.rglob("*") if file.is_file() and "$" in file.read_text()]
    monkeypatch.syspath_prepend(str(folder))
    problems = [NamedProblem(flwr["config"]["problem"], node_config={"partition-id": j}) for j in range(3)]
    assert solve(problems, middle_box(3)).stop_reason == "converged"


def test_data_of_the_node_are_read_where_the_node_says(tmp_path, monkeypatch):
    np = pytest.importorskip("numpy")
    call(tmp_path / "lungs")
    monkeypatch.syspath_prepend(str(tmp_path / "lungs"))
    np.savez(tmp_path / "ward.npz", X=np.ones((4, 2)), y=np.array([0, 1, 1, 0]), classes=2)
    problem = NamedProblem("lungs.task:make_problem", node_config={"data": str(tmp_path / "ward.npz")})()
    assert problem.samples == 4


@pytest.mark.parametrize("name", ["two words", "9lives", "a" * 33, "früh"])
def test_names_that_flower_cannot_use(name, tmp_path):
    done = call(tmp_path / name)
    assert done.exit_code == 2
    assert "an app is named by letters" in done.stderr
    assert not (tmp_path / name).exists()


def test_a_folder_is_never_overwritten(tmp_path):
    (tmp_path / "wards").mkdir()
    done = call(tmp_path / "wards")
    assert done.exit_code == 2
    assert "exists already" in done.stderr


def test_the_app_passes_flwr_build(tmp_path):
    pytest.importorskip("flwr")
    call(tmp_path / "lungs", "--publisher", "us")
    line = [sys.executable, "-c", "from flwr.cli.app import app; app()", "build"]
    done = subprocess.run(line, cwd=tmp_path / "lungs", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = (tmp_path / "lungs").glob("us.lungs.1-0-0.*.fab")
    with zipfile.ZipFile(built) as packed:
        assert {"lungs/task.py", "lungs/server_app.py", "lungs/client_app.py"} <= set(packed.namelist())
