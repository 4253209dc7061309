"""Flower in the test bed: a SuperLink and SuperNodes with TLS and keys, by the commands of docs/flower.md."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.network.bed import Bed
from bench.network.flower_deployment import Deployment, plain_text
from bench.network.hosts import Host, end_all, end_family, family_of

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


class FlowerNodes:
    """A SuperLink in the first host of a bed and a SuperNode in each of the others.

    Args:
        bed: the hosts.
        environment: what is set for the processes of a host in addition, by its name.
    """

    name = "Flower"

    def __init__(self, bed: Bed, environment: dict[str, dict[str, str]]) -> None:
        self.folder = bed.folder / "run"
        self.folder.mkdir()
        self._deployment = _InHosts(self.folder, bed, environment)
        self._nodes = len(bed.hosts) - 1
        self._orphans: list[Any] = []
        self._app = self.folder / "app"
        (self._app / "beds").mkdir(parents=True)
        for name, text in APP.items():
            (self._app / "beds" / name).write_text(text, encoding="utf-8")
        (self._app / "pyproject.toml").write_text(_project(self.folder, self._nodes), encoding="utf-8")

    @staticmethod
    def missing() -> str:
        """Return what must be installed, "" if nothing."""
        return "" if find_spec("flwr") else 'Flower is not installed: pip install "fdro[flower]"'

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

    def restart(self) -> None:
        """Start all again after the SuperLink was killed."""
        self.close()
        self.start()

    def end_run(self, process: subprocess.Popen[Any]) -> None:
        """End a run that hangs."""
        end_family(process)

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
