"""How long workers take to answer, and from that how long one may be silent before it may hang.

It reads no clock: the engine says how long each answer took.
"""

from __future__ import annotations

TIMES = 10.0  # the slowest answer of late: what a silence must last to mean something
FORGET = 0.99  # what remains of a slow answer after each further one: an outage must not stretch the rest
HASTE, HASTE_TIMES = 2.0, 3.0  # seconds, and slowest answers, for a round that should not be waited for


class Watch:
    """The answers of all workers so far.

    Attributes:
        opening: how long each worker's last answer before the first step took; it says little once steps are
            answered, since it makes the problem or measures its curvature.
        longest: the slowest of its answers since, forgotten by and by; 0 before the first.

    >>> watch = Watch(2)
    >>> watch.deadline(floor=60.0, patience=300.0)
    (300.0, '`patience`, since no answer has been seen yet')
    >>> watch.answered(0, 2.0)
    >>> watch.deadline(floor=60.0, patience=300.0)
    (60.0, '`deadline_floor`, since the slowest answer of late took 2 s')
    >>> watch.answered(1, 9.0)
    >>> watch.deadline(floor=60.0, patience=300.0)
    (90.0, '10 times the slowest answer of late, 9 s')
    """

    def __init__(self, workers: int) -> None:
        self.opening = [0.0] * workers
        self.longest = [0.0] * workers

    def opened(self, worker: int, seconds: float) -> None:
        """An answer before the first step."""
        self.opening[worker] = seconds

    def answered(self, worker: int, seconds: float) -> None:
        """An answer to anything later."""
        faded = FORGET * self.longest[worker]
        self.longest[worker] = seconds if seconds > faded else faded

    def given_up(self, worker: int) -> None:
        """The worker does not return: its pace says nothing of the others'."""
        self.opening[worker] = self.longest[worker] = 0.0

    @property
    def slowest(self) -> float:
        """The slowest answer of late; 0 where there was none."""
        return max(late or early for late, early in zip(self.longest, self.opening, strict=True))

    def deadline(self, floor: float, patience: float) -> tuple[float, str]:
        """How many seconds a worker may be silent with a step, and why so many."""
        slowest = self.slowest
        if slowest == 0.0:
            return max(floor, patience), "`patience`, since no answer has been seen yet"
        if TIMES * slowest <= floor:
            return floor, f"`deadline_floor`, since the slowest answer of late took {slowest:.3g} s"
        return TIMES * slowest, f"{TIMES:g} times the slowest answer of late, {slowest:.3g} s"

    def round_limit(self, patience: float, *, haste: bool) -> float:
        """How many seconds a round of questions waits without any further answer."""
        return HASTE + HASTE_TIMES * self.slowest if haste else max(patience, TIMES * max(self.longest))
