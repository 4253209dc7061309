"""Observers that write: checkpoints, and the history as JSON lines."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from fdro_core import files
from fdro_core.errors import FileNotWritten
from fdro_core.files import check_writable
from fdro_core.protocol.observer import RunView
from fdro_core.protocol.settings import FilePath, Whole, check_setting

# -- checkpoints ---------------------------------------------------------------------------------------


class Checkpoint:
    """Write the run's state to `path` every `every` reports, and when it ends or is interrupted.

    The file is an npz with JSON inside, no pickle; it is replaced as a whole, and records which run it
    belongs to. `fdro_core.resume` continues from it, bit for bit. A path that cannot be written is refused
    before the run begins; if writing fails later, the run ends and the previous file stays.
    """

    def __init__(self, path: str | Path, every: int = 100) -> None:
        self.path = check_setting("Checkpoint.path", path, FilePath())
        self.every = check_setting("Checkpoint.every", every, Whole())
        self._reports = 0

    def begin(self) -> None:
        """Raise `FileNotWritten` now rather than after hours: a wrong path, a folder without rights."""
        check_writable(self.path)

    def __call__(self, run: RunView, entry: dict[str, Any]) -> None:
        """Count reports; write the state at every `every`-th."""
        if entry["event"] == "report":
            self._reports += 1
            if self._reports % self.every == 0:
                run.save(self.path)

    def finish(self, run: RunView) -> None:
        """Write the last state, unless the run ended in the middle of an update."""
        if not run.broken:
            run.save(self.path)


# -- the history as JSON lines -------------------------------------------------------------------------


class HistoryFile:
    """Append every report and notice to a file of JSON lines.

    A report has: event, iteration, clock, objective (the set's value at the losses the master knows), value
    (h), losses, weights (s), planes, active_workers (S), live_workers, staleness (the largest since the last
    report), gradients, bits_down, bits_up, bits_theorem_2 (all 32 per number) and bytes (8 per number). A
    notice has event, iteration, clock and its own facts.

    Args:
        path: the file; a new run replaces it, a resumed one too, beginning with what its checkpoint has. The
            file has every entry since, also of a run that is so long that its history has not.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = check_setting("HistoryFile.path", path, FilePath())
        self._left: list[dict[str, Any]] | None = None  # what is to be written; None: the run's history
        self._began = False

    def begin(self) -> None:
        """Raise `FileNotWritten` if the file cannot be written; a pipe or a screen is not tried."""
        if not self._special():
            files.check_writable(self.path)

    def _special(self) -> bool:
        return os.path.exists(self.path) and not os.path.isfile(self.path)

    def __call__(self, run: RunView, entry: dict[str, Any]) -> None:
        """Write the new entry, and what could not be written; a resumed run begins with its checkpoint's."""
        if self._left is None:
            self._left = [*run.history]
        elif not (self._left and self._left[-1] is entry):
            self._left.append(entry)
        if self._special():
            with self.path.open("w", encoding="utf-8") as file:
                file.write(_lines(self._left))
        elif not self._began:  # replaced as a whole: a crash here must not lose the previous lines
            files.write_text(self.path, _lines(self._left))
        else:
            self._append(_lines(self._left).encode())
        self._left, self._began = [], True

    def _append(self, lines: bytes) -> None:
        """Append all lines or none: half a line would hide those that follow."""
        with self.path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                left = memoryview(lines)
                while left:
                    left = left[file.write(left) :]
            except BaseException as error:
                file.truncate(before)
                if isinstance(error, OSError):
                    words = f"{self.path} could not be continued ({error.strerror or error})"
                    raise FileNotWritten(error.errno or errno.EIO, words, str(self.path)) from error
                raise


def _lines(entries: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(entry, default=_plain) + "\n" for entry in entries)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a history cannot hold a {type(value).__name__}")


def read_history(path: str | Path) -> list[dict[str, Any]]:
    """The entries of a history file; a last line cut short by a crash is left out."""
    entries = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return entries
