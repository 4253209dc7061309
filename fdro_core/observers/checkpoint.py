"""Checkpoints: the whole state in one file, every so many reports and at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdro_core.errors import InvalidSetting

if TYPE_CHECKING:
    from fdro_core.solving import Run


class Checkpoint:
    """Write the run's state to `path` every `every` reports, and when it ends or is interrupted.

    The file is an npz with JSON inside, no pickle; it is replaced as a whole, and says what run it belongs
    to. `fdro_core.resume` goes on from it, bit for bit. One that cannot be written ends the run, and the file
    from before stays.
    """

    def __init__(self, path: str | Path, every: int = 100) -> None:
        if every < 1:
            raise InvalidSetting(f"Checkpoint.every must be at least 1, got {every}")
        self.path = Path(path)
        self.every = every
        self._reports = 0

    def __call__(self, run: Run, entry: dict[str, Any]) -> None:
        """Count reports and write when it is time."""
        if entry["event"] == "report":
            self._reports += 1
            if self._reports % self.every == 0:
                run.save(self.path)

    def finish(self, run: Run) -> None:
        """Write the last state; the file stays as it is if the run ended in the midst of an update."""
        if not run.broken:
            run.save(self.path)
