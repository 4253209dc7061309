"""What the master of a run in the test bed tells: one line of JSON per event and one at the end, in a file.

The test bed reads the file while the run goes on, to disturb it at the right moment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.network.problem import around_equal_weights
from fdro_core import AspireModels, Result, resume, solve
from fdro_core.observers import Checkpoint

EVENTS, CHECKPOINT = "events.jsonl", "checkpoint.npz"


def train(folder: Path, problems: Sequence[Any], engine: Any, iterations: int) -> None:
    """Solve with half of the workers per iteration, or continue from the checkpoint in the folder.

    An exception is written down and raised again.
    """
    workers, checkpoint = len(problems), folder / CHECKPOINT
    algorithm = AspireModels(active_workers=(workers + 1) // 2, iterations=iterations, report_interval=1)
    given: dict[str, Any] = {"algorithm": algorithm, "engine": engine}
    with (folder / EVENTS).open("a", encoding="utf-8") as file:

        def write(line: dict[str, Any]) -> None:
            print(json.dumps(line), file=file, flush=True)

        def tell(run: Any, entry: dict[str, Any]) -> None:
            kept = ("event", "iteration", "clock", "objective", "worker", "reason")
            write({name: entry[name] for name in kept if name in entry})

        given["observers"] = [tell, Checkpoint(checkpoint, every=1)]
        try:
            if checkpoint.exists():
                result = resume(checkpoint, problems, around_equal_weights(workers), **given)
            else:
                result = solve(problems, around_equal_weights(workers), **given)
        except BaseException as error:
            write({"event": "failed", "reason": f"{type(error).__name__}: {error}"})
            raise
        write(_ending(result))


def _ending(result: Result) -> dict[str, Any]:
    return {
        "event": "end",
        "objective": float(result.objective),
        "iteration": result.iterations,
        "clock": result.clock,
        "reason": result.stop_reason,
        "unanswered": [int(j) for j in np.flatnonzero(np.isnan(result.losses))],
    }


class Log:
    """The lines of such a file so far.

    Args:
        folder: in which the run writes it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / EVENTS
        self._place = 0
        self.events: list[dict[str, Any]] = []

    def read(self) -> None:
        """Read what was written since the last time; a line that is not complete is left for the next."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._place)
            *lines, rest = file.read().split(b"\n")
            self._place = file.tell() - len(rest)
        self.events += [json.loads(line) for line in lines]

    def count(self, event: str) -> int:
        """How many events of that name there were."""
        return sum(each["event"] == event for each in self.events)

    def last(self, event: str) -> dict[str, Any] | None:
        """The last event of that name."""
        return next((each for each in reversed(self.events) if each["event"] == event), None)

    @property
    def iteration(self) -> int:
        """How far the run is."""
        return max((int(each.get("iteration", 0)) for each in self.events), default=0)
