"""Flower itself, imported on first use with its telemetry off, and the master's side of an app."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any

from uncertainty_sets.errors import BackendMissing

OLDEST = (1, 40)  # the first release with the Message, RecordDict and Grid that this folder is written for


@cache
def load() -> Any:
    """Import `flwr.app`, which has messages and records."""
    # Before the import: Flower reads it once, and sends usage statistics unless it is 0.
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    try:
        import flwr.app
    except ImportError as error:
        raise BackendMissing('FlowerEngine needs flwr: pip install "fdro[flower]"') from error
    found = metadata.version("flwr")
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        raise BackendMissing(
            f"FlowerEngine needs flwr {'.'.join(map(str, OLDEST))} or newer, found {found}: "
            'pip install --upgrade "fdro[flower]"'
        )
    return flwr.app


def load_apps() -> tuple[Any, Any]:
    """Import `ServerApp` and `ClientApp`."""
    load()
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    return ServerApp, ClientApp


def server_app(main: Callable[[Any, Any], None]) -> Any:
    """Return a ServerApp that runs `main(grid, context)`, which calls `solve(..., FlowerEngine(grid))`."""
    app = load_apps()[0]()
    app.main()(main)
    return app
