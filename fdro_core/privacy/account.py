"""What a worker may still release: its budget, kept by the worker itself."""

from __future__ import annotations

from fdro_core.errors import InvalidSetting
from fdro_core.privacy.accounting import Releases, most_releases
from fdro_core.privacy.ledger import Ledger
from fdro_core.privacy.settings import Privacy


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
