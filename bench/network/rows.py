"""One run in a bed of its own: what was done to it, where it ended, and what it said."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from time import monotonic, sleep

from bench.network.bed import bed
from bench.network.disturbances import BEGIN, Disturbance, Disturber, variables
from bench.network.nodes import FlowerNodes, Nodes, RayNodes
from bench.network.run_log import Log

TRANSPORTS: dict[str, type[Nodes]] = {"ray": RayNodes, "flower": FlowerNodes}
LOOK = 0.2  # seconds between two looks at a run
LONGEST = 600.0  # seconds after which a run counts as hung
HOSTS = ("head", "site-1", "site-2", "site-3")
VICTIM = "site-2"


@dataclass
class Row:
    """A run's outcome.

    Attributes:
        disturbance: what was done.
        transport: on which.
        skipped: why nothing was done.
        objective: None if the run did not end.
        seconds: of the run, without the start of the nodes.
        iterations: of the master.
        lost: how often a worker was lost.
        back: how often one returned.
        frames: what the switch did.
        said: the run's own words, if it has something to say.
        distance: from the undisturbed objective, relative to it.
    """

    disturbance: str
    transport: str
    skipped: str = ""
    objective: float | None = None
    seconds: float = 0.0
    iterations: int = 0
    lost: int = 0
    back: int = 0
    frames: dict[str, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    distance: float | None = None


def measure(disturbance: Disturbance, transport: str, *, seed: int, loopback: bool) -> Row:
    """Make a bed, start the nodes, run, disturb."""
    row = Row(disturbance.words, TRANSPORTS[transport].name)
    ahead = {VICTIM: disturbance.monotonic} if disturbance.monotonic else None
    with bed(HOSTS, seed=seed, ahead=ahead, loopback=loopback) as made:
        row.skipped = disturbance.not_here(made)
        if row.skipped:
            return row
        nodes = TRANSPORTS[transport](made, {VICTIM: variables(disturbance)})
        disturber, log = Disturber(made, disturbance, VICTIM), Log(nodes.folder)
        try:
            nodes.start()
            _watch(nodes, log, disturber, disturbance.dead_head, row)
            if disturbance.dead_head:
                nodes.restart()
                _watch(nodes, log, disturber, False, row)
        except (RuntimeError, OSError) as error:  # nodes that do not start: no run, and so no result of one
            row.skipped = f"not measured: {' '.join(str(error).split())[:300]}"
        finally:
            nodes.close()
        disturber.end()
        row.frames = disturber.counts
        _fill(row, log)
    return row


def _watch(nodes: Nodes, log: Log, disturber: Disturber, kill: bool, row: Row) -> None:
    """Follow a run until it ends."""
    begin, before = monotonic(), len(log.events)
    process = nodes.run()
    killed: float | None = None
    while process.poll() is None and monotonic() - begin < LONGEST:
        sleep(LOOK)
        log.read()
        disturber.look(log.iteration)
        if kill and killed is None and log.iteration >= BEGIN:
            nodes.kill_head()
            killed = monotonic()
    log.read()
    row.seconds += monotonic() - begin
    hung = process.poll() is None
    if killed is not None:
        after = "still runs" if hung else f"ended (code {process.returncode})"
        row.said.append(f"{monotonic() - killed:.0f} s after the kill the run {after}")
    elif hung:
        row.said.append(f"no end within {LONGEST:.0f} s")
    if hung:
        nodes.end_run(process)
    ended = {"end", "failed"} & {each["event"] for each in log.events[before:]}
    if not ended:
        row.said.append(f"without a word of fdro; the last that was printed: {_last_words(nodes.said())}")


def _fill(row: Row, log: Log) -> None:
    row.iterations = log.iteration
    row.lost, row.back = log.count("worker-lost"), log.count("worker-back")
    end = log.last("end")
    if end is not None:
        row.objective = float(end["objective"])
        if end["unanswered"]:
            row.said.append(f"no answer at the end from workers {end['unanswered']}")
    reasons = dict.fromkeys(
        f"{each['event']}: {each['reason']}"
        for each in log.events
        if each["event"] in {"worker-lost", "failed"} and each.get("reason")
    )
    row.said += list(reasons)


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if re.search(r"[a-z]{3}", line)]
    return lines[-1][-300:] if lines else "nothing"
