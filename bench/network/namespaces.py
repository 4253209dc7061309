"""Hosts in Linux namespaces: each with its own network, processes, temporary folder and, if asked, clock.

Namespaces live as long as their first process, and that one ends when the test bed closes its socket or dies.
So nothing has a name on the machine, and nothing is left behind.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bench.network.hosts import Host

FIRST_PROCESS = Path(__file__).with_name("first_process.py")
NETWORK = "10.77.0"
START = 20.0  # seconds that a host may take to come up
NEEDED = ("unshare", "nsenter", "ip", "mount")


class NotPermitted(OSError):
    """The system does not let this process make namespaces or network cards."""


class NamespaceHost(Host):
    """A host of its own.

    Args:
        name: for logs.
        address: in the bed's network.
        bed: the bed's folder.
        ahead: seconds by which the monotonic clock is ahead.
    """

    def __init__(self, name: str, address: str, bed: Path, ahead: float = 0.0) -> None:
        super().__init__(name, address, bed / name, bed / "here", bed / "logs")
        clock = ["--time", f"--monotonic={ahead:.0f}", f"--boottime={ahead:.0f}"] if ahead else []
        spaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *clock]
        first = [sys.executable, str(FIRST_PROCESS), f"{address}/24", str(self.own), str(self.shared)]
        self._socket, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                ["unshare", *spaces, *first], stdin=its.fileno(), stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        try:
            self._socket.settimeout(START)
            _, cards, _, _ = socket.recv_fds(self._socket, 16, 1)
            if not cards:
                raise NotPermitted(self._complaint())
            self.card = cards[0]
            self._first = _child_of(self._process.pid)
        except BaseException:
            self.kill()
            raise

    def _complaint(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read().decode(errors="replace").strip() or "a host did not start"

    def command(self, arguments: Sequence[str], folder: Path | None = None) -> list[str]:
        """Return the command that runs another one in this host, in a folder: else the present one."""
        place = folder or Path.cwd()
        return ["nsenter", "--all", f"--target={self._first}", f"--wdns={place}", "--", *arguments]

    def kill(self) -> None:
        """End the host with all its processes at once, like a power cut."""
        self._socket.close()
        if self.card >= 0:
            os.close(self.card)
            self.card = -1
        with suppress(ProcessLookupError):
            self._process.kill()  # its child, the first process, goes with it
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._wait_for_processes()


def refusal() -> str:
    """Return why hosts cannot be made here, "" if they can."""
    if sys.platform != "linux":
        return "namespaces need Linux"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"the programs {', '.join(missing)} are missing (iproute2, util-linux)"
    with tempfile.TemporaryDirectory(prefix="bed-") as folder:
        try:
            NamespaceHost("trial", f"{NETWORK}.1", Path(folder)).kill()
        except OSError as error:
            return f"namespaces and TAP devices are not permitted: {str(error).splitlines()[-1]}"
    return ""


def _child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(children[0])
