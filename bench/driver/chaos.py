"""Hosts killed at random while a run goes on: raised errors on threads, SIGKILL on Ray's actors and nodes.

`python -m bench chaos [threads] [actors] [nodes] [--seconds 120] [--every 4] [--algorithm aspire-ease]`;
all scenes if none is named. A scene passes if the run ends within 1 % of the undisturbed objective and its
books are in order: the master's sums are those of its workers' variables, every w_j or g_j is that of the
last replies, and replies that one side counts and the other does not belong to losses in the history.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from fdro_core import AspireEase, AspireModels, ProblemFrom, RayEngine, SoftmaxRegression, ThreadEngine, solve
from fdro_core.aspire.models.messages import Evaluation
from fdro_core.engines.ray_.cluster import several_nodes
from fdro_core.protocol.engine import Event, WorkerFactory
from fdro_core.protocol.messages import Reply, Request, Step, Update
from uncertainty_sets import KL

CONSOLE = Console(width=120)
WORKERS, HOSTS = 12, 3
SETTLING = 10.0  # seconds from the moment when all are back, after the last kill, to the end
LONGEST = 120.0  # seconds after which the run ends though somebody is still away

_doomed: set[int] = set()  # workers of this process whose next gradient raises


class Fragile(SoftmaxRegression):
    """Softmax regression whose host may be told to fail."""

    worker = -1

    def loss_and_gradient(self, *arguments: Any) -> tuple[float, Any]:
        """Return the gradient; raise if the worker is doomed."""
        if self.worker in _doomed:
            _doomed.discard(self.worker)
            raise OSError("host killed")
        return super().loss_and_gradient(*arguments)


def shard(worker: int) -> Fragile:
    """Worker j's data: 40 samples of 20 features around the worker's own centre."""
    rng = np.random.default_rng([3, worker])
    X = rng.normal(size=(40, 20)) + 0.7 * rng.normal(size=20)
    problem = Fragile(X, np.argmax(X[:, :4] + rng.gumbel(size=(40, 4)), axis=1), 4, l2=1e-2, intercept=False)
    problem.worker = worker
    return problem


class Witness:
    """An engine that another one does the work for, and that keeps its own books of what passes."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.taken = 0
        self.tickets: dict[int, int] = {}
        self.w: dict[int, Any] = {}
        self.heard: dict[int, Update] = {}
        self.evaluations: dict[int, list[Evaluation]] = defaultdict(list)

    @property
    def clock(self) -> float:
        """The clock of the engine."""
        return float(self.engine.clock)

    def start(self, factories: Sequence[WorkerFactory]) -> None:
        """Passed on."""
        self.engine.start(factories)

    def send(self, worker: int, message: Request) -> None:
        """A step without a start, with a new ticket: the reply before it was taken."""
        if isinstance(message, Step):
            if message.start is not None:
                self.w[worker] = message.start.copy()
            elif message.ticket > 1 and message.ticket != self.tickets.get(worker):
                reply = self.heard[worker]
                assert reply.ticket == message.ticket - 1, "a step follows a reply that was never heard"
                self.taken += 1
                self.w[worker] = reply.w.copy()
            self.tickets[worker] = message.ticket
        self.engine.send(worker, message)

    def receive(self, until: float | None) -> Event:
        """Passed on, with the reply noted."""
        event: Event = self.engine.receive(until)
        if isinstance(event.payload, Update):
            self.heard[event.worker] = event.payload
        elif isinstance(event.payload, Evaluation):
            last = self.evaluations[event.worker]
            self.taken += not last or last[-1].ticket != event.payload.ticket
            last[:] = [*last[-3:], event.payload]
        return event

    def ask(self, messages: Mapping[int, Request]) -> dict[int, Reply | Exception]:
        """Passed on."""
        replies: dict[int, Reply | Exception] = self.engine.ask(messages)
        return replies

    def stop(self) -> None:
        """Passed on."""
        self.engine.stop()

    def snapshot(self) -> dict[str, Any]:
        """Passed on."""
        state: dict[str, Any] = self.engine.snapshot()
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Passed on."""
        self.engine.restore(state)

    def faults(self, master: Any, history: list[dict[str, Any]]) -> list[str]:
        """What is not in order between these books, the master's state and the history."""
        live = [j for j in range(WORKERS) if master.roster.alive[j]]
        lost = sum(entry["event"] == "worker-lost" for entry in history)
        return (self._model_faults if hasattr(master, "models") else self._consensus_faults)(
            master, live, lost
        )

    def _model_faults(self, master: Any, live: list[int], lost: int) -> list[str]:
        """The planes' sums against the workers' models, and these against the last replies."""
        models, planes = master.models, master.planes
        found = []
        error = float(np.abs(models.curvature @ planes.table[:, : planes.size] - models.C).max())
        if error > 1e-8 * float(models.curvature.max()):
            found.append(f"the planes' curvatures are off by {error:.1e}")
        for j in live:
            last = self.evaluations[j]
            if last and not any(np.array_equal(models.G[j], reply.gradient) for reply in last):
                found.append(f"the master's g_{j} is not that of one of the last replies")
        if not 0 <= self.taken - master.gradients <= lost:  # the reply under way at a loss is ignored
            found.append(
                f"{self.taken} replies came, {master.gradients} were counted, and there were {lost} losses"
            )
        return found

    def _consensus_faults(self, master: Any, live: list[int], lost: int) -> list[str]:
        """The master's sum against the workers' variables, and these against the last replies."""
        consensus = master.consensus
        found = []
        total = sum(consensus.w[j] - consensus.U[j] / consensus.penalty for j in live)
        error = float(np.abs(total - consensus.total).max())
        if error > 1e-8 * max(1.0, float(np.abs(total).max())):
            found.append(f"the master's sum is off by {error:.1e}")
        for j in live:
            known = self.w.get(j)
            if known is not None and not np.array_equal(known, consensus.w[j]):
                found.append(f"the master's w_{j} is not that of the last reply taken")
        waiting = len(master.roster.pending)
        missing = master.gradients - self.taken - waiting
        if not 0 <= missing <= lost:
            found.append(
                f"{master.gradients} replies were counted, {self.taken} taken, {waiting} wait, and there "
                f"were {lost} losses"
            )
        return found


def scene(name: str, engine: Any, kill: Callable[[Any], str], options: argparse.Namespace) -> bool:
    """A run with kills; whether it came through."""
    seconds, every = options.seconds, options.every
    sources = [ProblemFrom(shard, j) for j in range(WORKERS)]
    chosen = KL(np.full(WORKERS, 1 / WORKERS), 0.1)
    best = solve(sources, chosen).objective
    witness, rng = Witness(engine), np.random.default_rng(options.seed)
    over = threading.Event()
    kills: list[str] = []
    masters: list[Any] = []
    complete: list[float] = []  # since when all workers are alive

    def rampage() -> None:
        last = time.monotonic() + seconds  # its own time: while all are away there are no reports
        while not over.wait(every * (0.5 + rng.random())) and time.monotonic() < last:
            kills.append(kill(rng))

    thread = threading.Thread(target=rampage, daemon=True)

    def look(run: Any, entry: dict[str, Any]) -> str | None:
        if not masters:
            masters.append(run.master)
            thread.start()
        now = entry["clock"]
        if now > seconds:
            over.set()
        if now < seconds or run.master.roster.live < WORKERS:
            complete.clear()
        elif not complete:
            complete.append(now)
        done = now > seconds + LONGEST or (complete and now > complete[0] + SETTLING)
        return "time" if done else None

    settings: dict[str, Any] = {"iterations": 10**9, "deadline": 10.0, "report_interval": WORKERS}
    config = (
        AspireEase(**settings)
        if options.algorithm == "aspire-ease"
        else AspireModels(**settings, tolerance=0.0)  # it would stop at the optimum
    )
    begin = time.perf_counter()
    try:
        result = solve(sources, chosen, algorithm=config, engine=witness, observers=[look])
    finally:
        over.set()
    events = [entry["event"] for entry in result.history]
    gap = abs(result.objective - best) / abs(best)
    faults = witness.faults(masters[0], result.history)
    kills = [victim for victim in kills if victim != "nobody"]
    if len(kills) < seconds / every / 4:
        faults.append("too few kills for a conclusion")
    if gap > 0.01:
        faults.append(f"the objective is {gap:.1%} away from the undisturbed one")
    CONSOLE.print(
        f"{name}: {len(kills)} kills in {seconds:.0f} s, {events.count('worker-lost')} workers lost, "
        f"{events.count('worker-back')} back, {result.iterations:,} iterations in "
        f"{time.perf_counter() - begin:.0f} s; objective {result.objective:.6f}, {gap:.1e} from the "
        f"undisturbed {best:.6f}; {witness.taken:,} updates taken, {'; '.join(faults) or 'none lost'}"
    )
    return not faults


def threads(options: argparse.Namespace) -> bool:
    """Threads: the next gradient of some workers raises."""

    def kill(rng: np.random.Generator) -> str:
        host = rng.integers(HOSTS)
        _doomed.update(range(host * WORKERS // HOSTS, (host + 1) * WORKERS // HOSTS))
        return f"host {host}"

    engine = ThreadEngine(restart_after=1.0)
    return scene("threads, errors", engine, kill, options)


def actors(options: argparse.Namespace) -> bool:
    """Ray: an actor's process gets SIGKILL."""
    import psutil

    me = psutil.Process()

    def kill(rng: np.random.Generator) -> str:
        hosts = [p for p in me.children(recursive=True) if _is_host(p)]
        if not hosts:
            return "nobody"
        victim = hosts[rng.integers(len(hosts))]
        victim.kill()
        return f"process {victim.pid}"

    engine = RayEngine(hosts=HOSTS)
    return scene("Ray, actors", engine, kill, options)


def _is_host(process: Any) -> bool:
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE and "ray::Host" in " ".join(process.cmdline()))
    except psutil.Error:
        return False


def nodes(options: argparse.Namespace) -> bool:
    """Ray: a node's raylet gets SIGKILL, and its actors with it; a new node joins before the next kill."""
    with several_nodes(HOSTS, {"host": 1.0}) as cluster:

        def kill(rng: np.random.Generator) -> str:
            if cluster.size < HOSTS:
                try:
                    cluster.add()
                except Exception as error:  # Ray gives up on a node that takes too long to start
                    CONSOLE.print(f"no new node this time: {error}")
            # One stays: a new node takes long to start, and with none there is nowhere to go.
            return cluster.kill(int(rng.integers(10**6))) if cluster.size > 1 else "nobody"

        engine = RayEngine(address=cluster.address, hosts=[{"host": 0.01}] * HOSTS)
        return scene("Ray, nodes", engine, kill, options)


SCENES = {part.__name__: part for part in (threads, actors, nodes)}


def main(arguments: list[str]) -> int:
    """Run the scenes named, or all; return 1 if one does not pass."""
    parser = argparse.ArgumentParser(prog="python -m bench chaos", description=__doc__)
    parser.add_argument("scenes", nargs="*", choices=[[], *SCENES], default=[])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two kills, on average")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--algorithm", choices=["aspire-models", "aspire-ease"], default="aspire-models")
    options = parser.parse_args(arguments)
    passed = [SCENES[name](options) for name in options.scenes or SCENES]
    return 0 if all(passed) else 1
