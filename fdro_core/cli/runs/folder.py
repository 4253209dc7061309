"""The folder of a run: its files, and how they are written and read.

============== =========================================================================
file           what
============== =========================================================================
run.toml       a copy of the run file
origin.json    the folder that its paths are relative to, and the versions in use
history.jsonl  one line per report or notice
checkpoint.npz everything that `fdro resume` needs
result.json    the numbers: certificate, losses, accuracies and weights by worker
result.npz     the arrays: w, losses, weights, planes, p, and mean, scale, classes of the model
report.html    from `fdro report`
============== =========================================================================
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fdro_core import files
from fdro_core.cli import version
from fdro_core.cli.runs import records
from fdro_core.errors import InvalidSetting
from fdro_core.outside import command
from uncertainty_sets.names import nearest

RUN_FILE = "run.toml"
ORIGIN, HISTORY, CHECKPOINT = "origin.json", "history.jsonl", "checkpoint.npz"
RESULT, ARRAYS, REPORT = "result.json", "result.npz", "report.html"
OURS = (RUN_FILE, ORIGIN, HISTORY, CHECKPOINT, RESULT, ARRAYS, REPORT)


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __str__(self) -> str:
        """The path, relative to the current folder if it is inside."""
        path = self.path.resolve()
        return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(self.path)

    def beside(self, name: str) -> RunFolder:
        """The folder for the same run with the algorithm of that name."""
        return RunFolder(self.path.with_name(f"{self.path.name}-{name}"))

    def begin(self, run_file: str, base: Path, *, force: bool) -> None:
        """Make the folder for a new run; if it holds one already, raise, or delete that with `force`."""
        try:
            self._make_room(force=force)
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # no permission, a name that is too long
            raise InvalidSetting(
                f"{self} cannot be the folder of a run ({error.strerror}): choose another with --output"
            ) from error
        files.write_text(self / RUN_FILE, run_file)
        origin = {
            "folder": str(base),
            "fdro": version(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(),
        }
        files.write_text(self / ORIGIN, json.dumps(origin, indent=1) + "\n")

    def check_free(self) -> None:
        """Raise if the folder is in use."""
        self._make_room(force=False)

    def _make_room(self, *, force: bool) -> None:
        """Raise if the folder is in use; with `force` delete the run in it."""
        if self.path.exists() and not self.path.is_dir():
            raise InvalidSetting(f"{self} is a file; the run needs a folder: choose another with --output")
        if any((self / name).exists() for name in (HISTORY, CHECKPOINT, RESULT)):
            if not force:
                raise InvalidSetting(
                    f"{self} already holds a run. Continue it with `{command('fdro', 'resume', self)}`, "
                    "write this one to another folder with --output OTHER, or replace it with --force"
                )
            for name in OURS:
                (self / name).unlink(missing_ok=True)
        elif self.path.is_dir() and not force and any(each.name not in OURS for each in self.path.iterdir()):
            raise InvalidSetting(
                f"{self} has other files in it: choose another folder with --output, or use this one "
                "with --force"
            )

    def check(self, *needed: str) -> None:
        """Raise if the folder lacks one of the files."""
        if not os.path.isdir(self.path):
            parent = self.path.parent
            names = [each.name for each in parent.iterdir() if each.is_dir()] if os.path.isdir(parent) else []
            raise InvalidSetting(f"there is no folder {self.path}{nearest(self.path.name, names)}")
        for name in needed:
            path = self.run_file if name == RUN_FILE else self / name
            if path.is_file():
                continue
            if name in {RUN_FILE, ORIGIN}:
                raise InvalidSetting(f"{self} has no {name}: it is not the folder of a run")
            raise InvalidSetting(
                f"{self} has no {name}: the run ended before one was written; start again with "
                f"`{command('fdro', 'train', f'{self}/{self.run_file.name}', '--output', self, '--force')}`"
            )

    @property
    def run_file(self) -> Path:
        """The copy of the run file."""
        return self / RUN_FILE

    def origin(self) -> dict[str, Any]:
        """The folder of the original run file, and the versions in use."""
        return records.read_object(self / ORIGIN, records.ORIGIN)

    def result(self) -> dict[str, Any]:
        """The numbers of the result."""
        return records.read_object(self / RESULT, records.RESULT)

    def history(self, workers: int) -> list[dict[str, Any]]:
        """Reports and notices of a run with so many workers, in order."""
        return records.read_entries(self / HISTORY, workers) if os.path.isfile(self / HISTORY) else []

    def write(self, numbers: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Write the result; both files are on the disk before the first of them is replaced."""
        text = json.dumps(numbers, indent=1, allow_nan=False) + "\n"
        with files.replacing(self / ARRAYS) as file, files.replacing(self / RESULT) as result:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
            result.write(text.encode())
