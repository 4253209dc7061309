"""Copies of packages for tests that add or edit a file, with what was compiled for them; Python in a copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HALF_WRITTEN = ("*.tmp.*", "*.pyc.*")
"""Files of numba and of Python that another process is writing, before they take their names."""


def copy_package(source: Path, into: Path, *left_out: str) -> Path:
    """Copy a package into a folder, where its compiled kernels serve too: they are found by contents.

    Args:
        source: the package's folder.
        into: the folder that gets it.
        left_out: patterns of names that are not copied.
    """
    ignore = shutil.ignore_patterns(*HALF_WRITTEN, *left_out)
    return Path(shutil.copytree(source, into / source.name, ignore=ignore, copy_function=_copy))


def _copy(source: str, target: str) -> None:
    """Copy a file with its times, by which Python recognises its byte code; or none that is gone."""
    with suppress(FileNotFoundError):  # a process that compiles deletes kernels of old sources
        shutil.copy2(source, target)


def copied(package: str, to: Path) -> Path:
    """Copy a package of this project, without results."""
    return copy_package(ROOT / package, to, "results", "out")


def python(folder: Path, *arguments: str, code: int = 0) -> str:
    """Run Python in a folder, whose packages come before this project's.

    Returns what it prints; on stderr if it is to fail with another code than 0.
    """
    path = f"{folder}{os.pathsep}{ROOT}"
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout
