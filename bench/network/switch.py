"""The switch that joins the hosts of a test bed: frames arrive late, get lost, and stop at a partition.

The kernel's own tool for this (`tc netem`) is a module that many kernels lack. This needs TAP devices alone.
`Switch` decides and does no I/O; `serve` moves frames, in a process of its own: `python switch.py FD …`.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from time import monotonic

LONGEST = 65536  # bytes of a frame
BURST = 64  # frames that are read from one port before the others get their turn
GROUP = 1  # the bit of a MAC address that means many receivers


class Switch:
    """Learns who is behind which port; a frame to somebody unknown goes to all other ports.

    Each copy of a frame is lost with probability `loss`, and is delivered `delay` seconds after it was taken,
    unless one of its two ports is in `cut` and the other is not. Frames with the same delay keep their order.

    Args:
        ports: how many.
        seed: of the losses.

    >>> switch = Switch(2, seed=0)
    >>> switch.delay = 0.05
    >>> frame = bytes(6) + bytes([2, 0, 0, 0, 0, 1]) + b"content"
    >>> switch.take(0, frame, now=1.0)
    >>> switch.due(now=1.04), switch.due(now=1.06) == [(1, frame)]
    ([], True)
    """

    def __init__(self, ports: int, seed: int) -> None:
        self.ports = ports
        self.delay = 0.0
        self.loss = 0.0
        self.cut: Collection[int] = frozenset()
        self.counts = {"carried": 0, "lost": 0, "cut": 0}
        self._random = random.Random(seed)
        self._port_of: dict[bytes, int] = {}
        self._queue: list[tuple[float, int, int, int, bytes]] = []  # when, order, from, to, frame
        self._order = 0

    def take(self, port: int, frame: bytes, now: float) -> None:
        """Take a frame from a port: 6 bytes of the receiver's address, 6 of the sender's, the rest."""
        receiver, sender = frame[:6], frame[6:12]
        if not sender[0] & GROUP:
            self._port_of[sender] = port
        known = None if receiver[0] & GROUP else self._port_of.get(receiver)
        for target in range(self.ports) if known is None else (known,):
            if target == port:
                continue
            if self.loss and self._random.random() < self.loss:
                self.counts["lost"] += 1
                continue
            self._order += 1
            heappush(self._queue, (now + self.delay, self._order, port, target, frame))

    def due(self, now: float) -> list[tuple[int, bytes]]:
        """Return the frames to deliver now, each with its port; those on their way into a cut are dropped."""
        found = []
        while self._queue and self._queue[0][0] <= now:
            _, _, port, target, frame = heappop(self._queue)
            if (port in self.cut) != (target in self.cut):
                self.counts["cut"] += 1
                continue
            self.counts["carried"] += 1
            found.append((target, frame))
        return found

    def wait(self, now: float) -> float | None:
        """Return the seconds until the next frame is due, None if there is none."""
        return max(0.0, self._queue[0][0] - now) if self._queue else None

    def change(self, *, delay: float, loss: float, cut: Collection[int]) -> dict[str, int]:
        """Change all settings; return the counts since the last change."""
        before, self.counts = self.counts, dict.fromkeys(self.counts, 0)
        self.delay, self.loss, self.cut = delay, loss, frozenset(cut)
        return before


def serve(ports: Sequence[int], switch: Switch, commands: int, answers: int) -> None:
    """Move frames between file descriptors until `commands` is at its end.

    A command is a line of JSON with the arguments of `Switch.change`; its answer is a line with the counts.
    """
    port_of = {fd: port for port, fd in enumerate(ports)}
    for fd in ports:
        os.set_blocking(fd, False)
    unread = b""
    while True:
        ready = select.select([commands, *ports], [], [], switch.wait(monotonic()))[0]
        for fd in ready:
            if fd != commands:
                _read(fd, port_of[fd], switch)
                continue
            got = os.read(commands, 4096)
            if not got:
                return
            *lines, unread = (unread + got).split(b"\n")
            for line in lines:
                os.write(answers, json.dumps(switch.change(**json.loads(line))).encode() + b"\n")
        for port, frame in switch.due(monotonic()):
            try:
                os.write(ports[port], frame)
            except OSError:  # the receiver's queue is full, or its host is gone: a cable loses it, too
                switch.counts["lost"] += 1


def _read(fd: int, port: int, switch: Switch) -> None:
    for _ in range(BURST):
        try:
            frame = os.read(fd, LONGEST)
        except OSError:  # nothing more, or the host is gone
            return
        if len(frame) > 12:
            switch.take(port, frame, monotonic())


if __name__ == "__main__":
    serve([int(each) for each in sys.argv[2:]], Switch(len(sys.argv) - 2, int(sys.argv[1])), 0, 1)
