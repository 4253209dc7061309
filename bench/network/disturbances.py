"""What is done to a run in the test bed: each disturbance is a few numbers, and `Disturber` applies them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from bench.network.bed import Bed

HOUR = 3600.0
FAKETIME = "libfaketime.so.1"
PLACES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
BEGIN = 4  # iterations after which a partition begins or the head dies


@dataclass(frozen=True)
class Disturbance:
    """One of them.

    Attributes:
        name: on the command line.
        words: in the table.
        delay: seconds by which each frame is late, each way.
        loss: the share of frames that are lost.
        cut: seconds for which one worker's host is cut off, in the middle of the run.
        monotonic: seconds by which that host's monotonic clock is ahead.
        wall: seconds by which that host's wall clock is ahead.
        dead_head: whether the head is killed in the middle of the run.
    """

    name: str
    words: str
    delay: float = 0.0
    loss: float = 0.0
    cut: float = 0.0
    monotonic: float = 0.0
    wall: float = 0.0
    dead_head: bool = False

    def not_here(self, bed: Bed) -> str:
        """Return why this cannot be done in a bed, "" if it can."""
        if not bed.isolated and (self.delay or self.loss or self.cut or self.monotonic):
            return f"not applied, for there are no namespaces here: {bed.why_not}"
        if self.wall and not faketime():
            return "not applied: libfaketime is not installed (Debian: apt-get install faketime)"
        return ""


UNDISTURBED = Disturbance("none", "undisturbed")
ALL = (
    Disturbance("delay", "50 ms delay each way", delay=0.05),
    Disturbance("loss", "5 % of frames lost", loss=0.05),
    Disturbance("partition", "one host cut off for 20 s", cut=20.0),
    Disturbance("together", "delay, loss and partition together", delay=0.05, loss=0.05, cut=20.0),
    Disturbance("dead-head", "the head killed, then resumed", dead_head=True),
    Disturbance("monotonic", "one host's monotonic clock an hour ahead", monotonic=HOUR),
    Disturbance("wall", "one host's wall clock an hour ahead", wall=HOUR),
)


def faketime() -> Path | None:
    """Return the library that changes a program's wall clock, None if it is not installed."""
    return next((path for place in PLACES for path in _find(Path(place))), None)


def _find(place: Path) -> Iterable[Path]:
    return [*place.glob(f"faketime/{FAKETIME}"), *place.glob(f"*/faketime/{FAKETIME}")]


def variables(disturbance: Disturbance) -> dict[str, str]:
    """Return what is set for the processes of the host whose wall clock is ahead."""
    library = faketime()
    if not disturbance.wall or library is None:
        return {}
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"+{disturbance.wall:.0f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
    }


class Disturber:
    """Applies what the switch does: delay and loss from the start, the partition from an iteration on.

    Args:
        bed: with the switch.
        disturbance: what to apply.
        victim: the host to cut off.
    """

    def __init__(self, bed: Bed, disturbance: Disturbance, victim: str) -> None:
        self._bed, self._what, self._victim = bed, disturbance, victim
        self._cut_at: float | None = None
        self.healed = not disturbance.cut
        self.counts = {"carried": 0, "lost": 0, "cut": 0}
        self._change()

    def _change(self, *cut: str) -> None:
        if self._bed.isolated:
            counts = self._bed.change(delay=self._what.delay, loss=self._what.loss, cut=cut)
            self.counts = {name: self.counts[name] + counts[name] for name in counts}

    def look(self, iteration: int) -> None:
        """Begin or end the partition, if it is time."""
        if self.healed:
            return
        if self._cut_at is None:
            if iteration >= BEGIN:
                self._cut_at = monotonic()
                self._change(self._victim)
        elif monotonic() - self._cut_at >= self._what.cut:
            self.healed = True
            self._change()

    def end(self) -> None:
        """Take the last counts."""
        self._change()
