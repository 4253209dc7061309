"""The test bed: hosts, and the switch between them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.network.hosts import NETWORK, Host, LoopbackHost, NamespaceHost, NotPermitted, refusal

SWITCH = Path(__file__).with_name("switch.py")


class Bed:
    """Hosts and the switch between them; see `bed`.

    Attributes:
        folder: for files of a run; all hosts see it.
        hosts: by name.
        why_not: why they are addresses of the loopback interface, without a switch; "" if they are not.
    """

    def __init__(self, folder: Path, hosts: Mapping[str, Host], why_not: str, seed: int) -> None:
        self.folder, self.hosts, self.why_not = folder, dict(hosts), why_not
        self._switch: subprocess.Popen[bytes] | None = None
        if self.isolated:
            cards = [host.card for host in hosts.values()]
            self._switch = subprocess.Popen(
                [sys.executable, str(SWITCH), str(seed), *map(str, cards)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, pass_fds=cards, start_new_session=True,
            )  # fmt: skip

    @property
    def isolated(self) -> bool:
        """Whether hosts have a network of their own."""
        return not self.why_not

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
    why_not = "asked for" if loopback else refusal()
    with tempfile.TemporaryDirectory(prefix="bed-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        hosts: dict[str, Host] = {}
        made = None
        try:
            for place, host in enumerate(names, start=1):
                if why_not:
                    hosts[host] = LoopbackHost(host, f"127.0.0.{place}", folder)
                else:
                    hosts[host] = NamespaceHost(
                        host, f"{NETWORK}.{place}", folder, (ahead or {}).get(host, 0.0)
                    )
            made = Bed(folder, hosts, why_not, seed)
            yield made
        finally:
            if made is not None:
                made.close()
            else:
                for each in hosts.values():
                    each.kill()
