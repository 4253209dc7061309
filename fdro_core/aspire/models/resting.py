"""Workers that are not asked for a while, because their gradients hardly count.

With weights s, worker j's gradient counts s_j. For a given number of gradients, the noise of Σ_j s_jg_j is
least if visits are in proportion to s_j: a worker with less than its even share 1/N rests 1/(Ns_j) - 1 epochs
before it is asked again, `longest` epochs at most, so that its loss stays known.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from uncertainty_sets.arrays import Array

SHORTEST = 0.5  # epochs: less is no rest


class Resting:
    """Who rests until when.

    Attributes:
        until: the iteration at which each resting worker is asked again.
    """

    def __init__(self, longest: float, workers: int, until: Sequence[Sequence[int]] = ()) -> None:
        self.longest = longest
        self.workers = workers
        self.until: dict[int, int] = {}
        self._queue: list[tuple[int, int]] = []  # (until, worker), old entries included
        for j, iteration in until:
            self._rest(j, iteration)

    def snapshot(self) -> list[list[int]]:
        """Who rests until when."""
        return [[j, self.until[j]] for j in sorted(self.until)]

    def _rest(self, j: int, iteration: int) -> None:
        self.until[j] = iteration
        heapq.heappush(self._queue, (iteration, j))

    def epochs(self, weight: float) -> float:
        """How long a worker of that weight rests.

        >>> [Resting(3.0, workers=10).epochs(weight) for weight in (0.2, 0.1, 0.05, 0.0)]
        [0.0, 0.0, 1.0, 3.0]
        """
        share = self.workers * weight
        if share * (1.0 + self.longest) <= 1.0:
            return self.longest
        rest = 1.0 / share - 1.0
        return rest if rest >= SHORTEST else 0.0

    def leave(self, active: Sequence[int], weight: Callable[[int], float], iteration: int) -> list[int]:
        """Let those of the active workers rest that may; the workers to ask now.

        Those are the other active ones, and the resting ones whose time has come.
        """
        if self.longest == 0.0:
            return list(active)
        ask = []
        for j in active:
            rest = int(self.epochs(weight(j)) * self.workers / len(active))
            if rest > 0:
                self._rest(j, iteration + rest)
            else:
                ask.append(j)
        return ask + self._called(len(self.until), iteration)

    def reconsider(self, weights: Array) -> list[int]:
        """The resting workers whose weight is now too large to rest, to ask now. Costs O(N)."""
        called = [j for j in sorted(self.until) if self.epochs(float(weights[j])) == 0.0]
        for j in called:
            self.forget(j)
        return called

    def wake(self, count: int) -> list[int]:
        """As many resting workers as that, to ask now: those whose time comes first."""
        return self._called(count, None)

    def _called(self, count: int, latest: int | None) -> list[int]:
        called: list[int] = []
        while self._queue and len(called) < count and (latest is None or self._queue[0][0] <= latest):
            iteration, j = heapq.heappop(self._queue)
            if self.until.get(j) == iteration:
                del self.until[j]
                called.append(j)
        return called

    def forget(self, j: int) -> None:
        """Note that j is lost, or asked for another reason."""
        self.until.pop(j, None)
