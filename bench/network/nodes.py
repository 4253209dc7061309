"""Ray and Flower in the test bed, by the commands of docs/cluster.md and docs/flower.md.

A head, or SuperLink, with the master is in the first host of a bed, and a node in each of the others.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from abc import ABC, abstractmethod
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import Any, ClassVar

from bench.network.bed import Bed
from bench.network.flower_deployment import Deployment, plain_text
from bench.network.hosts import Host, end_all, end_family, family_of

PORTS = "--node-manager-port=6380 --object-manager-port=6381 --min-worker-port=10002 --max-worker-port=10199"
START = 600.0  # seconds that a node may take to start, which on a busy machine is minutes
GRADIENT = 0.5  # seconds


class Nodes(ABC):
    """The nodes of one transport.

    Args:
        bed: the hosts.
        environment: what is set for the processes of a host in addition, by its name.

    Attributes:
        name: of the transport.
        package: what must be installed for it, and its extra.
        folder: in which the master writes.
    """

    name: ClassVar[str]
    package: ClassVar[tuple[str, str]]

    def __init__(self, bed: Bed, environment: dict[str, dict[str, str]]) -> None:
        self.bed, self._extra = bed, environment
        self.folder = bed.folder / "run"
        self.folder.mkdir()

    @classmethod
    def missing(cls) -> str:
        """Return what must be installed, "" if nothing."""
        module, extra = cls.package
        return "" if find_spec(module) else f'{cls.name} is not installed: pip install "fdro[{extra}]"'

    @abstractmethod
    def start(self) -> None:
        """Start the head, then the nodes."""

    @abstractmethod
    def run(self) -> subprocess.Popen[Any]:
        """Start the run on the head; it continues from the checkpoint if there is one."""

    @abstractmethod
    def said(self) -> str:
        """Return what the run printed."""

    @abstractmethod
    def kill_head(self) -> None:
        """Kill the head, but not the master."""

    @abstractmethod
    def close(self) -> None:
        """End all nodes, and what the run has left behind."""

    def restart(self) -> None:
        """Start all again after the head was killed."""
        self.close()
        self.start()

    def end_run(self, process: subprocess.Popen[Any]) -> None:
        """End a run that hangs."""
        end_family(process)


class RayNodes(Nodes):
    """A cluster of Ray in a bed whose first host is the head.

    One option is added to the documented ones, `--block`: processes then belong to the command and end with
    it.
    """

    name = "Ray"
    package = ("ray", "ray")

    def __init__(self, bed: Bed, environment: dict[str, dict[str, str]]) -> None:
        super().__init__(bed, environment)
        self.head, *self.nodes = bed.hosts.values()
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

    def close(self) -> None:
        """End all nodes."""
        for process in self._started.values():
            end_family(process)


ITERATIONS = 12  # a message takes seconds: to within 0.4 % of the optimum, not to the end
APP = {
    "__init__.py": '"""The app of the test bed."""\n',
    "server_app.py": "from bench.network.flower_master import master\n\napp = master()\n",
    "client_app.py": "from bench.network.flower_master import node\n\napp = node()\n",
}


class _InHosts(Deployment):
    """A deployment whose SuperLink is in the first host of a bed, and each node in one of the others."""

    start_limit = 600.0  # seconds: on a busy machine the start of many processes takes minutes

    def __init__(self, folder: Path, bed: Bed, extra: dict[str, dict[str, str]]) -> None:
        self._bed, self._extra = bed, extra
        self.link, *self.sites = bed.hosts.values()
        super().__init__(folder, address=self.link.address)

    def _host_of(self, name: str) -> Host:
        return self.sites[int(name.removeprefix("node"))] if name.startswith("node") else self.link

    def _in_place(self, name: str, command: list[str]) -> list[str]:
        host = self._host_of(name)
        extra = [f"{key}={value}" for key, value in self._extra.get(host.name, {}).items()]
        return host.command(["env", *extra, *command], folder=self.folder)

    def _serves(self) -> bool:
        connect = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"
        command = [sys.executable, "-c", connect, self.address, str(self.port)]
        done = subprocess.run(self.link.command(command), check=False, capture_output=True)
        return done.returncode == 0


class FlowerNodes(Nodes):
    """A SuperLink in the first host of a bed and a SuperNode in each of the others."""

    name = "Flower"
    package = ("flwr", "flower")

    def __init__(self, bed: Bed, environment: dict[str, dict[str, str]]) -> None:
        super().__init__(bed, environment)
        self._deployment = _InHosts(self.folder, bed, environment)
        self._nodes = len(bed.hosts) - 1
        self._orphans: list[Any] = []
        self._app = self.folder / "app"
        (self._app / "beds").mkdir(parents=True)
        for name, text in APP.items():
            (self._app / "beds" / name).write_text(text, encoding="utf-8")
        (self._app / "pyproject.toml").write_text(_project(self.folder, self._nodes), encoding="utf-8")

    def start(self) -> None:
        """Start the SuperLink, then the nodes."""
        self._deployment.start_superlink()
        for node in range(self._nodes):
            self._deployment.register(node)
            self._deployment.start_node(node)

    def run(self) -> subprocess.Popen[Any]:
        """Start the run where the SuperLink is; it continues from the checkpoint if there is one."""
        with (self.folder / "flwr-run.log").open("ab") as log:
            return self._deployment.run(self._app, {}, output=log)

    def said(self) -> str:
        """Return what the run printed."""
        return plain_text((self.folder / "flwr-run.log").read_text(encoding="utf-8", errors="replace"))

    def kill_head(self) -> None:
        """Kill the SuperLink, but not the server app."""
        self._orphans = family_of(self._deployment.processes["superlink"])
        end_all(self._orphans, only="flower-superlink")

    def close(self) -> None:
        """End the SuperLink and all nodes; and a server app that still tries to reach the SuperLink."""
        end_all(self._orphans)
        for name in list(self._deployment.processes):
            self._end(name)

    def _end(self, name: str) -> None:
        end_family(self._deployment.processes.pop(name))


def _project(folder: Path, workers: int) -> str:
    return f"""[project]
name = "beds"
version = "1.0.0"
description = "The app of the test bed"
license = "MIT"
dependencies = []

[tool.flwr.app]
publisher = "fdro"

[tool.flwr.app.components]
serverapp = "beds.server_app:app"
clientapp = "beds.client_app:app"

[tool.flwr.app.config]
workers = {workers}
iterations = {ITERATIONS}
folder = "{folder}"
"""
