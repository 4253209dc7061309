"""Hosts on one machine: each with its own network, processes, temporary folder and, if asked, clock.

A host is a set of Linux namespaces that live as long as their first process, and that one ends when the test
bed closes its socket or dies. So nothing has a name on the machine, and nothing is left behind.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NETWORK = "10.77.0"
START = 20.0  # seconds that a host may take to come up
NEEDED = ("unshare", "nsenter", "ip", "mount")


class Host:
    """A host of the bed.

    Attributes:
        name: for logs.
        address: in the bed's network.
        own: its folder; at `shared` in the bed every host sees its own.
        logs: what its processes print.
    """

    isolated = True

    def __init__(self, name: str, address: str, bed: Path, ahead: float = 0.0) -> None:
        self.name, self.address = name, address
        self.own, self.shared, self.logs = bed / name, bed / "here", bed / "logs"
        for folder in (self.own, self.shared, self.logs):
            folder.mkdir(exist_ok=True)
        self.processes: list[subprocess.Popen[Any]] = []
        self.card = -1
        ours, its = socket.socketpair()
        self._socket = ours
        clock = ["--time", f"--monotonic={ahead:.0f}", f"--boottime={ahead:.0f}"] if ahead else []
        try:
            self._process = subprocess.Popen(
                ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *clock,
                 sys.executable, str(HERE / "first_process.py"), f"{address}/24", str(self.own), str(self.shared)],
                stdin=its, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        finally:
            its.close()
        ours.settimeout(START)
        try:
            got, cards, _, _ = socket.recv_fds(ours, 16, 1)
            if not got or not cards:
                raise NotPermitted(self._complaint())
            self.card = cards[0]
        except BaseException:
            self.kill()
            raise
        self._first = _child_of(self._process.pid)

    def _complaint(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read().decode(errors="replace").strip() or "a host did not start"

    def command(self, arguments: Sequence[str], folder: Path | None = None) -> list[str]:
        """Return the command that runs another one in this host, in a folder: else the present one."""
        place = folder or Path.cwd()
        return ["nsenter", "--all", f"--target={self._first}", f"--wdns={place}", "--", *arguments]

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Any:
        """Start a process; what it prints goes to `logs`."""
        return _start(self, name, arguments, environment)

    def log(self, name: str) -> str:
        """Return what a process of that name has printed."""
        return (self.logs / f"{self.name}-{name}.log").read_text(encoding="utf-8", errors="replace")

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
        _wait_for(self.processes)


class LoopbackHost:
    """A stand-in where namespaces are not permitted: an address of the loopback interface, nothing else."""

    isolated = False
    card = -1

    def __init__(self, name: str, address: str, bed: Path) -> None:
        self.name, self.address = name, address
        self.own = self.shared = bed / name
        self.logs = bed / "logs"
        for folder in (self.own, self.logs):
            folder.mkdir(exist_ok=True)
        self.processes: list[subprocess.Popen[Any]] = []

    def command(self, arguments: Sequence[str], folder: Path | None = None) -> list[str]:
        """Return the command itself; its folder is that of the process."""
        return list(arguments)

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Any:
        """Start a process; what it prints goes to `logs`."""
        return _start(self, name, arguments, environment)

    log = Host.log

    def kill(self) -> None:
        """End the processes that were started here, and theirs."""
        import psutil

        found = []
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                found += [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        for each in found:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        _wait_for(self.processes)


AnyHost = Host | LoopbackHost


class NotPermitted(OSError):
    """The system does not let this process make namespaces or network cards."""


class Bed:
    """Hosts and the switch between them; see `bed`.

    Attributes:
        hosts: by name.
        isolated: whether they are namespaces; else addresses of the loopback interface, without a switch.
        why_not: why they are not isolated.
    """

    def __init__(self, folder: Path, hosts: Mapping[str, AnyHost], why_not: str, seed: int) -> None:
        self.folder, self.hosts, self.why_not = folder, dict(hosts), why_not
        self.isolated = not why_not
        self._switch: subprocess.Popen[bytes] | None = None
        if self.isolated:
            cards = [str(host.card) for host in hosts.values()]
            self._switch = subprocess.Popen(
                [sys.executable, str(HERE / "switch.py"), str(seed), *cards],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[int(card) for card in cards],
                start_new_session=True,
            )  # fmt: skip

    def change(self, *, delay: float = 0.0, loss: float = 0.0, cut: Sequence[str] = ()) -> dict[str, int]:
        """Change what the switch does to frames; return what it did since the last change.

        Args:
            delay: in seconds, each way.
            loss: the share of frames that are lost.
            cut: hosts that the others cannot reach, nor they them.
        """
        if self._switch is None or self._switch.stdin is None or self._switch.stdout is None:
            raise NotPermitted(f"no switch here: {self.why_not}")
        ports = [list(self.hosts).index(name) for name in cut]
        self._switch.stdin.write(json.dumps({"delay": delay, "loss": loss, "cut": ports}).encode() + b"\n")
        self._switch.stdin.flush()
        counts: dict[str, int] = json.loads(self._switch.stdout.readline())
        return counts

    def close(self) -> None:
        """End the switch and all hosts."""
        if self._switch is not None and self._switch.stdin is not None and self._switch.stdout is not None:
            self._switch.stdin.close()
            self._switch.wait()
            self._switch.stdout.close()
        for host in self.hosts.values():
            host.kill()


@contextmanager
def bed(
    names: Sequence[str], *, seed: int = 0, ahead: Mapping[str, float] | None = None, loopback: bool = False
) -> Iterator[Bed]:
    """Make hosts joined by a switch, where that is permitted; addresses of the loopback interface otherwise.

    Args:
        names: of the hosts.
        seed: of lost frames.
        ahead: by how many seconds the monotonic clock of a host is ahead.
        loopback: make no namespaces even where they are permitted.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bed-", ignore_cleanup_errors=True)))
        hosts: dict[str, AnyHost] = {}
        why_not = "asked for" if loopback else refusal()
        try:
            for place, name in enumerate(names, start=1):
                if why_not:
                    hosts[name] = LoopbackHost(name, f"127.0.0.{place}", folder)
                else:
                    hosts[name] = Host(name, f"{NETWORK}.{place}", folder, (ahead or {}).get(name, 0.0))
            made = Bed(folder, hosts, why_not, seed)
        except BaseException:
            for host in hosts.values():
                host.kill()
            raise
        stack.callback(made.close)
        yield made


def refusal() -> str:
    """Return why namespaces cannot be made here, "" if they can."""
    if sys.platform != "linux":
        return "namespaces need Linux"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"the programs {', '.join(missing)} are missing (iproute2, util-linux)"
    with tempfile.TemporaryDirectory(prefix="bed-") as folder:
        try:
            Host("trial", f"{NETWORK}.1", Path(folder)).kill()
        except OSError as error:
            return f"namespaces and TAP devices are not permitted: {str(error).splitlines()[-1]}"
    return ""


def _child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(children[0])


def _start(
    host: AnyHost, name: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    with (host.logs / f"{host.name}-{name}.log").open("ab") as log:
        process = subprocess.Popen(
            host.command(arguments), env=dict(environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    host.processes.append(process)
    return process


def _wait_for(processes: list[subprocess.Popen[Any]]) -> None:
    for process in processes:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    processes.clear()
