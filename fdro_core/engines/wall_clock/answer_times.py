"""How long workers take to answer, and from that how long a worker may be silent before it may hang.

Nothing here reads a clock: the engine passes in how long each answer took.
"""

from __future__ import annotations

TIMES = 10.0  # a silence of that many times the slowest recent answer is a sign of a worker that hangs
FADING = 0.99  # of a slow answer, per further answer: an outage must not raise the deadline for ever
HASTY_SECONDS, HASTY_TIMES = 2.0, 3.0  # seconds, plus slowest answers, for a round that should be short


class AnswerTimes:
    """The answer times of all workers so far.

    Attributes:
        opening: how long each worker's last answer before the first step took. It includes making the problem
            or measuring its curvature, so it is used only until a step is answered.
        longest: the slowest answer of each worker since then, fading with every further one; 0 before the
            first.

    >>> times = AnswerTimes(2)
    >>> times.deadline(floor=60.0, patience=300.0)
    (300.0, '`patience`, since no answer has been seen yet')
    >>> times.answered(0, 2.0)
    >>> times.deadline(floor=60.0, patience=300.0)
    (60.0, '`deadline_floor`, since the slowest recent answer took 2 s')
    >>> times.answered(1, 9.0)
    >>> times.deadline(floor=60.0, patience=300.0)
    (90.0, '10 times the slowest recent answer, 9 s')
    """

    def __init__(self, workers: int) -> None:
        self.opening = [0.0] * workers
        self.longest = [0.0] * workers

    def opened(self, worker: int, seconds: float) -> None:
        """Record an answer before the first step."""
        self.opening[worker] = seconds

    def answered(self, worker: int, seconds: float) -> None:
        """Record a later answer."""
        faded = FADING * self.longest[worker]
        self.longest[worker] = seconds if seconds > faded else faded

    def forget(self, worker: int) -> None:
        """Drop a worker that does not return: its times say nothing about the others."""
        self.opening[worker] = self.longest[worker] = 0.0

    @property
    def slowest(self) -> float:
        """The slowest recent answer; 0 if there was none."""
        return max(late or early for late, early in zip(self.longest, self.opening, strict=True))

    def deadline(self, floor: float, patience: float) -> tuple[float, str]:
        """Return how many seconds a worker may be silent with a step, and the reason for that number."""
        slowest = self.slowest
        if slowest == 0.0:
            return max(floor, patience), "`patience`, since no answer has been seen yet"
        if TIMES * slowest <= floor:
            return floor, f"`deadline_floor`, since the slowest recent answer took {slowest:.3g} s"
        return TIMES * slowest, f"{TIMES:g} times the slowest recent answer, {slowest:.3g} s"

    def round_limit(self, patience: float, *, hasty: bool) -> float:
        """Return how many seconds a round of questions waits without any further answer."""
        if hasty:
            return HASTY_SECONDS + HASTY_TIMES * self.slowest
        return max(patience, TIMES * max(self.longest))
