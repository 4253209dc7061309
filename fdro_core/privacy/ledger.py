"""A worker's own count of its releases, in a file that survives the process.

The first line has the guarantee, each further one the rate and the noise multiplier of a release. A line is
appended, and on disk, before the release leaves the worker. Lines of two processes do not overwrite each
other. Releases of earlier runs count as well: they were about the same data.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from fdro_core.errors import InvalidData, InvalidSetting
from fdro_core.privacy.accounting import Releases
from fdro_core.privacy.settings import Privacy


class Ledger:
    """The file `worker-J.jsonl` in a folder; made if it is not there.

    Args:
        folder: of one data set per worker: with other data or other numbers of workers, take another.
        worker: J.
        privacy: its epsilon, delta and unit must be those of the file. Who owns the data may change them in
            the file; who trains cannot.
    """

    def __init__(self, folder: str | Path, worker: int, privacy: Privacy) -> None:
        self.path = Path(folder) / f"worker-{worker}.jsonl"
        promise = {"delta": privacy.delta, "epsilon": privacy.epsilon, "unit": privacy.unit}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self._write(promise, os.O_CREAT | os.O_EXCL)
        found = self._lines()[0]
        if found != promise:
            raise InvalidSetting(
                f"{self.path} promises {found}, and this run asks for {promise}: give the ledger's values, "
                "or have its owner change them",
                parameter="ledger",
                value=str(self.path),
            )

    def append(self, rate: float, noise: float) -> None:
        """Count a release; on disk when this returns."""
        self._write([rate, noise], 0)

    def read(self) -> Releases:
        """All releases so far, by kind. Reads the file: 30 bytes each."""
        try:
            kinds = Counter((float(rate), float(noise)) for rate, noise in self._lines()[1:])
        except (TypeError, ValueError) as error:
            raise self._damaged() from error
        return tuple((rate, noise, count) for (rate, noise), count in sorted(kinds.items()))

    def _write(self, content: object, flags: int) -> None:
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | flags, 0o600)
        try:
            os.write(handle, (json.dumps(content, sort_keys=True) + "\n").encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def _lines(self) -> list[Any]:
        text = self.path.read_text(encoding="utf-8")
        try:
            lines = [json.loads(line) for line in text.splitlines()]
        except json.JSONDecodeError as error:
            raise self._damaged() from error
        if not lines or not text.endswith("\n"):
            raise self._damaged()
        return lines

    def _damaged(self) -> InvalidData:
        return InvalidData(
            f"{self.path} is damaged, so the releases so far are not known: restore it from a backup, or "
            "complete its last line, which counts as a release"
        )
