"""A host of the test bed, where processes are started: in Linux namespaces, or its stand-in on loopback.

In namespaces it has its own network, processes, temporary folder and, if asked, clock. They live as long as
their first process, and that one ends when the test bed closes its socket or dies. So nothing has a name on
the machine, and nothing is left behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

END = 5.0  # seconds that a killed process may take to end


class Host(ABC):
    """A host of the bed.

    Attributes:
        name: for logs.
        address: in the bed's network.
        own: its folder, in which `shared` leads as seen from the host.
        card: the descriptor for the frames of its network card, -1 if it has none.
    """

    card = -1

    def __init__(self, name: str, address: str, own: Path, shared: Path, logs: Path) -> None:
        self.name, self.address = name, address
        self.own, self.shared, self._logs = own, shared, logs
        for folder in (own, shared, logs):
            folder.mkdir(exist_ok=True)
        self._processes: list[subprocess.Popen[bytes]] = []

    @abstractmethod
    def command(self, arguments: Sequence[str], folder: Path | None = None) -> list[str]:
        """Return the command that runs another one in this host, in a folder: else the present one."""

    @abstractmethod
    def kill(self) -> None:
        """End the host with all its processes at once, like a power cut."""

    def start(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a process; `log` returns what it prints."""
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                self.command(arguments), env=dict(environment), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def log(self, name: str) -> str:
        """Return what processes of that name have printed."""
        return self._log(name).read_text(encoding="utf-8", errors="replace")

    def _log(self, name: str) -> Path:
        return self._logs / f"{self.name}-{name}.log"

    def _wait_for_processes(self) -> None:
        for process in self._processes:
            try:
                process.wait(END)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()


class LoopbackHost(Host):
    """A stand-in where namespaces are not permitted: an address of the loopback interface, nothing else."""

    def __init__(self, name: str, address: str, bed: Path) -> None:
        super().__init__(name, address, bed / name, bed / name, bed / "logs")

    def command(self, arguments: Sequence[str], folder: Path | None = None) -> list[str]:
        """Return the command itself; its folder is that of the process."""
        return list(arguments)

    def kill(self) -> None:
        """End the processes that were started here, and theirs."""
        for process in self._processes:
            end_family(process)
        self._wait_for_processes()


def family_of(process: subprocess.Popen[Any]) -> list[Any]:
    """Return a process and all that it has started, as `psutil` sees them; the youngest first."""
    import psutil

    try:
        parent = psutil.Process(process.pid)
        return [*reversed(parent.children(recursive=True)), parent]
    except psutil.NoSuchProcess:
        return []


def end_all(family: Iterable[Any], only: str = "") -> None:
    """Kill processes; or of these only the commands with a word in them."""
    import psutil

    for each in family:
        with suppress(psutil.NoSuchProcess):
            if only in " ".join(each.cmdline()):
                each.kill()


def end_family(process: subprocess.Popen[Any]) -> None:
    """Kill a process with all that it has started."""
    end_all(family_of(process))
    process.wait()


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
