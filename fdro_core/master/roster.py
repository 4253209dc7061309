"""The master's books on its workers: who is alive, who was sent what and when, how many to wait for.

Everything an iteration asks is O(1) in N: steps under way are kept in the order of their dispatch, so the
stalest worker is the first.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import CheckpointMismatch
from fdro_core.master.settings import Adaptive
from fdro_core.protocol.messages import from_fields, to_fields
from fdro_core.protocol.saved import (
    Form,
    Kept,
    Saved,
    anything,
    listing,
    or_none,
    plain,
    real,
    row,
    whole,
    worker_index,
)
from uncertainty_sets.arrays import Array

NEVER = -1  # in `visited`, for a worker that never reported
MEMORY = 0.2  # weight of the newest interval in a worker's running mean


@dataclass(frozen=True)
class RosterSettings:
    """What a roster needs of an algorithm's settings.

    Attributes:
        workers: N.
        active_workers: S, replies that an iteration waits for; with `adaptive` at the start only.
        max_staleness: τ, the most iterations between two replies of one worker.
        deadline: seconds of silence after which a worker is asked again; "auto": the engine decides; None:
            never.
        resends: how often a silent worker is asked again before it counts as lost.
        max_bad_updates: replies out of range after which a worker is dropped.
        adaptive: the rule that changes S, None if S stays.
        drops: whether a lost worker has no weight until it is back (`dead_losses`).
    """

    workers: int
    active_workers: int
    max_staleness: int
    deadline: float | str | None
    resends: int
    max_bad_updates: int
    adaptive: Adaptive | None = None
    drops: bool = False


def _of_workers(saved: Saved, name: str, value: Any) -> None:
    """Whether each worker is alive: a list of N."""
    listing()(saved, name, value)
    if len(value) != saved.sizes["N"]:
        raise CheckpointMismatch(
            f"the checkpoint has {len(value)} workers and there are {saved.sizes['N']} problems: give the "
            "same problems and algorithm as the first time"
        )
    listing("N", plain(bool))(saved, name, value)


class Roster(Kept):
    """The master's view of its workers.

    A worker is under way (a step was sent), pending (its reply waits for the iteration to close) or lost.
    Lost workers may come back, dropped ones not. Tickets number a worker's steps; a reply with another ticket
    than the last one is not for this step.
    """

    saved: ClassVar[Form] = {
        "alive": _of_workers,
        **dict.fromkeys(("tickets", "sent_in", "visited", "bad"), listing("N", plain(int))),
        **dict.fromkeys(
            ("sent_at", "delays", "mean_interval", "patience", "limits"), listing("N", plain(float))
        ),
        **dict.fromkeys(("dropped", "expected", "under_way"), listing("", worker_index)),
        "pending": listing("", row(worker_index, anything)),
        "asked": listing("", row(worker_index, plain(int))),
        "retries": listing("", row(plain(float), worker_index, plain(int))),
        "active": whole(1),
        "live": whole(),
        "stalest": whole(),
        "look_at": or_none(real()),
    }

    def __init__(self, settings: RosterSettings) -> None:
        N = settings.workers
        self.settings = settings
        self.max_staleness = settings.max_staleness
        deadline = settings.deadline
        self.auto = deadline == "auto"  # then the engine reports who is silent
        self.deadline = None if isinstance(deadline, str) else deadline
        self.active = settings.active_workers
        self.live = N
        self.alive = [True] * N
        self.dropped: set[int] = set()
        self.expected: set[int] = set()  # lost, and the engine reported that they return
        self.pending: dict[int, Any] = {}
        self.under_way: dict[int, None] = {}
        self.tickets = [0] * N
        self.sent_in = [0] * N
        self.sent_at = [0.0] * N
        self.delays = [0.0] * N
        self.visited = [0] * N
        self.mean_interval = [N / self.active] * N
        self.bad = [0] * N
        self.retries: list[tuple[float, int, int]] = []
        self.patience = [1.0] * N
        self.limits = [0.0] * N  # if the deadline is "auto": what it was when each was last found silent
        self.asked: dict[int, int] = {}  # how often the step under way was sent again
        self.stalest = 0
        self.look_at: float | None = None

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values."""
        pending = [[j, to_fields(update)] for j, update in self.pending.items()]
        return super().snapshot() | {
            "pending": pending,
            "dropped": sorted(self.dropped),
            "expected": sorted(self.expected),
            "asked": [[j, times] for j, times in self.asked.items()],
            "under_way": list(self.under_way),
        }

    @classmethod
    def restored(cls, settings: RosterSettings, state: Mapping[str, Any]) -> Roster:
        """The roster of a snapshot."""
        roster = cls(settings)
        roster.take(state)
        roster.dropped = set(state["dropped"])
        roster.expected = set(state["expected"])
        roster.asked = dict(state["asked"])
        roster.pending = {j: from_fields(parts) for j, parts in state["pending"]}
        roster.under_way = dict.fromkeys(state["under_way"])
        if roster.deadline is None:  # a state of a run with a deadline in seconds may have others
            roster.retries = sorted(item for item in roster.retries if roster.auto and roster.limits[item[1]])
        return roster

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check that as many workers are alive as it says."""
        super().check_saved(saved, name, value)
        live, alive = value["live"], sum(value["alive"])
        if live != alive:
            raise saved.error(f"{name}.live", f"is {live}, and {alive} workers are alive")

    # -- one step -------------------------------------------------------------------------------------

    def dispatch(self, j: int, time: float, iteration: int) -> int:
        """Note that a step is sent to j; return its ticket."""
        ticket = self.tickets[j] = self.tickets[j] + 1
        self.asked.pop(j, None)
        self.sent_in[j] = iteration
        self.sent_at[j] = time
        if self.alive[j]:
            self.under_way.pop(j, None)
            self.under_way[j] = None
        return ticket

    def accept(self, j: int, update: Any, time: float) -> None:
        """Keep j's reply until the iteration closes; its delay stops growing."""
        self.under_way.pop(j, None)  # absent in an edited checkpoint: the awaited reply counts all the same
        self.pending[j] = update
        self.delays[j] = time - self.sent_at[j]
        self.patience[j] = 1.0

    def alone(self, j: int, ticket: int, iteration: int) -> bool:
        """Whether this reply of j is the awaited one and completes an iteration by itself."""
        if self.active > 1 or self.pending or ticket != self.tickets[j] or not self.alive[j]:
            return False
        limit = iteration + 1 - self.max_staleness
        for oldest in self.under_way:
            if oldest != j:
                return self.sent_in[oldest] > limit
        return True

    def turn(self, j: int, time: float, iteration: int) -> int:
        """`accept`, `close` and `dispatch` if j is `alone`; iteration is the one that it completes."""
        under_way = self.under_way
        del under_way[j]
        under_way[j] = None
        self.delays[j] = time - self.sent_at[j]
        self.patience[j] = 1.0
        self._visit(j, iteration)
        if self.asked:
            self.asked.pop(j, None)
        ticket = self.tickets[j] = self.tickets[j] + 1
        self.sent_in[j] = iteration
        self.sent_at[j] = time
        return ticket

    def _visit(self, j: int, now: int) -> None:
        """Note that j is active in iteration `now`."""
        self.stalest = max(self.stalest, now - self.sent_in[j])
        mean = self.mean_interval
        mean[j] += MEMORY * (now - self.visited[j] - mean[j])
        self.visited[j] = now

    def staleness(self, j: int, iteration: int) -> int:
        """How many iterations j's step will be old when the next iteration closes."""
        return iteration + 1 - self.sent_in[j]

    def ready(self, iteration: int) -> bool:
        """Whether S replies are in and no step under way would become staler than τ."""
        if len(self.pending) < max(1, min(self.active, self.live)):
            return False
        for oldest in self.under_way:
            return self.staleness(oldest, iteration) < self.max_staleness
        return True

    def close(self, iteration: int) -> list[tuple[int, Any]]:
        """Close the iteration: its active workers and their replies.

        They are in the workers' order, so that sums round alike in whatever order the replies came.
        """
        active = sorted(self.pending.items())
        self.pending.clear()
        for j, _ in active:
            self._visit(j, iteration + 1)
        return active

    def intervals(self, iteration: int) -> NDArray[np.float64]:
        """Iterations between visits: the running mean, or the wait so far if that is longer."""
        waiting = iteration - np.asarray(self.visited, dtype=np.float64)
        intervals: NDArray[np.float64] = np.maximum(np.asarray(self.mean_interval), waiting)
        return intervals

    # -- lost workers ---------------------------------------------------------------------------------

    def kept(self) -> list[int]:
        """The workers that are not dropped, lost ones included."""
        return [j for j in range(self.settings.workers) if j not in self.dropped]

    def lose(self, j: int, for_good: bool) -> None:
        """Note that j is lost, dropped if `for_good`: a reply of its that still comes belongs to no step."""
        self.alive[j] = False
        self.live -= 1
        self.tickets[j] += 1
        self.under_way.pop(j, None)
        self.pending.pop(j, None)
        if for_good:
            self.dropped.add(j)

    def expect(self, j: int, returns: bool) -> None:
        """Note whether the engine will bring lost j back."""
        if returns and j not in self.dropped:
            self.expected.add(j)
        else:
            self.expected.discard(j)

    @property
    def empty(self) -> bool:
        """Whether no worker is alive and none is expected back."""
        return not (self.live or self.expected)

    def rejoin(self, j: int) -> None:
        """Note that j is alive again, with its last step under way."""
        self.expected.discard(j)
        self.alive[j] = True
        self.live += 1
        self.under_way[j] = None

    def count_bad(self, j: int) -> bool:
        """Count a reply of j that is out of range; whether j may send another."""
        self.bad[j] += 1
        return self.bad[j] < self.settings.max_bad_updates

    # -- time -----------------------------------------------------------------------------------------

    def silent(self, j: int, deadline: float) -> bool:
        """Note that the engine finds j silent; whether that is new and the deadline is "auto"."""
        if not self.auto or j not in self.under_way or j in self.asked:
            return False
        self.limits[j] = deadline
        return True

    def overdue(self, time: float) -> list[int]:
        """Workers silent past the deadline, and lost ones to be asked once more."""
        found: list[int] = []
        if self.deadline is not None:
            for j in self.under_way:
                if self.sent_at[j] + self.deadline > time:
                    break
                if j not in self.asked:
                    found.append(j)
        while self.retries and self.retries[0][0] <= time:
            _, j, ticket = heapq.heappop(self.retries)
            awaited = j in self.under_way if self.alive[j] else j not in self.dropped
            if awaited and ticket == self.tickets[j]:
                found.append(j)
        return found

    def ask_again(self, j: int, time: float) -> bool:
        """Whether silent j gets the same step once more, before it counts as lost."""
        times = self.asked.get(j, 0)
        if not self.alive[j] or times >= self.settings.resends:
            return False
        self.asked[j] = times + 1
        heapq.heappush(self.retries, (time + self._limit(j), j, self.tickets[j]))
        return True

    def retry(self, j: int, time: float) -> None:
        """Plan to ask lost j again if it stays silent, each time after twice as long."""
        self.patience[j] *= 2.0
        heapq.heappush(self.retries, (time + self.patience[j] * self._limit(j), j, self.tickets[j]))

    def _limit(self, j: int) -> float:
        """The deadline in seconds for j, which was silent past it."""
        return self.limits[j] if self.deadline is None else self.deadline

    def wake_at(self) -> float | None:
        """The next time at which a worker is overdue or the delays are to be looked at."""
        times = [self.retries[0][0]] if self.retries else []
        if self.deadline is not None:
            for oldest in self.under_way:
                if oldest not in self.asked:
                    times.append(self.sent_at[oldest] + self.deadline)
                    break
        if self.look_at is not None:
            times.append(self.look_at)
        return min(times) if times else None

    def current_delays(self, time: float) -> NDArray[np.float64]:
        """T_j of the live workers: the last delay, or the wait so far if that is longer."""
        delays = np.array(self.delays)
        if self.under_way:
            waiting = np.fromiter(self.under_way, dtype=np.intp)
            delays[waiting] = np.maximum(delays[waiting], time - np.asarray(self.sent_at)[waiting])
        live: NDArray[np.float64] = delays[np.asarray(self.alive)]
        return live

    def adapt(self, time: float, iteration: int, tick: bool) -> bool:
        """Let ADP's rule look at the delays; whether S changed.

        O(N), so it is done on ticks, after iterations that waited for all, and else once in ⌈N/s⌉ iterations.
        """
        adaptive = self.settings.adaptive
        assert adaptive is not None
        few = adaptive.few
        if not tick and self.active <= few and iteration % -(-self.settings.workers // few):
            return False
        before, delays = self.active, self.current_delays(time)
        self.active = adaptive.switch(delays, self.active)
        self.look_at = None
        limit = adaptive.limit(delays)
        if self.active > few and self.under_way and limit > 0:
            # With S = N no event comes while the master waits. The limit grows with the wait, so look again
            # a little later each time.
            oldest = next(iter(self.under_way))
            self.look_at = max(self.sent_at[oldest] + limit, time) + 0.01 * limit
        return self.active != before


# -- what stands in place of the losses and weights of lost workers ---------------------------------


def fill_losses(losses: Array, reported: Array, visited: Sequence[int]) -> Array:
    """The losses that the oracle is asked about: those measured, else the last ones reported.

    A worker that never reported any (`visited` is -1) counts with the mean of the others.

    >>> fill_losses(np.array([1.0, np.nan, np.nan]), np.array([9.0, 3.0, 9.0]), [4, 2, -1])
    array([1., 3., 2.])
    """
    known = np.where(np.isfinite(losses), losses, reported)
    guessed = ~np.isfinite(losses) & (np.asarray(visited) == NEVER)
    if guessed.any():
        known[guessed] = known[~guessed].mean()
    return known


def redistribute(p: Array, kept: Sequence[bool]) -> Array:
    """Give the weight of workers that are not kept to the others, in proportion; p if that leaves nothing.

    >>> redistribute(np.array([0.5, 0.25, 0.25]), [False, True, True])
    array([0. , 0.5, 0.5])
    """
    rest = np.where(kept, p, 0.0)
    total = float(rest.sum())
    return rest / total if total > 0 else p


def guess(losses: Array, never: Sequence[int]) -> None:
    """Give those that never reported a loss the mean loss of the others, in place."""
    if never:
        losses[list(never)] = np.delete(losses, never).mean()
