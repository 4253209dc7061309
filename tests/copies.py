"""Copies of packages for tests that add or edit a file, with what Python and numba have compiled."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

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
