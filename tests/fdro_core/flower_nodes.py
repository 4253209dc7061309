"""The engine on Flower as the shared suite runs it: Flower's link state here, client apps in other processes.

The suite's problems are objects of its own. Here each becomes a file at its node, and what passes through
Flower is the file's path: as everywhere on Flower, the data is at the node.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from fdro_core.engines.flower_ import FlowerEngine, codec
from fdro_core.engines.flower_.client import Node
from tests.fdro_core.flower_loopback import LocalNodes

try:
    from cloudpickle import dumps  # classes that a test defines in a function
except ImportError:
    from pickle import dumps

APP, FORGETFUL = (f"{__name__}:{name}" for name in ("app", "forgetful_app"))


def from_file(description, worker, node_config):
    return pickle.loads(Path(description["file"]).read_bytes())


def app():
    """A client app that keeps its workers while its process lives, as in a simulation."""
    return Node(from_file, details=True, keep=64, largest=codec.LARGEST).app()


def forgetful_app():
    """A client app that makes its worker again for every message, as in a deployment."""
    return Node(from_file, details=True, keep=0, largest=codec.LARGEST).app()


class SuiteEngine(FlowerEngine):
    """Brings its own nodes, as many as there are workers."""

    def __init__(self, folder, app, **settings):
        super().__init__(**{"poll": 0.002} | settings)
        self.folder, self.app, self.local = folder, app, None

    def _open(self, factories):
        self.local = LocalNodes(len(factories), self.app, [__name__])
        self.grid = self.local.grid
        super()._open(factories)

    def _describe(self, worker, factory):
        file = self.folder.mktemp("node") / "worker.pickle"
        file.write_bytes(dumps(factory))
        return {"file": str(file)}

    def _close(self):
        super()._close()
        if self.local is not None:
            self.local.close()
            self.local = None


def flower_engine(folder, app=APP):
    """What makes an engine of the suite from settings."""

    def build(*, patience=300.0, restarts=10, restart_after=0.5, deadline_floor=60.0, poll=0.002):
        return SuiteEngine(
            folder, app, patience=patience, restarts=restarts, restart_after=restart_after,
            deadline_floor=deadline_floor, poll=poll,
        )  # fmt: skip

    build.wall_clock = True
    return build
