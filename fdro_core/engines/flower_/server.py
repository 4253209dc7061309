"""The master's side of an app: a ServerApp around a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fdro_core.engines.flower_ import package


def server_app(main: Callable[[Any, Any], None]) -> Any:
    """Return a ServerApp that runs `main(grid, context)`, which calls `solve(..., FlowerEngine(grid))`."""
    app = package.load_apps()[0]()
    app.main()(main)
    return app
