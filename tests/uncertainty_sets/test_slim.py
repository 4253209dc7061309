"""Installs without solvers, simulated: their packages are hidden from a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.slim_check import ABSENT
from uncertainty_sets.packages import SOURCES, load

ROOT = Path(__file__).resolve().parents[2]


def run_without(packages: tuple[str, ...], program: str) -> str:
    """What a program prints if these packages are missing."""
    script = [sys.executable, str(ROOT / "tests" / "missing.py"), " ".join(packages), program]
    done = subprocess.run(
        script,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_closed_forms_need_no_solver_and_errors_say_what_to_install() -> None:
    assert "closed forms answer" in run_without((*ABSENT, "typer", "rich"), "tests/slim_check.py")


def test_the_driver_is_imported_without_solvers(tmp_path: Path) -> None:
    program = tmp_path / "ask.py"
    program.write_text("import fdro_core\nfrom fdro_core import *\nprint(len(fdro_core.__all__), solve)\n")
    assert "function solve" in run_without((*ABSENT, "typer", "rich"), str(program))


def test_a_kernel_that_is_not_compiled_needs_numba(tmp_path: Path) -> None:
    program = tmp_path / "ask.py"
    program.write_text(
        "import os\n"
        "os.environ['FDRO_JIT'] = '1'\n"  # no library, even if there is one
        "from uncertainty_sets.errors import BackendMissing\n"
        "try:\n"
        "    import uncertainty_sets.kernels.kl\n"
        "except BackendMissing as error:\n"
        "    print(error)\n"
    )
    assert run_without(("numba",), str(program)) == (
        "a kernel that is not compiled ahead of time needs the package numba: pip install numba, "
        'or pip install "fdro[jit]"\n'
    )


def test_a_package_that_is_there_and_broken_is_not_called_missing(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "ot.py").write_text("import a_package_that_does_not_exist\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ot", raising=False)
    with pytest.raises(ModuleNotFoundError, match="a_package_that_does_not_exist") as caught:
        load("ot", "this test")
    assert type(caught.value) is ModuleNotFoundError


def test_the_extras_are_those_of_the_default_install() -> None:
    """Extras that errors name repeat the requirements of the default install, which has all of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for name, extra in SOURCES.values():
        assert any(each.startswith(f"{name}>=") for each in extras[extra]), (name, extra)
    default = {each.partition(">=")[0] for each in project["dependencies"]}
    for extra in {extra for name, extra in SOURCES.values() if name in default}:
        assert set(extras[extra]) <= set(project["dependencies"])
