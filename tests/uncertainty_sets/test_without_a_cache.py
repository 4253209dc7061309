"""Kernels in containers: a package and a home that cannot be written, a cache that is out of date."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import fdro_core
import uncertainty_sets

PACKAGES = [Path(module.__file__).parent for module in (uncertainty_sets, fdro_core)]
ASK = """
import fdro_core
from uncertainty_sets import Box
print(Box([0, 0], [0.75, 0.75]).worst_case([1.0, 2.0]).value)
"""
FAIL = """
from uncertainty_sets import Box
from uncertainty_sets.errors import SolverFailed
try:
    Box([0, 0], [0.75, 0.75]).worst_case([1.0, 2.0], backend="closed-form")
except SolverFailed:
    print("no proof")
"""


def run(folder: Path, code: str = ASK, **environment: str) -> str:
    """Python with the packages in `folder`, and nothing of this process's environment but the search path."""
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=kept | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def copied(tmp_path):
    for package in PACKAGES:
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def read_only(folder: Path) -> None:
    """Take the right to write from every folder; as root, put files where numba would make its folders."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            if not (path / "__pycache__").exists():
                (path / "__pycache__").write_text("")
            path.chmod(stat.S_IRUSR | stat.S_IXUSR)


def test_a_read_only_package_and_no_home(copied):
    read_only(copied)
    assert run(copied, HOME="/nonexistent/home", XDG_CACHE_HOME="/dev/null/cache") == "1.75"


def test_numba_cache_dir_is_used(copied, tmp_path):
    cache = tmp_path / "cache"
    read_only(copied)
    copied.chmod(stat.S_IRWXU)
    assert run(copied, HOME="/nonexistent/home", NUMBA_CACHE_DIR=str(cache)) == "1.75"
    assert list(cache.rglob("*.nbi"))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_edit_in_another_file_is_seen(copied, tmp_path, elsewhere):
    """numba looks at a kernel's own file only; box.py calls selection.share_of in another."""
    where = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")} if elsewhere else {}
    assert run(copied, **where) == "1.75"
    selection = copied / "uncertainty_sets" / "kernels" / "selection.py"
    text = selection.read_text()
    changed = text.replace("return min(1.0, max(0.0, rest / at)) if at > 0.0 else 0.0", "return 1.0")
    assert changed != text
    selection.write_text(changed)
    assert run(copied, FAIL, **where) == "no proof"
