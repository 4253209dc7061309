"""Flower's simulation from Python, for measurements; `flwr run` is the way for everything else."""

from __future__ import annotations

import logging
import os
from typing import Any

from fdro_core.engines.flower_ import package


def simulate(server: Any, client: Any, nodes: int, *, cpus: int = 2) -> None:
    """Run a ServerApp with so many simulated nodes, on as many processes as `cpus` of Ray.

    It needs `flwr[simulation]`.
    """
    package.load()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    resources = {"num_cpus": 1, "num_gpus": 0.0}
    local = {"num_cpus": cpus, "include_dashboard": False, "log_to_driver": False}
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=nodes,
        backend_config={"client_resources": resources, "init_args": local},
    )
