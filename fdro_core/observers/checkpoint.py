"""Checkpoints: the whole state in one file, every few reports and at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fdro_core.files import check_writable
from fdro_core.protocol.observer import RunView
from fdro_core.protocol.setting_checks import check_path, check_whole


class Checkpoint:
    """Write the run's state to `path` every `every` reports, and when it ends or is interrupted.

    The file is an npz with JSON inside, no pickle; it is replaced as a whole, and records which run it
    belongs to. `fdro_core.resume` continues from it, bit for bit. A path that cannot be written is refused
    before the run begins; if writing fails later, the run ends and the previous file stays.
    """

    def __init__(self, path: str | Path, every: int = 100) -> None:
        self.path = check_path("Checkpoint.path", path)
        self.every = check_whole("Checkpoint.every", every, 1)
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
