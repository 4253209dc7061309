"""Notices that a cluster of Ray is gone, before Ray ends this process without a word.

If the raylet of this machine dies, Ray ends the process at the next object that it stores; if the head does
not answer for a minute, then. Neither is an exception, so a run would end without saying what is lost.
"""

from __future__ import annotations

import socket
import threading
from time import monotonic

EVERY = 1.0  # seconds between two looks
PATIENCE = 30.0  # seconds without the head: it may be a partition, and Ray gives up after 60


class HeadWatch:
    """Looks, on a thread of its own, whether the raylet of this machine and the cluster's head are there.

    Args:
        address: of the head, "host:port".
        raylet: path of the socket of this machine's raylet; "" where it has none.
        patience: seconds for which the head may be away.
        every: seconds between two looks.

    Attributes:
        gone: why the cluster is lost, "" while it is not.
    """

    def __init__(
        self, address: str, raylet: str, *, patience: float = PATIENCE, every: float = EVERY
    ) -> None:
        host, _, port = address.rpartition(":")
        self._address, self._place = address, (host.strip("[]"), int(port))
        self._raylet, self._patience, self._every = raylet, patience, every
        self._answered = self._looked = monotonic()
        self.gone = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fdro-head", daemon=True)
        self._thread.start()

    def look_here(self) -> str:
        """Look at the raylet of this machine, unless that was done a moment ago; return `gone`."""
        now = monotonic()
        if self._raylet and not self.gone and now - self._looked >= self._every / 10:
            self._looked = now
            try:
                with socket.socket(socket.AF_UNIX) as raylet:
                    raylet.settimeout(self._every)
                    raylet.connect(self._raylet)
            except (ConnectionRefusedError, FileNotFoundError) as error:
                self.gone = f"the raylet of this machine has ended ({error.strerror})"
            except OSError:  # it is there and busy
                pass
        return self.gone

    def _watch(self) -> None:
        while not self._over.wait(self._every) and not self.look_here():
            try:
                socket.create_connection(self._place, timeout=self._every).close()
                self._answered = monotonic()
            except OSError as error:
                away = monotonic() - self._answered
                if away >= self._patience:
                    self.gone = f"nothing has answered at {self._address} for {away:.0f} s ({error})"

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
