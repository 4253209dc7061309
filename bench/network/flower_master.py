"""The master and the nodes of a run on Flower in the test bed; the app in the bed's folder names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.network.run_log import train
from fdro_core import FlowerEngine, NamedProblem
from fdro_core.engines.flower_ import client_app, server_app

PROBLEM = "bench.network.problem:make_problem"


def lead(grid: Any, context: Any) -> None:
    """Train, as the server app."""
    config = context.run_config
    problems = [NamedProblem(PROBLEM)] * int(config["workers"])
    engine = FlowerEngine(grid, join_timeout=180.0)
    train(Path(config["folder"]), problems, engine, int(config["iterations"]))


def master() -> Any:
    """Return the server app."""
    return server_app(lead)


def node() -> Any:
    """Return the client app."""
    return client_app([PROBLEM])
