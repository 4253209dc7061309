"""When lost workers are made again, and which of them are being made."""

from __future__ import annotations

from heapq import heappop, heappush

LONGEST_PAUSE = 60.0  # seconds between two attempts to make a worker again


class Restarts:
    """The attempts to make lost workers again. Times are those that the caller passes in.

    Attributes:
        failures: how often in a row each worker was lost or could not be made.
        making: workers that are being made, and since when.

    >>> restarts = Restarts(1, most=1, after=0.5)
    >>> restarts.lost(0, now=10.0), restarts.due(10.0), restarts.due(10.5)
    (True, [], [0])
    >>> restarts.lost(0, now=11.0), restarts.given_up(0)
    (False, True)
    """

    def __init__(self, workers: int, *, most: int, after: float) -> None:
        self._most, self._after = most, after
        self.failures = [0] * workers
        self.making: dict[int, float] = {}
        self._lost: set[int] = set()
        self._queue: list[tuple[float, int]] = []

    def lost(self, worker: int, now: float) -> bool:
        """Schedule an attempt for a worker that was lost; False if it had too many failures in a row."""
        self.making.pop(worker, None)
        self.failures[worker] += 1
        if self.given_up(worker):
            return False
        self._lost.add(worker)
        pause = min(self._after * 2.0 ** (self.failures[worker] - 1), LONGEST_PAUSE)
        heappush(self._queue, (now + pause, worker))
        return True

    def due(self, now: float) -> list[int]:
        """Return the workers to make now; from then on they count as being made."""
        found = []
        while self._queue and self._queue[0][0] <= now:
            worker = heappop(self._queue)[1]
            if worker in self._lost:  # else an earlier attempt succeeded late
                found.append(worker)
                self.making[worker] = now
        return found

    def make_all(self, workers: range, now: float) -> None:
        """Record that all these workers are being made, as for a resumed run."""
        self.making.update(dict.fromkeys(workers, now))

    def ready(self, worker: int) -> None:
        """Record that a worker was made."""
        self.making.pop(worker, None)
        self._lost.discard(worker)

    def given_up(self, worker: int) -> bool:
        """Whether a worker failed too often in a row to be made again."""
        return self.failures[worker] > self._most

    def late(self, now: float, limit: float) -> list[int]:
        """Return the workers that have been in the making for `limit` seconds."""
        return [worker for worker, since in self.making.items() if now - since >= limit]

    @property
    def pending(self) -> bool:
        """Whether some worker may come back."""
        return bool(self._queue or self.making)

    @property
    def next_due(self) -> float | None:
        """When the next attempt is due."""
        return self._queue[0][0] if self._queue else None
