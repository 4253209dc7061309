"""What a worker has released, in its ledger, and what it may still release: its budget, kept by itself."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from fdro_core.errors import InvalidData, InvalidSetting
from fdro_core.privacy.accounting import Releases, most_releases
from fdro_core.privacy.policy import PrivacyPolicy
from fdro_core.privacy.settings import Privacy

# -- the ledger ----------------------------------------------------------------------------------------
# The first line has the guarantee, each further one the rate and the noise multiplier of a release. A line is
# appended, and on disk, before the release leaves the worker. Lines of two processes do not overwrite each
# other. Releases of earlier runs count as well: they were about the same data.


LONGEST_PROMISE, LONGEST_LINE = 300, 100  # bytes; what we write has at most half


class Ledger:
    """One file; made if it is not there.

    What was read once is not read again: a release costs the lines that were written since the last one.

    Args:
        path: of one data set; with other data, take another.
        policy: its epsilon, delta and unit must be those of the file. Who owns the data may change them in
            the file; who trains cannot.
    """

    def __init__(self, path: str | Path, policy: PrivacyPolicy) -> None:
        self.path = Path(path)
        self._promise = {
            "delta": float(policy.delta),
            "epsilon": float(policy.epsilon),
            "unit": policy.unit,
        }
        self._kinds: Counter[tuple[float, float]] = Counter()
        self._place = 0
        self._file: tuple[int, int] | None = None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self._write(self._promise, os.O_CREAT | os.O_EXCL)
        self.read()

    def append(self, rate: float, noise: float) -> None:
        """Count a release; on disk when this returns."""
        self._write([rate, noise], 0)

    def read(self) -> Releases:
        """All releases so far, by kind. Reads what is new: 30 bytes each."""
        with self.path.open("rb") as file:
            about = os.fstat(file.fileno())
            anew = self._file != (about.st_dev, about.st_ino) or about.st_size < self._place
            if anew:  # the file was replaced
                self._kinds.clear()
                self._place = 0
                self._file = about.st_dev, about.st_ino
            file.seek(self._place)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        if anew and complete != text:
            raise self._damaged()
        self._place += len(complete)
        try:
            self._take(complete.split(b"\n")[:-1], with_promise=anew)
        except (InvalidData, InvalidSetting):
            self._file = None  # what was taken in is not all: begin again next time
            raise
        return tuple((rate, noise, count) for (rate, noise), count in sorted(self._kinds.items()))

    def _take(self, lines: list[bytes], *, with_promise: bool) -> None:
        if with_promise:
            if not lines:
                raise self._damaged()
            found = self._value(lines.pop(0), LONGEST_PROMISE)
            if found != self._promise:
                raise InvalidSetting(
                    f"{self.path} promises {found}, and the policy of this machine {self._promise}: make the "
                    "two the same",
                    parameter="ledger",
                    value=str(self.path),
                )
        for line, count in Counter(lines).items():  # few are different
            self._kinds[self._release(line)] += count

    def _release(self, line: bytes) -> tuple[float, float]:
        """Rate and multiplier of a line; what is no release is damage, never a release that costs nothing."""
        value = self._value(line, LONGEST_LINE)
        if type(value) is list and len(value) == 2 and all(type(each) in (int, float) for each in value):
            rate, noise = value
            if 0 < rate <= 1 and 0 < noise < inf:
                return float(rate), float(noise)
        raise self._damaged()

    def _value(self, line: bytes, longest: int) -> Any:
        if len(line) > longest:  # also what is nested deeply
            raise self._damaged()
        try:
            return json.loads(line)
        except ValueError as error:
            raise self._damaged() from error

    def _write(self, content: object, flags: int) -> None:
        line = (json.dumps(content, sort_keys=True) + "\n").encode()
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | flags, 0o600)
        try:
            if os.write(handle, line) != len(line):
                raise OSError(f"{self.path}: no room for a line")
            os.fsync(handle)
        finally:
            os.close(handle)

    def _damaged(self) -> InvalidData:
        return InvalidData(
            f"{self.path} is damaged, so the releases so far are not known: restore it from a backup, or "
            "complete its last line, which counts as a release"
        )


# -- the account ---------------------------------------------------------------------------------------


class Account:
    """Counts releases of one kind, in memory and in the ledger if there is one.

    The number that ε allows is worked out beforehand. Whether a further release comes may depend on earlier
    ones, and does: the guarantee is that of the whole number, however many are asked for.

    Attributes:
        rate: q.
        count: releases of this kind; with a ledger those of earlier runs too.
    """

    def __init__(self, privacy: Privacy, rate: float, ledger: Ledger | None = None) -> None:
        self.privacy = privacy
        self.rate = rate
        self.ledger = ledger
        self._others: Releases = ()
        self.count = 0
        self._read()

    @property
    def _kind(self) -> tuple[float, float]:
        return self.rate, self.privacy.multiplier

    def _read(self) -> None:
        """Take up what the ledger has."""
        if self.ledger is None:
            return
        known = self.ledger.read()
        self.count = sum(count for *kind, count in known if tuple(kind) == self._kind)
        self._others = tuple(each for each in known if each[:2] != self._kind)

    @property
    def limit(self) -> int:
        """How many releases of this kind ε allows, beside those of other kinds."""
        privacy = self.privacy
        return most_releases(privacy.epsilon, privacy.delta, *self._kind, self._others)

    def charge(self) -> bool:
        """Count one release before it is made; False if ε does not allow it."""
        if self.count >= self.limit:
            return False
        if self.ledger is None:
            self.count += 1
            return True
        self.ledger.append(*self._kind)
        self._read()
        return self.count <= self.limit

    @property
    def releases(self) -> Releases:
        """All releases, by kind."""
        return (*self._others, (*self._kind, self.count))

    def go_on(self, released: int) -> None:
        """Refuse to continue after releases that this account does not know of."""
        if self.ledger is None and self.count < released:
            raise InvalidSetting(
                "the worker was made again, and does not know how much it had released: private runs "
                "continue only where the worker has a ledger, which its machine's PrivacyPolicy names",
                parameter="privacy",
            )
