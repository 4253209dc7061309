"""Flower: update rate of FlowerEngine against a bare push/pull loop, and the objective on real nodes.

`python -m bench flower [SECTION ...]`; without a section, all of them. `simulation` needs `flwr[simulation]`;
`deployment` starts a SuperLink and two SuperNodes on the loopback interface, with TLS and known keys.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.measuring.targets import run_sections
from bench.network.flower_deployment import deployed, plain_text
from fdro_core import AspireModels, FlowerEngine, LeastSquares, NamedProblem, solve
from fdro_core.engines.flower_ import client_app, package, server_app
from uncertainty_sets import KL, Box

CONSOLE = Console(width=120)
WORKERS, DIMENSION, TURNS = 16, 7850, 5
POLL = 0.1  # seconds between two pulls, of both: the interval of Flower's own grid in a simulation
SECONDS, WARM_UP = 20.0, 5.0


@cache
def light(worker: int) -> LeastSquares:
    """A gradient that costs next to nothing, so that Flower and the engine are what is measured."""
    rng = np.random.default_rng(worker)
    return LeastSquares(
        rng.normal(size=(2, DIMENSION)) / DIMENSION**0.5, rng.normal(size=2), l2=1e-2, intercept=False
    )


def node_problem(node_config: dict[str, Any]) -> LeastSquares:
    """The problem of a node."""
    return light(int(node_config["partition-id"]))


def bare_reply(message: Any, context: Any) -> Any:
    """A client without fdro: loss and gradient at the point that was sent."""
    app = package.load()
    z = message.content["point"]["z"].numpy()
    loss, gradient = node_problem(context.node_config).loss_and_gradient(z)
    content = app.RecordDict(
        {"gradient": app.ArrayRecord({"g": app.Array(gradient)}), "loss": app.ConfigRecord({"loss": loss})}
    )
    return app.Message(content, reply_to=message)


def bare(grid: Any) -> float:
    """Replies per second of a loop that pulls, reads what came, and sends those nodes the next message."""
    app, z = package.load(), np.zeros(DIMENSION)

    def push(nodes: list[int]) -> list[str]:
        content = [app.RecordDict({"point": app.ArrayRecord({"z": app.Array(z)})}) for _ in nodes]
        return list(
            grid.push_messages(
                [app.Message(each, node, "train.bare") for each, node in zip(content, nodes, strict=True)]
            )
        )

    nodes = list(grid.get_node_ids())
    waiting, begin, count, last = set(push(nodes)), time.perf_counter(), 0, 0.0
    first = 0.0
    while last - begin < SECONDS + WARM_UP:
        replies = list(grid.pull_messages(waiting))
        waiting -= {reply.metadata.reply_to_message_id for reply in replies}
        for reply in replies:
            reply.content["gradient"]["g"].numpy()
        last = time.perf_counter()
        if first:
            count += len(replies)
        elif last - begin >= WARM_UP:
            first = last
        waiting |= set(push([reply.metadata.src_node_id for reply in replies]))
        time.sleep(POLL)
    while waiting:  # so that the next to measure does not wait for these
        waiting -= {reply.metadata.reply_to_message_id for reply in grid.pull_messages(waiting)}
        time.sleep(POLL)
    return count / (last - first)


def ours(grid: Any) -> float:
    """Updates per second of ASPIRE-EASE on FlowerEngine, S = 1."""
    marks: list[tuple[float, int]] = []
    begin = time.perf_counter()

    def look(run: Any, entry: dict[str, Any]) -> str | None:
        now = time.perf_counter()
        if now - begin >= WARM_UP:
            marks.append((now, entry["iteration"]))
        return "measured" if marks and now - marks[0][0] >= SECONDS else None

    q = np.full(WORKERS, 1 / WORKERS)
    problems = [NamedProblem(f"{__name__}:node_problem") for _ in range(WORKERS)]
    config = AspireModels(iterations=10**6, active_workers=1, tolerance=0.0, report_interval=WORKERS)
    solve(
        problems,
        Box(0.3 * q, 3 * q),
        algorithm=config,
        engine=FlowerEngine(grid, poll=POLL),
        observers=[look],
    )
    (start, low), (end, high) = marks[0], marks[-1]
    return (high - low) / (end - start)


def simulate(server: Any, client: Any, nodes: int, *, cpus: int = 2) -> None:
    """Run a ServerApp with so many simulated nodes, on as many processes as `cpus` of Ray.

    It needs `flwr[simulation]`. `flwr run` is the way for everything but measurements.
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


def simulation() -> None:
    """Updates per second in Flower's simulation: 16 clients on two processes, p = 7,850."""
    turns: list[tuple[float, float]] = []

    def main_of_server(grid: Any, context: Any) -> None:
        while len(list(grid.get_node_ids())) < WORKERS:
            time.sleep(POLL)
        for _ in range(TURNS):
            turns.append((ours(grid), bare(grid)))

    client = client_app([node_problem])
    client.train("bare")(bare_reply)
    simulate(server_app(main_of_server), client, WORKERS)
    numbers = np.array(turns)
    table = Table("", "updates/s", "of the bare loop", title=str(simulation.__doc__))
    ratio = numbers[:, 0] / numbers[:, 1]
    spread = f"{np.median(ratio):.2f} ({ratio.min():.2f} to {ratio.max():.2f})"
    table.add_row("FlowerEngine", f"{np.median(numbers[:, 0]):.1f}", spread)
    table.add_row("bare push/pull loop", f"{np.median(numbers[:, 1]):.1f}", "1")
    CONSOLE.print(table)


def deployment() -> None:
    """Two SuperNodes on loopback, TLS and known keys: the objective against the virtual engine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wards = folder / "wards"
        fdro = [sys.executable, "-m", "fdro_core.cli", "flower", "new"]
        subprocess.run(
            [*fdro, str(wards), "--workers", "2", "--quiet"], check=True, stdout=subprocess.DEVNULL
        )
        sys.path.insert(0, str(wards))
        problems = [
            NamedProblem("wards.task:make_problem", l2=0.01, node_config={"worker": j}) for j in range(2)
        ]
        chosen = KL(np.full(2, 0.5), 0.1)
        best = solve(problems, chosen, algorithm=AspireModels(iterations=400)).objective
        (folder / "nodes").mkdir()
        table = Table(
            "run", "objective", "compared with", "relative difference", "seconds", "s per message of a node"
        )
        with deployed(folder / "nodes", nodes=2) as nodes:
            for active, iterations in ((2, 8), (1, 24)):
                config = AspireModels(iterations=iterations, active_workers=active, local_steps=5)
                virtual = solve(problems, chosen, algorithm=config).objective if active == 2 else best
                begin = time.perf_counter()
                run = nodes.run(wards, {"iterations": iterations, "active-workers": active})
                log = plain_text(run.communicate()[0])
                seconds = time.perf_counter() - begin
                found = re.search(r"objective (\S+) after", log)
                if found is None:
                    raise RuntimeError(log)
                value = float(found[1])
                messages = 4 + iterations * active / 2
                table.add_row(
                    f"S = {active}, {iterations} iterations", f"{value:.9f}",
                    "virtual, same iterations" if active == 2 else "the optimum",
                    f"{abs(value - virtual) / virtual:.1e}", f"{seconds:.0f}", f"{seconds / messages:.1f}",
                )  # fmt: skip
        CONSOLE.print(table)


SECTIONS = {part.__name__: part for part in (simulation, deployment)}


def main(arguments: list[str]) -> int:
    """Run the sections named, or all."""
    return run_sections(SECTIONS, arguments, CONSOLE)
