"""A host of the test bed: where processes are started; and its stand-in on the loopback interface."""

from __future__ import annotations

import os
import signal
import subprocess
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
