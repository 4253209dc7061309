"""Ray in the test bed: a head with the master, and nodes, by the commands of docs/cluster.md.

One option is added, `--block`: the processes then belong to the command and end with it.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from bench.network.bed import Bed
from bench.network.flower_deployment import plain_text
from bench.network.hosts import Host, end_family

PORTS = "--node-manager-port=6380 --object-manager-port=6381 --min-worker-port=10002 --max-worker-port=10199"
START = 600.0  # seconds that a node may take to start, which on a busy machine is minutes
GRADIENT = 0.5  # seconds


class RayNodes:
    """A cluster of Ray in a bed whose first host is the head.

    Args:
        bed: the hosts.
        environment: what is set for the processes of a host in addition, by its name.
    """

    name = "Ray"

    def __init__(self, bed: Bed, environment: dict[str, dict[str, str]]) -> None:
        self.bed, self._extra = bed, environment
        self.head, *self.nodes = bed.hosts.values()
        self.folder = bed.folder / "run"
        self.folder.mkdir()
        token = bed.folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32), encoding="ascii")
        # In a bed without namespaces all nodes are on one machine, where the documented ports are taken.
        self._ports = PORTS.split() if bed.isolated else []
        self._variables = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_TMPDIR": str(self.head.shared),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        }
        self.address = f"{self.head.address}:6379"
        self._started: dict[str, subprocess.Popen[Any]] = {}
        self._count = 0

    @staticmethod
    def missing() -> str:
        """Return what must be installed, "" if nothing."""
        return "" if find_spec("ray") else 'Ray is not installed: pip install "fdro[ray]"'

    def environment(self, host: Host) -> dict[str, str]:
        """The variables of a host's processes."""
        return os.environ | self._variables | self._extra.get(host.name, {})

    def start(self) -> None:
        """Start the head, then the nodes."""
        self._count += 1
        self._start(self.head, ["--head", "--port=6379", "--include-dashboard=false"])
        for node in self.nodes:
            site = json.dumps({node.name: 1})
            self._start(node, [f"--address={self.address}", f"--resources={site}"])

    def _start(self, host: Host, arguments: list[str]) -> None:
        common = [f"--node-ip-address={host.address}", *self._ports, "--disable-usage-stats", "--block"]
        log = f"ray{self._count}"
        process = host.start(log, ["ray", "start", *arguments, *common], self.environment(host))
        self._started[host.name] = process
        end = monotonic() + START
        while "Ray runtime started" not in host.log(log):
            if monotonic() > end or process.poll() is not None:
                raise RuntimeError(f"{host.name} does not start: {plain_text(host.log(log))[-2000:]}")
            sleep(0.2)

    def run(self) -> subprocess.Popen[Any]:
        """Start the master on the head; it continues from the checkpoint if there is one."""
        sites = ",".join(node.name for node in self.nodes)
        command = [sys.executable, "-m", "bench.network.ray_master", str(self.folder), self.address, sites]
        return self.head.start("master", [*command, str(GRADIENT)], self.environment(self.head))

    def said(self) -> str:
        """Return the end of what the master printed."""
        return plain_text(self.head.log("master"))

    def kill_head(self) -> None:
        """Kill the head's processes, but not the master."""
        end_family(self._started[self.head.name])

    def restart(self) -> None:
        """Start all again after the head was killed."""
        self.close()
        self.start()

    def end_run(self, process: subprocess.Popen[Any]) -> None:
        """End a run that hangs."""
        end_family(process)

    def close(self) -> None:
        """End all nodes."""
        for process in self._started.values():
            end_family(process)
